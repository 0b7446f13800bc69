"""Crawl rates of the policies of the literature, each spending the same budget.

    uniform                 every page alike
    change-weighted         in proportion to the change rate          (Cho and Garcia-Molina 2003)
    click-weighted          in proportion to the click rate           (Han et al. 2020, Table 2)
    impression-weighted     in proportion to the impression rate      (same)
    lambdacrawl             optimum of crawls at exponential distances (Azar et al. 2018)
    lambdacrawl-discrete    the same in steps of time, at most one crawl a step (Han et al. 2020, Table 2,
                            with the constraint on probabilities that the printed formula misses)
    harmonic                optimum of the harmonic cost, no page is starved (Kolobov et al. 2019)
    periodic                optimum of crawls at equal distances      (Azar et al. 2018)

Where the parameters come from is the caller's choice: given, averages of counts (`averages`), or estimated
(`learned_changes`, `learned_clicks`).
"""

from dataclasses import dataclass
from typing import Final

import numpy as np
from scipy.optimize import brentq

from policies.estimation import prior, requests
from policies.history.evidence import Evidence
from policies.numerics.typing_ import FloatArray, IntArray
from policies.objectives import objectives
from policies.optimum import search

_WEIGHTED: Final = {
    "change-weighted": "change_weight",
    "click-weighted": "click_rate_per_day",
    "impression-weighted": "impression_rate_per_day",
}
_OPTIMAL: Final = {
    "lambdacrawl": "memoryless",
    "lambdacrawl-discrete": "discrete",
    "harmonic": "harmonic",
    "periodic": "periodic",
}
NAMES: Final = ("uniform", *_WEIGHTED, *_OPTIMAL)


@dataclass(frozen=True, slots=True)
class Parameters:
    """What a policy takes for known of n pages.

    Attributes
    ----------
    change_rate_per_day, click_rate_per_day, impression_rate_per_day : (n,) float64, >= 0
    change_weight : (n,) float64, >= 0
        What "change-weighted" goes by: the change rate, or e.g. the probability of a change within a day.
    """

    change_rate_per_day: FloatArray
    click_rate_per_day: FloatArray
    impression_rate_per_day: FloatArray
    change_weight: FloatArray

    def __len__(self) -> int:
        return len(self.change_rate_per_day)

    @classmethod
    def of(
        cls,
        change_rate_per_day: FloatArray,
        click_rate_per_day: FloatArray,
        impression_rate_per_day: FloatArray | None = None,
        change_weight: FloatArray | None = None,
    ) -> "Parameters":
        """Parameters with impressions as clicks, and the change rate as change weight, where not given.

        Raises
        ------
        ValueError
            Arrays of different lengths, or a value that is negative or not finite.
        """
        impressions = click_rate_per_day if impression_rate_per_day is None else impression_rate_per_day
        weight = change_rate_per_day if change_weight is None else change_weight
        n = len(change_rate_per_day)
        for name, values in (
            ("change_rate_per_day", change_rate_per_day),
            ("click_rate_per_day", click_rate_per_day),
            ("impression_rate_per_day", impressions),
            ("change_weight", weight),
        ):
            _check(name, values, n)
        return cls(change_rate_per_day, click_rate_per_day, impressions, weight)


def rates(
    name: str,
    parameters: Parameters,
    budget_per_day: float,
    cap_per_day: float = np.inf,
    step_days: float = 1.0,
) -> FloatArray:
    """Crawl rate of each page under the policy called `name`.

    Parameters
    ----------
    name : str
        One of `NAMES`.
    parameters : Parameters
        Of n pages.
    budget_per_day : float
        Crawls of all pages together.
    cap_per_day : float
        Largest rate of a page, e.g. one crawl in each step of time.
    step_days : float
        Step of "lambdacrawl-discrete".

    Returns
    -------
    (n,) float64, per day
        Adds up to the budget, or to less where the policy has no use for more: pages it gives nothing to,
        and caps.

    Raises
    ------
    ValueError
        An unknown name, or a budget or cap that is negative or NaN.
    """
    if name == "uniform":
        return uniform(len(parameters), budget_per_day, cap_per_day)
    if name in _WEIGHTED:
        return proportional(getattr(parameters, _WEIGHTED[name]), budget_per_day, cap_per_day)
    if name in _OPTIMAL:
        objective = objectives.get(_OPTIMAL[name])
        return optimal(
            objectives.Discrete(step_days) if objective.name == "discrete" else objective,
            parameters.change_rate_per_day,
            parameters.click_rate_per_day,
            budget_per_day,
            cap_per_day,
        )
    raise ValueError(f"unknown rate policy {name!r}: choose one of {', '.join(NAMES)}")


def uniform(n: int, budget_per_day: float, cap_per_day: float = np.inf) -> FloatArray:
    """The same rate for each of `n` pages: (n,) float64, per day. Raises as `rates`."""
    _check_budget(budget_per_day, cap_per_day)
    return np.full(n, min(budget_per_day / n, cap_per_day) if n else 0.0)


def proportional(weight: FloatArray, budget_per_day: float, cap_per_day: float = np.inf) -> FloatArray:
    """Rates in proportion to `weight`, cut at the cap; what is cut goes to the others in proportion.

    Pages of weight 0 get nothing, so with too few others part of the budget stays unspent.

    Parameters
    ----------
    weight : (n,) float64, >= 0
    budget_per_day, cap_per_day : float

    Returns
    -------
    (n,) float64, per day

    Raises
    ------
    ValueError
        A weight that is negative or not finite, or as `rates`.
    """
    _check_budget(budget_per_day, cap_per_day)
    _check("weight", weight, len(weight))
    largest = float(weight.max(initial=0.0))
    if largest == 0.0 or budget_per_day == 0.0:
        return np.zeros(len(weight))
    share = weight / largest
    useful = int(np.count_nonzero(share))
    if useful * cap_per_day <= budget_per_day:
        return np.where(share > 0.0, cap_per_day, 0.0)
    ordered = -np.sort(-share)
    rest = np.cumsum(ordered[::-1])[::-1]
    # k pages at the cap: the smallest k for which no further page exceeds it.
    k = np.arange(useful)
    left = budget_per_day - (k * cap_per_day if np.isfinite(cap_per_day) else np.zeros(useful))
    fits = np.flatnonzero(ordered[:useful] * left <= cap_per_day * rest[:useful])
    at_cap = int(fits[0])
    out: FloatArray = np.minimum(share * (left[at_cap] / rest[at_cap]), cap_per_day)
    return out


def optimal(
    objective: objectives.Objective,
    change_rate_per_day: FloatArray,
    request_rate_per_day: FloatArray,
    budget_per_day: float,
    cap_per_day: float = np.inf,
) -> FloatArray:
    """Rates that are best for `objective`: (n,) float64, per day. Raises as `rates`."""
    _check_budget(budget_per_day, cap_per_day)
    if isinstance(objective, objectives.Memoryless):
        return _by_root(objective, change_rate_per_day, request_rate_per_day, budget_per_day, cap_per_day)
    cap = None if np.isinf(cap_per_day) else np.full(len(change_rate_per_day), float(cap_per_day))
    block = search.PageBlock(change_rate_per_day, request_rate_per_day, cap_per_day=cap)
    return search.solve(block, objective, budget_per_day)[1][0].crawl_rate_per_day


def _by_root(
    objective: objectives.Memoryless,
    change_rate_per_day: FloatArray,
    request_rate_per_day: FloatArray,
    budget_per_day: float,
    cap_per_day: float,
) -> FloatArray:
    # Demand is continuous in the multiplier: one root, twenty times faster on a few thousand pages than the
    # search that is made for many machines.
    _check("change_rate_per_day", change_rate_per_day, len(change_rate_per_day))
    _check("request_rate_per_day", request_rate_per_day, len(change_rate_per_day))
    ratio = np.empty(len(change_rate_per_day))
    objective.ratio(change_rate_per_day, request_rate_per_day, ratio)
    useful = np.flatnonzero(ratio < np.inf)
    out = np.zeros(len(ratio))
    most = min(cap_per_day, objective.max_rate_per_day)
    if not useful.size or budget_per_day == 0.0:
        return out
    if useful.size * most <= budget_per_day:
        out[useful] = most
        return out
    change, request = change_rate_per_day[useful], request_rate_per_day[useful]

    def rates_at(log_multiplier: float) -> FloatArray:
        found: FloatArray = np.minimum(objective.rate(float(np.exp(log_multiplier)), change, request), most)
        return found

    def excess(log_multiplier: float) -> float:
        return float(rates_at(log_multiplier).sum()) - budget_per_day

    high = -float(np.log(ratio[useful].min()))
    low = high - 1.0
    while excess(low) < 0.0:
        low -= 2.0 * (high - low)
    root = float(brentq(excess, low, high, xtol=1e-13, rtol=1e-14)) if excess(high) < 0.0 else high
    # Where demand is steep two neighbouring multipliers miss the budget; a mixture of their rates meets it.
    width = 1e-12 * max(1.0, abs(root))
    more, less = rates_at(root - width), rates_at(root + width)
    spread = float(more.sum() - less.sum())
    share = (budget_per_day - float(less.sum())) / spread if spread > 0.0 else 1.0
    out[useful] = share * more + (1.0 - share) * less
    return out


def averages(counts: FloatArray | IntArray) -> FloatArray:
    """Mean count of each page a day, e.g. of the last 30 days: (d, n) counts to (n,) float64.

    Raises
    ------
    ValueError
        No day to average over.
    """
    if not len(counts):
        raise ValueError("there is no day to average over; give counts of at least one day")
    mean: FloatArray = np.mean(counts, axis=0, dtype=np.float64)
    return mean


def change_evidence(days_with_change: FloatArray, days: float) -> Evidence:
    """Evidence of pages that were looked at once a day.

    Parameters
    ----------
    days_with_change : (n,) float64
        Number of days on which each page was found changed.
    days : float
        Number of days looked at.

    Raises
    ------
    ValueError
        More days with a change than days.
    """
    changed = np.asarray(days_with_change, dtype=np.float64)
    if changed.size and not (changed.min() >= 0.0 and changed.max() <= days):
        raise ValueError(f"{changed.min()} to {changed.max()} days with a change in {days} days looked at")
    some = changed > 0.0
    start = np.zeros(len(changed) + 1, dtype=np.int64)
    np.cumsum(some, out=start[1:])
    return Evidence(
        days - changed, np.zeros(len(changed)), start, changed[some], changed[some], changed[some]
    )


def learned_changes(
    days_with_change: FloatArray, days: float, group: IntArray, fitted: prior.Prior | None = None
) -> tuple[FloatArray, FloatArray]:
    """Change rates by the default estimator with a prior for each group of pages, e.g. of like metadata.

    Parameters
    ----------
    days_with_change, days
        As `change_evidence`.
    group : (n,) int64
        0, 1, ...
    fitted : Prior, optional
        From an earlier call of `policies.estimation.prior.fit_prior`; fitted anew if not given.

    Returns
    -------
    change_rate_per_day, information : (n,) float64
        See `policies.estimation.estimators.rate`.
    """
    evidence = change_evidence(days_with_change, days)
    found = prior.fit_prior(evidence, group) if fitted is None else fitted
    estimate = prior.estimate(evidence, group, int(group.max(initial=-1)) + 1, found)
    return estimate.change_rate_per_day, estimate.information


def learned_clicks(clicks: FloatArray, impressions: FloatArray, days: float) -> tuple[FloatArray, FloatArray]:
    """Click and impression rates, each shrunk towards what is usual.

    Impressions are Poisson with gamma distributed rates over pages; clicks are Poisson with gamma
    distributed chances of a click per impression, so that pages without a click yet differ by their
    impressions.

    Parameters
    ----------
    clicks, impressions : (n,) float64
        Counts in `days` days.
    days : float

    Returns
    -------
    click_rate_per_day, impression_rate_per_day : (n,) float64, positive
    """
    exposure = np.full(len(impressions), float(days))
    seen, _ = requests.request_rate(requests.fit_request_prior(impressions, exposure), impressions, exposure)
    expected = seen * exposure
    chance, _ = requests.request_rate(requests.fit_request_prior(clicks, expected), clicks, expected)
    return chance * seen, seen


def _check(name: str, values: FloatArray, n: int) -> None:
    if values.shape != (n,):
        raise ValueError(f"{name} has shape {values.shape}, not ({n},): give one value for each page")
    if n and not (values.min() >= 0.0 and values.max() < np.inf):
        raise ValueError(f"{name} lies in {values.min()}..{values.max()}; give finite values >= 0")


def _check_budget(budget_per_day: float, cap_per_day: float) -> None:
    if not 0.0 <= budget_per_day < np.inf:
        raise ValueError(f"budget_per_day must be finite and >= 0, got {budget_per_day!r}")
    if not cap_per_day >= 0.0:
        raise ValueError(f"cap_per_day must be >= 0, got {cap_per_day!r}")
