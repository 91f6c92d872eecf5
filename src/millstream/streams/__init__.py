"""Raw files -> windows of tokens that are made while training runs: the plan, the parts, and what makes them."""
