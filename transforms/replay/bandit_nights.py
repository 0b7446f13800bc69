"""Nights of a bandit over rate policies in a closed loop (Han et al. 2020, section 3.2).

In each step of two hours one arm is drawn, and pages are crawled at its rates. What the crawls of a day found
is known at night: the steps of a day have the probabilities of its night, and the bandit then learns from
their rewards one after the other.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from policies.history.page_state import NO_TIME, US_PER_DAY
from policies.numerics.typing_ import FloatArray, IntArray
from policies.rules.bandits import KAB_ARMS, Exp3, draw
from policies.rules.rate_policies import Parameters, rates
from policies.sequencing import quotas
from transforms.replay.closed_loop import Day, Planned, Planner
from transforms.replay.rate_nights import Estimates, drawn, whole
from transforms.replay.worlds import World

STEPS: Final = 12
"""Steps of a day."""


class BanditNights(Planner):
    """Crawls by the arms of a bandit.

    Parameters
    ----------
    world : World
    estimates : Estimates
    arms : str
        A name of `policies.rules.bandits.KAB_ARMS`.
    crawls_per_page : float
        Budget per day, in crawls per known page.
    weight : (n,) float64
    key : int
        Of the arms and pages that are drawn.
    """

    def __init__(
        self,
        world: World,
        estimates: Estimates,
        arms: str,
        crawls_per_page: float,
        weight: FloatArray,
        key: int = 0,
    ) -> None:
        self._world, self._estimates, self._arms = world, estimates, KAB_ARMS[arms]
        self._crawls_per_page, self._weight = crawls_per_page, weight
        self._bandit = Exp3()
        self._state = self._bandit.start(1, len(self._arms))
        self._rng = np.random.Generator(np.random.Philox(key=key))
        self._owed = 0.0
        self._drawn: IntArray = np.zeros(0, np.int64)
        self.probability: list[FloatArray] = []

    def plan(self, day: Day) -> Planned:
        self._learn(day)
        known = np.flatnonzero(self._world.history.first_us <= day.as_of_us)
        self._drawn = np.zeros(0, np.int64)
        if not len(known):
            return Planned.of(known, known)
        budget = self._crawls_per_page * len(known)
        impressions = self._world.weights.get("impressions")
        parameters = Parameters.of(
            self._estimates.change_rates(day, known),
            self._weight[known],
            None if impressions is None else impressions[known],
        )
        by_arm = [whole(rates(arm, parameters, budget), budget) for arm in self._arms]
        q = self._bandit.probabilities(self._state)
        self.probability.append(q[0])
        self._drawn = draw(np.repeat(q, STEPS, axis=0), self._rng.random(STEPS))
        slots, self._owed = quotas.total_slots(budget, 24.0, self._owed)
        offsets = quotas.slot_offsets_us(np.array([slots]), 0, US_PER_DAY)
        step = offsets * STEPS // US_PER_DAY
        numbers = self._rng.random(slots)
        row = np.concatenate(
            [drawn(by_arm[arm], numbers[step == s]) for s, arm in enumerate(self._drawn.tolist())]
        )
        return Planned.of(known[row], offsets + day.as_of_us)

    def _learn(self, day: Day) -> None:
        """From the rewards of the day's steps: the share of crawls that found a change, by weight."""
        first = (np.diff(day.page, prepend=-1) != 0) & (day.last_before_us[day.page] == NO_TIME)
        step = (day.at_us - day.before_us) * STEPS // US_PER_DAY if len(self._drawn) else day.at_us
        for s, arm in enumerate(self._drawn.tolist()):
            mine = (step == s) & ~first
            weight = self._weight[day.page[mine]]
            total = float(weight.sum())
            reward = float(weight @ day.changed[mine]) / total if total > 0 else 0.0
            self._state = self._bandit.learn(self._state, np.array([arm]), np.array([reward]))
