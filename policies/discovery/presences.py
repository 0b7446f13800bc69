"""What sources showed, and when: a history of links cut into steps, for crawlers to be tried on.

A *presence* is a time from which a source shows a target until it no longer does; a *poll* is an instant at
which a source was looked at. A refresh in a step is that step's last poll of the source: it happens when the
poll did, and shows what it saw. Where a step has no poll of a source nobody knows what a refresh would have
shown: it fails, shows nothing, and is evidence of nothing. So hours between refreshes are those between their
polls, however uneven.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

import numpy as np

from policies.discovery.items import Items
from policies.numerics.typing_ import Int32Array, IntArray, UIntArray

US_PER_HOUR: Final = 3_600_000_000
NEVER: Final = int(np.iinfo(np.int64).max)


@dataclass(frozen=True)
class Presences:
    """A history of s sources in d domains, n targets, p presences and q polls.

    A target belongs to one domain: where several show it, it is a target of each.

    Attributes
    ----------
    source_hash : (s,) uint64
        Stable hashes, that draws are keyed by.
    domain : (s,) int64
        Of 0 .. d - 1; sources are sorted by it and their hash.
    target_domain : (n,) int64
    source, target : (p,) int64
        Sorted by source.
    appeared_us, gone_us : (p,) int64
        `NEVER` for what is there to the end.
    poll_source, poll_us : (q,) int64
        Sorted by source and time.
    start_us, step_us, steps : int
    shown : (steps, s) int64
        The poll that a refresh shows, -1 where it fails.
    list_start, listed : (q + 1,) int64, int32
        The presences at each poll: `listed[list_start[i]:list_start[i + 1]]`.
    """

    source_hash: UIntArray
    domain: IntArray
    target_domain: IntArray
    source: IntArray
    target: IntArray
    appeared_us: IntArray
    gone_us: IntArray
    poll_source: IntArray
    poll_us: IntArray
    start_us: int
    step_us: int
    steps: int
    shown: IntArray = field(init=False, repr=False)
    list_start: IntArray = field(init=False, repr=False)
    listed: Int32Array = field(init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "shown", self._shown())
        start, listed = self._lists()
        object.__setattr__(self, "list_start", start)
        object.__setattr__(self, "listed", listed)

    @property
    def sources(self) -> int:
        return len(self.source_hash)

    @property
    def targets(self) -> int:
        return len(self.target_domain)

    @property
    def domains(self) -> int:
        return int(self.domain.max()) + 1

    def _shown(self) -> IntArray:
        shown = np.full((self.steps, self.sources), -1, np.int64)
        step = (self.poll_us - self.start_us) // self.step_us
        inside = np.flatnonzero((step >= 0) & (step < self.steps))
        shown[step[inside], self.poll_source[inside]] = inside  # in order of time: the last one stands
        return shown

    def _lists(self) -> tuple[IntArray, Int32Array]:
        """By source, so that no more than the lists themselves is held at once."""
        offset = np.searchsorted(self.poll_source, np.arange(self.sources + 1))
        cut = np.searchsorted(self.source, np.arange(self.sources + 1))
        sizes, parts = [np.zeros(1, np.int64)], [np.zeros(0, np.int32)]
        for s in range(self.sources):
            mine = slice(cut[s], cut[s + 1])
            polls = self.poll_us[offset[s] : offset[s + 1]]
            first = np.searchsorted(polls, self.appeared_us[mine])
            size = np.maximum(np.searchsorted(polls, self.gone_us[mine]) - first, 0)
            row = np.repeat(np.arange(cut[s], cut[s + 1], dtype=np.int32), size)
            poll = np.repeat(first - np.cumsum(size) + size, size) + np.arange(len(row))
            parts.append(row[np.argsort(poll, kind="stable")])
            sizes.append(np.bincount(poll, minlength=len(polls)))
        return np.cumsum(np.concatenate(sizes)), np.concatenate(parts)

    def at(self, polls: IntArray) -> tuple[IntArray, IntArray]:
        """Presences at several polls: the place in `polls` of each, and the presence; int64."""
        size = self.list_start[polls + 1] - self.list_start[polls]
        of = np.repeat(np.arange(len(polls)), size)
        place = np.repeat(self.list_start[polls] - np.cumsum(size) + size, size) + np.arange(len(of))
        return of, self.listed[place].astype(np.int64)

    def first_step(self) -> IntArray:
        """The first step in which a refresh of some source shows a target: (n,) int64; `steps` if none."""
        first = np.full(self.targets, self.steps)
        for step in range(self.steps - 1, -1, -1):
            polls = self.shown[step]
            first[self.target[self.at(polls[polls >= 0])[1]]] = step
        return first

    def items(self, budgets: IntArray, seeds: UIntArray) -> Items:
        """Sources in several lanes, a budget and a seed each, which every domain of it has for itself.

        Parameters
        ----------
        budgets : (lanes,) int64
        seeds : (lanes,) uint64
        """
        lanes = len(budgets)
        group = (np.arange(lanes)[:, None] * self.domains + self.domain).ravel()
        key, seed = np.tile(self.source_hash, lanes), np.repeat(seeds, self.sources)
        return Items(key, seed, group, np.repeat(budgets, self.domains))
