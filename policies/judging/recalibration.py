"""Forecasts that learn from what became of forecasts.

A page that changed every day and then stopped keeps its rate for long: evidence is forgotten by changes, and
there are none. So crawls of pages that have been calm for many times their usual interval find far fewer
changes than their rates predict, and just after a change rates are off, too. What is wrong with forecasts is
learned here from forecasts: crawls fall into cells by what the night that planned them knew,

* how long the page had been calm at its last observation, in changes that its rate promised since the last
  one that was found, and
* how many changes its rate promised for the interval, since pages that change by a timetable, or only at
  first, are no Poisson processes;

and by whether its signals count, and then whether any came in the interval. The clock of a cell's crawls,
``u`` changes expected over an interval, is multiplied by the factor ``r`` that would have predicted as many
changes as crawls found:

    found + s = predicted(r) + s r / r'

over the cell's crawls so far, older ones counting less. ``r'`` is the factor of more cells, and weighs s =
`STRENGTH` changes: 1 for all crawls of the kind, theirs for those with the same calm, theirs for the cell.
Crawls of no cell have the factor 1.

Sites differ: pages of one stop for good, those of another pause, and all of a third change more often this
month. So a host has a factor of its own besides, and is left without factors where they lose, see
`policies.judging.host_factors`.

Only what is said of a crawl's chances is corrected so; rates, and decisions, are not: a correction of rates
by this rule does not make better schedules. Sums are over forecasts without factors, so that factors do not
feed on themselves. Those of one night are whole numbers, which merge in any order.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from policies.clocks import profile
from policies.estimation.forecast import PROBABILITY_UNIT, Clocks, Forecast
from policies.history.interval_sums import Intervals
from policies.history.page_state import NO_TIME, US_PER_DAY, PageState
from policies.judging.host_factors import (
    GAIN_UNIT,
    HALF_LIFE_DAYS,
    MOST_NATS,
    Corrections,
    HostTrack,
    likely_events,
    pays,
)
from policies.numerics.special import CHUNK
from policies.numerics.typing_ import BoolArray, FloatArray, Int16Array, Int32Array, IntArray

CALM_EDGES = (0.03, 0.1, 0.3, 0.6, 1.0, 1.6, 2.5, 4.0, 6.5)
"""Of the time since the last change found, times the rate. Pages never seen to change come after them."""

EXPECTED_EDGES = (0.02, 0.05, 0.1, 0.2, 0.4, 0.7, 1.0, 1.5, 2.0, 2.5, 3.0, 4.0, 5.5)
"""Of the changes that a page's rate promised for the interval."""

PLAIN, QUIET, HEARD = range(3)
"""Kinds of crawls: of pages whose signals do not count; of others, without signals and with some."""

FACTORS = tuple(4.0**k for k in range(-4, 3))
"""What would have been predicted at so many times the clock is summed; `r` stays among them."""

_ONE = FACTORS.index(1.0)

STRENGTH = 20.0

CALM, _EXPECTED = len(CALM_EDGES) + 2, len(EXPECTED_EDGES) + 1
KINDS, CELLS = 3, CALM * _EXPECTED
"""Cells of crawls; each for every kind."""

NO_CELL = -1
_LEAST_CRAWLS = 1e-3  # what has faded to less is left out
_BISECTIONS = 50


def calm_days(state: PageState, clocks: profile.Clocks) -> FloatArray:
    """How long pages had been calm at their last observation, as `calm_cells` takes it: (n,) float64."""
    last = state.last_change_at_us
    known = np.flatnonzero(last != NO_TIME)
    found = np.where(state.n_changes > 0, -1.0, np.nan)  # of a state that did not keep it: not known
    found[known] = clocks.days(known, last[known], state.baseline_at_us[known])
    return found


def calm_cells(calm_days: FloatArray, change_rate_per_day: FloatArray) -> Int16Array:
    """Row of cells of each page.

    Parameters
    ----------
    calm_days : (n,) float64, days of the page's clock
        From the last change found to the last observation; NaN if none was ever found, negative where it is
        not known.
    change_rate_per_day : (n,) float64
        Per day of the clock.

    Returns
    -------
    (n,) int16
        0 .. `CALM` - 1; `NO_CELL` where the calm is not known.
    """
    calm = np.searchsorted(CALM_EDGES, calm_days * change_rate_per_day, side="right")
    calm[np.isnan(calm_days)] = CALM - 1
    return np.where(calm_days < 0.0, NO_CELL, calm).astype(np.int16)


def cells(calm: Int16Array, expected: FloatArray) -> IntArray:
    """Cell of each crawl that has one, (k,) int64 below `CELLS`: of its row, (k,) int16, and of the changes
    that were expected of the interval, (k,) float64.
    """
    found: IntArray = calm.astype(np.int64) * _EXPECTED
    found += np.searchsorted(EXPECTED_EDGES, expected, side="right")
    return found


@dataclass(frozen=True, slots=True, eq=False)
class CellSums:
    """Sums over judged crawls of a night. They merge exactly and in any order.

    Attributes
    ----------
    crawls, found : (KINDS * CELLS,) int64
        Crawls, and those that found a change.
    predicted : (KINDS * CELLS, len(FACTORS)) int64
        Sums of the probabilities at each factor, units of `policies.estimation.forecast.PROBABILITY_UNIT`.
    """

    crawls: IntArray
    found: IntArray
    predicted: IntArray

    @classmethod
    def empty(cls) -> CellSums:
        """No crawl."""
        none = np.zeros(KINDS * CELLS, np.int64)
        return cls(none, none, np.zeros((KINDS * CELLS, len(FACTORS)), np.int64))

    def merge(self, other: CellSums) -> CellSums:
        """The crawls of both."""
        return CellSums(
            self.crawls + other.crawls, self.found + other.found, self.predicted + other.predicted
        )

    def account(self) -> dict[str, float]:
        """What forecasts by rates alone were worth, for the manifest."""
        return {
            "crawls": int(self.crawls.sum()),
            "changes_found": int(self.found.sum()),
            "changes_predicted": sum(self.predicted[:, _ONE].tolist()) * PROBABILITY_UNIT,
        }

    def __eq__(self, other: object) -> bool:
        return isinstance(other, CellSums) and all(
            np.array_equal(getattr(self, n), getattr(other, n)) for n in ("crawls", "found", "predicted")
        )

    __hash__ = None  # type: ignore[assignment]


def log_score(unchanged: FloatArray, changed: BoolArray) -> FloatArray:
    """Log of the probability of what crawls found, (k,), of that of no change; within `MOST_NATS` of 0."""
    score, found = unchanged.copy(), np.flatnonzero(changed)
    with np.errstate(divide="ignore"):
        score[found] = np.log(-np.expm1(unchanged[found]))
    return np.clip(score, -MOST_NATS, 0.0, out=score)


def log_score_gain(
    with_it: FloatArray, without: FloatArray, changed: BoolArray, factor: FloatArray
) -> FloatArray:
    """Log of the probability of what a crawl found if its clock ran `factor` times as fast, minus as it ran.

    Parameters
    ----------
    with_it, without : (k,) float64
        Log of the probability of no change, see `policies.estimation.forecast.Forecast`.
    changed : (k,) bool
    factor : (k,) float64, positive

    Returns
    -------
    (k,) float64, nats, within `MOST_NATS` of 0
    """
    with_it, without, changed, factor = np.broadcast_arrays(with_it, without, changed, factor)
    gain, found = with_it - without, np.flatnonzero(changed)
    with np.errstate(divide="ignore", invalid="ignore"):
        of_change = np.log(np.expm1(with_it[found]) / np.expm1(without[found]))
    # A rate of nearly 0: the probability of a change is the product, which has been rounded away.
    gain[found] = np.where(np.isfinite(of_change), of_change, np.log(factor[found]))
    return np.clip(gain, -MOST_NATS, MOST_NATS, out=gain)


class CellWatch:
    """Adds up a night's crawls by cell, a run of pages at a time.

    Parameters
    ----------
    forecast : Forecast of n pages and m rows
        Without factors.
    calm : (m,) int16
        From `calm_cells`.
    factors : (KINDS * CELLS,) float64, optional
        From `Track.factors`: what they gain is counted, too, and what hosts' own do.
    host : (m,) int, optional
        Host of each row; needed with `factors`.
    hosts : HostTrack of the hosts, optional
        Up to the night before.
    """

    def __init__(
        self,
        forecast: Forecast,
        calm: Int16Array,
        factors: FloatArray | None = None,
        host: IntArray | Int32Array | None = None,
        hosts: HostTrack | None = None,
    ) -> None:
        self._forecast, self._calm, self._factors = forecast, calm, factors
        self._host = np.zeros(len(calm), np.int64) if host is None else host
        self._before = HostTrack.empty(0) if hosts is None else hosts
        self._by_cells, self._by_own = pays(self._before.gain), pays(self._before.own_gain)
        self._own = self._before.factors()
        self._units = np.zeros((4, len(self._own)), np.int64)
        self._losses: IntArray = np.zeros(3, np.int64)
        self._crawled = np.zeros(len(self._own), np.bool_)
        self.sums = CellSums.empty()

    @property
    def hosts(self) -> HostTrack:
        """How forecasts have done up to tonight."""
        return self._before.add(self._units)

    def corrections(self, split: Mapping[int, str]) -> Corrections:
        """What factors did to tonight's crawls; `split` names the hosts of which other shards have pages."""
        used = np.stack([self._crawled, self._crawled & self._by_cells, self._crawled & self._by_own])
        apart = {}
        for code, name in split.items():
            found, by_cells, by_own = used[:, code].tolist()
            apart[name] = (found, by_cells, by_own)
        used[:, list(split)] = False
        crawls, by_rates, corrected = self._losses.tolist()
        whole, of_cells, of_own = used.sum(axis=1).tolist()
        return Corrections(crawls, by_rates, corrected, (whole, of_cells, of_own), apart)

    def factor(self, first_page: int, intervals: Intervals, clocks: Clocks | None) -> FloatArray | None:
        """By how much the clock of each interval is corrected, (k,); None if of none."""
        if self._factors is None or not (self._by_cells | self._by_own).any():
            return None
        found = np.ones(len(intervals.page))
        rows, at = self._rows(first_page, intervals, clocks)
        host = self._host[at]
        of_cells = self._factors[self._cells(at, intervals, clocks, rows)]
        found[rows] = np.where(self._by_cells[host], of_cells, 1.0)
        found[rows] *= np.where(self._by_own[host], self._own[host], 1.0)
        return found

    def __call__(self, first_page: int, intervals: Intervals, clocks: Clocks | None = None) -> None:
        """Count intervals of the pages from `first_page` on; their codes count from there.

        With `clocks`, without factors, by what these expected of each interval.
        """
        rows, at = self._rows(first_page, intervals, clocks)
        for start in range(0, len(rows), CHUNK):
            chunk = slice(start, start + CHUNK)
            self._add(at[chunk], intervals, clocks, rows[chunk])

    def _rows(
        self, first_page: int, intervals: Intervals, clocks: Clocks | None
    ) -> tuple[IntArray, Int32Array]:
        """Intervals that have a cell, and their rows of the forecast."""
        row = self._forecast.row[intervals.page + first_page]
        use = row >= 0 if clocks is None else (row >= 0) & clocks.known
        use[use] = self._calm[row[use]] != NO_CELL
        rows = np.flatnonzero(use)
        return rows, row[rows]

    def _cells(self, at: Int32Array, intervals: Intervals, clocks: Clocks | None, rows: IntArray) -> IntArray:
        days = intervals.length_us[rows] / US_PER_DAY
        if clocks is None:
            return cells(self._calm[at], self._forecast.change_rate_per_day[at] * days)
        kind = np.where(clocks.by_time[rows] < 1.0, HEARD, QUIET)
        return CELLS * kind + cells(self._calm[at], clocks.rate_per_day[rows] * days)

    def _add(self, at: Int32Array, intervals: Intervals, clocks: Clocks | None, rows: IntArray) -> None:
        cell = self._cells(at, intervals, clocks, rows)
        forecast, of_row = self._forecast, at
        if clocks is not None:
            forecast, of_row = clocks.take(rows).forecast, np.arange(len(rows), dtype=np.int32)
        told, days = forecast.told(of_row), intervals.length_us[rows] / US_PER_DAY
        size = KINDS * CELLS
        predicted = np.empty((size, len(FACTORS)), np.int64)
        logs = [told.log_unchanged(factor * days) for factor in FACTORS]
        for j, unchanged in enumerate(logs):
            # Sums of a chunk stay below 2**53: exact, in floating point too.
            units = np.rint(-np.expm1(unchanged) * (1.0 / PROBABILITY_UNIT))
            predicted[:, j] = np.bincount(cell, units, size)
        changed = intervals.changed[rows]
        found = np.bincount(cell, changed, size).astype(np.int64)
        self.sums = self.sums.merge(CellSums(np.bincount(cell, minlength=size), found, predicted))
        if self._factors is not None and len(rows):
            without, host, of_cells = logs[_ONE], self._host[at], self._factors[cell]
            with_cells = told.log_unchanged(of_cells * days)
            use, own = self._by_cells[host], self._own[host]
            by_cells = np.where(use, with_cells, without)
            with_own = told.log_unchanged(np.where(use, of_cells, 1.0) * own * days)
            hazard = np.minimum(-by_cells, MOST_NATS)
            gain = log_score_gain(with_cells, without, changed, of_cells)
            own_gain = log_score_gain(with_own, by_cells, changed, own)
            low = int(host.min())  # crawls are by page, so a run has few hosts
            for units, column in zip(
                self._units, (gain, likely_events(hazard, changed), hazard, own_gain), strict=True
            ):
                sums = np.bincount(host - low, np.rint(column * (1.0 / GAIN_UNIT))).astype(np.int64)
                units[low : low + len(sums)] += sums
            self._crawled[host] = True
            loss = -log_score(without, changed)
            corrected = loss - np.where(use, gain, 0.0) - np.where(self._by_own[host], own_gain, 0.0)
            self._losses += [
                len(rows),
                *(int(np.rint(c * (1.0 / GAIN_UNIT)).sum()) for c in (loss, corrected)),
            ]


@dataclass(frozen=True, slots=True)
class Track:
    """How forecasts have done so far: crawls of all nights, older ones counting less.

    Attributes
    ----------
    crawls, found : (KINDS * CELLS,) float64
    predicted : (KINDS * CELLS, len(FACTORS)) float64
        Crawls; see `CellSums`.
    """

    crawls: FloatArray
    found: FloatArray
    predicted: FloatArray

    @classmethod
    def empty(cls) -> Track:
        """No crawl yet."""
        size = KINDS * CELLS
        return cls(np.zeros(size), np.zeros(size), np.zeros((size, len(FACTORS))))

    def add(self, days: float, sums: CellSums) -> Track:
        """With the crawls of a night that comes `days` after the last one."""
        weight = 0.5 ** (max(days, 0.0) / HALF_LIFE_DAYS)
        return Track(
            self.crawls * weight + sums.crawls,
            self.found * weight + sums.found,
            self.predicted * weight + sums.predicted * PROBABILITY_UNIT,
        )

    def factors(self) -> FloatArray:
        """Factor of the clock of each cell: (KINDS * CELLS,) float64, within `FACTORS`."""
        sums = np.column_stack([self.crawls, self.found, self.predicted])
        sums = sums.reshape(KINDS, CALM, _EXPECTED, -1)
        parent = np.ones((KINDS, 1, 1))
        for over in ((1, 2), (2,), ()):
            parent = _solve(sums.sum(axis=over, keepdims=True) if over else sums, parent)
        return parent.reshape(-1)

    def as_json(self) -> dict[str, Any]:
        """For the manifest: cells with crawls only."""
        some = np.flatnonzero(self.crawls >= _LEAST_CRAWLS)
        return {
            **_EDGES,
            "cell": some.tolist(),
            "crawls": self.crawls[some].tolist(),
            "found": self.found[some].tolist(),
            "predicted_at": self.predicted[some].tolist(),
            "factor": self.factors()[some].tolist(),
        }

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Track:
        """What `as_json` gave; empty if that has other cells, or nothing.

        Raises
        ------
        ValueError
            What is there cannot come from `as_json`.
        """
        if not values or any(values.get(name) != edges for name, edges in _EDGES.items()):
            return cls.empty()
        track = cls.empty()
        try:
            cell = np.array(values["cell"], np.int64)
            columns = [np.array(values[n], np.float64) for n in ("crawls", "found", "predicted_at")]
            columns[2] = columns[2].reshape(-1, len(FACTORS))
        except (KeyError, TypeError, ValueError, OverflowError) as e:
            raise ValueError(f"a track of forecasts is damaged: {e}; give what Track.as_json made") from None
        fit = all(len(c) == len(cell) and np.isfinite(c).all() and (c >= 0.0).all() for c in columns)
        if not fit or (np.diff(cell, prepend=-1) <= 0).any() or (cell >= KINDS * CELLS).any():
            raise ValueError(
                f"{len(cell)} cells of a track of forecasts do not fit its sums, or are not ascending from 0 "
                f"to {KINDS * CELLS - 1}; give what Track.as_json made"
            )
        for name, values_of in zip(("crawls", "found", "predicted"), columns, strict=True):
            getattr(track, name)[cell] = values_of
        return track


_EDGES: dict[str, Any] = {
    "half_life_days": HALF_LIFE_DAYS,
    "calm_edges": list(CALM_EDGES),
    "expected_edges": list(EXPECTED_EDGES),
    "factors": list(FACTORS),
}


def _solve(sums: FloatArray, parent: FloatArray) -> FloatArray:
    """Root r of ``found + s = predicted(r) + s r / parent`` for sums (..., 2 + F); `parent` broadcasts."""
    factors = np.array(np.broadcast_to(parent, sums.shape[:-1]))
    seen = sums[..., 0] > 0.0
    crawls, found, predicted = sums[seen, 0], sums[seen, 1], sums[seen, 2:]
    log_factors = np.log(FACTORS)
    some = np.maximum(crawls, 1e-300)[:, None]
    # Changes that a crawl would have to expect, in a cell of equals: nearly a power of the factor.
    events = np.log(np.maximum(-np.log1p(-np.minimum(predicted / some, 1.0 - 1e-12)), 1e-300))
    begin = events.shape[1] * np.arange(crawls.size)
    events = events.reshape(-1)
    of = factors[seen]
    step = log_factors[1] - log_factors[0]
    low, high = (np.full(crawls.shape, log_factors[end]) for end in (0, -1))
    for _ in range(_BISECTIONS if crawls.size else 0):
        middle = 0.5 * (low + high)
        place = (middle - log_factors[0]) / step
        left = np.minimum(place.astype(np.int64), len(FACTORS) - 2)
        one, other = (events[begin + left + k] for k in (0, 1))
        expected = one + (place - left) * (other - one)
        reached = -np.expm1(-np.exp(expected)) * crawls + STRENGTH * np.exp(middle) / of
        more = reached < found + STRENGTH
        low, high = np.where(more, middle, low), np.where(more, high, middle)
    factors[seen] = np.exp(0.5 * (low + high))
    return factors


def clock_factors(
    calm: Int16Array, expected: FloatArray, kind: IntArray | int, factors: FloatArray | None
) -> FloatArray:
    """Factor of the clock of each crawl, (k,) float64, 1 where there is no cell.

    Parameters
    ----------
    calm : (k,) int16
        From `calm_cells`.
    expected : (k,) float64
        Changes that were expected of the interval.
    kind : (k,) int64 or int
    factors : (KINDS * CELLS,) float64 or None
        From `Track.factors`.
    """
    if factors is None:
        return np.ones(len(calm))
    return np.where(calm == NO_CELL, 1.0, factors[np.maximum(CELLS * kind + cells(calm, expected), 0)])
