"""Which pages are looked at: they stand for all, and how far sums over them are off is known."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from policies.judging.part import Part


@settings(deadline=None, max_examples=100)
@given(
    seed=st.integers(0, 10**6), most=st.sampled_from([2, 8, 16, 64]), some=st.sampled_from([0.02, 0.3, 1.0])
)
def test_pages_that_are_looked_at_weigh_as_much_as_all(seed, most, some):
    """Whatever weighs nothing, and however few may be looked at."""
    rng = np.random.Generator(np.random.Philox(key=seed))
    n = int(rng.integers(1, 300))
    group = np.unique(np.sort(rng.integers(0, rng.integers(1, 40), n)), return_inverse=True)[1]
    weight = rng.choice([rng.pareto(1.0, n), np.ones(n)]) * (rng.random(n) < some)
    weight[rng.integers(n)] = 1.0
    part = Part.of(group, weight, most)
    assert (part.times * weight[part.rows]).sum() == pytest.approx(weight.sum())
    assert len(part.rows) <= 2 * most + 8 and len(np.unique(part.rows)) == len(part.rows)
    assert part.likelihood.min() >= 1.0 and part.groups.min() >= 1.0 - 1e-12
    for g in np.unique(group[part.rows]):
        rows = part.rows[group[part.rows] == g]
        assert weight[rows].max() == weight[group == g].max()
    gain = rng.normal(size=len(part.rows))
    of_part = np.unique(group[part.rows], return_inverse=True)[1]
    off = part.left_out(weight[part.rows], gain, of_part)
    assert off == 0.0 if n <= most else 0.0 <= off < np.inf


@pytest.mark.parametrize("shared", [0.0, 1.0])
def test_sums_are_off_by_what_is_said(shared):
    """Where some groups, and of them some pages, stand for others; pages of a group are alike, or not."""
    rng = np.random.Generator(np.random.Philox(key=2))
    size = rng.integers(60, 400, 60)
    of_group = shared * rng.normal(0.0, 1.0, 60)
    group = np.repeat(np.arange(60), size)
    gain, weight = 0.3 + of_group[group] + rng.normal(0.0, 1.0, len(group)), rng.gamma(2.0, 1.0, len(group))
    true, off, said = float(weight @ gain), [], []
    for _ in range(300):
        order = np.lexsort((rng.random(len(group)), rng.permutation(60)[group]))
        names = np.cumsum(np.append(0, np.diff(group[order]) != 0))
        part = Part.of(names, weight[order], 900)
        mine = order[part.rows]
        of_part = np.unique(names[part.rows], return_inverse=True)[1]
        off.append(float((part.times * weight[mine]) @ gain[mine]) - true)
        said.append(part.left_out(weight[mine], gain[mine], of_part))
    assert abs(np.mean(off)) < 4.0 * np.std(off) / 300**0.5
    assert 0.8 < np.mean(np.square(off)) / np.mean(said) < 1.25
