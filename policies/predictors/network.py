"""A feed-forward network as plain weights, evaluated in NumPy: what a training elsewhere leaves."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from policies.numerics.typing_ import FloatArray, IntArray


@dataclass(frozen=True)
class Network:
    """Embeddings of numbered values beside numbers, then dense layers with ReLU between them.

    Attributes
    ----------
    center, scale : (d,) float64
        Taken off the numbers, and divided by.
    embeddings : tuple of (values, width) arrays
        One a column of values; the row 0 is for values not known.
    layers : tuple of (weight, bias)
        The last one gives log-odds.
    """

    center: FloatArray
    scale: FloatArray
    embeddings: tuple[FloatArray, ...]
    layers: tuple[tuple[FloatArray, FloatArray], ...]

    def log_odds(self, numbers: FloatArray, values: IntArray) -> FloatArray:
        """Log-odds of rows: (k,) float64.

        Parameters
        ----------
        numbers : (k, d) float64
        values : (k, m) int64
            Out of range: not known.
        """
        parts = [self.scaled(numbers)]
        for column, table in zip(values.T, self.embeddings, strict=True):
            parts.append(table[np.where((column >= 0) & (column < len(table)), column, 0)])
        hidden = np.concatenate(parts, axis=1)
        for weight, bias in self.layers[:-1]:
            hidden = np.maximum(hidden @ weight + bias, 0.0)
        weight, bias = self.layers[-1]
        result: FloatArray = (hidden @ weight + bias)[:, 0]
        return result

    def scaled(self, numbers: FloatArray) -> FloatArray:
        """Numbers as the first layer takes them."""
        result: FloatArray = (numbers - self.center) / self.scale
        return result


def log_hazard_of_odds(log_odds: FloatArray) -> FloatArray:
    """Log cumulative hazard at which a change has these log-odds: ``log(log1p(exp(z)))``, (k,) float64."""
    result: FloatArray = np.where(
        log_odds < -30.0, log_odds, np.log(np.logaddexp(0.0, np.maximum(log_odds, -30.0)))
    )
    return result
