"""What siblings of a page found, between nights and in a shard; see `policies.signals.siblings`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from policies.estimation.forecast import Clocks, Forecast
from policies.history.interval_sums import Intervals
from policies.history.page_state import NO_TIME
from policies.numerics.typing_ import FloatArray, IntArray
from policies.signals.siblings import GAIN_UNIT, MIN_PAGES, SiblingDays, SiblingWatch, day_of
from transforms.batches import schemas
from transforms.shards.coding import ShardPages

MODES = ("auto", "on", "off")
MAX_NAMED = 20
_ALL_DAYS = 1 << 18


@dataclass(frozen=True)
class SiblingSums:
    """What siblings were good for. They merge exactly and in any order.

    Attributes
    ----------
    hosts : int
        Hosts whose crawls of the last 90 days say something of each other; a split host counts once a part.
    hosts_on, pages_on : int
        Hosts and pages whose clock follows their siblings tonight.
    tonight : int
        What the rule would have gained on the crawls of tonight's log, units of 2**-32 nats.
    of_hosts_on : int
        What it gained lately on the hosts where it is on, older days counting less; same units.
    named : tuple of (str, int)
        The `MAX_NAMED` hosts with most pages of those that are on, and their pages; a part of a split host
        is one of them.
    """

    hosts: int = 0
    hosts_on: int = 0
    pages_on: int = 0
    tonight: int = 0
    of_hosts_on: int = 0
    named: tuple[tuple[str, int], ...] = ()

    def merge(self, other: SiblingSums) -> SiblingSums:
        """Sums over the hosts of both."""
        sums = {n: getattr(self, n) + getattr(other, n) for n in self.__dataclass_fields__}
        return SiblingSums(**sums | {"named": _largest(sums["named"])})

    def account(self) -> dict[str, Any]:
        """What the manifest says of them: the named parts of a split host are one."""
        pages: Counter[str] = Counter()
        for host, n in self.named:
            pages[host] += n
        return {
            "hosts": self.hosts,
            "hosts_on": self.hosts_on,
            "pages_on": self.pages_on,
            "gain_tonight_nats": self.tonight * GAIN_UNIT,
            "gain_where_on_nats": self.of_hosts_on * GAIN_UNIT,
            "on": [{"host": host, "pages": n} for host, n in _largest(pages.items())],
        }


def _largest(hosts: Iterable[tuple[str, int]]) -> tuple[tuple[str, int], ...]:
    return tuple(sorted(hosts, key=lambda h: (-h[1], h[0]))[:MAX_NAMED])


class ShardSiblings:
    """The siblings of one shard: its hosts are the groups.

    Of a host that is spread over shards each part is a group of its own.

    Parameters
    ----------
    carried : Table of `schemas.SLOTS_SIBLINGS`, or None
    pages : ShardPages
    forecast : Forecast
        Of the night before.
    mode : str
        One of `MODES`: where the log shows that it pays, for all hosts, or for none. What siblings find is
        counted in any case.
    as_of_day : int
        Days since 1970-01-01, UTC.
    """

    def __init__(
        self, carried: pa.Table | None, pages: ShardPages, forecast: Forecast, mode: str, as_of_day: int
    ) -> None:
        self._pages, self._mode, self._as_of_day = pages, mode, as_of_day
        self._sizes = np.diff(pages.host_start)
        before = SiblingDays.empty()
        if carried is not None:
            before = self._read(carried)
        self._watch = SiblingWatch(forecast, pages.host_code, before, self._sizes >= MIN_PAGES)
        self._done: SiblingDays | None = None

    def _read(self, carried: pa.Table) -> SiblingDays:
        host_hash = self._pages.host_hash[self._pages.host_start[:-1]]
        wanted = carried.column("host_hash").to_numpy()
        group = np.minimum(np.searchsorted(host_hash, wanted), max(len(host_hash) - 1, 0))
        known = np.flatnonzero(host_hash[group] == wanted) if len(host_hash) else np.zeros(0, np.int64)
        names = ("day", "found", "expected", "gain")
        columns = (carried.column(n).to_numpy()[known].astype(np.int64) for n in names)
        return SiblingDays.gather(group[known], *columns)

    def __call__(self, first_page: int, intervals: Intervals, clocks: Clocks | None = None) -> None:
        """Count intervals, as `SiblingWatch` does."""
        self._watch(first_page, intervals, clocks)

    @property
    def _days(self) -> SiblingDays:
        """With the night's crawls: when all have been counted."""
        if self._done is None:
            self._done = self._watch.days(self._as_of_day)
        return self._done

    def _on(self) -> IntArray:
        """Groups whose clock follows their siblings."""
        if self._mode == "off":
            return np.zeros(0, np.int64)
        if self._mode == "on":
            return np.unique(self._days.group)
        return np.flatnonzero(self._days.pays(len(self._sizes), self._as_of_day))

    def state(self) -> pa.RecordBatch:
        """Tomorrow's `schemas.SLOTS_SIBLINGS`."""
        pages, days = self._pages, self._days
        first = pages.host_start[days.group]
        return pa.RecordBatch.from_arrays(
            [
                pa.array(pages.url_hash[first]),
                pa.array(pages.host_hash[first]),
                pa.array(days.day.astype(np.int32)),
                pa.array(days.found),
                pa.array(days.expected),
                pa.array(days.gain),
            ],
            schema=schemas.SLOTS_SIBLINGS,
        )

    def columns(self, last_success_us: IntArray, last_try_us: IntArray) -> dict[str, pa.Array]:
        """How much faster than the days each page's clock ran; nothing where no host of the shard is on.

        Parameters
        ----------
        last_success_us : (n,) int64, microseconds
            Last crawl that said something of the page, `NO_TIME` if none.
        last_try_us : (n,) int64, microseconds
            Last attempt or slot.

        Returns
        -------
        dict
            "age_factor" since the first, "since_factor" since the second: (n,) float64.
        """
        groups = self._on()
        if not len(groups):
            return {}
        on = np.zeros(len(self._sizes), np.bool_)
        on[groups] = True
        rows = np.flatnonzero(np.repeat(on, self._sizes))
        group = self._pages.host_code[rows].astype(np.int64)

        def factor(last_us: IntArray) -> FloatArray:
            whole = np.ones(len(last_us))
            until = np.full(len(rows), _ALL_DAYS, np.int64)
            found = self._days.clock_factor(group, day_of(last_us[rows]), until)
            whole[rows] = np.where(last_us[rows] == NO_TIME, 1.0, found)
            return whole

        age = factor(last_success_us)
        same = np.array_equal(last_success_us, last_try_us)
        return {
            "age_factor": pa.array(age),
            "since_factor": pa.array(age if same else factor(last_try_us)),
        }

    def _named(self, groups: IntArray) -> tuple[tuple[str, int], ...]:
        """The largest of some groups, and their pages."""
        # Those that are as large as the last one too: which of them come first is a matter of their names.
        sizes = self._sizes[groups]
        if len(groups) > MAX_NAMED:
            groups = groups[sizes >= np.partition(sizes, -MAX_NAMED)[-MAX_NAMED]]
        names = self._pages.host.take(pa.array(self._pages.host_start[groups])).to_pylist()
        return _largest(zip(names, self._sizes[groups].tolist(), strict=True))

    def sums(self) -> SiblingSums:
        """For the manifest."""
        groups = self._on()
        gain = self._days.gains(len(self._sizes), self._as_of_day)[0][groups]
        return SiblingSums(
            len(np.unique(self._days.group)),
            len(groups),
            int(self._sizes[groups].sum()),
            self._watch.gain,
            int(np.rint(gain * (1.0 / GAIN_UNIT)).astype(np.int64).sum()),
            self._named(groups),
        )
