"""What holds for every test process."""

from __future__ import annotations

import signal

# A shell starts background jobs with SIGINT ignored, and children inherit that: programs that the
# tests interrupt would never notice. A handler is reset to the default in a child, so set one.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
