"""What was expected of intervals one by one, where a page's rate alone does not say it."""

from __future__ import annotations

from dataclasses import dataclass

from policies.typing_ import BoolArray, FloatArray, IntArray


@dataclass(frozen=True, slots=True)
class Clocks:
    """Forecasts of k intervals.

    Attributes
    ----------
    known : (k,) bool
        Whether there is one; the other columns have any numbers where not.
    rate_per_day : (k,) float64, positive
        Expected changes over the length of the interval.
    information : (k,) float64, positive
        How well they are known: one over their relative variance.
    by_time : (k,) float64, in [0, 1]
        Part of them that comes with time; the rest comes with signals.
    fresh : (k,) float64, in [0, 1]
        Expected share of the interval before its first change.
    fresh_if_changed : (k,) float64, in [0, 1]
        The same where a change was found, given its date if it has one; undefined elsewhere.
    """

    known: BoolArray
    rate_per_day: FloatArray
    information: FloatArray
    by_time: FloatArray
    fresh: FloatArray
    fresh_if_changed: FloatArray

    def take(self, rows: IntArray) -> Clocks:
        """Some intervals, in that order."""
        return Clocks(*(getattr(self, name)[rows] for name in self.__dataclass_fields__))
