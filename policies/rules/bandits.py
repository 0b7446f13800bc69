"""Bandits over crawl strategies: which of K policies, the arms, to crawl by in the next step.

Each step draws one arm from probabilities q, crawls by it, and learns from its reward x in [0, 1] only.

    exp3       weights grow by exp(gamma x / (K q)), and q mixes in a share gamma of equal probabilities
               (Auer et al. 2002; Han et al. 2020, Algorithm 1)
    exp3-ix    losses 1 - x over (q + gamma) with gamma = eta / 2, which explores by itself (Neu 2015)
    exp3++     losses over q, and exploration that fades for arms known to be worse
               (Seldin and Slivkins 2014, with the parameters of Seldin and Lugosi 2017)

Weights are kept as logarithms with the largest at 0, so no number of steps overflows. All functions work on
(l,) lanes at once, e.g. repetitions of one experiment, which do not influence each other.
"""

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from policies.numerics.typing_ import FloatArray, IntArray

DEFAULT_GAMMA: Final = 0.1
_ALPHA: Final = 3.0  # confidence and scale of exploration of EXP3++, as analysed in its paper
_BETA: Final = 256.0

KAB_ARMS: Final[dict[str, tuple[str, ...]]] = {
    "KAB2": ("click-weighted", "change-weighted"),
    "KAB3": ("click-weighted", "change-weighted", "uniform"),
    "KAB4": ("click-weighted", "change-weighted", "impression-weighted", "uniform"),
    "KAB5": ("uniform", "change-weighted", "click-weighted", "impression-weighted", "lambdacrawl-discrete"),
}
"""Arms of KAB2 to KAB5 (Han et al. 2020, section 5.4), named as in `policies.rules.rate_policies`."""


@dataclass(frozen=True, slots=True)
class BanditState:
    """What l lanes have learned about K arms.

    Attributes
    ----------
    step : int
        Rewards seen by each lane.
    score : (l, K) float64
        EXP3: logarithm of the weights, the largest of a lane 0. Others: sum of estimated losses, the
        smallest of a lane 0.
    pulls, loss : (l, K) float64
        How often each arm was drawn, and the sum of its losses then.
    """

    step: int
    score: FloatArray
    pulls: FloatArray
    loss: FloatArray


class Bandit(ABC):
    """One of the algorithms: `start`, then `probabilities`, `draw` and `learn` in each step."""

    def start(self, lanes: int, arms: int) -> BanditState:
        """State of `lanes` lanes that know nothing about `arms` arms.

        Raises
        ------
        ValueError
            No lane or no arm.
        """
        if lanes < 1 or arms < 1:
            raise ValueError(f"a bandit needs lanes and arms, got {lanes} and {arms}")
        zeros = np.zeros((lanes, arms))
        return BanditState(0, zeros, zeros, zeros)

    @abstractmethod
    def probabilities(self, state: BanditState) -> FloatArray:
        """(l, K) float64: probability of each arm in the next step; each lane adds up to 1."""

    @abstractmethod
    def _scored(self, state: BanditState, arm: IntArray, reward: FloatArray, q: FloatArray) -> FloatArray:
        """`score` after `reward` (l,) of `arm` (l,), which had probabilities `q` (l,)."""

    def learn(self, state: BanditState, arm: IntArray, reward: FloatArray) -> BanditState:
        """State after the step.

        Parameters
        ----------
        state : BanditState
        arm : (l,) int64
            The arm drawn by each lane from `probabilities(state)`.
        reward : (l,) float64
            Its reward. Values outside [0, 1] are clipped, NaN (nothing crawled, 0 / 0) counts as 0.

        Raises
        ------
        ValueError
            An arm that does not exist.
        """
        lanes, arms = state.score.shape
        arm = np.asarray(arm, dtype=np.int64)
        if arm.shape != (lanes,) or (lanes and not (arm.min() >= 0 and arm.max() < arms)):
            raise ValueError(f"arms must be {lanes} numbers from 0 to {arms - 1}, got {arm!r}")
        x = np.clip(np.nan_to_num(np.asarray(reward, dtype=np.float64), nan=0.0), 0.0, 1.0)
        rows = np.arange(lanes)
        score = self._scored(state, arm, x, self.probabilities(state)[rows, arm])
        pulls, loss = state.pulls.copy(), state.loss.copy()
        pulls[rows, arm] += 1.0
        loss[rows, arm] += 1.0 - x
        return replace(state, step=state.step + 1, score=score, pulls=pulls, loss=loss)


def draw(q: FloatArray, uniform: FloatArray) -> IntArray:
    """Arm of each lane, by inversion.

    Parameters
    ----------
    q : (l, K) float64
        Probabilities.
    uniform : (l,) float64, in [0, 1)
        Random numbers.

    Returns
    -------
    (l,) int64
    """
    reached = np.cumsum(q, axis=1)
    # Relative to the sum: rounding must not leave a gap above the last arm.
    arm = (uniform[:, None] * reached[:, -1:] >= reached).sum(axis=1)
    return np.asarray(np.minimum(arm, q.shape[1] - 1), dtype=np.int64)


def _softmax(log_weight: FloatArray) -> FloatArray:
    weight = np.exp(log_weight - log_weight.max(axis=1, keepdims=True))
    q: FloatArray = weight / weight.sum(axis=1, keepdims=True)
    return q


def _add(score: FloatArray, arm: IntArray, amount: FloatArray) -> FloatArray:
    out = score.copy()
    out[np.arange(len(arm)), arm] += amount
    return out


class Exp3(Bandit):
    """Algorithm 1 of Han et al. 2020 (with q of the drawn arm in the exponent).

    Its expected regret against the best single arm is at most ``(e - 1) gamma G + K ln K / gamma``, G the
    reward of that arm (Auer et al. 2002, theorem 3.1), for rewards fixed in advance.
    """

    def __init__(self, gamma: float = DEFAULT_GAMMA) -> None:
        """`gamma` in [0, 1]: share of steps that draw any arm. At 0 the weights never move."""
        if not 0.0 <= gamma <= 1.0:
            raise ValueError(f"gamma must lie in [0, 1], got {gamma!r}")
        self.gamma = gamma

    def probabilities(self, state: BanditState) -> FloatArray:
        """As in `Bandit`."""
        q: FloatArray = (1.0 - self.gamma) * _softmax(state.score) + self.gamma / state.score.shape[1]
        return q

    def _scored(self, state: BanditState, arm: IntArray, reward: FloatArray, q: FloatArray) -> FloatArray:
        if self.gamma == 0.0:
            return state.score
        # q >= gamma / K, so a step adds at most 1.
        score = _add(state.score, arm, self.gamma / state.score.shape[1] * reward / q)
        out: FloatArray = score - score.max(axis=1, keepdims=True)
        return out


class Exp3IX(Bandit):
    """EXP3 with implicit exploration (Neu 2015, section 3): eta = sqrt(ln K / (K t)), gamma = eta / 2.

    With probability 1 - delta the regret against every arm after T steps is at most
    ``4 sqrt(K T ln K) + (2 sqrt(K T / ln K) + 1) ln(2 / delta)`` (its theorem 1), whatever T.
    """

    @staticmethod
    def _eta(step: int, arms: int) -> float:
        return math.sqrt(math.log(arms) / (arms * (step + 1)))

    def probabilities(self, state: BanditState) -> FloatArray:
        """As in `Bandit`."""
        return _softmax(-self._eta(state.step, state.score.shape[1]) * state.score)

    def _scored(self, state: BanditState, arm: IntArray, reward: FloatArray, q: FloatArray) -> FloatArray:
        gamma = 0.5 * self._eta(state.step, state.score.shape[1])
        score = _add(state.score, arm, (1.0 - reward) / (q + gamma))
        out: FloatArray = score - score.min(axis=1, keepdims=True)
        return out


class Exp3PlusPlus(Bandit):
    """EXP3++ (Seldin and Slivkins 2014; gaps, alpha = 3 and beta = 256 of Seldin and Lugosi 2017).

    q = (1 - sum_a eps_a) softmax(-eta L) + eps with eta = sqrt(ln K / (K t)) / 2 and
    eps_a = min(1 / (2 K), eta, beta ln t / (t gap_a^2)); gap_a is how far the lower confidence bound of the
    arm's mean loss lies above the smallest upper one. An arm that was never drawn has the bounds 0 and 1;
    the papers draw each arm once first, here arms are drawn at random from the start, for which the
    expected regret is at most ``4 sqrt(K T ln K)`` (2014, theorem 1), whatever T.
    """

    @staticmethod
    def _eta(step: int, arms: int) -> float:
        return 0.5 * math.sqrt(math.log(arms) / (arms * (step + 1)))

    def probabilities(self, state: BanditState) -> FloatArray:
        """As in `Bandit`."""
        arms, t = state.score.shape[1], state.step + 1
        eta = self._eta(state.step, arms)
        gap = self.gaps(state)
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            fading = np.where(gap > 0.0, _BETA * math.log(t) / (t * gap * gap), np.inf)
        explore = np.minimum(fading, min(0.5 / arms, eta))
        q: FloatArray = (1.0 - explore.sum(axis=1, keepdims=True)) * _softmax(-eta * state.score) + explore
        return q

    def gaps(self, state: BanditState) -> FloatArray:
        """(l, K) float64, in [0, 1]: how much worse each arm surely is than the best one."""
        arms, t = state.score.shape[1], state.step + 1
        pulled = np.maximum(state.pulls, 1.0)
        mean = state.loss / pulled
        width = np.sqrt((_ALPHA * math.log(t) + math.log(arms)) / (2.0 * pulled))
        known = state.pulls > 0.0
        high = np.where(known, np.minimum(1.0, mean + width), 1.0)
        low = np.where(known, np.maximum(0.0, mean - width), 0.0)
        out: FloatArray = np.maximum(0.0, low - high.min(axis=1, keepdims=True))
        return out

    def _scored(self, state: BanditState, arm: IntArray, reward: FloatArray, q: FloatArray) -> FloatArray:
        score = _add(state.score, arm, (1.0 - reward) / q)
        out: FloatArray = score - score.min(axis=1, keepdims=True)
        return out
