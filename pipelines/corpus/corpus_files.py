"""Tables of a made-up corpus as files: one file a day or one in all, Parquet, Avro, JSON Lines or CSV."""

import gzip
import json
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any, BinaryIO

import fastavro
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet as pq

FORMATS = ("parquet", "avro", "jsonl", "csv")
Rows = pa.Table
_SYNC_MARKER = b"recrawl-made-up!"  # Avro's is random by default, which would change the bytes of every run


def iso_text(times: pa.ChunkedArray) -> pa.ChunkedArray:
    """UTC times as ISO 8601 text with milliseconds."""
    return pc.strftime(times.cast(pa.timestamp("ms", tz="UTC")), format="%Y-%m-%dT%H:%M:%SZ")


def as_text_columns(rows: Rows) -> Rows:
    """The same rows with times and dates as ISO 8601 text."""
    for i, field in enumerate(rows.schema):
        if pa.types.is_timestamp(field.type):
            rows = rows.set_column(i, field.name, iso_text(rows.column(i)))
        elif pa.types.is_date(field.type):
            rows = rows.set_column(i, field.name, rows.column(i).cast(pa.string()))
    return rows


def json_lines(rows: Rows) -> bytes:
    """One JSON object a line; nulls are left out."""
    rows = as_text_columns(rows)
    parts: list[Any] = []
    for i, field in enumerate(rows.schema):  # nothing in a corpus needs escaping
        value = rows.column(i).cast(pa.string())
        comma, quote = ("" if i == 0 else ","), '"' if pa.types.is_string(field.type) else ""
        key = f"{comma}{json.dumps(field.name)}:{quote}"
        text = pc.binary_join_element_wise(pa.scalar(key), value, pa.scalar(quote), "")
        parts.append(pc.fill_null(text, ""))
    lines = pc.binary_join_element_wise(pa.scalar("{"), *parts, pa.scalar("}\n"), "").combine_chunks()
    lines = lines if isinstance(lines, pa.Array) else lines.chunk(0)
    begin, end = np.frombuffer(lines.buffers()[1], np.int32)[[lines.offset, lines.offset + len(lines)]]
    return bytes(lines.buffers()[2][begin:end])


class TableFile:
    """One file of rows that arrive in pieces. The schema is that of the first piece."""

    def __init__(self, path: Path, file_format: str) -> None:
        self.path = path
        self.format = file_format
        self.rows = 0
        self._stream: BinaryIO | None = None
        self._raw: BinaryIO | None = None
        self._writer: Any = None

    def write(self, rows: Rows) -> None:
        """Append `rows`; a piece is a row group in Parquet and a block in Avro."""
        if self.format == "parquet":
            if self._writer is None:
                self._writer = pq.ParquetWriter(
                    self.path,
                    rows.schema,
                    compression="zstd",
                    compression_level=1,
                    use_dictionary=_repetitive(rows),
                )
            self._writer.write_table(rows, row_group_size=max(rows.num_rows, 1))
        else:
            if self._stream is None:
                self._raw = self._stream = self.path.open("wb")
                if self.path.suffix == ".gz":  # no name and no time in the header: the same bytes every run
                    self._stream = gzip.GzipFile("", "wb", compresslevel=6, fileobj=self._raw, mtime=0)
            if self.format == "csv":
                options = pa.csv.WriteOptions(include_header=self.rows == 0, quoting_style="needed")
                pa.csv.write_csv(as_text_columns(rows), self._stream, options)
            elif self.format == "jsonl":
                self._stream.write(json_lines(rows))
            else:
                self._write_avro(rows)
        self.rows += rows.num_rows

    def _write_avro(self, rows: Rows) -> None:
        if self._writer is None:
            schema = fastavro.parse_schema(_avro_schema(rows.schema))
            self._writer = fastavro.write.Writer(
                self._stream, schema, codec="deflate", sync_interval=1 << 18, sync_marker=_SYNC_MARKER
            )
        for record in rows.to_pylist():
            self._writer.write(record)
        self._writer.flush()

    def close(self) -> None:
        """Finish the file."""
        if self._writer is not None and self.format == "parquet":
            self._writer.close()
        for stream in {id(s): s for s in (self._stream, self._raw) if s is not None}.values():
            stream.close()


def _repetitive(rows: Rows) -> list[str]:
    """Columns that a dictionary makes smaller: never addresses, digests or times, which hardly recur."""
    return [f.name for f in rows.schema if f.name in ("status", "source", "section", "category", "day")]


def _avro_schema(schema: pa.Schema) -> dict[str, Any]:
    kinds: dict[Any, Any] = {
        pa.string(): "string",
        pa.float64(): "double",
        pa.date32(): _logical("int", "date"),
    }
    fields = []
    for field in schema:
        if pa.types.is_timestamp(field.type):
            kind = _logical("long", "timestamp-micros")
        elif pa.types.is_integer(field.type):
            kind = "long"
        else:
            kind = kinds[field.type]
        fields.append({"name": field.name, "type": ["null", kind] if field.nullable else kind})
    return {"type": "record", "name": "row", "fields": fields}


def _logical(kind: str, logical: str) -> dict[str, str]:
    return {"type": kind, "logicalType": logical}


class DailyFiles:
    """Rows sorted into one file a day: `FOLDER/2026-06-01.parquet`, or numbered parts of a day.

    Rows wait until `group_rows` of their day are there, so that the files do not depend on the pieces in
    which rows arrive. Memory: up to `group_rows` rows for every day. Files open: one for every day.
    """

    def __init__(
        self,
        folder: Path,
        file_format: str,
        suffix: str,
        first_day: int,
        group_rows: int,
        rows_per_file: int | None,
        finish: Callable[[Rows], Rows],
    ) -> None:
        self.folder = folder
        self.format = file_format
        self.suffix = suffix
        self.first_day = first_day
        self.rows_per_file = rows_per_file
        self.group_rows = min(group_rows, rows_per_file or group_rows)
        self.finish = finish
        self.rows = 0
        self._waiting: dict[int, list[Rows]] = {}
        self._count: dict[int, int] = {}
        self._open: dict[int, TableFile] = {}
        self._parts: dict[int, int] = {}
        folder.mkdir(parents=True, exist_ok=True)

    def add(self, day: np.ndarray, pick: Callable[[np.ndarray], Rows]) -> None:
        """Take one row for each element of `day` (days since the first); `pick` makes the rows at positions.

        `pick` copies: a view would keep all rows in memory until the slowest day has written its share.
        """
        order = np.argsort(day.astype(np.uint16), kind="stable")
        cuts = [0, *(np.flatnonzero(np.diff(day[order])) + 1), len(day)]
        for begin, end in pairwise(cuts):
            if begin < end:
                self._add_day(int(day[order[begin]]), pick(order[begin:end]))
        self.rows += len(day)

    def _add_day(self, day: int, rows: Rows) -> None:
        waiting = self._waiting.setdefault(day, [])
        waiting.append(rows)
        count = self._count.get(day, 0) + rows.num_rows
        if count >= self.group_rows:
            table = pa.concat_tables(waiting)
            groups = count // self.group_rows
            for i in range(groups):
                self._write(day, table.slice(i * self.group_rows, self.group_rows))
            self._waiting[day] = [table.slice(groups * self.group_rows)]
            count -= groups * self.group_rows
        self._count[day] = count

    def _write(self, day: int, rows: Rows) -> None:
        file = self._open.get(day)
        if file is not None and self.rows_per_file and file.rows + rows.num_rows > self.rows_per_file:
            file.close()
            file = None
        if file is None:
            name = str(np.datetime64(self.first_day + day, "D"))
            if self.rows_per_file:
                self._parts[day] = self._parts.get(day, -1) + 1
                name += f"-part-{self._parts[day]:05d}"
            file = self._open[day] = TableFile(self.folder / f"{name}.{self.suffix}", self.format)
        file.write(self.finish(rows))

    def close(self) -> None:
        """Write what waits and finish all files."""
        for day, waiting in self._waiting.items():
            if self._count[day]:
                self._write(day, pa.concat_tables(waiting))
        for file in self._open.values():
            file.close()
