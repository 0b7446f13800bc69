"""Counts that are part of the result: named numbers of one piece of work."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from policies.numerics.typing_ import IntArray


def counted(n: float, what: str) -> str:
    """`1 page`, `2 pages`: a whole number and what it counts."""
    return f"{n:,.0f} {what}{'' if n == 1 else 's'}"


class Counts:
    """Named counts of one piece of work."""

    def __init__(self) -> None:
        self._counts: dict[str, int] = {}

    def add(self, name: str, n: int) -> None:
        """Add to a count; a count of zero is listed, too."""
        self._counts[name] = self._counts.get(name, 0) + n

    def add_each(self, prefix: str, names: Sequence[str], places: IntArray) -> None:
        """Add to the count of each name how often its place in `names` occurs."""
        for name, n in zip(names, np.bincount(places, minlength=len(names)).tolist(), strict=True):
            self.add(prefix + name, n)

    def totals(self) -> dict[str, int]:
        """The counts so far."""
        return dict(self._counts)
