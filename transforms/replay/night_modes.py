"""What a replayed night makes of signals: how a folded shard is estimated, and what its crawls should find.

A mode may also reorder the night's crawls. `Mode` is the job without signals, `LearnedTrust` the job with
them; benchmarks have further ones.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from policies.estimation.forecast import forecast
from policies.history.evidence import empty
from policies.judging.recalibration import HEARD, PLAIN, QUIET, clock_factors
from policies.numerics.lookup import rows_of
from policies.numerics.typing_ import BoolArray, FloatArray, Int16Array, IntArray
from transforms.batches.coders import ShardTables
from transforms.kept.fold_settings import RequestClock
from transforms.kept.state import list_start
from transforms.night.group_tables import GroupTable
from transforms.night.learning import Learned, estimate_shard, evidence_tables
from transforms.night.sampling import evidence_of
from transforms.replay.closed_loop import Planned, Trust
from transforms.replay.worlds import World


@dataclass(frozen=True)
class NightFactors:
    """How much faster the clocks of k crawls run, see `policies.judging.recalibration`.

    Attributes
    ----------
    calm : (k,) int16
    own : (k,) float64
        Of their hosts.
    of_cells : (c,) float64 or None
    """

    calm: Int16Array
    own: FloatArray
    of_cells: FloatArray | None

    def take(self, rows: IntArray) -> NightFactors:
        """Of some crawls."""
        return NightFactors(self.calm[rows], self.own[rows], self.of_cells)

    def of(self, expected: FloatArray, kind: IntArray | int) -> FloatArray:
        """Factors where so many changes were `expected`, (k,)."""
        return self.own * clock_factors(self.calm, expected, kind, self.of_cells)


class Mode:
    """No signals: the job as it is without them. The base of all modes.

    Attributes
    ----------
    name : str
    objective : str
        A name of `policies.objectives.objectives`.
    hears : bool
        Whether the fold is given the signals.
    """

    name = "no signals"
    objective = "periodic"
    hears = False

    def __init__(self, world: World) -> None:
        self._world = world

    def estimate(
        self, folded: ShardTables, learned: Learned, clock: RequestClock, groups: GroupTable | None = None
    ) -> ShardTables:
        """Rates of a folded shard."""
        estimated = estimate_shard(folded, learned, groups, clock)
        return ShardTables(estimated.shard, {**estimated.tables, **evidence_tables(folded)})

    def choose(self, planned: Planned, pinged: BoolArray) -> Planned:
        """The crawls that the crawler makes of those that were planned.

        Parameters
        ----------
        planned : Planned
        pinged : (n,) bool
            Pages with a signal since their last crawl.
        """
        return planned

    def predict(
        self,
        estimated: ShardTables,
        row: IntArray,
        since_days: FloatArray,
        ahead_days: FloatArray,
        first: BoolArray,
        factors: NightFactors,
    ) -> FloatArray:
        """Probability that crawls find a change, told at the night's instant, (k,).

        Parameters
        ----------
        estimated : ShardTables
            Of `estimate`.
        row : (k,) int64
            Rows of its pages.
        since_days : (k,) float64
            From the last crawl to the night.
        ahead_days : (k,) float64
            From the night, or from a crawl of the same page in this night, to the crawl. Signals may come in
            this time: it changes at the whole rate of changes.
        first : (k,) bool
            The page's first crawl in this night: the signals that are pending are of its interval.
        factors : NightFactors
        """
        pages = estimated.tables["pages"]
        rate = pages.column("change_rate_per_day").to_numpy()[row]
        information = pages.column("information").to_numpy()[row]
        known = empty(len(row))
        if "evidence" in estimated.tables:
            known = evidence_of(estimated.tables["evidence"], estimated.tables["bins"]).take(row)
        told, days = forecast(known, rate, information), since_days + ahead_days
        days *= factors.of(rate * days, PLAIN)
        return -np.expm1(told.log_unchanged(told.row, days))

    def trust(self, estimated: ShardTables) -> Trust:
        """Learned precision and recall of every source of signals, by "host, source"."""
        return {}


class LearnedTrust(Mode):
    """Signals as the job uses them: as far as they have proved right."""

    name = "learned"
    objective = "signals"
    hears = True
    told_by = "forecasts"

    def estimate(
        self, folded: ShardTables, learned: Learned, clock: RequestClock, groups: GroupTable | None = None
    ) -> ShardTables:
        estimated = super().estimate(folded, learned, clock, groups)
        kept = {n: folded.tables[n] for n in ("signal_sources", "sources") if n in folded.tables}
        return ShardTables(estimated.shard, {**estimated.tables, **kept})

    def predict(
        self,
        estimated: ShardTables,
        row: IntArray,
        since_days: FloatArray,
        ahead_days: FloatArray,
        first: BoolArray,
        factors: NightFactors,
    ) -> FloatArray:
        found = super().predict(estimated, row, since_days, ahead_days, first, factors)
        signals, pages = estimated.tables.get(self.told_by), estimated.tables["pages"]
        if signals is None or not signals.num_rows:
            return found
        has = signals.column("row").to_numpy()
        at = rows_of(has, row)
        use = np.flatnonzero(at >= 0)
        at = at[use]
        rate, information = (
            pages.column(n).to_numpy()[row[use]] for n in ("change_rate_per_day", "information")
        )
        parts = self.clocks(estimated, at, information)
        # Until the night no more came than is known; what comes after it may be signalled or not.
        unheard, ahead = parts[0] * since_days[use], rate * ahead_days[use]
        clock, variance = unheard + ahead, unheard**2 / parts[1] + ahead**2 / information
        clock += np.where(first[use], parts[2], 0.0)
        variance += np.where(first[use], parts[3], 0.0)
        information = np.where(variance > 0.0, clock**2 / np.maximum(variance, 1e-300), 1.0)
        kind = np.where(first[use] & (parts[2] > 0.0), HEARD, QUIET)
        clock *= factors.take(use).of(clock, kind)
        found[use] = -np.expm1(-information * np.log1p(clock / information))
        return found

    def clocks(
        self, estimated: ShardTables, at: IntArray, information: FloatArray
    ) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray]:
        """Unsignalled rate of some rows of the table `told_by`, its information, and what signals add.

        As the job will judge them, `policies.signals.forecast`. The last two are the changes that the pending
        signals stand for, and the variance of these.
        """
        forecasts, pending = estimated.tables["forecasts"], estimated.tables["signal_sources"]
        start = list_start(forecasts.column("signal_source"))
        of_page = np.repeat(np.arange(forecasts.num_rows), np.diff(start))
        codes = {name: i for i, name in enumerate(estimated.tables["sources"].column("name").to_pylist())}
        names = forecasts.column("signal_source").flatten().to_pylist()
        source = np.array([codes[name] for name in names], np.int64)
        number = np.zeros((estimated.tables["pages"].num_rows, len(codes)))
        number[pending.column("row").to_numpy(), pending.column("source").to_numpy()] = pending.column(
            "pending"
        ).to_numpy()
        number = number[forecasts.column("row").to_numpy()[of_page], source]
        weight, known = (
            forecasts.column(f"signal_{n}").flatten().to_numpy() for n in ("weight", "information")
        )
        moved = number * weight
        heard, variance = (np.bincount(of_page, v, forecasts.num_rows) for v in (moved, moved**2 / known))
        unsignalled = (
            forecasts.column(f"unsignalled_{n}").to_numpy() for n in ("rate_per_day", "information")
        )
        rate, of_rate = (v.astype(np.float64)[at] for v in unsignalled)
        return rate, of_rate, heard[at], variance[at]

    def trust(self, estimated: ShardTables) -> Trust:
        trust = estimated.tables.get("trust")
        if trust is None:
            return {}
        hosts = estimated.tables["hosts"].column("host").take(trust.column("host_code")).to_pylist()
        sources, precision, recall = (
            trust.column(n).to_pylist() for n in ("source", "signal_precision", "signal_recall")
        )
        return {f"{h}, {s}": (p, r) for h, s, p, r in zip(hosts, sources, precision, recall, strict=True)}
