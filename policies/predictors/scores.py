"""How good predicted probabilities are: ranking, log-loss, bias and calibration."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.stats import rankdata

from policies.numerics.typing_ import BoolArray, FloatArray, IntArray

SUBSETS = 20
"""Of the test rows (Han et al. 2019, section 5.1)."""


@dataclass(frozen=True)
class Scores:
    """Of one model on some rows.

    Attributes
    ----------
    auc, auc_sd : float
        Mean and standard deviation over subsets; NaN without a subset that has both kinds of rows.
    log_loss : float, nats a row
    bias : float
        Mean probability over the share of changed rows; NaN where nothing changed.
    """

    auc: float
    auc_sd: float
    log_loss: float
    bias: float


def auc(probability: FloatArray, changed: BoolArray) -> float:
    """Chance that a changed row has the higher probability of two, ties half: NaN without both kinds."""
    positive = int(np.count_nonzero(changed))
    negative = len(changed) - positive
    if not positive or not negative:
        return float("nan")
    above = float(rankdata(probability)[changed].sum()) - positive * (positive + 1) / 2.0
    return above / (positive * negative)


def losses(probability: FloatArray, changed: BoolArray) -> FloatArray:
    """Minus the logarithm of the probability of what came: (k,) float64, nats."""
    result: FloatArray = -np.where(changed, np.log(probability), np.log1p(-probability))
    return result


def scores(probability: FloatArray, changed: BoolArray, subset: IntArray) -> Scores:
    """Scores of probabilities (k,), each row in one of the subsets 0 to 19."""
    each = np.array([auc(probability[subset == s], changed[subset == s]) for s in range(SUBSETS)])
    each = each[~np.isnan(each)]
    nan = float("nan")
    share = float(changed.mean()) if len(changed) else nan
    return Scores(
        float(each.mean()) if len(each) else nan,
        float(each.std(ddof=1)) if len(each) > 1 else nan,
        float(losses(probability, changed).mean()) if len(changed) else nan,
        float(probability.mean()) / share if len(changed) and share > 0.0 else nan,
    )


def calibration(probability: FloatArray, changed: BoolArray) -> tuple[FloatArray, FloatArray]:
    """Mean probability and share of changed rows in ten parts, by rank of probability: (10,) each."""
    order = np.argsort(probability, kind="stable")
    cuts = [c for c in np.array_split(order, 10) if len(c)]
    return np.array([probability[c].mean() for c in cuts]), np.array([changed[c].mean() for c in cuts])
