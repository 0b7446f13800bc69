"""Policies that draw a score for each source and hour, at one price for all: Thompson sampling, and chance.

Thompson sampling refreshes the k sources of the highest yields that are drawn for the hour (Schulam and
Muslea 2023, Figure 1: Poisson yields of each source and hour of the day, with a Gamma(1, 1) prior). Here a
refresh is where the draw reaches a price, the same for all sources and hours of the horizon, so hours in
which more comes have more of them. Who never learns draws from the prior for ever: sources at random.

What is drawn follows from the source and the hour since 1970 alone, so a day is planned as its hours one by
one, and each source has a minute of its own, so its refreshes are whole hours apart.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from policies.discovery.hours import HOURS
from policies.discovery.picking import gammas, uniforms
from policies.discovery.pricing import Chosen, Refreshes, spaced, within
from policies.discovery.sums import Visits
from policies.numerics.typing_ import BoolArray, FloatArray, IntArray, UIntArray

_DRAWS, _MINUTES = 1, 2


class HourlyYields:
    """What Thompson sampling keeps of n sources: whole sums, the same in any order of visits.

    Attributes
    ----------
    new, visits : (n, 24) int64
        New links by hour of the day (UTC) of the visit that found them, and visits; first ones count.
    """

    def __init__(self, n: int) -> None:
        self.new: IntArray = np.zeros((n, HOURS), np.int64)
        self.visits: IntArray = np.zeros((n, HOURS), np.int64)

    def learn(self, visits: Visits) -> None:
        """Take in visits; what failed tells nothing."""
        at = visits.source[visits.ok], visits.at_s[visits.ok] // 3600 % HOURS
        np.add.at(self.new, at, visits.new[visits.ok])
        np.add.at(self.visits, at, 1)


@dataclass(frozen=True)
class Drawn:
    """n sources that are refreshed where what is drawn for them reaches a price.

    Attributes
    ----------
    score : (n, steps) float64
        New links; -inf where no refresh may be.
    due : (n,) float64
        Hours from the beginning to the instant of each source in the first step.
    step_hours, span : float
    worth_now : (n,) float64
        New links that a refresh at the beginning is expected to find.
    """

    score: FloatArray
    due: FloatArray
    step_hours: float
    span: float
    worth_now: FloatArray

    @classmethod
    def of(
        cls,
        yields: HourlyYields,
        key: UIntArray,
        ends_hours: tuple[float, float],
        step_hours: float,
        at_least: FloatArray,
    ) -> Drawn:
        """Draw for all steps between two instants.

        Parameters
        ----------
        yields : HourlyYields
            Zeros where nothing is learned.
        key : (n,) uint64
        ends_hours : (float, float)
            Hours since 1970-01-01 UTC.
        step_hours : float
            Least time between two refreshes of a source.
        at_least : (n,) float64
            Hours from the beginning until the next refresh may be; inf: never.
        """
        begin, end = ends_hours
        none = np.zeros(len(key), np.uint64)
        first, steps, due = steps_of(key, ends_hours, step_hours)
        score = np.empty((len(key), steps))
        every = np.arange(len(key))
        for step in range(steps):
            at = due + step * step_hours
            hour = np.floor(begin + at).astype(np.int64) % HOURS
            drawn = gammas(
                1.0 + yields.new[every, hour].astype(np.float64),
                1.0 + yields.visits[every, hour].astype(np.float64),
                uniforms(key, none, first + step, _DRAWS),
            )
            may = (at >= np.maximum(at_least, 0.0)) & (at < end - begin)
            score[:, step] = np.where(may, drawn, -np.inf)
        now = int(begin) % HOURS
        mean = (yields.new[:, now] + 1.0) / (yields.visits[:, now] + 1.0)
        return cls(score, due, step_hours, end - begin, mean)

    def __len__(self) -> int:
        return len(self.due)

    def take(self, rows: IntArray) -> Drawn:
        """Some of them."""
        return Drawn(self.score[rows], self.due[rows], self.step_hours, self.span, self.worth_now[rows])

    def asked(self, price: FloatArray) -> IntArray:
        """Refreshes at prices, (n,) float64: (n,) int64."""
        found: IntArray = (self.score >= price[:, None]).sum(axis=1)
        return found

    def totals(self, prices: FloatArray, host_start: IntArray, most: IntArray) -> IntArray:
        """As `pricing.Waiting.totals`."""
        every = np.ones(len(self))
        count = [self.asked(price * every) for price in prices]
        return within(np.stack(count), host_start, most)

    def instants(self, chosen: Chosen, key: UIntArray, capacity: float) -> Refreshes:
        """When sources are refreshed; see `pricing.Waiting`."""
        where, worth = self.steps(chosen)
        row, step = np.nonzero(where)
        due = self.due[row] + step * self.step_hours
        order = np.lexsort((key[row], due))
        row, step, due = row[order], step[order], due[order]
        gap = self.span / (capacity * max(len(row), 1))
        return Refreshes(row, spaced(due, gap, self.span - gap), worth[row, step])

    def steps(self, chosen: Chosen) -> tuple[BoolArray, FloatArray]:
        """The steps of each source in which most is drawn, as many as were chosen, and draws: (n, steps)."""
        rank = np.argsort(np.argsort(-self.score, axis=1, kind="stable"), axis=1)
        return rank < chosen.count[:, None], self.score


def steps_of(
    key: UIntArray, ends_hours: tuple[float, float], step_hours: float
) -> tuple[int, int, FloatArray]:
    """The first step between two instants, their number, and `Drawn.due`; see `Drawn.of`."""
    begin, end = ends_hours
    minute = uniforms(key, np.zeros(len(key), np.uint64), 0, _MINUTES)
    first = math.floor(begin / step_hours)
    return first, math.ceil(end / step_hours) - first, (first + minute) * step_hours - begin
