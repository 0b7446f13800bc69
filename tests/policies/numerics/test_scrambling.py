"""SplitMix64's numbers, which seeds of samples and imputed changes depend on."""

from __future__ import annotations

import numpy as np

from policies.numerics.scrambling import fractions, scramble


def test_the_published_sequence():
    """The first outputs of SplitMix64 with the seed 1234567, as of its reference implementation."""
    golden = np.uint64(0x9E3779B97F4A7C15)
    state = np.uint64(1234567) + np.arange(5, dtype=np.uint64) * golden
    scramble(state)
    assert state.tolist() == [
        6457827717110365317,
        3203168211198807973,
        9817491932198370423,
        4593380528125082431,
        16408922859458223821,
    ]


def test_fractions_reach_neither_end():
    ends = fractions(np.array([0, 2**64 - 1, 2**63], np.uint64))
    assert ends.tolist() == [2.0**-54, 1.0 - 2.0**-54, 0.5 + 2.0**-54]


def test_fractions_of_counters_are_even():
    """Chi-square of 100,000 counters in 64 cells: 63 degrees of freedom, so below 115 but once in 10,000."""
    state = np.arange(100_000, dtype=np.uint64)
    scramble(state)
    found = np.bincount((fractions(state) * 64).astype(int), minlength=64)
    assert ((found - 1562.5) ** 2 / 1562.5).sum() < 115
