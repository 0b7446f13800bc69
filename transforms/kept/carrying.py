"""Reading what the previous night left: its state, its slots and its manifest."""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, fields
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from policies.clocks.pooled import HoursOfAll
from policies.judging.calibration import Tally
from policies.judging.recalibration import Track
from policies.numerics.typing_ import FloatArray
from policies.on_request.pairs import KeptPairs
from transforms.batches import schemas
from transforms.files.filesystems import FileSystems
from transforms.files.sinks import read_json
from transforms.kept import statistics
from transforms.kept.errors import StateError
from transforms.kept.old_states import OF_TODAY, of_last_version
from transforms.shards.sharding import Layout

ROWS_PER_BATCH = 1 << 18


class PreviousFile(NamedTuple):
    """A file of the previous night: the kind of its rows, its path, and its SHA-256 where that is known."""

    folder: str
    path: str
    sha256: str | None = None


AGAIN = "or run that night again (in a store, once its manifest.json is removed)"


@dataclass(frozen=True)
class Previous:
    """The previous night, as far as it is there.

    Attributes
    ----------
    files : tuple of PreviousFile
    manifest : dict or None
    """

    files: tuple[PreviousFile, ...] = ()
    manifest: dict[str, Any] | None = None

    @property
    def carry(self) -> Carry:
        """What that night owes to shards."""
        carry = (self.manifest or {}).get("carry")
        if not carry:
            return Carry()
        giants = {int(h, 16): tuple(owed) for h, owed in carry.get("giants", {}).items()}
        return Carry(tuple(carry["shards"]), carry["total"], giants)

    @property
    def multiplier(self) -> float | None:
        """What one more crawl gained that night, requests; None where nothing says it."""
        return (self.manifest or {}).get("multiplier")

    @property
    def as_of_us(self) -> int | None:
        """That night's instant, UTC microseconds; None where nothing says it."""
        at: int | None = (self.manifest or {}).get("options", {}).get("as_of_us")
        return at

    @property
    def clock_factors(self) -> FloatArray | None:
        """What that night corrected its forecasts by; None where nothing says it."""
        track = (self.manifest or {}).get("recalibration")
        return Track.from_json(track).factors() if track else None

    @property
    def hours_of_all(self) -> HoursOfAll:
        """At which hours pages of small hosts change, by that night."""
        found = (self.manifest or {}).get("hours_of_all")
        return HoursOfAll.from_json(found) if found else HoursOfAll()

    @property
    def has_lastmods(self) -> bool:
        """Whether that night carried what sitemaps claimed."""
        return any(folder == "state/lastmods" for folder, *_ in self.files)

    @property
    def pages_known(self) -> int:
        """Pages that night knew; 0 where nothing says it."""
        return int((self.manifest or {}).get("counters", {}).get("pages_known", 0))

    @property
    def num_shards(self) -> int | None:
        """Files of each kind; None if there are none, or kinds differ."""
        shards = {_numbers(path)[1] for _, path, *_ in self.files}
        return shards.pop() if len(shards) == 1 else None

    @property
    def layout(self) -> Layout | None:
        """Where that night put its pages; None if there was no night, or nothing says it."""
        shards = self.num_shards
        if shards is None or self.manifest is None:
            return None
        return Layout(shards, Layout.parts_from_json(self.manifest.get("split_hosts", {})))


def _match(folder: str) -> list[tuple[str, int]]:
    """Paths and bytes of the files of a folder."""
    found = FileSystems.match(FileSystems.join(folder, "shard-*-of-*.parquet"))
    return sorted((m.path, m.size) for m in found)


def _read_manifest(path: str) -> dict[str, Any] | None:
    try:
        manifest = read_json(path)
    except ValueError as e:
        raise StateError(f"{path}: damaged: {e}. Restore it, {AGAIN}") from None
    if manifest is not None and not (isinstance(manifest, dict) and {"files", "carry"} <= manifest.keys()):
        raise StateError(f"{path}: not the manifest of a night. Restore it, {AGAIN}")
    for name, fine in _values(manifest or {}):
        if not fine:
            raise StateError(f"{path}: damaged: {name} is not what a night writes. Restore it, {AGAIN}")
    return manifest


def _values(manifest: dict[str, Any]) -> Iterator[tuple[str, bool]]:
    """What a later night reads of a manifest, and whether each is of its kind."""
    yield (
        "files",
        _all(manifest.get("files", []), _is_file),
    )
    carry = manifest.get("carry") or {"shards": [], "total": 0}
    yield "carry", isinstance(carry, dict)
    yield "carry.shards", _all(carry.get("shards"), _is_number)
    yield "carry.total", _is_number(carry.get("total"))
    yield (
        "carry.giants",
        _by_hash(carry.get("giants", {}), lambda owed: bool(owed) and _all(owed, _is_number)),
    )
    yield "split_hosts", _by_hash(manifest.get("split_hosts", {}), lambda n: isinstance(n, int) and n >= 1)
    yield (
        "large_hosts",
        _all(
            manifest.get("large_hosts", []),
            lambda h: isinstance(h, dict) and _is_hash(h.get("host_hash")) and _is_number(h.get("pages")),
        ),
    )
    counters = manifest.get("counters", None if "large_hosts" in manifest else {})
    yield "counters", isinstance(counters, dict) and _all(list(counters.values()), _is_number)
    options = manifest.get("options", {})
    yield "options", isinstance(options, dict)
    yield "options.as_of_us", isinstance(options.get("as_of_us", 0), int)
    yield "options.as_of", "as_of_us" not in options or isinstance(options.get("as_of"), str)
    yield "options.horizon_hours", _is_number(options.get("horizon_hours", 24))
    multiplier = manifest.get("multiplier")
    yield "multiplier", multiplier is None or _is_number(multiplier)
    judged = manifest.get("judged", {})
    yield "judged", isinstance(judged, dict)
    yield "judged.nights", _all(judged.get("nights", []), _is_tally)
    yield "recalibration", _is(Track.from_json, manifest.get("recalibration", {}))
    hours = manifest.get("hours_of_all")
    yield "on_request", _is(_request_share, manifest.get("on_request") or {})
    yield "hours_of_all", hours is None or _is(HoursOfAll.from_json, hours)


def _all(values: Any, fine: Callable[[Any], bool]) -> bool:
    return isinstance(values, list) and all(map(fine, values))


def _by_hash(values: Any, fine: Callable[[Any], bool]) -> bool:
    return isinstance(values, dict) and all(_is_hash(h) and fine(value) for h, value in values.items())


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and math.isfinite(value)


def _is_file(value: Any) -> bool:
    if not isinstance(value, dict) or not isinstance(value.get("sha256", ""), str):
        return False
    return isinstance(value.get("path"), str) and isinstance(value.get("bytes"), int)


def _is_hash(value: Any) -> bool:
    return isinstance(value, str) and re.fullmatch("[0-9a-f]{1,16}", value) is not None


def _is(read: Callable[[Any], Any], values: Any) -> bool:
    try:
        read(values)
    except (ValueError, TypeError, KeyError, AttributeError):
        return False
    return True


def _request_share(found: Any) -> None:
    for name in ("share", "budget_per_day", "price_factor"):
        if not (_is_number(value := found.get(name, 0.0)) and value >= 0.0):
            raise ValueError(f"{name} is {value!r}: expected a number from 0 on")
    for pairs in found.get("pairs", {}).values():
        KeptPairs.from_json(pairs)


def _is_tally(night: Any) -> bool:
    """Whether it is an entry of `judged.nights`."""
    if not isinstance(night, dict) or not all(_is_number(night.get(name)) for name in ("as_of_us", "days")):
        return False
    return all(
        _is_number(night.get(f.name))
        if not isinstance(f.default, tuple)
        else _all(night.get(f.name), _is_number) and len(night[f.name]) == len(f.default)
        for f in fields(Tally)
    )


def _checked(
    state: str, name: str, paths: list[tuple[str, int]], manifest: dict[str, Any] | None
) -> Iterator[PreviousFile]:
    """The files of a folder, which must hold one for every shard, as that night wrote them."""
    written = {}
    if manifest is not None:
        written = {f["path"]: f for f in manifest["files"] if f["path"].rpartition("/")[0] == name}
    total = len(written) or (_numbers(paths[0][0])[1] if paths else 0)
    if len(paths) != total:
        raise StateError(
            f"--state={state}: {len(paths)} of {total} files of {name}/ are there; copy the rest, or run "
            "that night again"
        )
    for path, size in paths:
        found = written.get(f"{name}/{FileSystems.split(path)[1]}", {})
        if manifest is not None and size != found.get("bytes"):
            raise StateError(
                f"--state={state}: {path} has {size} bytes, the manifest of that night says "
                f"{found.get('bytes') or 'nothing'} of it. Restore the file, {AGAIN}"
            )
        yield PreviousFile(name, path, found.get("sha256"))


def _refuse_part(state: str) -> None:
    """Raise `StateError` if a folder is another of a night's than its state: pages/, or slots/pages."""
    root, part = state.rstrip("/"), ""
    for _ in range(2):
        root, name = FileSystems.split(root)
        part = f"{name}/{part}"
        if not name or part == "state/":
            return
        try:
            manifest = read_json(FileSystems.join(root, "manifest.json"))
        except ValueError:  # of whatever else lies there
            continue
        files = manifest.get("files") if isinstance(manifest, dict) else None
        if isinstance(files, list) and any(_is_file(f) and f["path"].startswith(part) for f in files):
            raise StateError(
                f"--state={state}: that is {part} of the night in {root}, not its state: give "
                f"--state={FileSystems.join(root, 'state')}"
            )


def find_previous(state: str | None, as_of_us: int, expected: dict[str, Any]) -> Previous:
    """Look at the folder that `--state` names, and at those beside it.

    Parameters
    ----------
    state : str or None
        A night's `state/` folder, or the folder it lies in.
    as_of_us : int
        Tonight, UTC microseconds.
    expected : dict
        Options that the state depends on, which must be those of the night that wrote it.

    Raises
    ------
    StateError
        No state there, shards missing or damaged, a night that was not finished, a later night, or other
        half-lives.
    """
    if not state:
        return Previous()
    if not _match(state) and _match(FileSystems.join(state, "state")):
        state = FileSystems.join(state, "state")
    _refuse_part(state)
    root = FileSystems.split(state.rstrip("/"))[0]
    manifest = _read_manifest(FileSystems.join(root, "manifest.json"))
    files: list[PreviousFile] = []
    for name in statistics.carried_folders():
        folder = state.rstrip("/") + name.removeprefix("state") if name.startswith("state") else ""
        paths = _match(folder or FileSystems.join(root, *name.split("/")))
        if name == "state" and not paths:
            raise StateError(
                f"--state={state}: no shard-*.parquet there; give the state/ folder of a finished night, "
                "or leave the option out on the first night"
            )
        files += _checked(state, name, paths, manifest)
    if manifest is None and FileSystems.exists(FileSystems.join(root, "slots")):
        raise StateError(
            f"--state={state}: slots/ is beside it, but no manifest.json: that night was not finished. Run "
            "it again, or give the state of the last night that was"
        )
    if manifest is not None:
        options = manifest.get("options", {})
        if options.get("as_of_us", as_of_us) > as_of_us:
            raise StateError(
                f"--state={state} is of {options['as_of']}, later than --as_of: give the state of the night "
                "before"
            )
        for name, value in expected.items():
            if name in options and options[name] != value:
                raise StateError(
                    f"--{name}={value}: the state in {state} was written with {options[name]}; its sums "
                    "cannot be read with another value. Keep the old one, or start without --state"
                )
    return Previous(tuple(files), manifest)


def _numbers(path: str) -> tuple[int, int]:
    number, of = path.rsplit("shard-", 1)[1].split(".")[0].split("-of-")
    return int(number), int(of)


def shard_of_file(path: str) -> int:
    """The shard whose rows a file of the previous night holds."""
    return _numbers(path)[0]


def read_previous_file(element: PreviousFile | tuple[str, str]) -> Iterator[pa.RecordBatch]:
    """The batches of one file of `Previous.files`."""
    folder, path, sha256 = PreviousFile(*element)
    schema, may_lack = statistics.carried_folders()[folder], statistics.may_lack()
    with FileSystems.open(path) as source:
        data = source.read()
    # Footers and what no page checksum covers, too; of what a night costs it is not to be seen.
    if sha256 is not None and hashlib.sha256(data).hexdigest() != sha256:
        raise StateError(
            f"{path}: damaged: its SHA-256 is not the one in the manifest of that night. Restore the file, "
            f"{AGAIN}"
        )
    try:
        file = pq.ParquetFile(pa.BufferReader(data))
        if folder == "state/signals" and "in_unchanged" in file.schema_arrow.names:
            rows = file.read().combine_chunks()
            for batch in rows.to_batches():
                schemas.check(batch, schemas.STATE_SIGNALS_BEFORE.remove_metadata(), path)
                yield of_last_version(batch)
            return
        for batch in file.iter_batches(ROWS_PER_BATCH):
            if folder in OF_TODAY:
                batch = OF_TODAY[folder](batch)
            batch = batch.drop_columns([n for n in schemas.READ_NO_MORE if n in batch.schema.names])
            for field in schema:
                if field.name in may_lack and field.name not in batch.schema.names:
                    batch = batch.append_column(field, pa.nulls(batch.num_rows, field.type))
            # By name: other versions have them in another order.
            if set(schema.names) == set(batch.schema.names):
                batch = batch.select(schema.names)
            schemas.check(batch, schema.remove_metadata(), path)
            yield batch.replace_schema_metadata(schema.metadata)
    except (pa.ArrowException, OSError, schemas.SchemaError) as e:
        reason = " ".join(str(e).split())
        raise StateError(f"{path}: cannot be read: {reason}. Restore the file, {AGAIN}") from None


@dataclass(frozen=True)
class Carry:
    """What earlier nights owe to shards: slots given short so far, and the fraction of a slot in total.

    `giants` has, by the hash of a giant host or of a group of hosts, what is owed to it and then to each of
    its parts.
    """

    shards: tuple[float, ...] = ()
    total: float = 0.0
    giants: Mapping[int, tuple[float, ...]] = field(default_factory=dict)
