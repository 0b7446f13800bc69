"""What the discovery job of the night before left: found, checked, and read by the shard that needs it."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from policies.discovery.regressed import Bandit
from transforms.batches import schemas
from transforms.discovery import tables
from transforms.files.filesystems import FileSystems
from transforms.files.replacing import MANIFEST
from transforms.files.sinks import read_json
from transforms.kept.errors import StateError

JOB, BANDIT = "discover", "shares_tried"


class PreviousFile(NamedTuple):
    """A file of the state: the folder it is of, its path, SHA-256 and shard."""

    folder: str
    path: str
    sha256: str
    shard: int

    def reference(self) -> pa.RecordBatch:
        """A batch that only names it; the shard reads it."""
        kind = "previous_target" if self.folder in tables.OF_TARGETS else "previous_source"
        columns = {name: pa.array([getattr(self, name)]) for name in ("folder", "path", "sha256")}
        schema = pa.schema([(n, pa.string()) for n in columns], metadata={"recrawl": kind})
        return pa.RecordBatch.from_arrays(list(columns.values()), schema=schema)


@dataclass(frozen=True)
class Previous:
    """The night before, as far as there was one.

    Attributes
    ----------
    files : tuple of PreviousFile
    manifest : dict
        Empty where there is none.
    """

    files: tuple[PreviousFile, ...] = ()
    manifest: dict[str, Any] | None = None

    @property
    def num_shards(self) -> int | None:
        found: int | None = (self.manifest or {}).get("options", {}).get("num_shards")
        return found

    @property
    def links_known(self) -> int:
        """Links at the last visits of all sources."""
        return sum(f["rows"] for f in (self.manifest or {}).get("files", ()) if "state/shown" in f["path"])

    @property
    def carry(self) -> float:
        """A part of a refresh that the budget of that night had left."""
        return float((self.manifest or {}).get("carry", 0.0))

    @property
    def bandit(self) -> Bandit:
        """Of Pham's crawler."""
        found = (self.manifest or {}).get(BANDIT)
        return Bandit(tuple(found["pulls"]), tuple(found["reward"]), found["arm"]) if found else Bandit()


def find_previous(state: str | None, as_of_us: int) -> Previous:
    """Look at the output folder of the night before, or its `state/`.

    Raises
    ------
    StateError
    """
    if not state:
        return Previous()
    root = state.rstrip("/")
    try:
        manifest = read_json(FileSystems.join(root, MANIFEST))
        if manifest is None and FileSystems.split(root)[1] == "state":
            root = FileSystems.split(root)[0]
            manifest = read_json(FileSystems.join(root, MANIFEST))
    except ValueError as error:
        raise StateError(f"--state={state}: manifest.json is damaged: {error}. Restore it") from None
    if not isinstance(manifest, dict) or manifest.get("job") != JOB:
        what = "no manifest.json" if manifest is None else "the manifest.json there is of another job"
        raise StateError(
            f"--state={state}: {what}; give the --output of a finished `recrawl discover`, or leave the "
            "option out on the first night"
        )
    if manifest["options"]["as_of_us"] > as_of_us:
        raise StateError(
            f"--state={state} is of {manifest['options']['as_of']}, later than --as_of: give the state of "
            "the night before"
        )
    files = []
    for file in manifest["files"]:
        folder = file["path"].rsplit("/", 1)[0]
        if folder in tables.STATE:
            path = FileSystems.join(root, *file["path"].split("/"))
            if not FileSystems.exists(path):
                raise StateError(f"--state={state}: {file['path']} is missing. Restore the file")
            shard = int(file["path"].rsplit("shard-", 1)[1].split("-")[0])
            files.append(PreviousFile(folder, path, file["sha256"], shard))
    return Previous(tuple(files), manifest)


def read_references(batches: Iterable[pa.RecordBatch]) -> dict[str, pa.RecordBatch]:
    """The files that batches name, by folder; empty ones where none does.

    Raises
    ------
    StateError
        A file is damaged.
    """
    found = {name: pa.RecordBatch.from_pylist([], schema) for name, schema in tables.STATE.items()}
    for batch in batches:
        if not schemas.kind_of(batch).startswith("previous_"):
            continue
        for row in batch.to_pylist():
            found[row["folder"]] = _read(row["folder"], row["path"], row["sha256"])
    return found


def _read(folder: str, path: str, sha256: str) -> pa.RecordBatch:
    with FileSystems.open(path) as source:
        data = source.read()
    if hashlib.sha256(data).hexdigest() != sha256:
        raise StateError(f"{path}: damaged: its SHA-256 is not the one in the manifest. Restore the file")
    schema = tables.STATE[folder]
    try:
        table = pq.ParquetFile(pa.BufferReader(data)).read(use_threads=False)
        # Columns that an older version did not write are null.
        for field in schema:
            if field.name not in table.schema.names:
                table = table.append_column(field, pa.nulls(table.num_rows, field.type))
        return tables.gathered(table.select(schema.names).cast(schema.remove_metadata()).to_batches(), schema)
    except (pa.ArrowException, OSError) as error:
        raise StateError(
            f"{path}: cannot be read: {' '.join(str(error).split())}. Restore the file"
        ) from None
