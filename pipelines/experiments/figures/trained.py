"""Models that other libraries train: the network of Han et al. 2019 by Keras, gradient boosting.

Both libraries are extras and imported here alone, when a model is fitted. What they leave is evaluated by
NumPy (the network) or where it was trained (the trees).
"""

from __future__ import annotations

import importlib.util
import os
import threading
from typing import Any, Final

import numpy as np

from policies.numerics.typing_ import FloatArray, IntArray
from policies.predictors.network import Network, log_hazard_of_odds
from policies.predictors.predictor import log_hazard
from policies.predictors.rows import Rows

HIDDEN: Final = (256, 128, 64)
REGULARIZATION: Final = 0.001
RATE: Final = 0.05
"""Of Adagrad, the default of TensorFlow's DNNClassifier; that of Keras is fifty times lower."""

BATCH, EPOCHS, WIDTH = 512, 4, 8
MOST_CATEGORIES: Final = 250
_ONE_AT_A_TIME: Final = threading.Lock()
"""Keras draws from one generator for all threads."""


def has_keras() -> bool:
    """Whether the extra `keras` is installed."""
    return all(importlib.util.find_spec(name) is not None for name in ("keras", "jax"))


def has_trees() -> bool:
    """Whether the extra `boosting` is installed."""
    return importlib.util.find_spec("sklearn") is not None


class Dnn:
    """The classifier of Han et al. 2019, section 4.3.2, of metadata with or without frequencies.

    Three layers of 256, 128 and 64 units, ReLU, Adagrad, L1 and L2 of .001. The paper's library adds the
    loss up over a batch, Keras takes its mean, so both penalties are divided by the batch.

    Parameters
    ----------
    frequencies : bool
    seed : int
    """

    def __init__(self, frequencies: bool, seed: int) -> None:
        self._frequencies, self._seed = frequencies, seed
        self.network: Network | None = None

    def fit(self, rows: Rows, offset: FloatArray) -> None:
        """As `policies.predictors.predictor.Predictor.fit`; the offset is not used."""
        os.environ.setdefault("KERAS_BACKEND", "jax")
        import keras

        numbers, values = rows.numbers(self._frequencies), rows.values()
        scale = numbers.std(axis=0)
        center, scale = numbers.mean(axis=0), np.where(scale > 0.0, scale, 1.0)
        inputs = [*([(numbers - center) / scale] if self._frequencies else []), *values.T]
        with _ONE_AT_A_TIME:
            keras.utils.set_random_seed(self._seed)
            model = _build(keras, numbers.shape[1], values.max(axis=0, initial=0) + 1)
            model.fit(inputs, rows.changed.astype(np.float32), batch_size=BATCH, epochs=EPOCHS, verbose=0)
        self.network = _weights(model, center, scale, values)

    def log_multiplier(self, rows: Rows) -> FloatArray:
        """As `policies.predictors.predictor.Predictor.log_multiplier`, beside the logarithm of days."""
        assert self.network is not None
        odds = self.network.log_odds(rows.numbers(self._frequencies), rows.values())
        result: FloatArray = log_hazard_of_odds(odds) - np.log(rows.days)
        return result


def network(rows: Rows, frequencies: bool, seed: int) -> Network:
    """The weights of a `Dnn`, as `policies.on_request.networks.Train` has them."""
    model = Dnn(frequencies, seed)
    model.fit(rows, np.log(rows.days))
    assert model.network is not None
    return model.network


def _build(keras: Any, numbers: int, sizes: IntArray) -> Any:
    penalty = keras.regularizers.L1L2(REGULARIZATION / BATCH, REGULARIZATION / BATCH)
    inputs, parts = [], []
    if numbers:
        inputs.append(keras.Input((numbers,)))
        parts.append(inputs[0])
    for number, size in enumerate(sizes.tolist()):
        inputs.append(keras.Input((), dtype="int32"))
        embed = keras.layers.Embedding(size, WIDTH, embeddings_regularizer=penalty, name=f"values_{number}")
        parts.append(embed(inputs[-1]))
    hidden = keras.layers.Concatenate()(parts)
    for number, units in enumerate(HIDDEN):
        layer = keras.layers.Dense(units, "relu", kernel_regularizer=penalty, name=f"dense_{number}")
        hidden = layer(hidden)
    odds = keras.layers.Dense(1, kernel_regularizer=penalty, name=f"dense_{len(HIDDEN)}")(hidden)
    model = keras.Model(inputs, odds)
    model.compile(keras.optimizers.Adagrad(RATE), keras.losses.BinaryCrossentropy(from_logits=True))
    return model


def _weights(model: Any, center: FloatArray, scale: FloatArray, values: IntArray) -> Network:
    embeddings = []
    for number, column in enumerate(values.T):
        table = np.asarray(model.get_layer(f"values_{number}").get_weights()[0], np.float64)
        known = np.zeros(len(table), np.bool_)
        known[column] = True
        embeddings.append(np.where(known[:, None], table, 0.0))
    layers = []
    for number in range(len(HIDDEN) + 1):
        weight, bias = (np.asarray(w, np.float64) for w in model.get_layer(f"dense_{number}").get_weights())
        layers.append((weight, bias))
    return Network(center, scale, tuple(embeddings), tuple(layers))


class Boosted:
    """Gradient-boosted trees of all features, metadata as categories where there are few of them."""

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self._model: Any = None

    def _inputs(self, rows: Rows) -> FloatArray:
        return np.column_stack([rows.history(), rows.group(), rows.frequencies(), rows.values()])

    def fit(self, rows: Rows, offset: FloatArray) -> None:
        """As `policies.predictors.predictor.Predictor.fit`; the offset is not used."""
        from sklearn.ensemble import HistGradientBoostingClassifier

        inputs, values = self._inputs(rows), rows.values()
        few = values.max(axis=0, initial=0) <= MOST_CATEGORIES
        categories = np.concatenate([np.zeros(inputs.shape[1] - len(few), np.bool_), few])
        self._model = HistGradientBoostingClassifier(
            learning_rate=0.06,
            max_iter=100,
            l2_regularization=1.0,
            early_stopping=False,
            categorical_features=categories,
            random_state=self._seed,
        )
        self._model.fit(inputs, rows.changed)

    def log_multiplier(self, rows: Rows) -> FloatArray:
        """As `policies.predictors.predictor.Predictor.log_multiplier`, beside the logarithm of days."""
        found = log_hazard(self._model.predict_proba(self._inputs(rows))[:, 1])
        result: FloatArray = found - np.log(rows.days)
        return result
