"""What the summary says of how an input was read, where a person may have meant something else."""

from __future__ import annotations

from typing import Any

from transforms.batches.tally import counted
from transforms.batches.zones import said_of_local_times
from transforms.files.delimiters import DELIMITERS


def said_of_input(kind: str, counters: dict[str, int], options: dict[str, Any]) -> list[str]:
    """Tables whose columns are not set apart by commas, URLs with fragments, and times that name no zone."""
    tables = ((name, counters.get(f"{kind}_tables_by_{name}", 0)) for name in DELIMITERS.values())
    said = [f"{counted(n, 'file')} with columns set apart by {name}" for name, n in tables if n]
    if n := counters.get(f"{kind}_fragments", 0):
        said.append(f"{counted(n, 'URL')} with a fragment (#...), which no server sees: pages of their own")
    if n := counters.get(f"{kind}_local_times", 0):
        zone = options.get(f"{kind}_timezone") or ""
        said.append(said_of_local_times(kind, n, zone, options.get(f"{kind}_columns")))
    return said
