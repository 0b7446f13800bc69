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
    from pipelines.look.planning import plan as plan

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


def __getattr__(name: str) -> Any:
    if name == "plan":
        from pipelines.look.planning import plan

        return plan
    raise AttributeError(f"module recrawl has no {name}")
