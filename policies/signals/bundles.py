"""What several sources of a page tell together.

An interval shows no change with probability ``exp(-sum_s k_s n_s)`` as far as signals go. So an event that
sources A and B tell together is a true one with probability ``1 - exp(-(k_A + k_B))``, and one that A tells
alone with ``1 - exp(-k_A)``; crawls tell no more than this of A and B where both always come together. Each
source joins at most one of those before it: what a third tells together with both is not told twice either.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from policies.numerics.typing_ import FloatArray, IntArray


@dataclass(frozen=True, slots=True)
class Bundles:
    """Which sources tell changes together, of n pages or hosts and S sources.

    Attributes
    ----------
    parent : (n, S) int64
        The source before it with which a source tells changes together, -1 if none.
    share : (n, S) float64, in [0, 1]
        Rate of what they tell together, as a share of the lesser one of their rates; 0 where there is none.
    """

    parent: IntArray
    share: FloatArray

    @classmethod
    def none(cls, n: int, n_sources: int) -> Bundles:
        """Sources that have nothing to do with each other."""
        return cls(np.full((n, n_sources), -1), np.zeros((n, n_sources)))


def choose_bundles(share: FloatArray, signals: FloatArray) -> Bundles:
    """Each source's parent: the one before it with which it tells most changes together.

    Parameters
    ----------
    share : (n, S, S) float64
        `policies.signals.pairs.told_together`.
    signals : (n, S) float64
        Signals of each source, or their rates.
    """
    n, s = signals.shape
    found = Bundles.none(n, s)
    for j in range(1, s):
        shared = share[:, :j, j] * np.minimum(signals[:, :j], signals[:, j : j + 1])
        best = np.argmax(shared, axis=1)
        rows = np.flatnonzero(shared[np.arange(n), best] > 0.0)
        found.parent[rows, j] = best[rows]
        found.share[rows, j] = share[rows, best[rows], j]
    return found


@dataclass(frozen=True, slots=True)
class Told:
    """What the sources of n pages tell.

    Attributes
    ----------
    true_per_day : (n,) float64
        Changes told, each counted once.
    precision : (n, S) float64
        Share of a source's signals that mean a change.
    wrong : (n, S) float64
        One less that.
    """

    true_per_day: FloatArray
    precision: FloatArray
    wrong: FloatArray


def told(weight: FloatArray, rate: FloatArray, bundles: Bundles | None = None) -> Told:
    """Changes that signals tell, and how many signals mean one.

    Parameters
    ----------
    weight : (n, S) float64 or complex128, not negative; inf where no signal is false
        Imaginary parts are steps towards derivatives, so tiny that their squares do not count.
    rate : (n, S) float64 or complex128, not negative, per day (or any other unit)
    bundles : Bundles, optional
        By default every signal tells of a change of its own.
    """
    n, s = weight.shape
    # A source and what joins it: at least one of them is true, none is.
    true, wrong = -np.expm1(-weight.real), np.exp(-weight.real)
    if np.iscomplexobj(weight):
        slope = 1j * wrong * weight.imag
        true, wrong = true + slope, wrong - slope
    alone = rate
    joined: list[tuple[int, IntArray, IntArray, FloatArray, FloatArray]] = []
    if bundles is not None and bundles.share.any():
        alone = rate.copy()
        for j in range(s - 1, 0, -1):
            rows = np.flatnonzero((bundles.share[:, j] > 0.0) & (rate[:, j] != 0.0))
            parent = bundles.parent[rows, j]
            rows, parent = rows[rate[rows, parent] != 0.0], parent[rate[rows, parent] != 0.0]
            mine, theirs = rate[rows, j], rate[rows, parent]
            shared = bundles.share[rows, j] * np.where(mine.real <= theirs.real, mine, theirs)
            alone[rows, j] -= shared
            more = shared / theirs * true[rows, j]
            true[rows, parent] += more * wrong[rows, parent]
            wrong[rows, parent] *= 1.0 - more
            joined.append((j, rows, parent, shared / mine, more))
    all_true = np.zeros(n, dtype=true.dtype)
    for j in range(s):
        all_true = all_true + true[:, j] * alone[:, j]
    for j, rows, parent, often, more in reversed(joined):
        left = 1.0 - more
        rest = np.where(left != 0.0, wrong[rows, parent] / np.where(left != 0.0, left, 1.0), 0.0)
        also = often * (1.0 - rest)
        true[rows, j] += also * wrong[rows, j]
        wrong[rows, j] *= 1.0 - also
    return Told(all_true, true, wrong)
