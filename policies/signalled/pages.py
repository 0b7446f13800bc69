"""Pages with change-indicating signals: their rates, what kind they are, and the kinds with closed forms."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, Self

import numpy as np

from policies.numerics import special
from policies.numerics.columns import take
from policies.numerics.typing_ import ByteArray, FloatArray, IntArray
from policies.objectives.objectives import TINY_RATE
from policies.signalled import first_signal, threshold_clock

INERT, NO_SIGNALS, GENERAL, NOISELESS, FULL_RECALL, PERFECT = range(6)

_BLOCK: Final = 65536  # pages per pass: bounds what a pass needs, about 20 MB
_LARGEST_KAPPA: Final = 1e18  # stands for inf where no signal has come
_REACHED: Final = 1e-12  # clocks this close to a whole number of signals count as that number


@dataclass(frozen=True, slots=True)
class SignalPages:
    """Pages and the rates of what happens to them.

    Attributes
    ----------
    request_rate_per_day : (n,) float64, >= 0
    unsignalled_rate_per_day : (n,) float64, >= 0
        Changes without a signal; 0 if every change is signalled.
    signal_rate_per_day : (n,) float64, >= 0
        Signals, true and false ones.
    signal_weight : (n,) float64 in [0, inf]
        kappa = -log(1 - precision): 0 if signals mean nothing, inf if there are no false ones.
    """

    request_rate_per_day: FloatArray
    unsignalled_rate_per_day: FloatArray
    signal_rate_per_day: FloatArray
    signal_weight: FloatArray

    def __len__(self) -> int:
        return int(self.request_rate_per_day.shape[0])

    @classmethod
    def from_rates(
        cls,
        request_rate_per_day: FloatArray,
        change_rate_per_day: FloatArray,
        recall: FloatArray,
        false_signal_rate_per_day: FloatArray,
    ) -> Self:
        """Pages from change rate D, recall lam and rate nu of false signals, each (n,) float64.

        kappa = log1p(lam D / nu), which keeps full precision where the precision is close to 0 or 1.
        """
        signalled = recall * change_rate_per_day
        noise = np.asarray(false_signal_rate_per_day, dtype=np.float64)
        with np.errstate(divide="ignore", over="ignore", invalid="ignore"):
            kappa = np.where(signalled > 0.0, np.log1p(signalled / noise), 0.0)
            huge = np.isinf(kappa) & (noise > 0.0)  # the quotient overflowed
            kappa = np.where(huge, np.log(np.where(huge, signalled, 1.0)) - np.log(noise), kappa)
        return cls(
            np.asarray(request_rate_per_day, dtype=np.float64),
            (1.0 - recall) * change_rate_per_day,
            signalled + noise,
            kappa,
        )

    @property
    def change_rate_per_day(self) -> FloatArray:
        """All changes, a + p g: (n,) float64."""
        return self.unsignalled_rate_per_day + self.signal_rate_per_day * -np.expm1(-self.signal_weight)

    def take(self, rows: IntArray | slice) -> "SignalPages":
        """The pages of `rows`."""
        return take(self, rows)

    def check(self) -> None:
        """Raise ValueError on columns of unequal length, negative numbers, NaN, or infinite rates."""
        for name, limit in (
            ("request_rate_per_day", np.finfo(np.float64).max),
            ("unsignalled_rate_per_day", np.finfo(np.float64).max),
            ("signal_rate_per_day", np.finfo(np.float64).max),
            ("signal_weight", np.inf),
        ):
            column = getattr(self, name)
            if column.shape != (len(self),):
                raise ValueError(f"{name} has shape {column.shape}, expected ({len(self)},)")
            bad = np.flatnonzero(~((column >= 0.0) & (column <= limit)))
            if bad.size:
                raise ValueError(
                    f"{name} of page {bad[0]} is {float(column[bad[0]])!r}: give a number from 0 to {limit!r}"
                )


def kind_of(pages: SignalPages) -> ByteArray:
    """What applies to each page: (n,) uint8, one of `INERT`, `NO_SIGNALS`, ... `PERFECT`.

    Rates below `objectives.TINY_RATE` count as 0. A page that nobody requests or that never changes is inert.
    """
    a, g, kappa = pages.unsignalled_rate_per_day, pages.signal_rate_per_day, pages.signal_weight
    no_signals = (g < TINY_RATE) | ~(kappa > 0.0)
    is_sure = np.isinf(kappa)
    kind = np.where(
        a < TINY_RATE,
        np.where(is_sure, PERFECT, FULL_RECALL),
        np.where(no_signals, NO_SIGNALS, np.where(is_sure, NOISELESS, GENERAL)),
    )
    useless = (pages.request_rate_per_day < TINY_RATE) | ~(useful_changes(pages) >= TINY_RATE)
    return np.where(useless, INERT, kind).astype(np.uint8)


def useful_changes(pages: SignalPages) -> FloatArray:
    """Change rate per day with rates below TINY_RATE as 0."""
    a, g = pages.unsignalled_rate_per_day, pages.signal_rate_per_day
    signalled = np.where(g < TINY_RATE, 0.0, g) * -np.expm1(-pages.signal_weight)
    changes: FloatArray = np.where(a < TINY_RATE, 0.0, a) + signalled
    return changes


def value_of_first(pages: SignalPages) -> FloatArray:
    """(n,) multipliers up to which the first signal surely ends every interval: V at u = kappa."""
    a, g = pages.unsignalled_rate_per_day, pages.signal_rate_per_day
    with np.errstate(divide="ignore", over="ignore", invalid="ignore"):
        share = first_signal.value_at_first(g / a, pages.signal_weight)
        value: FloatArray = share * pages.request_rate_per_day / (a + g)
    return value


def kind_at(kind: ByteArray, multiplier: FloatArray, first: FloatArray) -> ByteArray:
    """The kinds at a multiplier: up to its `value_of_first` a page is crawled as if no signal were false."""
    return np.where((kind == GENERAL) & (multiplier <= first), NOISELESS, kind).astype(np.uint8)


def depth_of(pages: SignalPages, kind: ByteArray, multiplier: FloatArray) -> FloatArray:
    """``sqrt(-2 log(1 - Lambda D/mu))``, inf from Lambda = mu/D on: (n,) float64.

    The variable in which thresholds and rates are smooth from multipliers near 0 to those near mu/D: the
    threshold is proportional to it at first and to its square in the end.
    """
    with np.errstate(divide="ignore", over="ignore", invalid="ignore"):
        found = depth_from(multiplier * useful_changes(pages), pages.request_rate_per_day)
    return np.where((kind == INERT) | np.isnan(found), np.inf, found)


def depth_from(loss: FloatArray, request_rate_per_day: FloatArray) -> FloatArray:
    """`depth_of` from Lambda D and mu, which may divide by 0: of the shape of both."""
    share: FloatArray = loss / request_rate_per_day
    return np.sqrt(-2.0 * np.log1p(-np.minimum(share, 1.0)))


def closed(
    pages: SignalPages, kind: ByteArray, multiplier: FloatArray
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Depth, and threshold and rate of the kinds without a search; depth 0 for all kinds, inf: never."""
    depth = depth_of(pages, kind, multiplier)
    g = pages.signal_rate_per_day
    u = np.where(np.isinf(depth), np.inf, 0.0)
    rate = np.where(np.isinf(depth), 0.0, np.inf)
    y = 0.5 * depth * depth
    rows = np.flatnonzero(np.isfinite(depth) & (depth > 0.0) & (kind == NO_SIGNALS))
    if rows.size:
        u[rows] = special.p2_inverse_log(y[rows])
        rate[rows] = pages.unsignalled_rate_per_day[rows] / u[rows]
    rows = np.flatnonzero(kind == NOISELESS)
    if rows.size:
        u[rows], rate[rows] = _by_first_signal(pages.take(rows), multiplier[rows])
    rows = np.flatnonzero(np.isfinite(depth) & (kind == PERFECT))
    u[rows] = y[rows]
    rate[rows] = g[rows]
    rows = np.flatnonzero(np.isfinite(depth) & (kind == FULL_RECALL))
    if rows.size:
        u[rows], m = threshold_clock.full_recall_threshold(pages.signal_weight[rows], y[rows])
        rate[rows] = g[rows] / m
    return depth, u, rate


def _by_first_signal(pages: SignalPages, multiplier: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Threshold and rate of pages that are crawled at the first signal at the latest; 0 and inf for free."""
    y = first_depth(pages, multiplier)
    u, rate = y.copy(), np.where(y > 0.0, 0.0, np.inf)
    rows = np.flatnonzero((y > 0.0) & (y < np.inf))
    some = pages.take(rows)
    u[rows], w = first_signal.solve(some.signal_rate_per_day / some.unsignalled_rate_per_day, y[rows])
    rate[rows] = some.unsignalled_rate_per_day * w
    return u, rate


def first_depth(pages: SignalPages, multiplier: FloatArray) -> FloatArray:
    """y of `policies.signalled.first_signal` at `multiplier`, (n,) or (k, 1); inf: never crawl."""
    every = pages.unsignalled_rate_per_day + pages.signal_rate_per_day
    with np.errstate(divide="ignore", over="ignore", invalid="ignore"):
        share: FloatArray = multiplier * (every / pages.request_rate_per_day)
        np.minimum(share, 1.0, out=share)
        return -np.log1p(-share)


def scaled(pages: SignalPages) -> tuple[FloatArray, FloatArray]:
    """g/a, and kappa with a finite number for inf."""
    r = pages.signal_rate_per_day / pages.unsignalled_rate_per_day
    return r, np.minimum(pages.signal_weight, _LARGEST_KAPPA)


def signals_to_reach(signal_weight: FloatArray, clock: FloatArray) -> FloatArray:
    """Signals m = ceil(u / kappa) >= 1 after which a clock that only jumps has reached u > 0: (n,) float64.

    A u within 1e-12 of a whole number of jumps counts as that number.
    """
    with np.errstate(over="ignore"):
        return np.clip(np.ceil(clock / signal_weight * (1.0 - _REACHED)), 1.0, 1e300)


def prices(pages: SignalPages, multiplier: float | FloatArray) -> FloatArray:
    price = np.asarray(multiplier, dtype=np.float64)
    if not np.all(price >= 0.0):
        raise ValueError(f"a multiplier must be at least 0, got {float(np.min(price))!r}")
    return np.broadcast_to(price, (len(pages),))


def column(pages: SignalPages, values: FloatArray, name: str) -> FloatArray:
    column = np.asarray(values, dtype=np.float64)
    if column.shape != (len(pages),):
        raise ValueError(f"{name} has shape {column.shape}, expected ({len(pages)},)")
    return column


def blocks(n: int) -> Iterator[slice]:
    for start in range(0, n, _BLOCK):
        yield slice(start, start + _BLOCK)
