"""What the rows of any capture index have in common, whatever it is written in.

A capture becomes an observation. Left out are records that are no visit of a page: name look-ups, metadata,
answers to POST, robots.txt. A revisit record tells of a fetch that brought what was there before: its digest
is compared like any other, and where it has none it counts as "not modified".
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from transforms.batches import columns
from transforms.batches.digests import digests
from transforms.batches.texts import Texts
from transforms.batches.times import from_integers
from transforms.dialects import Source
from transforms.files.blocks import Block, RawBlock
from transforms.rows.normalise import rejected_rows

REPAIR = "repair_cdx00"
REVISIT = "warc/revisit"
OTHER_METHOD = b"__wb_method="
"""In keys of captures of answers to POST and the like."""
# What archives index beside pages; a name with a port (a.test:80) must not pass for one.
NOT_A_PAGE = (
    r"^(?i:dns|filedesc|warcinfo|metadata|urn|whois|ftps?|mailto|data|about|blob|javascript|screenshot"
    r"|gopher|news|nntp|sftp|rtmp|mms|file):"
)
RESUME_KEY = re.compile(
    rb"[^\s%),]{0,300}(?:%29|\)|%2c|,)\S{0,8000}(?:\+|%20)\d{4,17}[^\s+]{0,40}", re.IGNORECASE
)
"""What a CDX server says last where there is more: the key and the time to go on from."""
_RECORDS = pa.array(["text/dns", "application/warc-fields", "alexa/dns", "alexa/dat"])
_COLUMNS = ("url", "at", "mime", "status", "digest")
ROBOTS = b"/robots.txt"
_ROBOTS_URL = r"^(?i:https?)://[^/?#]*/robots\.txt(?:[?#].*)?$"

Mask = NDArray[np.bool_]
Rows = NDArray[np.int64]


@dataclass(frozen=True)
class Captures:
    """Rows of an index, n of each.

    Attributes
    ----------
    row : int or int64 (n,)
        Number of the first row, or of each.
    url, mime, status, digest : pa.Array
        Text; `status` may be integers.
    at : pa.Array
        Text or int64: YYYYMMDD and whatever follows of hhmmssmmm.
    not_get : bool (n,), optional
        Captures of answers to other methods.
    """

    row: int | Rows
    url: pa.Array
    at: pa.Array
    mime: pa.Array | None = None
    status: pa.Array | None = None
    digest: pa.Array | None = None
    not_get: Mask | None = None

    def numbers(self) -> Rows:
        return self.row + np.arange(len(self.url)) if isinstance(self.row, int) else self.row


def joined(pieces: Sequence[Captures]) -> Captures:
    """Pieces of one block, with all columns and numbered rows, in the order of their rows."""
    numbers = np.concatenate([piece.numbers() for piece in pieces])
    dense = numbers[-1] - numbers[0] == len(numbers) - 1
    if len(pieces) == 1:
        return replace(pieces[0], row=int(numbers[0])) if dense else pieces[0]
    order = np.argsort(numbers)
    take = pa.array(order)

    def column(arrays: Sequence[pa.Array]) -> pa.Array:
        if len({array.type for array in arrays}) > 1:
            arrays = [array.cast(pa.string()) for array in arrays]
        return pa.concat_arrays(arrays).take(take)

    not_get = None
    if any(piece.not_get is not None for piece in pieces):
        masks = [np.zeros(len(p.url), np.bool_) if p.not_get is None else p.not_get for p in pieces]
        not_get = np.concatenate(masks)[order]
    columns = {name: column([getattr(piece, name) for piece in pieces]) for name in _COLUMNS}
    return Captures(numbers[order], not_get=not_get, **columns)


def observations(source: Source, rows: Captures) -> Iterator[Block]:
    """The observations among the captures; what is left out is counted, bad times are rejected."""
    n = len(rows.url)
    if not n:
        return
    at, bad = capture_times(rows.at, REPAIR in source.options)
    revisit = np.zeros(n, np.bool_) if rows.mime is None else true(pc.equal(rows.mime, REVISIT))
    left = np.zeros(n, np.bool_)

    def leave_out(mask: Mask | None, reason: str) -> None:
        if mask is not None and mask.any():
            source.leave_out(reason, int(np.count_nonzero(mask & ~left)))
            left[mask] = True

    leave_out(_no_page(rows, revisit), "not_a_page")
    leave_out(robots(rows.url), "robots_txt")
    leave_out(rows.not_get, "not_get")
    if bad is not None:
        bad = bad & ~left
        index = np.flatnonzero(bad)
        if len(index):
            some = pa.array(index)
            shown = zip(_shown(rows.url.take(some)), _shown(rows.at.take(some)), strict=True)
            texts = [f"{url} | time={time}" for url, time in shown]
            yield rejected_rows(source.path, rows.numbers()[index].tolist(), "bad_timestamp", texts)
            left |= bad
    made = {"url": rows.url, "fetched_at": at}
    if rows.status is not None:
        made["status"] = _statuses(rows.status, revisit)
    digest = None if rows.digest is None else canonical_digests(rows.digest)
    if digest is not None:
        made["digest"] = digest
    if revisit.any():
        made["not_modified"] = pa.array(revisit & (True if digest is None else ~_empty_body(digest, revisit)))
    batch = pa.RecordBatch.from_pydict(made)
    if not left.any():
        numbers = rows.row
        yield RawBlock(batch, numbers if isinstance(numbers, int) else lambda: numbers)
        return
    kept = np.flatnonzero(~left)
    if len(kept):
        yield RawBlock(batch.take(pa.array(kept)), lambda: rows.numbers()[kept])


def true(array: pa.Array) -> Mask:
    """Where an array of booleans is true; null counts as false."""
    return np.asarray(pc.fill_null(array, False))


def rows_with(array: pa.Array, mark: bytes) -> Mask | None:
    """Which texts hold a mark, None if none does: one search through all bytes, for most have it nowhere."""
    texts = Texts(columns.plain(array))
    raw = texts.span().tobytes()
    at = raw.find(mark)
    if at < 0:
        return None
    found = []
    while at >= 0:
        found.append(at)
        at = raw.find(mark, at + len(mark))
    begin = np.array(found, np.int64) + texts.start[0]
    rows = np.searchsorted(texts.start, begin, side="right") - 1
    mask = np.zeros(len(array), np.bool_)
    mask[rows[begin + len(mark) <= texts.start[rows] + texts.size[rows]]] = True
    return mask


def robots(url: pa.Array) -> Mask | None:
    """URLs of robots.txt files, None if there are none."""
    suspects = rows_with(url, ROBOTS)
    return None if suspects is None else _subset(columns.plain(url), suspects, _ROBOTS_URL)


def _no_page(rows: Captures, revisit: Mask) -> Mask | None:
    found = _subset(rows.url, ~true(pc.starts_with(rows.url, "http")), NOT_A_PAGE)
    if rows.mime is not None:
        record = true(pc.starts_with(rows.mime, "warc")) & ~revisit
        record |= true(pc.is_in(rows.mime, _RECORDS))
        found = record if found is None else found | record
    return found


def _subset(texts: pa.Array, suspects: Mask, pattern: str) -> Mask | None:
    """Which of the suspects match a pattern."""
    index = np.flatnonzero(suspects)
    if not len(index):
        return None
    mask = np.zeros(len(texts), np.bool_)
    mask[index] = true(pc.match_substring_regex(texts.take(pa.array(index)), pattern))
    return mask


def _shown(array: pa.Array) -> list[str]:
    text = columns.clean(array)[0] if columns.is_text(array.type) else array
    return ["(null)" if value is None else str(value)[:120] for value in text.to_pylist()]


def _empty_body(digest: pa.Array, revisit: Mask) -> Mask:
    """Which revisits have the digest of an empty body, which is no evidence of anything; (n,)."""
    rows = np.flatnonzero(revisit)
    some = digest.take(pa.array(rows))
    said = pc.invert(pc.or_(pc.is_null(some), pc.is_in(some, columns.NOTHING)))
    found = np.zeros(len(digest), np.bool_)
    found[rows] = np.asarray(pc.and_(said, digests(some)[0].is_null()))
    return found


def _statuses(status: pa.Array, revisit: Mask) -> pa.Array:
    """Statuses without the signs that indexes put where there is none; of a revisit only real ones count."""
    text = columns.is_text(status.type)
    none = true(pc.equal(status, "=")) if text else np.zeros(len(status), np.bool_)
    index = np.flatnonzero(revisit)
    if len(index):
        said = status.take(pa.array(index))
        none = none.copy()
        none[index] = ~true(
            pc.match_substring_regex(said if text else said.cast(pa.string()), r"^[1-9]\d\d$")
        )
    if not none.any():
        return status
    return pc.replace_with_mask(status, pa.array(none), pa.scalar(None, status.type))


# --- Times -------------------------------------------------------------------------------------------


def capture_times(at: pa.Array, repair: bool) -> tuple[pa.Array, Mask | None]:
    """Times as written out in digits, to numbers of 14 or 17 digits.

    Shorter ones (8, 10, 12 digits) are the beginning of their day, hour or minute; of 15 to 17 digits the
    last ones are fractions of a second.

    Parameters
    ----------
    at : pa.Array of n texts or int64
    repair : bool
        Whether to take out a "00" that stands before the month or the day, where seconds then are missing.

    Returns
    -------
    pa.Array of int64 (n,)
    bool (n,) or None
        Values that are no such time; whether 14 digits are a real date is not looked at.
    """
    bad: Mask = np.zeros(len(at), np.bool_)
    if columns.is_text(at.type):
        try:
            at = at.cast(pa.int64())
        except (pa.ArrowInvalid, UnicodeDecodeError):
            good = true(pc.match_substring_regex(at, r"^[0-9]{1,18}$"))
            values = np.zeros(len(at), np.int64)
            values[good] = at.take(pa.array(np.flatnonzero(good))).cast(pa.int64()).to_numpy()
            at = pa.array(values)
    number = at.fill_null(0).to_numpy()
    if len(number) and not (number.min() >= 10**13 and number.max() < 10**14):
        number, bad = _padded(number)
    if repair:
        number = _repaired(number)
    return pa.array(number), bad if bad.any() else None


def _padded(number: Rows) -> tuple[Rows, Mask]:
    out = np.zeros_like(number)
    for digits in (8, 10, 12, 14, 15, 16, 17):
        rows = (number >= 10 ** (digits - 1)) & (number < 10**digits)
        out[rows] = number[rows] * 10 ** ((14 if digits < 14 else 17 if digits > 14 else digits) - digits)
    return out, out == 0


def _repaired(number: Rows) -> Rows:
    """Times of 14 digits without a "00" that was put before the month or the day."""
    month, day = number // 10**8 % 100, number // 10**6 % 100
    suspect = (number < 10**14) & ((month == 0) | (day == 0))
    rows = np.flatnonzero(suspect)
    if not len(rows):
        return number
    n, no_month = number[rows], month[rows] == 0
    year, year_month = n // 10**10, n // 10**8
    mended = np.where(no_month, year * 10**10 + n % 10**8 * 100, year_month * 10**8 + n % 10**6 * 100)
    good = from_integers(mended)[1]
    out = number.copy()
    out[rows[good]] = mended[good]
    return out


# --- Digests -----------------------------------------------------------------------------------------

_BASE32 = np.frombuffer(b"ABCDEFGHIJKLMNOPQRSTUVWXYZ234567", np.uint8)
_HEX = np.full(256, 255, np.uint8)
_HEX[np.frombuffer(b"0123456789", np.uint8)] = np.arange(10)
_HEX[np.frombuffer(b"ABCDEF", np.uint8)] = np.arange(10, 16)
_HEX[np.frombuffer(b"abcdef", np.uint8)] = np.arange(10, 16)
_PREFIX = r"^(?i:urn:)?(?i:sha-?1|sha-?256|sha-?512|md5)[:=-]"


def canonical_digests(digest: pa.Array) -> pa.Array:
    """One spelling for all: SHA-1 as base32 in capitals, hexadecimal of other sizes in small letters.

    Indexes of one archive, made by several tools, differ in just that.
    """
    texts = Texts(digest)
    span = texts.span()
    small = len(span) > 0 and bool(span.max() >= 97)
    if not small and not (texts.size >= 40).any():
        return digest
    if (span == 58).any() or (span == 61).any() or (span == 45).any():
        digest = pc.replace_substring_regex(columns.clean(digest)[0], _PREFIX, "")
        texts = Texts(digest)
    out = digest
    hexadecimal = np.flatnonzero(texts.size == 40)
    if len(hexadecimal):
        out = _put(out, hexadecimal, *_to_base32(texts, hexadecimal))
    for size, upper in ((32, True), (64, False), (128, False)):
        rows = np.flatnonzero(texts.size == size)
        if len(rows):
            some = out.take(pa.array(rows))
            same = pc.ascii_upper(some) if upper else pc.ascii_lower(some)
            out = same if len(rows) == len(out) else _put(out, rows, same, np.ones(len(rows), np.bool_))
    return out


def _put(array: pa.Array, rows: Rows, values: pa.Array, good: Mask) -> pa.Array:
    if len(rows) == len(array) and good.all():
        return values
    mask = np.zeros(len(array), np.bool_)
    mask[rows[good]] = True
    return pc.replace_with_mask(array, pa.array(mask), values.filter(pa.array(good)))


def _to_base32(texts: Texts, rows: Rows) -> tuple[pa.Array, Mask]:
    """SHA-1 of 40 hexadecimal digits as 32 of base32, and which rows were such."""
    nibbles = _HEX[texts.data[texts.start[rows][:, None] + np.arange(40)]]
    good = (nibbles < 16).all(axis=1)
    raw = (nibbles[:, ::2] << 4) | (nibbles[:, 1::2] & 15)
    bits = np.unpackbits(raw, axis=1).reshape(len(rows), 32, 5)
    letters = _BASE32[bits @ np.array([16, 8, 4, 2, 1], np.uint8)]
    offsets = np.arange(len(rows) + 1, dtype=np.int32) * 32
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(np.ascontiguousarray(letters))]
    return pa.StringArray.from_buffers(len(rows), buffers[1], buffers[2]), good


# --- Keys --------------------------------------------------------------------------------------------

_SURT = re.compile(r"^(?:[a-z]+://)?\(?([^)/?]*?),?(:\d+)?,?\)(.*)$", re.DOTALL)


def url_of_key(key: str | None) -> str | None:
    """The URL that a key stands for, where an index has no URLs: http, and without what keys leave out."""
    if not key:
        return None
    match = _SURT.match(key)
    if match is None:
        return key if "://" in key else f"http://{key}"
    labels, port, rest = match.groups()
    host = ".".join(reversed(labels.split(",")))
    return f"http://{host}{port or ''}{rest or '/'}"
