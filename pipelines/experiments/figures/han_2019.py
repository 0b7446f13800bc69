"""Tables 2 and 3 of Han et al. 2019 for `recrawl reproduce`: models of change on seen and unseen pages."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final

import numpy as np

from pipelines.experiments.figures import han_2019_runs as models
from pipelines.experiments.figures.han_2019_runs import FULL, PARTIAL, SEEN, UNSEEN, Cell
from pipelines.experiments.figures.measured import with_error
from pipelines.experiments.figures.records import Claim, Columns, Figure, Made, Table
from pipelines.pictures.plots import Panel, Picture, Series
from policies.numerics.typing_ import FloatArray

BEST_WITHIN: Final = 1.5
"""Nats a 1,000 rows that the default may lose to the best of all models."""

FAIR: Final = (0.9, 1.1)
_PAPER: Final = "Han et al. 2019, Predictive Crawling for Commercial Web Content, Table {}"
_TITLE: Final = "AUC of predicted changes on {} pages"
_SETTING: Final = (
    "Will a page change within K hours? Rows are pages at times K apart, at an hour of their own. Training, "
    "validation and test follow each other with K between; a quarter of the pages is never trained on. Full "
    "observability: an hourly crawler; partial: a crawler with uneven intervals, half a day to eight days on "
    "average by page. Labels are of the true history, features from before the time of the row, figures of a "
    "category without the page itself. Without --changes, price offers are drawn with the statistics of the "
    "paper, whose data is private: 123 days, K = 6. A frequency counts a day at the mean rate beside its "
    "own, so that none predicts 0. The linear model and the network are fitted once, as in the paper; "
    "`recrawl` each week on the last 60 days, as a nightly job would, and once beside it. Models that need a "
    "library that is not installed are left out (pip install '.[keras]', '.[boosting]')."
)


class _Measured:
    """Scores of all cells by model, observability and pages, a number a dataset."""

    def __init__(self, cells: list[Cell]) -> None:
        order = {name: at for at, name in enumerate(models.MODELS)}
        self.cells = sorted(cells, key=lambda c: (c.dataset, order[c.model], c.observability, c.pages))
        self.models = [m for m in models.MODELS if any(c.model == m for c in cells)]

    def of(self, model: str, how: str, pages: str, what: str = "auc") -> FloatArray:
        """(datasets,) float64."""
        key = (model, how, pages)
        return np.array(
            [getattr(c.scores, what) for c in self.cells if (c.model, c.observability, c.pages) == key]
        )

    def best(self, how: str, pages: str, among: tuple[str, ...], what: str = "auc") -> str:
        """Name of the model with the highest mean AUC, or the lowest mean loss."""
        sign = 1.0 if what == "auc" else -1.0
        there = [m for m in among if m in self.models]
        return max(there, key=lambda m: sign * float(self.of(m, how, pages, what).mean()))


def _above(m: _Measured, one: str, other: str, how: str, pages: str, text: str, paper: str) -> Claim:
    gap = m.of(one, how, pages) - m.of(other, how, pages)
    ours = f"{with_error(m.of(one, how, pages), 3)} and {with_error(m.of(other, how, pages), 3)} ({other})"
    return Claim(f"{text} ({how})", bool(gap.mean() > 0.0), ours, paper)


def _of_paper(m: _Measured, pages: str) -> list[Claim]:
    """What section 5 states of the table."""
    seen = pages == SEEN
    claims = []
    for how in (PARTIAL, FULL):
        window = [m.of(models.frequency(models.PAGE, w), how, pages).mean() for w in models.WINDOWS]
        group = [m.of(models.frequency(models.GROUP, w), how, pages).mean() for w in models.WINDOWS]
        claims.append(
            Claim(
                f"Frequencies of pages beat those of categories in every window ({how})",
                bool(np.greater(window, group).all()),
                " ".join(f"{a:.3f}>{b:.3f}" for a, b in zip(window, group, strict=True)),
                ".642 to .791 against .560 to .577" if seen else ".642 to .788 against .554 to .572",
            )
        )
    day = models.frequency(models.PAGE, models.WINDOWS[0])
    gain = m.of(day, FULL, pages) / m.of(day, PARTIAL, pages) - 1.0
    claims.append(
        Claim(
            "Full observability helps the frequency of one day by a tenth or more",
            bool(gain.mean() >= 0.1),
            f"{with_error(100.0 * gain, 1, '+')} %",
            "12.3 %" if seen else ".642 to .720",
        )
    )
    if models.DNN_BOTH not in m.models:
        return claims
    old = (*models.BASELINES, models.DNN_METADATA)
    for how, both in ((PARTIAL, ".875" if seen else ".854"), (FULL, ".883" if seen else ".862")):
        best = m.best(how, pages, old)
        text = "The network of metadata and frequencies beats all other models of the paper"
        claims.append(_above(m, models.DNN_BOTH, best, how, pages, text, f"{both}, the best"))
    best = m.best(PARTIAL, pages, models.BASELINES)
    text = "The network of metadata alone beats the best baseline"
    paper = ".842 against .791" if seen else ".803 against .797"
    claims.append(_above(m, models.DNN_METADATA, best, PARTIAL, pages, text, paper))
    loss = m.of(models.DNN_BOTH, FULL, pages) - m.of(models.DNN_BOTH, PARTIAL, pages)
    other = m.of(models.COMBINED, FULL, pages) - m.of(models.COMBINED, PARTIAL, pages)
    claims.append(
        Claim(
            "Partial observability costs the network less than the linear model",
            bool(loss.mean() < other.mean()),
            f"{with_error(loss, 3)} against {with_error(other, 3)}",
            ".008 against .056" if seen else ".008 against .052",
        )
    )
    if not seen:
        drop = m.of(models.DNN_METADATA, PARTIAL, SEEN) - m.of(models.DNN_METADATA, PARTIAL, UNSEEN)
        text, ours = "The network of metadata alone loses on unseen pages", with_error(drop, 3)
        claims.append(Claim(text, bool(drop.mean() > 0.0), ours, ".842 to .803"))
    return claims


def _of_ours(m: _Measured, pages: str) -> list[Claim]:
    """What we ask of the default."""
    claims = []
    for how in (PARTIAL, FULL):
        best = m.best(how, pages, tuple(n for n in m.models if not n.startswith(models.OURS)), "log_loss")
        gap = 1000.0 * (m.of(models.OURS, how, pages, "log_loss") - m.of(best, how, pages, "log_loss"))
        bias = m.of(models.OURS, how, pages, "bias")
        claims += [
            Claim(
                f"recrawl is within {BEST_WITHIN:g} nats per 1,000 rows of the best other model ({how})",
                bool(gap.mean() <= BEST_WITHIN),
                f"{with_error(gap, 2, '+')} against {best}",
                "not in the paper",
            ),
            Claim(
                f"recrawl's mean probability is within {FAIR[0]:g} and {FAIR[1]:g} of the frequency ({how})",
                bool(FAIR[0] <= bias.mean() <= FAIR[1]),
                with_error(bias, 2),
                "not in the paper",
            ),
        ]
    return claims


def _table(m: _Measured, pages: str) -> Table:
    heads = ["model"]
    heads += [f"{what}, {how}" for what in ("AUC (sd)", "log-loss", "bias") for how in (PARTIAL, FULL)]
    rows = []
    for model in m.models:
        cells = [
            f"{m.of(model, how, pages).mean():.3f} ({m.of(model, how, pages, 'auc_sd').mean():.3f})"
            for how in (PARTIAL, FULL)
        ]
        cells += [f"{1000.0 * m.of(model, how, pages, 'log_loss').mean():.1f}" for how in (PARTIAL, FULL)]
        cells += [f"{m.of(model, how, pages, 'bias').mean():.2f}" for how in (PARTIAL, FULL)]
        rows.append([model, *cells])
    count = len({c.dataset for c in m.cells})
    of = "one dataset" if count == 1 else f"{count} datasets"
    return Table(f"Mean of {of}; log-loss in nats per 1,000 rows", heads, rows)


def _picture(m: _Measured, name: str, pages: str) -> Picture:
    shown = (models.OURS, models.ESTIMATOR, models.DNN_BOTH, models.COMBINED)
    panels = []
    for how in (PARTIAL, FULL):
        series = []
        for model in (s for s in shown if s in m.models):
            mine = [c for c in m.cells if (c.model, c.observability, c.pages) == (model, how, pages)]
            shortest = min(len(c.predicted) for c in mine)
            predicted, found = (
                np.mean([getattr(c, what)[:shortest] for c in mine], axis=0)
                for what in ("predicted", "found")
            )
            series.append(Series(model, np.log10(predicted), np.log10(np.maximum(found, 1e-5))))
        panels.append(
            Panel(f"{how} observability", "log10 of mean probability", "log10 of share changed", series)
        )
    return Picture(name, f"Calibration by tenths, {pages} pages", panels)


def _columns(m: _Measured) -> Columns:
    columns: Columns = {
        name: [getattr(c, name) for c in m.cells] for name in ("dataset", "model", "observability", "pages")
    }
    columns |= {
        name: [getattr(c.scores, name) for c in m.cells] for name in ("auc", "auc_sd", "log_loss", "bias")
    }
    return columns


def _calibration(m: _Measured) -> Columns:
    sizes = [len(c.predicted) for c in m.cells]
    names = ("dataset", "model", "observability", "pages")
    columns: Columns = {n: np.repeat([getattr(c, n) for c in m.cells], sizes) for n in names}
    columns["tenth"] = np.concatenate([np.arange(1, n + 1) for n in sizes])
    columns["probability"] = np.concatenate([c.predicted for c in m.cells])
    columns["changed_share"] = np.concatenate([c.found for c in m.cells])
    return columns


def _make(name: str, pages: str, parts: list[list[Cell]]) -> Made:
    m = _Measured([cell for part in parts for cell in part])
    claims = _of_paper(m, pages) + _of_ours(m, pages)
    more = {"calibration": _calibration(m)}
    return Made(_columns(m), claims, [_table(m, pages)], [_picture(m, name, pages)], more)


def _figure(number: int, pages: str) -> Figure:
    name = f"han-2019-table-{number}"
    make: Callable[[list[list[Cell]]], Made] = partial(_make, name, pages)
    return Figure(
        name,
        _TITLE.format(pages),
        _PAPER.format(number),
        _SETTING,
        (1500,),
        3,
        None,
        models.runs,
        models.run,
        make,
        20_000,
        models.runs_of,
    )


FIGURES: Final = (_figure(2, SEEN), _figure(3, UNSEEN))
