"""Crawl value, interval and threshold of pages with signals: golden numbers, laws, limits, extremes."""

import itertools

import numpy as np
import pytest
from scipy.special import gammainc, gammaincc

from policies.objectives import objectives
from policies.signalled import pages as signal_pages
from policies.signalled import terms as signal_terms
from policies.signalled import value as signal_value
from policies.signalled.expansion import expand
from policies.signalled.pages import SignalPages
from tests import golden

RATES = ("mu", "Delta", "lam", "nu")


def column(cases: list[dict], name: str) -> np.ndarray:
    return np.array([float(case[name]) for case in cases])


def pages_of(cases: list[dict]) -> SignalPages:
    return SignalPages.from_rates(*(column(cases, name) for name in RATES))


def cases_of(name: str, key: str | None = None) -> list[dict]:
    return [case for case in golden.load(name)["cases"] if key is None or case.get(key) is not None]


def kinds_mixed(n: int, seed: int) -> SignalPages:
    """Pages of every kind, rates over four decades, recall near 0 and near 1 as often as between."""
    rng = np.random.default_rng(seed)
    recall = rng.beta(0.25, 0.25, n)
    recall[rng.random(n) < 0.08] = 1.0
    recall[rng.random(n) < 0.08] = 0.0
    noise = 10.0 ** rng.uniform(-2.0, 2.0, n)
    noise[rng.random(n) < 0.15] = 0.0
    change = 10.0 ** rng.uniform(-2.0, 2.0, n)
    change[rng.random(n) < 0.03] = 0.0
    return SignalPages.from_rates(rng.uniform(0.0, 1.0, n), change, recall, noise)


def test_parameters_match_golden():
    cases = [dict(case, mu=1.0) for case in cases_of("cis_params")]
    pages = pages_of(cases)
    kinds = {"inert": 0, "nosig": 1, "general": 2, "noiseless": 3, "fullrecall": 4, "perfect": 5}
    for got, name in (
        (pages.unsignalled_rate_per_day, "alpha"),
        (pages.signal_rate_per_day, "gamma"),
        (pages.signal_weight, "kappa"),
        (-np.expm1(-pages.signal_weight), "precision"),
    ):
        np.testing.assert_allclose(got, column(cases, name), rtol=1e-14, err_msg=name)
    np.testing.assert_allclose(pages.change_rate_per_day, column(cases, "Delta"), rtol=1e-14)
    assert signal_pages.kind_of(pages).tolist() == [kinds[case["kind"]] for case in cases]


@pytest.mark.parametrize("name", ["cis_value", "cis_limits"])
def test_value_matches_golden(name):
    cases = cases_of(name)
    got = signal_value.crawl_value(pages_of(cases), column(cases, "tau"), column(cases, "n"))
    np.testing.assert_allclose(got, column(cases, "V"), rtol=1e-14)


@pytest.mark.parametrize("terms", [1, 2, 3])
def test_truncated_sums_match_golden(terms):
    cases = cases_of("cis_value", f"V_approx_{terms}")
    assert len(cases) > 100
    got = signal_value.crawl_value(pages_of(cases), column(cases, "tau"), column(cases, "n"), terms=terms)
    np.testing.assert_allclose(got, column(cases, f"V_approx_{terms}"), rtol=1e-13)


def test_interval_and_fresh_time_match_golden():
    cases = cases_of("cis_value", "psi")
    pages = pages_of(cases)
    clock = pages.unsignalled_rate_per_day * column(cases, "tau")
    np.testing.assert_allclose(signal_value.interval_days(pages, clock), column(cases, "psi"), rtol=1e-14)
    fresh = signal_value.freshness(pages, clock) * column(cases, "psi")
    np.testing.assert_allclose(fresh, column(cases, "w"), rtol=1e-14)


def test_golden_limits_are_what_degenerate_pages_give():
    for case in cases_of("cis_limits"):
        d, lam, nu, tau, n = (case[name] for name in ("Delta", "lam", "nu", "tau", "n"))
        if "lam->1" in case["limit"]:
            lam = 1.0
        elif case["limit"] == "nu->0":
            nu = 0.0
        elif "p->0" in case["limit"] or "gamma->0" in case["limit"]:
            lam = 0.0
        else:
            continue
        page = SignalPages.from_rates(*(np.array([x]) for x in (case["mu"], d, lam, nu)))
        got = signal_value.crawl_value(page, np.array([tau]), np.array([float(n)]))
        np.testing.assert_allclose(got, float(case["limit_value"]), rtol=1e-12, err_msg=str(case))


def test_thresholds_match_golden():
    cases = cases_of("cis_threshold")
    pages = pages_of(cases)
    multiplier = column(cases, "Lambda")
    clock = signal_value.threshold(pages, multiplier)
    rate = signal_value.crawl_rate(pages, multiplier)
    iota = clock / pages.unsignalled_rate_per_day
    value = signal_value.freshness(pages, clock) * pages.request_rate_per_day
    np.testing.assert_allclose(iota, column(cases, "iota"), rtol=1e-13)
    np.testing.assert_allclose(rate, column(cases, "rate"), rtol=1e-13)
    np.testing.assert_allclose(value, column(cases, "value_rate"), rtol=1e-13)
    gain = pages.request_rate_per_day * np.exp(-clock)
    np.testing.assert_allclose(gain, column(cases, "gain_mu_exp_minus_u"), rtol=1e-12)
    assert np.all(iota >= column(cases, "iota_lower_bound") * (1.0 - 1e-13))
    assert np.all(iota <= column(cases, "iota_upper_bound") * (1.0 + 1e-13))


def test_numbers_of_the_golden_simulation():
    """Its standard errors are those of 8 million cycles; the numbers are the same formulas elsewhere."""
    for case in golden.load("cis_montecarlo")["cases"]:
        page = SignalPages.from_rates(*(np.array([float(x)]) for x in case["params"]))
        kind = int(signal_pages.kind_of(page)[0])
        if kind == signal_pages.FULL_RECALL:
            clock = page.signal_weight * case["threshold"]
        elif kind == signal_pages.PERFECT:
            clock = np.array([800.0])
        else:
            clock = page.unsignalled_rate_per_day * case["threshold"]
        np.testing.assert_allclose(signal_value.interval_days(page, clock), case["psi"], rtol=1e-12)
        np.testing.assert_allclose(signal_value.freshness(page, clock), case["w"] / case["psi"], rtol=1e-12)
        np.testing.assert_allclose(signal_value.value_at(page, clock), case["V"], rtol=1e-12)


def test_slope_of_value_is_interval():
    """V(u2) - V(u1) = mu int e^-s psi(s) ds by quadrature, between kinks."""
    pages = kinds_mixed(3000, 1)
    rng = np.random.default_rng(2)
    low = rng.exponential(1.5, len(pages))
    width = np.minimum(0.5, 0.2 / np.maximum(pages.signal_weight, 1e-3))
    r = pages.signal_rate_per_day / np.maximum(pages.unsignalled_rate_per_day, 1e-12)
    high = low + np.minimum(width, 1.0 / np.maximum(r, 1e-3))
    k = np.where(pages.signal_weight > 0.0, pages.signal_weight, np.inf)
    rows = np.flatnonzero(np.floor(low / k) == np.floor(high / k))
    pages, low, high = pages.take(rows), low[rows], high[rows]
    nodes, weights = np.polynomial.legendre.leggauss(12)
    total = np.zeros(rows.size)
    for node, weight in zip(nodes, weights, strict=True):
        s = 0.5 * (low + high) + 0.5 * (high - low) * node
        days = signal_value.interval_days(pages, s)
        total += 0.5 * (high - low) * weight * np.exp(-s) * np.where(np.isfinite(days), days, 0.0)
    before, after = signal_value.value_at(pages, low), signal_value.value_at(pages, high)
    total *= pages.request_rate_per_day
    assert rows.size > 1000 and {0, 1, 2, 3, 4, 5} == set(signal_pages.kind_of(pages).tolist())
    np.testing.assert_allclose(before + total, after, rtol=1e-12, atol=1e-14)


def test_more_crawls_gain_ever_less():
    """V rises with u and the rate falls, so freshness is a concave function of the rate with slope V."""
    pages = kinds_mixed(300, 3)
    pages = pages.take(np.flatnonzero(signal_pages.kind_of(pages) != signal_pages.INERT))
    grid = np.geomspace(1e-3, 30.0, 60)
    value = np.empty((grid.size, len(pages)))
    rate, fresh = np.empty_like(value), np.empty_like(value)
    for i, u in enumerate(grid):
        clock = np.full(len(pages), u)
        value[i] = signal_value.value_at(pages, clock)
        rate[i] = 1.0 / signal_value.interval_days(pages, clock)
        fresh[i] = pages.request_rate_per_day * signal_value.freshness(pages, clock)
    tiny = 1e-13
    assert np.all(np.diff(value, axis=0) >= -tiny * value[:-1])
    assert np.all(np.diff(rate, axis=0) <= tiny * rate[:-1])
    gain, step = -np.diff(fresh, axis=0), -np.diff(rate, axis=0)
    slack = 1e-12 * pages.request_rate_per_day
    assert np.all(gain >= value[:-1] * step - slack)
    assert np.all(gain <= value[1:] * step + slack)


def test_value_at_a_clock_is_the_value_of_the_states_with_it():
    """P[fresh] is all that a history tells: a t + kappa n = u gives one value, up to when a and n allow."""
    rng = np.random.default_rng(4)
    pages = kinds_mixed(4000, 5)
    kind = signal_pages.kind_of(pages)
    rows = np.flatnonzero((kind == signal_pages.GENERAL) & (pages.signal_weight < 20.0))
    pages = pages.take(rows)
    signals = rng.integers(0, 4, rows.size).astype(float)
    days = rng.exponential(1.0, rows.size) / pages.unsignalled_rate_per_day
    clock = pages.unsignalled_rate_per_day * days + pages.signal_weight * signals
    state = signal_value.crawl_value(pages, days, signals)
    # r u is what rounding of the clock costs in a step of V's slope; V itself is smooth.
    np.testing.assert_allclose(signal_value.value_at(pages, clock), state, rtol=1e-12)


def test_identities_hold_at_the_threshold():
    """V(u*) = Lambda; freshness = Lambda f / mu + e^-u*; rate = 1/psi."""
    pages = kinds_mixed(20000, 6)
    rng = np.random.default_rng(7)
    change = pages.change_rate_per_day
    best = pages.request_rate_per_day / np.where(change > 0.0, change, 1.0)
    multiplier = best * np.where(
        rng.random(len(pages)) < 0.8, rng.random(len(pages)), 10 ** rng.uniform(-6, 0)
    )
    clock = signal_value.threshold(pages, multiplier)
    rate = signal_value.crawl_rate(pages, multiplier)
    useful = np.flatnonzero(np.isfinite(clock))
    assert np.array_equal(np.isfinite(clock), signal_pages.kind_of(pages) != signal_pages.INERT)
    got = signal_value.value_at(pages, clock)[useful]
    np.testing.assert_allclose(got, multiplier[useful], rtol=1e-12)
    np.testing.assert_allclose(
        signal_value.freshness(pages, clock)[useful],
        (multiplier * rate / pages.request_rate_per_day + np.exp(-clock))[useful],
        rtol=1e-9,
    )
    days = signal_value.interval_days(pages, clock)[useful]
    r = pages.signal_rate_per_day / np.maximum(pages.unsignalled_rate_per_day, 1e-300)
    steep = np.where(pages.unsignalled_rate_per_day > 0.0, 4e-16 * r, 0.0)[useful] * clock[useful]
    assert np.all(np.abs(days * rate[useful] - 1.0) <= 1e-12 + steep)


def test_wald_brackets():
    """(mu/A) P(2, u) <= V <= (mu/a) P(2, u) with A = a + g kappa."""
    pages = kinds_mixed(5000, 8)
    pages = pages.take(np.flatnonzero(signal_pages.kind_of(pages) == signal_pages.GENERAL))
    clock = np.random.default_rng(9).exponential(2.0, len(pages))
    a, g = pages.unsignalled_rate_per_day, pages.signal_rate_per_day
    value = signal_value.value_at(pages, clock) / (pages.request_rate_per_day * gammainc(2.0, clock))
    assert np.all(value * a <= 1.0 + 1e-13)
    assert np.all(value * (a + g * pages.signal_weight) >= 1.0 - 1e-13)


def test_without_signals_it_is_the_periodic_objective():
    rng = np.random.default_rng(10)
    n = 1000
    change, request = rng.gamma(0.5, 1.0, n), rng.uniform(0.0, 2.0, n)
    periodic = objectives.get("periodic")
    for noise in (0.0, 3.0):
        pages = SignalPages.from_rates(request, change, np.zeros(n), np.full(n, noise))
        days, signals = rng.exponential(3.0, n), rng.integers(0, 9, n).astype(float)
        np.testing.assert_allclose(
            signal_value.crawl_value(pages, days, signals),
            periodic.crawl_value(change, request, days),
            rtol=1e-13,
        )
        np.testing.assert_allclose(
            signal_value.crawl_rate(pages, 0.4), periodic.rate(0.4, change, request), rtol=1e-10
        )
        clock = signal_value.threshold(pages, 0.4)
        fresh = periodic.freshness(signal_value.crawl_rate(pages, 0.4), change)
        np.testing.assert_allclose(signal_value.freshness(pages, clock), fresh, rtol=1e-9)


def test_few_terms_underrate_noisy_pages():
    """Erratum 7: with j terms V(inf) is mu/D (1 - (nu/(D+nu))^j), not mu/D; it rises with j."""
    n = 200
    rng = np.random.default_rng(11)
    change, noise, request = rng.uniform(0.1, 2.0, n), rng.uniform(0.1, 4.0, n), rng.uniform(0.1, 1.0, n)
    pages = SignalPages.from_rates(request, change, rng.uniform(0.1, 0.9, n), noise)
    for terms in (1, 2, 3, 8, 40):
        got = signal_value.crawl_value(pages, np.full(n, 1e9), np.zeros(n), terms=terms)
        want = request / change * (1.0 - (noise / (change + noise)) ** terms)
        np.testing.assert_allclose(got, want, rtol=1e-12)
    days, signals = rng.exponential(2.0, n), rng.integers(0, 3, n).astype(float)
    parts = [signal_value.crawl_value(pages, days, signals, terms=j) for j in (1, 2, 4, 400)]
    for few, more in itertools.pairwise(parts):
        assert np.all(few <= more * (1.0 + 1e-13))
    np.testing.assert_allclose(parts[-1], signal_value.crawl_value(pages, days, signals), rtol=1e-12)


def test_set_valued_demand():
    one = np.ones(1)
    sure = SignalPages.from_rates(one, 2 * one, 0.6 * one, 0 * one)
    assert signal_value.threshold(sure, 0.5)[0] == np.inf  # Lambda = mu/D: any rate from 0 to g; 0 is given
    assert signal_value.crawl_rate(sure, 0.5)[0] == 0.0
    assert signal_value.crawl_rate(sure, 0.499999)[0] == pytest.approx(1.2, rel=1e-3)
    perfect = SignalPages.from_rates(one, 2 * one, one, 0 * one)
    assert signal_value.crawl_rate(perfect, 0.499999)[0] == 2.0
    assert signal_value.crawl_rate(perfect, 0.5)[0] == 0.0
    assert signal_value.freshness(perfect, signal_value.threshold(perfect, 0.3))[0] == pytest.approx(1.0)
    # Golden "full recall" page: V(1), V(2), V(3) of whole signals are where the rate steps.
    full = SignalPages.from_rates(one, one, one, 0.5 * one)
    for m in range(1, 8):
        at = signal_value.crawl_value(full, one, m * one)[0]
        assert signal_value.crawl_rate(full, at * (1 - 1e-9))[0] == pytest.approx(1.5 / m)
        assert signal_value.crawl_rate(full, at * (1 + 1e-9))[0] == pytest.approx(1.5 / (m + 1))
        clock = m * full.signal_weight
        assert signal_pages.signals_to_reach(full.signal_weight, clock)[0] == m
        assert signal_value.value_at(full, clock)[0] == pytest.approx(at, rel=1e-13)


def test_ends_of_the_clock():
    pages = kinds_mixed(300, 12)
    kind = signal_pages.kind_of(pages)
    zero, never = np.zeros(len(pages)), np.full(len(pages), np.inf)
    still = pages.change_rate_per_day == 0.0
    assert np.all(signal_value.value_at(pages, zero) == 0.0)
    assert np.all(signal_value.interval_days(pages, zero) == 0.0)
    assert np.all(signal_value.freshness(pages, zero) == 1.0)
    assert np.all(signal_value.interval_days(pages, never) == np.inf)
    assert np.array_equal(signal_value.freshness(pages, never), still.astype(float))
    best = np.where(still, 0.0, pages.request_rate_per_day / np.where(still, 1.0, pages.change_rate_per_day))
    np.testing.assert_allclose(signal_value.value_at(pages, never), best, rtol=1e-14)
    np.testing.assert_allclose(
        signal_value.crawl_value(pages, never, zero)[kind < 4], best[kind < 4], rtol=1e-14
    )
    np.testing.assert_allclose(
        signal_value.crawl_value(pages, np.nan * never, zero)[kind == 2], best[kind == 2]
    )
    free = signal_value.crawl_rate(pages, 0.0)
    assert np.all(free[kind == signal_pages.INERT] == 0.0)
    a_is_zero = kind >= signal_pages.FULL_RECALL
    assert np.array_equal(free[a_is_zero], pages.signal_rate_per_day[a_is_zero])
    assert np.all(np.isinf(free[(kind > 0) & ~a_is_zero]))
    assert np.all(signal_value.crawl_rate(pages, 1e9) == 0.0)


def test_pages_that_nobody_requests_still_have_freshness():
    page = SignalPages.from_rates(np.zeros(1), np.ones(1), np.array([0.5]), np.array([0.5]))
    other = SignalPages.from_rates(np.ones(1), np.ones(1), np.array([0.5]), np.array([0.5]))
    clock = np.array([1.3])
    assert signal_value.freshness(page, clock) == signal_value.freshness(other, clock)
    assert signal_value.value_at(page, clock)[0] == 0.0
    assert signal_value.crawl_rate(page, 0.1)[0] == 0.0


def extremes(n: int) -> tuple[SignalPages, np.ndarray]:
    rng = np.random.default_rng(13)

    def wide() -> np.ndarray:
        return 10.0 ** rng.uniform(-12.0, 12.0, n) * (rng.random(n) > 0.03)

    weight = np.where(rng.random(n) < 0.5, 10.0 ** rng.uniform(-16.0, 2.9, n), rng.exponential(1.0, n))
    weight[rng.random(n) < 0.1] = np.inf
    weight[rng.random(n) < 0.03] = 0.0
    pages = SignalPages(wide(), wide(), wide(), weight)
    share = 1.0 - 10.0 ** rng.uniform(-16.0, 0.0, n)
    share = np.where(rng.random(n) < 0.5, share, 10.0 ** rng.uniform(-24.0, 0.0, n))
    change = pages.change_rate_per_day
    return pages, share * pages.request_rate_per_day / np.where(change > 0.0, change, 1.0)


def test_rates_over_24_decades():
    """No NaN, no warning (which pytest makes an error), and the equations hold."""
    pages, multiplier = extremes(30000)
    rng = np.random.default_rng(14)
    clock = signal_value.threshold(pages, multiplier)
    rate = signal_value.crawl_rate(pages, multiplier)
    fresh = signal_value.freshness(pages, clock)
    value = signal_value.value_at(pages, clock)
    for got in (clock, rate, fresh, value):
        assert not np.any(np.isnan(got)) and np.all(got >= 0.0)
    assert np.all(fresh <= 1.0)
    rows = np.flatnonzero(np.isfinite(clock) & (multiplier > 0.0))
    np.testing.assert_allclose(value[rows], multiplier[rows], rtol=1e-10)
    days = 10.0 ** rng.uniform(-12.0, 12.0, len(pages))
    signals = np.floor(10.0 ** rng.uniform(-1.0, 8.0, len(pages)))
    now = signal_value.crawl_value(pages, days, signals)
    change = pages.change_rate_per_day
    best = np.where(change > 0.0, pages.request_rate_per_day / np.where(change > 0.0, change, 1.0), 0.0)
    assert np.all((now >= 0.0) & (now <= best * (1.0 + 1e-13)))
    one = signal_value.crawl_value(pages, days, signals, terms=1)
    assert np.all((one >= 0.0) & (one <= now * (1.0 + 1e-11)))


def test_ways_to_sum_agree():
    """Recurrence, series, pairs and the form without a sum, at the same pages."""
    rng = np.random.default_rng(15)
    n = 4000
    kappa, r = 10.0 ** rng.uniform(-2.0, 0.5, n), 10.0 ** rng.uniform(-2.0, 3.0, n)
    u = rng.uniform(0.02, 24.0, n) * kappa
    zero = np.zeros(n)
    got = signal_terms.evaluate(r, kappa, u, zero)
    pairs = signal_terms._long(r, kappa, u, zero, u)
    np.testing.assert_allclose(got.h, pairs.h, rtol=1e-12)
    np.testing.assert_allclose(got.value, pairs.value, rtol=1e-12)
    np.testing.assert_allclose(got.rest, pairs.rest, rtol=1e-11)
    for name, order in (("d1", 0), ("d2", 1), ("d3", 2), ("d4", 3)):
        difference = np.abs(getattr(got, name) - getattr(pairs, name)) / r**order
        assert np.max(difference) < 1e-10, name
    far = np.flatnonzero(u / kappa * signal_terms._forgetting(r * kappa) > 46.0)
    renewal = signal_terms._renewal(r[far], kappa[far], u[far])
    assert far.size > 100
    np.testing.assert_allclose(renewal.h, pairs.h[far], rtol=1e-12)
    np.testing.assert_allclose(renewal.value, pairs.value[far], rtol=1e-12)
    np.testing.assert_allclose(renewal.rest, pairs.rest[far], rtol=1e-11)


def test_many_terms_by_a_sum_of_poisson_probabilities():
    """Hundreds of signals a crawl, most of them false: the sums as they are written."""
    r, kappa = np.array([400.0, 3000.0, 50.0, 1e6]), np.array([0.02, 0.03, 0.1, 1e-2])
    u = np.array([2.3, 9.7, 4.15, 3.005])
    got = signal_terms.evaluate(r, kappa, u, np.zeros(4))
    for j in range(4):
        i = np.arange(int(u[j] / kappa[j]) + 1)
        clock = u[j] - kappa[j] * i
        y = r[j] * clock
        assert got.h[j] == pytest.approx(gammainc(i + 1.0, y).sum() / r[j], rel=1e-11)
        s = r[j] / (1.0 + r[j])
        parts = s ** (i + 1.0) * gammainc(i + 1.0, y / s) - np.exp(-clock) * gammainc(i + 1.0, y)
        assert got.value[j] == pytest.approx((np.exp(-kappa[j] * i) * parts).sum() / r[j], rel=1e-10)
        q = s * np.exp(-kappa[j])
        left = (np.exp(-kappa[j] * i) * s ** (i + 1.0) * gammaincc(i + 1.0, y / s)).sum() / r[j]
        left += np.exp(-u[j]) * got.h[j] + q**i.size * s / (r[j] * (1.0 - q))
        assert got.rest[j] == pytest.approx(left * (1.0 - r[j] * np.expm1(-kappa[j])), rel=1e-9)


def test_a_page_does_not_depend_on_its_neighbours():
    pages, multiplier = extremes(3000)
    rng = np.random.default_rng(16)
    days, signals = rng.exponential(5.0, 3000), rng.integers(0, 40, 3000).astype(float)
    order = rng.permutation(3000)
    other = pages.take(order)
    for whole, mixed in (
        (signal_value.threshold(pages, multiplier), signal_value.threshold(other, multiplier[order])),
        (signal_value.crawl_rate(pages, multiplier), signal_value.crawl_rate(other, multiplier[order])),
        (
            signal_value.crawl_value(pages, days, signals),
            signal_value.crawl_value(other, days[order], signals[order]),
        ),
    ):
        assert np.array_equal(whole[order], mixed)
    whole = signal_value.threshold(pages, multiplier)
    for i in range(0, 3000, 97):
        rows = slice(i, i + 1 + i % 3)
        assert np.array_equal(signal_value.threshold(pages.take(rows), multiplier[rows]), whole[rows])


def test_no_pages():
    none = SignalPages(*np.zeros((4, 0)))
    empty = np.zeros(0)
    assert signal_value.crawl_value(none, empty, empty).shape == (0,)
    assert signal_value.threshold(none, 1.0).shape == (0,)
    assert expand(none, 1.0).rates(1.0).shape == (0,)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"request_rate_per_day": np.array([-1.0])}, "request_rate_per_day of page 0 is -1.0"),
        ({"signal_rate_per_day": np.array([np.inf])}, "signal_rate_per_day of page 0 is inf"),
        ({"signal_weight": np.array([np.nan])}, "signal_weight of page 0 is nan"),
        ({"unsignalled_rate_per_day": np.ones(2)}, "shape"),
    ],
)
def test_bad_pages_are_refused(change, message):
    columns = dict.fromkeys(
        ("request_rate_per_day", "unsignalled_rate_per_day", "signal_rate_per_day", "signal_weight"),
        np.ones(1),
    )
    pages = SignalPages(**{**columns, **change})
    with pytest.raises(ValueError, match=message):
        signal_value.threshold(pages, 0.1)


def test_bad_arguments_are_refused():
    pages = SignalPages(*np.ones((4, 1)))
    one = np.ones(1)
    with pytest.raises(ValueError, match=r"multiplier must be at least 0, got -1\.0"):
        signal_value.threshold(pages, -1.0)
    with pytest.raises(ValueError, match="multiplier must be at least 0, got nan"):
        signal_value.crawl_rate(pages, np.nan)
    with pytest.raises(ValueError, match="clock must be at least 0"):
        signal_value.value_at(pages, -one)
    with pytest.raises(ValueError, match="clock has shape"):
        signal_value.value_at(pages, np.ones(2))
    with pytest.raises(ValueError, match="elapsed_days and signals"):
        signal_value.crawl_value(pages, -one, one)
    with pytest.raises(ValueError, match="terms must be at least 1, got 0"):
        signal_value.crawl_value(pages, one, one, terms=0)


def test_a_clock_at_a_late_reading_to_the_instant_does_not_overflow():
    # The 10^9th signal has just come: the term of the next one has run for no time at all.
    column = np.ones(1)
    with np.errstate(over="raise", invalid="raise", divide="raise"):
        terms = signal_terms.evaluate(1e12 * column, column, 0.0 * column, 1e9 * column)
    assert terms.h[0] == pytest.approx(1e9 / 1e12, rel=1e-9)
    assert all(np.isfinite(getattr(terms, name)[0]) for name in ("value", "rest", "d1", "d2", "d3", "d4"))
