"""Replays: what a refresh shows, counted by hand, and what no crawler can do."""

import itertools

import numpy as np
import pytest

from policies.discovery import drawn, metrics
from policies.discovery.items import Crawler, Seen
from policies.discovery.pham import Pham
from policies.discovery.planner import Planner
from policies.discovery.presences import Presences
from policies.discovery.replay import Oracle, replay
from policies.discovery.rules import Elapsed, RoundRobin, Thompson, Uniform
from policies.numerics.typing_ import FloatArray, IntArray
from tests.policies.discovery.histories import history

CRAWLERS = {
    "uniform": Uniform,
    "round robin": RoundRobin,
    "thompson": Thompson,
    "thompson, later": lambda items: Thompson(items, first=False),
    "pham": Pham,
    "elapsed": Elapsed,
    "sampled": lambda items: Elapsed(items, sampled=True),
    "waiting": lambda items: Elapsed(items, worth_hours=12.0),
    "recrawl": Planner,
}


class Told:
    """Refreshes what it is told, and keeps what it sees."""

    def __init__(self, picks: list[list[int]]) -> None:
        self.picks, self.seen, self.due = picks, [], []

    def pick(self, step: int, now_hours: float, due_hours: FloatArray) -> IntArray:
        self.due.append(due_hours.tolist())
        return np.array(self.picks[step], np.int64)

    def learn(self, step: int, now_hours: float, seen: Seen) -> None:
        self.seen.append(seen)


def test_a_history_by_hand() -> None:
    # Source 0 has targets 0 (to 2.0), 1 (1.0 to 2.2) and 3 (from 2.6); source 1 has 1, and 2 for an hour.
    rows = [(0, 0, -1.0, 2.0), (0, 1, 1.0, 2.2), (0, 3, 2.6, None), (1, 1, 1.0, None), (1, 2, 1.0, 2.0)]
    told = Told([[0], [0], [0, 1], [0, 1], [0]])
    run = replay(history(rows, 5, (0, 0)), told, 1)
    assert run.found_step.tolist() == [[0, 1, 5, 3]]
    assert run.refreshes[0, 0].tolist() == [1, 1, 2, 2, 1]
    links = [s.links.tolist() for s in told.seen]
    new = [s.new.tolist() for s in told.seen]
    assert links == [[1], [2], [0, 1], [1, 1], [1]]
    assert new == [[1], [1], [0, 0], [1, 0], [0]]
    hours = [s.hours.tolist() for s in told.seen]
    assert hours == [[np.inf], [1.0], [1.0, np.inf], [1.0, 1.0], [1.0]]
    # At step 2: of what came between the refreshes of steps 0 and 1, target 1, nothing is left.
    assert (told.seen[2].held.tolist(), told.seen[2].kept.tolist()) == ([1, 0], [0, 0])
    assert (told.seen[4].held.tolist(), told.seen[4].kept.tolist()) == ([1], [1])
    assert told.due[2] == [1.5, np.inf]


def test_two_sources_of_a_step_are_both_credited_and_the_target_is_found_once() -> None:
    told = Told([[0, 1], [0, 1]])
    run = replay(history([(0, 0, 0.0, None), (1, 0, 0.0, None)], 2, (0, 0)), told, 1)
    assert told.seen[0].new.tolist() == [1, 1] and told.seen[1].new.tolist() == [0, 0]
    assert told.seen[0].credit.tolist() == [0.5, 0.5] and told.seen[1].credit.tolist() == [0.0, 0.0]
    assert run.found_step.tolist() == [[0]]


def test_a_missed_poll_shows_nothing_and_hours_run_on() -> None:
    rows = [(0, t, float(t), None) for t in range(4)]
    told = Told([[0]] * 4)
    run = replay(history(rows, 4, (0,), missed=[(0, 1), (0, 2)]), told, 1)
    assert [s.item.tolist() for s in told.seen] == [[0], [], [], [0]]
    assert told.seen[3].hours.tolist() == [3.0] and told.seen[3].new.tolist() == [3]
    assert run.refreshes.sum() == 4  # who asks in vain has asked
    assert run.found_step.tolist() == [[0, 3, 3, 3]]


@pytest.fixture(scope="module")
def domain() -> Presences:
    return drawn.draw(3, 0, sources=20, hours=150)


@pytest.mark.parametrize("make", [*CRAWLERS.values(), None], ids=[*CRAWLERS, "oracle"])
def test_budgets_are_kept_and_what_is_found_was_there(domain: Presences, make) -> None:
    budgets = np.array([1, 4, 30])
    items = domain.items(budgets, np.array([0, 1, 2], np.uint64))
    crawler: Crawler = Oracle(items, domain) if make is None else make(items)
    run = replay(domain, crawler, 3)
    most = np.minimum(budgets, domain.sources)[:, None, None]
    assert (run.refreshes <= most).all()
    if make is not None:
        assert (run.refreshes == most).all()
    found = run.found_step < domain.steps
    first = domain.first_step()
    assert (run.found_step >= first).all()  # nobody finds what nobody shows
    # With more refreshes than sources everything is found at once.
    assert (run.found_step[2] == first).all()
    judged = metrics.judge(domain, run, 24.0)
    begin = first >= 24
    there = begin & (first < domain.steps)
    assert judged.found[:, 0, -1].tolist() == (found & there).sum(axis=1).tolist()
    assert (np.diff(judged.within, axis=0) >= 0).all() and (judged.within[-1] <= judged.coverage).all()


def test_the_oracle_adds_in_each_step_at_least_what_any_single_source_would(domain: Presences) -> None:
    items = domain.items(np.array([1]), np.zeros(1, np.uint64))
    found = replay(domain, Oracle(items, domain), 1).found_step[0]
    for step in (0, 1, 7, 60, 149):
        known = found < step
        most = 0
        for poll in domain.shown[step][domain.shown[step] >= 0]:
            row = domain.at(np.array([poll]))[1]
            most = max(most, len(np.unique(domain.target[row][~known[domain.target[row]]])))
        assert (found == step).sum() == most


def test_the_oracle_finds_at_least_half_of_what_the_best_of_all_schedules_does() -> None:
    """Of all pairs of four sources in each of five steps: what is found is submodular (Fisher, Nemhauser and
    Wolsey 1978). It is no upper bound, as it does not look ahead."""
    rng = np.random.Generator(np.random.Philox(key=7))
    below, pairs = 0, list(itertools.combinations(range(4), 2))
    for _ in range(20):
        shown = rng.random((5, 4, 12)) < 0.15
        rows = [(s, t, float(step), step + 1.0) for step, s, t in np.argwhere(shown).tolist()]
        small = history(rows, 5, (0, 0, 0, 0))
        found = replay(small, Oracle(small.items(np.array([2]), np.zeros(1, np.uint64)), small), 1).found_step
        sets = [
            {sum(1 << int(t) for t in np.flatnonzero(step[[a, b]].any(axis=0))) for a, b in pairs}
            for step in shown
        ]
        every = {0}
        for step in sets:
            every = {known | more for known in every for more in step}
        best, ours = max(known.bit_count() for known in every), int((found < small.steps).sum())
        assert best / 2 <= ours <= best
        below += ours < best
    assert 0 < below < 20


@pytest.mark.parametrize("name", CRAWLERS)
def test_lanes_and_domains_do_not_know_of_each_other(name: str) -> None:
    """The same alone and beside others: what is drawn depends on source, seed and step only."""
    rows = [
        (s, 40 * s + t, 0.5 * t * (1 + s % 3), 0.5 * t * (1 + s % 3) + 4) for s in range(6) for t in range(40)
    ]
    both = history(rows, 48, (0, 0, 0, 1, 1, 1))
    alone = history([r for r in rows if r[0] < 3], 48, (0, 0, 0))
    budgets, seeds = np.array([1, 2, 1]), np.array([5, 5, 9], np.uint64)
    together = replay(both, CRAWLERS[name](both.items(budgets, seeds)), 3).found_step[1, : alone.targets]
    one = replay(alone, CRAWLERS[name](alone.items(budgets[1:2], seeds[1:2])), 1).found_step[0]
    assert np.array_equal(np.minimum(together, 48), one)


def test_recrawl_finds_more_than_thompson_on_drawn_domains() -> None:
    ahead = []
    for number in range(3):
        domain = drawn.draw(11, number, sources=40, hours=300)
        items = domain.items(np.array([2, 5]), np.zeros(2, np.uint64))
        ours, theirs = (
            metrics.judge(domain, replay(domain, make(items), 2), 48.0) for make in (Planner, Thompson)
        )
        ahead.append(ours.coverage[:, 0] - theirs.coverage[:, 0])
        assert (ours.within[1] > theirs.within[1]).all()
    assert np.min(ahead) > 0.02
