"""Newton's method for the rates and weights of many pages at once.

The log posterior of one page in its parameters ``theta > 0`` (unannounced change rate, then one weight per
source) is

    ``sum_j gain_j log theta_j - sum_j loss_j theta_j + sum_r w_r log(1 - exp(-x_r . theta))``

concave in theta. With the gains of a gamma prior it is the posterior in log parameters, whose mode is
positive and finite for every history.
"""

from dataclasses import dataclass

import numpy as np

from policies.numerics.errors import NotConvergedError
from policies.numerics.sums import sum_by
from policies.numerics.typing_ import BoolArray, FloatArray, IntArray

_LARGEST_S = 500.0  # exp(500) is finite, exp(-500) adds nothing
_SMALLEST_S = 1e-200
_SETTLED = 1e-6  # of the last relative step; Newton's error after it is of the size of its square
_NEAR, _ROUNDING = 1e-10, 1e-20  # of that step in standard errors, squared
_DOWN, _UP = -0.8, 3.0  # limits of a relative step
_QUICK_STEPS = 20  # then each step is checked to climb
_MAX_STEPS = 1000
_HALVINGS = 10

BLOCK_ROWS = 65536
"""Rows that are worked on at a time where one group has more. Callers that put several pages into a problem
must keep each of them below this, or its bits depend on its company."""


@dataclass(frozen=True, slots=True)
class Problem:
    """Posteriors of `p` pages in `d` parameters.

    Attributes
    ----------
    row : (k,) int64
        Page of each changed row, 0..p-1, ascending.
    weight : (k,) float64
    x : (d, k) float64
        What each parameter is multiplied with: days, then signals by source.
    gain, loss : (d, p) float64
        Shapes and exposures; `loss` positive.
    in_runs : bool
        Every page has rows, most of them many: faster sums, in another order.
    """

    row: IntArray
    weight: FloatArray
    x: FloatArray
    gain: FloatArray
    loss: FloatArray
    in_runs: bool = False


def solve(problem: Problem, start: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Mode of each page.

    Parameters
    ----------
    problem : Problem
        Either all gains are positive, or the mode is known to be inside.
    start : (d, p) float64, positive

    Returns
    -------
    theta : (d, p) float64
    curvature : (d, d, p) float64
        Minus the second derivative of the log posterior in the logarithms of the parameters.
    steps : (p,) float64
        Steps taken.

    Raises
    ------
    NotConvergedError
        More than 1,000 steps (not known to happen).

    Notes
    -----
    A page stops at its own convergence and its sums are added in the order of its rows: what it gets does
    not depend on the others.
    """
    theta, taken = start.copy(), np.zeros(start.shape[1])
    d, p = theta.shape
    curvature = np.empty((d, d, p))
    page, current = np.arange(p, dtype=np.int64), theta.copy()
    row, weight, x, gain, loss = problem.row, problem.weight, problem.x, problem.gain, problem.loss
    spread = np.stack([sum_by(row, weight * x[j], p) for j in range(d)])
    for step in range(_MAX_STEPS):
        slope, second = row_sums(row, weight, x, current, problem.in_runs)
        slope += gain
        if step == 0 or step >= _QUICK_STEPS:
            # A step of expectation and maximisation: it never falls, and finds the scale at once.
            sure = (slope + spread * current) / (spread + loss)
        slope -= loss * current
        for j in range(d):
            second[j, j] += gain[j]
        if step == 0:
            current = sure
            continue
        move = _boxed_step(second, slope)
        # Judged on the whole step: one that has to be shortened is small for other reasons.
        errors = np.abs(_dot(slope, move))
        done = ((np.abs(move).max(axis=0) <= _SETTLED) & (errors <= _NEAR)) | (errors <= _ROUNDING)
        if step >= _QUICK_STEPS:
            here = _value(row, weight, x, gain, loss, current)
            floor = here - 1e-13 * np.abs(here)
            for _ in range(_HALVINGS):
                worse = _value(row, weight, x, gain, loss, current * (1.0 + move)) < floor
                worse &= ~done  # so close, a step shows in the slope but not in the value
                if not worse.any():
                    break
                move = np.where(worse, 0.5 * move, move)
            move = np.where(worse, sure / current - 1.0, move)
            current = np.where(worse, sure, current * (1.0 + move))
        else:
            current = current * (1.0 + move)
        theta[:, page], curvature[:, :, page], taken[page] = current, second, step + 1
        if done.any():
            open_ = ~done
            if not open_.any():
                break
            page, current, gain, loss, spread = (
                page[open_],
                current[:, open_],
                gain[:, open_],
                loss[:, open_],
                spread[:, open_],
            )
            keep = np.flatnonzero(open_[row])
            row, weight, x = (np.cumsum(open_) - 1)[row[keep]], weight[keep], np.take(x, keep, axis=1)
    else:
        if page.size:
            raise NotConvergedError(
                f"signal parameters of {page.size} pages are not converged after {_MAX_STEPS} steps, e.g. "
                f"{current[:, 0]}; check the evidence for sums that contradict each other"
            )
    return theta, curvature, taken


def row_sums(
    row: IntArray, weight: FloatArray, x: FloatArray, theta: FloatArray, in_runs: bool = False
) -> tuple[FloatArray, FloatArray]:
    """What the changed rows add to slope and curvature in the logarithms of theta: (d, p), (d, d, p)."""
    k = len(row)
    if theta.shape[1] != 1 or k <= BLOCK_ROWS:
        return _block_sums(row, weight, x, theta, in_runs)
    # A very large group, which is always alone: block by block, from its own first row.
    slope, second = _block_sums(row[:BLOCK_ROWS], weight[:BLOCK_ROWS], x[:, :BLOCK_ROWS], theta, in_runs)
    for first in range(BLOCK_ROWS, k, BLOCK_ROWS):
        block = slice(first, first + BLOCK_ROWS)
        more = _block_sums(row[block], weight[block], x[:, block], theta, in_runs)
        slope += more[0]
        second += more[1]
    return slope, second


def _block_sums(
    row: IntArray, weight: FloatArray, x: FloatArray, theta: FloatArray, in_runs: bool
) -> tuple[FloatArray, FloatArray]:
    d, p = theta.shape
    # Added one after the other, each number of a long run waits for the one before.
    start = np.flatnonzero(np.diff(row, prepend=-1)) if in_runs else None

    def total(values: FloatArray) -> FloatArray:
        return sum_by(row, values, p) if start is None else np.add.reduceat(values, start)

    k = len(row)
    slope, second = np.zeros((d, p)), np.zeros((d, d, p))
    part = [theta[j][row] for j in range(d)]
    for j in range(d):
        part[j] *= x[j]
    s = part[0].copy()
    for j in range(1, d):
        s += part[j]
    np.clip(s, _SMALLEST_S, _LARGEST_S, out=s)
    e = np.expm1(s)
    np.divide(1.0, e, out=s)
    e += 1.0
    scratch = np.empty(k)
    for j in range(d):
        part[j] *= s  # at most 1
    for i in range(d):
        weighted = part[i] * weight
        slope[i] = total(weighted)
        weighted *= e
        for j in range(i, d):
            np.multiply(weighted, part[j], out=scratch)
            second[i, j] = total(scratch)
            if i != j:
                second[j, i] = second[i, j]
    return slope, second


def invert(matrix: FloatArray) -> FloatArray:
    """Inverses of the positive definite matrices ``matrix[:, :, i]``: (d, d, p)."""
    d, _, p = matrix.shape
    lower = _cholesky(matrix)
    out = np.empty((d, d, p))
    for j in range(d):
        unit = np.zeros((d, p))
        unit[j] = 1.0
        out[:, j] = _back(lower, unit)
    for i in range(d):
        for j in range(i):
            out[i, j] = out[j, i]
    return out


def _boxed_step(second: FloatArray, slope: FloatArray) -> FloatArray:
    """Relative Newton step; where one leaves the limits it stops there and the others are solved again."""
    move = _back(_cholesky(second), slope)
    bad = np.flatnonzero(((move < _DOWN) | (move > _UP)).any(axis=0))
    if bad.size:
        move[:, bad] = _boxed(second[:, :, bad], slope[:, bad], move[:, bad])
    return move


def _boxed(second: FloatArray, slope: FloatArray, move: FloatArray) -> FloatArray:
    """Maximum of ``slope . m - m' second m / 2`` within the limits: bounds are taken and left one by one."""
    d, p = slope.shape
    each = np.arange(p)
    fixed: BoolArray = np.zeros(slope.shape, dtype=np.bool_)
    for _ in range(4 * d):
        excess = np.maximum((_DOWN - move) / -_DOWN, (move - _UP) / _UP)
        worst = excess.argmax(axis=0)
        out = excess[worst, each] > 0.0
        fixed[worst[out], each[out]] = True
        # Where all are inside, a bound that pulls the wrong way is left.
        pull = slope - np.stack([_dot(second[i], move) for i in range(d)])
        wrong = np.where(fixed, np.where(move > 0.0, -pull, pull), 0.0)
        free = wrong.argmax(axis=0)
        left = ~out & (wrong[free, each] > 0.0)
        fixed[free[left], each[left]] = False
        if not (out | left).any():
            break
        held = np.where(fixed, np.clip(move, _DOWN, _UP), 0.0)
        matrix, right = second.copy(), slope.copy()
        for i in range(d):
            for j in range(d):
                right[i] -= second[i, j] * held[j]
                matrix[i, j] = np.where(fixed[i] | fixed[j], float(i == j), second[i, j])
        move = np.where(fixed, held, _back(_cholesky(matrix), np.where(fixed, held, right)))
    return np.clip(move, _DOWN, _UP)


def _cholesky(matrix: FloatArray) -> list[list[FloatArray]]:
    """Lower triangular factors, page by page in plain arithmetic: the same bits in any batch."""
    d = len(matrix)
    lower: list[list[FloatArray]] = []
    for i in range(d):
        line: list[FloatArray] = []
        for j in range(i):
            value = matrix[i, j].copy()
            for m in range(j):
                value -= line[m] * lower[j][m]
            line.append(value / lower[j][j])
        pivot = matrix[i, i].copy()
        for m in range(i):
            pivot -= line[m] * line[m]
        # Rounding can eat a pivot where two parameters only show together; the step stays a climb.
        line.append(np.sqrt(np.maximum(pivot, 1e-14 * matrix[i, i] + 1e-280)))
        lower.append(line)
    return lower


def _back(lower: list[list[FloatArray]], right: FloatArray) -> FloatArray:
    """Solution of ``L L' y = right``, (d, p)."""
    d = len(lower)
    y = right.copy()
    for i in range(d):
        for j in range(i):
            y[i] -= lower[i][j] * y[j]
        y[i] /= lower[i][i]
    for i in reversed(range(d)):
        for j in range(i + 1, d):
            y[i] -= lower[j][i] * y[j]
        y[i] /= lower[i][i]
    return y


def _dot(a: FloatArray, b: FloatArray) -> FloatArray:
    total: FloatArray = a[0] * b[0]
    for j in range(1, len(a)):
        total = total + a[j] * b[j]
    return total


def _value(
    row: IntArray, weight: FloatArray, x: FloatArray, gain: FloatArray, loss: FloatArray, theta: FloatArray
) -> FloatArray:
    """Log posterior of each page, (p,)."""
    s = _dot(theta[:, row], x)
    np.clip(s, _SMALLEST_S, _LARGEST_S, out=s)
    small = s < 0.7
    log = np.where(
        small, np.log(-np.expm1(-np.where(small, s, 1.0))), np.log1p(-np.exp(-np.where(small, 1.0, s)))
    )
    total: FloatArray = sum_by(row, weight * log, theta.shape[1])
    for j in range(len(theta)):
        total = total + gain[j] * np.log(theta[j]) - loss[j] * theta[j]
    return total
