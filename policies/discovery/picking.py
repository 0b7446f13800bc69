"""Which sources a score picks, and numbers that look drawn: both the same however sources are batched."""

from __future__ import annotations

import numpy as np
from scipy import special

from policies.numerics.scrambling import fractions, scramble
from policies.numerics.typing_ import FloatArray, IntArray, UIntArray


def uniforms(key: UIntArray, seed: UIntArray, step: int, purpose: int) -> FloatArray:
    """A number in (0, 1) for each source at a step.

    Parameters
    ----------
    key, seed : (n,) uint64
    step, purpose : int
        Draws for different purposes do not depend on each other.

    Returns
    -------
    (n,) float64
    """
    state = seed.copy()
    for word in (key, np.uint64(step), np.uint64(purpose)):
        scramble(state)
        state ^= word
    scramble(state)
    return fractions(state)


def gammas(shape: FloatArray, rate: FloatArray, uniform: FloatArray) -> FloatArray:
    """Gamma-distributed numbers, by inversion: (n,) float64."""
    return np.asarray(special.gammaincinv(shape, uniform) / rate, np.float64)


def top(score: FloatArray, tie: FloatArray, group: IntArray, k: IntArray) -> IntArray:
    """Places of the `k` highest scores of each group, ascending.

    Parameters
    ----------
    score : (n,) float64
        -inf: not to be picked.
    tie : (n,) float64
        Where scores are equal, the lower goes first.
    group : (n,) int64
        Ascending, of 0 .. g - 1.
    k : (g,) int64

    Returns
    -------
    int64
        Fewer than k of a group that has fewer.
    """
    order = np.lexsort((tie, -score, group))
    rank = np.arange(len(group)) - np.searchsorted(group, group)
    picked = order[(rank < k[group]) & (score[order] > -np.inf)]
    picked.sort()
    return picked
