"""W3C extended logs, as IIS and CloudFront write them: `#Fields:` names the columns, until the next one does.

Times are UTC. Where blanks separate the columns, a blank in a value is a plus sign; where tabs do, values are
percent-encoded.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from urllib.parse import unquote_to_bytes

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from transforms.batches.errors import InputError
from transforms.dialects import Dialect, Source
from transforms.dialects.text_blocks import line_blocks, of_each
from transforms.dialects.weblogs import Clicks, Ints, Lines, Mask, Requests, good_status
from transforms.files.blocks import Block
from transforms.rows.normalise import rejected_rows

_TOKEN = re.compile(rb'"((?:[^"]|"")*+)"|([^ \t]+)')
_DATE = re.compile(rb"#Date:\s*(\d{4}-\d\d-\d\d)")
_HOSTS = ("x-host-header", "cs-host", "cs(host)")
_AGENT = "cs(user-agent)"
_GOOD = pa.array([b"%d" % code for code in np.arange(1000)[good_status(np.arange(1000))]], pa.binary())
_TAB, _BLANK, _QUOTE, _HASH = 9, 32, 34, 35
_HEAD_LINES = 20
# `#Fields:` of a hostile file.
_MAX_FIELDS = 1000


def _looks_like(path: str, text: bytes) -> bool:
    lines = text.split(b"\n")[:_HEAD_LINES]
    return text.startswith(b"#") and any(
        line.startswith(b"#Fields:") and (b"cs-uri" in line or b"cs-method" in line) for line in lines
    )


def _read(source: Source) -> Iterator[Block]:
    log = _Log(source.path, Clicks(source))
    return of_each(line_blocks(source.path, source.gzip), log.read)


class _Log:
    """What the directives of a file have said so far."""

    def __init__(self, path: str, clicks: Clicks) -> None:
        self._path, self._clicks = path, clicks
        self._fields: list[str] = []
        self._date = b""

    def read(self, block: bytes, first: int) -> Iterator[Block]:
        block = block.removeprefix(b"\xef\xbb\xbf") if first == 1 else block
        lines = _Columns(block)
        hash_first = lines.has(lines.start, _HASH) & (lines.end > lines.start)
        rows, done = np.flatnonzero(~hash_first & (lines.end > lines.start)), 0
        for at in np.flatnonzero(hash_first).tolist():
            said = self._said(block[lines.start[at] : lines.end[at]], first + at)
            if said != (self._fields, self._date):
                end = int(np.searchsorted(rows, at))
                yield from self._rows(lines, rows[done:end], first)
                done = end
                self._fields, self._date = said
        yield from self._rows(lines, rows[done:], first)

    def _said(self, line: bytes, number: int) -> tuple[list[str], bytes]:
        """Fields and date after a directive."""
        if b"\r" in line.rstrip(b"\r"):
            raise InputError(
                f"{self._path}: line {number} has carriage returns without line feeds behind them; "
                "rewrite it: tr '\\r' '\\n' < FILE"
            )
        if date := _DATE.match(line):
            return self._fields, date[1]
        if not line.startswith(b"#Fields:"):
            return self._fields, self._date
        fields = line[len(b"#Fields:") :].decode("latin-1").lower().split()
        missing = [name for name in ("time", "cs-method", "sc-status") if name not in fields]
        if "cs-uri-stem" not in fields and "cs-uri" not in fields:
            missing.append("cs-uri-stem")
        if "date" not in fields and not self._date:
            missing.append("date")
        if len(fields) > _MAX_FIELDS:
            raise InputError(
                f"{self._path}: line {number} names {len(fields)} fields, at most {_MAX_FIELDS} are read"
            )
        if missing:
            raise InputError(
                f"{self._path}: the fields of line {number} lack {', '.join(missing)}: nobody can "
                "tell which requests are of pages. Have the server log them, or leave out the file"
            )
        return fields, self._date

    def _rows(self, lines: _Columns, rows: Ints, first: int) -> Iterator[Block]:
        if not len(rows):
            return
        cut = _Cut(lines, rows, len(self._fields))
        slow = np.flatnonzero(~cut.quick)
        bad: list[int] = []
        odd: list[tuple[int, list[bytes]]] = []
        for row in rows[slow].tolist():
            line = lines.block[lines.start[row] : lines.end[row]].strip()
            tokens = [a or b for a, b in _TOKEN.findall(line)] if self._fields else []
            if not line:
                continue
            if not self._fields or len(tokens) != len(self._fields):
                bad.append(row)
            else:
                odd.append((row, tokens))
        if bad:
            reason = "column_count" if self._fields else "no_fields"
            texts = [lines.block[lines.start[row] : lines.end[row]][:200] for row in bad]
            samples = [text.decode("utf-8", "replace") for text in texts]
            yield rejected_rows(self._path, [first + row for row in bad], reason, samples)
        if not self._fields:
            return
        quick = {name: cut.field(i) for i, name in enumerate(self._fields) if name in _USED}
        found = self._requests(rows[cut.quick], quick, cut.tabs[cut.quick])
        if odd:
            columns = {
                name: pa.array([tokens[i] for _, tokens in odd], pa.binary())
                for i, name in enumerate(self._fields)
                if name in _USED
            }
            of = np.array([row for row, _ in odd], np.int64)
            found = found.merge(self._requests(of, columns, np.zeros(len(of), np.bool_)))
        if len(found.line):
            found.line[:] += first
            yield from self._clicks.rows(found)

    def _requests(self, line: Ints, columns: dict[str, pa.Array], tabs: Mask) -> Requests:
        get = np.asarray(pc.equal(columns["cs-method"], b"GET"))
        others = columns["cs-method"].filter(pa.array(~get))
        named = pc.sum(pc.match_substring_regex(others, r"^[A-Za-z]+$")).as_py() or 0
        self._clicks.leave_out("method", named)
        self._clicks.leave_out("no_request", len(others) - named)
        good = np.asarray(pc.is_in(columns["sc-status"], _GOOD))
        self._clicks.leave_out("status", int((get & ~good).sum()))
        use = pa.array(np.flatnonzero(get & good))
        columns = {name: column.take(use) for name, column in columns.items()}
        tabs = tabs[use]
        day = columns.get("date", pa.scalar(self._date, pa.binary()))
        return Requests(
            line=line[use],
            target=_target(columns, tabs),
            at=pc.binary_join_element_wise(day, columns["time"], b"T"),
            agent=_agent(columns.get(_AGENT), tabs),
            host=_host(columns, len(use)),
        )


_USED = {"date", "time", "cs-method", "sc-status", "cs-uri-stem", "cs-uri-query", "cs-uri", _AGENT, *_HOSTS}
_USED |= {"cs-protocol", "s-port"}


class _Columns(Lines):
    """Lines, and where their separators and quotes are."""

    def __init__(self, block: bytes) -> None:
        super().__init__(block)
        tabs, blanks, quotes = (self._all(byte) for byte in (_TAB, _BLANK, _QUOTE))
        self.separators, self.blanks_from = np.concatenate([tabs, blanks]), len(tabs)
        self.first_tab, self.tabs = self._count(tabs)
        self.first_blank, self.blanks = self._count(blanks)
        self.quotes = self._count(quotes)[1]

    def _all(self, byte: int) -> Ints:
        return np.flatnonzero(self.data == byte) if byte in self.block else np.empty(0, np.int64)

    def _count(self, at: Ints) -> tuple[Ints, Ints]:
        """Of sorted places the first one of each line, and how many a line has."""
        first = np.searchsorted(at, self.start)
        return first, np.searchsorted(at, self.end) - first


class _Cut:
    """Lines of as many columns as there are fields.

    Attributes
    ----------
    quick : bool (n,)
        Lines that have them, separated by tabs or by blanks, and no quotes.
    tabs : bool (n,)
    """

    def __init__(self, lines: _Columns, rows: Ints, fields: int) -> None:
        self._lines, self._fields = lines, fields
        self.tabs = lines.tabs[rows] == fields - 1
        self.quick = (self.tabs | (lines.blanks[rows] == fields - 1)) & (lines.quotes[rows] == 0)
        first = np.where(self.tabs, lines.first_tab[rows], lines.blanks_from + lines.first_blank[rows])
        self._first = first[self.quick]
        self._start, self._end = lines.start[rows][self.quick], lines.end[rows][self.quick]

    def field(self, i: int) -> pa.Array:
        """The column `i` of quick lines."""
        at = self._lines.separators
        start = at.take(self._first + i - 1, mode="clip") + 1 if i else self._start
        last = i == self._fields - 1
        return self._lines.texts(start, self._end if last else at.take(self._first + i, mode="clip"))


def _target(columns: dict[str, pa.Array], tabs: Mask) -> pa.Array:
    if "cs-uri-stem" not in columns:
        return columns["cs-uri"]
    stem, query = columns["cs-uri-stem"], columns.get("cs-uri-query")
    # IIS refuses paths with a plus sign: there is a blank.
    odd = np.asarray(pc.match_substring(stem, b"+")) & ~tabs
    if odd.any():
        stem = pc.replace_with_mask(
            stem, pa.array(odd), pc.replace_substring(stem.filter(pa.array(odd)), b"+", b"%20")
        )
    if query is None:
        return stem
    rows = np.flatnonzero(~np.asarray(pc.is_in(query, pa.array([b"-", b""], pa.binary()))))
    index = np.full(len(stem), len(rows))
    index[rows] = np.arange(len(rows))
    more = pc.binary_join_element_wise(b"?", query.take(pa.array(rows)), b"")
    more = pa.concat_arrays([more, pa.array([b""], pa.binary())])
    return pc.binary_join_element_wise(stem, more.take(pa.array(index)), b"")


def _agent(agents: pa.Array | None, tabs: Mask) -> pa.Array:
    """User agents as they were sent; null where they are not logged."""
    if agents is None:
        return pa.nulls(len(tabs), pa.binary())
    encoded = agents.dictionary_encode()
    distinct = encoded.dictionary.to_pylist()
    plain = [a.replace(b"+", b" ") for a in distinct]
    # CloudFront encodes some of it twice.
    plain += [unquote_to_bytes(unquote_to_bytes(a)) for a in distinct]
    index = encoded.indices.to_numpy() + np.where(tabs, len(distinct), 0)
    return pa.array(plain, pa.binary()).take(pa.array(index))


def _host(columns: dict[str, pa.Array], n: int) -> pa.Array:
    """Host and port, null where they are not logged."""
    host = pa.nulls(n, pa.binary())
    none, nothing = pa.scalar(None, pa.binary()), pa.array([b"-", b""], pa.binary())
    for name in _HOSTS:
        if name in columns:
            known = pc.replace_with_mask(columns[name], pc.is_in(columns[name], nothing), none)
            host = pc.coalesce(host, known)
    ports = pa.nulls(n, pa.binary())
    if "s-port" in columns:
        known = pc.is_in(columns["s-port"], pa.array([b"80", b"443"], pa.binary()))
        ports = pc.replace_with_mask(columns["s-port"], pc.invert(known), none)
    if "cs-protocol" in columns:
        secure = pc.index_in(columns["cs-protocol"], pa.array([b"https", b"http"], pa.binary()))
        ports = pc.coalesce(pa.array([b"443", b"80"], pa.binary()).take(secure), ports)
    whole = pc.binary_join_element_wise(host, ports, b":")
    own = pc.or_kleene(pc.is_null(ports), pc.match_substring_regex(host, r":\d+$"))
    return pc.if_else(pc.fill_null(own, True), host, whole)


DIALECT = Dialect("w3c", "requests", "W3C extended logs: IIS, CloudFront", _looks_like, _read)
