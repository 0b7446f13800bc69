"""Figures and tables of papers, made again on our simulators.

`names()` lists them, `get(name)` gives one: see `pipelines.experiments.figures.records.Figure`.
"""

from __future__ import annotations

import difflib
import importlib

from pipelines.experiments.figures.records import Figure

_MODULES = ("busa_fekete", "han_2019", "han_on_request", "han_figures", "schulam")


def all_figures() -> dict[str, Figure]:
    """Figures by name, in the order of the papers."""
    return {
        figure.name: figure
        for module in _MODULES
        for figure in importlib.import_module(f"{__name__}.{module}").FIGURES
    }


def names() -> list[str]:
    """Names of all figures."""
    return list(all_figures())


def get(name: str) -> Figure:
    """The figure of that name.

    Raises
    ------
    ValueError
        No such figure; the message has the nearest name.
    """
    found = all_figures()
    if name not in found:
        near = difflib.get_close_matches(name, found, 1)
        hint = f"; did you mean {near[0]}?" if near else ":"
        raise ValueError(f"there is no figure {name!r}{hint} `recrawl reproduce list` names them")
    return found[name]
