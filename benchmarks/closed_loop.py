"""Nights in a closed loop, without Beam: a crawler follows each night's schedule through a real history.

Every night folds the crawls of the day before, estimates, solves and schedules with the kernels of the job,
in one shard; the crawls happen when they are due and see what the history had at that moment. What a mode
makes of the estimates and of signals is its own, see `benchmarks.signal_modes`.
"""

from __future__ import annotations

import itertools
import time
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from benchmarks.histories import US_PER_DAY, World
from benchmarks.signal_modes import Mode, Planned
from policies import objectives, search
from policies.page_state import Forgetting
from policies.recalibration import Track, clock_factors, page_cells, pays
from policies.typing_ import BoolArray, FloatArray, IntArray
from transforms import schemas
from transforms.catalogue import HostDefaults
from transforms.coders import ShardTables
from transforms.dividing import Carry, Night, ShardTotal, divide_slots
from transforms.folding import FoldSettings, ShardFold
from transforms.learning import RequestClock, learn, solver_block
from transforms.normalise import HASHES
from transforms.sampling import merge_overviews
from transforms.scheduling import ScheduledShard
from transforms.sharding import Layout

FORGETTING = Forgetting(12, None)
REQUEST_HALF_LIFE_DAYS = 28.0


@dataclass(frozen=True)
class Crawls:
    """All crawls of a run, sorted by page, then time.

    Attributes
    ----------
    page : (m,) int64
    at_us : (m,) int64
        UTC microseconds.
    changed : (m,) bool
        Whether the page was not as the crawl before had found it; False at the first crawl of a page.
    predicted : (m,) float64
        The night's probability of that; NaN for the free crawls.
    """

    page: IntArray
    at_us: IntArray
    changed: BoolArray
    predicted: FloatArray

    def take(self, rows: BoolArray | IntArray) -> Crawls:
        """Some of the crawls, in the order of `rows`."""
        return Crawls(self.page[rows], self.at_us[rows], self.changed[rows], self.predicted[rows])


@dataclass
class Run:
    """What came of one run.

    Attributes
    ----------
    crawls : Crawls
    slots : (nights, hosts) int64
        Crawls planned by each night.
    trust : list of dict
        Of each night, `Mode.trust`.
    seconds : (nights,) float64
        What each night took.
    """

    crawls: Crawls
    slots: IntArray
    trust: list[dict[str, tuple[float, float]]]
    seconds: FloatArray


@dataclass
class _Carried:
    """What one night leaves to the next."""

    batches: list[pa.RecordBatch] = field(default_factory=list)
    carry: Carry = field(default_factory=Carry)
    multiplier: float | None = None
    track: Track = field(default_factory=Track.empty)


class ClosedLoop:
    """A crawler, its log, and the nights that plan for it.

    Parameters
    ----------
    world : World
    mode : Mode
    crawls_per_page : float
        Budget per day, in crawls per known page.
    weight : (n,) float64
        What each page weighs.
    seed : int
        Of the times of the free crawls before the first night.
    siblings, max_signal_shift : str, float
        As the job's options.
    """

    def __init__(
        self,
        world: World,
        mode: Mode,
        crawls_per_page: float,
        weight: FloatArray,
        seed: int = 0,
        siblings: str = "auto",
        max_signal_shift: float = 0.005,
    ) -> None:
        self._world, self._mode, self._crawls_per_page, self._weight = world, mode, crawls_per_page, weight
        self._siblings, self._max_signal_shift = siblings, max_signal_shift
        rng = np.random.Generator(np.random.Philox(key=seed))
        early = world.start_us - (rng.random(len(world)) * US_PER_DAY).astype(np.int64)
        # Every page is crawled once when it appears, for free: nothing is known of it before.
        self._free_us = np.maximum(world.first_us, early)
        self._by_free = np.argsort(self._free_us, kind="stable")
        self._last_us = np.full(len(world), np.iinfo(np.int64).min // 2)
        self._last_version = np.full(len(world), -1, np.int64)
        self._log: list[tuple[IntArray, IntArray, BoolArray, FloatArray]] = []

    def run(self, nights: int | None = None) -> Run:
        """All nights, or the first few."""
        world = self._world
        none = np.zeros(0, np.int64)
        planned, carried = Planned(none, none, np.zeros(0), np.zeros(0)), _Carried()
        slots, trust, seconds = [], [], []
        before_us = np.iinfo(np.int64).min
        for as_of_us in world.nights()[:nights].tolist():
            begun = time.perf_counter()
            crawled = self._crawl(planned, before_us, as_of_us)
            planned, found = self._night(crawled, carried, before_us, as_of_us)
            trust.append(found)
            slots.append(np.bincount(world.host[planned.page], minlength=len(world.hosts)))
            before_us = as_of_us
            seconds.append(time.perf_counter() - begun)
        self._crawl(planned, before_us, before_us + US_PER_DAY)
        page, at_us, changed, predicted = (np.concatenate(c) for c in zip(*self._log, strict=True))
        order = np.lexsort((at_us, page))
        crawls = Crawls(page[order], at_us[order], changed[order], predicted[order])
        return Run(crawls, np.array(slots), trust, np.array(seconds))

    def _crawl(self, planned: Planned, after_us: int, until_us: int) -> pa.RecordBatch:
        """Make the planned crawls and the free ones of the day; returns them as rows of the log."""
        world = self._world
        free = self._by_free[
            slice(*np.searchsorted(self._free_us[self._by_free], [after_us + 1, until_us + 1]))
        ]
        page = np.concatenate([free, planned.page])
        at_us = np.concatenate([self._free_us[free], planned.due_us])
        predicted = np.concatenate([np.full(len(free), np.nan), planned.predicted])
        order = np.lexsort((at_us, page))
        page, at_us, predicted = page[order], at_us[order], predicted[order]
        version = world.version(page, at_us)
        again = np.diff(page, prepend=-1) == 0
        old = np.where(again, np.concatenate([[-1], version[:-1]]), self._last_version[page])
        self._log.append((page, at_us, (old >= 0) & (version != old), predicted))
        self._last_us[page], self._last_version[page] = at_us, version  # the last of each page stands
        return self._rows(
            schemas.OBSERVATIONS,
            page,
            fetched_at=pa.array(at_us).cast(schemas.TIME),
            status=pa.array(np.full(len(page), 200, np.int16)),
            digest_hash=pa.array((version + 1).astype(np.uint64)),
        )

    def _rows(self, schema: pa.Schema, page: IntArray, **columns: pa.Array) -> pa.RecordBatch:
        """Rows of some pages as the readers would hand them over."""
        world, take = self._world, pa.array(page)
        columns |= {
            "url": world.url.take(take),
            "url_hash": pa.array(world.url_hash[page]),
            "host_hash": pa.array(world.host_hash[page]),
        }
        fields = [*schema, *HASHES]
        arrays = [columns.get(f.name, pa.nulls(len(page), f.type)) for f in fields]
        return pa.RecordBatch.from_arrays(arrays, schema=pa.schema(fields, metadata=schema.metadata))

    def _night(
        self, crawled: pa.RecordBatch, carried: _Carried, before_us: int, as_of_us: int
    ) -> tuple[Planned, dict[str, tuple[float, float]]]:
        world, mode = self._world, self._mode
        known = np.flatnonzero(world.first_us <= as_of_us)
        listed = self._rows(schemas.PAGES, known, importance=pa.array(self._weight[known]))
        batches = [crawled, listed, *carried.batches]
        new = world.signals.between(before_us, as_of_us)
        if mode.hears:
            names = pa.array(world.signals.sources, pa.string())
            batches.append(
                self._rows(
                    schemas.SIGNALS,
                    new.page,
                    signalled_at=pa.array(new.at_us).cast(schemas.TIME),
                    source=names.take(pa.array(new.source)),
                )
            )
        budget = self._crawls_per_page * len(known)
        clock = RequestClock(as_of_us // US_PER_DAY, REQUEST_HALF_LIFE_DAYS)
        settings = FoldSettings(
            as_of_us,
            FORGETTING,
            clock,
            HostDefaults(None, 0.0, US_PER_DAY),
            siblings=self._siblings,
            multiplier=carried.multiplier,
            clock_factors=carried.track.factors(),
        )
        fold = ShardFold(settings, batches)
        folded = fold.tables(0, [])
        with_signals = {"with_signals": True} if mode.objective == "signals" else {}
        learned = learn(merge_overviews([fold.overview()]), clock, "importance", **with_signals)
        estimated = mode.estimate(folded, learned, clock)
        objective = objectives.get(mode.objective)
        result, (allocation,) = search.solve(solver_block(estimated), objective, budget)
        night = Night(as_of_us, US_PER_DAY, mode.objective, Layout(1, {}), budget, self._max_signal_shift)
        total = ShardTotal(0, float(allocation.crawl_rate_per_day.sum()))
        plan = divide_slots([total], night, carried.carry)
        scheduled = ScheduledShard(night, estimated, result, plan)
        rows = scheduled.schedule()
        planned = Planned(
            world.page_of(rows.column("url")),
            rows.column("due_at").cast(pa.int64()).to_numpy(),
            rows.column("value").to_numpy(),
            np.zeros(rows.num_rows),
        )
        pinged = np.zeros(len(world), np.bool_)
        heard = world.signals.between(np.iinfo(np.int64).min, as_of_us)
        pinged[heard.page[heard.at_us > self._last_us[heard.page]]] = True
        planned = mode.choose(planned, pinged)
        page_of_row = world.page_of_hash(estimated.tables["pages"].column("url_hash").to_numpy())
        row_of_page = np.full(len(world), -1, np.int64)
        row_of_page[page_of_row] = np.arange(len(page_of_row))
        carried.track = carried.track.add(1.0, learned.judged.cells)
        planned = self._predict(planned, estimated, row_of_page, as_of_us, carried.track.factors())
        slots_pages = scheduled.slots_pages()
        # Every slot is used, but a mode may have given it to another page.
        used = np.isin(slots_pages.column("url_hash").to_numpy(), world.url_hash[planned.page])
        carried.batches = [
            fold.state(),
            fold.signals(),
            fold.siblings(),
            slots_pages.filter(pa.array(used)),
            scheduled.slots_hosts(),
        ]
        carried.carry, carried.multiplier = plan.carry, result.multiplier
        return planned, mode.trust(estimated)

    def _predict(
        self,
        planned: Planned,
        estimated: ShardTables,
        row_of_page: IntArray,
        as_of_us: int,
        factors: FloatArray,
    ) -> Planned:
        """Tonight's probability for each planned crawl that it finds a change."""
        order = np.lexsort((planned.due_us, planned.page))
        page, due_us = planned.page[order], planned.due_us[order]
        again = np.diff(page, prepend=-1) == 0
        since_us = np.where(again, np.concatenate([[0], due_us[:-1]]), self._last_us[page])
        since_days = np.maximum(as_of_us - since_us, 0) / US_PER_DAY
        ahead_days = (due_us - np.maximum(since_us, as_of_us)) / US_PER_DAY
        row, pages = row_of_page[page], estimated.tables["pages"]
        calm, rate = (pages.column(n).to_numpy()[row] for n in ("calm_days", "change_rate_per_day"))
        factor = clock_factors(page_cells(calm, rate), factors)
        hosts = estimated.tables["hosts"]
        off = ~pays(hosts.column("forecast_gain").to_numpy())
        factor[off[pages.column("host_code").to_numpy()[row]]] = 1.0
        found = self._mode.predict(estimated, row, since_days, ahead_days, ~again, factor)
        return Planned(page, due_us, planned.value[order], found)


def freshness(world: World, crawls: Crawls, weight: FloatArray) -> tuple[FloatArray, FloatArray]:
    """How fresh the copies were: exact from the times of changes and crawls.

    A copy is fresh from a crawl to the next change, whatever the page then changes to.

    Returns
    -------
    fresh, held : (nights, 2) float64
        Weight times days of fresh copies and of known pages in each day from a night on, of pages without
        and with signals.
    """
    edges = np.append(world.nights(), world.nights()[-1] + US_PER_DAY)
    end = edges[-1]
    nearest = world.next_change(crawls.page, crawls.at_us)
    same = crawls.page[1:] == crawls.page[:-1]
    stop = np.append(np.where(same, crawls.at_us[1:], end), end)
    stop = np.minimum(np.minimum(stop, nearest), end)
    signalled = world.signalled.astype(np.int64)

    def by_day(page: IntArray, start_us: IntArray, stop_us: IntArray) -> FloatArray:
        out = np.zeros((len(edges) - 1, 2))
        w = weight[page] / US_PER_DAY
        for day, (low, high) in enumerate(itertools.pairwise(edges)):
            inside = np.maximum(np.minimum(stop_us, high) - np.maximum(start_us, low), 0)
            out[day] = np.bincount(signalled[page], w * inside, 2)
        return out

    everything = np.arange(len(world))
    return (
        by_day(crawls.page, crawls.at_us, stop),
        by_day(everything, world.first_us, np.full(len(world), end)),
    )
