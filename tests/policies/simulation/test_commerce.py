"""Strategies and bandits on price offers: rewards, budgets, freshness, common random numbers."""

import dataclasses

import numpy as np
import pytest

from policies.rules import bandits
from policies.rules.rate_policies import Parameters
from policies.simulation import commerce, offers
from policies.simulation.commerce import Arm, Strategy, crawl_reward, simulate

FIRST, WARM_UP, SCORED = 8, 6, 8


@pytest.fixture(scope="module")
def world():
    return offers.generate(400, FIRST + WARM_UP + SCORED, 2)


@pytest.fixture(scope="module")
def sources(world):
    return {"h": commerce.history_averages(world), "ml": commerce.learned(world)}


def single(policy, source=""):
    return Strategy(f"{policy} {source}", (Arm(policy, source),))


def run(world, sources, strategies, budgets, **changed):
    given = {"first_day": FIRST, "warm_up_days": WARM_UP, "repetitions": range(3), "seed": 1, **changed}
    return simulate(world, strategies, budgets, sources, **given)


def test_reward_is_the_clicked_share_of_crawls_that_were_of_use():
    crawled = np.array([[True, True, False, True], [False] * 4, [True] * 4, [True, False, False, False]])
    fresh = np.array([[True, False, False, True], [False] * 4, [False] * 4, [True] * 4])
    click = np.array([1.0, 3.0, 100.0, 4.0])
    assert crawl_reward(crawled, fresh, click).tolist() == [3.0 / 8.0, 0.0, 1.0, 0.0]
    # Offers nobody clicks: 0 / 0 is 0.
    assert crawl_reward(crawled, fresh, np.zeros(4)).tolist() == [0.0] * 4


def test_gain_is_relative_to_the_most_clicked_offers_the_budget_reaches():
    crawled = np.array([[True, True, False, False], [False, False, True, True]])
    fresh = np.zeros((2, 4), dtype=bool)
    click = np.array([1.0, 3.0, 10.0, 4.0])
    assert crawl_reward(crawled, fresh, click, "gain", 0.5).tolist() == [4.0 / 14.0, 1.0]
    # More crawls than expected cannot earn more than 1.
    assert crawl_reward(np.ones((1, 4), dtype=bool), fresh[:1], click, "gain", 0.25).tolist() == [1.0]


def test_rewards_lie_in_0_1_and_probabilities_add_up(world, sources):
    strategies = [
        dataclasses.replace(commerce.kab("KAB5", "ml", reward=reward), name=reward)
        for reward in commerce.REWARDS
    ]
    out = run(world, sources, strategies, [0.01, 0.5])
    for name in commerce.REWARDS:
        q, x = out.arm_probability[name], out.reward[name]
        steps = 12 * (WARM_UP + SCORED)
        assert q.shape == (2, 3, steps, 5) and x.shape == (2, 3, steps)
        assert (x >= 0.0).all() and (x <= 1.0).all() and x.max() > 0.0
        np.testing.assert_allclose(q.sum(axis=-1), 1.0, rtol=1e-6)
        np.testing.assert_allclose(q[:, :, 0], 0.2, rtol=1e-6)
        assert (q >= 0.1 / 5 - 1e-7).all()


@pytest.mark.parametrize(
    "policy", ["uniform", "change-weighted", "impression-weighted", "lambdacrawl-discrete"]
)
def test_budget_is_exact_in_expectation(world, sources, policy):
    out = run(world, sources, [single(policy, "ml")], [0.05, 0.6], repetitions=range(6))
    crawls = out.crawls[0].mean(axis=1)
    expected = np.array([0.05, 0.6]) * len(world) * SCORED
    # A sum of independent crawls varies less than a Poisson number of them.
    assert (np.abs(crawls - expected) < 4.0 * np.sqrt(expected / 6)).all()


def test_bandits_spend_the_same_budget(world, sources):
    out = run(world, sources, [commerce.kab("KAB3", "ml")], [0.3], repetitions=range(6))
    expected = 0.3 * len(world) * SCORED
    assert abs(out.crawls.mean() - expected) < 4.0 * np.sqrt(expected / 6)


def test_a_bandit_with_two_equal_arms_is_that_arm(world, sources):
    arm = Arm("click-weighted", "ml")
    twin = Strategy("twin", (arm, arm), bandits.Exp3())
    out = run(world, sources, [Strategy("one", (arm,)), twin], [0.2])
    np.testing.assert_array_equal(out.click_freshness[0], out.click_freshness[1])
    np.testing.assert_array_equal(out.crawls[0], out.crawls[1])


def test_uniform_freshness_is_that_of_memoryless_crawling():
    still = offers.generate(300, 41, 4)
    rate = np.random.default_rng(1).gamma(1.0, 0.3, 300)
    hourly = np.random.default_rng(2).random(still.changed.shape) < -np.expm1(-rate / 24)
    world = dataclasses.replace(still, changed=hourly)
    out = run(world, {}, [single("uniform")], [0.4], first_day=1, warm_up_days=20, repetitions=range(8))
    # Steps of two hours in the order change, crawl, read (probabilities rho and D of a step).
    rho, d = 0.4 / 12, -np.expm1(-rate / 12)
    expected = np.mean(rho / (rho + d - rho * d))
    values = out.offer_freshness[0, 0]
    # Days follow each other closely, so the error is that of one day of all offers in one history.
    assert abs(values.mean() - expected) < 4.0 * np.sqrt(expected * (1 - expected) / 300 / 5)


def test_offers_without_a_crawl_stay_stale_or_as_fresh_as_they_were(world, sources):
    nothing = Parameters.of(*[np.zeros(len(world))] * 3)
    for start in (False, True):
        out = run(world, {"no": lambda day: nothing}, [single("click-weighted", "no")], [0.5],
                  copies_at_start=start)  # fmt: skip
        assert out.crawls.sum() == 0
        if not start:
            assert (out.offer_freshness == 0.0).all()
        else:
            unchanged = ~world.changed[FIRST * 24 :].any(axis=0)
            assert out.offer_freshness[0, 0, 0, -1] == pytest.approx(unchanged.mean())


def test_repetitions_do_not_depend_on_each_other_or_on_other_strategies(world, sources):
    alone = run(world, sources, [commerce.kab("KAB4", "ml")], [0.2], repetitions=[2])
    among = run(world, sources, [single("uniform"), commerce.kab("KAB4", "ml")], [0.1, 0.2])
    np.testing.assert_array_equal(alone.click_freshness[0, 0, 0], among.click_freshness[1, 1, 2])
    np.testing.assert_array_equal(alone.arm_probability["KAB4"][0, 0], among.arm_probability["KAB4"][1, 2])


def test_parameters_know_the_days_before_only(world):
    later = dataclasses.replace(
        world,
        changed=np.concatenate([world.changed[: 10 * 24], ~world.changed[10 * 24 :]]),
        clicks=np.concatenate([world.clicks[:10], world.clicks[10:] + 5]),
        impressions=np.concatenate([world.impressions[:10], world.impressions[10:] + 5]),
    )
    for make in (commerce.history_averages, commerce.learned):
        one, other = make(world)(10), make(later)(10)
        for field in dataclasses.fields(one):
            np.testing.assert_array_equal(getattr(one, field.name), getattr(other, field.name))


def test_history_is_the_average_of_thirty_days():
    world = offers.generate(50, 40, 6)
    found = commerce.history_averages(world)(35)
    np.testing.assert_allclose(found.click_rate_per_day, world.clicks[5:35].mean(axis=0))
    np.testing.assert_allclose(found.change_rate_per_day, world.changes_per_day()[5:35].mean(axis=0))
    floored = commerce.history_averages(world, floor_per_day=0.01)(35)
    np.testing.assert_allclose(floored.click_rate_per_day, np.maximum(found.click_rate_per_day, 0.01))


def test_learned_parameters_are_probabilities(world):
    plain = commerce.learned(world)(10)
    for p in (plain.click_rate_per_day, plain.impression_rate_per_day):
        assert (p > 0.0).all() and (p < 1.0).all()
    np.testing.assert_allclose(plain.change_weight, -np.expm1(-plain.change_rate_per_day), rtol=1e-9)


def test_metadata_only_tells_offers_of_a_merchant_not_apart(world):
    found = commerce.learned(world, metadata_only=True)(10)
    own = commerce.learned(world)(10)
    for merchant in np.unique(world.merchant)[:5]:
        of = world.merchant == merchant
        assert np.ptp(found.click_rate_per_day[of]) == 0.0
        assert found.change_weight[of][0] == pytest.approx(own.change_weight[of].mean())


def test_wrong_arguments_are_named(world, sources):
    with pytest.raises(ValueError, match="history before day"):
        run(world, sources, [single("uniform")], [0.1], first_day=0)
    with pytest.raises(ValueError, match="called dnn"):
        run(world, sources, [single("click-weighted", "dnn")], [0.1])
    with pytest.raises(ValueError, match="KAB9"):
        commerce.kab("KAB9", "ml")
    with pytest.raises(ValueError, match="bandit needs two"):
        Strategy("x", (Arm("uniform"), Arm("uniform")))
    with pytest.raises(ValueError, match="unknown reward"):
        commerce.kab("KAB2", "ml", reward="joy")
