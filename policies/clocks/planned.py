"""How pages whose clocks do not run evenly look to the search of crawl rates."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from policies.clocks.profile import NO_TIME, US_PER_DAY, Clocks
from policies.clocks.worth import INSTANTS, Ahead, crawl_values, gains
from policies.numerics.typing_ import BoolArray, FloatArray, IntArray

_STEP = 30.0
"""Changes a day of a page whose objective stands for: one crawl a night up to a price, none above it."""


@dataclass(frozen=True)
class Planned:
    """Pages as the search sees them.

    Attributes
    ----------
    change_rate_per_day, weight, cap_per_day : (n,) float64
    by_age : (n,) bool
        Pages whose clocks change with age: they are planned crawl by crawl.
    gain : (n,) float64
        How much better the best hour is than any.
    """

    change_rate_per_day: FloatArray
    weight: FloatArray
    cap_per_day: FloatArray
    by_age: BoolArray
    gain: FloatArray


def plan(
    ahead: Ahead,
    clocks: Clocks,
    asked: FloatArray,
    rate: FloatArray,
    information: FloatArray,
    since_days: FloatArray,
    last_us: IntArray,
    change_rate_per_day: FloatArray,
    weight: FloatArray,
    cap_per_day: FloatArray,
    signalled: IntArray,
) -> Planned:
    """Rates, weights and caps with which a search of rates does the best for clocks, too.

    There is no crawl rate to speak of for a page that changes with age: it asks for one crawl tonight up to
    the price that this is worth. A page that changes very often, may be crawled once, and weighs so much that
    it gives up at that price, asks for the same.

    A page whose crawls have good hours is said to change less often, `gain` times: up to one crawl a night is
    then worth what it is at the best hour, and more gain less and less.

    Parameters
    ----------
    ahead : Ahead
    clocks : Clocks of n pages
    asked : (g, 24) float64
        As in `policies.clocks.worth.gains`.
    rate, information : (n,) float64
        Changes per clock day, a gamma distribution.
    since_days : (n,) float64
        Clock days from the last crawl to the night.
    last_us : (n,) int64, UTC microseconds
        Last crawl or slot; `NO_TIME` of pages without one, which are planned by rates.
    change_rate_per_day : (n,) float64
        Changes per day tonight.
    weight, cap_per_day : (n,) float64
    signalled : (s,) int64
        Pages that signals speak for: they have no hours.
    """
    rows = np.flatnonzero((last_us != NO_TIME) & (rate > 0.0) & (weight > 0.0) & (cap_per_day > 0.0))
    rows = rows[clocks.settles(rows, last_us[rows])]
    clock = ahead.clock(clocks, rows)
    value = crawl_values(ahead, clock, rate[rows], information[rows], since_days[rows], weight[rows])
    days = int(ahead.at_us[INSTANTS] - ahead.at_us[0]) / US_PER_DAY
    weight, cap_per_day = weight.copy(), cap_per_day.copy()
    gain = gains(ahead, clocks, change_rate_per_day * days, asked)
    gain[signalled] = gain[rows] = 1.0
    change = change_rate_per_day / gain
    change[rows] = _STEP / days
    weight[rows] = value * change[rows]
    cap_per_day[rows] = np.minimum(cap_per_day[rows], 1.0 / days)
    by_age = np.zeros(len(rate), np.bool_)
    by_age[rows] = True
    return Planned(change, weight, cap_per_day, by_age, gain)
