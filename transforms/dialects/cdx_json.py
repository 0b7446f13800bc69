"""JSON that CDX servers answer: a list of lists whose first one names the fields, or an object a line."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from transforms.dialects import Dialect, Source
from transforms.dialects.captures import (
    OTHER_METHOD,
    RESUME_KEY,
    Captures,
    observations,
    rows_with,
    url_of_key,
)
from transforms.dialects.json_captures import LINE_FIELDS, loads, of_dicts, read_records
from transforms.dialects.json_strings import slices
from transforms.dialects.text_blocks import line_blocks
from transforms.files.blocks import Block
from transforms.rows.normalise import rejected_rows

_UNNAMED = ["urlkey", "timestamp", "original", "mimetype", "statuscode", "digest", "length"]
_TIME = re.compile(r"\d{8,17}")
_WRITTEN_OUT = re.compile(r"(?:19|20)\d{12}(?:\d{3})?")
_PAGES = {"url", "original", "urlkey"}
_BOM = b"\xef\xbb\xbf"


def looks_like(path: str, text: bytes) -> bool:
    """Whether a file begins with a list of names of fields, or with an object that has them."""
    text = text.lstrip()
    if text.startswith(b"["):
        inner = text[1:].lstrip()
        names = loads(inner[: inner.find(b"]") + 1])
        return isinstance(names, list) and _is_header(names)
    record = loads(text.split(b"\n", 1)[0]) if text.startswith(b"{") else None
    if not isinstance(record, dict) or "fetched_at" in record:
        return False
    if not _WRITTEN_OUT.fullmatch(str(record.get("timestamp"))):
        return False
    others = {"mime", "mimetype", "digest", "filename"} & record.keys()
    return "urlkey" in record or ("url" in record and len(others) >= 2)


def _is_header(row: list[Any]) -> bool:
    return "timestamp" in row and any(name in _PAGES for name in row if isinstance(name, str))


def read(source: Source) -> Iterator[Block]:
    """Read an answer, of either form."""
    lists: _Lists | None = None
    begun = False
    for item in line_blocks(source.path, source.gzip):
        if isinstance(item, pa.RecordBatch):
            yield item
            continue
        block, line = item
        block = block.removeprefix(_BOM) if line == 1 else block
        if not begun:
            if not block.strip():
                continue
            begun = True
            text = block.lstrip()
            if text.startswith(b"[") and not text[1:].lstrip().startswith(b"{"):
                lists = _Lists(source)
        yield from _read_objects(source, block, line) if lists is None else lists.read(block, line)


# --- Lists -------------------------------------------------------------------------------------------


class _Lists:
    """Reads a list of lists, whatever its line ends; one row a line, as servers write it, costs least."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self._names: list[str] | None = None

    def read(self, block: bytes, line: int) -> Iterator[Block]:
        records: list[dict[str, Any]] = []
        numbers: list[int] = []
        wrong: dict[str, tuple[list[int], list[str]]] = {}
        keys = 0
        for i, raw in enumerate(block.split(b"\n")):
            text = raw.strip()
            if text in (b"", b"[", b"]", b",", b"],"):
                continue
            rows = _rows(text)
            for row in [None] if rows is None else rows:
                if row == []:
                    continue
                if isinstance(row, list) and _is_header(row):
                    self._names = [str(name) for name in row]
                    continue
                if isinstance(row, list) and len(row) == 1 and isinstance(row[0], str):
                    keys += 1
                    continue
                names, reason = self._names, "bad_json"
                if names is None and _looks_right(row):
                    names = _UNNAMED[: len(row)]
                if isinstance(row, list) and names is not None and len(row) != len(names):
                    reason = "column_count"
                if names is None or not isinstance(row, list) or len(row) != len(names):
                    bad, samples = wrong.setdefault(reason, ([], []))
                    bad.append(line + i)
                    shown = (text if row is None else json.dumps(row).encode())[:400].decode(
                        "utf-8", "replace"
                    )
                    counted = f"{len(row or [])} columns, expected {len(names or [])}: "
                    samples.append(counted + shown if reason == "column_count" else shown)
                    continue
                records.append(dict(zip(names, row, strict=True)))
                numbers.append(line + i)
        self._source.leave_out("resume_key", keys)
        for reason, (bad, samples) in wrong.items():
            yield rejected_rows(self._source.path, bad, reason, samples)
        if records:
            columns = of_dicts(records, LINE_FIELDS)
            yield from _observe(self._source, np.array(numbers, np.int64), columns)


def _rows(text: bytes) -> list[Any] | None:
    """The rows of one line of a list of lists, None where it is none."""
    text = text.removesuffix(b",")
    found = loads(text)
    if found is None:
        # The brackets of the outer list stand in the first and the last line.
        inner = text[1:] if text.startswith(b"[[") else text
        for core in (inner, inner[:-1] if inner.endswith(b"]]") else inner):
            found = loads(b"[" + core.strip().removesuffix(b",") + b"]")
            if found is not None:
                return list(found)
        return None
    if not isinstance(found, list):
        return None
    return found if found and all(isinstance(row, list) for row in found) else [found]


def _looks_right(row: Any) -> bool:
    """Whether a row of a list without names has the usual fields."""
    return (
        isinstance(row, list)
        and 3 <= len(row) <= len(_UNNAMED)
        and _TIME.fullmatch(str(row[1])) is not None
        and ":" in str(row[2])
    )


# --- Objects -----------------------------------------------------------------------------------------


def _read_objects(source: Source, block: bytes, line: int) -> Iterator[Block]:
    data = np.frombuffer(block, np.uint8)
    end = np.flatnonzero(data == 10)
    if data[-1] != 10:
        end = np.append(end, len(block))
    start = np.append(0, end[:-1] + 1)
    good = (data.take(start, mode="clip") == 123) & (end > start)
    bad: list[int] = []
    odd = np.flatnonzero(~good).tolist()
    begin = start.copy()
    for i in odd:
        text = block[start[i] : end[i]].strip()
        if text in (b"", b"[", b"]", b",") or text.startswith(b"#"):
            continue
        if text.lstrip(b"[, \t").startswith(b"{"):
            good[i] = True
            begin[i] += block[start[i] : end[i]].index(b"{")
        elif RESUME_KEY.fullmatch(text):
            source.leave_out("resume_key", 1)
        else:
            bad.append(i)
    if bad:
        yield _rejected(source, block, start, end, bad, line)
    use = np.flatnonzero(good)
    whole = block if block.endswith(b"\n") else block + b"\n"
    for found in read_records(slices(whole, begin[use], end[use] + 1, pa.binary()), LINE_FIELDS):
        index = use[found.index]
        if found.columns is None:
            yield from _of_array(source, block, start, end, index, line)
            continue
        yield from _observe(source, line + index, found.columns)


def _of_array(source: Source, block: bytes, start: Any, end: Any, index: Any, line: int) -> Iterator[Block]:
    """Lines of an array of objects: with a comma or the closing bracket at their end."""
    bad, records, numbers = [], [], []
    for i in index.tolist():
        text = block[start[i] : end[i]].strip()
        text = text[text.index(b"{") :].removesuffix(b",").removesuffix(b"]")
        found = loads(b"[" + text + b"]")
        if isinstance(found, list) and found and all(isinstance(one, dict) for one in found):
            records += found
            numbers += [line + i] * len(found)
        else:
            bad.append(i)
    if bad:
        yield _rejected(source, block, start, end, bad, line)
    if records:
        yield from _observe(source, np.array(numbers, np.int64), of_dicts(records, LINE_FIELDS))


def _observe(source: Source, row: Any, columns: Any) -> Iterator[Block]:
    url = columns["url"]
    if url.null_count:
        made = pc.coalesce(
            url,
            pa.array(
                [
                    key and url_of_key(key.decode("utf-8", "replace"))
                    for key in columns["key"].cast(pa.large_binary()).to_pylist()
                ],
                pa.string(),
            ),
        )
        if source.notes is not None:
            source.notes.add(f"{source.kind.name}_urls_from_keys", url.null_count - made.null_count)
        url = made
    not_get = rows_with(columns["key"], OTHER_METHOD)
    yield from observations(
        source,
        Captures(row, url, columns["at"], columns["mime"], columns["status"], columns["digest"], not_get),
    )


def _rejected(
    source: Source, block: bytes, start: Any, end: Any, index: list[int], line: int
) -> pa.RecordBatch:
    texts = [block[start[i] : end[i]][:400].decode("utf-8", "replace").strip() for i in index]
    return rejected_rows(source.path, [line + i for i in index], "bad_json", texts)


DIALECT = Dialect(
    "cdx_json", "observations", "JSON answers of CDX servers: Internet Archive, pywb", looks_like, read
)
