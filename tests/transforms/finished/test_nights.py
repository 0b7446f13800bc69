"""Reading finished nights."""

import io
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest

from transforms.finished import nights
from transforms.finished.nights import Night
from transforms.kept.statistics import pages_schema

READS = 60


@pytest.mark.parametrize("form", ["parquet", "csv"])
def test_a_remote_file_that_is_read_is_held_by_nobody(form: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A thread that gives Python's bytes back while the interpreter ends aborts the process."""
    columns = pa.schema([pages_schema().field(n) for n in ("url", "change_rate_per_day", "n_changes")])
    number = np.arange(60_000)
    table = pa.table([pa.array(map(str, number)), number / 7.0, number], names=columns.names).cast(columns)
    buffer = io.BytesIO()
    (pq.write_table if form == "parquet" else pyarrow.csv.write_csv)(table, buffer)
    held = set()

    class Owned(bytes):
        def __del__(self) -> None:
            held.discard(id(self))

    class Source(io.BytesIO):
        def __init__(self, data: bytes) -> None:
            super().__init__(data)
            held.add(id(self))

        def __del__(self) -> None:
            held.discard(id(self))

        def read(self, size: int | None = -1) -> Any:
            part = Owned(super().read(size))
            held.add(id(part))
            return part

    monkeypatch.setattr(nights, "local_path", lambda _: None)
    monkeypatch.setattr(nights.FileSystems, "open", lambda _: Source(buffer.getvalue()))
    file = {"path": f"pages/shard-00000-of-00001.{form}", "rows": len(table)}
    night = Night("night", {"options": {"num_shards": 1}, "files": [file]})
    for _ in range(READS):
        assert night.read("pages", [0], columns).equals(table)
        assert not held
