"""Intervals and tests against known values, and errors against what repeating the experiment shows."""

import numpy as np
import pytest

from policies.simulation.statistics import against, over_pages, paired, summary


def rng(key: int) -> np.random.Generator:
    return np.random.Generator(np.random.Philox(key=key))


def test_summary_of_known_values() -> None:
    found = summary(np.arange(1.0, 11.0))
    assert (found.repetitions, found.mean, found.median) == (10, 5.5, 5.5)
    assert found.standard_error == pytest.approx(np.std(np.arange(10), ddof=1) / np.sqrt(10))
    # Binomial(10, 1/2): the second and ninth of ten bound the median with 97.9 %.
    assert (found.low, found.high) == (2, 9)


def test_few_repetitions_do_not_bound_the_median() -> None:
    found = summary(np.array([1.0, 2.0, 3.0]))
    assert (found.low, found.high) == (-np.inf, np.inf)
    assert np.isnan(summary(np.array([1.0])).standard_error)


def test_intervals_of_medians_cover() -> None:
    draws = rng(1).lognormal(0, 1, (400, 25))
    inside = np.mean([s.low <= 1 <= s.high for s in map(summary, draws)])
    assert 0.95 - 3 * np.sqrt(0.05 * 0.95 / 400) < inside <= 1


def test_pairs_of_known_values() -> None:
    one, two = np.array([3.0, 5.0, 4.0, 6.0, 9.0]), np.array([2.0, 3.0, 1.0, 2.0, 4.0])
    found = paired(one, two)
    assert (found.mean, found.median, found.wins) == (3, 3, 5)
    assert found.standard_error == pytest.approx(np.sqrt(2.5 / 5))
    assert found.p_value == pytest.approx(2 / 2**5)  # all signs alike: one of 32 on either side
    assert paired(one, one).p_value == 1


def test_pairs_see_what_single_policies_hide() -> None:
    draw = rng(2)
    common = draw.normal(0, 10, 40)
    values = {"a": common + draw.normal(0.5, 0.2, 40), "b": common, "c": common + draw.normal(0, 0.2, 40)}
    found = against(values, "b")
    assert set(found) == {"a", "c"}
    assert found["a"].p_value < 1e-6
    assert found["c"].p_value > 0.01
    assert abs(found["a"].mean - 0.5) < 3 * found["a"].standard_error


@pytest.mark.parametrize("clustered", [False, True])
def test_errors_over_pages_are_those_of_other_pages(clustered: bool) -> None:
    n, repeated = 300, 300
    draw = rng(3)
    values, errors = [], []
    cluster = np.arange(n) // 5 if clustered else None
    for _ in range(repeated):
        common = np.repeat(draw.uniform(0, 1, n // 5), 5) if clustered else draw.uniform(0, 1, n)
        held = draw.uniform(1, 3, n)
        weight = draw.lognormal(0, 0.5, n)
        value, error = over_pages(common * held, held, weight, cluster=cluster)
        values.append(value)
        errors.append(error)
    assert np.mean(errors) == pytest.approx(np.std(values), rel=0.15)


def test_differences_over_pages() -> None:
    draw = rng(4)
    held, weight = draw.uniform(1, 3, 50), draw.lognormal(0, 1, 50)
    fresh = held * draw.uniform(0, 1, 50)
    one, other = over_pages(fresh, held, weight)[0], over_pages(0.5 * held, held, weight)[0]
    value, error = over_pages(fresh, held, weight, other=0.5 * held)
    assert value == pytest.approx(one - other)
    assert error > 0
    assert over_pages(fresh, held, weight, other=fresh) == (0, 0)
    assert np.isnan(over_pages(fresh[:1], held[:1])[1])


def test_what_cannot_be_compared() -> None:
    with pytest.raises(ValueError, match="3 repetitions against 2"):
        paired(np.ones(3), np.ones(2))
    with pytest.raises(ValueError, match="'x' is not among a, b"):
        against({"a": np.ones(2), "b": np.ones(2)}, "x")
    with pytest.raises(ValueError, match="1 of them NaN"):
        summary(np.array([1.0, np.nan]))
    with pytest.raises(ValueError, match="nothing to average"):
        over_pages(np.zeros(2), np.zeros(2))
