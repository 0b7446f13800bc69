"""What a figure of a paper is made of: settings, tasks that workers share, and what comes of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from pipelines.pictures.plots import Picture

Columns = dict[str, Any]
"""Columns of equal length by name, arrays or lists."""


@dataclass(frozen=True)
class Claim:
    """A relation that a paper states.

    Attributes
    ----------
    text : str
    holds : bool
    ours, paper : str
        The numbers behind it.
    """

    text: str
    holds: bool
    ours: str
    paper: str


@dataclass(frozen=True)
class Table:
    """Numbers as text, with a heading for each column."""

    title: str
    heads: list[str]
    rows: list[list[str]]


@dataclass(frozen=True)
class Made:
    """A figure made.

    Attributes
    ----------
    columns : dict of columns
        `results.parquet`: policy, pages, repetition, accuracy, and what the figure needs.
    claims : list of Claim
    tables : list of Table
        For the screen and the report.
    pictures : list of Picture
    more : dict of name to columns
        Further files, `NAME.parquet`.
    """

    columns: Columns
    claims: list[Claim]
    tables: list[Table]
    pictures: list[Picture]
    more: dict[str, Columns] = field(default_factory=dict)


@dataclass(frozen=True)
class Figure:
    """A figure or table of a paper.

    Attributes
    ----------
    name : str
        AUTHOR-FIGURE.
    title, paper : str
    setting : str
        Parameters, and conventions that the paper leaves open.
    pages : tuple of int
        Sizes it is made at unless others are asked for.
    repetitions : int
    until : float or None
        Time units that a repetition lasts; None: the figure has no such setting.
    tasks : callable (pages, repetitions, until, seed, at_once) -> list
        Parts that workers share, the largest first; `at_once` is the number of workers. What comes out
        does not depend on it.
    run : callable task -> part
        Importable, so that other processes can run it.
    make : callable list of parts -> Made
    most_pages : int
        Above it a task needs too much memory.
    tasks_of : callable (given pages, repetitions, seed, horizon_hours) -> list, optional
        The same on a given history, for figures that can be made of one.
    """

    name: str
    title: str
    paper: str
    setting: str
    pages: tuple[int, ...]
    repetitions: int
    until: float | None
    tasks: Callable[[Sequence[int], int, float, int, int], list[Any]]
    run: Callable[[Any], Any]
    make: Callable[[list[Any]], Made]
    most_pages: int = 200_000
    tasks_of: Callable[[Any, int, int, int], list[Any]] | None = None
