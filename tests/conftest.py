"""How generated tests search: without deadlines, since machines are noisy; `make fuzz` looks longer."""

import signal

from hypothesis import settings

settings.register_profile("steady", deadline=None)
settings.register_profile("fuzz", max_examples=5000, deadline=None)
settings.load_profile("steady")

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # a shell starts its background jobs so, and children inherit it
    signal.signal(signal.SIGINT, signal.default_int_handler)
