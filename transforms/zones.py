"""Times of clocks on walls to UTC, a column at a time."""

from __future__ import annotations

from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

Micros = NDArray[np.int64]
DAY_US = 86_400_000_000


class LocalClock:
    """A clock of a time zone.

    Attributes
    ----------
    zone : ZoneInfo
    repeated, skipped : int
        Times so far of an hour that comes twice in autumn, of which the first is taken, and of one that does
        not exist in spring, which are taken as of a clock that had not been put forward yet.
    """

    def __init__(self, name: str) -> None:
        self.zone = zone_of(name)
        self.repeated = self.skipped = 0

    def to_utc(self, local_us: Micros) -> Micros:
        """Microseconds UTC, (n,), of microseconds of a clock that counts them from 1970 on."""
        first, last = (
            self._convert(local_us, "earliest", "latest"),
            self._convert(local_us, "latest", "earliest"),
        )
        skipped = np.flatnonzero(last < first)
        self.repeated += int((last > first).sum())
        self.skipped += len(skipped)
        if len(skipped):
            first[skipped] = self._convert(local_us[skipped] - DAY_US, "earliest", "latest") + DAY_US
        return first

    def _convert(self, local_us: Micros, ambiguous: str, nonexistent: str) -> Micros:
        local = pa.array(local_us).cast(pa.timestamp("us"))
        found = pc.assume_timezone(
            local, timezone=self.zone.key, ambiguous=ambiguous, nonexistent=nonexistent
        )
        return np.array(found.cast(pa.int64()))


def zone_of(name: str) -> ZoneInfo:
    """The zone of a name.

    Raises
    ------
    ValueError
        If there is none.
    """
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, OSError):
        raise ValueError(name) from None
