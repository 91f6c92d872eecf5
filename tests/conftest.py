"""How generated tests search: without deadlines, since machines are noisy; `make fuzz` looks longer."""

from hypothesis import settings

settings.register_profile("steady", deadline=None)
settings.register_profile("fuzz", max_examples=5000, deadline=None)
settings.load_profile("steady")
