"""From rates to tomorrow's schedule: every shard by itself, when slots are divided."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, ClassVar

import apache_beam as beam
import numpy as np
import pyarrow as pa

from policies.estimation import estimators
from policies.greedy.value_curves import ValueCurves
from policies.history import volatile
from policies.history.page_state import NO_TIME
from policies.history.silence import Heard
from policies.judging.host_factors import COLUMNS as FORECAST_COLUMNS
from policies.judging.recalibration import calm_cells
from policies.numerics.typing_ import BoolArray, FloatArray, IntArray
from policies.objectives import objectives
from policies.optimum import search
from policies.optimum.floors import floor_cost
from policies.optimum.signalled_delay import lost_waiting
from policies.sequencing import bursts, sequencing
from policies.sequencing.fixed_crawls import left_rates
from transforms.batches import schemas
from transforms.batches.coders import ShardTables
from transforms.batches.counters import published
from transforms.batches.steps import Step
from transforms.batches.tally import Counts
from transforms.kept import statistics
from transforms.kept.carrying import Carry
from transforms.kept.signal_forecasts import slots_columns
from transforms.kept.silence import ShardSilence, silence_of, silence_sums
from transforms.kept.state import microseconds, null_of_nan, times
from transforms.night import clock_hours
from transforms.night.clock_hours import ClockHours, explored_tonight
from transforms.night.dividing import Night, Quotas, ShardTotal, divide_slots, limited_giants
from transforms.night.learning import Learned, is_new, solver_tables
from transforms.night.ordering import Ordering
from transforms.night.plan_report import BOUNDS, bounds, spread_of
from transforms.night.refreshes import Fixed
from transforms.night.request_crawls import request_crawls
from transforms.night.shard_report import ShardReport
from transforms.night.shared_limits import ByHost, share_limits
from transforms.night.signal_slots import SignalClocks, dues, signal_columns
from transforms.night.signal_use import only_signals, useful_signals
from transforms.night.solving import freshness_without, one_rate, tables_to_block
from transforms.night.trust_report import hosts_batch, trust_sums
from transforms.shards.catalogue import DAY_US, META, UNLIMITED_SLOTS

MAX_NAMED_HOSTS = 20
SHIFT_OF_ALL = 10.0
"""What signals of all hosts together may take beyond what they lately did, in units of what one host may."""


class SequenceCrawls(Step):
    """Rates and slots of one estimated shard.

    Outputs
    -------
    "files" : ShardTables
        To be written, by folder.
    "report" : ShardReport
    """

    OUTPUTS: ClassVar = {"files": ShardTables, "report": ShardReport}

    def __init__(self, night: Night, carry: Carry) -> None:
        self._night, self._carry = night, carry

    def start_bundle(self) -> None:
        self._plan: Quotas | None = None

    def process(
        self,
        estimated: ShardTables,
        learned: Learned,
        result: search.SearchResult,
        totals: list[ShardTotal],
        shares: ByHost | None,
        without: search.SearchResult | None,
    ) -> Iterator[Any]:
        # Every worker divides: what they would wait for is less than what they would be sent.
        plan = self._plan = self._plan or divide_slots(totals, self._night, self._carry)
        asked = learned.weight, self._night.request_share.factor(learned.rows_by_day, self._night.as_of_us)
        shard = ScheduledShard(
            self._night, estimated, result, plan, shares, without, learned.sums[ShardSilence], asked
        )
        for folder, batch in shard.files():
            yield ShardTables(estimated.shard, {folder: batch})
        spread = spread_of(estimated, learned.change, self._night, *shard.claims())
        yield beam.pvalue.TaggedOutput("report", replace(shard.report(), spread=spread))


class ScheduledShard:
    """The work of `SequenceCrawls`, without Beam.

    `without` is the search without signals, None where they are not used; `asked` begins `request_crawls`.
    """

    def __init__(
        self,
        night: Night,
        estimated: ShardTables,
        result: search.SearchResult,
        plan: Quotas,
        shares: ByHost | None = None,
        without: search.SearchResult | None = None,
        heard: Heard | None = None,
        asked: tuple[str, float] = ("", 1.0),
    ) -> None:
        self._asked, self._result = asked, result
        self._night, self._shard, self._heard = night, estimated.shard, heard or Heard()
        self._pages, self._hosts = estimated.tables["pages"], estimated.tables["hosts"]
        objective = objectives.get(night.objective)
        tables = solver_tables(estimated, shares is not None)
        if shares is not None:
            tables = share_limits(tables, shares, night.objective, night.budget_per_day)
        block, days = tables_to_block(tables), night.horizon_us / DAY_US
        if without is not None:
            useful = useful_signals(block, without, days)
            estimated, block = only_signals(estimated, useful), tables_to_block(only_signals(tables, useful))
        self._allocation = search.allocate(block, objective, result)
        self._rate = self._allocation.crawl_rate_per_day
        self._floors = floor_cost(block, objective, self._allocation, result.multiplier)
        change, weight = (self._pages.column(n).to_numpy() for n in ("change_rate_per_day", "weight"))
        self._change, self._weight = change, weight
        self._hours = ClockHours.of(estimated, self._rate)
        self._fresh, self._by_hours = objective.freshness(self._rate, change), 0.0
        if self._hours is not None:
            self._hours.correct_freshness(self._fresh)
        self._fresh_without = None if without is None else freshness_without(block, without)
        self._trust, self._forecasts = estimated.tables.get("trust"), estimated.tables.get("forecasts")
        policy = search.signal_policy(block, objective, result, self._allocation)
        self._clocks = None
        if policy is not None:
            self._clocks = SignalClocks.of(estimated.tables["signals"], weight, policy)
            lost = lost_waiting(self._clocks.pages, policy.threshold, self._rate[policy.row], 0.5 * days)
            # The same crawls without a look at the signals are the least that there is.
            self._fresh[policy.row] = np.maximum(policy.freshness - lost, self._fresh[policy.row])
        self._silence = silence_of(self._pages, self._heard)
        self._uniform = objective.freshness(one_rate(block, result), change)
        for fresh in (self._fresh, self._uniform, self._fresh_without):
            if fresh is not None:
                fresh[self._silence.unclaimed] = 0.0
        attempt = self._attempt = microseconds(self._pages.column("last_attempt_at"))
        self._slot_before = microseconds(self._pages.column("last_slot_at"))
        last = np.maximum(attempt, self._slot_before)
        self._is_new = is_new(self._pages)
        since = (night.as_of_us - np.where(self._is_new, night.as_of_us, last)) / DAY_US
        if self._hours is not None:
            since = self._hours.since_days(since)
        self._since_days = np.where(self._is_new, np.nan, since)
        self._explored, self._tonight, self._since_days = explored_tonight(
            self._pages, self._hosts, self._rate, self._since_days, last, night
        )
        crawled = microseconds(self._pages.column("last_crawl_at"))
        age = np.maximum(np.where(crawled == NO_TIME, np.inf, night.as_of_us - crawled) / DAY_US, 0.0)
        if self._hours is not None:
            age = self._hours.since_days(age)
        self._value = objective.crawl_value(change, weight, age)
        self._by_signal: BoolArray | None = None
        fixed = Fixed.of(estimated.tables)
        # Pages that get no first crawl of their own: it is decided, or they must not be crawled.
        decided = (fixed.count > 0) | (self._pages.column("cap_per_day").to_numpy() <= 0.0)
        self._refreshes, self._awaits = fixed, self._is_new & ~decided
        self._since_days = np.where(self._is_new & decided, 0.0, self._since_days)
        self._curves: ValueCurves | None = None
        self._most: IntArray | None = None
        floor, cap = block.floor_per_day, block.cap_per_day
        if len(fixed.page):
            # What is refreshed is crawled beyond that only as far as its rate asks for more.
            self._tonight = left_rates(self._tonight, fixed.count, days)
            self._since_days = np.where(fixed.count > 0, 0.0, self._since_days)
            floor = None if floor is None else np.maximum(floor - fixed.count / days, 0.0)
            cap = np.where(fixed.count > 0, self._tonight, np.inf if cap is None else cap)
        if night.sequencer == "greedy":
            asked = block.change_rate_per_day, block.request_rate_per_day
            self._curves = ValueCurves.of(objective, *asked, self._since_days)
        self._whole: BoolArray | None
        self._window, self._whole = self._hosts.column("signal_window_crawls").to_numpy(), None
        if self._clocks is not None:
            self._value[self._clocks.row] = self._clocks.crawl_value(age)
            if self._curves is not None:
                signals = self._clocks.signals_since(last, crawled)
                self._curves = self._curves.with_signals(self._clocks.row, self._clocks.pages, signals)
            self._follow_signals(self._clocks, last, crawled, plan)
        ordering = Ordering(night, self._shard_pages(), self._hosts, self._curves, floor, cap)
        self._sequence, fixed = ordering.sequence(plan, self._shard, fixed)
        self._left_out = len(self._refreshes.page) - len(fixed.page)
        apart = limited_giants(self._hosts, night.layout) if plan.giants else []
        if self._hours is not None:
            stays = self._is_new | np.isin(np.arange(len(change)), self._explored)
            self._sequence = self._hours.place(
                self._sequence, self._pages, self._hosts, stays, apart, night.hour_capacity
            )
        self._sequence = fixed.into(self._sequence, self._pages, self._hosts, apart, night)
        if self._hours is not None:
            self._by_hours = self._hours.freshen(self._fresh, weight, self._sequence, last, objective)

    def _host_start(self) -> IntArray:
        return np.concatenate([[0], np.cumsum(self._hosts.column("n_pages").to_numpy(), dtype=np.int64)])

    def _follow_signals(
        self, clocks: SignalClocks, last_us: IntArray, crawled_us: IntArray, plan: Quotas
    ) -> None:
        """Who is due, signals counted."""
        start = self._host_start()
        apart = np.zeros(len(self._rate), np.bool_)
        if plan.giants:
            for row in limited_giants(self._hosts, self._night.layout).tolist():
                apart[start[row] : start[row + 1]] = True
        shift = self._night.max_signal_shift * float(plan.slots[self._shard])
        found = dues(
            clocks,
            self._rate,
            self._since_days,
            last_us,
            crawled_us,
            start,
            apart,
            self._window,
            max(1.0, shift),
            max(1.0, SHIFT_OF_ALL * shift),
        )
        self._since_days, self._by_signal = found.since_days, found.by_signal
        self._window, self._whole = found.window_crawls, found.whole
        if found.whole.any():
            # A host that asks for too much has what it may beyond its share as a higher rate tonight.
            share = bursts.shares_of(self._rate, start, float(plan.slots[self._shard]))
            if self._curves is not None:
                # By value they would take all that their signals ask for: they may have as much here.
                most = bursts.most_of(share, found.ahead_crawls)
                self._most = np.where(found.whole, most, UNLIMITED_SLOTS)
                return
            more = np.where(found.whole, bursts.times_of(share, found.ahead_crawls), 1.0)
            more = np.repeat(more, np.diff(start))
            self._tonight = self._tonight * more
            self._since_days = found.since_days / more

    def _flag(self, name: str) -> BoolArray:
        if name not in self._pages.schema.names:
            return np.zeros(self._pages.num_rows, np.bool_)
        return self._pages.column(name).to_numpy(zero_copy_only=False)

    def _shard_pages(self) -> sequencing.ShardPages:
        hosts = self._hosts
        max_slots, gap = hosts.column("max_slots").to_numpy(), hosts.column("gap_us").to_numpy()
        if self._most is not None:
            max_slots = np.minimum(max_slots, self._most)
        limited = bool(((max_slots < UNLIMITED_SLOTS) | (gap > 0)).any())
        starts = free_at = None
        if limited and len(self._refreshes.page):
            host = self._pages.column("host_code").to_numpy().astype(np.int64)
            room = self._refreshes.room(hosts, host, self._night.as_of_us, self._night.horizon_us)
            max_slots = np.minimum(max_slots, room)
        whole = self._whole is not None and bool(self._whole.any())
        if limited or whole:
            starts = self._host_start()
        if limited:
            last = microseconds(hosts.column("last_slot_at"))
            free_at = np.where(last == NO_TIME, 0, last + gap - self._night.as_of_us)
        return sequencing.ShardPages(
            crawl_rate_per_day=self._tonight,
            days_since_last=self._since_days,
            is_new=self._awaits,
            crawl_value=self._value,
            tie=self._pages.column("url_hash").to_numpy(),
            host_start=starts,
            host_max_slots=max_slots if limited else None,
            host_gap_us=gap if limited else None,
            host_free_at_us=free_at,
            by_signal=self._by_signal,
            host_whole=self._whole if whole else None,
            host_days_since_last=self._host_days() if whole else None,
        )

    def _host_days(self) -> FloatArray:
        """Days since the last slot or attempt of each host."""
        last = microseconds(self._hosts.column("last_slot_at"))
        return np.where(last == NO_TIME, np.inf, (self._night.as_of_us - last) / DAY_US)

    def _host(self) -> pa.Array:
        return self._hosts.column("host").take(self._pages.column("host_code"))

    def files(self) -> Iterator[tuple[str, pa.RecordBatch]]:
        """What is written, by folder; one after the other, so that no two take memory."""
        yield "pages", self.pages()
        yield "hosts", self.hosts()
        yield "schedule", self.schedule()
        yield "slots/pages", self.slots_pages()
        yield "slots/hosts", self.slots_hosts()

    def pages(self) -> pa.RecordBatch:
        """One row a page: what was learned, and what was decided."""
        table = self._pages
        intervals, changes = table.column("n_intervals").to_numpy(), table.column("n_changes").to_numpy()
        limit = np.asarray(BOUNDS, dtype=object)[self._bounds()]
        stderr = estimators.standard_error(self._change, table.column("information").to_numpy())
        silent = self._silence.wait_days > 0.0
        never = self._by_flag() | silent | ((limit == "cap") & (self._rate <= 0.0))
        if self._clocks is not None:
            never[self._clocks.row] = True
        price = *self._asked, self._result, self._allocation
        as_they_are = "url", "n_intervals", "n_changes", "last_crawl_at"
        columns = {name: table.column(name) for name in as_they_are} | {
            "host": self._host(),
            "change_rate_per_day": pa.array(self._change),
            "change_rate_stderr": pa.array(stderr),
            "request_rate_per_day": null_of_nan(table.column("request_rate_per_day")),
            "impression_rate_per_day": null_of_nan(table.column("impression_rate_per_day")),
            "crawl_rate_per_day": pa.array(self._rate),
            "expected_freshness": pa.array(self._fresh),
            "crawl_value": pa.array(self._value),
            "owed": pa.array(self._owed()),
            "limit": pa.array(limit, pa.string()),
            "boundary": pa.array((intervals > 0) & ((changes == 0) | (changes == intervals))),
            **clock_hours.page_clocks(self._hours, len(self._rate)),
            **signal_columns(self._clocks, self._change),
            **request_crawls(*price, table, self._weight, never),
        }
        schema = statistics.pages_schema().remove_metadata()
        for name in table.schema.names:
            plain = name[len(META) :]
            # A catalogue's own "host" or "limit" does not replace ours.
            if name.startswith(META) and plain not in schema.names:
                columns[plain] = table.column(name)
                schema = schema.append(pa.field(plain, pa.string()))
        return statistics.filled(schema, columns, table)

    def hosts(self) -> pa.RecordBatch:
        """One row a host, or one for each of its sources of signals."""
        start = self._host_start()
        host = self._pages.column("host_code").to_numpy()
        page, _ = self._due()
        slots = np.bincount(host[page], minlength=len(start) - 1)
        rate = np.bincount(host, weights=self._rate, minlength=len(start) - 1)
        clocks = clock_hours.host_clocks(self._hours, self._hosts.num_rows)
        return hosts_batch(self._hosts, rate, slots, self._trust, clocks)

    def _owed(self) -> FloatArray:
        """Crawls tonight beyond the page's rate times the horizon, give or take one."""
        return self._sequence.expected - self._rate * (self._night.horizon_us / DAY_US)

    def schedule(self) -> pa.RecordBatch:
        """One row a used slot, in order of slots."""
        sequence = self._sequence
        used = np.flatnonzero(sequence.page >= 0)
        page = sequence.page[used]
        take = pa.array(page)
        reasons = pa.array(sequencing.REASONS, pa.string())
        return pa.RecordBatch.from_arrays(
            [
                pa.array(np.full(len(used), self._shard, np.int32)),
                pa.array(used.astype(np.int64)),
                pa.array(sequence.due_offset_us[used] + self._night.as_of_us).cast(schemas.TIME),
                self._pages.column("url").take(take),
                self._hosts.column("host").take(self._pages.column("host_code").take(take)),
                pa.array(self._rate[page]),
                reasons.take(pa.array(sequence.reason[used].astype(np.int32))),
                pa.array(self._weight[page]),
                pa.array(self._value[page]),
            ],
            schema=schemas.SCHEDULE,
        )

    def _due(self) -> tuple[IntArray, IntArray]:
        """Used slots: page and time, UTC microseconds."""
        used = self._sequence.page >= 0
        page, due = self._sequence.page[used], self._sequence.due_offset_us[used]
        return page.astype(np.int64), due + self._night.as_of_us

    def slots_pages(self) -> pa.RecordBatch:
        """Last slot of every page that was given one since it was last attempted."""
        last = np.where(self._slot_before > self._attempt, self._slot_before, NO_TIME)
        np.maximum.at(last, *self._due())
        rows = np.flatnonzero(last != NO_TIME)
        host = self._pages.column("host_code").take(pa.array(rows))
        columns = {
            "host_hash": self._hosts.column("host_hash").take(host),
            "last_slot_at": times(last[rows]),
            "change_rate_per_day": pa.array(self._by_clock()[rows], pa.float32()),
            **slots_columns(self._forecasts, rows),
            "calm_cell": self._cells(rows),
            "slots_since_at": times(self._silence.slots_since_us[rows]),
        }
        return statistics.filled(statistics.slots_schema(), columns, self._pages, rows)

    def _by_clock(self) -> FloatArray:
        """Change rates per day of the clock: the next night measures intervals so."""
        if self._hours is None:
            return self._change
        return self._change / self._pages.column("clock_speed").to_numpy()

    def _cells(self, rows: IntArray) -> pa.Array:
        """What the night knows of pages beside their rates, for the next night to judge by."""
        if "calm_days" not in self._pages.schema.names:
            return pa.nulls(len(rows), pa.int16())
        calm = self._pages.column("calm_days").to_numpy()[rows]
        return pa.array(calm_cells(calm, self._by_clock()[rows]))

    def slots_hosts(self) -> pa.RecordBatch:
        """Last slot or attempt of every host."""
        last = microseconds(self._hosts.column("last_slot_at")).copy()
        page, due = self._due()
        np.maximum.at(last, self._pages.column("host_code").to_numpy()[page], due)
        rows = np.flatnonzero(last != NO_TIME)
        return pa.RecordBatch.from_arrays(
            [
                self._hosts.column("host_hash").take(pa.array(rows)),
                times(last[rows]),
                pa.array(self._window[rows], pa.float32()),
                *(pa.array(column[rows], pa.float32()) for column in self._forecast_track()),
            ],
            schema=schemas.SLOTS_HOSTS,
        )

    def _forecast_track(self) -> list[FloatArray]:
        if FORECAST_COLUMNS[0] not in self._hosts.schema.names:
            return [self._window * 0.0] * len(FORECAST_COLUMNS)
        return [self._hosts.column(name).to_numpy() for name in FORECAST_COLUMNS]

    def report(self) -> ShardReport:
        """Sums for the manifest."""
        counts = Counts()
        sequence = self._sequence
        used = sequence.page[sequence.page >= 0]
        counts.add("slots", len(sequence.page))
        counts.add("slots_used", len(used))
        seen_twice = self._pages.column("n_intervals").to_numpy() > 0
        counts.add("slots_with_evidence", int(seen_twice[used].sum()))
        counts.add("pages_seen_twice", int(seen_twice.sum()))
        counts.add("pages_new", int(self._is_new.sum()))
        counts.add("pages_never_crawled", int((self._attempt == NO_TIME).sum()))
        counts.add("pages_never_fetched", self._pages.column("last_crawl_at").null_count)
        for kind in statistics.STATISTICS:
            for name, n in kind.count(self._pages).items():
                counts.add(name, n)
        counts.add("refreshes_over_limit", self._left_out)
        clock_hours.count_clocks(self._hours, counts)
        counts.add("slots_to_learn_clocks", int(np.isin(used, self._explored).sum()))
        counts.add("hosts_bursting", 0 if self._whole is None else int(self._whole.sum()))
        counts.add_each("pages_limit_", search.LIMIT_NAMES, self._allocation.limit)
        counts.add_each("slots_", sequencing.REASONS, sequence.reason)
        multiplier = self._allocation.host_multiplier
        hosts: tuple[tuple[float, str], ...] = ()
        if len(multiplier):  # none where no host of the shard has a limit
            at_limit = np.flatnonzero((multiplier > 0) & self._reported_here())
            counts.add("hosts_at_limit", len(at_limit))
            worst = at_limit[np.argsort(-multiplier[at_limit], kind="stable")[:MAX_NAMED_HOSTS]]
            hosts = tuple((float(multiplier[j]), self._hosts.column("host")[int(j)].as_py()) for j in worst)
        fresh_weight = self._weight * self._fresh
        crawled = self._rate > 0.0
        counts.add_each("pages_starved_", BOUNDS, self._bounds()[~crawled & (self._weight > 0.0)])
        return ShardReport(
            self._shard,
            float(self._weight.sum()),
            float(self._weight[crawled].sum()),
            float(fresh_weight.sum()),
            float(fresh_weight[crawled].sum()),
            float((self._weight * self._uniform).sum()),
            hosts,
            published(counts.totals()),
            self._large_hosts(),
            None if self._fresh_without is None else float((self._weight * self._fresh_without).sum()),
            trust_sums(self._hosts, self._trust, self._night.layout.parts),
            silence_sums(self._pages, self._hosts, self._silence, self._heard),
            self._by_hours,
            float(self._value[self._is_new].sum()),
            self._floors,
        )

    def _bounds(self) -> IntArray:
        return bounds(self._allocation.limit, self._by_flag(), self._silence.wait_days > 0.0, self._is_new)

    def _by_flag(self) -> BoolArray:
        return self._flag("volatile") & (self._rate >= volatile.CAP_PER_DAY)

    def claims(self) -> tuple[FloatArray, FloatArray]:
        """Crawl rates of pages, and their weights where freshness is claimed of them: (n,) each."""
        return self._rate, np.where(self._silence.unclaimed, 0.0, self._weight)

    def _reported_here(self) -> BoolArray:
        """Hosts that this shard reports on: a split one is reported by its home only."""
        return self._night.layout.home(self._hosts.column("host_hash").to_numpy()) == self._shard

    def _large_hosts(self) -> tuple[tuple[int, str, int], ...]:
        sizes = self._hosts.column("n_pages").to_numpy()
        host_hash = self._hosts.column("host_hash").to_numpy()
        split = np.isin(host_hash, np.array(sorted(self._night.layout.parts), np.uint64))
        rows = np.union1d(np.lexsort((host_hash, -sizes))[:MAX_NAMED_HOSTS], np.flatnonzero(split))
        return tuple(
            (int(host_hash[r]), self._hosts.column("host")[int(r)].as_py(), int(sizes[r])) for r in rows
        )
