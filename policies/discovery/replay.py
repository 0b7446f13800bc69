"""Crawlers tried on a history of links: what each refresh shows them, and what they find when.

Runs go side by side in *lanes* over one history: another budget or seed each. Items are the sources of all
lanes, lane by lane. Nothing passes from lane to lane, or from domain to domain.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from policies.discovery.items import Crawler, Items, Seen
from policies.discovery.picking import top
from policies.discovery.presences import US_PER_HOUR, Presences
from policies.numerics.typing_ import BoolArray, FloatArray, IntArray


@dataclass(frozen=True)
class Run:
    """What came of all lanes.

    Attributes
    ----------
    found_step : (lanes, n) int64
        When each target was found; the number of steps if it was not.
    refreshes : (lanes, d, steps) int64
        Of each domain, failed ones too.
    """

    found_step: IntArray
    refreshes: IntArray


class Oracle:
    """Knows what sources show, and takes in each step greedily those that add most (Dasgupta et al. 2007).

    It does not look ahead, so it is no upper bound. It refreshes nothing that would add nothing.
    """

    def __init__(self, items: Items, history: Presences) -> None:
        self._items, self._history = items, history
        self._known = np.zeros(len(items) // history.sources * history.targets, np.bool_)

    def pick(self, step: int, now_hours: float, due_hours: FloatArray) -> IntArray:
        """See `Crawler`."""
        history, items = self._history, self._items
        polls = np.tile(history.shown[step], len(items) // history.sources)
        item = np.flatnonzero(polls >= 0)
        of, row = history.at(polls[item])
        of = item[of]
        place = of // history.sources * history.targets + history.target[row]
        picked, left, tie = [np.zeros(0, np.int64)], items.k.copy(), np.arange(len(items), dtype=np.float64)
        while True:
            open_ = ~self._known[place]
            of, place = of[open_], place[open_]
            adds = np.bincount(of, minlength=len(items)).astype(np.float64)
            best = top(np.where(adds > 0.0, adds, -np.inf), tie, items.group, np.minimum(left, 1))
            if not len(best):
                return np.sort(np.concatenate(picked))
            picked.append(best)
            left[items.group[best]] -= 1
            self._known[place[np.isin(of, best)]] = True

    def learn(self, step: int, now_hours: float, seen: Seen) -> None:
        """Nothing that it does not know."""


def replay(history: Presences, crawler: Crawler, lanes: int) -> Run:
    """Let a crawler go through all steps of a history.

    Parameters
    ----------
    history : Presences
    crawler : Crawler
        Of `history.items` of so many lanes.
    lanes : int
    """
    s = history.sources
    found = np.full((lanes, history.targets), history.steps)
    refreshes = np.zeros((lanes, history.domains, history.steps), np.int64)
    # The last two polls that each item was shown, the later one last; -1 for none.
    visits = np.full((lanes * s, 2), -1)
    last_us = np.zeros(lanes * s, np.int64)
    for step in range(history.steps):
        end_us = history.start_us + (step + 1) * history.step_us
        now_hours = end_us / US_PER_HOUR
        due = np.where(visits[:, 1] >= 0, (end_us - last_us) / US_PER_HOUR, np.inf)
        item = crawler.pick(step, now_hours, due)
        lane, source = np.divmod(item, s)
        np.add.at(refreshes[:, :, step], (lane, history.domain[source]), 1)
        poll = history.shown[step, source]
        item, poll = item[poll >= 0], poll[poll >= 0]
        crawler.learn(step, now_hours, _refresh(history, found, step, item, poll, visits[item]))
        visits[item] = np.stack([visits[item, 1], poll], axis=1)
        last_us[item] = history.poll_us[poll]
    return Run(found, refreshes)


def _refresh(
    history: Presences, found: IntArray, step: int, item: IntArray, poll: IntArray, visits: IntArray
) -> Seen:
    m, at_us = len(item), history.poll_us[poll]
    earlier, before = visits.T

    def count(which: IntArray, mask: BoolArray | None = None) -> IntArray:
        return np.bincount(which if mask is None else which[mask], minlength=m)

    of, row = history.at(poll)
    flat, place = found.reshape(-1), item[of] // history.sources * history.targets + history.target[row]
    novel = flat[place] == history.steps
    flat[place[novel]] = step
    # A target that several refreshes of the step show is divided among them.
    _, target, shown_by = np.unique(place[novel], return_inverse=True, return_counts=True)
    credit = np.bincount(of[novel], 1.0 / shown_by[target], m).astype(np.float64)
    old = np.flatnonzero(earlier >= 0)
    old_of, old_row = history.at(before[old])
    old_of = old[old_of]
    young = history.appeared_us[old_row] > history.poll_us[earlier[old_of]]
    there = history.gone_us[old_row] > at_us[old_of]
    hours = np.where(before >= 0, (at_us - history.poll_us[before]) / US_PER_HOUR, np.inf)
    return Seen(
        item, hours, count(of), count(of, novel), credit, count(old_of, young), count(old_of, young & there)
    )
