"""Times of clocks on walls to UTC, a column at a time."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from transforms.batches.tally import counted

Micros = NDArray[np.int64]
DAY_US = 86_400_000_000

FAR_US = 3_600_000_000
"""More than clocks of machines differ, less than most of those of time zones."""
_SUMMER_ZONES = "America/New_York", "Europe/Berlin", "Australia/Sydney", "Pacific/Auckland"
"""Where clocks are put forward when they are nearly anywhere."""

FURTHEST_US = 14 * 3_600_000_000
"""Between UTC and the clock of a time zone."""


_LOCAL = {"observations": "fetched_at", "requests": "at", "signals": "signalled_at", "pages": "published_at"}
"""Of each kind of input the column whose times may be of any clock."""
_WITH_OPTION = ("observations", "requests")


class LocalClock:
    """A clock of a time zone, of UTC if that has no name.

    Attributes
    ----------
    zone : ZoneInfo or None
    """

    def __init__(self, name: str = "") -> None:
        self.zone = zone_of(name) if name else None
        self._naive = self._repeated = self._skipped = 0

    def uncounted(self) -> LocalClock:
        """One like it that has counted nothing."""
        return LocalClock(self.zone.key if self.zone is not None else "")

    @property
    def local(self) -> bool:
        """Whether any time that it has read named no zone."""
        return self._naive > 0

    def counts(self) -> dict[str, int]:
        """Times that it has read, and those of them of an hour that comes twice, or that does not exist."""
        found = {"local_times": self._naive, "repeated_times": self._repeated, "skipped_times": self._skipped}
        return {name: n for name, n in found.items() if n}

    def to_utc(self, local_us: Micros) -> Micros:
        """Microseconds UTC, (n,), of microseconds of the clock since it showed 1970.

        Of an hour that comes twice in autumn the first is taken. One that does not exist in spring is read as
        by a clock that nobody has put forward.
        """
        self._naive += len(local_us)
        if self.zone is None:
            return local_us
        first = self._convert(local_us, "earliest", "latest")
        last = self._convert(local_us, "latest", "earliest")
        skipped = np.flatnonzero(last < first)
        self._repeated += int((last > first).sum())
        self._skipped += len(skipped)
        if len(skipped):
            first[skipped] = self._convert(local_us[skipped] - DAY_US, "earliest", "latest") + DAY_US
        return first

    def _convert(self, local_us: Micros, ambiguous: str, nonexistent: str) -> Micros:
        local = pa.array(local_us).cast(pa.timestamp("us"))
        zone = self.zone.key if self.zone is not None else "UTC"
        found = pc.assume_timezone(local, zone, ambiguous=ambiguous, nonexistent=nonexistent)
        return np.array(found.cast(pa.int64()))


def said_of_local_times(kind: str, n: int, zone: str = "", columns: Mapping[str, str] | None = None) -> str:
    """How many times of an input name no zone, in which column, and as of which zone they are read.

    Parameters
    ----------
    kind : str
        Of input.
    n : int
    zone : str
        Of `--..._timezone`; UTC if empty.
    columns : mapping of str to str, optional
        Names that files have for recrawl's columns.
    """
    ours = _LOCAL.get(kind, "time")
    theirs = (columns or {}).get(ours, ours)
    column = ours if theirs == ours else f"{theirs} ({ours})"
    option = f"--{kind}_timezone" if kind in _WITH_OPTION else ""
    how = f" ({option} says another)" if option and not zone else f", as {option} says" if option else ""
    return f"{counted(n, 'time')} without a zone in {column}, read as {zone or 'UTC'}{how}"


def dates_ahead(dated: pa.Array, at: pa.Array) -> dict[str, int]:
    """Dates in Last-Modified within hours of the local times of their fetches, and those hours ahead of them.

    No server may date a page later than its own answer (RFC 9110, 8.8.2.1), so the times of such fetches are
    those of a clock that is behind, west of the zone that it was taken to be of. A clock in the east shows
    nothing like it: there, rows are later than the night.
    """
    ahead = pc.subtract(dated.cast(pa.int64()), at.cast(pa.int64())).drop_null().to_numpy()
    near = ahead[np.abs(ahead) <= FURTHEST_US]
    found = {"dates_near": len(near), "dates_hours_ahead": int(np.count_nonzero(near > FAR_US))}
    return {name: n for name, n in found.items() if n}


def summer_time(at_us: int, within_us: int) -> int:
    """By how many hours noon has moved in UTC, somewhere and in a time before an instant.

    -1 where clocks were put forward, 1 where they were put back, 0 if nowhere.
    """
    now, before = (datetime.fromtimestamp(t / 1e6, UTC) for t in (at_us, at_us - within_us))
    zones = [zone_of(name) for name in _SUMMER_ZONES]
    moved = {now.astimezone(z).utcoffset() - before.astimezone(z).utcoffset() for z in zones}  # type: ignore[operator]
    return -1 if max(moved) > timedelta(0) else int(min(moved) < timedelta(0))


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
