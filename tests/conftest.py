"""How hard generated tests search: `make fuzz` looks longer."""

from hypothesis import settings

settings.register_profile("fuzz", max_examples=5000, deadline=None)
