"""Tables 5 and 6 and Figures 4, 5 and 6 of Han et al. 2020, on drawn price offers.

Their data is private, so no digit can be compared: what is checked are the relations between policies that
the paper states, each with our numbers and theirs. Offers are drawn by `policies.simulation.offers`, with
150 days of hourly truth: 60 to learn from, 60 of warm-up, 31 scored, as long as theirs but for the first.
Repetitions draw crawls anew; there are `DATASETS` sets of offers, which repetitions take turns at, because
what one set of offers shows by chance, no number of repetitions on it would tell.

Three choices were made after looking at results, because the paper leaves them open: copies do not exist at
first (with fresh ones, what is never crawled would be far fresher than in Table 6), `lambda_h` takes rates of
at least `FLOOR_PER_DAY` (without: `lambda_h-no-floor`), and some parameters of the drawn offers.

Names: delta, mu, nu and lambda for crawls by change, click and impression rate and by LambdaCrawl; `_h` with
averages of the last 30 days, `_ml` with our estimates and metadata groups, where the paper has a neural
network; `_meta` with means of metadata groups only. `KAB5` learns from equation 2 as printed, `KAB5-gain`
from the gain in freshness that the text means.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
from scipy.stats import wilcoxon

from pipelines.experiments.figures.han_claims import CLAIMS, TITLES, Claim, Measured
from pipelines.experiments.figures.han_runs import BANDITS, NAMES, Part, Task, run, tasks
from policies.numerics.typing_ import FloatArray
from policies.simulation import statistics

__all__ = ["NAMES", "Claim", "Figure", "Part", "Task", "figure", "make", "run", "tasks"]

DEFAULT_PAGES: Final = 5000
DEFAULT_REPETITIONS: Final = 20
METRICS: Final = ("click", "offer")

Columns = dict[str, Any]


@dataclass(frozen=True)
class Figure:
    """A figure made.

    Attributes
    ----------
    name, title : str
    columns : dict of arrays of equal length
        A row for each policy, number of pages, budget and repetition. `accuracy` is click-weighted freshness.
    claims : list of Claim
    summary : dict of arrays of equal length
        A row for each policy, metric and budget: medians over days and repetitions with 95 % intervals,
        standard errors over sets of offers, and changes in percent against lambda_ml (lambda_meta) with
        p-values of the Wilcoxon signed-rank test over days and repetitions, as in the paper. Days are not
        independent: trust the standard errors.
    series : dict of arrays of equal length
        Probabilities of arms over time; empty but for Figure 5.
    """

    name: str
    title: str
    columns: Columns
    claims: list[Claim]
    summary: Columns
    series: Columns = field(default_factory=dict)


def figure(parts: Sequence[Part]) -> Figure:
    """Results, claims and summaries from all parts of a figure; claims are of the largest number of pages."""
    name = parts[0].task.figure
    by_pages: dict[int, list[Part]] = {}
    for part in parts:
        by_pages.setdefault(part.task.pages, []).append(part)
    last = Measured(by_pages[max(by_pages)])
    measured = {pages: Measured(some) for pages, some in sorted(by_pages.items())}
    return Figure(
        name,
        TITLES[name],
        _rows(parts),
        CLAIMS[name](last),
        _summary(measured),
        _series(measured) if name == "han-figure-5" else {},
    )


def make(
    name: str,
    pages: Sequence[int] = (DEFAULT_PAGES,),
    repetitions: int = DEFAULT_REPETITIONS,
    seed: int = 0,
    mapped: Callable[[Callable[[Task], Part], list[Task]], Any] = map,
) -> Figure:
    """A figure in one go; `mapped` may spread the tasks over processes, e.g. `pool.map`."""
    return figure(list(mapped(run, tasks(name, pages, repetitions, seed))))


def _rows(parts: Sequence[Part]) -> Columns:
    rows: dict[str, list[Any]] = {
        key: []
        for key in (
            "policy",
            "pages",
            "repetition",
            "dataset",
            "budget_per_day",
            "accuracy",
            "click_freshness_median",
            "offer_freshness",
            "offer_freshness_median",
            "crawls",
        )
    }
    for part in parts:
        for policy, fresh in part.fresh.items():
            for b, budget in enumerate(part.budgets):
                for r, repetition in enumerate(part.task.repetitions):
                    click, offer = fresh["click"][b, r], fresh["offer"][b, r]
                    values = (
                        policy,
                        part.task.pages,
                        repetition,
                        part.task.dataset,
                        budget,
                        float(np.nanmean(click)),
                        float(np.nanmedian(click)),
                        float(offer.mean()),
                        float(np.median(offer)),
                        int(part.crawls[policy][b, r]),
                    )
                    for column, value in zip(rows.values(), values, strict=True):
                        column.append(value)
    return dict(rows)


def _summary(measured: Mapping[int, Measured]) -> Columns:
    keys = (
        "policy",
        "pages",
        "metric",
        "budget_per_day",
        "median",
        "low",
        "high",
        "standard_error",
        "change_percent",
        "change_low",
        "change_high",
        "p_value",
    )
    rows: dict[str, list[Any]] = {key: [] for key in keys}
    for pages, values in measured.items():
        for policy in values.policies:
            for metric in METRICS:
                for b, budget in enumerate(values.budgets):
                    of = statistics.summary(values.daily(policy, metric, b))
                    error = values.standard_error(values.of_sets(policy, metric, b))
                    change = [float("nan")] * 4
                    reference = values.reference(policy)
                    if reference and len(changes := values.change(policy, metric, b)):
                        percent = statistics.summary(changes)
                        gap = values.daily(policy, metric, b) - values.daily(reference, metric, b)
                        change = [percent.median, percent.low, percent.high, _wilcoxon(gap)]
                    line = (policy, pages, metric, budget, of.median, of.low, of.high, error, *change)
                    for column, value in zip(rows.values(), line, strict=True):
                        column.append(value)
    return dict(rows)


def _wilcoxon(difference: FloatArray) -> float:
    # Thousands of days, as in the paper: the normal approximation is good, exact tests with ties are slow.
    return float(wilcoxon(difference, method="asymptotic").pvalue) if difference.any() else 1.0


def _series(measured: Mapping[int, Measured]) -> Columns:
    """Mean probability of each arm in every step, over repetitions."""
    rows: dict[str, list[Any]] = {
        key: [] for key in ("policy", "pages", "budget_per_day", "arm", "step", "probability")
    }
    for pages, values in measured.items():
        for strategy in BANDITS[:2]:
            q = np.concatenate([p.outcome.arm_probability[strategy.name] for p in values.parts], axis=1)
            mean = q.mean(axis=1)
            for b, budget in enumerate(values.budgets):
                for k, arm in enumerate(strategy.arms):
                    steps = mean.shape[1]
                    rows["policy"] += [strategy.name] * steps
                    rows["pages"] += [pages] * steps
                    rows["budget_per_day"] += [budget] * steps
                    rows["arm"] += [arm.policy] * steps
                    rows["step"] += range(steps)
                    rows["probability"] += mean[b, :, k].tolist()
    return dict(rows)
