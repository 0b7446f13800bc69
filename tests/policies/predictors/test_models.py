"""Baselines, the network in NumPy, and scores against what is known of them."""

from dataclasses import replace

import numpy as np
import pytest

from policies.predictors.frequencies import Frequency, MostRecent
from policies.predictors.network import Network, log_hazard_of_odds
from policies.predictors.predictor import probability
from policies.predictors.scores import auc, calibration, scores
from tests.policies.predictors.drawn_rows import drawn_rows


@pytest.mark.parametrize("window", [0, 1, 2])
def test_a_frequency_ranks_as_its_count_and_never_says_impossible(window):
    rows = drawn_rows(300, 1, changed=np.arange(300) % 7 == 0)
    model = Frequency(window, group=False)
    model.fit(rows, np.log(rows.days))
    found = model.log_multiplier(rows)
    order = np.argsort(found, kind="stable")
    assert (np.diff(rows.count[window][order]) >= 0.0).all()
    none = rows.count[window] == 0.0
    assert none.any() and np.isfinite(found[none]).all() and (probability(found, 0.0 * found) > 0.0).all()
    # A page that changes as all do is foretold the mean rate, whatever the window.
    days = (1.0, 7.0, 30.0)[window]
    mean = replace(rows, count=np.full((3, 300), model.mean_per_day * days))
    assert model.log_multiplier(mean) == pytest.approx(np.log(model.mean_per_day))


def test_figures_of_a_group_are_used_where_asked_for():
    rows = drawn_rows(50, 2)
    other = replace(rows, group_count=rows.group_count + 1.0, group_since_days=rows.group_since_days + 1.0)
    for make in (lambda group: Frequency(1, group), MostRecent):
        own, of_group = make(False), make(True)
        assert own.log_multiplier(other) == pytest.approx(own.log_multiplier(rows))
        assert (of_group.log_multiplier(other) != of_group.log_multiplier(rows)).all()


def test_a_network_by_hand():
    net = Network(
        np.array([1.0]),
        np.array([2.0]),
        (np.array([[0.0], [3.0]]),),
        (
            (np.array([[1.0, -1.0], [1.0, 1.0]]), np.array([0.0, 0.5])),
            (np.array([[2.0], [4.0]]), np.array([0.25])),
        ),
    )
    # Inputs (5 - 1) / 2 = 2 and 3: hidden (5, 1.5), odds 10 + 6 + .25; then an unknown value: (2, 0).
    odds = net.log_odds(np.array([[5.0], [5.0], [5.0]]), np.array([[1], [7], [-1]]))
    assert odds == pytest.approx([16.25, 4.25, 4.25])


def test_odds_and_hazards_are_of_one_probability():
    odds = np.array([-80.0, -5.0, 0.0, 2.0])
    p = probability(log_hazard_of_odds(odds), np.zeros(4))
    assert p[1:] == pytest.approx(1.0 / (1.0 + np.exp(-odds[1:])), rel=1e-9)
    assert log_hazard_of_odds(odds)[0] == -80.0


def test_auc_counts_pairs():
    rng = np.random.Generator(np.random.Philox(key=7))
    p, changed = np.round(rng.random(60), 1), rng.random(60) < 0.3
    pairs = np.subtract.outer(p[changed], p[~changed])
    assert auc(p, changed) == pytest.approx(((pairs > 0) + 0.5 * (pairs == 0)).mean())
    assert np.isnan(auc(p, np.zeros(60, np.bool_)))


def test_scores_of_the_true_probability_are_fair():
    rng = np.random.Generator(np.random.Philox(key=8))
    k = 40_000
    p = rng.uniform(0.01, 0.3, k)
    changed, subset = rng.random(k) < p, rng.integers(0, 20, k)
    true, double = scores(p, changed, subset), scores(2.0 * p, changed, subset)
    assert true.bias == pytest.approx(1.0, abs=0.03) and double.bias == pytest.approx(2.0 * true.bias)
    # A ranking cannot see a factor of two, the log-loss does.
    assert double.auc == pytest.approx(true.auc) and double.log_loss > true.log_loss + 0.02
    assert 0.0 < true.auc_sd < 0.03
    predicted, found = calibration(p, changed)
    assert np.abs(predicted - found).max() < 0.03 and (np.diff(predicted) > 0.0).all()
