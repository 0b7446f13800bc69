"""Simulated pages with noisy signals: changes and signals drawn as the model says."""

from dataclasses import dataclass

import numpy as np

from policies.numerics.typing_ import BoolArray, FloatArray, IntArray
from policies.signals.evidence import SignalEvidence
from tests.policies.signal_evidence import from_intervals


@dataclass(frozen=True)
class Simulated:
    """`k` intervals of each of `n` pages, page by page, and the true parameters."""

    unsignalled: FloatArray
    signal_rate: FloatArray
    weight: FloatArray
    page: IntArray
    gap: FloatArray
    signals: IntArray
    changed: BoolArray

    def evidence(self) -> SignalEvidence:
        return from_intervals(self.page, self.gap, self.signals, self.changed, n_pages=len(self.unsignalled))


def simulate(
    seed: int,
    rate: FloatArray,
    k: int,
    precision: FloatArray,
    recall: FloatArray,
    mean_gap: float | FloatArray = 1.0,
) -> Simulated:
    """Pages of change rates `rate` (n,); `precision` and `recall` (n, S) or (S,) by source.

    Every change is signalled by one source at most. Changes are not drawn from the formula under test: those
    without a signal, true and false signals are counted one by one.
    """
    rng = np.random.Generator(np.random.Philox(key=seed))
    n = len(rate)
    precision = np.broadcast_to(np.atleast_1d(precision), (n, np.shape(precision)[-1]))
    recall = np.broadcast_to(np.atleast_1d(recall), precision.shape)
    gap = rng.exponential(np.broadcast_to(mean_gap, n)[:, None], (n, k)) + 1e-9
    unsignalled = rate * (1.0 - recall.sum(axis=1))
    signal_rate = recall * rate[:, None] / precision
    silent = rng.poisson(unsignalled[:, None] * gap)
    true = rng.poisson((recall * rate[:, None])[:, None, :] * gap[:, :, None])
    false = rng.poisson(((1.0 - precision) * signal_rate)[:, None, :] * gap[:, :, None])
    return Simulated(
        unsignalled,
        signal_rate,
        -np.log1p(-precision),
        np.repeat(np.arange(n), k),
        gap.ravel(),
        (true + false).reshape(n * k, -1),
        ((silent > 0) | (true > 0).any(axis=2)).ravel(),
    )
