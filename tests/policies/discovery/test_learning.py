"""What is learned of sources: against likelihoods, laws and cases worked out by hand."""

import numpy as np
import pytest
from scipy import integrate, optimize

from policies.discovery.answers import Answers, alive_failures
from policies.discovery.hours import DayHours
from policies.discovery.items import Seen
from policies.discovery.lifetimes import (
    CLASS_HOURS,
    Lifetimes,
    MeanLifetimes,
    discounted,
    expected_there,
    hours_of_gone,
    worth_of_now,
)
from policies.discovery.picking import gammas, top, uniforms
from policies.discovery.planner import Planner
from policies.discovery.yields import Rates
from tests.policies.discovery.histories import items


def rng(key: int) -> np.random.Generator:
    return np.random.Generator(np.random.Philox(key=key))


def test_exposure_and_worth_are_the_integrals_they_say() -> None:
    share, tau = np.array([[0.3, 0.7]]), np.array([2.0, 15.0])
    for hours in (0.1, 1.0, 9.0, 200.0):
        stays = lambda age: float((share[0] * np.exp(-age / tau)).sum())  # noqa: E731
        exposure = integrate.quad(stays, 0.0, hours, epsabs=1e-12, limit=500)[0]
        d = np.array([hours])
        assert expected_there(share, d, tau)[0] == pytest.approx(exposure, rel=1e-8)
        assert worth_of_now(share, d, tau)[0] == pytest.approx(exposure - hours * stays(hours), rel=1e-7)
    never = np.array([np.inf])
    assert expected_there(share, never, tau)[0] == pytest.approx(0.3 * 2.0 + 0.7 * 15.0)
    assert discounted(np.array([4.0, 1e9]), 12.0) == pytest.approx([3.0, 12.0])


def test_the_waiting_index_is_the_price_at_which_that_interval_is_best() -> None:
    """Refreshed every D hours a source brings e(D) / D an hour less the price: D is best at its index."""
    tau, best = np.array([8.0]), 5.0
    price = worth_of_now(np.ones((1, 1)), np.array([best]), tau)[0]
    gain = lambda d: (expected_there(np.ones((1, 1)), np.array([d]), tau)[0] - price) / d  # noqa: E731
    found = optimize.minimize_scalar(lambda d: -gain(d), bounds=(0.1, 60.0), method="bounded")
    assert found.x == pytest.approx(best, rel=1e-4)


def test_the_mean_lifetime_goes_to_the_maximum_of_the_exact_likelihood() -> None:
    draw, truth = rng(1), 6.0
    hours = draw.choice([1.0, 2.0, 5.0, 12.0], 3000)
    held = draw.poisson(8.0, len(hours))
    kept = draw.binomial(held, np.exp(-hours / truth))

    def unlikely(log_tau: float) -> float:
        p = np.exp(-hours / np.exp(log_tau))
        return -float((kept * np.log(p) + (held - kept) * np.log1p(-p)).sum())

    exact = np.exp(optimize.minimize_scalar(unlikely, bounds=(-1.0, 5.0), method="bounded").x)
    learned = MeanLifetimes(items(1))
    for h, n, k in zip(hours, held, kept, strict=True):
        learned.learn(np.array([0]), np.array([n]), np.array([k]), np.array([h]))
    assert exact == pytest.approx(truth, rel=0.02)
    assert learned.mean_hours[0] == pytest.approx(exact, rel=0.02)


def test_hours_of_what_is_gone_are_those_of_a_truncated_exponential() -> None:
    for tau, hours in ((2.0, 1.0), (2.0, 30.0), (1e6, 1.0)):
        density = lambda t, tau=tau: np.exp(-t / tau)  # noqa: E731
        mass = integrate.quad(density, 0.0, hours)[0]
        mean = integrate.quad(lambda t, tau=tau: t * np.exp(-t / tau), 0.0, hours)[0] / mass
        assert hours_of_gone(np.array([tau]), np.array([hours]))[0] == pytest.approx(mean, rel=1e-5)


def test_the_mixture_is_found_although_what_goes_fast_is_seldom_seen() -> None:
    """Half of the links go within an hour or so, and of these a visit every three hours sees a third."""
    draw, n = rng(2), 40
    learned = Lifetimes(items(n))
    every = np.arange(n)
    before = np.full(n, np.inf)
    alive: list[np.ndarray] = [np.zeros(0)] * n  # when each young link goes
    for _ in range(400):
        gap = float(draw.choice([1.0, 3.0]))
        kept = np.array([int((a > gap).sum()) for a in alive])
        held = np.array([len(a) for a in alive])
        learned.learn(every, held, kept, before, np.full(n, gap))
        for s in range(n):
            count = draw.poisson(6.0 * gap)
            age = draw.random(count) * gap
            stay = draw.exponential(np.where(draw.random(count) < 0.5, 1.0, 27.0))
            alive[s] = (stay - age)[stay > age]
        before = np.full(n, gap)
    mean = learned.share.mean(axis=0)
    assert mean[CLASS_HOURS < 5.0].sum() == pytest.approx(0.5, abs=0.06)
    for hours in (1.0, 3.0, 10.0):
        found = expected_there(mean[None], np.array([hours]))[0]
        true = expected_there(np.array([[0.5, 0.5]]), np.array([hours]), np.array([1.0, 27.0]))[0]
        assert found == pytest.approx(true, rel=0.1), hours


def test_rates_are_gamma_poisson_and_the_prior_is_that_of_the_group() -> None:
    draw, n = rng(3), 4000
    truth = draw.gamma(0.8, 2.0, n)
    rates = Rates(items(n))
    rates.links[:] = 1.0
    exposure = draw.uniform(0.5, 6.0, n)
    rates.learn(np.arange(n), draw.poisson(truth * exposure), exposure)
    rates.fit_prior()
    assert rates.prior_mean[0] == pytest.approx(1.6, rel=0.08)
    assert rates.prior_shape[0] == pytest.approx(0.8, rel=0.2)
    shape, rate = rates.posterior()
    error = ((shape / rate - truth) ** 2).mean()
    assert error < 0.9 * ((rates.new / exposure - truth) ** 2).mean()


def test_what_was_never_seen_is_thought_of_as_the_others_are() -> None:
    rates = Rates(items(5))
    rates.links[:4] = [4.0, 4.0, 16.0, 16.0]
    rates.learn(np.arange(4), np.array([20, 20, 40, 40]), np.full(4, 10.0))
    rates.fit_prior()
    # 2 an hour with 4 links, 4 with 16: as the square root of links; an unseen one has the mean of these.
    assert rates.prior_mean == pytest.approx([2.0, 2.0, 4.0, 4.0, 3.0], rel=1e-3)


def test_a_failure_is_no_evidence_of_a_yield() -> None:
    planner = Planner(items(2))
    none = np.zeros(0, np.int64)
    nothing = Seen(none, np.zeros(0), none, none, np.zeros(0), none, none)
    due = np.full(2, np.inf)
    for step in range(10):
        planner.pick(step, step + 1.0, due)
        planner.learn(step, step + 1.0, nothing)
    assert not planner.rates.exposure_hours.any() and not planner.lifetimes.count.any()
    shape, rate = planner.rates.posterior()
    assert (shape / rate == 1.0).all()


def asked(pattern: str) -> Answers:
    """A source after hours in which it was asked and answered (+), failed (-) or was not asked (blank)."""
    answers, one, none = Answers(items(1)), np.array([0]), np.zeros(0, np.int64)
    for hour, sign in enumerate(pattern):
        if sign != " ":
            answers.learn(one, one if sign == "+" else none, float(hour))
    return answers


def test_what_is_gone_is_asked_ever_less_and_is_back_at_once() -> None:
    worth = lambda pattern, later: asked(pattern).worth(len(pattern) - 1.0 + later)[0]  # noqa: E731
    assert worth("+" * 30, 1.0) > 0.95
    gone = "+" * 30 + "-" * 24
    assert worth(gone, 1.0) < 0.01
    assert worth(gone, 24.0) > 20.0 * worth(gone, 1.0)
    assert worth(gone + "+", 1.0) > 0.9
    assert worth(gone + "+" * 24, 1.0) > 0.6
    assert worth("-" * 100, 1.0) < 1e-3
    # One that answers every fourth time is not gone after four failures.
    assert worth("+---" * 30, 1.0) > 0.15


def test_the_worth_of_knowing_that_a_source_is_back_is_the_price_at_which_that_distance_is_best() -> None:
    gone = asked("+" * 30 + "-" * 49)  # 48 hours
    hours = np.geomspace(1.0, 4000.0, 1000)
    lost = np.array([integrate.quad(lambda u: u / (u + 48.0), 0.0, h)[0] for h in hours])
    for at in (150, 400, 750):
        price = gone.unread(78.0 + hours[at])[0] / gone.usual[0]
        best = hours[((price + lost) / hours).argmin()]
        assert best == pytest.approx(hours[at], rel=0.02)
    assert asked("+" * 30).unread(40.0)[0] == 0.0


def test_failures_count_as_far_as_the_source_was_alive() -> None:
    count = lambda failures, usual, away, since: float(  # noqa: E731
        alive_failures(*(np.array([float(x)]) for x in (failures, usual, away, since)))[0]
    )
    assert count(0, 0.9, 0.0, 1.0) == 0.0
    # Alive: 0.1^2; gone, and back within 2 of 10 hours: GONE / 5.
    assert count(2, 0.9, 8.0, 2.0) == pytest.approx(2 * 0.01 / (0.01 + 0.001 * 0.2))
    assert count(9, 0.25, 8.0, 2.0) > 8.9 and count(9, 0.9, 8.0, 2.0) < 0.01
    # Away for two months, it is as before; who answers every fourth time does so later, too.
    assert asked("+" * 30 + "-" * 1440 + "+").usual[0] > 0.95
    assert asked("+---" * 30 + "+").usual[0] < 0.4


def test_the_clock_of_a_source_finds_the_hour_of_its_batch() -> None:
    one, day = np.array([0]), DayHours(items(1))
    for hour in range(6, 24 * 30, 6):  # visited every six hours; 12 links a day come between 8 and 9
        new = 12 if (hour - 12) % 24 == 0 else 0
        day.learn(one, float(hour), np.array([6.0]), np.array([new]), np.array([0.5]))
        day.fit()
    assert day.speed.mean() == pytest.approx(1.0)
    assert day.speed[0, 6:12].mean() > 3.0 and day.speed[0, 12:].mean() < 0.6
    # A whole day has 24 hours by any clock.
    assert day.elapsed(one, 100.5, np.array([48.0])) == pytest.approx([48.0])
    assert day.elapsed(one, 36.0, np.array([6.0]))[0] > 3.0 * day.elapsed(one, 42.0, np.array([6.0]))[0]
    assert np.isinf(day.elapsed(one, 36.0, np.array([np.inf])))


def test_draws_are_keyed_by_source_and_step() -> None:
    key, seed = np.arange(20_000, dtype=np.uint64), np.full(20_000, 7, np.uint64)
    drawn = uniforms(key, seed, 3, 1)
    assert np.array_equal(drawn[500:], uniforms(key[500:], seed[500:], 3, 1))
    assert abs(drawn.mean() - 0.5) < 0.01 and abs(np.corrcoef(drawn, uniforms(key, seed, 4, 1))[0, 1]) < 0.03
    g = gammas(np.full(len(key), 3.0), np.full(len(key), 2.0), drawn)
    assert g.mean() == pytest.approx(1.5, rel=0.02) and g.var() == pytest.approx(0.75, rel=0.06)


def test_the_best_of_each_group_are_picked() -> None:
    score = np.array([1.0, 3.0, 3.0, -np.inf, 2.0, 5.0])
    tie, group = np.array([0.0, 0.9, 0.1, 0.0, 0.0, 0.0]), np.array([0, 0, 0, 1, 1, 1])
    assert top(score, tie, group, np.array([1, 3])).tolist() == [2, 4, 5]
    assert top(score, tie, group, np.array([2, 1])).tolist() == [1, 2, 5]
