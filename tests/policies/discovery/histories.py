"""Small histories of links, from rows that a person can read."""

from collections.abc import Sequence

import numpy as np

from policies.discovery.items import Items
from policies.discovery.presences import NEVER, US_PER_HOUR, Presences


def history(
    rows: Sequence[tuple[int, int, float, float | None]],
    steps: int,
    domains: Sequence[int] = (0,),
    missed: Sequence[tuple[int, int]] = (),
) -> Presences:
    """(source, target, appeared, gone) in hours; polls at half past, but for (source, step) missed."""
    s = len(domains)
    ordered = sorted(rows, key=lambda r: (r[0], r[2], r[1]))
    source, target = (np.array([r[i] for r in ordered], np.int64) for i in (0, 1))
    appeared, gone = (
        np.array([NEVER if r[i] is None else round(r[i] * US_PER_HOUR) for r in ordered], np.int64)
        for i in (2, 3)
    )
    polls = [(i, t) for i in range(s) for t in range(steps) if (i, t) not in missed]
    poll_source, poll_step = np.array(polls, np.int64).T
    domain = np.asarray(domains, np.int64)
    of_target = np.zeros(int(target.max()) + 1, np.int64)
    of_target[target] = domain[source]
    key = np.arange(1, s + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    at = poll_step * US_PER_HOUR + US_PER_HOUR // 2
    return Presences(
        key, domain, of_target, source, target, appeared, gone, poll_source, at, 0, US_PER_HOUR, steps
    )


def items(n: int, k: int = 1, seed: int = 0) -> Items:
    """Sources of one budget."""
    key = np.arange(1, n + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    return Items(key, np.full(n, seed, np.uint64), np.zeros(n, np.int64), np.array([k]))
