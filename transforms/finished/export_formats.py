"""A schedule in the words of crawlers: columns in, lines of text out, a batch at a time.

What each crawler takes is from its source or documents; docs/exports.md says what follows from it.
"""

from __future__ import annotations

import hashlib
import io
import json
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
from numpy.typing import NDArray

TEXT = pa.large_string()
HOUR_US = 3_600_000_000
PART_PAGES = 20_000
"""Pages of a bulk request: some 10 MB, where OpenSearch takes 100."""
NUTCH_DEFAULT_SECONDS = 2_592_000
"""`db.fetch.interval.default` of Nutch: 30 days."""
_MAX_INT32 = 2**31 - 1
_NUTCH_STEPS, _NUTCH_OCTAVES = 256, 64
_HERITRIX_MAX_URL = 2083
_DAY_SECONDS = 86_400.0
# Ends a line or a field for one reader or another.
BLANK, TOO_LONG, FORMULA = "blank_in_url", "url_too_long", "formula_in_cell"
_FORMULA = r"^[=+\-@\t\r]"
_BLANK = r"[\pZ\p{Cc}]"
_IN_JSON = r'["\\\x00-\x1f\x7f]'


@dataclass(frozen=True)
class Wishes:
    """What the options say of a format.

    Attributes
    ----------
    bulk : bool
        Requests for OpenSearch's bulk API in place of documents.
    routing : bool
        Whether the status index is routed by key.
    crawl_id : str
        Of URLFrontier.
    nutch_default_seconds : int
        Nutch's default interval.
    first_hour : int
        Of the schedule, counted from 1970.
    """

    bulk: bool = False
    routing: bool = True
    crawl_id: str = "DEFAULT"
    nutch_default_seconds: int = NUTCH_DEFAULT_SECONDS
    first_hour: int = 0


@dataclass(frozen=True)
class Format:
    """How a schedule is written for one kind of crawler.

    Attributes
    ----------
    name, what : str
        As in `--to`, and for people.
    file : str
        Name of the file; `{hour}` in it makes one for each hour, `{part}` one for every `PART_PAGES`.
    text : function of (table, wishes)
        The bytes of rows.
    first_only : bool
        Whether a page has one entry, for its first crawl: where a second would replace the first.
    lines : bool
        Whether a URL must not have blanks or control characters.
    max_url : int or None
        Bytes of a URL, escaped, above which the crawler drops it.
    header : bytes
        What a file begins with.
    cells : bool
        Whether a spreadsheet may open it: none of its cells may begin as a formula does.
    """

    name: str
    what: str
    file: str
    text: Callable[[pa.Table, Wishes], bytes]
    first_only: bool = False
    lines: bool = False
    max_url: int | None = None
    header: bytes = b""
    cells: bool = False


def refused(table: pa.Table, to: Format) -> dict[str, NDArray[np.bool_]]:
    """Rows that the format cannot hold by the reason, the first one of each row."""
    url = table["url"]
    found = {}
    if to.lines:
        found[BLANK] = np.asarray(pc.match_substring_regex(url, _BLANK))
    if to.max_url is not None:
        bytes_ = np.asarray(pc.binary_length(url), np.int64)
        # A byte that is not ASCII becomes three.
        beyond = np.asarray(pc.count_substring_regex(url.cast(pa.binary()), rb"[^\x00-\x7f]"), np.int64)
        long = bytes_ + 2 * beyond > to.max_url
        found[TOO_LONG] = long & ~found[BLANK] if to.lines else long
    if to.cells:  # of nights before such hosts were none
        texts = (url, table["host"])
        formula, other = (np.asarray(pc.match_substring_regex(t, _FORMULA)) for t in texts)
        found[FORMULA] = formula | other
    return found


def joined(*parts: pa.ChunkedArray | pa.Array | str) -> pa.ChunkedArray:
    """Texts of each row, side by side."""
    texts = [pa.scalar(p, TEXT) if isinstance(p, str) else p.cast(TEXT) for p in parts]
    return pc.binary_join_element_wise(*texts, pa.scalar("", TEXT))


def quoted(texts: pa.ChunkedArray) -> pa.ChunkedArray:
    """Texts as JSON."""
    made = joined('"', texts, '"')
    odd = pc.match_substring_regex(texts, _IN_JSON)
    if not pc.any(odd).as_py():
        return made
    right = [json.dumps(text, ensure_ascii=False) for text in texts.filter(odd).to_pylist()]
    return pc.replace_with_mask(made.combine_chunks(), odd.combine_chunks(), pa.array(right, TEXT))


def numbers(values: pa.ChunkedArray) -> pa.ChunkedArray:
    """Floats as JSON: it has no NaN and no infinity."""
    return pc.fill_null(pc.if_else(pc.is_finite(values), values.cast(TEXT), None), "null")


def _bytes(lines: pa.ChunkedArray) -> bytes:
    whole = joined(lines, "\n").combine_chunks()
    if isinstance(whole, pa.ChunkedArray):
        whole = pa.concat_arrays(whole.chunks)
    start, end = (np.frombuffer(whole.buffers()[1], np.int64)[whole.offset + i] for i in (0, len(whole)))
    return whole.buffers()[2].slice(int(start), int(end - start)).to_pybytes()


def _due_us(table: pa.Table) -> NDArray[np.int64]:
    return table["due_at"].cast(pa.int64()).to_numpy()


def hours(table: pa.Table) -> NDArray[np.int64]:
    """The hour in which each row is due, counted from 1970."""
    return _due_us(table) // HOUR_US


def _rounded_up(values: NDArray[np.int64], unit: int) -> NDArray[np.int64]:
    """In whole units, so that nothing comes too early."""
    return -(-values // unit)


def _iso(table: pa.Table, unit: str = "us") -> pa.ChunkedArray:
    due = _due_us(table)
    if unit == "ms":
        due = _rounded_up(due, 1000)
    return pa.chunked_array([pc.strftime(pa.array(due, pa.timestamp(unit, "UTC")), "%Y-%m-%dT%H:%M:%SZ")])


def _seconds(table: pa.Table) -> pa.ChunkedArray:
    return pa.chunked_array([pa.array(_rounded_up(_due_us(table), 1_000_000)).cast(TEXT)])


def _urls(table: pa.Table, _: Wishes) -> bytes:
    return _bytes(table["url"])


def _heritrix(table: pa.Table, _: Wishes) -> bytes:
    # Three characters are a tag, whose letters do not count in such a file.
    return _bytes(joined("F+ ", table["url"]))


def _csv(table: pa.Table, _: Wishes) -> bytes:
    out = io.BytesIO()
    at = table.schema.get_field_index("due_at")
    table = table.set_column(at, "due_at", _iso(table))
    pyarrow.csv.write_csv(table, out, pyarrow.csv.WriteOptions(include_header=False))
    return out.getvalue()


def _nutch_scores(table: pa.Table, wishes: Wishes) -> NDArray[np.float32]:
    """The day of the schedule, counted from 1970, and a part of 1 that grows with the crawl value.

    Nutch generates by score, whatever it stands for, and a page keeps its score after the fetch: so pages of
    tonight come before those of all earlier nights, and before any that recrawl never chose. Values are told
    apart by their logarithm, in steps of a fourth of a power of two: of a day, single precision has no more.
    """
    value = table["value"].to_numpy()
    with np.errstate(divide="ignore", invalid="ignore"):
        part = np.log2(value) / _NUTCH_OCTAVES + 0.5
    steps = np.floor(np.clip(np.nan_to_num(part), 0.0, 1.0) * _NUTCH_STEPS)
    return (wishes.first_hour // 24 + np.minimum(steps, _NUTCH_STEPS - 1) / _NUTCH_STEPS).astype(np.float32)


def _nutch(table: pa.Table, wishes: Wishes) -> bytes:
    rate = table["crawl_rate_per_day"].to_numpy()
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        seconds = np.clip(np.rint(_DAY_SECONDS / rate), 1, _MAX_INT32)
    known = (rate > 0.0) & np.isfinite(rate)
    whole = np.where(known, seconds, 1).astype(np.int64)
    # What is equal to a default counts as not given where a page that is there is updated.
    whole[whole == wishes.nutch_default_seconds] += 1 if wishes.nutch_default_seconds < _MAX_INT32 else -1
    every = pa.array(whole, mask=~known).cast(TEXT)
    score = pa.array(_nutch_scores(table, wishes)).cast(TEXT)
    lines = pc.binary_join_element_wise(
        table["url"].combine_chunks().cast(TEXT),
        _labelled("nutch.score=", score),
        _labelled("nutch.fetchInterval=", every),
        _labelled("nutch.fetchInterval.fixed=", every),
        pa.scalar("\t", TEXT),
        null_handling="skip",
    )
    return _bytes(pa.chunked_array([lines]))


def _labelled(label: str, values: pa.Array) -> pa.Array:
    return pc.binary_join_element_wise(pa.scalar(label, TEXT), values, pa.scalar("", TEXT))


def _stormcrawler(table: pa.Table, wishes: Wishes) -> bytes:
    url, key = quoted(table["url"]), quoted(table["host"])
    named = [hashlib.sha256(u.encode()).hexdigest() for u in table["url"].to_pylist()]
    page = pa.chunked_array([pa.array(named, TEXT)])
    due = joined('"nextFetchDate":"', _iso(table, "ms"), '"')
    new = pc.equal(table["reason"], "new")
    status = pc.if_else(new, "DISCOVERED", "FETCHED")
    kept = joined('"metadata":{"recrawl%2Ereason":[', quoted(table["reason"]), "]}")
    document = joined('{"url":', url, ',"status":"', status, '","key":', key, ",", due, ",", kept, "}")
    if not wishes.bulk:
        return _bytes(joined('{"_index":"status","_id":"', page, '","_source":', document, "}"))
    routed = ('","routing":', key) if wishes.routing else ('"',)
    action = joined('{"update":{"_id":"', page, *routed, "}}")
    # What the topology has stored of a page stays; a page that it does not know is made.
    body = joined('{"doc":{', due, ",", kept, '},"upsert":', document, "}")
    return _bytes(joined(action, "\n", body))


def _urlfrontier(table: pa.Table, wishes: Wishes) -> bytes:
    crawl = json.dumps(wishes.crawl_id, ensure_ascii=False)
    return _bytes(
        joined(
            '{"known":{"info":{"url":',
            quoted(table["url"]),
            ',"key":',
            quoted(table["host"]),
            ',"metadata":{"recrawl.reason":{"values":[',
            quoted(table["reason"]),
            f']}}}},"crawlID":{crawl}}},"refetchableFromDate":"',
            _seconds(table),
            '"}}',
        )
    )


def _scrapy(table: pa.Table, wishes: Wishes) -> bytes:
    # A queue for each priority: one an hour, the earlier the higher.
    priority = pa.chunked_array([pa.array(wishes.first_hour - hours(table)).cast(TEXT)])
    return _bytes(
        joined(
            '{"url":',
            quoted(table["url"]),
            ',"due_at":"',
            _iso(table),
            '","priority":',
            priority,
            ',"dont_filter":true,"meta":{"crawl_at":',
            _seconds(table),
            ',"recrawl_reason":',
            quoted(table["reason"]),
            ',"recrawl_rate_per_day":',
            numbers(table["crawl_rate_per_day"]),
            ',"recrawl_value":',
            numbers(table["value"]),
            "}}",
        )
    )


_CSV_HEADER = b'"shard","slot","due_at","url","host","crawl_rate_per_day","reason","weight","value"\n'
FORMATS: dict[str, Format] = {
    f.name: f
    for f in (
        Format("nutch", "seeds of Nutch's injector", "nutch-seeds.txt", _nutch, first_only=True, lines=True),
        Format(
            "stormcrawler",
            "status documents of StormCrawler",
            "stormcrawler-status.jsonl",
            _stormcrawler,
            first_only=True,
        ),
        Format(
            "urlfrontier", "URLFrontier's JSON Lines", "urlfrontier-urls.jsonl", _urlfrontier, first_only=True
        ),
        Format(
            "heritrix",
            "files for Heritrix' action directory, one an hour",
            "heritrix-{hour}.force",
            _heritrix,
            lines=True,
            max_url=_HERITRIX_MAX_URL,
        ),
        Format("scrapy", "requests of Scrapy, JSON Lines", "scrapy-requests.jsonl", _scrapy),
        Format("urls", "plain lists of URLs, one an hour", "urls-{hour}.txt", _urls, lines=True),
        Format(
            "csv", "the columns of schedule/", "recrawl-schedule.csv", _csv, header=_CSV_HEADER, cells=True
        ),
    )
}
BULK_FILE = "stormcrawler-{part}.ndjson"
