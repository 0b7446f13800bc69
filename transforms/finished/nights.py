"""Reading what finished nights left: the manifest, and rows of pages/ and schedule/ in any format."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.json
import pyarrow.parquet as pq

from policies.objectives import objectives
from transforms.batches import schemas
from transforms.files.filesystems import FileSystems, local_path
from transforms.files.sinks import read_json
from transforms.finished.folders import NightError, absent, check_manifest, damaged, shard_of, unreadable
from transforms.kept.statistics import pages_schema, state_schema
from transforms.shards.sharding import Layout

_AVRO_ROWS = 1 << 16
_BLOCK_BYTES = 16 << 20
_STREAMED_BYTES = 1 << 20
_PIECE_BYTES = 1 << 16


@dataclass(frozen=True)
class Night:
    """A finished night.

    Attributes
    ----------
    folder : str
        On any Beam file system.
    manifest : dict
    """

    folder: str
    manifest: dict[str, Any]

    @classmethod
    def open(cls, folder: str) -> Night:
        """Read the manifest; of a store, that of its newest night.

        Raises
        ------
        NightError
            No folder, no manifest, or a damaged one.
        """
        folder = folder.rstrip("/") or "/"
        path = FileSystems.join(folder, "manifest.json")
        try:
            manifest = read_json(path)
        except OSError as e:
            raise NightError(f"{folder}: cannot be read: {e}") from None
        except ValueError as e:
            raise damaged(path, e) from None
        if manifest is None and (latest := read_json(FileSystems.join(folder, "latest.json"))):
            return cls.open(FileSystems.join(folder, *latest["folder"].split("/")))
        if manifest is None:
            raise absent(folder)
        return cls(folder, check_manifest(manifest, path))

    @property
    def options(self) -> dict[str, Any]:
        found: dict[str, Any] = self.manifest["options"]
        return found

    @property
    def num_shards(self) -> int:
        return int(self.options["num_shards"])

    @property
    def layout(self) -> Layout:
        """Where the night's pages lie."""
        return Layout(self.num_shards, Layout.parts_from_json(self.manifest.get("split_hosts", {})))

    @property
    def objective(self) -> objectives.Objective:
        return objectives.get(self.options.get("objective", "periodic"))

    @property
    def weight_by(self) -> str:
        """What pages weighed."""
        return str(self.manifest.get("weight_by", self.options.get("weight_by", "auto")))

    @property
    def price(self) -> float:
        """The multiplier; inf where floors or a budget of 0 left nothing to decide."""
        nothing = self.manifest.get("search", {}).get("status") == "all at floor"
        value = self.manifest["multiplier"]
        if nothing or value is None or self.manifest["budget_per_day"] == 0:
            return math.inf
        return float(value)

    def rows(self, kind: str, shards: Iterable[int]) -> int:
        """Rows that the manifest says some shards have."""
        return sum(f["rows"] for f in self._files(kind, shards))

    def files(self, kind: str) -> list[tuple[int, str, int]]:
        """Shard, path and rows of each file of a kind that has rows, in order of shards."""
        found = self._files(kind, range(self.num_shards))
        return sorted(
            (shard_of(f["path"]), FileSystems.join(self.folder, *f["path"].split("/")), f["rows"])
            for f in found
            if f["rows"]
        )

    def _files(self, kind: str, shards: Iterable[int]) -> Iterator[dict[str, Any]]:
        wanted = set(shards)
        for file in self.manifest["files"]:
            if file["path"].rpartition("/")[0] == kind and shard_of(file["path"]) in wanted:
                yield file

    def read(self, kind: str, shards: Iterable[int], columns: pa.Schema) -> pa.Table:
        """Rows of some shards.

        Parameters
        ----------
        kind : str
            pages or schedule.
        shards : iterable of int
        columns : Schema
            What to read. A column that no file has is left out: an older night may lack it.

        Raises
        ------
        NightError
            A file that the manifest lists is missing or damaged.
        """
        tables = [self._table(file["path"], columns) for file in self._files(kind, shards) if file["rows"]]
        if not tables:
            return columns.empty_table()
        return pa.concat_tables(tables, promote_options="default").combine_chunks()

    def _table(self, name: str, columns: pa.Schema) -> pa.Table:
        path = FileSystems.join(self.folder, *name.split("/"))
        try:
            found = _read(path, columns)
            fields = [f for f in columns if f.name in found.schema.names]
            return pa.table([_as(found.column(f.name), f.type) for f in fields], schema=pa.schema(fields))
        except (OSError, pa.ArrowException, ValueError, EOFError) as e:
            raise unreadable(path, e) from None


def read_table(folder: str, name: str, columns: Sequence[str] | None) -> pa.Table:
    """A file of a night's pages/, hosts/, schedule/, rejected/ or state/, in any format, wherever it is.

    See `Night.read`.

    Raises
    ------
    NightError
        The file is missing or damaged.
    """
    of_kind = {
        "pages": pages_schema(),
        "hosts": schemas.HOSTS_OUT,
        "schedule": schemas.SCHEDULE,
        "rejected": schemas.REJECTED,
        "state": state_schema(),
    }
    schema = of_kind[name.partition("/")[0]].remove_metadata()
    schema = pa.schema(f for f in schema if columns is None or f.name in columns)
    found = Night(folder, {})._table(name, schema)
    for field in schema:
        if field.name not in found.schema.names:
            found = found.append_column(field, pa.nulls(found.num_rows, field.type))
    return found


def stream(path: str, columns: pa.Schema, batch_rows: int) -> Iterator[pa.RecordBatch]:
    """A shard's rows in order, a batch at a time; what is held does not grow with the file.

    Parameters
    ----------
    path : str
    columns : Schema
        What to read, all of which the file must have.
    batch_rows : int
        Of JSON Lines a batch is 1 MiB of text, whatever its rows.

    Raises
    ------
    NightError
        The file is missing or damaged.
    """
    try:
        local = local_path(path)
        with FileSystems.open(path) if local is None else pa.OSFile(local) as source:
            for batch in _batches(path, source, columns, batch_rows):
                typed = [_as(pa.chunked_array([batch.column(f.name)]), f.type) for f in columns]
                yield from pa.table(typed, schema=columns).to_batches()
    except (OSError, pa.ArrowException, ValueError, EOFError, KeyError) as e:
        raise unreadable(path, e) from None


def _batches(path: str, source: Any, columns: pa.Schema, batch_rows: int) -> Iterator[pa.RecordBatch]:
    if path.endswith(".parquet"):
        # A row group is as large as a file: its columns are read a piece at a time.
        file = pq.ParquetFile(source, buffer_size=_PIECE_BYTES, pre_buffer=False)
        yield from file.iter_batches(batch_rows, columns=columns.names, use_threads=False)
    elif path.endswith(".avro"):
        import fastavro

        records = fastavro.reader(source)
        while rows := [[r[n] for n in columns.names] for r in itertools.islice(records, batch_rows)]:
            yield from _columns(rows, columns.names).to_batches()
    else:
        known = pa.schema([_text(f) for f in columns])
        options = pyarrow.json.ParseOptions(explicit_schema=known, unexpected_field_behavior="ignore")
        blocks = pyarrow.json.ReadOptions(use_threads=False, block_size=_STREAMED_BYTES)
        yield from pyarrow.json.open_json(source, blocks, options)


def _read(path: str, columns: pa.Schema) -> pa.Table:
    local = local_path(path)
    # A file of Python's is not read by threads that may still hold parts of it after this returns: one that
    # gives them back while Python shuts down aborts the process, and `export` ends soon after it has read.
    threads = local is not None
    with FileSystems.open(path) if local is None else pa.OSFile(local) as source:
        if path.endswith(".parquet"):
            file = pq.ParquetFile(source)
            wanted = [n for n in columns.names if n in file.schema_arrow.names]
            return file.read(wanted, use_threads=threads)
        if path.endswith(".avro"):
            return _read_avro(source, columns.names)
        return (_read_jsonl if path.endswith(".jsonl") else _read_csv)(source, columns, threads)


def _read_avro(source: Any, names: Sequence[str]) -> pa.Table:
    import fastavro

    records = fastavro.reader(source)
    present = [f["name"] for f in records.writer_schema["fields"] if f["name"] in names]
    batches, rows = [], []
    for record in records:
        rows.append([record[n] for n in present])
        if len(rows) == _AVRO_ROWS:
            batches.append(_columns(rows, present))
            rows = []
    return pa.concat_tables([*batches, _columns(rows, present)], promote_options="permissive")


def _columns(rows: list[list[Any]], names: list[str]) -> pa.Table:
    return pa.table({n: pa.array([row[i] for row in rows]) for i, n in enumerate(names)})


def _text(field: pa.Field) -> pa.Field:
    return field.with_type(pa.string()) if pa.types.is_timestamp(field.type) else field


def _read_jsonl(source: Any, columns: pa.Schema, threads: bool) -> pa.Table:
    known = pa.schema([_text(f) for f in columns])
    found = pyarrow.json.read_json(
        source,
        pyarrow.json.ReadOptions(use_threads=threads, block_size=_BLOCK_BYTES),
        pyarrow.json.ParseOptions(explicit_schema=known, unexpected_field_behavior="ignore"),
    )
    # A column that the file does not have comes as nulls.
    absent = [n for n in found.schema.names if found.column(n).null_count == found.num_rows]
    return found.drop_columns(absent)


def _read_csv(source: Any, columns: pa.Schema, threads: bool) -> pa.Table:
    convert = pyarrow.csv.ConvertOptions(
        column_types={f.name: _text(f).type for f in columns},
        strings_can_be_null=True,
        quoted_strings_can_be_null=False,
    )
    found = pyarrow.csv.read_csv(
        source,
        pyarrow.csv.ReadOptions(use_threads=threads, block_size=_BLOCK_BYTES),
        pyarrow.csv.ParseOptions(newlines_in_values=True),
        convert,
    )
    return found.select([n for n in columns.names if n in found.schema.names])


def _as(column: pa.ChunkedArray, kind: pa.DataType) -> pa.ChunkedArray:
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    if pa.types.is_timestamp(kind) and pa.types.is_string(column.type):
        column = pc.replace_substring_regex(column, r"(\.\d+)?Z$", "")
        return pc.assume_timezone(pc.strptime(column, "%Y-%m-%dT%H:%M:%S", "us"), "UTC")
    return column.cast(kind)


def _some(of: pa.Schema, names: str) -> pa.Schema:
    return pa.schema([of.field(name) for name in names.split()])


_PAGES = pages_schema()
PAGES = _some(
    _PAGES,
    "url host change_rate_per_day n_intervals n_changes crawl_rate_per_day limit weight signal_precision "
    "signal_recall clock clock_speed clock_gain",
)
"""Columns of pages/ that comparing rates takes."""
DETAILS = pa.schema(
    [
        *PAGES,
        *_some(
            _PAGES,
            "request_rate_per_day impression_rate_per_day last_crawl_at expected_freshness "
            "signal_rate_per_day signals_since_crawl volatile soft_404 alternating",
        ),
    ]
)
"""With those that are shown of one page, or stand in where the weight is missing."""
MAY_LACK = frozenset(
    n
    for n in DETAILS.names
    if n.startswith(("signal", "clock")) or n in ("volatile", "soft_404", "alternating")
)
"""Columns that older nights have not: what lacks them follows no signals, and flags no page."""
SCHEDULE = _some(schemas.SCHEDULE, "url host reason")


def pages_columns(night: Night) -> pa.Schema:
    """Columns of pages/ that comparing the rates of a night takes."""
    return pa.schema(f for f in PAGES if night.objective.uses_signals or not f.name.startswith("signal"))
