"""How far to trust each source of change-indicating signals, learned from crawls.

A page changes unannounced `a` times a day; a signal of source `s` means a change with probability
``1 - exp(-k_s)``, where `k_s` is its weight. Pages of a group (a host) share a prior: `a` is about a share
`q` of the page's change rate, and weights are about those of the group. Small groups borrow from a prior for
all, pages from their group. All modes are taken in the logarithms of the parameters, where they are positive
and finite for every history.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from policies.numerics.newton import Problem, invert, solve
from policies.numerics.sums import sum_by
from policies.numerics.typing_ import FloatArray, IntArray
from policies.signals.evidence import SignalEvidence, points

DEFAULT_MISSED_SHARE = 0.75
DEFAULT_SIGNAL_WEIGHT = 0.29
"""Before anything is known three of four changes come without a signal, and one of four signals is true."""

DEFAULT_STRENGTH = 1.0
PAGE_MISSED_STRENGTH = 8.0
PAGE_WEIGHT_STRENGTH = 4.0
"""Gamma shapes: of a group's share and weights around the prior, of a page's around those of its group.

Those of pages by trial on simulated hosts (3 to 40 crawls a page, precision and recall that differ between
pages by 0.3 to 1 in their logits): the log score of later crawls hardly depends on them in 4..64 and 4..16,
and is worse below, since the change rate that the share refers to comes from the same crawls.
"""

_CHUNK_ROWS = 16384  # points of a chunk stay in the cache; a row is two at most: see BLOCK_ROWS


@dataclass(frozen=True, slots=True)
class SignalPrior:
    """What a group is taken to be before its history is seen.

    Attributes
    ----------
    missed_share : float
        Rate of changes without a signal as a share of the change rate.
    missed_strength : float
        Shape of the gamma distribution of that share.
    signal_weight : (S,) float64, dimensionless
        Weight of a signal of each source.
    weight_strength : (S,) float64
        Shapes of the gamma distributions of those weights.
    """

    missed_share: float
    missed_strength: float
    signal_weight: FloatArray
    weight_strength: FloatArray

    def __post_init__(self) -> None:
        if self.signal_weight.ndim != 1 or self.weight_strength.shape != self.signal_weight.shape:
            raise ValueError(
                f"prior has signal weights of shape {self.signal_weight.shape} and strengths of shape "
                f"{self.weight_strength.shape}; give one of each a source"
            )
        for name in ("missed_share", "missed_strength", "signal_weight", "weight_strength"):
            for value in np.atleast_1d(getattr(self, name)):
                if not 0.0 < value < math.inf:
                    raise ValueError(f"prior {name} is {value}; give a positive finite number")


@dataclass(frozen=True, slots=True)
class Pooled:
    """What the pages of each of G groups share.

    Attributes
    ----------
    missed_share : (G,) float64
        Rate of changes without a signal as a share of the change rate; may exceed 1.
    signal_weight : (G, S) float64, dimensionless
    covariance : (G, 1 + S, 1 + S) float64
        Of the logarithms of share and weights.
    """

    missed_share: FloatArray
    signal_weight: FloatArray
    covariance: FloatArray


@dataclass(frozen=True, slots=True)
class PageFit:
    """Parameters of n pages.

    Attributes
    ----------
    unsignalled_rate_per_day : (n,) float64, positive
    signal_weight : (n, S) float64, positive, dimensionless
    covariance : (n, 1 + S, 1 + S) float64
        Of the logarithms of rate and weights.

    Notes
    -----
    Memory: ``8 (2 + S + (1 + S)**2)`` bytes a page, and about three times ``16 (1 + S)`` while it is made.
    """

    unsignalled_rate_per_day: FloatArray
    signal_weight: FloatArray
    covariance: FloatArray


def default_prior(n_sources: int) -> SignalPrior:
    """The prior for sources of which nothing is known."""
    return SignalPrior(
        DEFAULT_MISSED_SHARE,
        DEFAULT_STRENGTH,
        np.full(n_sources, DEFAULT_SIGNAL_WEIGHT),
        np.full(n_sources, DEFAULT_STRENGTH),
    )


def fit_pooled(
    evidence: SignalEvidence,
    change_rate_per_day: FloatArray,
    group: IntArray,
    n_groups: int,
    prior: SignalPrior,
) -> Pooled:
    """Share of unsignalled changes and weights of sources of each group: mode in their logarithms.

    Parameters
    ----------
    evidence : SignalEvidence
        Of n pages; all pages of each group.
    change_rate_per_day : (n,) float64, positive and finite, per day
        Change rate of each page, e.g. of `policies.estimation.estimators.rate`.
    group : (n,) int64
        Group of each page, 0..n_groups-1.
    n_groups : int
    prior : SignalPrior
        With as many sources as `evidence`. One group of all pages and a weak prior gives a prior for groups.

    Returns
    -------
    Pooled
        Groups without evidence have the prior's values.

    Raises
    ------
    ValueError
        Lengths that differ, numbers out of range.
    NotConvergedError
        As `policies.numerics.newton.solve`.

    Notes
    -----
    A group's result depends on its own pages in the order given, and on nothing else, to the bit.

    Change rates estimated from the very intervals of `evidence` explain some of what signals explain: with
    three to ten intervals a page weights come out 2 to 5 % too small where a signal is true in 7 of 10
    cases, 10 to 30 % where it is in 2 of 10 (simulated). The error is on the side of less trust.
    """
    rate, group = _checked(evidence, change_rate_per_day, group, n_groups)
    if len(prior.signal_weight) != evidence.n_sources:
        raise ValueError(
            f"the prior has {len(prior.signal_weight)} sources, the evidence {evidence.n_sources}; "
            "give as many"
        )
    strength = np.append(prior.missed_strength, prior.weight_strength)
    mean = np.append(prior.missed_share, prior.signal_weight)
    exposed = [sum_by(group, rate * evidence.exposure_days, n_groups)]
    exposed += [sum_by(group, column, n_groups) for column in evidence.unchanged_signals.T]
    gain = np.repeat(strength[:, None], n_groups, axis=1)
    gain[0] += sum_by(group, evidence.dated_changes, n_groups)
    loss = np.stack(exposed) + (strength / mean)[:, None]
    code = group[evidence.row_page]
    scale = rate[evidence.row_page]
    days, squared, weight = (
        evidence.row_days * scale,
        evidence.row_days_squared * scale * scale,
        evidence.row_weight,
    )
    signals = evidence.row_signals
    if (code[1:] < code[:-1]).any():
        order = np.argsort(code, kind="stable")
        code, signals = code[order], signals[order]
        weight, days, squared = weight[order], days[order], squared[order]
    start = np.repeat(mean[:, None], n_groups, axis=1)
    theta, covariance = _fit(code, weight, days, squared, signals, gain, loss, start, in_runs=True)
    return Pooled(theta[0], np.ascontiguousarray(theta[1:].T), covariance)


def fit_pages(
    evidence: SignalEvidence,
    change_rate_per_day: FloatArray,
    group: IntArray,
    pooled: Pooled,
    missed_strength: float = PAGE_MISSED_STRENGTH,
    weight_strength: float = PAGE_WEIGHT_STRENGTH,
) -> PageFit:
    """Unsignalled change rate and weights of sources of each page: mode in their logarithms.

    Parameters
    ----------
    evidence : SignalEvidence
        Of n pages.
    change_rate_per_day : (n,) float64, positive and finite, per day
        As given to `fit_pooled`.
    group : (n,) int64
        Group of each page, an index into `pooled`.
    pooled : Pooled
    missed_strength, weight_strength : float, positive
        Gamma shapes of a page's unsignalled rate and weights around those of its group, if these were known
        exactly; what is not known of them widens the prior.

    Returns
    -------
    PageFit
        Pages without evidence have the means of their prior.

    Raises
    ------
    ValueError
        Lengths that differ, numbers out of range.
    NotConvergedError
        As `policies.numerics.newton.solve`.

    Notes
    -----
    A page's result depends on that page and its group's prior alone, to the bit.
    """
    n_groups, s = pooled.signal_weight.shape
    rate, group = _checked(evidence, change_rate_per_day, group, n_groups)
    if s != evidence.n_sources:
        raise ValueError(f"the groups have {s} sources, the evidence {evidence.n_sources}; give as many")
    for name, value in (("missed_strength", missed_strength), ("weight_strength", weight_strength)):
        if not 0.0 < value < math.inf:
            raise ValueError(f"{name} is {value}; give a positive finite number")
    d = 1 + s
    shape = np.empty((d, n_groups))
    for j in range(d):
        shape[j] = 1.0 / (1.0 / (weight_strength if j else missed_strength) + pooled.covariance[:, j, j])
    mean = np.concatenate([pooled.missed_share[None], pooled.signal_weight.T])
    start = mean[:, group]
    start[0] *= rate
    gain = shape[:, group]
    loss = gain / start
    gain[0] += evidence.dated_changes
    loss[0] += evidence.exposure_days
    for j in range(s):
        loss[1 + j] += evidence.unchanged_signals[:, j]
    theta, covariance = _fit(
        evidence.row_page,
        evidence.row_weight,
        evidence.row_days,
        evidence.row_days_squared,
        evidence.row_signals,
        gain,
        loss,
        start,
    )
    return PageFit(theta[0], np.ascontiguousarray(theta[1:].T), covariance)


def _fit(
    code: IntArray,
    weight: FloatArray,
    days: FloatArray,
    days_squared: FloatArray,
    signals: FloatArray,
    gain: FloatArray,
    loss: FloatArray,
    start: FloatArray,
    in_runs: bool = False,
) -> tuple[FloatArray, FloatArray]:
    """Modes (d, n) and covariances (n, d, d) of n pages (or groups), rows in order of their `code`."""
    d, n = gain.shape
    theta = gain / loss
    covariance = np.zeros((n, d, d))
    for j in range(d):
        covariance[:, j, j] = 1.0 / gain[j]
    for first, last in _chunks(code, n):
        rows = slice(*np.searchsorted(code, (first, last)))
        at, w, tau = points(weight[rows], days[rows], days_squared[rows])
        here = code[rows][at] - first
        has = np.zeros(last - first, dtype=np.bool_)
        has[here] = True
        page = first + np.flatnonzero(has)
        x = np.empty((d, len(at)))
        x[0] = tau
        x[1:] = signals[rows][at].T
        problem = Problem((np.cumsum(has) - 1)[here], w, x, gain[:, page], loss[:, page], in_runs)
        theta[:, page], curvature, _ = solve(problem, start[:, page])
        covariance[page] = np.moveaxis(invert(curvature), 2, 0)
    return theta, covariance


def _chunks(code: IntArray, n: int) -> Iterator[tuple[int, int]]:
    """Ranges of pages with about as many rows each; a page with many rows is a range of its own."""
    page, first, size = np.unique(code, return_index=True, return_counts=True)
    if page.size == 0:
        return
    large = size > _CHUNK_ROWS
    block = first // _CHUNK_ROWS
    cut = (block[1:] != block[:-1]) | large[1:] | large[:-1]
    edges = np.concatenate([page[:1], page[1:][cut], [n]])
    yield from zip(edges[:-1].tolist(), edges[1:].tolist(), strict=True)


def _checked(
    evidence: SignalEvidence, change_rate_per_day: FloatArray, group: IntArray, n_groups: int
) -> tuple[FloatArray, IntArray]:
    evidence.check()
    rate, group = np.asarray(change_rate_per_day, dtype=np.float64), np.asarray(group, dtype=np.int64)
    _check_groups(group, n_groups, len(evidence))
    if rate.shape != group.shape:
        raise ValueError(f"{rate.size} change rates for {group.size} pages; give one a page")
    if rate.size and not (rate.min() > 0.0 and rate.max() < np.inf):
        raise ValueError(f"change rates are {rate.min()}..{rate.max()} per day; give positive finite numbers")
    return rate, group


def _check_groups(group: IntArray, n_groups: int, n: int) -> None:
    if len(group) != n:
        raise ValueError(f"{len(group)} group codes for {n} pages; give one code per page")
    if n and not (group.min() >= 0 and group.max() < n_groups):
        raise ValueError(f"group codes are {group.min()}..{group.max()}; they must be 0..{n_groups - 1}")
