"""The one clock: it says which night is due, never what is computed."""

from __future__ import annotations

import time


def now() -> float:
    """Seconds since 1970."""
    return time.time()


def now_us() -> int:
    """The same in microseconds, of whole seconds."""
    return int(now()) * 1_000_000
