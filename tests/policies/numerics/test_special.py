"""P(2, x), its inverse and its table, against golden numbers and against their own definitions."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import gammainc, gammaincinv

from policies.numerics import special
from policies.numerics.inverse_table import Reciprocal
from policies.objectives import objectives
from tests import golden

TOLERANCE = 1e-14


def cases(kind: str) -> list[dict]:
    return [case for case in golden.load("p2")["cases"] if case["kind"] == kind]


def close(got: float, want: str, tolerance: float = TOLERANCE) -> bool:
    return abs(got - float(want)) <= tolerance * abs(float(want)) + 1e-300


def column(kind: str, name: str) -> np.ndarray:
    return np.array([float(case[name]) for case in cases(kind)])


def test_values_match_golden():
    x = column("value", "x")
    for got, case in zip(special.p2(x), cases("value"), strict=True):
        assert close(got, case["P2"]), case


def test_inverse_matches_golden():
    for got, case in zip(special.p2_inverse(column("inverse", "c")), cases("inverse"), strict=True):
        assert close(got, case["x"]), case


def test_log_inverse_matches_golden():
    got = special.p2_inverse_log(column("inverse_logform", "y"))
    for value, case in zip(got, cases("inverse_logform"), strict=True):
        assert close(value, case["x"]), case


def test_freshness_matches_golden():
    periodic = objectives.get("periodic")
    for case in cases("G"):
        fresh = periodic.freshness(np.array([float(case["xi"])]), np.array([float(case["Delta"])]))[0]
        assert close(case["mu"] * fresh, case["G"]), case


def test_crawl_value_matches_golden():
    periodic = objectives.get("periodic")
    for case in cases("V_greedy"):
        arrays = [np.array([float(case[name])]) for name in ("Delta", "mu", "t")]
        assert close(periodic.crawl_value(*arrays)[0], case["V"]), case


def test_agrees_with_scipy():
    x = np.geomspace(1e-8, 500.0, 5000)
    np.testing.assert_allclose(special.p2(x), gammainc(2.0, x), rtol=1e-14)
    c = np.geomspace(1e-15, 0.5, 5000)
    np.testing.assert_allclose(special.p2_inverse(c), gammaincinv(2.0, c), rtol=1e-14)


@settings(deadline=None, max_examples=200)
@given(st.floats(1e-300, 1e300))
def test_log_inverse_inverts(y):
    x = special.p2_inverse_log(np.array([y]))[0]
    x_next = special.p2_inverse_log(np.array([y * (1 + 1e-13)]))[0]
    assert x > 0 and x_next >= x
    if y > 1e-2:
        assert x - np.log1p(x) == pytest.approx(y, rel=1e-13)
    else:  # y = x^2/2 - x^3/3 + ...: the subtraction above would cancel
        assert y == pytest.approx(sum((-x) ** k / k for k in range(2, 14)), rel=1e-13)


def test_edges():
    np.testing.assert_array_equal(special.p2_inverse(np.array([0.0, 1.0])), [0.0, np.inf])
    np.testing.assert_array_equal(special.p2_inverse_log(np.array([0.0, np.inf])), [0.0, np.inf])
    np.testing.assert_array_equal(special.p2(np.array([0.0, np.inf])), [0.0, 1.0])
    np.testing.assert_array_equal(special.mean_survival(np.array([0.0, np.inf])), [1.0, 0.0])
    assert special.p2_inverse(np.empty(0)).size == 0
    assert np.isnan(special.p2(np.array([np.nan]))[0])


@pytest.mark.parametrize("bad", [-1e-9, 1.0 + 1e-9, np.nan])
def test_inverse_rejects(bad):
    with pytest.raises(ValueError, match="p2_inverse needs"):
        special.p2_inverse(np.array([0.5, bad]))


def test_inverse_rejects_negative_logs():
    with pytest.raises(ValueError, match="y >= 0"):
        special.p2_inverse_log(np.array([-1.0]))


def test_inverse_does_not_depend_on_the_chunk():
    c = np.random.default_rng(5).random(3 * special.CHUNK + 17)
    whole = special.p2_inverse(c)
    parts = np.concatenate([special.p2_inverse(part) for part in np.array_split(c, 11)])
    assert whole.tobytes() == parts.tobytes()
    assert whole[::-1].tobytes() == special.p2_inverse(c[::-1].copy()).tobytes()


def test_table_matches_the_inverse():
    rng = np.random.default_rng(6)
    table, out = Reciprocal(), np.empty(4000)
    for c in (
        rng.random(4000),
        10.0 ** rng.uniform(-240, 0, 4000),
        10.0 ** rng.uniform(-14, 0, 4000),
        np.maximum(1.0 - 10.0 ** rng.uniform(-16, 0, 4000), 1e-3),
        np.repeat(
            [0.5, np.nextafter(0.5, 0), 2.0**-40, np.nextafter(2.0**-40, 0), special.LARGEST_BELOW_ONE], 800
        ),
    ):
        c = np.minimum(c, special.LARGEST_BELOW_ONE)
        table.evaluate(c, out)
        np.testing.assert_allclose(out, 1.0 / special.p2_inverse(c), rtol=4e-14)
