"""Nights of the job in a closed loop, without Beam: the same kernels, in one shard.

Every night folds the crawls of the day before, estimates, solves and schedules as the job does. What a mode
makes of the estimates and of signals is its own, see `transforms.replay.night_modes`.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from policies.clocks.pooled import HoursOfAll
from policies.estimation.group_means import STRIDES
from policies.history.page_state import US_PER_DAY, Forgetting
from policies.judging.host_factors import COLUMNS, HostTrack, pays
from policies.judging.recalibration import NO_CELL, Track, calm_cells
from policies.numerics.typing_ import FloatArray, IntArray
from policies.objectives import objectives
from policies.optimum import search
from transforms.batches import schemas
from transforms.batches.coders import ShardTables
from transforms.kept.carrying import Carry
from transforms.kept.fold_settings import FoldSettings, RequestClock
from transforms.kept.predictions import ShardPredictions
from transforms.night.dividing import Night, ShardTotal, divide_slots
from transforms.night.folding import ShardFold
from transforms.night.group_tables import GroupTable
from transforms.night.learning import Learned, end_round, evidence_of_groups, learn, solver_block, sum_groups
from transforms.night.night_clocks import Tonight
from transforms.night.sampling import merge_overviews
from transforms.night.scheduling import ScheduledShard
from transforms.night.signal_use import only_signals, useful_signals
from transforms.replay.closed_loop import Day, Planned, Planner, Trust
from transforms.replay.night_modes import Mode, NightFactors
from transforms.replay.worlds import World
from transforms.rows.normalise import HASHES
from transforms.shards.catalogue import HostDefaults
from transforms.shards.sharding import Layout

FORGETTING = Forgetting(12, None)
REQUEST_HALF_LIFE_DAYS = 28.0


@dataclass(frozen=True)
class JobOptions:
    """Options of the nightly job that a replay has, too.

    Attributes
    ----------
    max_signal_shift : float
    group_columns : tuple of str
        Of the world's metadata.
    sequencer : str
    hour_capacity : float
    horizon_us : int
        From one plan to the next.
    """

    max_signal_shift: float = 0.005
    group_columns: tuple[str, ...] = ()
    sequencer: str = "lds"
    hour_capacity: float = 4.0
    horizon_us: int = US_PER_DAY


class JobFold:
    """What the job knows of pages: state that is folded forward night by night, and estimates from it.

    Parameters
    ----------
    world : World
    mode : Mode
    weight : (n,) float64
        What each page weighs.
    options : JobOptions
    """

    def __init__(
        self, world: World, mode: Mode, weight: FloatArray, options: JobOptions | None = None
    ) -> None:
        self._world, self._mode, self._weight = world, mode, weight
        self._options = options or JobOptions()
        self._metadata = {name: world.metadata[name] for name in self._options.group_columns}
        self._track = Track.empty()
        self.factors = self._track.factors()
        self._hours_of_all = HoursOfAll()

    def known(self, as_of_us: int) -> IntArray:
        """Pages that are there at a night."""
        return np.flatnonzero(self._world.history.first_us <= as_of_us)

    def fold(
        self, day: Day, carried: list[pa.RecordBatch], multiplier: float | None
    ) -> tuple[ShardFold, ShardTables]:
        """One night: the folded state, and the estimated shard.

        Parameters
        ----------
        day : Day
        carried : list of RecordBatch
            What the night before left: its state, its signals and its slots.
        multiplier : float, optional
            Of the night before.
        """
        world, mode, options = self._world, self._mode, self._options
        known = self.known(day.as_of_us)
        batches = [self._observations(day), self._listed(known), *carried]
        if mode.hears:
            batches.append(self._signals(day))
        self._clock = RequestClock(day.as_of_us // US_PER_DAY, REQUEST_HALF_LIFE_DAYS)
        settings = FoldSettings(
            day.as_of_us,
            FORGETTING,
            self._clock,
            HostDefaults(None, 0.0, options.horizon_us),
            options.group_columns,
            multiplier=multiplier,
            clock_factors=self.factors,
            hours_of_all=self._hours_of_all,
            night_before_us=day.before_us if carried else None,
        )
        fold = ShardFold(settings, batches)
        folded = fold.tables(0, list(options.group_columns))
        with_signals = mode.objective == "signals"
        learned = learn(merge_overviews([fold.overview()]), self._clock, "importance", with_signals)
        self._hours_of_all = learned.hours_of_all
        groups = means_of_groups(folded, learned) if options.group_columns else None
        estimated = mode.estimate(folded, learned, self._clock, groups)
        self._track = self._track.add(1.0, learned.sums[ShardPredictions].cells)
        self.factors = self._track.factors()
        self.page = world.page_of_hash(estimated.tables["pages"].column("url_hash").to_numpy())
        return fold, estimated

    def _observations(self, day: Day) -> pa.RecordBatch:
        return self._rows(
            schemas.OBSERVATIONS,
            day.page,
            fetched_at=times(day.at_us),
            status=pa.array(np.full(len(day.page), 200, np.int16)),
            digest_hash=pa.array((day.version + 1).astype(np.uint64)),
        )

    def _listed(self, known: IntArray) -> pa.RecordBatch:
        rows = self._rows(schemas.PAGES, known, importance=pa.array(self._weight[known]))
        for name, column in self._metadata.items():
            rows = rows.append_column(name, column.take(pa.array(known)))
        return rows

    def _signals(self, day: Day) -> pa.RecordBatch:
        log = self._world.signals
        new = log.between(day.before_us, day.as_of_us)
        return self._rows(
            schemas.SIGNALS,
            new.page,
            signalled_at=times(new.at_us),
            source=pa.array(log.sources, pa.string()).take(pa.array(new.source)),
        )

    def _rows(self, schema: pa.Schema, page: IntArray, **columns: pa.Array) -> pa.RecordBatch:
        """Rows of some pages as the readers would hand them over."""
        world = self._world
        columns |= {
            "url": world.url.take(pa.array(page)),
            "url_hash": pa.array(world.url_hash[page]),
            "host_hash": pa.array(world.host_hash[page]),
        }
        fields = [*schema, *HASHES]
        arrays = [columns.get(f.name, pa.nulls(len(page), f.type)) for f in fields]
        return pa.RecordBatch.from_arrays(arrays, schema=pa.schema(fields, metadata=schema.metadata))


class JobNights(Planner):
    """The nightly job as a planner.

    Parameters
    ----------
    world : World
    mode : Mode
    crawls_per_page : float
        Budget per day, in crawls per known page.
    weight : (n,) float64
        What each page weighs.
    options : JobOptions
    foretell : bool
        Whether `Planned.predicted` is wanted, which takes a tenth of the time.
    """

    def __init__(
        self,
        world: World,
        mode: Mode,
        crawls_per_page: float,
        weight: FloatArray,
        options: JobOptions | None = None,
        foretell: bool = True,
    ) -> None:
        self._world, self._mode, self._crawls_per_page = world, mode, crawls_per_page
        self._options, self._foretell = options or JobOptions(), foretell
        self._fold = JobFold(world, mode, weight, self._options)
        self._carried = _Carried()
        self._trust: Trust = {}

    def trust(self) -> Trust:
        return self._trust

    def plan(self, day: Day) -> Planned:
        carried, mode, world = self._carried, self._mode, self._world
        fold, estimated = self._fold.fold(day, carried.batches, carried.multiplier)
        budget = self._crawls_per_page * len(self._fold.known(day.as_of_us))
        night = Night(
            day.as_of_us,
            self._options.horizon_us,
            mode.objective,
            Layout(1, {}),
            budget,
            self._options.max_signal_shift,
            self._options.sequencer,
            self._options.hour_capacity,
        )
        block = solver_block(estimated)
        if mode.objective == "signals":
            without, _ = search.solve(block, objectives.get("periodic"), budget)
            useful = useful_signals(block, without, self._options.horizon_us / US_PER_DAY)
            estimated = only_signals(estimated, useful)
            block = solver_block(estimated)
        result, (allocation,) = search.solve(block, objectives.get(mode.objective), budget)
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
        heard = world.signals.between(np.iinfo(np.int64).min, day.as_of_us)
        pinged[heard.page[heard.at_us > day.last_us[heard.page]]] = True
        planned = mode.choose(planned, pinged)
        if self._foretell:
            planned = self._predict(planned, estimated, day)
        slots_pages = scheduled.slots_pages()
        # Every slot is used, but a mode may have given it to another page.
        used = np.isin(slots_pages.column("url_hash").to_numpy(), world.url_hash[planned.page])
        carried.batches = [
            *(rows for _, rows in fold.files()),
            slots_pages.filter(pa.array(used)),
            scheduled.slots_hosts(),
        ]
        carried.carry, carried.multiplier = plan.carry, result.multiplier
        self._trust = mode.trust(estimated)
        return planned

    def _predict(self, planned: Planned, estimated: ShardTables, day: Day) -> Planned:
        """Tonight's probability for each planned crawl that it finds a change."""
        row_of_page = np.full(len(self._world), -1, np.int64)
        row_of_page[self._fold.page] = np.arange(len(self._fold.page))
        order = np.lexsort((planned.due_us, planned.page))
        page, due_us = planned.page[order], planned.due_us[order]
        again = np.diff(page, prepend=-1) == 0
        since_us = np.where(again, np.concatenate([[0], due_us[:-1]]), day.last_us[page])
        since_days = np.maximum(day.as_of_us - since_us, 0) / US_PER_DAY
        ahead_days = (due_us - np.maximum(since_us, day.as_of_us)) / US_PER_DAY
        row, pages = row_of_page[page], estimated.tables["pages"]
        tonight = Tonight.of(estimated.tables)
        if tonight is not None:
            since_days, ahead_days = tonight.evenly(pages, row, since_us, due_us)
        calm_days, rate = (pages.column(n).to_numpy() for n in ("calm_days", "change_rate_per_day"))
        if "clock_speed" in pages.schema.names:
            rate = rate / pages.column("clock_speed").to_numpy()
        calm = calm_cells(calm_days, rate)
        hosts = estimated.tables["hosts"]
        track, host = HostTrack(*(hosts.column(n).to_numpy() for n in COLUMNS)), pages.column("host_code")
        own = np.where(calm == NO_CELL, 1.0, track.used_factors()[host.to_numpy()])
        calm[~pays(track.gain)[host.to_numpy()]] = NO_CELL
        factors = NightFactors(calm[row], own[row], self._fold.factors)
        found = self._mode.predict(estimated, row, since_days, ahead_days, ~again, factors)
        return Planned(page, due_us, planned.value[order], found)


@dataclass
class _Carried:
    """What one night leaves to the next."""

    batches: list[pa.RecordBatch] = field(default_factory=list)
    carry: Carry = field(default_factory=Carry)
    multiplier: float | None = None


def means_of_groups(folded: ShardTables, learned: Learned) -> GroupTable:
    """Means of groups of pages in one shard, by the rounds of `transforms.night.learning.LearnGroupMeans`."""
    table: GroupTable | None = None
    narrow = evidence_of_groups(folded, None)
    for i in range(len(STRIDES)):
        table = end_round(sum_groups(narrow, learned, table), learned, table, i)
    return table


def times(at_us: IntArray) -> pa.Array:
    """UTC microseconds as the schemas have times."""
    return pa.array(at_us).cast(schemas.TIME)
