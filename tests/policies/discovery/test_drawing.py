"""Scores that are drawn by source and hour: of the posterior, the same in any batch, and spent as chosen."""

import numpy as np
import pytest
from scipy import stats

from policies.discovery.drawing import Drawn, HourlyYields
from policies.discovery.pricing import ROUNDS, Bracket, choose
from policies.discovery.sums import Visits

BEGIN = 490_000.0
KEYS = np.random.Generator(np.random.Philox(key=7)).integers(1, 2**63, 4000).astype(np.uint64)


def yields(n: int = len(KEYS)) -> HourlyYields:
    """All sources the same, but for their hours: (3 h + 1) new links in h + 2 visits."""
    made = HourlyYields(n)
    made.new += 3 * np.arange(24) + 1
    made.visits += np.arange(24) + 2
    return made


def drawn(of: HourlyYields, hours: float = 24.0, begin: float = BEGIN, rows: slice = slice(None)) -> Drawn:
    key = KEYS[: len(of.new)][rows]
    part = HourlyYields(len(key))
    part.new, part.visits = of.new[rows], of.visits[rows]
    return Drawn.of(part, key, (begin, begin + hours), 1.0, np.zeros(len(key)))


def test_draws_follow_the_posterior_of_their_hour_and_do_not_hang_together() -> None:
    """Gamma(1 + new, 1 + visits), Schulam and Muslea 2023, Figure 1."""
    made = drawn(yields())
    for step in range(24):
        hour = int(BEGIN + step) % 24
        score = made.score[:, step]
        law = stats.gamma(3 * hour + 2, scale=1.0 / (hour + 3))
        assert stats.kstest(score[np.isfinite(score)], law.cdf).pvalue > 1e-4
    rank = stats.rankdata(made.score, axis=0)
    between = np.corrcoef(rank, rowvar=False)[np.triu_indices(24, 1)]
    assert np.abs(between).max() < 4.5 / np.sqrt(len(KEYS))


def test_batches_and_nights_draw_the_same() -> None:
    whole = drawn(yields())
    for rows in (slice(0, 1), slice(1, 1500), slice(1500, None)):
        part = drawn(yields(), rows=rows)
        assert (part.score == whole.score[rows]).all() and (part.due == whole.due[rows]).all()
    # A day is its hours one by one, wherever these are cut.
    late = drawn(yields(), hours=5.5, begin=BEGIN + 3.0)
    last = np.isfinite(late.score[:, -1])
    assert (late.score[:, :5] == whole.score[:, 3:8]).all()
    assert (late.score[last, 5] == whole.score[last, 8]).all() and 0.45 < last.mean() < 0.55
    other = drawn(yields(), begin=BEGIN + 24.0)
    assert not (other.score == whole.score).any()


def test_who_may_not_be_asked_yet_is_not_and_refreshes_are_steps_apart() -> None:
    key, n = KEYS[:500], 500
    at_least = np.linspace(-5.0, 30.0, n)
    made = Drawn.of(yields(n), key, (BEGIN, BEGIN + 24.0), 2.5, at_least)
    each, host = np.array([0, n]), np.array([1 << 40])
    chosen = choose(made, Bracket(1e-10, 1e-9), 0, key, each, host)
    got = made.instants(chosen, key, 100.0)
    assert (got.due >= at_least[got.row] - 1e-9).all() and (np.diff(got.due) >= 0.0).all()
    assert (chosen.count[at_least >= 24.0] == 0).all() and chosen.count.max() >= 9
    by_source = np.lexsort((got.due, got.row))
    same = np.diff(got.row[by_source]) == 0
    # Instants give way to each other by minutes.
    assert (np.diff(got.due[by_source])[same] > 2.4).all()


@pytest.mark.parametrize("refreshes", [0, 1, 999, 20_000])
@pytest.mark.parametrize("learned", [False, True])
def test_a_budget_is_spent_on_the_highest_draws_within_hosts(refreshes: int, learned: bool) -> None:
    made = drawn(yields() if learned else HourlyYields(len(KEYS)))
    start = np.append(0, np.arange(5, 4001, 5))
    most = np.where(np.arange(800) % 50 == 0, 2, 1 << 40)
    bracket = Bracket()
    for _ in range(ROUNDS):
        low, high = bracket.around(made.totals(bracket.prices(), start, most), refreshes)
        bracket = Bracket(bracket.prices()[low], bracket.prices()[high])
    extra = refreshes - int(made.totals(bracket.prices(), start, most)[-1])
    chosen = choose(made, bracket, extra, KEYS, start, most)
    got = made.instants(chosen, KEYS, 2.0)
    assert len(got.row) == chosen.count.sum() == refreshes
    assert (np.add.reduceat(chosen.count, start[:-1]) <= most).all()
    free = np.repeat(most, np.diff(start)) > 2
    if refreshes:
        worst = got.worth[free[got.row]].min(initial=np.inf)
        assert ((made.score[free] > worst * 1.001).sum(axis=1) <= chosen.count[free]).all()


def test_yields_are_of_their_hours_and_nights_are_cut_anywhere() -> None:
    rng = np.random.Generator(np.random.Philox(key=1))
    source, at = np.repeat(np.arange(5), 40), np.tile(3600 * np.arange(40) + 1_767_052_800, 5)
    ok, new, none = rng.random(200) < 0.8, rng.integers(0, 9, 200), np.zeros(200, np.int64)
    every = (source, at, ok, none, new * ok, none, none)
    whole, parts = HourlyYields(5), HourlyYields(5)
    whole.learn(Visits(*every))
    for some in (at < at[7], at >= at[7]):
        parts.learn(Visits(*(x[some] for x in every)))
    assert (whole.new == parts.new).all() and (whole.visits == parts.visits).all()
    assert whole.visits.sum() == ok.sum() and whole.new.sum() == (new * ok).sum()
    third = (source == 2) & ok & (at // 3600 % 24 == 3)
    assert whole.visits[2, 3] == third.sum() == whole.visits[2, 3] and whole.new[2, 3] == new[third].sum()
