"""Numbers that the other folders leave behind. Imports nothing of ours."""
