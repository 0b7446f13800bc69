import math

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from policies.estimation import prior as crawl_prior
from policies.history import evidence as crawl_evidence
from policies.numerics import newton as signal_newton
from policies.signals import estimation as signal_estimation
from policies.signals.estimation import (
    PAGE_WEIGHT_STRENGTH,
    Pooled,
    SignalPrior,
    default_prior,
    fit_pages,
    fit_pooled,
)
from policies.signals.evidence import SignalEvidence
from tests.golden import load
from tests.policies.signal_evidence import concatenate, empty, from_intervals, take
from tests.policies.signal_simulation import Simulated, simulate

GOLDEN = [
    c
    for c in load("mle_two_param")["cases"]
    if c["prior_a_shape_rate"] == [2.0, 1.0] and len(c["data_tau_n_z"]) < 10  # no two intervals share a row
]


def known(share: float, *weight: float) -> Pooled:
    """One group whose share and weights are known exactly."""
    return Pooled(np.array([share]), np.array([weight]), np.zeros((1, 1 + len(weight), 1 + len(weight))))


def extreme(seed: int, n: int, s: int, weights: tuple[float, float], k: int = 6) -> SignalEvidence:
    """Gaps of 1e-6 to 1e5 days, weights 10**low to 10**high, up to 15 signals."""
    rng = np.random.Generator(np.random.Philox(key=seed))
    gap = 10 ** rng.uniform(-6, 5, n * k)
    weight = 10 ** rng.uniform(*weights, n * k) * (rng.random(n * k) < 0.8)
    signals = rng.integers(0, 16, (n * k, s)) * (rng.random((n * k, s)) < 0.5)
    age = np.where(rng.random(n * k) < 0.2, gap * rng.random(n * k), np.nan)
    return from_intervals(
        np.repeat(np.arange(n), k), gap, signals, rng.random(n * k) < 0.5, age, weight, n_pages=n
    )


def score(
    evidence: SignalEvidence, i: int, theta: list[float], shape: list[float], mean: list[float]
) -> tuple[list[float], list[float]]:
    """Derivatives of the log posterior in log parameters and the size of their terms, in plain Python."""
    exposed = [float(evidence.exposure_days[i]), *evidence.unchanged_signals[i].tolist()]
    up = [c + (float(evidence.dated_changes[i]) if j == 0 else 0.0) for j, c in enumerate(shape)]
    down = [t * (b + c / m) for t, b, c, m in zip(theta, exposed, shape, mean, strict=True)]
    for r in np.flatnonzero(evidence.row_page == i):
        w = float(evidence.row_weight[r])
        if w == 0.0:
            continue
        s1, s2 = float(evidence.row_days[r]), float(evidence.row_days_squared[r])
        spread = math.sqrt(max(s2 / w - (s1 / w) ** 2, 0.0))
        for tau in (s1 / w - spread, s1 / w + spread):
            x = [max(tau, 0.0), *evidence.row_signals[r].tolist()]
            y = [a * b for a, b in zip(theta, x, strict=True)]
            total = sum(y)
            for j, value in enumerate(y):
                if 0.0 < total < 700.0:
                    up[j] += 0.5 * w * value / math.expm1(total)
    return [u - d for u, d in zip(up, down, strict=True)], [max(u, d) for u, d in zip(up, down, strict=True)]


@pytest.mark.parametrize("case", GOLDEN, ids=lambda c: c["name"])
def test_page_fit_is_the_golden_mode(case: dict) -> None:
    """A prior of shape c in log parameters is one of shape c + 1 in the parameters."""
    gap, signals, changed = np.array(case["data_tau_n_z"], dtype=float).T
    evidence = from_intervals(np.zeros(len(gap), int), gap, signals, changed == 1.0)
    assert len(evidence.row_page) == int(changed.sum())
    (a_shape, a_rate), (k_shape, k_rate) = case["prior_a_shape_rate"], case["prior_k_shape_rate"]
    pooled = known((a_shape - 1.0) / a_rate, (k_shape - 1.0) / k_rate)
    fit = fit_pages(evidence, np.ones(1), np.zeros(1, int), pooled, a_shape - 1.0, k_shape - 1.0)
    assert_allclose(fit.unsignalled_rate_per_day[0], float(case["a"]), rtol=1e-9)
    assert_allclose(fit.signal_weight[0, 0], float(case["k"]), rtol=1e-9)
    information = np.linalg.inv(fit.covariance[0])
    aa, ak, kk = (float(v) for v in case["observed_info"])
    a, k = float(case["a"]), float(case["k"])
    assert_allclose(information, [[a * a * aa, a * k * ak], [a * k * ak, k * k * kk]], rtol=1e-5)


@pytest.mark.parametrize("s", [1, 2, 5])
@pytest.mark.parametrize("weights", [(0.0, 0.1), (-3.0, 3.0), (-6.0, 9.0)])
@pytest.mark.parametrize("strength", [1e-3, 0.5, 8.0])
def test_mode_has_no_slope(s: int, weights: tuple[float, float], strength: float) -> None:
    n = 300
    data = extreme(s, n, s, weights)
    rate = 10 ** np.random.Generator(np.random.Philox(key=s)).uniform(-6, 3, n)
    fit = fit_pages(data, rate, np.zeros(n, int), known(0.5, *[0.3] * s), strength, strength)
    deviations = []
    for i in range(n):
        theta = [float(fit.unsignalled_rate_per_day[i]), *fit.signal_weight[i].tolist()]
        slope, size = score(data, i, theta, [strength] * (1 + s), [0.5 * float(rate[i])] + [0.3] * s)
        # Distance to the mode in posterior standard deviations, less what the sums round.
        deviations.append(
            max(abs(d) - 1e-13 * z for d, z in zip(slope, size, strict=True)) / math.sqrt(max(size))
        )
    assert max(deviations) < 1e-6


def test_no_evidence_leaves_the_prior() -> None:
    prior = SignalPrior(0.6, 2.0, np.array([0.3, 1.5]), np.array([1.0, 4.0]))
    n, group = 4, np.array([0, 2, 2, 0])
    rate = np.array([0.1, 1.0, 5.0, 30.0])
    pooled = fit_pooled(empty(n, 2), rate, group, 3, prior)
    assert_allclose(pooled.missed_share, 0.6, rtol=1e-15)
    assert_allclose(pooled.signal_weight, [[0.3, 1.5]] * 3, rtol=1e-15)
    assert_allclose(pooled.covariance, [np.diag([0.5, 1.0, 0.25])] * 3, rtol=1e-15)
    fit = fit_pages(empty(n, 2), rate, group, pooled)
    assert_allclose(fit.unsignalled_rate_per_day, 0.6 * rate, rtol=1e-15)
    assert_allclose(fit.signal_weight, [[0.3, 1.5]] * n, rtol=1e-15)
    # What is not known of the group adds to the spread of pages.
    assert_allclose(fit.covariance[:, 1, 1], 1.0 / PAGE_WEIGHT_STRENGTH + 1.0, rtol=1e-14)


def test_unchanged_and_dated_intervals_have_a_closed_form() -> None:
    """Without undated changes the posterior is a product of gamma distributions."""
    data = SignalEvidence(
        np.array([10.0]),
        np.array([3.0]),
        np.array([[4.0]]),
        np.zeros(0, int),
        *[np.zeros(0)] * 3,
        np.zeros((0, 1)),
    )
    fit = fit_pages(data, np.array([2.0]), np.zeros(1, int), known(0.5, 0.3), 2.0, 1.5)
    assert_allclose(fit.unsignalled_rate_per_day, [(2.0 + 3.0) / (10.0 + 2.0 / 1.0)], rtol=1e-15)
    assert_allclose(fit.signal_weight, [[1.5 / (4.0 + 1.5 / 0.3)]], rtol=1e-15)
    assert_allclose(fit.covariance[0], np.diag([1.0 / 5.0, 1.0 / 1.5]), rtol=1e-15)


def host(
    seed: int, n: int, k: int, precision: list[float], recall: list[float]
) -> tuple[Simulated, np.ndarray]:
    rng = np.random.Generator(np.random.Philox(key=seed + 1000))
    rate = rng.gamma(1.0, 0.5, n) + 1e-3
    return simulate(seed, rate, k, np.array(precision), np.array(recall)), rate


def test_weights_of_a_host_after_three_crawls_a_page() -> None:
    """100 pages with three crawls each: the mean of 60 hosts is within 10 % and 4 standard errors of the
    truth, and a host by itself within what its covariance says."""
    for precision, recall in ((0.7, 0.6), (0.3, 0.5)):
        log_weight, error = [], []
        for seed in range(60):
            data, rate = host(seed, 100, 3, [precision], [recall])
            prior = default_prior(1)
            pooled = fit_pooled(data.evidence(), rate, np.zeros(100, int), 1, prior)
            log_weight.append(np.log(pooled.signal_weight[0, 0] / data.weight[0, 0]))
            error.append(np.sqrt(pooled.covariance[0, 1, 1]))
        deviation, errors = np.array(log_weight), np.array(error)
        assert abs(deviation.mean()) < 0.1 + 4.0 * deviation.std() / np.sqrt(60)
        assert (errors < 0.5).all()
        assert abs(np.mean((deviation / errors) ** 2) - 1.0) < 4.0 * np.sqrt(2.0 / 60)


def test_rates_from_the_same_crawls_make_weights_too_small_but_not_much() -> None:
    """Rates estimated from the very intervals explain some of what signals explain: known, and bounded."""
    for precision, recall, lowest in ((0.7, 0.6, 0.85), (0.2, 0.5, 0.6)):
        ratio = []
        for seed in range(6):
            data, _ = host(seed, 500, 3, [precision], [recall])
            crawls = crawl_evidence.from_intervals(data.page, data.gap, data.changed, n_pages=500)
            group = np.zeros(500, int)
            rate = crawl_prior.estimate(
                crawls, group, 1, crawl_prior.fit_prior(crawls, group)
            ).change_rate_per_day
            pooled = fit_pooled(data.evidence(), rate, group, 1, default_prior(1))
            ratio.append(pooled.signal_weight[0, 0] / data.weight[0, 0])
        assert lowest < np.mean(ratio) < 1.02


def test_good_and_junk_sources_are_told_apart() -> None:
    """Two sources on two hosts, good and junk the other way around; few crawls a page."""
    first, rate_1 = host(1, 200, 4, [0.8, 0.02], [0.7, 0.2])
    second, rate_2 = host(2, 200, 4, [0.02, 0.8], [0.2, 0.7])
    data = concatenate([first.evidence(), second.evidence()])
    group = np.repeat([0, 1], 200)
    pooled = fit_pooled(data, np.concatenate([rate_1, rate_2]), group, 2, default_prior(2))
    good, junk = -np.log1p(-0.8), -np.log1p(-0.02)
    assert_allclose(pooled.signal_weight[[0, 1], [0, 1]], good, rtol=0.25)
    assert (pooled.signal_weight[[0, 1], [1, 0]] < 3.0 * junk).all()
    fit = fit_pages(data, np.concatenate([rate_1, rate_2]), group, pooled)
    mine, other = fit.signal_weight[np.arange(400), group], fit.signal_weight[np.arange(400), 1 - group]
    assert (mine > 5.0 * other).mean() > 0.99


def test_a_page_of_its_own_moves_away_from_its_host() -> None:
    """A page whose signals never mean anything, on a host where they do."""
    pooled = known(0.5, 1.5)
    count = np.ones(40)
    data = from_intervals(np.zeros(40, int), np.ones(40), count, np.zeros(40, bool))
    few = take(data, np.array([0, 0]))
    assert len(few) == 2
    fit = fit_pages(data, np.array([0.05]), np.zeros(1, int), pooled)
    assert fit.signal_weight[0, 0] < 0.1


@pytest.mark.parametrize("s", [1, 2])
def test_standard_errors_cover(s: int) -> None:
    """95 % intervals of share and weights hold the truth in 93 to 97 % of 1,500 hosts (4 standard errors are
    2.3 %), with a prior that weighs nothing."""
    hosts, pages, k = 1500, 20, 15
    rng = np.random.Generator(np.random.Philox(key=77))
    rate = rng.gamma(2.0, 0.25, hosts * pages) + 0.01
    precision, recall = np.array([0.6, 0.3])[:s], np.array([0.4, 0.2])[:s]
    data = simulate(78, rate, k, precision, recall)
    group = np.arange(hosts * pages) // pages
    prior = SignalPrior(0.5, 0.01, np.full(s, 0.5), np.full(s, 0.01))
    pooled = fit_pooled(data.evidence(), rate, group, hosts, prior)
    truth = np.log([1.0 - recall.sum(), *-np.log1p(-precision)])
    found = np.log(np.column_stack([pooled.missed_share, pooled.signal_weight]))
    for j in range(1 + s):
        error = np.sqrt(pooled.covariance[:, j, j])
        covered = np.abs(found[:, j] - truth[j]) < 1.96 * error
        assert 0.93 < covered.mean() < 0.97


def test_time_unit_does_not_matter() -> None:
    data = extreme(9, 200, 2, (-1.0, 1.0))
    unit = 1024.0
    scaled = SignalEvidence(
        data.exposure_days * unit,
        data.dated_changes,
        data.unchanged_signals,
        data.row_page,
        data.row_weight,
        data.row_days * unit,
        data.row_days_squared * unit * unit,
        data.row_signals,
    )
    rate, group = np.full(200, 0.5), np.arange(200) % 3
    first, second = (
        fit_pages(d, r, group, fit_pooled(d, r, group, 3, default_prior(2)))
        for d, r in ((data, rate), (scaled, rate / unit))
    )
    assert_array_equal(second.unsignalled_rate_per_day * unit, first.unsignalled_rate_per_day)
    assert_array_equal(second.signal_weight, first.signal_weight)


@pytest.mark.parametrize("s", [1, 3])
def test_a_result_depends_on_page_and_group_alone(s: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """To the bit: subsets, other orders, other groups, other cuts into chunks."""
    n = 500
    data = extreme(21, n, s, (-2.0, 3.0))
    rng = np.random.Generator(np.random.Philox(key=3))
    rate, group = 10 ** rng.uniform(-3, 1, n), rng.integers(0, 12, n)
    prior = default_prior(s)
    pooled = fit_pooled(data, rate, group, 12, prior)
    fit = fit_pages(data, rate, group, pooled)

    order = rng.permutation(n)[:200]
    part = fit_pages(take(data, order), rate[order], group[order], pooled)
    assert_array_equal(part.unsignalled_rate_per_day, fit.unsignalled_rate_per_day[order])
    assert_array_equal(part.signal_weight, fit.signal_weight[order])
    assert_array_equal(part.covariance, fit.covariance[order])

    mine = np.flatnonzero(group % 3 == 1)
    some = fit_pooled(take(data, mine), rate[mine], group[mine] // 3, 4, prior)
    for name in Pooled.__slots__:
        assert_array_equal(getattr(some, name), getattr(pooled, name)[1::3])

    monkeypatch.setattr(signal_estimation, "_CHUNK_ROWS", 7)
    cut = fit_pooled(data, rate, group, 12, prior)
    for name in Pooled.__slots__:
        assert_array_equal(getattr(cut, name), getattr(pooled, name))
    assert_array_equal(fit_pages(data, rate, group, pooled).signal_weight, fit.signal_weight)


def test_a_group_of_many_rows_is_summed_by_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same to rounding, and the same bits whatever the other groups are."""
    data = extreme(31, 900, 1, (-2.0, 2.0))
    rate, group = np.full(900, 0.3), np.repeat([0, 1, 2], [5, 890, 5])
    whole = fit_pooled(data, rate, group, 3, default_prior(1))
    monkeypatch.setattr(signal_estimation, "_CHUNK_ROWS", 64)
    monkeypatch.setattr(signal_newton, "BLOCK_ROWS", 200)
    blocks = fit_pooled(data, rate, group, 3, default_prior(1))
    alone = fit_pooled(take(data, group == 1), rate[group == 1], np.zeros(890, int), 1, default_prior(1))
    for name in Pooled.__slots__:
        assert_allclose(getattr(blocks, name), getattr(whole, name), rtol=1e-11, atol=1e-300)
        assert_array_equal(getattr(alone, name)[0], getattr(blocks, name)[1])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"change_rate_per_day": np.array([1.0, 0.0])}, "change rates are 0.0"),
        ({"change_rate_per_day": np.ones(3)}, "3 change rates for 2 pages"),
        ({"group": np.array([0, 2])}, "group codes are 0..2"),
        ({"group": np.array([0])}, "1 group codes for 2 pages"),
        ({"prior": default_prior(3)}, "the prior has 3 sources, the evidence 1"),
        ({"evidence": empty(2, 4)}, "the prior has 1 sources, the evidence 4"),
    ],
)
def test_pooled_errors(change: dict, message: str) -> None:
    given = {
        "evidence": empty(2, 1),
        "change_rate_per_day": np.ones(2),
        "group": np.zeros(2, int),
        "n_groups": 2,
        "prior": default_prior(1),
    }
    with pytest.raises(ValueError, match=message):
        fit_pooled(**(given | change))


def test_other_errors() -> None:
    with pytest.raises(ValueError, match="missed_share is 0"):
        SignalPrior(0.0, 1.0, np.ones(1), np.ones(1))
    with pytest.raises(ValueError, match="weight_strength is inf"):
        SignalPrior(1.0, 1.0, np.ones(1), np.full(1, np.inf))
    with pytest.raises(ValueError, match="one of each a source"):
        SignalPrior(1.0, 1.0, np.ones(1), np.ones(2))
    with pytest.raises(ValueError, match="missed_strength is 0"):
        fit_pages(empty(1, 1), np.ones(1), np.zeros(1, int), known(0.5, 0.3), 0.0)
    with pytest.raises(ValueError, match="the groups have 1 sources, the evidence 2"):
        fit_pages(empty(1, 2), np.ones(1), np.zeros(1, int), known(0.5, 0.3))
