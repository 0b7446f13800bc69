"""Read a file of links seen to plain rows, with an account of what was left out."""

from dataclasses import dataclass
from pathlib import Path

from transforms.batches.kinds import REPLAYED
from transforms.batches.tally import Counts
from transforms.intake.sources import ROWS, plan_files, read_split


@dataclass
class Read:
    """Rows as (source, target, time of day, ok), rejected ones as (number, reason), others by reason."""

    form: str
    rows: list[tuple[str, str | None, str, bool]]
    rejected: list[tuple[int, str]]
    left_out: dict[str, int]
    partial: set[bool]


def read(path: Path) -> Read:
    """All of one file."""
    (split,) = plan_files(str(path), "links_seen")
    notes, found, rejected = Counts(), [], []
    for tag, batch in read_split(split, REPLAYED["links_seen"], notes=notes):
        (found if tag == ROWS else rejected).extend(batch.to_pylist())
    mark = "links_seen_left_out_"
    return Read(
        split.form,
        [(r["source"], r["target"], f"{r['seen_at']:%H:%M:%S}", r["ok"]) for r in found],
        [(r["row"], r["reason"]) for r in rejected],
        {n.removeprefix(mark): k for n, k in notes.totals().items() if n.startswith(mark)},
        {r["partial"] for r in found},
    )
