"""The slot simulator picks what evaluating every page picks, ties included."""

import numpy as np
import pytest

from policies.greedy.crawl_values import crawl_value_policy
from policies.simulation.slots import Lanes, run_lanes, slot_times
from policies.simulation.streams import Instance, Streams, draw_streams, generator, uniform_instance
from tests.policies.simulation.naive import best_pages

POLICIES = (
    "GREEDY",
    "GREEDY-CIS",
    "GREEDY-NCIS",
    "G-NCIS-APPROX-1",
    "G-NCIS-APPROX-2",
    "G-NCIS-APPROX-5",
    "GREEDY-CIS+",
    "GREEDY-NCIS-D",
)


def _check(
    instances: list[Instance],
    streams: list[Streams],
    times: np.ndarray,
    names: tuple[str, ...] = POLICIES,
    delay: float = 0.0,
    told: list[Instance] | None = None,
) -> np.ndarray:
    told = told or instances
    lanes = [Lanes(crawl_value_policy(name), told, delay) for name in names]
    picks = run_lanes(lanes, streams, times)
    assert picks.shape == (len(names), len(streams), times.size)
    for j, lane in enumerate(lanes):
        for i, stream in enumerate(streams):
            expected = best_pages(lane.policy, told[i], stream, times, picks[j, i], delay)
            wrong = np.flatnonzero(expected != picks[j, i])
            assert wrong.size == 0, (names[j], i, wrong[:3], picks[j, i, wrong[:3]], expected[wrong[:3]])
    return picks


@pytest.mark.parametrize(
    ("m", "bandwidth", "until"), [(12, 10.0, 12.0), (20, 0.5, 120.0), (60, 20.0, 8.0), (300, 40.0, 5.0)]
)
def test_picks_are_those_of_evaluating_every_page(m: int, bandwidth: float, until: float) -> None:
    instances = [uniform_instance(m, generator(1, r, "instance"), (0.25, 0.25), (0.1, 0.6)) for r in range(2)]
    streams = [draw_streams(x, until, 1, r) for r, x in enumerate(instances)]
    _check(instances, streams, slot_times(bandwidth, until), delay=5.0 / bandwidth)


@pytest.mark.parametrize("m", [1, 2, 3])
@pytest.mark.parametrize("bandwidth", [1.0, 3.0])
def test_few_pages_and_long_slots_come_to_an_end(m: int, bandwidth: float) -> None:
    """Bounds are then so wide that they tell nothing, not even that a value is positive."""
    instances = [uniform_instance(m, generator(0, r, "instance"), (0.25, 0.25), (0.1, 0.6)) for r in range(2)]
    streams = [draw_streams(x, 12.0, 0, r) for r, x in enumerate(instances)]
    _check(instances, streams, slot_times(bandwidth, 12.0), delay=0.3)


def test_picks_of_pages_of_every_kind() -> None:
    rng = generator(2, 0, "instance")
    m = 60
    change = rng.choice([0.0, 0.2, 1.0, 3.0], m)
    request = rng.choice([0.0, 0.5, 1.0], m, p=[0.1, 0.45, 0.45])
    recall = rng.choice([0.0, 1e-12, 0.4, 1.0 - 1e-9, 1.0], m)
    noise = rng.choice([0.0, 1e-9, 0.5, 4.0], m)
    instance = Instance(request, change, recall, noise)
    _check([instance], [draw_streams(instance, 8.0, 2, 0)], slot_times(25.0, 8.0), delay=0.3)


def test_ties_go_to_the_page_of_the_lowest_index() -> None:
    m = 20
    same = Instance(np.full(m, 0.5), np.full(m, 0.5), np.full(m, 0.5), np.full(m, 0.2))
    quiet = Streams(m, 5.0, np.zeros(0, np.int32), np.zeros(0), np.zeros(0, np.int32), np.zeros(0))
    picks = _check([same], [quiet], slot_times(10.0, 5.0), ("GREEDY", "GREEDY-CIS", "GREEDY-NCIS"))
    assert picks[0, 0, : 2 * m].tolist() == [*range(m), *range(m)]
    useless = Instance(np.zeros(m), np.zeros(m), np.zeros(m), np.zeros(m))
    assert not _check([useless], [quiet], slot_times(2.0, 5.0), ("GREEDY", "GREEDY-NCIS")).any()


def test_picks_when_the_bandwidth_changes() -> None:
    instance = uniform_instance(80, generator(3, 0, "instance"), (0.25, 0.25), (0.1, 0.6))
    times = slot_times([(0.0, 5.0), (10.0, 40.0), (16.0, 5.0)], 24.0)
    assert times.size == 50 + 240 + 40 and np.all(np.diff(times) > 0.0)
    _check([instance], [draw_streams(instance, 24.0, 3, 0)], times, ("GREEDY", "GREEDY-NCIS", "GREEDY-CIS"))


def test_picks_with_wrong_parameters_and_late_signals() -> None:
    truth = uniform_instance(50, generator(4, 0, "instance"), (0.25, 0.25), (0.1, 0.6))
    rng = generator(4, 0, "beliefs")
    told = truth.with_signals(
        0.8 * truth.precision + 0.2 * rng.random(50), 0.8 * truth.recall + 0.2 * rng.random(50)
    )
    for delay in ("exponential", "poisson"):
        streams = draw_streams(truth, 10.0, 4, 0, delay, 0.6)
        names = ("GREEDY-NCIS", "GREEDY-NCIS-D", "GREEDY-CIS+")
        _check([truth], [streams], slot_times(10.0, 10.0), names, 0.5, [told])


def test_a_signal_at_the_instant_of_a_slot_is_seen_in_it() -> None:
    sure = Instance(np.ones(3), np.ones(3), np.ones(3), np.zeros(3))
    signals = Streams(
        3, 4.0, np.zeros(0, np.int32), np.zeros(0), np.array([2, 1], np.int32), np.array([2.0, 3.5])
    )
    picks = run_lanes([Lanes(crawl_value_policy("GREEDY-NCIS"), [sure])], [signals], slot_times(1.0, 4.0))
    assert picks[0, 0].tolist() == [0, 2, 0, 1]


def test_lanes_do_not_depend_on_each_other() -> None:
    instances = [
        uniform_instance(90, generator(5, r, "instance"), (0.25, 0.25), (0.1, 0.6)) for r in range(3)
    ]
    streams = [draw_streams(x, 12.0, 5, r) for r, x in enumerate(instances)]
    times = slot_times(25.0, 12.0)
    names = ("GREEDY", "GREEDY-NCIS")
    whole = run_lanes([Lanes(crawl_value_policy(x), instances) for x in names], streams, times)
    for j, name in enumerate(names):
        for r in range(3):
            alone = run_lanes([Lanes(crawl_value_policy(name), [instances[r]])], [streams[r]], times)
            np.testing.assert_array_equal(alone[0, 0], whole[j, r])


def test_slots() -> None:
    np.testing.assert_array_equal(slot_times(4.0, 1.0), [0.25, 0.5, 0.75, 1.0])
    assert slot_times(100.0, 1000.0).size == 100_000
    for bandwidth in (0.0, -1.0, np.nan, [], [(1.0, 2.0)], [(0.0, 1.0), (9.0, 1.0)]):
        with pytest.raises(ValueError):
            slot_times(bandwidth, 5.0)


def test_lanes_that_do_not_fit() -> None:
    pages = uniform_instance(4, generator(0, 0, "instance"))
    streams = draw_streams(pages, 2.0, 0, 0)
    greedy = crawl_value_policy("GREEDY")
    with pytest.raises(ValueError, match="repetitions"):
        run_lanes([Lanes(greedy, [pages, pages])], [streams], slot_times(1.0, 2.0))
    with pytest.raises(ValueError, match="rise"):
        run_lanes([Lanes(greedy, [pages])], [streams], np.array([1.0, 1.0]))
    with pytest.raises(ValueError, match="same number of pages"):
        run_lanes([Lanes(greedy, [uniform_instance(5, generator(0, 0, "instance"))])], [streams], np.ones(1))
    for name in ("GREEDY-XCIS", "G-NCIS-APPROX-0", "G-NCIS-APPROX-", "G-NCIS-APPROX-1x", "G-NCIS-APPROX-01"):
        with pytest.raises(ValueError, match="no policy"):
            crawl_value_policy(name)
    assert crawl_value_policy("G-NCIS-APPROX-12").terms == 12
