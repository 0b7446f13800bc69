"""Synthetic experiments against theory, and the laws of their streams."""

import numpy as np
import pytest

from policies.numerics.typing_ import FloatArray, IntArray
from policies.objectives.objectives import get
from policies.sequencing.low_discrepancy import low_discrepancy
from policies.simulation.experiments import Experiment, Result, simulate
from policies.simulation.scoring import accuracy, fresh_intervals, sampled_accuracy
from policies.simulation.slots import slot_times
from policies.simulation.streams import (
    Instance,
    Streams,
    baseline_accuracy,
    draw_requests,
    draw_streams,
    generator,
    optimal_rates,
    uniform_instance,
)


def _pages(rng: np.random.Generator) -> Instance:
    return uniform_instance(80, rng, (0.25, 0.25), (0.1, 0.6))


def _small(names: tuple[str, ...], repetitions: range = range(3), **more: object) -> Result:
    return simulate(Experiment(names, 20.0, 20.0, **more), _pages, 3, repetitions, keep_picks=True)


def test_crawls_of_a_sequence_are_within_one_of_rate_times_time() -> None:
    rng = generator(0, 0, "instance")
    for m, total in ((7, 1.0), (300, 1.0), (50, 0.6)):
        share = rng.dirichlet(np.full(m, 0.3)) * total
        picks = low_discrepancy(share, 3000)
        counts = np.cumsum(picks[:, None] == np.arange(m), axis=0)
        ahead = counts - share * np.arange(1, 3001)[:, None]
        assert ahead.min() > -1.0 - 1e-6
        assert ahead.max() < 1.0 + 1e-6
        assert np.all(picks >= 0) == (total == 1.0)


def test_shares_that_cannot_be_served() -> None:
    assert low_discrepancy(np.array([0.0, 0.0]), 3).tolist() == [-1, -1, -1]
    assert low_discrepancy(np.array([0.0, 1.0]), 3).tolist() == [1, 1, 1]
    for share, slots in (([0.6, 0.6], 4), ([-0.1, 0.2], 4), ([np.nan, 0.2], 4), ([0.5, 0.5], -1)):
        with pytest.raises(ValueError):
            low_discrepancy(np.array(share), slots)


def periodic_crawls(rate: FloatArray, until: float, rng: np.random.Generator) -> tuple[IntArray, FloatArray]:
    """At even distances from a random first one, in (0, until]."""
    first = rng.random(rate.size)
    number = np.maximum(np.floor(rate * until - first) + 1.0, 0.0).astype(np.int64)
    page = np.repeat(np.arange(rate.size), number)
    nth = np.arange(page.size) - np.repeat(np.cumsum(number) - number, number)
    return page, (first[page] + nth) / rate[page]


def test_crawling_at_even_distances_is_as_fresh_as_theory_says() -> None:
    instance = uniform_instance(200, generator(7, 0, "instance"))
    rate = optimal_rates(instance, 30.0)
    assert rate.sum() == pytest.approx(30.0)
    found = []
    for r in range(40):
        streams = draw_streams(instance, 100.0, 7, r)
        page, time = periodic_crawls(rate, 100.0, generator(7, r, "phases"))
        found.append(accuracy(instance, streams, page, time, np.array([60.0, 100.0]))[0])
    # Pages that are never crawled are fresh for a while at first: left out of both sides.
    early = instance.request_rate * (rate == 0.0) * np.exp(-60.0 * instance.change_rate)
    extra = (early * -np.expm1(-40.0 * instance.change_rate) / (40.0 * instance.change_rate)).sum()
    expected = baseline_accuracy(instance, rate) + extra / instance.request_rate.sum()
    assert np.mean(found) == pytest.approx(expected, abs=3.0 * np.std(found) / np.sqrt(40))
    assert np.std(found) / np.sqrt(40) < 0.002


def test_baseline_is_the_value_of_the_optimum() -> None:
    instance = uniform_instance(50, generator(1, 0, "instance"))
    rate = optimal_rates(instance, 10.0)
    fresh = rate * -np.expm1(-instance.change_rate / np.maximum(rate, 1e-300)) / instance.change_rate
    expected = (instance.request_rate * fresh).sum() / instance.request_rate.sum()
    assert baseline_accuracy(instance, rate) == pytest.approx(expected, rel=1e-12)
    assert optimal_rates(instance, 0.5).max() <= 0.5
    assert get("periodic").name == "periodic"


def test_a_crawl_a_slot() -> None:
    names = ("GREEDY", "GREEDY-CIS", "GREEDY-NCIS", "LDS")
    result = _small(names, warm_up=0.0)
    assert result.picks is not None and result.picks.shape == (4, 3, 400)
    assert result.picks.min() >= 0
    np.testing.assert_allclose(result.crawl_rate.sum(axis=2), 20.0, rtol=1e-12)


def test_repetitions_share_their_world_and_no_more() -> None:
    """The same numbers whatever policies and repetitions run together."""
    names = ("GREEDY", "GREEDY-NCIS", "LDS", "BASELINE")
    whole = _small(names, requests=True)
    part = _small(("GREEDY-NCIS", "BASELINE"), range(1, 2), requests=True)
    for column in ("accuracy", "sampled", "crawl_rate", "picks"):
        np.testing.assert_array_equal(getattr(part, column)[:, 0], getattr(whole, column)[[1, 3], 1])
    again = _small(names, requests=True)
    np.testing.assert_array_equal(again.accuracy, whole.accuracy)


def test_windows_add_up_to_the_whole() -> None:
    result = _small(("GREEDY", "LDS"), warm_up=4.0, edges=np.array([4.0, 8.0, 20.0]))
    assert result.over_time.shape == (2, 3, 2)
    np.testing.assert_allclose(result.over_time @ [0.25, 0.75], result.accuracy, rtol=1e-12)


def test_policies_and_limits_that_are_not_there() -> None:
    for experiment in (
        Experiment(("GREEDY", "NOPE"), 1.0, 5.0),
        Experiment(("LDS",), [(0.0, 1.0), (2.0, 3.0)], 5.0),
        Experiment(("GREEDY",), 1.0, 5.0, warm_up=5.0),
        Experiment(("GREEDY",), 1.0, 5.0, delay="late"),  # type: ignore[arg-type]
    ):
        with pytest.raises(ValueError):
            simulate(experiment, _pages, 0, [0])
    with pytest.raises(ValueError, match="no repetitions"):
        simulate(Experiment(("GREEDY",), 1.0, 5.0), _pages, 0, [])


def test_fresh_from_a_crawl_to_the_next_change() -> None:
    streams = Streams(
        3, 10.0, np.array([0, 0, 1], np.int32), np.array([2.0, 6.0, 4.0]), np.zeros(0, np.int32), np.zeros(0)
    )
    crawl_page, crawl_time = np.array([0, 1, -1, 0, 0]), np.array([3.0, 4.0, 4.5, 6.0, 7.0])
    page, begin, end = fresh_intervals(streams, crawl_page, crawl_time)
    assert page.tolist() == [0, 0, 0, 0, 1, 1, 2]
    assert begin.tolist() == [0.0, 3.0, 6.0, 7.0, 0.0, 4.0, 0.0]
    assert end.tolist() == [2.0, 6.0, 7.0, 10.0, 4.0, 10.0, 10.0]
    pages = Instance(np.array([1.0, 2.0, 0.0]), *np.zeros((3, 3)))
    found = accuracy(pages, streams, crawl_page, crawl_time, np.array([0.0, 2.0, 4.0, 10.0]))
    np.testing.assert_allclose(found, [1.0, 5.0 / 6.0, 1.0])
    asked, when = np.array([0, 0, 0, 1, 2]), np.array([2.5, 6.0, 1.0, 3.9, 9.0])
    assert sampled_accuracy(streams, crawl_page, crawl_time, asked, when, 0.0) == 0.8
    assert sampled_accuracy(streams, crawl_page, crawl_time, asked, when, 2.0) == 0.75
    assert np.isnan(sampled_accuracy(streams, crawl_page, crawl_time, asked, when, 9.5))


def test_exact_and_sampled_accuracy_agree() -> None:
    result = simulate(Experiment(("GREEDY",), 20.0, 40.0, requests=True), _pages, 5, range(30))
    apart = result.sampled[0] - result.accuracy[0]
    assert abs(apart.mean()) < 3.0 * apart.std() / np.sqrt(30)
    assert apart.std() / np.sqrt(30) < 0.005


def test_streams_have_the_rates_of_the_instance() -> None:
    m, until = 400, 50.0
    instance = Instance(np.full(m, 0.7), np.full(m, 0.5), np.full(m, 0.3), np.full(m, 0.2))
    streams = draw_streams(instance, until, 9, 0)
    for number, rate in (
        (streams.change_time.size, 0.5),
        (streams.signal_time.size, 0.3 * 0.5 + 0.2),
        (draw_requests(instance, until, 9, 0)[1].size, 0.7),
    ):
        assert number == pytest.approx(rate * m * until, abs=4.0 * np.sqrt(rate * m * until))
    page, time = streams.change_page, streams.change_time
    assert np.all((np.diff(page) > 0) | ((np.diff(page) == 0) & (np.diff(time) > 0.0)))
    assert np.all(np.diff(streams.signal_time) >= 0.0)
    assert time.min() > 0.0 and time.max() <= until
    true_signals = np.isin(streams.signal_time, time).sum()
    assert true_signals == pytest.approx(0.15 * m * until, abs=4.0 * np.sqrt(0.15 * m * until))


def test_late_signals() -> None:
    instance = Instance(np.ones(300), np.ones(300), np.ones(300), np.zeros(300))
    prompt = draw_streams(instance, 40.0, 2, 0)
    assert prompt.signal_time.size == prompt.change_time.size
    for kind, spread in (("exponential", 0.5), ("poisson", 0.5 / np.sqrt(6.0))):
        late = draw_streams(instance, 40.0, 2, 0, kind, 0.5)  # type: ignore[arg-type]
        np.testing.assert_array_equal(late.change_time, prompt.change_time)
        lost = prompt.signal_time.size - late.signal_time.size
        expected = 300 * 0.5
        assert lost == pytest.approx(expected, abs=5.0 * np.sqrt(expected))
        kept = prompt.signal_time[prompt.signal_time < 30.0]
        shift = late.signal_time[late.signal_time < 30.0].size - kept.size
        assert shift == pytest.approx(-150.0, abs=5.0 * np.sqrt(150.0 + 300.0 * spread))
    slots = draw_streams(instance, 5.0, 2, 0, "poisson", 0.06).signal_time
    assert slots.min() > 0.0


def test_signals_of_a_given_precision_and_recall() -> None:
    pages = uniform_instance(30, generator(0, 0, "instance"))
    precision = np.concatenate(([0.0, 1.0], np.linspace(0.05, 0.95, 28)))
    told = pages.with_signals(precision, np.full(30, 0.4))
    np.testing.assert_allclose(told.precision, precision, rtol=1e-12)
    np.testing.assert_array_equal(told.recall[1:], 0.4)
    assert told.recall[0] == 0.0 and told.false_signal_rate[1] == 0.0
    with pytest.raises(ValueError, match="recall"):
        Instance(np.ones(2), np.ones(2), np.array([0.5, 1.5]), np.ones(2))
    with pytest.raises(ValueError, match="shape"):
        Instance(np.ones(2), np.ones(3), np.ones(2), np.ones(2))


def test_discrete_policies_come_close_to_the_continuous_optimum() -> None:
    def pages(rng: np.random.Generator) -> Instance:
        return uniform_instance(100, rng)

    result = simulate(Experiment(("GREEDY", "LDS", "BASELINE"), 25.0, 150.0, 40.0), pages, 11, range(12))
    apart = result.accuracy[:2] / result.accuracy[2] - 1.0
    assert np.all(np.abs(apart.mean(axis=1)) < 0.01)
    np.testing.assert_allclose(slot_times(25.0, 2.0)[-1], 2.0)


def test_signals_help_whoever_knows_how_noisy_they_are() -> None:
    names = ("GREEDY", "GREEDY-CIS", "GREEDY-NCIS")
    result = simulate(Experiment(names, 15.0, 30.0), _pages, 13, range(8))
    for other in (0, 1):
        gain = result.accuracy[2] - result.accuracy[other]
        assert gain.mean() > 2.0 * gain.std() / np.sqrt(8)
