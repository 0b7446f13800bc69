"""Rules that decide whether a request triggers a crawl."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from policies.estimation.estimators import predict_unchanged
from policies.numerics.typing_ import BoolArray, FloatArray, IntArray
from policies.on_request.networks import Trained
from policies.on_request.value import crawl_value

QUANTILES = 100


@dataclass(frozen=True)
class Known:
    """What a night has learned of n pages from the crawls that were made.

    Attributes
    ----------
    change_rate_per_day, information : (n,) float64
    found_per_day : (n,) float64
        Changes found for each day watched, mixed with those of the page's group as one day.
    group_rate_per_day : (n,) float64
        Mean of the page's group.
    request_rate_per_day : (n,) float64
    """

    change_rate_per_day: FloatArray
    information: FloatArray
    found_per_day: FloatArray
    group_rate_per_day: FloatArray
    request_rate_per_day: FloatArray


class Strategy(ABC):
    """Probabilities of crawls by requests, at a level of spending."""

    def night(self, known: Known, at_us: int) -> None:
        """Take over what a night has learned, at its midnight."""
        self.known = known

    def crawled(self, page: IntArray, at_us: IntArray, changed: BoolArray) -> None:
        """Take in crawls of k pages, each once, and whether they have found a change."""
        return  # most rules know what nights have learned, and no more

    @abstractmethod
    def chance(self, page: IntArray, at_us: IntArray, since_days: FloatArray) -> FloatArray:
        """Probability that a request triggers a crawl: (k,) float64.

        Parameters
        ----------
        page : (k,) int64
            Asked for; each once.
        at_us : (k,) int64
            When.
        since_days : (k,) float64
            Ages of their copies.
        """


class Uniform(Strategy):
    """All requests alike."""

    def __init__(self, level: float) -> None:
        self._level = min(level, 1.0)

    def chance(self, page: IntArray, at_us: IntArray, since_days: FloatArray) -> FloatArray:
        return np.full(len(page), self._level)


class _Quantiles(Strategy):
    """``min(1, gamma i / n)`` for the quantile i of n of a score (Han et al. 2019, equation 1).

    Quantiles are those of the requests since the night before.
    """

    def __init__(self, gamma: float) -> None:
        self._gamma, self._edges = gamma, np.zeros(0)
        self._today: list[FloatArray] = []

    def night(self, known: Known, at_us: int) -> None:
        super().night(known, at_us)
        if self._today:
            marks = np.arange(1, QUANTILES) / QUANTILES
            self._edges = np.quantile(np.concatenate(self._today), marks)
        self._today = []

    def chance(self, page: IntArray, at_us: IntArray, since_days: FloatArray) -> FloatArray:
        score = self.scores(page, at_us, since_days)
        self._today.append(score)
        if not len(self._edges):
            return np.full(len(page), min(0.5 * self._gamma, 1.0))
        # Of equal scores the middle of their quantiles.
        ends = (np.searchsorted(self._edges, score, side=side) for side in ("left", "right"))
        quantile = (sum(ends) / 2.0 + 1.0) / QUANTILES
        result: FloatArray = np.minimum(1.0, self._gamma * quantile)
        return result

    @abstractmethod
    def scores(self, page: IntArray, at_us: IntArray, since_days: FloatArray) -> FloatArray:
        """Of requests: (k,) float64."""


class ByQuantile(_Quantiles):
    """The rule of quantiles for a score of what nights have learned."""

    def __init__(self, gamma: float, score: Callable[[Known, IntArray, FloatArray], FloatArray]) -> None:
        super().__init__(gamma)
        self._score = score

    def scores(self, page: IntArray, at_us: IntArray, since_days: FloatArray) -> FloatArray:
        return self._score(self.known, page, since_days)


class ByNetwork(_Quantiles):
    """The rule of quantiles for what a network says, which learns from crawls request by request."""

    def __init__(self, gamma: float, trained: Trained | None) -> None:
        super().__init__(gamma)
        assert trained is not None
        self._trained, self._findings = trained, trained.findings.copy()

    def night(self, known: Known, at_us: int) -> None:
        super().night(known, at_us)
        self._findings.midnight(at_us)

    def crawled(self, page: IntArray, at_us: IntArray, changed: BoolArray) -> None:
        self._findings.crawled(page, at_us, changed)

    def scores(self, page: IntArray, at_us: IntArray, since_days: FloatArray) -> FloatArray:
        return self._trained.score(self._findings, page, at_us)


class ByValue(Strategy):
    """A crawl where its value reaches a multiplier, see `policies.on_request.value`."""

    def __init__(self, multiplier: float) -> None:
        self._multiplier = multiplier

    def chance(self, page: IntArray, at_us: IntArray, since_days: FloatArray) -> FloatArray:
        asked, rate = self.known.request_rate_per_day[page], self.known.change_rate_per_day[page]
        value = crawl_value(asked, rate, self.known.information[page], since_days)
        return (value >= self._multiplier).astype(np.float64)


def changed_since(known: Known, page: IntArray, since_days: FloatArray) -> FloatArray:
    """Probability of a change since the last crawl."""
    still = predict_unchanged(known.change_rate_per_day[page], known.information[page], since_days)
    return 1.0 - still


def found_frequency(known: Known, page: IntArray, since_days: FloatArray) -> FloatArray:
    """Changes found for each day, whenever the last crawl was."""
    return known.found_per_day[page]


def group_frequency(known: Known, page: IntArray, since_days: FloatArray) -> FloatArray:
    """The rate of the page's group: no history of its own."""
    return known.group_rate_per_day[page]


@dataclass(frozen=True)
class Rule:
    """A strategy by name.

    Attributes
    ----------
    what : str
        In a line.
    levels : tuple of float
        Gammas, multipliers or probabilities, from little to much spending.
    make : callable
        From a level, and from what was trained where the rule is `by_network`.
    by_network : bool
    frequencies : bool
        Whether the network knows of changes that were found.
    """

    what: str
    levels: tuple[float, ...]
    make: Callable[[float, Trained | None], Strategy]
    by_network: bool = False
    frequencies: bool = False

    GAMMAS: ClassVar[tuple[float, ...]] = (0.04, 0.1, 0.2, 0.3, 0.5, 0.8, 1.2, 1.6, 2.5, 5.0)
    MULTIPLIERS: ClassVar[tuple[float, ...]] = (
        1000.0, 300.0, 100.0, 50.0, 20.0, 10.0, 5.0, 2.0, 1.0, 0.5, 0.2, 0.1, 0.03, 0.01,
    )  # fmt: skip


def _by_quantile(score: Callable[[Known, IntArray, FloatArray], FloatArray], what: str) -> Rule:
    return Rule(what, Rule.GAMMAS, lambda gamma, _: ByQuantile(gamma, score))


def _by_network(frequencies: bool, what: str) -> Rule:
    return Rule(what, Rule.GAMMAS, ByNetwork, True, frequencies)


UNIFORM = "uniform"
RULES: dict[str, Rule] = {
    UNIFORM: Rule(
        "all requests alike",
        (0.0, 0.02, 0.04, 0.06, 0.08, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0),
        lambda level, _: Uniform(level),
    ),
    "frequency": _by_quantile(found_frequency, "quantile rule on the frequency of changes found"),
    "metadata": _by_quantile(group_frequency, "quantile rule on the rate of the page's group"),
    "dnn-metadata": _by_network(False, "quantile rule on the network of metadata, weekday and hour"),
    "dnn": _by_network(True, "quantile rule on the network of these and frequencies of changes found"),
    "recrawl": _by_quantile(
        changed_since, "quantile rule on our probability of a change since the last crawl"
    ),
    "value": Rule(
        "threshold on the value of the crawl", Rule.MULTIPLIERS, lambda multiplier, _: ByValue(multiplier)
    ),
}
"""Strategies by name."""
