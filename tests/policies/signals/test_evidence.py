import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from policies.signals.evidence import SignalEvidence, points
from tests.policies.signal_evidence import concatenate, empty, from_intervals, take


def random_evidence(seed: int, n: int = 50, k: int = 400, s: int = 2) -> SignalEvidence:
    rng = np.random.Generator(np.random.Philox(key=seed))
    return from_intervals(
        rng.integers(0, n, k),
        rng.exponential(1.0, k) + 1e-9,
        rng.integers(0, 3, (k, s)),
        rng.random(k) < 0.6,
        np.where(rng.random(k) < 0.3, rng.random(k), np.nan),
        rng.random(k),
        n_pages=n,
    )


def same(a: SignalEvidence, b: SignalEvidence) -> None:
    for name in SignalEvidence.__slots__:
        assert_array_equal(getattr(a, name), getattr(b, name), err_msg=name)


def test_intervals_land_where_the_model_says() -> None:
    page = np.array([1, 1, 1, 0, 1, 1, 1])
    gap = np.array([2.0, 3.0, 1.0, 4.0, 1.04, 5.0, 6.0])
    signals = np.array([0, 2, 1, 0, 1, 0, 1])
    changed = np.array([0, 0, 1, 1, 1, 1, 1], bool)
    age = np.array([1.0, np.nan, np.nan, np.nan, 9.0, 1.5, 2.0])  # no change in the first; 9 > 1.04
    data = from_intervals(page, gap, signals, changed, age)
    data.check()
    assert_allclose(data.exposure_days, [0.0, 2.0 + 3.0 + 1.5 + 2.0])
    assert_allclose(data.dated_changes, [0.0, 1.0])
    assert_allclose(data.unchanged_signals, [[0.0], [2.0]])
    # The gaps of 1 and 1.04 days share a row; the dated change among signals has one of its own.
    assert_array_equal(data.row_page, [0, 1, 1])
    assert_allclose(data.row_weight, [1.0, 2.0, 1.0])
    assert_allclose(data.row_days, [4.0, 2.04, 4.0])
    assert_allclose(data.row_days_squared, [16.0, 1.0 + 1.04**2, 16.0])
    assert_array_equal(data.row_signals, [[0.0], [1.0], [1.0]])


def test_points_keep_weight_sum_and_squares() -> None:
    data = random_evidence(1)
    row, weight, days = points(data.row_weight, data.row_days, data.row_days_squared)
    m = len(data.row_weight)
    assert_allclose(np.bincount(row, weight, m), data.row_weight, rtol=1e-13)
    assert_allclose(np.bincount(row, weight * days, m), data.row_days, rtol=1e-13)
    assert_allclose(np.bincount(row, weight * days * days, m), data.row_days_squared, rtol=1e-12)
    assert m < len(row) < 2 * m and (np.diff(row) >= 0).all()
    none = points(np.zeros(2), np.zeros(2), np.zeros(2))
    assert [len(v) for v in none] == [0, 0, 0]


def test_take_and_concatenate() -> None:
    first, second = random_evidence(2), random_evidence(3, n=7)
    both = concatenate([first, second, empty(3, 2)])
    both.check()
    assert len(both) == 60
    same(take(both, np.arange(50)), first)
    same(take(take(both, np.arange(60) // 50 == 1), np.arange(7)), second)
    order = np.array([9, 3, 3, 49])
    taken = take(first, order)
    for i, page in enumerate(order):
        same(take(taken, np.array([i])), take(first, np.array([page])))
    same(take(first, np.zeros(50, bool)), empty(0, 2))


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("exposure_days", np.array([1.0, np.nan]), r"exposure_days\[1\] is nan"),
        ("unchanged_signals", np.array([[0.0], [-1.0]]), r"unchanged_signals\[1, 0\] is -1.0"),
        ("row_weight", np.array([np.inf, 1.0]), r"row_weight\[0\] is inf"),
        ("row_page", np.array([1, 0]), "row_page is 0..1"),
        ("row_page", np.array([0, 2]), "row_page is 0..2"),
    ],
)
def test_check(name: str, value: np.ndarray, message: str) -> None:
    columns = {
        "exposure_days": np.ones(2),
        "dated_changes": np.ones(2),
        "unchanged_signals": np.ones((2, 1)),
        "row_page": np.array([0, 1]),
        "row_weight": np.ones(2),
        "row_days": np.ones(2),
        "row_days_squared": np.ones(2),
        "row_signals": np.ones((2, 1)),
    }
    SignalEvidence(**columns).check()
    with pytest.raises(ValueError, match=message):
        SignalEvidence(**(columns | {name: value})).check()
    with pytest.raises(ValueError, match="shape"):
        SignalEvidence(**(columns | {"row_days": np.ones(3)}))
    with pytest.raises(ValueError, match="one column a source"):
        SignalEvidence(**(columns | {"row_signals": np.ones(2)}))
