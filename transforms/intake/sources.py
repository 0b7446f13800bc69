"""Read a job's inputs: any mix of Parquet, Avro, JSON Lines, CSV and sitemaps to batches of one schema."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from transforms.batches.errors import InputError
from transforms.batches.tally import Counts
from transforms.batches.urls import HostTable
from transforms.dialects.indexnow import NO_URLS, without_keys
from transforms.files.blocks import BATCH_BYTES, BATCH_ROWS, How, Split
from transforms.files.filesystems import InputFile
from transforms.files.inputs import match_files
from transforms.intake.formats import plan, read
from transforms.rows.normalise import KINDS, REPLAYED, Kind, normalise, rejected_rows

ROWS, REJECTED = "rows", "rejected"
PLAN_THREADS = 16
# Files of others, of which one may be of no use: that host has no limit of its own then.
ROBOTS = "robots"
# Rejected rows of a sitemap that are shown, for each reason: its writer decides how many there are.
MAX_SHOWN = 100
# Reasons that are shown in rejected/ although no row is lost.
NOTED = ("bad_hour", "bad_lastmod", "bad_published_at", NO_URLS, "nul_bytes", "repeated_header")


def read_split(
    split: Split,
    kind: Kind,
    metadata: Sequence[str] | None = None,
    table: HostTable | None = None,
    notes: Counts | None = None,
) -> Iterator[tuple[str, pa.RecordBatch]]:
    """Read a split to normalised batches: pairs of "rows" or "rejected" and a batch. No Beam needed.

    `notes` gets what a sitemap says beyond its rows, see `sitemaps.read_sitemap`, and how many rejected rows
    of it are not shown: after the first `MAX_SHOWN` of a reason one row, numbered -1, stands for the others.

    Raises
    ------
    InputError
        If the file lacks a column, or a part of a file of hosts cannot be read.
    """
    shown = _Shown() if kind.name == "sitemaps" else None
    for block in read(split, kind, metadata, notes):
        if isinstance(block, pa.RecordBatch):
            row, reason, sample = (block.column(c)[0].as_py() for c in ("row", "reason", "sample"))
            if kind.name == "hosts" and split.form != ROBOTS and reason not in NOTED:
                where = f"row {row}: " if row >= 0 else ""
                raise InputError(
                    f"{split.path}: {where}{reason}: {sample}. Limits of hosts must all be "
                    "readable: mend the file"
                )
            if shown is not None:
                block = shown.first(block)
            if block.num_rows:
                yield REJECTED, without_keys(block) if kind.name == "signals" else block
            continue
        how = split.how
        timezone = how.timezone if split.names_no_zone else ""
        said = (how.tracking, timezone, split.comma)
        done = normalise(kind, block.batch, split.path, block.row, table, True, *said)
        for name, n in done.counts.items() if notes is not None else ():
            if name == "local_times" and not split.names_no_zone:
                continue  # these are of UTC by the definition of their format
            notes.add(f"{kind.name}_{name}", n)
        rejected = done.rejected if shown is None else shown.first(done.rejected)
        for other in (rejected, done.noted):
            if other.num_rows:
                yield REJECTED, without_keys(other) if kind.name == "signals" else other
        for part in slices(done.rows):
            yield ROWS, part
    for reason, n in {} if shown is None else shown.more().items():
        yield REJECTED, rejected_rows(split.path, [-1], reason, [f"and {n} more"])
        if notes is not None:  # that row is counted as any other
            notes.add(f"{kind.name}_rejected", n - 1)
            notes.add(f"{kind.name}_rejected_{reason}", n - 1)


class _Shown:
    """Which rejected rows of a file are shown."""

    def __init__(self) -> None:
        self._seen: dict[str, int] = {}

    def first(self, rejected: pa.RecordBatch) -> pa.RecordBatch:
        """Those of a batch that are among the first `MAX_SHOWN` of their reason."""
        reasons = rejected.column("reason")
        keep = np.zeros(len(reasons), np.bool_)
        for reason in reasons.unique().to_pylist():
            rows = np.flatnonzero(np.asarray(pc.equal(reasons, reason)))
            seen = self._seen.get(reason, 0)
            keep[rows[: max(0, MAX_SHOWN - seen)]] = True
            self._seen[reason] = seen + len(rows)
        return rejected if keep.all() else rejected.filter(pa.array(keep))

    def more(self) -> dict[str, int]:
        """How many were left out, by reason."""
        return {reason: n - MAX_SHOWN for reason, n in self._seen.items() if n > MAX_SHOWN}


def slices(
    batch: pa.RecordBatch, rows: int = BATCH_ROWS, size: int = BATCH_BYTES
) -> Iterator[pa.RecordBatch]:
    """A batch in parts of at most `rows` rows and about `size` bytes; they share its buffers."""
    if not batch.num_rows:
        return
    parts = max(-(-batch.num_rows // rows), min(batch.num_rows, -(-batch.nbytes // size)))
    step = -(-batch.num_rows // parts)
    for start in range(0, batch.num_rows, step):
        yield batch.slice(start, step)


def plan_files(patterns: str, kind: str, required: bool = True, how: How | None = None) -> list[Split]:
    """All splits of an input, in the order of their names.

    Raises
    ------
    InputError
        If a required pattern matches nothing, or a file is of no known format.
    """
    files = match_files(patterns, kind, required)
    with ThreadPoolExecutor(PLAN_THREADS) as pool:
        return [split for splits in pool.map(lambda file: plan(file, kind, how), files) for split in splits]


def check_inputs(
    kind: str,
    patterns: str,
    required: bool = True,
    how: How | None = None,
) -> None:
    """Look at the columns of the first three files (of hosts at all rows), to stop a job before it starts.

    Raises
    ------
    InputError
        As reading them does while the job runs.
    """
    found = match_files(patterns, kind, required)
    if kind == "hosts":
        # A short list, of which every row must be readable.
        for split in (s for file in found for s in plan(file, kind, how)):
            for _ in read_split(split, KINDS[kind]):
                pass
    for file in found[:3]:
        for split in plan(file, kind, how)[:1]:
            next(read(split, REPLAYED[kind]), None)
    check_names(kind, found, how)


def check_names(kind: str, files: Sequence[InputFile], how: How | None) -> None:
    """Look whether columns that are given by name are there, each in one of the files.

    Raises
    ------
    InputError
    """
    for ours, theirs in how.columns if how is not None else ():
        of = REPLAYED[kind]
        asked = replace(of, required=(*of.required, (ours,)))
        error: InputError | None = None
        for split in (s for file in files for s in plan(file, kind, how)[:1] if s.form != "empty"):
            try:
                next(read(split, asked), None)
                break
            except InputError as e:
                error = error or e
        else:
            if error is not None:
                raise InputError(f"--{kind}_columns {ours}={theirs}: no file has it. {error}")
