"""Figures 3 to 8 and 10 to 14 of Busa-Fekete et al., "A Scalable Crawling Algorithm Utilizing Noisy
Change-Indicating Signals", made again."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Final

import numpy as np

from pipelines.experiments.figures import busa_fekete_estimators as estimators
from pipelines.experiments.figures import busa_fekete_runs as runs
from pipelines.experiments.figures.busa_fekete_claims import CLAIMS, over_time
from pipelines.experiments.figures.estimated import MOST_PAGES, made
from pipelines.experiments.figures.measured import Measured, wilcoxon, with_error
from pipelines.experiments.figures.records import Columns, Figure, Made, Table
from pipelines.pictures import plots
from pipelines.pictures.plots import Panel, Picture

PAPER: Final = (
    "Busa-Fekete et al., A Scalable Crawling Algorithm Utilizing Noisy Change-Indicating Signals, Figure {}"
)
_RATES: Final = (
    "Change and request rates are uniform on [0, 1], R = 100 crawls a time unit, in full t <= 1000"
)
_SIGNALS: Final = f"{_RATES}, recall is Beta(0.25, 0.25)"
_NOISY: Final = f"{_SIGNALS}, false signals come at rates uniform on [0.1, 0.6]"
CONVENTIONS: Final = (
    "At the start every page is fresh and just crawled. A signal at or before the instant of a slot is seen"
    " in it. Accuracy is exact over requests given changes and crawls; the first tenth of the time is not "
    "scored. All policies of a repetition see the same changes and signals."
)
_POINTS: Final = 1000  # of a panel, unless one repetition has more
_SHADES: Final = {
    "busa-fekete-5": (("GREEDY", "recall"), ("GREEDY-CIS", "recall"), ("GREEDY-CIS", "change rate")),
    "busa-fekete-7": (("GREEDY", "recall"), ("GREEDY-CIS", "recall"), ("GREEDY-NCIS", "recall")),
    "busa-fekete-10": (("GREEDY", ""), ("LDS", "")),
}
"""Policies of the panels, and what their colours show."""

_TEXTS: Final[Mapping[int, tuple[str, str]]] = {
    3: ("Discrete policies without signals", f"{_RATES}; no signals."),
    4: ("Signals without false ones", f"{_SIGNALS}, no false signals."),
    5: ("Crawl rates with signals, none of them false", f"{_SIGNALS}, no false signals."),
    6: ("Signals, some of them false", f"{_NOISY}."),
    7: (
        "Crawl rates with false signals",
        f"{_NOISY}. The paper does not say how many pages; ours are 100 and 500.",
    ),
    8: (
        "Corrupted precision and recall of signals",
        "A stand-in for the data set of Kolobov et al. (18.5 million URLs), which is not to be had: change "
        "rates log-normal with median 0.05 and shape 1.5, importance log-normal with shape 2; 5 % of the "
        "pages hold 26.4 % of it and have precision above 0.7 and recall above 0.6 (falling off as Beta(1, "
        "3)), the others 0.7 Beta(1.5, 3.5) and 0.6 Beta(1.5, 1.5). One crawl a time unit for each 20 pages"
        " (5000 for 100,000), t <= 200. Policies are told precision and recall with a share p of uniform "
        "noise.",
    ),
    10: (
        "Crawl rates without signals",
        f"{_RATES}; no signals. Rates are of the whole time, with no warm-up.",
    ),
    11: (
        "Signals that come late",
        f"{_NOISY}. Every signal is late by Poisson(6) slots of 1/R; GREEDY-NCIS-D does not count signals "
        "within 5/R after a crawl. The paper does not give the unit of the delay; 5/R only suits slots.",
    ),
    12: (
        "Bandwidth that changes",
        "Change and request rates are uniform on [0, 1]; R is 100 until t = 133, 150 until 266, then 100, t"
        " <= 400. Accuracy at time t is the mean over the time units that hold the last 1000 crawls.",
    ),
    13: ("Precision and recall from counted intervals", ""),
    14: ("Precision and recall by maximum likelihood", ""),
}
_ESTIMATES: Final = (
    "Precision and recall are uniform on [0.2, 0.95], a page changes every 2 to 20 time units (uniform), "
    "and is crawled at even distances, a quarter to four times as often as it changes (log-uniform), for "
    "100,000 time units. The paper does not say how crawls are spread, nor how these numbers are drawn. "
    "`accuracy` is 1 less the mean absolute error of precision and recall. A page changes some 9,000 times, "
    "so even the share of changes that are signalled, if it were seen, would have a standard error of 0.005."
)


def accuracy_table(m: Measured) -> Table:
    """Mean accuracy by policy and number of pages."""
    extra = list(dict.fromkeys(key for _, more in m.keys for key, _ in more))
    rows = []
    for policy, more in m.keys:
        values = dict(more)
        row = [policy, *(str(values.get(key, "")) for key in extra)]
        rows.append(row + [with_error(m.accuracy(policy, n, **values)) for n in m.pages])
    count = sum(len(part.task.repetitions) for part in m.of(m.pages[0]))
    title = f"Accuracy ± standard error of {count} repetition{'s' if count != 1 else ''}"
    return Table(title, ["policy", *extra, *(f"m = {n}" for n in m.pages)], rows)


def _sampled_table(m: Measured) -> Table:
    """How conventions move the digits."""
    rows = []
    for policy, _ in m.keys:
        for n in m.pages:
            cells = m.cells(policy, n)
            exact, sampled, whole = (
                np.concatenate([getattr(c, name) for c in cells])
                for name in ("accuracy", "sampled", "from_start")
            )
            if np.isnan(sampled).all():
                continue
            rows.append(
                [policy, str(n), with_error(sampled - exact, 5, "+"), with_error(whole - exact, 5, "+")]
            )
    return Table(
        "What conventions change: drawn requests less exact, scored from the start less after the warm-up",
        ["policy", "m", "drawn requests", "from the start"],
        rows,
    )


def _paired_table(m: Measured) -> Table:
    rows = [
        [
            other,
            str(n),
            with_error(m.gain("GREEDY-NCIS", other, n), 5, "+"),
            f"{wilcoxon(m.accuracy('GREEDY-NCIS', n), m.accuracy(other, n)):.2g}",
        ]
        for other, _ in m.keys
        if other != "GREEDY-NCIS"
        for n in m.pages
    ]
    return Table(
        "GREEDY-NCIS less another policy, paired; p of the Wilcoxon signed-rank test",
        ["policy", "m", "difference", "p"],
        rows,
    )


def _picture(m: Measured, name: str, title: str) -> Picture:
    if name == "busa-fekete-8":
        return _corruption(m, name, title)
    return plots.accuracy_against_pages(name, title, m.columns(), "BASELINE")


def _corruption(m: Measured, name: str, title: str) -> Picture:
    n = m.pages[-1]
    series = []
    for policy in dict.fromkeys(policy for policy, _ in m.keys):
        at = np.array([c for p, more in m.keys for _, c in more if p == policy], dtype=np.float64)
        found = [m.accuracy(policy, n, corruption=c) for c in at.tolist()]
        if at.size == 1:  # it makes nothing of signals
            at, found = np.array(runs.CORRUPTIONS), found * len(runs.CORRUPTIONS)
        error = [x.std(ddof=1) / np.sqrt(x.size) if x.size > 1 else 0.0 for x in found]
        series.append(plots.Series(policy, at, np.array([x.mean() for x in found]), np.array(error)))
    return Picture(name, f"{title}, m = {n}", [Panel("", "share of noise p", "accuracy", series)])


def _accuracy(name: str, title: str, parts: list[runs.Part]) -> Made:
    m = Measured(parts)
    tables = [accuracy_table(m)]
    if name == "busa-fekete-6":
        tables.append(_paired_table(m))
    if runs.SETTINGS[name].checks:
        tables.append(_sampled_table(m))
    return Made(m.columns(), CLAIMS[name](m), tables, [_picture(m, name, title)])


def _rates(name: str, title: str, parts: list[runs.Part]) -> Made:
    m = Measured(parts)
    panels = []
    shades = _SHADES[name]
    for n in m.pages:
        first = slice(0, max(_POINTS // n, 1))
        best = m.rate("BASELINE", n)[first].ravel()
        for policy, scale in shades:
            values = {"recall": m.recall, "change rate": m.change_rate}.get(scale)
            colour = None if values is None else values(n)[first].ravel()
            rate = m.rate(policy, n)[first].ravel()
            panels.append(plots.rates_against_optimal(f"{policy}, m = {n}", best, rate, colour, scale))
    picture = Picture(name, title, panels, across=len(shades))
    return Made(m.columns(), CLAIMS[name](m), [accuracy_table(m)], [picture], {"rates": _rate_rows(m)})


def _rate_rows(m: Measured) -> Columns:
    out: dict[str, list[np.ndarray]] = {}
    for n in m.pages:
        best, recall, change = m.rate("BASELINE", n), m.recall(n), m.change_rate(n)
        count = best.shape[0]
        repetitions = np.concatenate([part.task.repetitions for part in m.of(n)])
        for policy, _ in m.keys:
            columns = {
                "policy": np.full(count * n, policy, dtype=object),
                "pages": np.full(count * n, n),
                "repetition": np.repeat(repetitions, n),
                "page": np.tile(np.arange(n), count),
                "optimal_rate": best.ravel(),
                "rate": m.rate(policy, n).ravel(),
                "recall": recall.ravel(),
                "change_rate": change.ravel(),
            }
            for key, values in columns.items():
                out.setdefault(key, []).append(values)
    return {key: np.concatenate(values) for key, values in out.items()}


def _changing(name: str, title: str, parts: list[runs.Part]) -> Made:
    m = Measured(parts)
    panels, rows = [], {"schedule": [], "pages": [], "time": [], "accuracy": [], "standard_error": []}
    for n in m.pages:
        found = over_time(m, n)
        time = np.arange(1.0, next(iter(found.values())).shape[1] + 1.0)
        panels.append(
            plots.accuracy_over_time(
                f"m = {n}", time, {f"R = {key}": values.mean(axis=0) for key, values in found.items()}
            )
        )
        for key, values in found.items():
            error = values.std(axis=0, ddof=1) / np.sqrt(len(values)) if len(values) > 1 else np.nan * time
            rows["schedule"] += [key] * len(time)
            rows["pages"] += [n] * len(time)
            rows["time"] += time.tolist()
            rows["accuracy"] += values.mean(axis=0).tolist()
            rows["standard_error"] += error.tolist()
    columns = m.columns()
    return Made(
        columns, CLAIMS[name](m), [accuracy_table(m)], [Picture(name, title, panels)], {"over_time": rows}
    )


_MAKERS: Final[Mapping[int, Callable[[str, str, list[runs.Part]], Made]]] = {
    3: _accuracy,
    4: _accuracy,
    5: _rates,
    6: _accuracy,
    7: _rates,
    8: _accuracy,
    10: _rates,
    11: _accuracy,
    12: _changing,
}


def _simulated(number: int) -> Figure:
    name = f"busa-fekete-{number}"
    title, setting = _TEXTS[number]
    given = runs.SETTINGS[name]
    return Figure(
        name,
        title,
        PAPER.format(number),
        f"{setting} {CONVENTIONS}" if number != 10 else f"{setting} {CONVENTIONS.split(';')[0]}.",
        given.pages,
        given.repetitions,
        given.until,
        partial(runs.tasks, name),
        runs.run,
        partial(_MAKERS[number], name, title),
    )


def _estimated(number: int, shown: str) -> Figure:
    name = f"busa-fekete-{number}"
    title = _TEXTS[number][0]
    return Figure(
        name,
        title,
        PAPER.format(number),
        _ESTIMATES,
        (100,),
        10,
        estimators.HORIZON,
        estimators.tasks,
        estimators.run,
        partial(made, name, title, shown),
        MOST_PAGES,
    )


FIGURES: Final = (
    *(_simulated(number) for number in _MAKERS),
    _estimated(13, estimators.NAIVE),
    _estimated(14, estimators.MLE),
)
