"""Learners that are told more than a crawler can know."""

import numpy as np
import pytest

from policies.estimation import prior
from policies.history.evidence import forgetting_weights
from policies.history.page_state import US_PER_DAY
from policies.numerics.typing_ import IntArray
from policies.simulation.histories import ChangeHistory
from policies.simulation.references import known_rates, uncensored_evidence

START = 20_000 * US_PER_DAY


def at(*days: float) -> IntArray:
    return START + np.array([round(d * US_PER_DAY) for d in days], np.int64)


def test_evidence_by_hand() -> None:
    history = ChangeHistory.from_events(
        START, START + 30 * US_PER_DAY, at(0, 0, 0), np.array([0, 0, 0, 0, 1]), at(-1, 2, 3, 20, 5)
    )
    # Page 0 is told of the changes on days 2 and 3, page 1 of none; page 2 had one crawl.
    found = uncensored_evidence(history, at(0, 0, 1), at(10, 4, 1))
    assert found.exposure_days == pytest.approx([10, 4, 0])
    assert found.dated_changes.tolist() == [2, 0, 0]
    halved = uncensored_evidence(history, at(0, 0, 1), at(10, 4, 1), half_life_changes=1)
    assert halved.exposure_days == pytest.approx([2 / 2 + 1 + 7, 4, 0])
    assert halved.dated_changes.tolist() == [1.5, 0, 0]


def test_forgetting_is_that_of_the_job() -> None:
    rng = np.random.Generator(np.random.Philox(key=1))
    history = ChangeHistory.poisson(START, START + 100 * US_PER_DAY, np.full(5, 0.3), rng)
    found = uncensored_evidence(history, at(*[0] * 5), at(*[100] * 5), half_life_changes=12)
    # The job forgets intervals that show a change in the same way.
    page = history.change_page
    weight = forgetting_weights(page, np.ones(len(page), np.bool_), 12)
    assert found.dated_changes == pytest.approx(np.bincount(page, weight))


def test_rates_of_the_told_learner_near_the_true_ones() -> None:
    rng = np.random.Generator(np.random.Philox(key=2))
    rate = rng.gamma(2.0, 0.1, 400)
    history = ChangeHistory.poisson(START, START + 300 * US_PER_DAY, rate, rng)
    n = len(history)
    evidence = uncensored_evidence(history, at(*[0] * n), at(*[300] * n))
    group = np.zeros(n, np.int64)
    found = prior.estimate(evidence, group, 1, prior.fit_prior(evidence, group)).change_rate_per_day
    error = (found - rate) / np.sqrt(rate / 300)
    assert abs(error.mean()) < 3 / np.sqrt(n) + 0.1
    assert 0.8 < error.std() < 1.15


def test_known_rates_count_the_time_a_page_was_there() -> None:
    history = ChangeHistory.from_events(
        START, START + 30 * US_PER_DAY, at(0, 15, 40, 0), np.array([0, 0, 0, 1]), at(11, 12, 25, 16)
    )
    window = int(at(10)[0]), int(at(20)[0])
    assert known_rates(history, *window, 0.0).tolist() == [0.2, 0.2, 0, 0]
    assert known_rates(history, *window) == pytest.approx([0.21, 0.22, 0, 0.01])
    with pytest.raises(ValueError, match="-1 changes assumed"):
        known_rates(history, *window, -1)


def test_half_lives_are_checked() -> None:
    history = ChangeHistory.from_events(START, START + US_PER_DAY, at(0), at()[:0], at()[:0])
    with pytest.raises(ValueError, match="half-life of 0"):
        uncensored_evidence(history, at(0), at(1), 0)
