"""The discrete policies of Busa-Fekete et al. by name: what each believes of a page, and its crawl value.

In every slot each of them crawls the page of the highest crawl value; they differ in the parameters that they
put into it ("A Scalable Crawling Algorithm Utilizing Noisy Change-Indicating Signals", sections 5 and 6,
appendices A.1 and C):

    GREEDY             no signals at all
    GREEDY-CIS         a signal is a change: no false signals, whatever there are
    GREEDY-NCIS        recall and false signals as given
    G-NCIS-APPROX-j    the same, with the first j terms of the crawl value only
    GREEDY-CIS+        GREEDY-CIS on pages with precision above 0.7 and recall above 0.6, GREEDY on others
    GREEDY-NCIS-D      GREEDY-NCIS, but signals right after a crawl are taken for late and do not count

Under GREEDY-CIS the signals are expected at rate lam D, since false ones are not believed in; a page with
recall 0 has no signals for it, and false ones that come are ignored.

Each of these values depends on the page's clock u alone (see `policies.signalled.value`) and is a convex
falling function of e^-u with slope -mu psi, where psi(u) is the mean time between crawls at the threshold u.
"""

from dataclasses import dataclass
from typing import Final, Protocol

import numpy as np
from scipy.special import gammainc

from policies.numerics import special
from policies.numerics.typing_ import BoolArray, FloatArray
from policies.objectives.objectives import TINY_RATE
from policies.signalled import terms as signal_terms
from policies.signalled import threshold_clock
from policies.signalled import value as signal_value
from policies.signalled.pages import (
    FULL_RECALL,
    GENERAL,
    INERT,
    NO_SIGNALS,
    NOISELESS,
    PERFECT,
    SignalPages,
    kind_of,
    scaled,
)

HIGH_PRECISION: Final = 0.7
HIGH_RECALL: Final = 0.6

_GREEDY, _CIS, _NCIS, _CIS_PLUS = "none", "sure", "noisy", "sure where good"
_NAMES: Final = {
    "GREEDY": (_GREEDY, False),
    "GREEDY-CIS": (_CIS, False),
    "GREEDY-NCIS": (_NCIS, False),
    "GREEDY-CIS+": (_CIS_PLUS, False),
    "GREEDY-NCIS-D": (_NCIS, True),
}
_APPROXIMATE: Final = "G-NCIS-APPROX-"
_STEPS: Final = 3
_SAFE: Final = 1e-4
_LARGEST_Y: Final = 700.0  # e^-700 is still a normal number


class Parameters(Protocol):
    """Pages as a policy is told about them, (m,) float64 each; rates per time unit."""

    @property
    def request_rate(self) -> FloatArray: ...
    @property
    def change_rate(self) -> FloatArray: ...
    @property
    def recall(self) -> FloatArray: ...
    @property
    def false_signal_rate(self) -> FloatArray: ...


@dataclass(frozen=True, slots=True)
class CrawlValue:
    """A policy that crawls the page of the highest crawl value.

    Attributes
    ----------
    name : str
        As in the paper.
    signals : str
        What it makes of signals: "none", "sure", "noisy" or "sure where good".
    terms : int or None
        Terms of the sum over signals; None: all.
    discards : bool
        Whether signals in (last crawl, last crawl + delay] do not count.
    """

    name: str
    signals: str
    terms: int | None = None
    discards: bool = False

    @property
    def uses_signals(self) -> bool:
        """Whether any signal can matter."""
        return self.signals != _GREEDY

    def pages(self, given: Parameters) -> SignalPages:
        """The pages as this policy sees them; "per day" of `SignalPages` stands for per time unit."""
        recall, noise = given.recall, given.false_signal_rate
        if self.signals == _GREEDY:
            recall, noise = np.zeros_like(recall), np.zeros_like(noise)
        elif self.signals == _CIS:
            noise = np.zeros_like(noise)
        elif self.signals == _CIS_PLUS:
            good = is_high_quality(given)
            recall, noise = np.where(good, recall, 0.0), np.zeros_like(noise)
        return SignalPages.from_rates(given.request_rate, given.change_rate, recall, noise)

    def value(self, pages: SignalPages, elapsed: FloatArray, signals: FloatArray) -> FloatArray:
        """Crawl value of each page, (n,) float64, as `policies.signalled.value.crawl_value`."""
        return signal_value.crawl_value(pages, elapsed, signals, self.terms)


def is_high_quality(given: Parameters) -> BoolArray:
    """Pages whose signals GREEDY-CIS+ trusts: precision > 0.7 and recall > 0.6, (m,) bool."""
    signalled = given.recall * given.change_rate
    all_signals = signalled + given.false_signal_rate
    precision = signalled / np.where(all_signals > 0.0, all_signals, 1.0)
    return (precision > HIGH_PRECISION) & (given.recall > HIGH_RECALL)


def crawl_value_policy(name: str) -> CrawlValue:
    """The policy of that name.

    Raises
    ------
    ValueError
        No such policy.
    """
    if name in _NAMES:
        signals, discards = _NAMES[name]
        return CrawlValue(name, signals, None, discards)
    terms = name.removeprefix(_APPROXIMATE)
    if terms != name and terms.isascii() and terms.isdigit() and len(terms) < 4 and terms[0] != "0":
        return CrawlValue(name, _NCIS, int(terms))
    raise ValueError(f"no policy {name!r}; there are {', '.join(_NAMES)} and G-NCIS-APPROX-1, -2, ...")


def highest_value(pages: SignalPages, terms: int | None) -> FloatArray:
    """What the crawl value tends to with time and with signals, (n,) float64.

    mu/D, or ``mu/D (1 - (nu/(D+nu))^terms)`` with a few terms only.
    """
    never = np.full(len(pages), np.inf)
    return signal_value.crawl_value(pages, never, np.full(len(pages), 1e15), terms)


def value_and_interval(
    pages: SignalPages, elapsed: FloatArray, signals: FloatArray, terms: int | None
) -> tuple[FloatArray, FloatArray]:
    """Crawl value, and psi at the same reading of the clock.

    Parameters
    ----------
    pages : SignalPages
    elapsed : (n,) float64, >= 0 and finite
        Time since the last crawl.
    signals : (n,) float64, >= 0
        Signals since then.
    terms : int or None
        As in `CrawlValue`.

    Returns
    -------
    value : (n,) float64
        As `CrawlValue.value`, up to rounding.
    interval : (n,) float64
        psi, so that the value's slope in e^-u is ``-mu psi``; 0 where the clock stands still until a signal.
    """
    kind = kind_of(pages)
    mu, a = pages.request_rate_per_day, pages.unsignalled_rate_per_day
    value, interval = np.zeros(len(pages)), np.zeros(len(pages))
    rows = np.flatnonzero(kind == NO_SIGNALS)
    value[rows] = mu[rows] / a[rows] * special.p2(a[rows] * elapsed[rows])
    interval[rows] = elapsed[rows]
    is_running = (kind == GENERAL) | ((kind == NOISELESS) & (signals == 0.0))
    rest = np.flatnonzero((kind != NO_SIGNALS) & (kind != INERT) & ~is_running)
    if rest.size:
        value[rest] = signal_value.crawl_value(pages.take(rest), elapsed[rest], signals[rest], terms)
    rows = np.flatnonzero((kind == NOISELESS) & is_running)
    if rows.size:
        value[rows], interval[rows] = _before_signal(pages.take(rows), elapsed[rows])
    rows = np.flatnonzero(kind == GENERAL)
    if rows.size:
        part = pages.take(rows)
        value[rows], interval[rows] = _general(part, elapsed[rows], signals[rows], terms)
    return value, interval


def _before_signal(pages: SignalPages, elapsed: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Pages without false signals, none of which has come: the first term only."""
    a, g = pages.unsignalled_rate_per_day, pages.signal_rate_per_day
    value = signal_terms.truncated(g / a, np.full(a.size, 1e18), a * elapsed, np.zeros(a.size), 1)
    return pages.request_rate_per_day / a * value, -np.expm1(-g * elapsed) / g


def _general(
    pages: SignalPages, elapsed: FloatArray, signals: FloatArray, terms: int | None
) -> tuple[FloatArray, FloatArray]:
    mu, a = pages.request_rate_per_day, pages.unsignalled_rate_per_day
    r, kappa = scaled(pages)
    run = a * elapsed
    if terms is not None:
        value, h = _first_terms(r, kappa, np.minimum(run, 1e4), np.minimum(signals, 1e15), terms)
        return mu / a * value, h / a
    near = run + kappa * signals < threshold_clock.NEVER_FRESH
    found = signal_terms.evaluate(r, kappa, np.where(near, run, 0.0), np.where(near, signals, 0.0))
    best = mu / pages.change_rate_per_day
    return np.where(near, mu / a * found.value, best), np.where(near, found.h / a, np.inf)


def _first_terms(
    r: FloatArray, kappa: FloatArray, run: FloatArray, signals: FloatArray, terms: int
) -> tuple[FloatArray, FloatArray]:
    """The first terms of H and of h, see `policies.signalled.terms`, fast where that is safe."""
    share = r / (1.0 + r)
    total = np.zeros(r.size)
    h = np.zeros(r.size)
    for i in range(terms):
        clock = np.maximum(run + kappa * (signals - i), 0.0)
        if i and not clock.any():
            break
        y = np.minimum(r * clock, _LARGEST_Y)
        x = np.minimum(r * clock + clock, _LARGEST_Y)
        if i == 0:
            below = -np.expm1(-y)
            total -= np.expm1(-clock) - np.expm1(-x) / (1.0 + r)
        else:
            sum_x, sum_y, power_x, power_y = np.ones((4, r.size))
            for k in range(1, i + 1):
                power_x *= x / k
                power_y *= y / k
                sum_x += power_x
                sum_y += power_y
            below = 1.0 - np.exp(-y) * sum_y
            lifted = share ** (i + 1) * (1.0 - np.exp(-x) * sum_x)
            total += np.exp(-kappa * i) * (lifted - np.exp(-clock) * below)
        h += below
    unsafe = np.flatnonzero(total < _SAFE)  # the difference of numbers up to 1
    if unsafe.size:
        part = (r[unsafe], kappa[unsafe], run[unsafe], signals[unsafe])
        total[unsafe] = r[unsafe] * signal_terms.truncated(*part, terms)
        h[unsafe] = 0.0
        for i in range(terms):
            clock = np.maximum(part[2] + part[1] * (part[3] - i), 0.0)
            h[unsafe] += gammainc(i + 1.0, part[0] * clock)
    return total / r, h / r


def clock_at_least(pages: SignalPages, value: FloatArray, terms: int | None) -> FloatArray:
    """A clock that every state of at least the given crawl value has reached.

    Parameters
    ----------
    pages : SignalPages
    value : (n,) float64, >= 0
    terms : int or None
        As in `CrawlValue`.

    Returns
    -------
    (n,) float64
        Threshold u*, or somewhat less with a number of terms; inf where the crawl value never gets there.
    """
    u = signal_value.threshold(pages, value)
    if terms is None:
        return u
    kind = kind_of(pages)
    u[value >= highest_value(pages, terms)] = np.inf
    rows = np.flatnonzero((kind == GENERAL) & np.isfinite(u))
    if rows.size == 0:
        return u
    # The first terms are less than all: the threshold of all is a lower end.
    u[rows] = _clock_of_terms(pages.take(rows), value[rows], u[rows], terms)
    return u


def _clock_of_terms(pages: SignalPages, price: FloatArray, early: FloatArray, terms: int) -> FloatArray:
    """A clock shortly before the value of the first terms is `price`, from one that is before: (n,) float64.

    In e^-u the value is convex: tangents give clocks that are late, chords those that are early.
    """
    mu, a = pages.request_rate_per_day, pages.unsignalled_rate_per_day
    none = np.zeros(len(pages))
    least = np.exp(-threshold_clock.NEVER_FRESH)

    def at(fresh: FloatArray) -> tuple[FloatArray, FloatArray]:
        value, interval = _general(pages, -np.log(fresh) / a, none, terms)
        return value - price, mu * interval

    def next_to(fresh: FloatArray, over: FloatArray, slope: FloatArray) -> FloatArray:
        return fresh + np.where(slope > 0.0, over / np.where(slope > 0.0, slope, 1.0), 0.0)

    high = np.exp(-np.maximum(early, 1e-12))
    over_high, slope = at(high)
    low = np.clip(next_to(high, over_high, slope), least, high)
    for _ in range(_STEPS):
        over_low, slope = at(low)
        gap = over_low - over_high
        is_bracket = (over_low > 0.0) & (over_high <= 0.0)
        chord = low + (high - low) * over_low / np.where(is_bracket, gap, 1.0)
        high = np.where(is_bracket, np.clip(chord, low, high), high)
        low = np.maximum(low, np.where(is_bracket, next_to(low, over_low, slope), low))
        over_high, slope = at(high)
        low = np.minimum(np.maximum(low, next_to(high, over_high, slope)), high)
    return np.maximum(-np.log(high), early)


def clock_speed(pages: SignalPages) -> FloatArray:
    """Unsignalled change rate, rates that count as 0 being 0: how fast the clock runs, (n,) float64."""
    a = pages.unsignalled_rate_per_day
    return np.where(a < TINY_RATE, 0.0, a)


def clock_jump(pages: SignalPages, most: float) -> FloatArray:
    """How far the clock jumps at a signal, (n,) float64: kappa, or `most`; 0 if they are ignored."""
    kind = kind_of(pages)
    heard = (kind == GENERAL) | (kind == NOISELESS) | (kind == FULL_RECALL) | (kind == PERFECT)
    return np.where(heard, np.minimum(pages.signal_weight, most), 0.0)
