import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal

from policies.history.evidence import Evidence, bin_of, effective, empty, forgetting_weights, from_intervals
from tests.policies.joined import concatenate

FIELDS = ("exposure_days", "dated_changes", "bin_start", "bin_weight", "bin_days", "bin_days_squared")


def assert_same(a: Evidence, b: Evidence) -> None:
    for name in FIELDS:
        assert_array_equal(getattr(a, name), getattr(b, name), err_msg=name)


def random_intervals(seed: int, n_pages: int = 30, k: int = 400) -> tuple[np.ndarray, ...]:
    rng = np.random.Generator(np.random.Philox(key=seed))
    gap = rng.exponential(2.0, k) + 1e-4
    age = np.where(rng.random(k) < 0.3, gap * rng.random(k), np.nan)
    return rng.integers(0, n_pages, k), gap, rng.random(k) < 0.4, age


@settings(deadline=None, max_examples=80)
@given(st.floats(1e-290, 1e290))
def test_bin_holds_its_gap(minutes: float) -> None:
    k = int(bin_of(np.array([minutes]))[0])
    low = 2.0 ** (k // 2) * (1.0 if k % 2 == 0 else 1.5)
    high = 2.0 ** (k // 2) * (1.5 if k % 2 == 0 else 2.0)
    assert low <= minutes < high


def test_bin_edges() -> None:
    minutes = np.array([1.0, 1.5, 2.0, 3.0, 0.75, 0.5, np.nextafter(2.0, 0.0), 1440.0])
    assert_array_equal(bin_of(minutes), [0, 1, 2, 3, -1, -2, 1, 20])
    assert bin_of(minutes).dtype == np.int32


def test_bins_keep_the_three_sums_and_the_exposure() -> None:
    page, gap, changed, age = random_intervals(1)
    e = from_intervals(page, gap, changed, age, n_pages=30)
    dated = changed & ~np.isnan(age)
    undated = changed & np.isnan(age)
    for i in range(30):
        own, bins = page == i, slice(e.bin_start[i], e.bin_start[i + 1])
        exposure = gap[own & ~changed].sum() + age[own & dated].sum()
        assert_allclose(e.exposure_days[i], exposure, rtol=1e-14)
        assert e.dated_changes[i] == np.count_nonzero(own & dated)
        assert e.bin_weight[bins].sum() == np.count_nonzero(own & undated)
        assert_allclose(e.bin_days[bins].sum(), gap[own & undated].sum(), rtol=1e-14)
        assert_allclose(e.bin_days_squared[bins].sum(), (gap[own & undated] ** 2).sum(), rtol=1e-14)
        assert e.bin_start[i + 1] - e.bin_start[i] == len(set(bin_of(gap[own & undated] * 1440.0)))
    assert_array_equal(e.changes(), np.bincount(page[changed], minlength=30))


def test_an_age_outside_its_gap_is_no_date() -> None:
    e = from_intervals(
        np.zeros(3, int), np.full(3, 2.0), np.full(3, True), np.array([3.0, -0.5, 2.0]), n_pages=1
    )
    assert (e.dated_changes[0], e.exposure_days[0], e.bin_weight.sum()) == (1.0, 2.0, 2.0)


def test_a_date_on_an_unchanged_gap_changes_nothing() -> None:
    with_age = from_intervals(np.zeros(1, int), np.array([2.0]), np.array([False]), np.array([1.0]))
    assert_same(with_age, from_intervals(np.zeros(1, int), np.array([2.0]), np.array([False])))


def test_take_and_concatenate_undo_each_other() -> None:
    page, gap, changed, age = random_intervals(2)
    whole = from_intervals(page, gap, changed, age, n_pages=30)
    parts = [whole.take(np.arange(a, b)) for a, b in ((0, 7), (7, 7), (7, 29), (29, 30))]
    assert_same(concatenate(parts), whole)
    mask = np.arange(30) % 3 == 0
    assert_same(whole.take(mask), whole.take(np.flatnonzero(mask)))
    order = np.random.Generator(np.random.Philox(key=3)).permutation(30)
    assert_same(whole.take(order).take(np.argsort(order)), whole)
    assert_same(concatenate([]), empty())
    assert len(empty(4).take(np.array([1, 1]))) == 2


def test_pages_do_not_touch_each_other() -> None:
    page, gap, changed, age = random_intervals(4)
    whole = from_intervals(page, gap, changed, age, n_pages=30)
    for i in (0, 13, 29):
        own = page == i
        assert_same(
            whole.take(np.array([i])), from_intervals(page[own] * 0, gap[own], changed[own], age[own])
        )


def test_forgetting_halves_after_so_many_changes() -> None:
    page = np.array([0, 1, 0, 0, 1, 0])
    changed = np.array([True, False, False, True, False, True])
    w = forgetting_weights(page, changed, 2.0)
    # Page 0: changes 1, 1, 2, 3 of 3. Page 1 never changed and forgets nothing.
    assert_allclose(w, [0.5, 1.0, 0.5, 2**-0.5, 1.0, 1.0])
    assert_array_equal(forgetting_weights(page, changed, np.inf), np.ones(6))
    assert len(forgetting_weights(page[:0], changed[:0], 2.0)) == 0


def test_effective_evidence_is_worth_what_its_mean_is() -> None:
    """Where a page changes at every visit: (sum w)^2 / sum w^2, and the same rates."""
    for n_changes in (1, 3, 50):
        page, changed = np.zeros(n_changes, int), np.ones(n_changes, bool)
        w = forgetting_weights(page, changed, 5.0)
        now = from_intervals(page, np.ones(n_changes), changed, weight=w)
        told = effective(now, np.array([n_changes], np.int32), 5.0)
        assert_allclose(told.bin_weight, [w.sum() ** 2 / (w**2).sum()])
        assert_allclose(told.bin_days / told.bin_weight, now.bin_days / now.bin_weight)
    assert_same(effective(now, np.array([50], np.int32), np.inf), now)


@pytest.mark.parametrize("gap", [0.0, -1.0, np.nan, np.inf])
def test_bad_gaps_are_refused(gap: float) -> None:
    with pytest.raises(ValueError, match="gaps"):
        from_intervals(np.zeros(2, int), np.array([1.0, gap]), np.array([True, False]))


def test_bad_shapes_and_values_are_refused() -> None:
    with pytest.raises(ValueError, match="page numbers"):
        from_intervals(np.array([0, 5]), np.ones(2), np.array([True, False]), n_pages=3)
    with pytest.raises(ValueError, match="half_life"):
        forgetting_weights(np.zeros(1, int), np.array([True]), 0.0)
    one = np.ones(1)
    with pytest.raises(ValueError, match="bin_start"):
        Evidence(one, one, np.array([0]), one, one, one)
    with pytest.raises(ValueError, match="bin_days"):
        Evidence(one, one, np.array([0, 1]), one, np.ones(2), one)
    with pytest.raises(ValueError, match=r"bin_weight\[0\] is nan"):
        Evidence(one, one, np.array([0, 1]), one * np.nan, one, one).check()
    with pytest.raises(ValueError, match="exposure_days"):
        Evidence(-one, one, np.array([0, 1]), one, one, one).check()
