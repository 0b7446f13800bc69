"""Figures 13 and 14 of Busa-Fekete et al.: claims, numbers and pictures of estimated precision and recall."""

from __future__ import annotations

from typing import Final

import numpy as np

from pipelines.experiments.figures.busa_fekete_estimators import MLE, NAIVE, Part
from pipelines.experiments.figures.measured import surely_above, with_error
from pipelines.experiments.figures.records import Claim, Columns, Made, Table
from pipelines.pictures.plots import Panel, Picture, Series
from policies.numerics.typing_ import FloatArray

MOST_PAGES: Final = 2000
_NAMES: Final = ("precision", "recall")
_BINS: Final = 8


def made(name: str, title: str, shown: str, parts: list[Part]) -> Made:
    """A figure of one of the two estimators; results have both."""
    parts = sorted(parts, key=lambda part: (part.task.pages, part.task.repetition))
    largest = [part for part in parts if part.task.pages == parts[-1].task.pages]
    error = {method: np.stack([_error(p, method) for p in largest]) for method in (NAIVE, MLE)}
    rows = [
        [method, which, with_error(_bias(e[:, j]), 5, "+"), with_error(_size(e[:, j]), 5)]
        for method, e in error.items()
        for j, which in enumerate(_NAMES)
    ]
    pages = largest[0].task.pages
    table = Table(
        f"Errors of {pages} pages, mean ± standard error of {len(largest)} repetitions",
        ["estimator", "of", "bias", "mean absolute error"],
        rows,
    )
    claims = _naive(error) if shown == NAIVE else _likelihood(error)
    panels = _panels(largest, shown)
    return Made(
        _columns(parts), claims, [table], [Picture(name, title, panels)], {"pages": _page_rows(parts)}
    )


def _error(part: Part, method: str) -> FloatArray:
    """(2, m) float64; NaN where nothing could be estimated."""
    return part.found[method] - part.truth


def _bias(error: FloatArray) -> FloatArray:
    mean: FloatArray = np.nanmean(error, axis=1)
    return mean


def _size(error: FloatArray) -> FloatArray:
    return _bias(np.abs(error))


def _sure(error: FloatArray) -> float:
    """Bias in standard errors."""
    flat = error[~np.isnan(error)]
    return float(flat.mean() / (flat.std(ddof=1) / np.sqrt(flat.size))) if flat.size > 1 else 0.0


def _naive(error: dict[str, FloatArray]) -> list[Claim]:
    found = error[NAIVE]
    return [
        Claim(
            f"Counted {which} is clearly biased",
            abs(_sure(found[:, j])) > 5.0,
            f"bias {with_error(_bias(found[:, j]), 4, '+')}, {abs(_sure(found[:, j])):.0f} standard errors",
            "clearly biased",
        )
        for j, which in enumerate(_NAMES)
    ]


def _likelihood(error: dict[str, FloatArray]) -> list[Claim]:
    claims = []
    for j, which in enumerate(_NAMES):
        mine, naive = error[MLE][:, j], error[NAIVE][:, j]
        bias, size = _bias(mine), _size(mine)
        claims += [
            Claim(
                f"The likelihood's error of {which} is on the order of 1e-4",
                bool(size.mean() < 1e-3),
                f"mean absolute error {with_error(size, 5)} a page",
                "absolute error on the order of 1e-4",
            ),
            Claim(
                f"Over all pages {which} is unbiased (within two standard errors)",
                not surely_above(bias) and not surely_above(-bias),
                f"bias {with_error(bias, 5, '+')}",
                "no bias in the picture, which is titled bias",
            ),
            Claim(
                f"Its error of {which} is far below that of counting (less than a fifth)",
                bool(size.mean() < 0.2 * _size(naive).mean()),
                f"{size.mean():.5f} against {_size(naive).mean():.5f}",
                "more faithful",
            ),
        ]
    return claims


def _panels(parts: list[Part], shown: str) -> list[Panel]:
    ratio = np.concatenate([part.crawls_per_change for part in parts])
    error = np.concatenate([_error(part, shown) for part in parts], axis=1)
    edges = np.geomspace(0.25, 4.0, _BINS + 1)
    inside = np.clip(np.searchsorted(edges, ratio) - 1, 0, _BINS - 1)
    panels = []
    for j, which in enumerate(_NAMES):
        known = ~np.isnan(error[j])
        used = [b for b in range(_BINS) if np.count_nonzero(known & (inside == b)) > 1]
        groups = [error[j][known & (inside == b)] for b in used]
        middle = np.sqrt(edges[:-1] * edges[1:])[used]
        mean = Series(
            "mean",
            middle,
            np.array([g.mean() for g in groups]),
            np.array([g.std(ddof=1) / np.sqrt(g.size) for g in groups]),
        )
        points = Series("", ratio, error[j], style="points")
        panels.append(
            Panel(which, "crawls per change", f"estimated less true {which}", [points, mean], True, level=0.0)
        )
    return panels


def _columns(parts: list[Part]) -> Columns:
    out: Columns = {
        key: []
        for key in (
            "policy", "pages", "repetition", "accuracy",
            *(f"{which}_{what}" for which in _NAMES for what in ("bias", "absolute_error")),
        )
    }  # fmt: skip
    for pages in sorted({part.task.pages for part in parts}):
        for method in (NAIVE, MLE):
            for part in parts:
                if part.task.pages != pages:
                    continue
                error = _error(part, method)
                size = np.nanmean(np.abs(error), axis=1)
                row = [method, pages, part.task.repetition, float(1.0 - size.mean())]
                for j in range(2):
                    row += [float(np.nanmean(error[j])), float(size[j])]
                for column, value in zip(out.values(), row, strict=True):
                    column.append(value)
    return out


def _page_rows(parts: list[Part]) -> Columns:
    out: Columns = {
        "pages": np.concatenate([np.full(part.task.pages, part.task.pages) for part in parts]),
        "repetition": np.concatenate([np.full(part.task.pages, part.task.repetition) for part in parts]),
        "change_rate": np.concatenate([part.change_rate for part in parts]),
        "crawls_per_change": np.concatenate([part.crawls_per_change for part in parts]),
    }
    for j, which in enumerate(_NAMES):
        out[which] = np.concatenate([part.truth[j] for part in parts])
        for method in (NAIVE, MLE):
            out[f"{which}_{method.lower()}"] = np.concatenate([part.found[method][j] for part in parts])
    return out
