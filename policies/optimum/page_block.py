"""Pages as the search for the multiplier takes them."""

from dataclasses import dataclass
from typing import Final

import numpy as np

from policies.numerics.typing_ import FloatArray, IntArray
from policies.signalled.block import SignalBlock

LARGEST_RATE: Final = 1e30


@dataclass(frozen=True, slots=True)
class PageBlock:
    """Pages of whole hosts: what the search needs to know of them. Rates are per day.

    Attributes
    ----------
    change_rate_per_day : (n,) float64
    request_rate_per_day : (n,) float64
        Weight of a page: requests per day, or any importance. Rates below 1e-30 count as zero.
    floor_per_day, cap_per_day : (n,) float64 or None
        Least and largest crawl rate; an inf cap is none. A floor above its cap is lowered to the cap.
    host_start : (h + 1,) int64 or None
        Rows host_start[j]:host_start[j + 1] are the pages of host j.
    host_limit_per_day : (h,) float64 or None
        Largest sum of crawl rates of a host; inf is none.
    signals : SignalBlock or None
        Pages with change-indicating signals; only the objective "signals" looks at them. Their change rate
        is then that of the signals' model, not `change_rate_per_day`.
    """

    change_rate_per_day: FloatArray
    request_rate_per_day: FloatArray
    floor_per_day: FloatArray | None = None
    cap_per_day: FloatArray | None = None
    host_start: IntArray | None = None
    host_limit_per_day: FloatArray | None = None
    signals: SignalBlock | None = None

    def __len__(self) -> int:
        return int(self.change_rate_per_day.shape[0])

    def validate(self) -> None:
        """Raises ValueError at the first column that is malformed, with its name, a value and the limit."""
        n = len(self)
        _check("change_rate_per_day", self.change_rate_per_day, n, LARGEST_RATE)
        _check("request_rate_per_day", self.request_rate_per_day, n, LARGEST_RATE)
        if self.floor_per_day is not None:
            _check("floor_per_day", self.floor_per_day, n, LARGEST_RATE)
        if self.cap_per_day is not None:
            _check("cap_per_day", self.cap_per_day, n, np.inf)
        if self.signals is not None:
            self.signals.validate(n)
        if self.host_limit_per_day is None:
            return
        start = self.host_start
        if start is None:
            raise ValueError("host_limit_per_day needs host_start, the first row of each host")
        if (
            start.ndim != 1
            or start.size == 0
            or start[0] != 0
            or start[-1] != n
            or np.any(np.diff(start) < 0)
        ):
            raise ValueError(f"host_start must rise from 0 to the number of pages, {n}")
        _check("host_limit_per_day", self.host_limit_per_day, start.size - 1, np.inf)


def _check(name: str, values: FloatArray, n: int, largest: float) -> None:
    if values.shape != (n,) or values.dtype != np.float64:
        raise ValueError(f"{name} must be float64 of shape ({n},), got {values.dtype} of {values.shape}")
    if n == 0:
        return
    low, high = float(values.min()), float(values.max())
    if not (low >= 0.0 and high <= largest):  # false for NaN, too
        raise ValueError(f"{name} must lie in [0, {largest:g}], got values from {low!r} to {high!r}")
