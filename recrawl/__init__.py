"""The door: `recrawl COMMAND`, `python -m recrawl COMMAND`, and what starts its workers.

recrawl's layers are packages of plain names, which other projects use as well: every Airflow repository has a
`pipelines` or a `transforms`. Importing this package makes sure that these names mean recrawl's own, wherever
PYTHONPATH and the working directory lead.
"""

import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pipelines.look.explain import OpenNight
    from pipelines.look.planning import Plan

LAYERS = ("pipelines", "transforms", "policies")
ROOT = str(Path(__file__).resolve().parent.parent)


class _OwnLayers:
    """Finds recrawl's layers beside this package, and nothing else."""

    @staticmethod
    def find_spec(
        name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        return PathFinder.find_spec(name, [ROOT]) if name in LAYERS else None


def _come_first() -> None:
    for name in LAYERS:
        there = sys.modules.get(name)
        file = getattr(there, "__file__", None) or ""
        if there is not None and Path(file).resolve().parent.parent != Path(ROOT):
            raise ImportError(
                f"a module {name} is loaded from {file or 'somewhere else'}, and recrawl has one of that "
                "name: import recrawl before it, or run `recrawl` as a command"
            )
    if _OwnLayers not in sys.meta_path:
        sys.meta_path.insert(0, _OwnLayers)


_come_first()


def open(folder: str) -> "OpenNight":
    """Open a finished night: the output folder of one, or a store, then its newest.

    It has `manifest`; `pages()`, `hosts()` and `schedule()` as Arrow tables, of which `.to_pandas()` makes
    data frames; and `explain(url)` and `explain_host(host)` as dictionaries.

    Raises
    ------
    policies.numerics.errors.RecrawlError
        No finished night is there.
    """
    from pipelines.look.explain import OpenNight

    if "://" in folder:
        from pipelines.command import buckets

        buckets.prepare([folder])
    return OpenNight.open(folder)


def plan(
    table: Any,
    budget_per_day: float,
    *,
    objective: str = "periodic",
    weight: str = "requests_per_day",
    host_max_per_day: float | None = None,
) -> "Plan":
    """Solve in memory for the crawl rates that keep most requests fresh within a budget.

    `table` is an Arrow table, or what `pyarrow.table` takes, with `change_rate_per_day`, `requests_per_day`
    (or the column that `weight` names), and any of `min_rate_per_day`, `max_rate_per_day`; with `url` where
    hosts have a limit. The plan has `pages`, the table with `crawl_rate_per_day`, `expected_freshness` and
    `limit`; `multiplier`, what one more crawl a day would keep fresh; and `expected_freshness` of all.

    Raises
    ------
    ValueError
        A column is missing, or a value is none that a rate can have.
    policies.numerics.errors.InfeasibleError
        Floors above the budget.
    """
    from pipelines.look.planning import plan

    return plan(table, budget_per_day, objective=objective, weight=weight, host_max_per_day=host_max_per_day)
