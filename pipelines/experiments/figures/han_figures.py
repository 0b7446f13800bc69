"""Tables 5 and 6 and Figures 4, 5 and 6 of Han et al. 2020 for `recrawl reproduce`."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, Final

import numpy as np

from pipelines.experiments.figures import han
from pipelines.experiments.figures.records import Figure, Made, Table
from pipelines.pictures import plots
from pipelines.pictures.plots import Panel, Picture, Series

_PAPER: Final = "Han et al. 2020, adversarial bandits over crawl strategies, {}"
_SETTING: Final = (
    "Their data is private: price offers are drawn with the reported patterns, 60 days to learn from, 60 of "
    "warm-up, 31 scored, in four sets that repetitions take turns at. Names as in the paper: delta, mu, nu "
    "and lambda crawl by change, click and impression rate and by LambdaCrawl, _h with 30-day averages, _ml "
    "with our estimates and metadata groups in place of their neural network, _meta with means of metadata "
    "groups. KAB5 learns from equation 2 as printed, KAB5-gain from the gain in freshness. `accuracy` is "
    "click-weighted freshness, mean over days; tables have medians over days and repetitions. Parameters "
    "that the paper does not report (quiet and saturated offers, spread of demand, the start without copies, "
    "the least rate of lambda_h) were set with Tables 5 and 6 in view: that levels agree is no evidence."
)
_MOST_PAGES: Final = 200_000


def tasks(
    name: str, pages: Sequence[int], repetitions: int, until: float, seed: int, at_once: int
) -> list[Any]:
    """The figure's tasks, the most pages first."""
    return han.tasks(name, sorted(set(pages), reverse=True), repetitions, seed)


def make(name: str, parts: list[Any]) -> Made:
    """What `pipelines.experiments.figures.han` makes of the parts, with tables and pictures."""
    figure = han.figure(sorted(parts, key=lambda p: (p.task.pages, p.task.dataset)))
    more = {"summary": figure.summary}
    if figure.series:
        more["arms"] = figure.series
    return Made(
        figure.columns,
        figure.claims,
        _tables(name, figure),
        [_picture(name, figure)],
        more,
    )


def _rows(figure: han.Figure, metric: str, pages: int, policy: str) -> dict[float, dict[str, float]]:
    s = figure.summary
    keys = ("median", "standard_error", "change_percent", "change_low", "change_high", "p_value")
    return {
        s["budget_per_day"][i]: {key: s[key][i] for key in keys}
        for i in range(len(s["policy"]))
        if s["policy"][i] == policy and s["metric"][i] == metric and s["pages"][i] == pages
    }


def _with_error(value: float, error: float) -> str:
    return f"{value:.4f}" if np.isnan(error) else f"{value:.4f} ± {error:.4f}"


def _metrics(name: str) -> tuple[str, ...]:
    return {"han-table-5": ("click",), "han-table-6": ("offer",)}.get(name, han.METRICS)


def _tables(name: str, figure: han.Figure) -> list[Table]:
    out = []
    pages = max(figure.summary["pages"])
    policies = list(dict.fromkeys(figure.summary["policy"]))
    for metric in _metrics(name):
        found = {policy: _rows(figure, metric, pages, policy) for policy in policies}
        budgets = list(next(iter(found.values())))
        # Eight columns at most: all budgets are in summary.parquet.
        shown = budgets if len(budgets) <= 9 else budgets[:: -(-len(budgets) // 8)]
        heads = ["strategy", *(f"{100.0 * b:g} %" for b in shown)]
        rows = [
            [p, *(_with_error(found[p][b]["median"], found[p][b]["standard_error"]) for b in shown)]
            for p in policies
        ]
        kind = "Click-weighted" if metric == "click" else "Offer-level"
        out.append(
            Table(
                f"{kind} freshness of {pages} offers by crawls per offer and day: median ± standard error "
                "over sets of offers",
                heads,
                rows,
            )
        )
    return out


def _picture(name: str, figure: han.Figure) -> Picture:
    pages = max(figure.summary["pages"])
    if name == "han-figure-5":
        return Picture(name, figure.title, _arms(figure, pages))
    change = name in ("han-figure-4", "han-figure-6")
    panels = []
    for metric in _metrics(name):
        series = []
        for policy in dict.fromkeys(figure.summary["policy"]):
            found = _rows(figure, metric, pages, policy)
            y = np.array([row["change_percent" if change else "median"] for row in found.values()])
            if np.isnan(y).all():
                continue
            error = None if change else np.array([row["standard_error"] for row in found.values()])
            error = None if error is None or np.isnan(error).any() else error
            series.append(Series(policy, np.array(list(found)), y, error))
        y_name = f"{metric} freshness" + (", change against LambdaCrawl, %" if change else "")
        panels.append(
            Panel(
                f"{metric} freshness",
                "crawls per offer and day",
                y_name,
                series,
                log_x=name == "han-figure-4",
                level=0.0 if change else None,
            )
        )
    return Picture(name, figure.title, panels)


def _arms(figure: han.Figure, pages: int) -> list[Panel]:
    s = {key: np.asarray(values) for key, values in figure.series.items()}
    panels = []
    for policy in dict.fromkeys(s["policy"].tolist()):
        for budget in np.unique(s["budget_per_day"]):
            mine = (s["policy"] == policy) & (s["budget_per_day"] == budget) & (s["pages"] == pages)
            arms = {
                str(arm): s["probability"][mine & (s["arm"] == arm)]
                for arm in dict.fromkeys(s["arm"][mine].tolist())
            }
            steps = s["step"][mine & (s["arm"] == next(iter(arms)))]
            panels.append(plots.arm_probabilities(f"{policy}, {100.0 * budget:g} % a day", steps, arms))
    return panels


def _figure(name: str) -> Figure:
    kind, number = name.split("-")[1:]
    return Figure(
        name,
        han.TITLES[name],
        _PAPER.format(f"{kind.capitalize()} {number}"),
        _SETTING,
        (han.DEFAULT_PAGES,),
        han.DEFAULT_REPETITIONS,
        None,
        partial(tasks, name),
        han.run,
        partial(make, name),
        _MOST_PAGES,
    )


FIGURES: Final = tuple(_figure(name) for name in han.NAMES)
