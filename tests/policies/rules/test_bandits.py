"""Bandits: golden trajectories, safety over many steps, regret bounds on adversarial rewards."""

import math

import numpy as np
import pytest

from policies.numerics.typing_ import FloatArray
from policies.rules import bandits
from policies.rules.bandits import Bandit, Exp3, Exp3IX, Exp3PlusPlus
from tests import golden

GOLDEN = golden.load("exp3")["cases"]
CASES = [case for case in GOLDEN if case["kind"] == "exp3"]
LONG = next(case for case in GOLDEN if case["kind"] == "exp3_long")
KINDS = (Exp3, Exp3IX, Exp3PlusPlus)
STEPS, LANES, K = 2000, 64, 3


@pytest.mark.parametrize("case", CASES, ids=[case["name"] for case in CASES])
def test_exp3_follows_the_golden_trajectories(case):
    bandit = Exp3(case["gamma"])
    state = bandit.start(1, case["K"])
    raw = 0.0
    for t, (arm, reward) in enumerate(zip(case["arms"], case["rewards"], strict=True)):
        q = bandit.probabilities(state)[0]
        np.testing.assert_allclose(q, np.array(case["q_before"][t], dtype=float), rtol=1e-12)
        before = state.score[0].copy()
        state = bandit.learn(state, np.array([arm]), np.array([reward]))
        step = state.score[0] - before
        other = (arm + 1) % case["K"]
        gained = step[arm] - step[other] if case["K"] > 1 else float(case["increment"][t])
        assert gained == pytest.approx(float(case["increment"][t]), rel=1e-12, abs=1e-15)
        expected = np.array(case["logw_after"][t], dtype=float)
        np.testing.assert_allclose(state.score[0], expected - expected.max(), rtol=1e-12, atol=1e-14)
        raw += gained
    np.testing.assert_allclose(
        bandit.probabilities(state)[0], np.array(case["q_final"], dtype=float), rtol=1e-12
    )


def test_exp3_goes_on_where_plain_weights_overflow():
    bandit = Exp3(LONG["gamma"])
    state = bandit.start(1, LONG["K"])
    arm, reward = np.array([LONG["arm"]]), np.array([LONG["reward"]])
    for _ in range(LONG["steps"]):
        state = bandit.learn(state, arm, reward)
    np.testing.assert_allclose(
        bandit.probabilities(state)[0], np.array(LONG["q_final"], dtype=float), rtol=1e-12
    )
    assert state.score[0].max() == 0.0
    assert state.score[0, 1] == pytest.approx(-float(LONG["logw0"]), rel=1e-10)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("reward", [0.0, 1.0])
def test_a_million_steps_with_the_largest_scores_do_not_overflow(kind, reward):
    bandit = kind()
    steps = 1_000_000
    worst = steps * (steps / K)  # losses over the smallest probability, in every step
    score = np.array([[0.0, -float(steps), -5.0]] if kind is Exp3 else [[0.0, worst, 5.0]])
    pulls = np.array([[steps - 2.0, 1.0, 1.0]])
    state = bandits.BanditState(steps, score, pulls, 0.5 * pulls)
    for arm in (1, 1, 0, 2):
        q = bandit.probabilities(state)
        assert np.isfinite(q).all() and (q >= 0.0).all() and q.sum() == pytest.approx(1.0, abs=1e-12)
        state = bandit.learn(state, np.array([arm]), np.array([reward]))
        assert np.isfinite(state.score).all()


@pytest.mark.parametrize(("gamma", "arms"), [(0.0, 4), (1.0, 4), (0.3, 1)])
def test_exp3_without_learning_keeps_its_probabilities(gamma, arms):
    bandit = Exp3(gamma)
    state = bandit.start(2, arms)
    for _ in range(50):
        state = bandit.learn(state, np.zeros(2, dtype=np.int64), np.ones(2))
    np.testing.assert_allclose(bandit.probabilities(state), 1.0 / arms)


@pytest.mark.parametrize("kind", KINDS)
def test_rewards_are_clipped_and_nothing_over_nothing_is_nothing(kind):
    bandit = kind()
    start = bandit.start(4, K)
    arm = np.array([0, 0, 1, 2])
    odd = bandit.learn(start, arm, np.array([7.0, -3.0, np.nan, np.inf]))
    plain = bandit.learn(start, arm, np.array([1.0, 0.0, 0.0, 1.0]))
    np.testing.assert_array_equal(odd.score, plain.score)
    np.testing.assert_array_equal(odd.loss, plain.loss)


def test_lanes_do_not_influence_each_other():
    rng = np.random.default_rng(5)
    for kind in KINDS:
        bandit = kind()
        both, alone = bandit.start(2, K), bandit.start(1, K)
        for _ in range(40):
            arm, reward = rng.integers(0, K, 2), rng.random(2)
            both = bandit.learn(both, arm, reward)
            alone = bandit.learn(alone, arm[1:], reward[1:])
        np.testing.assert_array_equal(bandit.probabilities(both)[1], bandit.probabilities(alone)[0])


def test_arms_are_drawn_with_their_probabilities():
    q = np.tile([0.05, 0.6, 0.35], (200_000, 1))
    arm = bandits.draw(q, np.random.default_rng(1).random(len(q)))
    share = np.bincount(arm, minlength=3) / len(arm)
    assert np.abs(share - q[0]).max() < 4.0 * math.sqrt(0.25 / len(arm))
    edge = bandits.draw(np.array([[0.5, 0.5, 0.0], [0.1, 0.2, 0.7]]), np.array([np.nextafter(1.0, 0.0)] * 2))
    assert edge.tolist() == [1, 2]


def _stationary() -> FloatArray:
    x = np.zeros((STEPS, K))
    x[:] = (np.random.default_rng(2).random((STEPS, K)) < [0.3, 0.5, 0.7]).astype(float)
    return x


def _switching() -> FloatArray:
    """The best arm of the first half is the worst one of the second, but for a third one that is steady."""
    x = np.zeros((STEPS, K))
    half = STEPS // 2
    x[:half] = [0.9, 0.1, 0.6]
    x[half:] = [0.0, 0.8, 0.6]
    return x


def _alternating() -> FloatArray:
    x = np.zeros((STEPS, K))
    x[::2, 0] = 1.0
    x[1::2, 1] = 1.0
    x[:, 2] = 0.55
    return x


def _late() -> FloatArray:
    """Nothing to be earned until the last quarter."""
    x = np.zeros((STEPS, K))
    x[3 * STEPS // 4 :, 2] = 1.0
    return x


SEQUENCES = {"stationary": _stationary, "switching": _switching, "alternating": _alternating, "late": _late}


def _regrets(bandit: Bandit, rewards: FloatArray, seed: int) -> tuple[FloatArray, float]:
    rng = np.random.default_rng(seed)
    state = bandit.start(LANES, rewards.shape[1])
    earned = np.zeros(LANES)
    for x in rewards:
        arm = bandits.draw(bandit.probabilities(state), rng.random(LANES))
        earned += x[arm]
        state = bandit.learn(state, arm, x[arm])
    best = float(rewards.sum(axis=0).max())
    return best - earned, best


@pytest.mark.parametrize("sequence", SEQUENCES)
def test_exp3_keeps_its_regret_bound(sequence):
    gamma = math.sqrt(K * math.log(K) / ((math.e - 1.0) * STEPS))
    regret, best = _regrets(Exp3(gamma), SEQUENCES[sequence](), 11)
    error = regret.std(ddof=1) / math.sqrt(LANES)
    assert regret.mean() + 3.0 * error <= (math.e - 1.0) * gamma * best + K * math.log(K) / gamma


@pytest.mark.parametrize("sequence", SEQUENCES)
def test_exp3_ix_keeps_its_regret_bound_in_nearly_every_run(sequence):
    regret, _ = _regrets(Exp3IX(), SEQUENCES[sequence](), 12)
    size, root = math.sqrt(K * STEPS), math.sqrt(math.log(K))
    bound = 4.0 * size * root + (2.0 * size / root + 1.0) * math.log(2.0 / 0.05)
    assert (regret > bound).mean() <= 0.05


@pytest.mark.parametrize("sequence", SEQUENCES)
def test_exp3_plus_plus_keeps_its_regret_bound(sequence):
    regret, _ = _regrets(Exp3PlusPlus(), SEQUENCES[sequence](), 13)
    error = regret.std(ddof=1) / math.sqrt(LANES)
    assert regret.mean() + 3.0 * error <= 4.0 * math.sqrt(K * STEPS * math.log(K))


@pytest.mark.parametrize("kind", KINDS)
def test_every_bandit_beats_drawing_at_random_where_one_arm_is_better(kind):
    rewards = _stationary()
    regret, best = _regrets(kind(), rewards, 14)
    at_random = best - rewards.mean(axis=1).sum()
    assert regret.mean() < 0.5 * at_random


def test_exp3_plus_plus_explores_less_where_an_arm_is_surely_worse():
    bandit = Exp3PlusPlus()
    zeros = np.zeros((1, 2))
    t = 10_000_000
    apart = bandits.BanditState(t, zeros, np.array([[t / 2, t / 2]]), np.array([[0.05 * t, 0.45 * t]]))
    alike = bandits.BanditState(t, zeros, np.array([[t / 2, t / 2]]), np.array([[0.2 * t, 0.2 * t]]))
    gap = bandit.gaps(apart)[0]
    assert gap[0] == 0.0 and 0.79 < gap[1] < 0.8
    assert (bandit.gaps(alike) == 0.0).all()
    far = 1e9
    pushed = bandits.BanditState(t, np.array([[0.0, far]]), apart.pulls, apart.loss)
    eta = 0.5 * math.sqrt(math.log(2) / (2 * (t + 1)))
    assert bandit.probabilities(pushed)[0, 1] == pytest.approx(
        min(eta, 256 * math.log(t + 1) / ((t + 1) * gap[1] ** 2)), rel=1e-9
    )


def test_arms_of_the_named_policies():
    assert {name: len(arms) for name, arms in bandits.KAB_ARMS.items()} == {
        "KAB2": 2,
        "KAB3": 3,
        "KAB4": 4,
        "KAB5": 5,
    }
    assert set(bandits.KAB_ARMS["KAB3"]) - set(bandits.KAB_ARMS["KAB2"]) == {"uniform"}
    assert set(bandits.KAB_ARMS["KAB4"]) - set(bandits.KAB_ARMS["KAB3"]) == {"impression-weighted"}
    assert set(bandits.KAB_ARMS["KAB5"]) - set(bandits.KAB_ARMS["KAB4"]) == {"lambdacrawl-discrete"}


def test_wrong_arguments_are_named():
    with pytest.raises(ValueError, match=r"gamma.*1\.5"):
        Exp3(1.5)
    with pytest.raises(ValueError, match="from 0 to 2"):
        Exp3().learn(Exp3().start(1, 3), np.array([3]), np.array([0.5]))
    with pytest.raises(ValueError, match="lanes"):
        Exp3().start(0, 3)
