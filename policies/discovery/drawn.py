"""Histories of links drawn with the statistics of Schulam and Muslea 2023 (section 3.1).

Their data is private: 4,070 sources of 53 domains, each fetched in at least 90 % of 1,176 hours, and 1.1
million targets, so 77 sources and 18 new targets an hour in a domain. What they do not report is as on
sections of news sites: half of the targets are on more than one source, links stay for 1, 4 and 47 hours (10,
50 and 90 %), few sources bring most of what is new, and three times as much comes by day as by night.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from policies.discovery.presences import NEVER, US_PER_HOUR, Presences
from policies.numerics.typing_ import FloatArray, IntArray

SOURCES: Final = 77
HOURS: Final = 1176
NEW_PER_HOUR: Final = 18.0
POLLED: Final = 0.95
_START_HOURS: Final = 24 * 19_309  # 2022-11-13, with which theirs begin
_STAY_HOURS: Final = np.array([1.0, 3.0, 9.0, 27.0, 81.0, 243.0])
_STAY_SHARE: Final = np.array([0.25, 0.25, 0.2, 0.15, 0.1, 0.05])
_SHARED: Final = 0.5
"""Share of targets that further sources show, one and a half of them on the mean."""
_STOCK: Final = 30
"""Links of each source at the start."""


def draw(seed: int, number: int, sources: int = SOURCES, hours: int = HOURS) -> Presences:
    """A domain.

    Parameters
    ----------
    seed, number : int
        Of the random numbers, and of the domain.
    sources, hours : int
    """
    rng = np.random.Generator(np.random.Philox(key=np.array([seed, number], np.uint64)))
    key = np.sort(rng.integers(1, 2**63, sources).astype(np.uint64))
    brings, repeats = (_shares(rng, spread, sources) for spread in (1.5, 1.0))
    at = _arrivals(rng, NEW_PER_HOUR * sources / SOURCES, hours)
    n = len(at)
    source = rng.choice(sources, n, p=brings)
    further = np.where(rng.random(n) < _SHARED, rng.geometric(2.0 / 3.0, n), 0)
    again = np.repeat(np.arange(n), further)
    stock = sources * _STOCK
    target = np.concatenate([np.arange(n), again, n + np.arange(stock)])
    of = np.concatenate(
        [source, rng.choice(sources, len(again), p=repeats), np.repeat(np.arange(sources), _STOCK)]
    )
    begin = np.concatenate([at, at[again] + rng.exponential(2.0, len(again)), np.full(stock, -1.0)])
    stay = rng.exponential(rng.choice(_STAY_HOURS, len(target), p=_STAY_SHARE))
    stay[-stock:] = rng.exponential(_STAY_HOURS[-1], stock)
    start = _START_HOURS * US_PER_HOUR
    appeared, gone = (start + np.rint(x * US_PER_HOUR).astype(np.int64) for x in (begin, begin + stay))
    order = np.lexsort((target, appeared, of))
    polled = np.flatnonzero(rng.random((sources, hours)) < POLLED)
    minute = rng.random(len(polled))
    return Presences(
        key,
        np.zeros(sources, np.int64),
        np.zeros(n + stock, np.int64),
        of[order],
        target[order],
        appeared[order],
        np.where(begin + stay < hours, gone, NEVER)[order],
        polled // hours,
        start + ((polled % hours + minute) * US_PER_HOUR).astype(np.int64),
        start,
        US_PER_HOUR,
        hours,
    )


def _shares(rng: np.random.Generator, spread: float, n: int) -> FloatArray:
    share = np.exp(spread * rng.standard_normal(n))
    return np.asarray(share / share.sum(), np.float64)


def _arrivals(rng: np.random.Generator, per_hour: float, hours: int) -> FloatArray:
    """Hours after the start at which new targets come."""
    speed = 1.0 + 0.5 * np.sin(2.0 * np.pi * (np.arange(hours) - 8.0) / 24.0)
    count: IntArray = rng.poisson(per_hour * speed)
    hour = np.repeat(np.arange(hours), count)
    return np.asarray(hour + rng.random(len(hour)), np.float64)
