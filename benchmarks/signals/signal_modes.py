"""What else a night may make of signals than the job does, see `transforms.replay.night_modes`.

`MODES` has all modes by name.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from benchmarks.measuring.histories import PolledWorld
from policies.history.page_state import NO_TIME
from policies.numerics.typing_ import BoolArray, FloatArray, IntArray
from transforms.batches.coders import ShardTables
from transforms.kept.fold_settings import RequestClock
from transforms.kept.signals import signal_evidence_of
from transforms.night.learning import GroupTable, Learned
from transforms.night.trusting import SIGNALS_TABLE
from transforms.replay.closed_loop import Planned
from transforms.replay.night_modes import LearnedTrust, Mode

LEAST_RATE = 1e-9
"""Unsignalled changes a day of a page that is thought to have none."""

CERTAIN = 40.0
"""Weight of a signal that is surely a change: its precision is 1 - 4e-18."""


class PingedFirst(Mode):
    """Pages with a signal first, in the first slots of the night; the least valuable others give way.

    What a crawler does that takes every signal at its word and has no model of it.
    """

    name = "pinged first"

    def choose(self, planned: Planned, pinged: BoolArray) -> Planned:
        n = len(planned.page)
        order = np.argsort(planned.due_us, kind="stable")
        page, value = planned.page[order], planned.value[order]
        first = np.zeros(n, np.bool_)
        first[np.unique(page, return_index=True)[1]] = True
        called = pinged[page] & first
        others = np.setdiff1d(np.flatnonzero(pinged), page)
        called_page = np.concatenate([page[called], others])[:n]
        rest = np.flatnonzero(~called)
        kept = np.argsort(-value[rest], kind="stable")[: n - len(called_page)]
        rest = rest[np.sort(kept)]
        chosen = np.concatenate([called_page, page[rest]])
        return Planned(chosen, planned.due_us[order], np.zeros(n), np.zeros(n))


class Given(LearnedTrust):
    """All pages with signals, with parameters that were set, each as well known as the rate of the page."""

    told_by = "signals"

    def estimate(
        self, folded: ShardTables, learned: Learned, clock: RequestClock, groups: GroupTable | None = None
    ) -> ShardTables:
        estimated = super().estimate(folded, learned, clock, groups)
        found = signal_evidence_of(folded)
        if found is None:
            return estimated
        told = found.heard
        heard, days = (told.ended + told.running).sum(axis=1), told.ended_days + told.running_days
        pending = found.pending.sum(axis=1)
        learnt = estimated.tables.get("signals")
        known = np.zeros(0, np.int64) if learnt is None else learnt.column("row").to_numpy()
        some = np.flatnonzero((heard + pending > 0.0) | np.isin(found.row, known))
        row = found.row[some]
        change = estimated.tables["pages"].column("change_rate_per_day").to_numpy()
        columns = {
            "row": row,
            "unsignalled_rate_per_day": change[row],
            "signal_rate_per_day": heard[some] / (days + 1.0)[some],
            "signal_weight": np.zeros(len(row)),
            "clock_of_signals": np.zeros(len(row)),
            "signals_since_crawl": pending[some].astype(np.int64),
            "last_signal_us": found.last_at_us[some].max(axis=1, initial=NO_TIME),
        }
        if learnt is not None:
            at = np.searchsorted(row, known)
            for name in ("unsignalled_rate_per_day", "signal_rate_per_day", "clock_of_signals"):
                columns[name][at] = learnt.column(name).to_numpy()
        arrays = [pa.array(columns[name]) for name in SIGNALS_TABLE.names]
        signals = pa.RecordBatch.from_arrays(arrays, schema=SIGNALS_TABLE)
        return ShardTables(estimated.shard, {**estimated.tables, "signals": signals})

    def clocks(
        self, estimated: ShardTables, at: IntArray, information: FloatArray
    ) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray]:
        signals = estimated.tables["signals"]
        names = ("unsignalled_rate_per_day", "clock_of_signals")
        rate, heard = (signals.column(n).to_numpy()[at] for n in names)
        return rate, information, heard, heard**2 / information


class Blind(Given):
    """Every signal is taken for a change; how many changes come without one is learned all the same."""

    name = "blind"

    def estimate(
        self, folded: ShardTables, learned: Learned, clock: RequestClock, groups: GroupTable | None = None
    ) -> ShardTables:
        estimated = super().estimate(folded, learned, clock, groups)
        signals = estimated.tables.get("signals")
        if signals is None:
            return estimated
        unsignalled, rate = (
            signals.column(f"{n}_rate_per_day").to_numpy() for n in ("unsignalled", "signal")
        )
        certain = np.full(len(rate), CERTAIN)
        pending = signals.column("signals_since_crawl").to_numpy()
        return with_parameters(estimated, unsignalled, rate, certain, CERTAIN * pending)


class Perfect(Blind):
    """Every signal is taken for a change, and no change is thought to come without one (Kolobov et al.)."""

    name = "perfect"

    def estimate(
        self, folded: ShardTables, learned: Learned, clock: RequestClock, groups: GroupTable | None = None
    ) -> ShardTables:
        estimated = super().estimate(folded, learned, clock, groups)
        signals = estimated.tables.get("signals")
        if signals is None:
            return estimated
        rate, heard = (signals.column(n).to_numpy() for n in ("signal_rate_per_day", "clock_of_signals"))
        none = np.full(len(rate), LEAST_RATE)
        return with_parameters(estimated, none, rate, np.full(len(rate), CERTAIN), heard)


class Told(Given):
    """Precision and recall of each host as the whole history has them; change rates are learned."""

    name = "told"

    def __init__(self, world: PolledWorld) -> None:
        super().__init__(world)
        self._quality = world.true_quality()

    def estimate(
        self, folded: ShardTables, learned: Learned, clock: RequestClock, groups: GroupTable | None = None
    ) -> ShardTables:
        estimated = super().estimate(folded, learned, clock, groups)
        signals = estimated.tables.get("signals")
        if signals is None:
            return estimated
        pages, hosts = estimated.tables["pages"], estimated.tables["hosts"]
        row = signals.column("row").to_numpy()
        code = pages.column("host_code").to_numpy()[row]
        of_host = [self._quality.get(h, (0.0, 0.0)) for h in hosts.column("host").to_pylist()]
        precision, recall = np.array(of_host)[code].T
        change = pages.column("change_rate_per_day").to_numpy()[row]
        weight = -np.log1p(-precision)
        rate = np.divide(recall * change, precision, out=np.zeros(len(row)), where=precision > 0.0)
        pending = signals.column("signals_since_crawl").to_numpy()
        heard = np.where(pending > 0, weight * np.maximum(pending, 1), 0.0)
        return with_parameters(estimated, (1.0 - recall) * change, rate, weight, heard)


def with_parameters(
    estimated: ShardTables,
    unsignalled_rate_per_day: FloatArray,
    signal_rate_per_day: FloatArray,
    signal_weight: FloatArray,
    clock_of_signals: FloatArray,
) -> ShardTables:
    """The same pages with signals, (m,) each, with other parameters."""
    signals, pages = estimated.tables["signals"], estimated.tables["pages"]
    change = pages.column("change_rate_per_day").to_numpy().copy()
    true = -np.expm1(-signal_weight) * signal_rate_per_day
    change[signals.column("row").to_numpy()] = unsignalled_rate_per_day + true
    new = {
        "unsignalled_rate_per_day": unsignalled_rate_per_day,
        "signal_rate_per_day": signal_rate_per_day,
        "signal_weight": signal_weight,
        "clock_of_signals": clock_of_signals,
    }
    for name, values in new.items():
        signals = signals.set_column(
            signals.schema.get_field_index(name), signals.schema.field(name), pa.array(values)
        )
    at = pages.schema.get_field_index("change_rate_per_day")
    pages = pages.set_column(at, pages.schema.field(at), pa.array(change))
    return ShardTables(estimated.shard, {**estimated.tables, "signals": signals, "pages": pages})


MODES: dict[str, type[Mode]] = {m.name: m for m in (Mode, PingedFirst, LearnedTrust, Blind, Perfect, Told)}
