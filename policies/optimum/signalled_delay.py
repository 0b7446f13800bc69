"""What is lost because a signal is heard when the next plan is made, not at once."""

import numpy as np

from policies.numerics.special import p2_inverse
from policies.numerics.typing_ import BoolArray, FloatArray
from policies.optimum.page_block import PageBlock
from policies.signalled import pages as signal_pages
from policies.signalled.expansion import Trail
from policies.signalled.pages import GENERAL, SignalPages


def lost_waiting(
    pages: SignalPages, threshold: FloatArray, rate_per_day: FloatArray, wait_days: float
) -> FloatArray:
    """Share of time in which copies are stale because a signal waits for the next plan, (n,).

    The threshold policy crawls at the instant at which the clock jumps over the threshold. Here that is
    `wait_days` later: as often as crawls are caused by signals, and as far as the copy is stale by then.

    Parameters
    ----------
    pages : SignalPages, n rows
    threshold : (n,) float64
        Clock at which a crawl is due.
    rate_per_day : (n,) float64
        Crawls that this comes to.
    wait_days : float
    """
    jumps = pages.signal_rate_per_day * pages.signal_weight
    with np.errstate(invalid="ignore", divide="ignore"):
        part = np.where(np.isinf(jumps), 1.0, jumps / (pages.unsignalled_rate_per_day + jumps))
    caused = np.minimum(rate_per_day * np.nan_to_num(part), pages.signal_rate_per_day)
    stale = -np.expm1(-(threshold + 0.5 * pages.signal_weight))
    lost: FloatArray = caused * stale * wait_days
    return lost


def periodic_rate(pages: SignalPages, multiplier: float) -> FloatArray:
    """Crawls per day that `multiplier` buys if nobody looks at the signals, (n,); 0 where none."""
    change = pages.change_rate_per_day
    clock = _periodic_clock(pages, multiplier)
    return np.where(np.isinf(clock), 0.0, change / np.where(clock > 0.0, clock, 1.0))


def worth_waiting_for(pages: SignalPages, multiplier: float, wait_days: float) -> BoolArray:
    """Whether crawls that follow signals, `wait_days` late, gain more than evenly spaced ones, (n,).

    A page that is crawled every few hours anyway hears of changes from its crawls; what its signals tell is
    known only when the next plan is made.

    Parameters
    ----------
    pages : SignalPages, n rows
    multiplier : float, positive
        Price of a crawl, in requests.
    wait_days : float

    Notes
    -----
    The net gain of the best policy at a price is ``mu exp(-u)``, u its clock at a crawl: that of signals,
    less what is lost, against that of equal intervals. Pages without a rate of both kinds of changes, which
    estimates do not have, are worth it.
    """
    worth = np.ones(len(pages), np.bool_)
    rows = np.flatnonzero(signal_pages.kind_of(pages) == GENERAL)
    if not rows.size:
        return worth
    some = pages.take(rows)
    threshold, rate = Trail.of(some).at(np.arange(rows.size), np.full(rows.size, multiplier))
    lost = lost_waiting(some, threshold, rate, wait_days)
    worth[rows] = np.exp(-threshold) - lost >= np.exp(-_periodic_clock(some, multiplier))
    return worth


def followed(block: PageBlock, multiplier: float, wait_days: float) -> BoolArray:
    """Whether each page with signals should be crawled by them, (k,) for the k rows of `block.signals`.

    Parameters
    ----------
    block : PageBlock
        With signals.
    multiplier : float
        Price of a crawl, in requests, where nobody looks at signals.
    wait_days : float
        From a signal to the next plan, on average.

    Notes
    -----
    The price is that of a crawl where no limit binds. Pages at their cap, and those of hosts that all pages
    together would take to their limit, are crawled less: there signals are always worth it.
    """
    signals = block.signals
    if signals is None:
        return np.zeros(0, np.bool_)
    if not multiplier > 0.0:  # crawls cost nothing
        return np.ones(len(signals.row), np.bool_)
    weight, none = block.request_rate_per_day, np.zeros(len(block))
    wanted = periodic_rate(SignalPages(weight, block.change_rate_per_day, none, none), multiplier)
    bound = np.zeros(len(block), np.bool_)
    if block.cap_per_day is not None:
        bound |= wanted >= block.cap_per_day
        wanted = np.minimum(wanted, block.cap_per_day)
    if block.host_limit_per_day is not None and block.host_start is not None:
        pages = np.diff(block.host_start)
        host = np.repeat(np.arange(len(pages)), pages)
        bound |= (np.bincount(host, wanted, len(pages)) > block.host_limit_per_day)[host]
    rates = (signals.unsignalled_rate_per_day, signals.signal_rate_per_day, signals.signal_weight)
    some = SignalPages(weight[signals.row], *rates)
    useful: BoolArray = worth_waiting_for(some, multiplier, wait_days) | bound[signals.row]
    return useful


def _periodic_clock(pages: SignalPages, multiplier: float) -> FloatArray:
    """Changes expected between two evenly spaced crawls, (n,): P2(x) = multiplier D / mu; inf for none."""
    with np.errstate(divide="ignore", invalid="ignore"):
        share = multiplier * pages.change_rate_per_day / pages.request_rate_per_day
    clock = np.full(len(pages), np.inf)
    rows = np.flatnonzero(share < 1.0)
    clock[rows] = p2_inverse(share[rows])
    return clock
