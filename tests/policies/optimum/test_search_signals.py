"""The search with change signals: golden optima, Theorem 1, laws of its distributed form."""

import pickle
from dataclasses import replace

import apache_beam as beam
import numpy as np
import pyarrow as pa
import pytest
from apache_beam.testing.test_pipeline import TestPipeline as BeamPipeline
from apache_beam.testing.util import assert_that, equal_to
from hypothesis import given, settings
from hypothesis import strategies as st

from policies.optimum import search
from policies.optimum.demand import BUDGET_UNITS
from policies.optimum.histogram import Bounds
from policies.optimum.search import SignalBlock
from policies.signalled import pages as signal_pages
from policies.signalled import value as signal_value
from policies.signalled.block import SignalRows, least_value
from policies.signalled.pages import SignalPages
from policies.signalled.rates import clock_at_rate, freshness_at_rate
from policies.signalled.survey import SAMPLE, SignalSample
from tests import golden
from tests.policies.optimum.test_search import codes_of, rates_of, run_distributed, totals_of
from tests.policies.problems import Problem, random_problem
from tests.policies.signal_problems import (
    PERIODIC,
    SIGNALS,
    SignalProblem,
    check_signals_optimal,
    random_pages,
    random_signal_problem,
)
from transforms.batches.coders import ShardTables
from transforms.night.shared_limits import Parts, _only_parts
from transforms.night.solving import Ask, SolveMultiplier, advanced, block_to_tables, priced, tables_to_block

SEEDS = st.integers(0, 2**32)
CASES = golden.load("cis_optimum")["cases"]


def all_signals(pages: SignalPages, budget: float) -> SignalProblem:
    plain = Problem(pages.change_rate_per_day, pages.request_rate_per_day, budget)
    return SignalProblem(plain, np.arange(len(pages)), pages)


def optional(values) -> np.ndarray:
    return np.array([np.nan if value is None else float(value) for value in values])


@pytest.mark.parametrize("case", CASES, ids=[case["name"] for case in CASES])
def test_golden_optima(case):
    pages = SignalPages.from_rates(*np.array(case["pages"], dtype=float).T)
    problem = all_signals(pages, case["R"])
    block = problem.block()
    result, (part,) = search.solve(block, SIGNALS, case["R"])
    rate, want = part.crawl_rate_per_day, optional(case["rate"])
    is_jump = "jump" in case["status"]
    assert result.multiplier == pytest.approx(float(case["Lambda"]), rel=1e-9)
    assert rate.sum() == pytest.approx(float(case["budget_used"]), rel=1e-12)
    policy = search.signal_policy(block, SIGNALS, result, part)
    fresh = SIGNALS.freshness(rate, block.change_rate_per_day)
    fresh[policy.row] = policy.freshness
    assert float(pages.request_rate_per_day @ fresh) == pytest.approx(float(case["objective"]), rel=1e-10)
    if not is_jump:
        np.testing.assert_allclose(rate, want, rtol=1e-8, atol=1e-12)
        np.testing.assert_allclose(fresh, optional(case["freshness"]), rtol=1e-8, atol=1e-10)
        u = optional(case["u"])
        # Clocks of full recall may stand anywhere between two readings, those near mu/Delta are lost.
        told = ~np.isin(case["kind"], ["fullrecall"]) & (u < 35.0)
        np.testing.assert_allclose(policy.threshold[told], u[told], rtol=1e-7)
        np.testing.assert_array_equal(np.isinf(policy.threshold[np.isinf(u)]), True)
    m = np.array([np.nan if value is None else value for value in case["signals_m"]])
    full = np.array(case["kind"]) == "fullrecall"
    if not is_jump:
        policy = search.signal_policy(block, SIGNALS, result, part)
        kappa = pages.signal_weight[full]
        np.testing.assert_array_equal(signal_pages.signals_to_reach(kappa, policy.threshold[full]), m[full])


@settings(deadline=None, max_examples=24)
@given(seed=SEEDS)
def test_answers_meet_theorem_1(seed):
    problem = random_signal_problem(seed)
    result, parts = search.solve(problem.block(), SIGNALS, problem.budget)
    assert result.rounds <= search.ROUNDS
    check_signals_optimal(problem, result, parts)


@pytest.mark.parametrize("seed", range(3))
def test_large_answers_meet_theorem_1(seed):
    problem = random_signal_problem(seed, n=3000, constrained=False)
    result, parts = search.solve(problem.block(), SIGNALS, problem.budget)
    check_signals_optimal(problem, result, parts)


@pytest.mark.parametrize("visits", [1e-9, 1e-4, 30.0, 1e5])
def test_budgets_tiny_and_huge(visits):
    rng = np.random.Generator(np.random.Philox(key=11))
    n = 300
    request, change = 10.0 ** rng.uniform(-3, 2, n), 10.0 ** rng.uniform(-3, 2, n)
    problem = all_signals(random_pages(rng, request, change), visits * n)
    result, parts = search.solve(problem.block(), SIGNALS, problem.budget)
    check_signals_optimal(problem, result, parts)


@settings(deadline=None, max_examples=10)
@given(seed=SEEDS)
def test_signals_never_cost_freshness(seed):
    problem = random_signal_problem(seed, constrained=False)
    result, (part,) = search.solve(problem.block(), SIGNALS, problem.budget)
    _, (plain,) = search.solve(problem.block(), PERIODIC, problem.budget)
    with_signals = problem.value(part.crawl_rate_per_day).sum()
    without = problem.value(plain.crawl_rate_per_day, uses_signals=False).sum()
    assert with_signals >= without * (1 - 1e-9) - result.certificate


@settings(deadline=None, max_examples=10)
@given(seed=SEEDS)
def test_without_signals_it_is_the_periodic_objective_to_the_bit(seed):
    problem = random_problem(seed)
    result, parts = search.solve(problem.block(), SIGNALS, problem.budget)
    plain, plain_parts = search.solve(problem.block(), PERIODIC, problem.budget)
    assert replace(result, objective="periodic") == plain
    assert rates_of(parts) == rates_of(plain_parts) and codes_of(parts) == codes_of(plain_parts)
    # Nor does the periodic objective look at signals that are there.
    n = problem.change.size
    ones = SignalBlock(np.arange(n), np.ones(n), np.ones(n), np.ones(n))
    with_them, other = search.solve(replace(problem.block(), signals=ones), PERIODIC, problem.budget)
    assert with_them == plain and rates_of(other) == rates_of(plain_parts)


@settings(deadline=None, max_examples=8)
@given(seed=SEEDS)
def test_any_cut_into_blocks_gives_the_same_bits(seed):
    problem = random_signal_problem(seed)
    result, parts = search.solve(problem.blocks(1), SIGNALS, problem.budget)
    for shards in (3, 7, 16):
        other, other_parts = search.solve(problem.blocks(shards), SIGNALS, problem.budget)
        assert other == result
        assert rates_of(other_parts) == rates_of(parts)
        assert codes_of(other_parts) == codes_of(parts)
        assert totals_of(other_parts) == totals_of(parts)


def test_blocks_larger_than_a_window_give_the_same_bits():
    problem = random_signal_problem(5, n=70_000, constrained=False, share=0.6)
    problem = replace(problem, plain=replace(problem.plain, budget=7_000.0))
    result, parts = search.solve(problem.block(), SIGNALS, problem.budget)
    other, other_parts = search.solve(problem.blocks(7), SIGNALS, problem.budget)
    assert other == result and rates_of(other_parts) == rates_of(parts)
    check_signals_optimal(problem, result, parts)


@settings(deadline=None, max_examples=8)
@given(seed=SEEDS)
def test_distributed_form_equals_solve(seed):
    problem = random_signal_problem(seed)
    result, parts = search.solve(problem.block(), SIGNALS, problem.budget)
    blocks = problem.blocks(4)
    other, other_parts = run_distributed(blocks, SIGNALS, problem.budget, np.random.default_rng(seed))
    assert other == result and rates_of(other_parts) == rates_of(parts)


def drawn_pages(seed: int, key: int, n: int) -> tuple[np.random.Generator, SignalPages]:
    rng = np.random.Generator(np.random.Philox(key=[seed, key]))
    request, change = 10.0 ** rng.uniform(-2, 2, n), 10.0 ** rng.uniform(-2, 2, n)
    return rng, random_pages(rng, request, change)


def heard(pages: SignalPages) -> SignalPages:
    kind = signal_pages.kind_of(pages)
    return pages.take(np.flatnonzero((kind != signal_pages.INERT) & (kind != signal_pages.NO_SIGNALS)))


@settings(deadline=None, max_examples=20)
@given(seed=SEEDS)
def test_survey_bounds_demand(seed):
    rng, pages = drawn_pages(seed, 2, 50)
    pages.unsignalled_rate_per_day[rng.random(len(pages)) < 0.1] *= 1e-9
    problem = all_signals(pages, 1.0)
    bounds = Bounds(search.survey(problem.block(), SIGNALS, 1.0), SIGNALS)
    for multiplier in 10.0 ** rng.uniform(-6, 2, 6):
        demand = float(signal_value.crawl_rate(pages, float(multiplier)).sum())
        assert bounds.lower(multiplier) <= demand * (1 + 1e-9)
        assert demand <= bounds.upper(multiplier) * (1 + 1e-9)


@settings(deadline=None, max_examples=20)
@given(seed=SEEDS)
def test_a_page_asks_for_a_rate_at_its_least_value(seed):
    rng, pages = drawn_pages(seed, 3, 60)
    pages = heard(pages)
    rate = pages.signal_rate_per_day * 10.0 ** rng.uniform(-2, 2, len(pages))
    most = np.where(pages.unsignalled_rate_per_day > 0.0, np.inf, pages.signal_rate_per_day)
    asked = signal_value.crawl_rate(pages, least_value(pages, rate))
    assert np.all(asked >= np.minimum(rate, most) * (1 - 1e-9))
    at_first = signal_value.crawl_rate(pages, signal_pages.value_of_first(pages))
    assert np.all(at_first >= pages.signal_rate_per_day * (1 - 1e-9))


def paper_mix(n: int, budget: float, **limits) -> SignalProblem:
    """The mix of the paper's experiments: D, mu ~ U(0, 1), recall ~ Beta(1/4, 1/4), noise ~ U(0.1, 0.6)."""
    rng = np.random.Generator(np.random.Philox(key=3))
    request, change = rng.random(n), rng.random(n)
    pages = SignalPages.from_rates(request, change, rng.beta(0.25, 0.25, n), rng.uniform(0.1, 0.6, n))
    problem = all_signals(pages, budget)
    return replace(problem, plain=replace(problem.plain, **limits))


def test_a_demand_of_steps_is_found_whatever_the_cut():
    # All pages want their cap or nothing: rounds fall back on hundreds of multipliers.
    n = 2000
    problem = paper_mix(n, 0.04 * n, cap=np.full(n, 0.05))
    result, parts = search.solve(problem.block(), SIGNALS, problem.budget)
    assert totals_of(parts).at_cap > 0.7 * n
    check_signals_optimal(problem, result, parts)
    other, other_parts = search.solve(problem.blocks(7), SIGNALS, problem.budget)
    assert other == result and rates_of(other_parts) == rates_of(parts)


@pytest.mark.parametrize("limited", [True, False])
def test_demand_at_many_multipliers_is_the_sum_of_rates_within_limits(limited):
    n = 2500
    limits = {"cap": np.full(n, 0.3), "floor": np.where(np.arange(n) % 2 == 0, 0.05, 0.0)} if limited else {}
    problem = paper_mix(n, 0.1 * n, **limits)
    state = search.begin(search.survey(problem.block(), SIGNALS, problem.budget), SIGNALS, problem.budget)
    center = state.expanded_at
    many = tuple(center * np.exp(np.linspace(-2e-4, 1e-4, 300)))
    state = replace(state, pending=many, closing=False)
    found = search.demand(problem.block(), SIGNALS, state)
    pieces = search.Demand((0,) * len(many))
    for block in problem.blocks(5):
        pieces = pieces.merge(search.demand(block, SIGNALS, state))
    assert pieces == found
    floor, cap = problem.plain.bounds(SIGNALS)
    for at in (0, 17, 150, 299):
        rates = np.clip(signal_value.crawl_rate(problem.pages, many[at]), floor, cap)
        asked = found.units[at] / BUDGET_UNITS * problem.budget
        assert asked == pytest.approx(float(rates.sum()), rel=1e-9)


def test_pages_settled_at_both_ends_are_not_evaluated_in_between():
    n = 2000
    pages = paper_mix(n, 1.0).pages
    rows = SignalRows(np.arange(n), pages, (np.zeros(n), np.full(n, 0.05)))
    rows.expand(0.39)
    many = tuple(0.39 * np.exp(np.linspace(-1e-4, 1e-4, 400)))
    window = rows.window(0, n, many, within_limits=True)
    for price in (many[0], many[200], many[-1]):
        which, _ = window.others(price, slice(0, n))
        assert which.size < 0.05 * n
        want = np.minimum(signal_value.crawl_rate(pages, price), 0.05)
        found = np.minimum(window.rates(price, slice(0, n)), 0.05)
        np.testing.assert_allclose(found, want, rtol=1e-9)
        np.testing.assert_array_equal(np.minimum(window.rates(price, slice(300, 900)), 0.05), found[300:900])
    with pytest.raises(ValueError, match="none of the multipliers"):
        window.rates(0.5, slice(0, n))


def test_surveys_travel_compressed():
    problem = paper_mix(30_000, 3000.0)
    found = search.survey(problem.block(), SIGNALS, problem.budget)
    packed = pickle.dumps(found)
    assert len(packed) < 300_000
    back = pickle.loads(packed)
    for name in ("upper", "upper_steps", "lower", "lower_steps", "plain"):
        want, got = getattr(found.signals, name), getattr(back.signals, name)
        np.testing.assert_array_equal(got.key, want.key)
        np.testing.assert_array_equal(got.sums, want.sums)
    assert pickle.loads(pickle.dumps(search.Survey.empty(SIGNALS, 1.0))).ratios.sums.shape == (0, 3)
    both = back.merge(back)
    np.testing.assert_array_equal(both.signals.upper.sums, found.merge(found).signals.upper.sums)


@settings(deadline=None, max_examples=16)
@given(seed=SEEDS)
def test_clocks_and_freshness_at_a_rate(seed):
    rng, pages = drawn_pages(seed, 4, 40)
    general = signal_pages.kind_of(pages) == signal_pages.GENERAL
    general &= pages.unsignalled_rate_per_day > 1e-3 * pages.signal_rate_per_day
    pages = pages.take(np.flatnonzero(general))
    u = 10.0 ** rng.uniform(-3, 1, len(pages))
    rate = 1.0 / signal_value.interval_days(pages, u)
    found = clock_at_rate(pages, rate)
    np.testing.assert_allclose(1.0 / signal_value.interval_days(pages, found), rate, rtol=1e-9)
    np.testing.assert_allclose(freshness_at_rate(pages, rate), signal_value.freshness(pages, u), rtol=1e-8)


def test_freshness_between_steps_is_a_mixture():
    # Crawls at the second and at the third signal in turn, of a page that misses no change.
    pages = SignalPages(np.ones(1), np.zeros(1), np.full(1, 6.0), np.full(1, 0.7))
    at_two, at_three = (freshness_at_rate(pages, np.array([6.0 / m]))[0] for m in (2, 3))
    np.testing.assert_allclose(
        freshness_at_rate(pages, np.array([2.5]))[0], (at_two + at_three) / 2, rtol=1e-12
    )
    assert freshness_at_rate(pages, np.array([6.0]))[0] == pytest.approx(1.0)
    assert freshness_at_rate(pages, np.array([9.0]))[0] == 1.0
    sure = SignalPages(np.ones(1), np.ones(1), np.full(1, 3.0), np.array([np.inf]))
    assert freshness_at_rate(sure, np.array([2.0]))[0] == pytest.approx(0.5)


def test_samples_merge_in_any_order_and_estimate_the_whole():
    rng = np.random.Generator(np.random.Philox(key=8))
    n = 20_000
    pages = random_pages(rng, rng.pareto(1.1, n) + 0.01, rng.gamma(0.4, 0.5, n) + 1e-4)
    pages = pages.take(np.flatnonzero(pages.change_rate_per_day > 0.0))
    copies = pages.take(np.concatenate([np.arange(len(pages)), np.arange(500)]))
    parts = [copies.take(slice(k, None, 5)) for k in range(5)]
    whole = SignalSample.of(copies)
    merged = SignalSample.of(parts[3])
    for k in (1, 4, 0, 2):
        merged = SignalSample.of(parts[k]).merge(merged)
    assert whole.key.size == SAMPLE + 1
    for name in ("key", "parameters", "count"):
        np.testing.assert_array_equal(getattr(merged, name), getattr(whole, name))
    kinds, count = whole.weights()
    value = np.sqrt(copies.request_rate_per_day * copies.change_rate_per_day)
    of_kinds = np.sqrt(kinds.request_rate_per_day * kinds.change_rate_per_day)
    # The weights favour this sum: its standard error is below 1 / sqrt(SAMPLE - 1).
    assert float((of_kinds * count).sum()) == pytest.approx(float(value.sum()), rel=4 / np.sqrt(SAMPLE - 1))


def test_host_limits_and_caps_with_signals_bind():
    rng = np.random.Generator(np.random.Philox(key=9))
    n = 400
    pages = random_pages(rng, rng.pareto(1.1, n) + 0.01, rng.gamma(0.4, 0.5, n) + 1e-4)
    problem = all_signals(pages, 60.0)
    cap = np.where(rng.random(n) < 0.3, 0.2, np.inf)
    plain = replace(problem.plain, cap=cap, sizes=np.full(20, 20), limit=np.full(20, 4.0))
    problem = replace(problem, plain=plain)
    result, parts = search.solve(problem.block(), SIGNALS, problem.budget)
    assert totals_of(parts).hosts_at_limit > 3 and totals_of(parts).at_cap > 3
    check_signals_optimal(problem, result, parts)


def test_tables_carry_signals_there_and_back_and_to_parts_of_hosts():
    problem = random_signal_problem(33, n=60, constrained=False, share=0.5)
    sizes, limit = np.array([10, 20, 30]), np.array([0.5, np.inf, 0.7])
    problem = replace(problem, plain=replace(problem.plain, budget=30.0, sizes=sizes, limit=limit))
    block = problem.block()
    tables = block_to_tables(4, block, {"host_hash": pa.array([7, 8, 9], pa.uint64())})
    back = tables_to_block(tables)
    result, _ = search.solve(block, SIGNALS, problem.budget)
    assert search.solve(back, SIGNALS, problem.budget)[0] == result
    np.testing.assert_array_equal(back.signals.row, block.signals.row)
    narrow = _only_parts(tables, [7, 9], 30.0)
    assert isinstance(narrow, ShardTables) and narrow.tables["pages"].num_rows == 40
    for given_tables in (tables, narrow):
        parts = Parts(given_tables, [7, 9], 30.0)
        found = {host: parts.block(host) for host in parts.rows}
        for host, rows in ((7, slice(0, 10)), (9, slice(30, 60))):
            mine = (problem.row >= rows.start) & (problem.row < rows.stop)
            np.testing.assert_array_equal(found[host].signals.row, problem.row[mine] - rows.start)
            np.testing.assert_array_equal(
                found[host].signals.signal_weight, problem.pages.signal_weight[mine]
            )


def test_hosts_of_a_group_are_one_part():
    """In whatever rows they are; each keeps its own pages."""
    problem = random_signal_problem(34, n=60, constrained=False, share=0.5)
    sizes, limit = np.array([10, 20, 30]), np.full(3, 0.5)
    problem = replace(problem, plain=replace(problem.plain, budget=30.0, sizes=sizes, limit=limit))
    more = {"host_hash": pa.array([7, 8, 9], pa.uint64()), "unit_hash": pa.array([70, 0, 70], pa.uint64())}
    tables = block_to_tables(4, problem.block(), more)
    pages = np.r_[0:10, 30:60]
    for given_tables, hosts, groups in ((tables, [], True), (tables, [70], False)):
        parts = Parts(given_tables, hosts, 30.0, groups)
        assert {unit: rows.tolist() for unit, rows in parts.rows.items()} == {70: [0, 2]}
        block = parts.block(70)
        np.testing.assert_array_equal(block.change_rate_per_day, problem.block().change_rate_per_day[pages])
        mine = np.isin(problem.row, pages)
        np.testing.assert_array_equal(pages[block.signals.row], problem.row[mine])
        assert [len(parts.of_host(row)) for row in (0, 2)] == [10, 30] and parts.limit_per_day(70) == 0.5
    narrow = _only_parts(tables, [8], 30.0)
    assert narrow.tables["pages"].num_rows == 60  # the groups, and host 8
    assert list(Parts(narrow, [7], 30.0).rows) == []  # no host beside its group


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"row": np.array([1, 0])}, "row of signals must rise within the 2 pages"),
        ({"row": np.array([0, 2])}, "row of signals must rise within the 2 pages"),
        ({"signal_weight": np.array([np.nan, 1.0])}, r"signal_weight must lie in \[0, inf\]"),
        ({"signal_rate_per_day": np.array([1.0])}, r"signal_rate_per_day must be float64 of shape \(2,\)"),
        ({"unsignalled_rate_per_day": np.array([-1.0, 1.0])}, "unsignalled_rate_per_day must lie"),
    ],
)
def test_malformed_signals_are_errors(change, message):
    signals = replace(SignalBlock(np.arange(2), np.ones(2), np.ones(2), np.ones(2)), **change)
    block = search.PageBlock(np.ones(2), np.ones(2), signals=signals)
    with pytest.raises(ValueError, match=message):
        search.survey(block, SIGNALS, 1.0)


def test_the_distributed_search_in_a_pipeline_equals_solve():
    problem = random_signal_problem(12, n=200, constrained=False)
    want, _ = search.solve(problem.block(), SIGNALS, problem.budget)
    shards = [block_to_tables(i, block) for i, block in enumerate(problem.blocks(3))]
    with BeamPipeline() as pipeline:
        found = (
            pipeline
            | beam.Create(shards).with_output_types(ShardTables)
            | SolveMultiplier("signals", problem.budget, 3)
        )
        assert_that(found["result"], equal_to([want]))
        prices = pipeline | beam.Impulse() | beam.Map(lambda _, *told: priced(*told).price, *found["priced"])
        assert_that(prices, equal_to([want.price]), "Prices")


def test_a_worker_tells_one_sum_of_all_its_shards_and_nothing_of_none():
    problem = random_signal_problem(12, n=200, constrained=False)
    shards = [block_to_tables(i, block) for i, block in enumerate(problem.blocks(3))]
    begun = search.begin(search.survey(problem.block(), SIGNALS, problem.budget), SIGNALS, problem.budget)
    step = Ask(lambda tables, state: search.demand(tables_to_block(tables), SIGNALS, state), search.advance)
    step.start_bundle()
    assert not list(step.finish_bundle())
    for shard in shards:
        step.process(shard, begun)
    (told,) = (found.value for found in step.finish_bundle())
    assert told.units == search.demand(problem.block(), SIGNALS, begun).units
    assert search.advance(begun, told) == advanced(begun, [told], advance=search.advance)
