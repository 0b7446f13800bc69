"""What tonight's signals make of a shard's schedule: who is due, and what a crawl is worth."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from policies.numerics.typing_ import BoolArray, FloatArray, IntArray
from policies.optimum.signalled_policy import SignalPolicy
from policies.sequencing import bursts
from policies.signalled import value as signal_value
from policies.signalled.pages import SignalPages
from transforms.batches import schemas


@dataclass(frozen=True)
class SignalClocks:
    """Clocks of the pages of a shard whose signals count, r rows.

    Attributes
    ----------
    row : (r,) int64, ascending
        Rows of the "pages" table.
    pages : SignalPages
        Of these rows.
    policy : SignalPolicy
        Of these rows.
    clock_of_signals : (r,) float64
        What all signals since the last observation add to the clock.
    signals : (r,) int64
        How many there are.
    last_signal_us : (r,) int64
        UTC microseconds.
    """

    row: IntArray
    pages: SignalPages
    policy: SignalPolicy
    clock_of_signals: FloatArray
    signals: IntArray
    last_signal_us: IntArray

    @classmethod
    def of(cls, table: pa.RecordBatch, weight: FloatArray, policy: SignalPolicy) -> SignalClocks:
        """From the rows of `transforms.night.trusting.SIGNALS_TABLE` and the weights of all pages, (n,)."""

        def column(name: str) -> np.ndarray:
            return table.column(name).to_numpy()

        row = column("row")
        pages = SignalPages(
            weight[row],
            column("unsignalled_rate_per_day"),
            column("signal_rate_per_day"),
            column("signal_weight"),
        )
        return cls(
            row,
            pages,
            policy,
            column("clock_of_signals"),
            column("signals_since_crawl"),
            column("last_signal_us"),
        )

    def crawl_value(self, age_days: FloatArray) -> FloatArray:
        """What a crawl now gains, (r,), for the ages of all copies, (n,) days."""
        weight = self.pages.signal_weight
        with np.errstate(divide="ignore", invalid="ignore"):
            signals = np.where(weight > 0.0, self.clock_of_signals / weight, 0.0)
        return signal_value.crawl_value(self.pages, age_days[self.row], signals)

    def clock_since(self, last_us: IntArray, observed_us: IntArray) -> FloatArray:
        """What signals since the last attempt or slot add to the clock, (r,); arguments as those of `debts`.

        Where a later attempt failed, or a slot shows up in no log, it is not known how many signals came
        after it: one is taken if the last one did. A page that cannot be crawled is else due every night.
        """
        row = self.row
        tried = last_us[row] > observed_us[row]
        later = self.last_signal_us > last_us[row]
        one = self.clock_of_signals / np.maximum(self.signals, 1)
        return np.where(tried, np.where(later, one, 0.0), self.clock_of_signals)

    def signals_since(self, last_us: IntArray, observed_us: IntArray) -> FloatArray:
        """The same as a number of signals of the page's weight, (r,)."""
        clock, weight = self.clock_since(last_us, observed_us), self.pages.signal_weight
        with np.errstate(divide="ignore", invalid="ignore"):
            number = np.where(np.isinf(weight), clock > 0.0, clock / weight)
        return np.where((weight > 0.0) & (clock > 0.0), number, 0.0)

    def debts(
        self, since_days: FloatArray, last_us: IntArray, observed_us: IntArray
    ) -> tuple[FloatArray, FloatArray]:
        """Crawls that each page is owed, and what it would be owed without signals: (r,) in [0, 1] each.

        Parameters
        ----------
        since_days : (n,) float64, days
            Since the last attempt or slot of each page.
        last_us, observed_us : (n,) int64, microseconds
            That time, and the last crawl that got an answer.

        """
        row, limit = self.row, self.policy.threshold
        since = np.where(np.isnan(since_days[row]), 0.0, since_days[row])
        calm = self.pages.unsignalled_rate_per_day * since
        signals = self.clock_since(last_us, observed_us)
        with np.errstate(divide="ignore", invalid="ignore"):
            owed, without = (calm + signals) / limit, calm / limit
        # No threshold but a crawl rate: due at a signal. A threshold of 0: always due.
        owed = np.where(np.isinf(limit), np.where(signals > 0.0, 1.0, 0.0), owed)
        without = np.where(np.isinf(limit), 0.0, without)
        always = limit == 0.0
        owed[always] = without[always] = 1.0
        return np.minimum(owed, 1.0), np.minimum(without, 1.0)


@dataclass(frozen=True)
class Dues:
    """What signals make of a shard's night: n pages, h hosts.

    Attributes
    ----------
    since_days : (n,) float64, days
        Days since the last attempt that give each page its debt at its crawl rate.
    by_signal : (n,) bool
        Pages that are due because of signals.
    whole : (h,) bool
        Hosts whose signals claim more than they may tonight: they get slots as a whole.
    ahead_crawls : (h,) float64
        What these may have beyond their share.
    window_crawls : (h,) float64
        How far signals may put each host ahead of its share tomorrow.
    """

    since_days: FloatArray
    by_signal: BoolArray
    whole: BoolArray
    ahead_crawls: FloatArray
    window_crawls: FloatArray


def dues(
    clocks: SignalClocks,
    rate: FloatArray,
    since_days: FloatArray,
    last_us: IntArray,
    observed_us: IntArray,
    host_start: IntArray,
    apart: BoolArray,
    window_crawls: FloatArray,
    most_crawls: float,
    total_crawls: float = np.inf,
) -> Dues:
    """Who is due, signals counted, and which hosts ask for too much.

    Parameters
    ----------
    clocks : SignalClocks
    rate : (n,) float64, per day
    since_days : (n,) float64, days
        NaN for new pages.
    last_us, observed_us : (n,) int64
        As in `SignalClocks.debts`.
    host_start : (h + 1,) int64
    apart : (n,) bool
        Pages of hosts with slots of their own, which take none from others.
    window_crawls : (h,) float64
        What hosts may be ahead as they were before.
    most_crawls, total_crawls : float
        What a host, and all hosts together, may be ahead beyond that.
    """
    row = clocks.row
    owed, without = clocks.debts(since_days, last_us, observed_us)
    debt = np.clip(np.nan_to_num(rate * since_days, nan=0.0, posinf=1.0), 0.0, 1.0)
    calm = debt.copy()
    debt[row], calm[row] = owed, np.minimum(without, owed)
    known = np.where(apart | np.isnan(since_days), 0.0, rate)
    asked = bursts.ahead_of_share(known, debt, calm, host_start)
    may = window_crawls + bursts.allowance(window_crawls, asked, most_crawls, total_crawls)
    days = since_days.copy()
    changed = row[(rate[row] > 0.0) & ~np.isnan(since_days[row])]
    days[changed] = debt[changed] / rate[changed]
    by_signal = np.zeros(len(rate), np.bool_)
    by_signal[row] = (clocks.signals > 0) & (owed >= 1.0) & (without < 1.0)
    window = bursts.next_window(window_crawls, asked, total_crawls)
    return Dues(days, by_signal, asked > may, may, window)


def signal_columns(clocks: SignalClocks | None, change_rate_per_day: FloatArray) -> dict[str, pa.Array]:
    """What pages/ says of signals; null where a page has none that count."""
    n = len(change_rate_per_day)
    if clocks is None:
        kinds = {f.name: f.type for f in schemas.PAGES_OUT if f.name.startswith("signal")}
        return {name: pa.nulls(n, kind) for name, kind in kinds.items()}
    pages, none = clocks.pages, np.ones(n, np.bool_)
    none[clocks.row] = False
    change = change_rate_per_day[clocks.row]
    precision = -np.expm1(-pages.signal_weight)
    values = {
        "signal_rate_per_day": pages.signal_rate_per_day,
        "signal_precision": precision,
        "signal_recall": precision * pages.signal_rate_per_day / np.maximum(change, 1e-300),
        "signals_since_crawl": clocks.signals,
    }
    columns = {}
    for name, some in values.items():
        full = np.zeros(n, some.dtype)
        full[clocks.row] = some
        columns[name] = pa.array(full, mask=none)
    return columns
