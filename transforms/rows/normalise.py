"""From a file's columns to the columns of `schemas`: every row comes out once, accepted or rejected.

The fast path is a handful of vectorised passes that leave good columns as they are. Bad rows are marked,
then cut out with the reason that was found first; nothing is read twice.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from policies.history.lastmods import BAD
from transforms.batches import columns, schemas, times
from transforms.batches.day_hours import hours_of, read_hours
from transforms.batches.digests import digest_columns
from transforms.batches.errors import InputError, NoColumnError
from transforms.batches.kinds import CHANGES as CHANGES
from transforms.batches.kinds import KINDS as KINDS
from transforms.batches.kinds import REPLAYED as REPLAYED
from transforms.batches.kinds import Kind as Kind
from transforms.batches.sitemap_dates import parse_lastmods
from transforms.batches.tally import counted
from transforms.batches.urls import REASONS, HostTable, locate, stable_hash
from transforms.batches.zones import LocalClock, dates_ahead
from transforms.rows import link_rows
from transforms.rows.host_rows import group_names, listed_host
from transforms.rows.joining import page_urls
from transforms.rows.raw_rows import MAX_NOTED as MAX_NOTED
from transforms.rows.raw_rows import Made, Mask, RawRows, Rows, read, read_time

HASHES = [pa.field("url_hash", pa.uint64()), pa.field("host_hash", pa.uint64())]
SAMPLE_CHARACTERS = 200
NO_SOURCE = "signal"
# Source of rows that name none; of those that say when they were received: pings.
PINGED = "indexnow"
MAX_SOURCE_CHARACTERS = 200


def columns_to_read(
    kind: Kind, schema: pa.Schema, path: str, metadata: Sequence[str] | None = None
) -> list[str]:
    """The columns of a file that this kind uses, checked.

    Parameters
    ----------
    schema : pa.Schema
        What the file has; the type null stands for "any scalar".
    metadata : sequence of str, optional
        For pages: the metadata columns to keep, all scalar ones if None.

    Raises
    ------
    InputError
        For a missing column, one that occurs twice, or one whose type can hold no such value.
    """
    names = Counter(schema.names)
    have = ", ".join(schema.names) or "none"
    missing = [" or ".join(group) for group in kind.required if not any(c in names for c in group)]
    wanted = [c for c in kind.known if c in names]
    if kind.name == "pages":
        own = {*kind.known, *(f.name for f in HASHES)}
        missing += [c for c in metadata or () if c not in names]
        extra = names if metadata is None else metadata
        scalars = {f.name for f in schema if columns.is_scalar(f.type) or times.supported(f.type)}
        wanted += [c for c in extra if c not in own and c in names and (c in scalars or metadata is not None)]
    if missing:
        raise NoColumnError(
            f"{path}: {kind.name} need a column {' and a column '.join(missing)}. The file has: {have}",
            schema.names,
        )
    for name in wanted:
        if names[name] > 1:
            raise InputError(f"{path}: the column {name} occurs {names[name]} times. The file has: {have}")
        of = schema.field(name).type
        if name == kind.key:
            plain = of.value_type if pa.types.is_dictionary(of) else of
            good, expected = columns.is_text(plain) or pa.types.is_null(plain), "text"
        elif name in kind.times:
            good, expected = times.supported(of), "a time, a date, a number or text"
        elif name in kind.known:
            good, expected = columns.is_scalar(of), "a number, a boolean or text"
        else:
            good, expected = columns.is_scalar(of) or times.supported(of), "numbers, times or text"
        if not good:
            raise InputError(f"{path}: the column {name} is {of}, expected {expected}")
    return wanted


@dataclass(frozen=True)
class Normalised:
    """What became of a block: `rows.num_rows + rejected.num_rows` is the rows it had, but for those left out.

    `noted` shows rows of which a part says nothing, and which count all the same. `good` is a mask of the
    block's rows that were accepted, None where all were. `counts` is what else there is to know of it: what
    rejected requests add up to, times that name no zone, those that a clock shows twice or never, and what
    dates of pages say of that clock.
    """

    rows: pa.RecordBatch
    rejected: pa.RecordBatch
    noted: pa.RecordBatch
    good: Mask | None = None
    counts: Mapping[str, int] = field(default_factory=dict)


def normalise(
    kind: Kind,
    raw: pa.RecordBatch,
    source: str,
    row: Rows = 0,
    table: HostTable | None = None,
    hashes: bool = True,
    tracking: str = "",
    timezone: str = "",
    comma: bool = False,
) -> Normalised:
    """Read one block of a file.

    Parameters
    ----------
    raw : pa.RecordBatch of n rows
        Columns by name, as `columns_to_read` named them, in any order.
    source : str
        The file, for rejected rows.
    row : int, int64 (n,) or function
        Number of the first row, of each row, or a function that tells the latter when a row is rejected.
    hashes : bool
        Whether `url_hash` and `host_hash` (for hosts `host_hash`) follow the columns of the schema.
    tracking : str
        Of requests further parameters that are no part of a page, see `transforms.rows.joining`.
    timezone : str
        Of times that name none; UTC if empty.
    comma : bool
        Whether commas may begin fractions, as in tables with semicolons.

    Raises
    ------
    InputError
        For a row of hosts that cannot be read: without it a limit would silently be broken.
    """
    block = RawRows(raw, source, row, tracking=tracking, clock=LocalClock(timezone), comma=comma)
    made, keys = _READERS[kind.name](block, table)
    schema = kind.schema
    extra = [pa.field(n, pa.string()) for n in list(made)[len(schema) :]]
    fields = [*schema, *extra]
    if hashes:
        fields += HASHES if kind.name != "hosts" else HASHES[1:]
        made.update(keys)
    batch = pa.RecordBatch.from_arrays(
        [made[f.name] for f in fields], schema=pa.schema(fields, metadata=schema.metadata)
    )
    noted = _none() if block.noted is None else _rejected(kind, block, block.noted)
    if block.left_out is not None:
        block.reason[block.left_out] = 0
    bad, counts = block.reason != 0, block.clock.counts() | block.counts
    good = ~bad if block.left_out is None else ~(bad | block.left_out)
    if good.all():
        return Normalised(batch, _none(), noted, None, counts)
    if kind.name == "requests":
        counts |= _lost(block, batch, bad)
    rejected = _rejected(kind, block, block.reason) if bad.any() else _none()
    return Normalised(batch.filter(pa.array(good)), rejected, noted, good, counts)


def _lost(block: RawRows, made: pa.RecordBatch, bad: Mask) -> dict[str, int]:
    """About what rejected rows of requests add up to."""
    found = {}
    for name in ("clicks", "impressions"):
        raw = block.column(name)
        read = made.column(name).to_numpy()[bad]
        unread = bad & (made.column(name).to_numpy() == 0)
        lost = int(read.sum()) + (0 if raw is None else columns.digits(raw, unread))
        found[f"lost_{name}"] = round(lost * schemas.COUNT_UNIT)
    return found


def _none() -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist([], schemas.REJECTED)


def rejected_file(source: str, reason: str, sample: str) -> pa.RecordBatch:
    """One rejected row, numbered -1, for a file that could not be read to its end."""
    return rejected_rows(source, [-1], reason, [sample])


def rejected_rows(source: str, row: Sequence[int], reason: str, samples: Sequence[str]) -> pa.RecordBatch:
    """Rejected rows with one reason."""
    n = len(row)
    clipped = [s[:SAMPLE_CHARACTERS].encode("utf-8", "replace").decode() for s in samples]
    return pa.RecordBatch.from_arrays(
        [
            pa.array([source] * n),
            pa.array(row, pa.int64()),
            pa.array([reason] * n),
            pa.array(clipped, pa.string()),
        ],
        schema=schemas.REJECTED,
    )


def _rejected(kind: Kind, block: RawRows, reason: NDArray[np.uint8]) -> pa.RecordBatch:
    rows = np.flatnonzero(reason)
    codes = reason[rows]
    samples: list[pa.Array] = []
    order: list[NDArray[np.intp]] = []
    for code in np.unique(codes).tolist():
        at = np.flatnonzero(codes == code)
        index = pa.array(rows[at])
        name = block.causes[code][1]
        key = _sample(block.column(kind.key), index, 120)
        if name != kind.key:
            value = _sample(block.column(name), index, 40)
            key = pc.binary_join_element_wise(key, value, f" | {name}=")
        samples.append(key)
        order.append(at)
    back = pa.array(np.argsort(np.concatenate(order)))
    names = pa.array([reason for reason, _ in block.causes])
    return pa.RecordBatch.from_arrays(
        [
            pa.array([block.source]).take(pa.array(np.zeros(len(rows), np.int64))),
            pa.array(block.numbers()[rows]),
            names.take(pa.array(codes)),
            pa.concat_arrays(samples).take(back),
        ],
        schema=schemas.REJECTED,
    )


def _sample(array: pa.Array | None, index: pa.Array, size: int) -> pa.Array:
    """The first bytes of some values as clean text; nulls are shown as such."""
    if array is None:
        return pa.array(["(no column)"] * len(index))
    some = columns.plain(array.take(index))
    if not columns.is_text(some.type):
        try:
            some = some.cast(pa.string())
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
            return pa.array([f"({some.type})"] * len(index))
    cut = pc.binary_slice(some.cast(pa.large_binary()), 0, size).cast(pa.binary())
    return pc.fill_null(columns.clean(cut)[0].cast(pa.string()), "(null)")


def _url(block: RawRows, table: HostTable | None, join: bool = False) -> tuple[pa.Array, dict[str, pa.Array]]:
    raw = block.column("url")
    assert raw is not None
    url, broken = columns.text(raw)
    if not join and (with_fragment := pc.sum(pc.match_substring(url, "#")).as_py()):
        block.counts["fragments"] = with_fragment
    found = locate(page_urls(url, block.tracking) if join else url, table)
    if found.reason.any():
        for code, reason in enumerate(REASONS):
            if code:
                block.reject(found.reason == code, reason, "url")
    block.reject(broken, "bad_utf8", "url")
    return found.urls, {"url_hash": pa.array(found.url_hash), "host_hash": pa.array(found.host_hash)}


def _observations(block: RawRows, table: HostTable | None) -> Made:
    url, keys = _url(block, table)
    at, dated = read_time(block, "fetched_at"), block.nulls(schemas.TIME)
    if (modified := block.column("last_modified")) is not None:
        # Servers send all sorts of things in this header: a bad one says nothing, the fetch still counts.
        clock = block.clock.uncounted()
        dated = times.parse_times(modified, clock=clock)[0]
        if block.clock.local and not clock.local:
            block.counts |= dates_ahead(dated, at)
    status = read(block, "status", columns.status, pa.int16())
    if ("bad_status", "status") in block.causes:
        block.leave_out(columns.no_fetch(block.column("status")), "never_fetched")
    return {
        "url": url,
        "fetched_at": at,
        "status": status,
        **digest_columns(block.column("digest"), block.nulls(pa.null())),
        "changed": read(block, "changed", columns.flag, pa.bool_()),
        "not_modified": read(block, "not_modified", columns.flag, pa.bool_()),
        "last_modified": dated,
    }, keys


def _requests(block: RawRows, table: HostTable | None) -> Made:
    url, keys = _url(block, table, join=True)
    day, at, said = (block.column(name) for name in ("day", "at", "hour"))
    hour = block.nulls(pa.int8())
    if day is None:
        when = read_time(block, "at")
        assert at is not None
        hour = hours_of(when, at)
    else:
        when, bad = times.parse_times(day, days=True)
        block.reject(bad, "bad_timestamp", "day")
        if at is not None:
            other, bad = times.parse_times(at, clock=block.clock)
            if bad is not None:
                block.reject(bad & np.asarray(when.is_null()), "bad_timestamp", "at")
            when, hour = pc.coalesce(when, other), hours_of(other, at)
        if when.null_count:
            block.reject(np.asarray(when.is_null()), "bad_timestamp", "day")
    days = when.cast(pa.int64()).fill_null(0).to_numpy() // times.DAY_US
    if said is not None:
        # A bad hour takes the hour, never the request.
        hour, bad = read_hours(said)
        block.note(bad, "bad_hour", "hour")
    made = {"url": url, "day": pa.array(days.astype(np.int32)), "hour": hour}
    for name in ("clicks", "impressions"):
        made[name] = pc.fill_null(read(block, name, block.numbers_of(columns.count), pa.int64()), 0)
    return made, keys


def _signals(block: RawRows, table: HostTable | None) -> Made:
    url, keys = _url(block, table)
    pinged = block.column("signalled_at") is None
    when = read_time(block, "received_at" if pinged else "signalled_at")
    source = block.column("source")
    named = block.nulls(pa.string()) if source is None else columns.clean(columns.text(source)[0])[0]
    named = pc.fill_null(named, "")
    blank = pc.equal(pc.utf8_trim_whitespace(named), "")
    named = pc.replace_with_mask(named, blank, PINGED if pinged else NO_SOURCE)
    block.reject(_bad_names(named), "bad_source", "source")
    return {"url": url, "signalled_at": when, "source": named}, keys


def _bad_names(names: pa.Array) -> Mask:
    """Names of sources that no report could show, by their distinct values."""
    encoded = names.dictionary_encode()
    distinct = encoded.dictionary
    bad = np.asarray(pc.greater(pc.utf8_length(distinct), MAX_SOURCE_CHARACTERS))
    bad = bad | np.asarray(pc.match_substring_regex(distinct, r"\p{Cc}"))
    return np.append(bad, False)[encoded.indices.fill_null(len(bad)).to_numpy()]


def _changes(block: RawRows, table: HostTable | None) -> Made:
    url, keys = _url(block, table)
    kind = block.column("kind")
    named = block.nulls(pa.string()) if kind is None else columns.text(kind)[0]
    return {
        "url": url,
        "changed_at": read_time(block, "changed_at"),
        "digest_hash": digest_columns(block.column("digest"), block.nulls(pa.null()))["digest_hash"],
        "first": pc.fill_null(pc.equal(named.cast(pa.string()), "first"), False),
    }, keys


def _refreshes(block: RawRows, table: HostTable | None) -> Made:
    url, keys = _url(block, table)
    return {"url": url, "due_at": read_time(block, "due_at")}, keys


def _sitemaps(block: RawRows, table: HostTable | None) -> Made:
    url, keys = _url(block, table)
    texts = block.column("lastmod")
    begin_us, precision = parse_lastmods(block.nulls(pa.string()) if texts is None else texts)
    # A bad date takes the signal, never the page.
    block.note(precision == BAD, "bad_lastmod", "lastmod")
    dated = pa.array(begin_us, mask=precision <= BAD).cast(schemas.TIME)
    return {"url": url, "lastmod": dated, "precision": pa.array(precision)}, keys


def _pages(block: RawRows, table: HostTable | None) -> Made:
    url, keys = _url(block, table)
    low, high = "min_rate_per_day", "max_rate_per_day"
    made = {
        "url": url,
        "importance": read(block, "importance", block.numbers_of(columns.amount), pa.float64()),
        low: read(block, low, block.numbers_of(columns.amount), pa.float64(), "bad_rate"),
        high: read(block, high, block.numbers_of(columns.amount), pa.float64(), "bad_rate"),
        "published_at": block.nulls(schemas.TIME),
    }
    if (published := block.column("published_at")) is not None:
        # A bad date takes the age, never the page.
        made["published_at"], bad = times.parse_times(published, clock=block.clock)
        if bad is not None:
            block.note(bad, "bad_published_at", "published_at")
    over = pc.fill_null(pc.greater(made[low], made[high]), False)
    block.reject(np.asarray(over), "floor_above_cap", low)
    for name in block.raw.schema.names:
        if name not in made:
            array = block.column(name)
            assert array is not None
            made[name] = columns.clean(columns.text(array)[0])[0].cast(pa.string())
    return made, keys


def _hosts(block: RawRows, table: HostTable | None) -> Made:
    names = columns.clean(block.raw.column("host"))[0].to_pylist()
    hosts = [listed_host(n) if n else None for n in names]
    block.reject(np.array([h is None for h in hosts], np.bool_), "host", "host")
    made = {"host": pa.array(hosts, pa.string())}
    for name in ("max_per_day", "min_gap_seconds"):
        made[name] = read(block, name, block.numbers_of(columns.amount), pa.float64(), name)
    made["group"] = group_names(made["host"], block.column("group"))
    bad = np.flatnonzero(block.reason)
    if len(bad):
        i = int(bad[0])
        name = block.causes[int(block.reason[i])][1]
        value = block.raw.column(name)[i].as_py()
        expected = "a host name" if name == "host" else "a number of at least 0, or nothing"
        if isinstance(value, str) and name != "host" and re.search(r"\d[.,]\d", value):
            # As a limit it may be a thousand times another.
            expected += ", with a point before a fraction, if any, and nothing between thousands"
        raise InputError(
            f"{block.source}: row {block.numbers()[i]} ({counted(len(bad), 'such row')}): {name} is "
            f"{value!r}, expected {expected}. Limits of hosts must all be readable: correct or remove the row"
        )
    return made, {"host_hash": pa.array([stable_hash(h) or 1 for h in hosts], pa.uint64())}


_READERS = {
    "observations": _observations,
    "requests": _requests,
    "signals": _signals,
    "changes": _changes,
    "refreshes": _refreshes,
    "sitemaps": _sitemaps,
    "pages": _pages,
    "hosts": _hosts,
    "links": link_rows.links,
    "snapshots": link_rows.snapshots,
    "links_seen": link_rows.links_seen,
    "sources": link_rows.sources,
}
