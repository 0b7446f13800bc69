"""What a night makes of signals, as plug-ins of `benchmarks.closed_loop`.

A mode turns a folded shard into an estimated one, and may reorder the night's crawls. `MODES` has them
by name.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from benchmarks.histories import World
from policies import estimation, objectives
from policies.recalibration import HEARD, PLAIN, QUIET
from policies.typing_ import BoolArray, FloatArray, IntArray
from transforms.coders import ShardTables
from transforms.learning import Learned, RequestClock, estimate_shard
from transforms.state import list_start

LEAST_RATE = 1e-9
"""Unsignalled changes a day of a page that is thought to have none."""

CERTAIN = 40.0
"""Weight of a signal that is surely a change: its precision is 1 - 4e-18."""


@dataclass(frozen=True)
class Planned:
    """Crawls of one night.

    Attributes
    ----------
    page : (k,) int64
    due_us : (k,) int64
        UTC microseconds.
    value : (k,) float64
        Value of the crawl when it was planned, requests.
    predicted : (k,) float64
        Probability that it finds a change.
    """

    page: IntArray
    due_us: IntArray
    value: FloatArray
    predicted: FloatArray


class Mode:
    """No signals: the job as it is without them. The base of all modes.

    Attributes
    ----------
    name : str
    objective : str
        A name of `policies.objectives`.
    hears : bool
        Whether the fold is given the signals.
    """

    name = "no signals"
    objective = "periodic"
    hears = False

    def __init__(self, world: World) -> None:
        self._world = world

    @classmethod
    def available(cls) -> bool:
        """Whether this version has the mode's objective."""
        return cls.objective in objectives.NAMES

    def estimate(self, folded: ShardTables, learned: Learned, clock: RequestClock) -> ShardTables:
        """Rates of a folded shard."""
        return estimate_shard(folded, learned, None, clock)

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
        factor: FloatArray,
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
        factor : (k, kinds) float64
            How much faster the clock runs, see `policies.recalibration`.
        """
        pages = estimated.tables["pages"]
        rate = pages.column("change_rate_per_day").to_numpy()[row]
        information = pages.column("information").to_numpy()[row]
        days = since_days + ahead_days
        return 1.0 - estimation.predict_unchanged(rate * factor[:, PLAIN], information, days)

    def trust(self, estimated: ShardTables) -> dict[str, tuple[float, float]]:
        """Learned precision and recall of every source of signals, by "host, source"."""
        return {}


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


class LearnedTrust(Mode):
    """Signals as the job uses them: as far as they have proved right."""

    name = "learned"
    objective = "signals"
    hears = True
    told_by = "forecasts"

    def estimate(self, folded: ShardTables, learned: Learned, clock: RequestClock) -> ShardTables:
        estimated = super().estimate(folded, learned, clock)
        kept = {n: folded.tables[n] for n in ("signal_sources", "sources") if n in folded.tables}
        return ShardTables(estimated.shard, {**estimated.tables, **kept})

    def predict(
        self,
        estimated: ShardTables,
        row: IntArray,
        since_days: FloatArray,
        ahead_days: FloatArray,
        first: BoolArray,
        factor: FloatArray,
    ) -> FloatArray:
        found = super().predict(estimated, row, since_days, ahead_days, first, factor)
        signals, pages = estimated.tables.get(self.told_by), estimated.tables["pages"]
        if signals is None or not signals.num_rows:
            return found
        has = signals.column("row").to_numpy()
        at = np.minimum(np.searchsorted(has, row), len(has) - 1)
        use = np.flatnonzero(has[at] == row)
        at = at[use]
        rate, information = (
            pages.column(n).to_numpy()[row[use]] for n in ("change_rate_per_day", "information")
        )
        parts = self.clocks(estimated, at, information)
        # Until the night no more came than is known; what comes after it may be signalled or not.
        calm, ahead = parts[0] * since_days[use], rate * ahead_days[use]
        clock, variance = calm + ahead, calm**2 / parts[1] + ahead**2 / information
        clock += np.where(first[use], parts[2], 0.0)
        variance += np.where(first[use], parts[3], 0.0)
        information = np.where(variance > 0.0, clock**2 / np.maximum(variance, 1e-300), 1.0)
        clock *= np.where(first[use] & (parts[2] > 0.0), factor[use, HEARD], factor[use, QUIET])
        found[use] = -np.expm1(-information * np.log1p(clock / information))
        return found

    def clocks(
        self, estimated: ShardTables, at: IntArray, information: FloatArray
    ) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray]:
        """Unsignalled rate of some rows of the table `told_by`, its information, and what signals add.

        As the job will judge them, `policies.signal_forecast`. The last two are the changes that the pending
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

    def trust(self, estimated: ShardTables) -> dict[str, tuple[float, float]]:
        trust = estimated.tables.get("trust")
        if trust is None:
            return {}
        hosts = estimated.tables["hosts"].column("host").take(trust.column("host_code")).to_pylist()
        sources, precision, recall = (
            trust.column(n).to_pylist() for n in ("source", "signal_precision", "signal_recall")
        )
        return {f"{h}, {s}": (p, r) for h, s, p, r in zip(hosts, sources, precision, recall, strict=True)}


class Given(LearnedTrust):
    """Signals with parameters that were set, each as well known as the page's rate."""

    told_by = "signals"

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

    def estimate(self, folded: ShardTables, learned: Learned, clock: RequestClock) -> ShardTables:
        estimated = super().estimate(folded, learned, clock)
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

    def estimate(self, folded: ShardTables, learned: Learned, clock: RequestClock) -> ShardTables:
        estimated = super().estimate(folded, learned, clock)
        signals = estimated.tables.get("signals")
        if signals is None:
            return estimated
        rate, heard = (signals.column(n).to_numpy() for n in ("signal_rate_per_day", "clock_of_signals"))
        none = np.full(len(rate), LEAST_RATE)
        return with_parameters(estimated, none, rate, np.full(len(rate), CERTAIN), heard)


class Told(Given):
    """Precision and recall of each host as the whole history has them; change rates are learned."""

    name = "told"

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._quality = world.true_quality()

    def estimate(self, folded: ShardTables, learned: Learned, clock: RequestClock) -> ShardTables:
        estimated = super().estimate(folded, learned, clock)
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
