"""Sums over many pages, sources and bins at once, added to strictly in order of time.

As `policies.history.interval_sums` for the sums of a `PageState`: weights are landmark weights, scaling is
exact, what has become negligible is dropped, so that any cutting of a log into nights gives the same bits.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from policies.numerics.typing_ import BoolArray, FloatArray, IntArray

# Sums below this are set to 0. The smallest interval, one minute, adds 2**-10.5 days: what is below 2**-80
# could not change a single bit of such a sum, so it makes no difference in which night it was dropped.
NEGLIGIBLE = 2.0**-80

# Half-lives that one pass may span: sums stay far above the smallest normal number, so scaling is exact.
_SPAN = 256


@dataclass(slots=True)
class Night:
    """Tonight's k intervals of m pages, sorted by (row, time).

    Attributes
    ----------
    row : (k,) int64
        Page of each interval, 0..m-1.
    at_us, gap_us : (k,) int64, microseconds
        End and length.
    changed : (k,) bool
    age_us : (k,) int64, microseconds
        Age of a dated change, else 0.
    exposure_us : (k,) int64, microseconds
        What a dated change adds to exposure.
    counts : (k,) bool
        Whether it began in the era of signals.
    exponent, factor : (k,) int64, float64
        The weight is ``factor * 2**(exponent - target[row])``.
    unit, target : (m,) int64
        Landmarks of the sums before and after the night.
    """

    row: IntArray
    at_us: IntArray
    gap_us: IntArray
    changed: BoolArray
    age_us: IntArray
    exposure_us: IntArray
    counts: BoolArray
    exponent: IntArray
    factor: FloatArray
    unit: IntArray
    target: IntArray


class SumsInOrder:
    """Sums of all columns in one array, so that one loop adds to all of them in order of time."""

    def __init__(self) -> None:
        self._names: list[str] = []
        self._values: list[FloatArray] = []
        self._owner: list[IntArray] = []
        self._gate: list[IntArray] = []
        self._index: list[IntArray] = []
        self._amount: list[FloatArray] = []
        self._interval: list[IntArray] = []
        self._size = 0

    def column(
        self,
        name: str,
        owner: IntArray,
        old: NDArray[Any] | slice,
        values: FloatArray,
        slot: IntArray,
        amount: FloatArray,
        interval: IntArray,
        gate: IntArray | None = None,
    ) -> IntArray:
        """Enter a column.

        Parameters
        ----------
        name : str
        owner : (k,) int64
            Row of each sum.
        old, values
            Place of yesterday's sums, and those.
        slot, amount, interval : (j,)
            What is added to which sum, and the interval it comes from, ascending.
        gate : (k,) int64, optional
            Places of the sums that decide whether these are negligible; by default each for itself.

        Returns
        -------
        (k,) int64
            Places of the sums.
        """
        place = self._size + np.arange(len(owner))
        grown = np.zeros(len(owner))
        grown[old] = values
        self._names.append(name)
        self._values.append(grown)
        self._owner.append(owner)
        self._gate.append(place if gate is None else gate)
        self._index.append(place[slot])
        self._amount.append(amount)
        self._interval.append(interval)
        self._size += len(owner)
        return place

    def add(self, night: Night) -> dict[str, FloatArray]:
        """All sums in units of ``2**target``."""
        values, amount = np.concatenate(self._values), np.concatenate(self._amount)
        owner, gate, index, interval = (
            np.concatenate(c) for c in (self._owner, self._gate, self._index, self._interval)
        )
        row = night.row[interval]
        unit = night.unit.copy()
        # Sums of 0 are in any unit: take that of the first interval, which is not decades away.
        new = np.bincount(owner, values > 0.0, len(unit)) == 0
        unit[new] = night.target[new]
        here = np.flatnonzero(night.counts)
        head = here[np.flatnonzero(np.diff(night.row[here], prepend=-1))]
        head = head[new[night.row[head]]]
        unit[night.row[head]] = night.exponent[head]
        steps = [np.arange(len(index))]
        if len(unit) and int((night.target - unit).max()) > _SPAN:
            # A page that runs through very many half-lives in one night takes several passes, as over many
            # nights.
            turn = (night.exponent[interval] - unit[row]) // _SPAN
            order = np.argsort(turn, kind="stable")
            steps = np.split(order, np.flatnonzero(np.diff(turn[order])) + 1)
        for i, step in enumerate(steps):
            last = i == len(steps) - 1
            to = night.target.copy()
            if not last:
                to = unit.copy()
                np.maximum.at(to, row[step], night.exponent[interval[step]])
            shift = unit - to
            values = np.ldexp(values, np.maximum(shift, -2000).astype(np.int32)[owner])
            power = night.exponent[interval[step]] - to[row[step]]
            weight = np.ldexp(night.factor[interval[step]], np.maximum(power, -2000).astype(np.int32))
            np.add.at(values, index[step], amount[step] * weight)
            if shift.any():
                values[values[gate] < NEGLIGIBLE] = 0.0
            unit = to
        ends = np.cumsum([len(v) for v in self._values])[:-1]
        return dict(zip(self._names, np.split(values, ends), strict=True))


def sum_by(code: IntArray, values: FloatArray | IntArray | BoolArray, n: int) -> FloatArray:
    """Sum of the `values` of each code 0..n-1: (n,) float64, added strictly in the order given.

    So the sum of a page depends neither on its neighbours nor on the cut into batches.
    """
    return np.bincount(code, weights=values, minlength=n).astype(np.float64, copy=False)
