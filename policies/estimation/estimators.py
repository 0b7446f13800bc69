"""Change rates from crawl histories: the default estimator and those it is compared with.

Changes of a page are a Poisson process of rate `lambda`. A gap of `tau` days shows a change with
probability ``1 - exp(-lambda tau)``; an unchanged gap has probability ``exp(-lambda tau)``; a change dated
`s` days before the crawl that found it has density ``lambda exp(-lambda s)``.

The default estimate is the mode of the posterior in log rate under a gamma prior of any shape. In log rate
the posterior is concave and its mode is positive and finite for every history, nothing changed and
everything changed included. The maximum of the likelihood, and Cho and Garcia-Molina's estimator, are here
for comparison.
"""

from dataclasses import dataclass

import numpy as np

from policies.history.evidence import Evidence
from policies.numerics.errors import NotConvergedError
from policies.numerics.sums import sum_by
from policies.numerics.typing_ import BoolArray, ByteArray, FloatArray, IntArray

BOUNDARY_NONE, BOUNDARY_ZERO, BOUNDARY_INFINITE, BOUNDARY_NO_DATA = 0, 1, 2, 3

_CHUNK_PAGES = 8192  # the chunk's nodes stay in the second-level cache
_LARGEST_X = 500.0  # exp(500) is finite, exp(-500) adds nothing
_SMALLEST_X = 1e-200
_TOLERANCE = 1e-10  # of the last step in log rate; Newton's error after it is its square
_MAX_STEPS = 100


@dataclass(frozen=True, slots=True)
class RateFit:
    """Maximum of the likelihood (or posterior in the rate) of each page.

    Attributes
    ----------
    change_rate_per_day : (n,) float64
        0 or inf at a boundary; NaN where nothing is known.
    observed_information, expected_information : (n,) float64, days squared
        Second derivative of the negative objective in the rate at the maximum, the prior included; and
        Fisher information of the changed/unchanged flags of the gaps. NaN at a boundary.
    log_likelihood : (n,) float64, nats
        Of the data alone.
    boundary : (n,) uint8
        `BOUNDARY_NONE`, `_ZERO`, `_INFINITE` or `_NO_DATA`.
    """

    change_rate_per_day: FloatArray
    observed_information: FloatArray
    expected_information: FloatArray
    log_likelihood: FloatArray
    boundary: ByteArray


@dataclass(frozen=True, slots=True)
class Nodes:
    """Changed gaps of a chunk of pages as weighted points.

    Attributes
    ----------
    first, last : int
        The chunk is pages ``first:last``.
    page : (p,) int64
        Its pages with a node, counted within the chunk, ascending.
    row : (k,) int64
        Page of each node, as an index into `page`.
    weight, days : (k,) float64, weight, days
    total_weight, total_days : (p,) float64
        Sums of weight and of weight times days by page.
    """

    first: int
    last: int
    page: IntArray
    row: IntArray
    weight: FloatArray
    days: FloatArray
    total_weight: FloatArray
    total_days: FloatArray


def rate(
    evidence: Evidence,
    shape: float,
    mean_per_day: float | FloatArray,
    start: FloatArray | None = None,
    steps: int | None = None,
    nodes: list[Nodes] | None = None,
) -> tuple[FloatArray, FloatArray]:
    """Mode in log rate of the posterior, and its information: the default estimator.

    The posterior is close to Gamma(shape = information, mean = rate): the mode in log rate is nearly its
    mean, and ``rate / sqrt(information)`` its standard deviation.

    Parameters
    ----------
    evidence : Evidence
        Of n pages.
    shape : float, positive
        Shape of the gamma prior.
    mean_per_day : float or (n,) float64, positive, per day
        Mean of the gamma prior, e.g. that of each page's group.
    start : (n,) float64, per day, optional
        Rates close to the answer, to save steps.
    steps : int, optional
        Take at most this many Newton steps and return what is reached: for callers that iterate. By
        default steps are taken until they are below 1e-10.
    nodes : list of Nodes, optional
        `bin_nodes` of this evidence, which is sound, where they are at hand.

    Returns
    -------
    change_rate_per_day : (n,) float64, positive and finite
    information : (n,) float64, dimensionless
        Minus the second derivative of the log posterior in log rate.

    Raises
    ------
    ValueError
        Prior or evidence out of range.
    NotConvergedError
        More than 100 steps (not known to happen).

    Notes
    -----
    The result of a page depends on that page alone: not on order, chunk or batch.
    """
    if nodes is None:
        evidence.check()
        nodes = bin_nodes(evidence)
    mean = prior_means(shape, mean_per_day, len(evidence))
    lam, information = np.empty(len(evidence)), np.empty(len(evidence))
    for part in nodes:
        rows = slice(part.first, part.last)
        lam[rows], information[rows] = solve(
            part,
            evidence.dated_changes[rows] + shape,
            evidence.exposure_days[rows] + shape / mean[rows],
            None if start is None else start[rows],
            steps,
        )
    return lam, information


def standard_error(change_rate_per_day: FloatArray, information: FloatArray) -> FloatArray:
    """Posterior standard deviation of the rate, per day: (n,) float64."""
    return change_rate_per_day / np.sqrt(information)


def predict_unchanged(
    change_rate_per_day: FloatArray, information: FloatArray, days: FloatArray | float
) -> FloatArray:
    """Probability that a page shows no change for `days`, averaged over what its rate may be.

    ``(1 + rate days / information) ** -information``: the gamma posterior integrated over
    ``exp(-rate days)``. With little evidence this is well above ``exp(-rate days)``.

    Parameters
    ----------
    change_rate_per_day, information : (n,) float64
        From `rate`.
    days : float or (n,) float64, days

    Returns
    -------
    (n,) float64, in [0, 1]
    """
    return np.exp(log_predict_unchanged(change_rate_per_day, information, days))


def log_predict_unchanged(
    change_rate_per_day: FloatArray, information: FloatArray, days: FloatArray | float
) -> FloatArray:
    """Logarithm of `predict_unchanged`, exact where the probability is close to 0 or 1."""
    result: FloatArray = -information * np.log1p(change_rate_per_day * days / information)
    return result


def mle(
    page: IntArray,
    gap_days: FloatArray,
    changed: BoolArray,
    age_days: FloatArray | None = None,
    prior_shape: float = 1.0,
    prior_rate_days: float = 0.0,
    n_pages: int | None = None,
) -> RateFit:
    """Exact interval-censored maximum likelihood from raw intervals, or the mode *in the rate* under a prior.

    Parameters
    ----------
    page : (k,) int64
    gap_days : (k,) float64, days, positive
    changed : (k,) bool
    age_days : (k,) float64, days, optional
        Age of the last change from Last-Modified; NaN where not known.
    prior_shape, prior_rate_days : float
        Gamma prior with density ``lambda**(shape - 1) exp(-rate lambda)``; (1, 0) is plain likelihood.
        Below shape 1 the density has a pole at 0 and no mode: use `rate`, which works in log rate.
    n_pages : int, optional

    Raises
    ------
    ValueError
        Prior shape below 1, negative prior rate, gaps not positive.
    """
    if not (prior_shape >= 1.0 and prior_rate_days >= 0.0):
        raise ValueError(
            f"prior shape {prior_shape} and rate {prior_rate_days} days; shape must be >= 1 and rate >= 0 "
            "for a mode in the rate; `rate` takes any positive shape"
        )
    page, gap = np.asarray(page, dtype=np.int64), np.asarray(gap_days, dtype=np.float64)
    changed = np.asarray(changed, dtype=np.bool_)
    if gap.size and not (gap.min() > 0.0 and gap.max() < np.inf):
        raise ValueError(f"gaps of {gap.min()}..{gap.max()} days; give positive finite gaps")
    n = n_pages if n_pages is not None else int(page.max(initial=-1)) + 1
    age = np.full(len(gap), np.nan) if age_days is None else np.asarray(age_days, dtype=np.float64)
    dated = changed & (age >= 0.0) & (age <= gap)
    undated = changed & ~dated

    def add(where: BoolArray, values: FloatArray) -> FloatArray:
        return sum_by(page[where], values[where], n)

    one = np.ones(len(gap))
    n_dated, exposed = add(dated, one), add(~changed, gap) + add(dated, age)
    events, exposure = n_dated + (prior_shape - 1.0), exposed + prior_rate_days
    nodes = _nodes(0, n, page[undated], one[undated], gap[undated])
    lam, boundary = _likelihood_root(nodes, events, exposure)
    inside = boundary == BOUNDARY_NONE

    observed, expected, likelihood = (np.full(n, np.nan) for _ in range(3))
    safe = np.where(inside, lam, 1.0)
    x = np.minimum(safe[page] * gap, _LARGEST_X)
    e = np.expm1(x)
    curve = gap * gap / e * (1.0 + 1.0 / e)
    observed[inside] = (add(undated, curve) + events / (safe * safe))[inside]
    expected[inside] = add(np.ones(len(gap), dtype=np.bool_), gap * gap / e)[inside]
    terms = add(undated, np.log(-np.expm1(-safe[page] * gap))) - safe * exposed + n_dated * np.log(safe)
    likelihood[inside] = terms[inside]
    likelihood[boundary == BOUNDARY_ZERO] = 0.0
    infinite = boundary == BOUNDARY_INFINITE
    likelihood[infinite] = np.where(n_dated > 0.0, np.inf, 0.0)[infinite]
    return RateFit(lam, observed, expected, likelihood, boundary)


def prior_means(shape: float, mean_per_day: float | FloatArray, n: int) -> FloatArray:
    """The prior mean of every page, checked: (n,) float64."""
    mean = np.broadcast_to(np.asarray(mean_per_day, dtype=np.float64), (n,))
    if not 0.0 < shape < np.inf:
        raise ValueError(f"prior shape is {shape}; give a positive finite number")
    if n and not (mean.min() > 0.0 and mean.max() < np.inf):
        raise ValueError(f"prior means are {mean.min()}..{mean.max()} per day; give positive finite numbers")
    return mean


def bin_nodes(evidence: Evidence) -> list[Nodes]:
    """Each bin as two equal points that keep its weight, sum and sum of squares, chunk by chunk of pages."""
    chunks = []
    for first in range(0, len(evidence), _CHUNK_PAGES):
        last = min(first + _CHUNK_PAGES, len(evidence))
        start = evidence.bin_start[first : last + 1]
        bins = slice(int(start[0]), int(start[-1]))
        row = np.repeat(np.arange(last - first, dtype=np.int64), np.diff(start))
        weight, s1, s2 = evidence.bin_weight[bins], evidence.bin_days[bins], evidence.bin_days_squared[bins]
        if weight.size and weight.min() <= 0.0:  # forgotten to nothing
            keep = weight > 0.0
            row, weight, s1, s2 = row[keep], weight[keep], s1[keep], s2[keep]
        middle = s1 / weight
        variance = s2 / weight - middle * middle
        # A single gap has no spread but for rounding: one point does, and most bins are such.
        two = np.flatnonzero(variance > 1e-12 * middle * middle)
        spread = np.sqrt(variance[two])
        half = 0.5 * weight[two]
        low = middle.copy()
        low[two] = np.maximum(middle[two] - spread, 0.0)
        weight = weight.copy()
        weight[two] = half
        chunks.append(
            _nodes(
                first,
                last,
                np.concatenate([row, row[two]]),
                np.concatenate([weight, half]),
                np.concatenate([low, middle[two] + spread]),
            )
        )
    return chunks


def solve(
    nodes: Nodes,
    events: FloatArray,
    exposure: FloatArray,
    start: FloatArray | None = None,
    steps: int | None = None,
) -> tuple[FloatArray, FloatArray]:
    """Root of ``sum_j w_j q(lambda tau_j) + events = lambda exposure``, q(x) = x / expm1(x), per page.

    Newton's method on the difference of the logarithms of the two sides, from a point below the root. A
    page stops at its own convergence, so that what it gets does not depend on the others.

    Parameters
    ----------
    nodes : Nodes
        Changed gaps of a chunk of n pages.
    events, exposure : (n,) float64
        `exposure` positive.
    start : (n,) float64, per day, optional
    steps : int, optional
        Limit on steps without an error; by default to convergence.

    Returns
    -------
    change_rate_per_day, information : (n,) float64
        Without nodes ``events / exposure`` and ``events``.
    """
    lam, information = events / exposure, events.copy()
    page, row, weight, days = nodes.page, nodes.row, nodes.weight, nodes.days
    a, b = events[page], exposure[page]
    if start is None:
        # q(x) >= 1 - x / 2 and q(x) >= 0: two lower bounds.
        current = np.maximum((a + nodes.total_weight) / (b + 0.5 * nodes.total_days), lam[page])
    else:
        current = start[page]
    for step in range(_MAX_STEPS if steps is None else steps):
        if page.size == 0:
            break
        sums, curvature = changed_gaps(row, weight, days, current)
        sums += a
        expected = current * b
        f = np.log(sums / expected)
        f /= 1.0 + curvature / sums
        # Far below the root the left side falls like exp(-lambda tau): linear in the rate, not in its log.
        current = current * np.where(f < 0.5, np.exp(np.clip(f, -1.0, 0.5)), 1.0 + f)
        lam[page] = current
        information[page] = curvature + expected
        if step + 1 == steps:
            break
        open_ = np.abs(f) > _TOLERANCE
        if not open_.all():
            page, current, a, b = page[open_], current[open_], a[open_], b[open_]
            keep = open_[row]
            row, weight, days = (np.cumsum(open_) - 1)[row[keep]], weight[keep], days[keep]
    else:
        if page.size:
            raise NotConvergedError(
                f"{page.size} rates are not converged after {_MAX_STEPS} steps, e.g. {current[0]} per day; "
                "check the evidence for sums that contradict each other"
            )
    return lam, information


def _likelihood_root(nodes: Nodes, events: FloatArray, exposure: FloatArray) -> tuple[FloatArray, ByteArray]:
    """Maximum of the likelihood with its boundary cases: rate and code, (n,) each."""
    some = events > 0.0
    some[nodes.page] = True
    bounded = exposure > 0.0
    code = np.where(
        some,
        np.where(bounded, BOUNDARY_NONE, BOUNDARY_INFINITE),
        np.where(bounded, BOUNDARY_ZERO, BOUNDARY_NO_DATA),
    ).astype(np.uint8)
    lam, _ = solve(nodes, events, np.where(bounded, exposure, 1.0))
    return np.where(bounded, lam, np.where(some, np.inf, np.nan)), code


def _nodes(first: int, last: int, row: IntArray, weight: FloatArray, days: FloatArray) -> Nodes:
    """Points of pages ``first:last``; `row` counts within the chunk."""
    has = np.bincount(row, minlength=last - first) > 0
    number = np.cumsum(has) - 1
    page, row = np.flatnonzero(has), number[row]
    p = len(page)
    return Nodes(first, last, page, row, weight, days, sum_by(row, weight, p), sum_by(row, weight * days, p))


def changed_gaps(
    row: IntArray, weight: FloatArray, days: FloatArray, lam: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """What changed gaps add to the two sides of `solve`, by row of `lam` (p,), per day: two (p,) float64.

    ``sum w q(x)`` and ``-sum w x q'(x)`` with ``x = lam[row] * days`` and ``q(x) = x / expm1(x)``.
    """
    x = lam[row]
    x *= days
    np.clip(x, _SMALLEST_X, _LARGEST_X, out=x)
    q = np.expm1(x)
    np.divide(x, q, out=q)
    x += q
    x -= 1.0
    q *= weight
    value = sum_by(row, q, len(lam))
    q *= x
    return value, sum_by(row, q, len(lam))
