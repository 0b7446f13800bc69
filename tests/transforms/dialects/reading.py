"""Read a file of a dialect to plain rows, with an account of its lines."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from transforms.batches.tally import Counts
from transforms.files.blocks import How
from transforms.intake.sources import plan_files, read_split
from transforms.rows.normalise import KINDS

PACKED_OR_UTF_16 = (b"\x1f\x8b", b"\xff\xfe", b"\xfe\xff")
"""What no text begins with: such files are unpacked or refused before a dialect sees them."""


def solid(data: bytes) -> bytes:
    """Without NULs at the beginning of lines, which no dialect sees either."""
    return re.sub(rb"(^|\n)\0+", rb"\1", data)


@dataclass
class Read:
    """What a file had: accepted rows, rejected ones, and how many were left out by reason."""

    forms: list[str]
    rows: list[dict[str, Any]]
    rejected: list[dict[str, Any]]
    left_out: dict[str, int]

    @property
    def lines(self) -> int:
        """Rows in all."""
        return len(self.rows) + len(self.rejected) + sum(self.left_out.values())

    @property
    def reasons(self) -> list[tuple[int, str]]:
        return sorted((r["row"], r["reason"]) for r in self.rejected)

    def seen(self, *names: str) -> list[tuple[Any, ...]]:
        return [tuple(row[name] for name in names) for row in self.rows]


def read(path: Path, kind: str = "observations", form: str = "auto", **options: str) -> Read:
    notes, rows, rejected, forms = Counts(), [], [], []
    for split in plan_files(str(path), kind, how=How(form, (), tuple(options.items()))):
        forms.append(split.form)
        for tag, batch in read_split(split, KINDS[kind], notes=notes):
            (rows if tag == "rows" else rejected).extend(batch.to_pylist())
    mark = f"{kind}_left_out_"
    left = {n.removeprefix(mark): k for n, k in notes.totals().items() if n.startswith(mark)}
    return Read(forms, rows, rejected, left)


def write(folder: Path, text: str | bytes, name: str = "dump") -> Path:
    path = folder / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path
