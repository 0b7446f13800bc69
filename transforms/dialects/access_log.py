r"""Access logs of Apache and nginx: common, combined, with the host in front or behind, with more columns.

A line is cut at its quotes: the request, the referer, the user agent. Lines with a backslash (`\"`, `\xhh`)
and those of other forms are read one by one by a regular expression.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from transforms.batches.texts import Texts
from transforms.dialects import Dialect, Source
from transforms.dialects.text_blocks import line_blocks, of_each
from transforms.dialects.weblogs import NAME, Clicks, Ints, Lines, Mask, Requests, good_status, unescape
from transforms.files.blocks import Block
from transforms.rows.normalise import rejected_rows

_QUOTED = rb'"((?:[^"\\]|\\.)*+)"'
_LINE = re.compile(
    rb"(?P<before>.*?) ?\[(?P<at>[0-9][^\[\]\"]{10,40})\] "
    + _QUOTED
    + rb" (?P<status>\d{3}|-)(?: (?P<size>\d+|-))?(?P<more>(?: .*)?)",
    re.DOTALL,
)
_FIELD = re.compile(_QUOTED + rb'(?= |$)|([^ "][^ ]*)')
_REQUEST = re.compile(rb"([A-Za-z]+) +(.*?)(?: +HTTP/[0-9.]+)?", re.DOTALL)
_HTTP = re.compile(rb"([A-Za-z]+) +(.*?) +HTTP/[0-9.]+", re.DOTALL)
_TARGET = re.compile(rb"/|https?://", re.IGNORECASE)
_BEHIND = re.compile(NAME + rb"(?::(?:80|443))?")
_BEHIND_RE2 = '(?:^|[ "])(?P<host>' + NAME.decode() + '(?::(?:80|443))?)(?:[ "]|$)'
# What syslog, containers and their like put in front of a line: a time, a machine, a program.
_TIME = r"(?:[A-Z][a-z]{2} [ \d]\d(?: \d{4})? \d\d:\d\d:\d\d[^ ]*|\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d[^ ]*)"
_PREFIX = (
    rf"(?:<\d{{1,3}}>)?(?:\d )?{_TIME} "
    r"(?:(?:[^ ]+ )?[^ ]+: |std(?:out|err) [FP] |(?:[^ ]+ ){4}(?:-|\[.*\]) )?"
    r"|[^ ]+ +\| |\[[^ ]+\] |[^ ]+: "
)
_NAME = NAME.decode()
_HOST = (
    rf"(?P<host>(?:{_NAME}\.?|\d{{1,3}}(?:\.\d{{1,3}}){{3}}|localhost)(?::\d+)?"
    r"|[^ ]+:\d+|\[[0-9A-Fa-f:.]+\])"
)
_FRONT = rf"^(?P<prefix>{_PREFIX})?{_HOST} [^ -][^ ]*[^ :] [^ ]+ [^ ]"
"""A host, an address, two more words."""
_ADDRESS, _PORT = r"^[0-9.]+$", r":\d+$"
_FRONT_BYTES = re.compile(_FRONT.encode())
_HEAD_LINES = 20
_GOOD = frozenset(b"%d" % code for code in np.flatnonzero(good_status(np.arange(1000))))
# Of methods of which none is a click, the first letters.
_OTHERS = np.array(
    [
        int.from_bytes(m, "big")
        for m in (b"POST", b"HEAD", b"PUT ", b"OPTI", b"DELE", b"PATC", b"PROP", b"CONN")
    ],
    np.uint32,
)
# `[01/Jan/2026:03:04:05 +0100] ` or `[2026-01-01T03:04:05+01:00] ` in front of the request.
_TIMES = (26, 25)


def _looks_like(path: str, text: bytes) -> bool:
    lines = [line.rstrip(b"\r") for line in text.split(b"\n") if line.strip()]
    # The last one may be cut.
    lines = lines[: max(1, len(lines) - 1)][:_HEAD_LINES]
    return bool(lines) and 2 * sum(_LINE.fullmatch(line) is not None for line in lines) >= len(lines)


def _read(source: Source) -> Iterator[Block]:
    return of_each(line_blocks(source.path, source.gzip), partial(_read_block, source.path, Clicks(source)))


def _read_block(path: str, clicks: Clicks, block: bytes, first: int) -> Iterator[Block]:
    if first == 1:
        block = block.removeprefix(b"\xef\xbb\xbf")
    lines = _Lines(block)
    quick = lines.quick()
    found = lines.requests(np.flatnonzero(quick), clicks)
    slow = _Slow()
    for row in np.flatnonzero(~quick).tolist():
        slow.read(row, block[lines.start[row] : lines.end[row]], clicks)
    if slow.bad:
        samples = [block[lines.start[row] : lines.end[row]][:200] for row in slow.bad]
        yield rejected_rows(
            path,
            [first + row for row in slow.bad],
            "bad_line",
            [s.decode("utf-8", "replace") for s in samples],
        )
    if slow.line:
        found = found.merge(slow.requests())
    if len(found.line):
        found.line[:] += first
        yield from clicks.rows(found)


class _Lines(Lines):
    """Where the parts of the lines of a block are."""

    def __init__(self, block: bytes) -> None:
        super().__init__(block)
        self.quotes = quotes = np.flatnonzero(self.data == 34)
        at = np.searchsorted(quotes, self.start)
        self.first_quote = at
        self.count = np.diff(at, append=len(quotes))

    def _quote(self, rows: Ints, number: int) -> Ints:
        return self.quotes.take(self.first_quote[rows] + number, mode="clip")

    def _bracket(self, quote: Ints) -> Ints:
        """Where the time would begin in front of a request."""
        long, short = (quote - size - 3 for size in _TIMES)
        return np.where(self.has(long, 91), long, short)

    def quick(self) -> Mask:
        """Lines of which the quotes say it all: bool (lines,)."""
        found = (self.count >= 2) & (self.count % 2 == 0)
        if b"\\" in self.block:
            escapes = np.flatnonzero(self.data == 92)
            found[np.searchsorted(self.end, escapes)] = False
        rows = np.flatnonzero(found)
        if not len(rows):
            return found
        q0, q1 = self._quote(rows, 0), self._quote(rows, 1)
        bracket = self._bracket(q0)
        good = (bracket > self.start[rows]) & self.has(bracket, 91) & self.has(bracket - 1, 32)
        good &= self.has(q0 - 1, 32) & self.has(q0 - 2, 93)
        good &= self.has(q1 + 1, 32) & self.has(q1 + 5, 32)
        good &= q1 + 6 < self.end[rows]
        for i in (2, 3, 4):
            good &= self.data.take(q1 + i, mode="clip") - np.uint8(48) < 10
        # Some log the size only of some requests, or more fields in front of the referer.
        size = self.data.take(q1 + 6, mode="clip")
        good &= (size - np.uint8(48) < 10) | (size == 45)
        more = self.count[rows] >= 4
        q2, q3, q4, q5 = (self._quote(rows, i) for i in (2, 3, 4, 5))
        good &= ~more | (self.has(q2 - 1, 32) & (q2 > q1 + 6))
        more = self.count[rows] >= 6
        good &= ~more | (self.has(q3 + 1, 32) & (q4 == q3 + 2))
        last = np.where(more, q5, np.where(self.count[rows] >= 4, q3, q1))
        good &= (last + 1 == self.end[rows]) | self.has(last + 1, 32)
        found[rows] = good
        return found

    def requests(self, rows: Ints, clicks: Clicks) -> Requests:
        """Of quick lines those that may be clicks."""
        data = self.data
        q0, q1 = self._quote(rows, 0), self._quote(rows, 1)
        ends = self._protocol(q1)
        get = self.has(q0 + 1, 71) & self.has(q0 + 2, 69) & self.has(q0 + 3, 84) & self.has(q0 + 4, 32)
        # What begins with a path or a whole URL; a look at the rest is for those alone.
        known = get & (ends > q0 + 5) & self.has(q0 + 5, 47)
        method = ~get & (ends < q1) & np.isin(self._word(q0 + 1), _OTHERS)
        for i in np.flatnonzero(~known & ~method).tolist():
            kind, target, begin = _request(self.block[q0[i] + 1 : q1[i]])
            if kind == "GET":
                known[i], q0[i] = True, q0[i] + 1 + begin - 5
                ends[i] = q0[i] + 5 + len(target)
            method[i] = kind not in ("", "GET")
        clicks.leave_out("method", int(method.sum()))
        clicks.leave_out("no_request", int((~known & ~method).sum()))
        hundreds = data.take(q1 + 2, mode="clip").astype(np.int64) - 48
        status = (
            (hundreds * 10 + data.take(q1 + 3, mode="clip") - 48) * 10 + data.take(q1 + 4, mode="clip") - 48
        )
        good = good_status(status)
        clicks.leave_out("status", int((known & ~good).sum()))
        use = np.flatnonzero(known & good)
        rows, begin, ends, q1 = rows[use], q0[use] + 5, ends[use], q1[use]
        q0 = self._quote(rows, 0)
        bracket = self._bracket(q0)
        named = self.count[rows] >= 6
        q4, q5 = self._quote(rows, 4), self._quote(rows, 5)
        agent = self.texts(np.where(named, q4 + 1, q1), np.where(named, q5, q1), ~named)
        last = np.where(named, q5 + 1, q1 + 6)
        return Requests(
            line=rows,
            target=self.texts(begin, ends),
            at=self.texts(bracket + 1, q0 - 2),
            agent=agent,
            host=self._hosts(rows, bracket, last, clicks.has_site),
        )

    def _word(self, at: Ints) -> NDArray[np.uint32]:
        """Four bytes as a number."""
        word = np.zeros(len(at), np.uint32)
        for i in range(4):
            word = word << np.uint32(8) | self.data.take(at + i, mode="clip")
        return word

    def _protocol(self, end: Ints) -> Ints:
        """Where targets end: in front of ` HTTP/1.1` or ` HTTP/2`."""
        found = end.copy()
        for size in (7, 9):
            at = end - size
            here = self.has(at, 32) & self.has(at + 1, 72) & self.has(at + 5, 47)
            here &= self.has(at + 2, 84) & self.has(at + 3, 84) & self.has(at + 4, 80)
            found = np.where(here, at, found)
        return found

    def _hosts(self, rows: Ints, bracket: Ints, last: Ints, has_site: bool) -> pa.Array:
        """The host in front of each line, else a column behind it that is one, else null."""
        start, end = self.start[rows], self.end[rows]
        texts = Texts(self.texts(start, bracket))
        spaces = np.flatnonzero(texts.data == 32)
        words = np.searchsorted(spaces, np.append(texts.start, len(texts.data)))
        token = start + spaces.take(words[:-1], mode="clip") - texts.start
        number = np.diff(words)
        four = (number == 4) & ~(self.has(token + 1, 45) & self.has(token + 2, 32))
        host = pa.nulls(len(rows), pa.binary())
        for mask, until, find in ((four, token, _of_four), (number > 4, bracket, _of_more)):
            if mask.any():
                found = find(self.texts(start[mask], until[mask]), has_site)
                host = pc.replace_with_mask(host, pa.array(mask), found)
        front = np.asarray(host.is_valid())
        behind = np.flatnonzero(~front & (end - last > 2))
        if len(behind):
            more = self.texts(last[behind], end[behind]).dictionary_encode()
            found = pc.struct_field(pc.extract_regex(more.dictionary, _BEHIND_RE2), [0])
            index = np.full(len(rows), -1)
            index[behind] = more.indices.to_numpy()
            taken = found.take(pa.array(index, mask=index < 0))
            host = pc.coalesce(host, taken)
        return host


def _of_four(first: pa.Array, has_site: bool) -> pa.Array:
    """Hosts of lines with one more word in front than usual: that word, if it is one."""
    encoded = first.dictionary_encode()
    distinct = encoded.dictionary
    good = pc.match_substring_regex(distinct, f"^{_HOST}$")
    if has_site:  # an address may be a proxy's
        good = pc.and_not(good, pc.match_substring_regex(distinct, _ADDRESS))
    return pc.if_else(good, distinct, None).take(encoded.indices)


def _of_more(before: pa.Array, has_site: bool) -> pa.Array:
    """Hosts of lines with more words in front, such as those of syslog."""
    found = pc.extract_regex(before, _FRONT)
    prefix, host = (pc.struct_field(found, [i]) for i in (0, 1))
    if not has_site:
        return host
    behind = pc.greater(pc.binary_length(prefix), 0)
    guess = pc.and_not(behind, pc.match_substring_regex(host, _PORT))
    return pc.if_else(pc.or_(guess, pc.match_substring_regex(host, _ADDRESS)), None, host)


def _request(text: bytes) -> tuple[str, bytes, int]:
    """Method (empty for what is no request), target and where it begins."""
    found = _HTTP.fullmatch(text) or _REQUEST.fullmatch(text)
    if found is None:
        return "", b"", 0
    method = found[1].decode("latin-1")
    if method == "GET":
        return ("GET" if _TARGET.match(found[2]) else ""), found[2], found.start(2)
    # Anything may begin with letters: what is no GET must say that it is HTTP.
    return (method if method.isupper() and _HTTP.fullmatch(text) else ""), found[2], found.start(2)


@dataclass
class _Slow:
    """Lines that are read one by one."""

    line: list[int] = field(default_factory=list)
    target: list[bytes] = field(default_factory=list)
    at: list[bytes] = field(default_factory=list)
    agent: list[bytes | None] = field(default_factory=list)
    host: list[bytes | None] = field(default_factory=list)
    bad: list[int] = field(default_factory=list)

    def read(self, row: int, line: bytes, clicks: Clicks) -> None:
        """Read a line; a blank one is none."""
        line = line.rstrip(b" \t\r")
        if not line:
            return
        found = _LINE.fullmatch(line)
        fields = None if found is None else _fields(found["more"])
        if found is None or fields is None:
            self.bad.append(row)
            return
        kind, target, _ = _request(found[3])
        if kind != "GET":
            clicks.leave_out("method" if kind else "no_request", 1)
            return
        if found["status"] not in _GOOD:
            clicks.leave_out("status", 1)
            return
        quoted = [i for i, (has_quotes, _) in enumerate(fields) if has_quotes]
        agent = fields[quoted[1]][1] if len(quoted) >= 2 else None
        host = _front(found["before"], clicks.has_site)
        if host is None:
            columns = fields if agent is None else fields[quoted[1] + 1 :]
            host = next((text for _, text in columns if _BEHIND.fullmatch(text)), None)
        self.line.append(row)
        self.target.append(unescape(target))
        self.at.append(found["at"])
        self.agent.append(agent)
        self.host.append(host)

    def requests(self) -> Requests:
        kind = pa.binary()
        arrays = (pa.array(x, kind) for x in (self.target, self.at, self.agent, self.host))
        return Requests(np.array(self.line, np.int64), *arrays)


def _front(before: bytes, has_site: bool) -> bytes | None:
    """The host of `host address - user`, None of `address - user`."""
    found = _FRONT_BYTES.match(before + b" ")
    if found is None:
        return None
    host: bytes = found["host"]
    guess = re.match(_ADDRESS.encode(), host) or (found["prefix"] and not re.search(_PORT.encode(), host))
    return None if guess and has_site else host


def _fields(more: bytes) -> list[tuple[bool, bytes]] | None:
    """The columns behind the size, and whether they have quotes; None where a quote has no end."""
    fields, at = [], 0
    while at < len(more):
        if more[at] == 32:
            at += 1
            continue
        found = _FIELD.match(more, at)
        if found is None:
            return None
        fields.append((found[1] is not None, found[1] if found[1] is not None else found[2]))
        at = found.end()
    return fields


DIALECT = Dialect(
    "access_log", "requests", "Apache and nginx: common, combined and vhost logs", _looks_like, _read
)
