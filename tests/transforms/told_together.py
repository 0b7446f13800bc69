"""Simulated hosts whose sources tell the same changes or their own, from logs to what is planned by."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from policies.estimation.prior import estimate, fit_prior
from policies.history.evidence import from_intervals
from policies.history.history import Observations, fold
from policies.history.page_state import Forgetting, PageState
from policies.numerics.typing_ import FloatArray, IntArray
from policies.signals.counts import REPEAT_US, Signals
from policies.signals.fold import SignalFold
from policies.signals.state import SignalState, bring_to_present
from transforms.batches.coders import ShardTables
from transforms.kept.signals import signal_tables
from transforms.night.trusting import LearnedTrust, SignalEstimates, estimate_signals

DAY = 86_400_000_000
MINUTE = 60_000_000
START = 20_000 * DAY


@dataclass
class Site:
    """Logs of one host with n pages over some days; times in microseconds."""

    n: int
    days: float
    change_page: IntArray
    change_us: IntArray
    page: IntArray
    at_us: IntArray
    source: IntArray

    def tell(
        self, source: int, recall: float, rng: np.random.Generator, minutes: float = 40.0, mask=None
    ) -> np.ndarray:
        """A source that tells a share of the changes, up to so many minutes late; which ones it told."""
        told = rng.random(len(self.change_us)) < recall if mask is None else mask
        late = rng.uniform(0.0, minutes * MINUTE, int(told.sum())).astype(np.int64)
        self._add(source, self.change_page[told], self.change_us[told] + late)
        return told

    def noise(self, source: int, per_day: float, rng: np.random.Generator) -> tuple[IntArray, IntArray]:
        """False signals at random."""
        count = rng.poisson(per_day * self.days, self.n)
        page = np.repeat(np.arange(self.n), count)
        at = START + rng.integers(0, int(self.days * DAY), len(page))
        self._add(source, page, at)
        return page, at

    def clockwork(self, source: int, minutes: int) -> None:
        """A signal of every page every so many minutes."""
        at = START + np.arange(0, int(self.days * DAY), minutes * MINUTE)
        self._add(source, np.repeat(np.arange(self.n), len(at)), np.tile(at, self.n))

    def _add(self, source: int, page: IntArray, at_us: IntArray) -> None:
        self.page = np.append(self.page, page)
        self.at_us = np.append(self.at_us, at_us)
        self.source = np.append(self.source, np.full(len(page), source))

    def signals(self) -> Signals:
        return Signals(self.page, self.at_us, self.source.astype(np.int32))

    def distinct(self, source: int) -> int:
        """Signals of a source that count: no repeats within the hour."""
        mine = self.source == source
        order = np.lexsort((self.at_us[mine], self.page[mine]))
        page, at = self.page[mine][order], self.at_us[mine][order]
        count, last = 0, (-1, 0)
        for p, t in zip(page.tolist(), at.tolist(), strict=True):
            if p != last[0] or t - last[1] >= REPEAT_US:
                count, last = count + 1, (p, t)
        return count


def site(rng: np.random.Generator, n: int, days: float, rate: FloatArray | float) -> Site:
    """A host of n pages that change at random."""
    count = rng.poisson(np.broadcast_to(rate, n) * days)
    page = np.repeat(np.arange(n), count)
    at = START + rng.integers(0, int(days * DAY), len(page))
    none = np.zeros(0, np.int64)
    return Site(n, days, page, at, none, none, none)


def crawls(made: Site, rng: np.random.Generator, per_day: float) -> Observations:
    """Visits at random times, and what they find."""
    count = rng.poisson(per_day * made.days, made.n) + 1
    page = np.repeat(np.arange(made.n), count)
    at = START + rng.integers(0, int(made.days * DAY), len(page))
    order = np.lexsort((at, page))
    page, at = page[order], at[order]
    changes = np.sort(made.change_page * (1 << 50) + (made.change_us - START))
    version = np.searchsorted(changes, page * (1 << 50) + (at - START), side="right")
    return Observations(page, at, digest=(version + 1).astype(np.uint64))


def fold_nights(
    made: Site, seen: Observations, nights: int = 1, **half_lives: float | None
) -> tuple[SignalState, PageState]:
    """The state after some nights."""
    signals = made.signals()
    state, pages = SignalState.empty(), PageState.empty(made.n)
    host = np.zeros(made.n, np.int32)
    cuts = START + (np.arange(1, nights + 1) * (made.days * DAY / nights)).astype(np.int64) + DAY
    low = 0
    for high in cuts.tolist():
        mine = (seen.fetched_at_us > low) & (seen.fetched_at_us <= high)
        tonight = Observations(
            seen.page[mine], seen.fetched_at_us[mine], digest=np.asarray(seen.digest)[mine]
        )
        news = signals.take((signals.signalled_at_us > low) & (signals.signalled_at_us <= high))
        watch = SignalFold(state, news, pages, host, high)
        pages, _ = fold(pages, tonight, high, watch=watch, **half_lives)
        state, _ = watch.finish(pages, Forgetting(**half_lives))
        low = high
    return state, pages


def estimates(made: Site, seen: Observations, sources: list[str], nights: int = 1) -> SignalEstimates:
    """What a night makes of a host's logs."""
    state, pages = fold_nights(made, seen, nights)
    end = START + int(made.days * DAY)
    tables = signal_tables(*bring_to_present(state, pages, Forgetting(), end), sources)
    order = np.lexsort((seen.fetched_at_us, seen.page))
    page, at, version = seen.page[order], seen.fetched_at_us[order], np.asarray(seen.digest)[order]
    rows = np.flatnonzero((np.diff(page) == 0) & (np.diff(at) >= MINUTE))
    gap, changed = np.diff(at)[rows] / DAY, np.diff(version.astype(np.int64))[rows] > 0
    plain = from_intervals(page[rows], gap, changed, n_pages=made.n)
    host = np.zeros(made.n, np.int64)
    rate = estimate(plain, host, 1, fit_prior(plain, host)).change_rate_per_day
    named = {
        "pages": {"host_code": host.astype(np.int32)},
        "hosts": {"host": ["a.test"], "host_hash": pa.array([1], pa.uint64())},
    }
    both = {name: pa.RecordBatch.from_pydict(columns) for name, columns in named.items()}
    found = estimate_signals(ShardTables(0, both | tables), rate, LearnedTrust(), end)
    assert found is not None
    return found
