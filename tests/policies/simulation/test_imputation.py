"""Changes between two crawls, given that there was one: how many, when, and what stays as it was."""

import numpy as np
import pytest
from scipy import stats

from policies.history.page_state import US_PER_DAY
from policies.numerics.typing_ import IntArray
from policies.simulation.imputation import MOST_EXPECTED, changes

N = 20_000


def gaps(n: int, days: float, age_days: float = 0.0, seed: int = 0) -> tuple[IntArray, ...]:
    """Keys, ends, lengths and ages of alike gaps."""
    rng = np.random.Generator(np.random.Philox(key=seed))
    key = rng.integers(0, 2**64, n, dtype=np.uint64)
    at = np.full(n, 20_600 * US_PER_DAY) + np.arange(n)
    return key, at, np.full(n, round(days * US_PER_DAY)), np.full(n, round(age_days * US_PER_DAY))


@pytest.mark.parametrize("expected", [0.01, 0.7, 5.0, 60.0])
def test_numbers_are_poisson_given_that_there_is_one(expected: float) -> None:
    key, at, gap, age = gaps(N, 4.0)
    row, when, seen = changes(key, at, gap, age, np.full(N, expected / 4.0), seed=1)
    count = np.bincount(row, minlength=N)
    assert count.min() >= 1 and seen.sum() == N
    mean = expected / -np.expm1(-expected)
    spread = mean * (1 + expected - mean)
    assert abs(count.mean() - mean) < 4 * np.sqrt(spread / N)
    fourth = ((count - mean) ** 4).mean()
    assert abs(count.var() - spread) < 4 * np.sqrt((fourth - spread**2) / N) + 1e-12
    # Given their number they are uniform in the gap.
    some = np.random.Generator(np.random.Philox(key=9)).permutation(len(row))[:N]
    place = ((at[row] - when) / gap[row])[some]
    assert stats.kstest(place, "uniform").pvalue > 1e-3


def test_a_dated_change_is_the_last_and_those_before_it_know_nothing_of_it() -> None:
    rate, gap_days, age_days = 0.6, 5.0, 2.0
    key, at, gap, age = gaps(N, gap_days, age_days)
    row, when, seen = changes(key, at, gap, age, np.full(N, rate), seed=2)
    last = np.full(N, np.iinfo(np.int64).min)
    np.maximum.at(last, row, when)
    assert (last == at - age).all() and (when[seen] == at - age).all()
    earlier = np.bincount(row, minlength=N) - 1
    mean = rate * (gap_days - age_days)
    assert abs(earlier.mean() - mean) < 4 * np.sqrt(mean / N)
    assert abs(earlier.var() - mean) < 4 * np.sqrt((mean + 2 * mean**2) / N)


def test_all_lie_in_their_gaps_in_order() -> None:
    rng = np.random.Generator(np.random.Philox(key=4))
    key, at, _, _ = gaps(N, 1.0)
    gap = (60e6 + rng.gamma(0.3, 20.0, N) * US_PER_DAY).astype(np.int64)
    age = np.where(rng.random(N) < 0.5, (gap * rng.random(N)).astype(np.int64), 0)
    row, when, seen = changes(key, at, gap, age, rng.gamma(0.2, 5.0, N) + 1e-9, seed=5)
    assert (when > (at - gap)[row]).all() and (when <= at[row]).all()
    assert (np.diff(row) >= 0).all() and (np.diff(when)[np.diff(row) == 0] >= 0).all()
    assert (np.bincount(row[seen], minlength=N) == 1).all()


def test_draws_depend_on_page_gap_and_seed_only() -> None:
    key, at, gap, age = gaps(500, 6.0)
    rate = np.linspace(0.01, 2.0, 500)
    row, when, _ = changes(key, at, gap, age, rate, seed=7)
    some = np.random.Generator(np.random.Philox(key=1)).permutation(500)[:200]
    other_row, other, _ = changes(key[some], at[some], gap[some], age[some], rate[some], seed=7)
    for k in range(0, 200, 13):
        assert other[other_row == k].tolist() == when[row == some[k]].tolist()
    assert not np.isin(changes(key, at, gap, age, rate, seed=8)[1], when).any()
    assert not np.isin(changes(key, at + 1, gap, age, rate, seed=7)[1], when).any()


def test_a_page_that_changes_all_the_time_takes_no_more_memory_than_is_said() -> None:
    key, at, gap, age = gaps(200, 300.0)
    row, _, _ = changes(key, at, gap, age, np.full(200, 1e6), seed=0)
    assert np.bincount(row).mean() == pytest.approx(MOST_EXPECTED, rel=0.03)
    assert [len(part) for part in changes(key[:0], at[:0], gap[:0], age[:0], np.zeros(0), seed=0)] == [
        0,
        0,
        0,
    ]
