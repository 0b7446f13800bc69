"""Which rows of a team's logs take part in a replay."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, ClassVar

import apache_beam as beam
import numpy as np
import pyarrow as pa

from transforms.batches.counters import published
from transforms.batches.hashing import stable_hash
from transforms.batches.steps import Given, Step, Ungroup, outputs
from transforms.batches.tally import Counts
from transforms.batches.urls import HostTable
from transforms.files.blocks import Split
from transforms.intake.reading import Input, count_rejected
from transforms.intake.sources import ROWS, plan_files, read_split
from transforms.rows.normalise import REPLAYED

_SHARE_BITS = 32


class ReadLogs(beam.PTransform):
    """Read the logs of a replay.

    Parameters
    ----------
    inputs : list of Input
        Kinds "observations" or "changes", and any of "requests", "signals", "pages".
    share : float
        Only this share of all URLs, by hash.

    Returns
    -------
    dict of PCollection
        `ROWS`: (0, RecordBatch). `COUNTS`: dict of str to int, accepted and rejected rows by kind.
    """

    ROWS, COUNTS = "rows", "counts"

    def __init__(self, inputs: Sequence[Input], share: float = 1.0) -> None:
        super().__init__()
        self._inputs, self._share = list(inputs), share

    def expand(self, pipeline: beam.Pipeline) -> dict[str, beam.PCollection]:
        logs = (
            pipeline
            | "NameLogs" >> Given(self._inputs)
            | "PlanLogs" >> beam.FlatMap(splits).with_output_types(tuple[int, tuple[str, Split]])
            | "SpreadLogs" >> beam.GroupByKey()
            | "TakeLogs" >> beam.ParDo(Ungroup()).with_output_types(tuple[str, Split])
        )
        return outputs(logs, "ReadLogFiles", ReadLog(self._share))


def splits(found: Input) -> Iterator[tuple[int, tuple[str, Split]]]:
    """Parts of an input's files with their kinds, and a key by which they are spread."""
    for split in plan_files(found.patterns, found.kind, found.required, found.how):
        if split.form != "empty":
            yield stable_hash(f"{found.kind}:{split.path}:{split.groups}") >> 1, (found.kind, split)


class ReadLog(Step):
    """Rows of a part of a file, and counts of them. Of all URLs it takes a share, by hash."""

    OUTPUTS: ClassVar = {"rows": tuple[int, pa.RecordBatch], "counts": dict[str, int]}

    def __init__(self, share: float) -> None:
        self._below = round(share * (1 << _SHARE_BITS))

    def setup(self) -> None:
        self._table = HostTable()

    def process(self, element: tuple[str, Split]) -> Iterator[Any]:
        kind, split = element
        counts = Counts()
        of = REPLAYED[kind]
        for tag, batch in read_split(split, of, None, self._table, notes=counts):
            if tag != ROWS:
                count_rejected(counts, kind, batch)
                continue
            counts.add(f"{kind}_accepted", batch.num_rows)
            if self._below < 1 << _SHARE_BITS:
                high = batch.column("url_hash").to_numpy() >> np.uint64(64 - _SHARE_BITS)
                batch = batch.filter(pa.array(high < np.uint64(self._below)))
            if batch.num_rows:
                yield 0, batch
        yield beam.pvalue.TaggedOutput(ReadLogs.COUNTS, published(counts.totals()))
