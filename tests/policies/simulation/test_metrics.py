"""Freshness against times counted by hand, against a slow clock, and against theory."""

import numpy as np
import pytest

from policies.history.page_state import US_PER_DAY
from policies.numerics.typing_ import FloatArray, IntArray
from policies.objectives.objectives import get
from policies.simulation import metrics
from policies.simulation.histories import NEVER, ChangeHistory

START = 20_000 * US_PER_DAY


def rng(key: int) -> np.random.Generator:
    return np.random.Generator(np.random.Philox(key=key))


def at(*days: float) -> IntArray:
    return START + np.array([round(d * US_PER_DAY) for d in days], np.int64)


def by_hand() -> tuple[ChangeHistory, IntArray, IntArray]:
    """Three pages, four days; page 2 appears on the second day and is never crawled."""
    history = ChangeHistory.from_events(
        START,
        START + 4 * US_PER_DAY,
        at(-1, 0, 1),
        np.array([0, 0, 0, 1]),
        at(0.5, 1.25, 1.5, 2.5),
        np.array([1, 2, 1, 1]),
    )
    page, when = metrics.sort_crawls(np.array([1, 0, 0, 0]), at(0, 2.25, -0.5, 1.0))
    return history, page, when


def test_days_of_fresh_copies() -> None:
    history, page, when = by_hand()
    # Page 0: until 0.5, from 1 to 1.25, from 2.25 on. Page 1: until 2.5.
    fresh = metrics.fresh_days(history, page, when, START, history.end_us)
    assert fresh == pytest.approx([0.5 + 0.25 + 1.75, 2.5, 0])
    held = history.held_days(START, history.end_us)
    assert held.tolist() == [4, 4, 3]
    draws = np.array([[1.0, 1.0, 1.0], [1.0, 3.0, 0.0]])
    assert metrics.weighted(fresh, held) == pytest.approx(5 / 11)
    assert metrics.weighted(fresh, held, draws) == pytest.approx([5 / 11, 10 / 16])
    assert metrics.fresh_until(history, page, when).tolist() == [*at(0.5, 1.25), NEVER, *at(2.5)]


def test_days_by_period_and_group() -> None:
    history, page, when = by_hand()
    fresh, held = metrics.by_period(
        history, page, when, at(0, 1, 2, 4), np.array([1.0, 10.0, 100.0]), np.array([0, 1, 1])
    )
    assert fresh == pytest.approx(np.array([[0.5, 10], [0.25, 10], [1.75, 5]]))
    assert held == pytest.approx(np.array([[1, 10], [1, 110], [2, 220]]))


def test_a_crawl_at_the_instant_of_a_change_has_seen_it() -> None:
    history = ChangeHistory.from_events(
        START, START + 4 * US_PER_DAY, at(-1), np.array([0, 0]), at(1, 3), np.array([1, 2])
    )
    cost = metrics.harmonic_cost(history, np.array([0, 0]), at(0, 1), START, history.end_us)
    assert cost.tolist() == [1.0]  # a day behind by the second change


def test_harmonic_cost_by_hand() -> None:
    history, page, when = by_hand()
    # Page 0: 0.5 to 1 behind by one; 1.25 to 1.5 by one, 1.5 to 2.25 by two. Page 1: from 2.5 on by one.
    cost = metrics.harmonic_cost(history, page, when, START, history.end_us)
    assert cost == pytest.approx([0.5 + 0.25 + 0.75 * 1.5, 1.5, 0])
    late = metrics.harmonic_cost(history, page, when, int(at(2)[0]), int(at(3)[0]))
    assert late == pytest.approx([0.25 * 1.5, 0.5, 0])


def test_resource_use_by_hand() -> None:
    history, page, when = by_hand()
    use = metrics.resource_use(history, page, when, START, history.end_us)
    # The crawl at the window's start does not count; that at 2.25 finds what the crawl at 1 had found.
    assert (use.crawls, use.found, use.pages) == (2, 1, 1)
    assert use.per_page_day == pytest.approx(2 / 11)


def random_run(seed: int, n: int = 5) -> tuple[ChangeHistory, IntArray, IntArray]:
    draw = rng(seed)
    first = START + draw.integers(-3, 10, n) * US_PER_DAY
    history = ChangeHistory.poisson(START, START + 20 * US_PER_DAY, np.full(n, 0.5), draw, first)
    page = draw.integers(0, n, 60)
    return history, *metrics.sort_crawls(page, first[page] + draw.integers(0, 20, 60) * (US_PER_DAY // 2))


def slow(
    history: ChangeHistory, page: IntArray, when: IntArray, step_us: int
) -> tuple[FloatArray, FloatArray]:
    """Freshness and changes missed, looked at in steps, with plain loops; days."""
    fresh, cost = np.zeros(len(history)), np.zeros(len(history))
    for now in range(history.start_us + step_us // 2, history.end_us, step_us):
        for p in range(len(history)):
            crawls = when[(page == p) & (when <= now)]
            if len(crawls):
                times = history.change_us[history.change_page == p]
                missed = int(((times > crawls.max()) & (times <= now)).sum())
                fresh[p] += (missed == 0) * step_us / US_PER_DAY
                cost[p] += sum(1 / k for k in range(1, missed + 1)) * step_us / US_PER_DAY
    return fresh, cost


@pytest.mark.parametrize("seed", range(3))
def test_against_a_slow_clock(seed: int) -> None:
    history, page, when = random_run(seed)
    step = US_PER_DAY // 24
    fresh, cost = slow(history, page, when, step)
    events = len(page) + len(history.change_us)
    error = 0.5 / 24 * events / len(history) * 2
    assert metrics.fresh_days(history, page, when, START, history.end_us) == pytest.approx(fresh, abs=error)
    assert metrics.harmonic_cost(history, page, when, START, history.end_us) == pytest.approx(cost, abs=error)


@pytest.mark.parametrize("seed", range(3))
def test_periods_add_up_to_the_whole(seed: int) -> None:
    history, page, when = random_run(seed)
    edges = np.linspace(START, history.end_us, 14).astype(np.int64)
    fresh, held = metrics.by_period(history, page, when, edges, group=np.arange(len(history)))
    assert fresh.sum(axis=0) == pytest.approx(metrics.fresh_days(history, page, when, START, history.end_us))
    assert held.sum(axis=0) == pytest.approx(history.held_days(START, history.end_us))


def test_periodic_crawls_are_as_fresh_as_theory_says() -> None:
    n, days, gap = 400, 400, 4
    rate = np.full(n, 0.3)
    history = ChangeHistory.poisson(START, START + days * US_PER_DAY, rate, rng(5))
    page = np.repeat(np.arange(n), days // gap)
    when = START + np.tile(np.arange(0, days, gap), n) * US_PER_DAY
    share = metrics.fresh_days(history, page, when, START, history.end_us) / days
    theory = get("periodic").freshness(np.full(1, 1 / gap), rate[:1])[0]
    assert abs(share.mean() - theory) < 3 * share.std(ddof=1) / np.sqrt(n)


def test_no_crawls_and_no_pages() -> None:
    history, _, _ = by_hand()
    none = np.zeros(0, np.int64)
    assert metrics.fresh_days(history, none, none, START, history.end_us).tolist() == [0, 0, 0]
    assert metrics.harmonic_cost(history, none, none, START, history.end_us).tolist() == [0, 0, 0]
    assert metrics.resource_use(history, none, none, START, history.end_us).crawls == 0
    with pytest.raises(ValueError, match="nothing to average"):
        metrics.weighted(np.zeros(3), history.held_days(START, history.end_us), np.zeros(3))


def test_zipf_weights_are_a_shuffled_law_of_mean_one() -> None:
    one, other = (metrics.zipf_weights(100, seed) for seed in (7, 8))
    assert one.mean() == pytest.approx(1)
    assert np.sort(one) / one.max() == pytest.approx(np.sort(1 / np.arange(1, 101)))
    assert not np.array_equal(one, other)


def test_sums_do_not_depend_on_how_many_threads_blas_has() -> None:
    """A sum of products in any other order would differ in its last digits."""
    rng = np.random.Generator(np.random.Philox(key=4))
    weight, held = rng.random((2, 60_000)) + 0.1
    fresh = held * rng.random(60_000)
    found = metrics.weighted(fresh, held, weight)
    assert found == (weight * fresh).sum() / (weight * held).sum()
    assert (metrics.weighted(fresh, held, weight[None, :]) == found).all()
