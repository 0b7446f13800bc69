"""Reader of sitemaps: XML, sitemap index, RSS, Atom and plain text, plain or gzipped, as a stream.

Sitemaps are written by the sites that are crawled, so nothing in them is trusted: entities, external
references, deep nesting and huge tokens end the reading of a file, and so does its size. A file is told by
what it holds, not by its name. What was read before a defect counts.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from xml.sax import SAXParseException
from xml.sax.handler import ContentHandler

import numpy as np
import pyarrow as pa
from defusedxml import DefusedXmlException
from defusedxml.expatreader import DefusedExpatParser

from transforms.batches.tally import Counts
from transforms.batches.urls import MAX_URL_BYTES
from transforms.files.blocks import Block, RawBlock
from transforms.files.decoding import find_codec, to_utf8
from transforms.files.unpacking import Problem, gunzip, is_gzip, stored
from transforms.rows.normalise import rejected_file, rejected_rows

# The protocol's limit of one file, unpacked. Search engines ignore what is larger, too.
MAX_BYTES = 50 << 20
MAX_DEPTH = 32
# Expat holds a token (a comment, a tag with its attributes) until it ends.
MAX_TOKEN_BYTES = 2 << 20
# Expat keeps every name of an element or attribute. Standards of sitemaps and feeds have some 200 in all.
MAX_NAMES = 10_000
FEED_BYTES = 1 << 18
ROWS = 1 << 16
# Some servers pack what is packed already.
MAX_GZIP_LAYERS = 2
# With fewer dates that they agree says nothing; a sitemap that is made anew at every request has one date.
MIN_DATES, ONE_DATE_SHARE = 10, 0.95
# Of more distinct dates than the first the most frequent are kept: one of nearly all is among them.
MAX_DISTINCT, KEPT_DISTINCT = 1 << 15, 1 << 10

_BLANK = b" \t\r\n\0"
_HTML = re.compile(rb"<(?:!doctype\s+html|html)\b", re.IGNORECASE)
# Not \s, which takes line ends: the time would grow with the square of the empty lines.
_LINK = re.compile(rb"^[ \t\r\f\v]*https?://", re.IGNORECASE | re.MULTILINE)
_MAX_DATE_CHARACTERS = 100


class _UnsafeError(Exception):
    """XML that could exhaust memory."""


class _NoSitemapError(Exception):
    """The root element is of something else."""


def read_sitemap(path: str, gzip: bool, notes: Counts | None = None) -> Iterator[Block]:
    """Read one file.

    Parameters
    ----------
    path : str
    gzip : bool
        Whether it is packed as it is stored.
    notes : Counts, optional
        Gets ``sitemaps_index`` and ``sitemaps_index_children``, ``sitemaps_news`` and
        ``sitemaps_one_lastmod``: files, but for the children.

    Yields
    ------
    RawBlock
        Columns `url` and `lastmod`, texts as the file has them, null where there is none. Numbers of rows are
        numbers of lines. Of any encoding, they come as UTF-8.
    RecordBatch of `schemas.REJECTED`
        Reasons no_loc, not_a_sitemap, unsafe_xml, too_large, truncated_file, unreadable_file.

    Holds `ROWS` URLs, some megabytes of the file and `MAX_TOKEN_BYTES`: some tens of megabytes in all.
    """
    notes = notes or Counts()
    problem = Problem()
    head, content = _begun(_unpacked(path, gzip, problem))
    try:
        codec, skip = find_codec(head, _BLANK)
    except LookupError as e:
        yield rejected_file(path, "unreadable_file", str(e))
        return
    head = head[skip:]
    if codec != "utf-8":
        head, content = _begun(to_utf8(_joined(head, content), codec, problem))
    clean = head.lstrip(_BLANK)
    if clean.startswith(b"<"):
        if _is_html(clean):
            yield rejected_rows(path, [1], "not_a_sitemap", [_shown(clean)])
            return
        line = 1 + head[: len(head) - len(clean)].count(b"\n")
        yield from _read_xml(path, clean, line, content, problem, notes)
    elif _LINK.search(clean):
        yield from _read_lines(path, head, content, problem)
    elif problem.reason:
        yield rejected_file(path, problem.reason, problem.sample)
    else:
        yield rejected_rows(path, [1], "not_a_sitemap", [_shown(clean)])


def _begun(content: Iterator[bytes]) -> tuple[bytes, Iterator[bytes]]:
    """The first `FEED_BYTES`, or a little more, and the rest in pieces of at most so many."""
    pieces = (c[at : at + FEED_BYTES] for c in content for at in range(0, len(c), FEED_BYTES))
    head = b""
    for piece in pieces:
        head += piece
        if len(head) >= FEED_BYTES:
            break
    return head, pieces


def _is_html(clean: bytes) -> bool:
    at = 0
    while clean.startswith(b"<!--", at):
        end = clean.find(b"-->", at + 4)
        if end < 0:
            return False
        at = end + 3
        while clean[at : at + 1].isspace():
            at += 1
    return _HTML.match(clean, at) is not None


def _shown(head: bytes) -> str:
    return head[:200].decode("utf-8", "replace") or "(nothing)"


def _unpacked(path: str, gzip: bool, problem: Problem) -> Iterator[bytes]:
    """The content, through all layers of gzip, up to `MAX_BYTES`."""
    content = _limited(gunzip(stored(path), problem) if gzip else stored(path), problem)
    for _ in range(MAX_GZIP_LAYERS - gzip):
        first = next(content, b"")
        content = _joined(first, content)
        if not is_gzip(first):
            break
        content = _limited(gunzip(content, problem), problem)
    return content


def _joined(first: bytes, rest: Iterator[bytes]) -> Iterator[bytes]:
    if first:
        yield first
    yield from rest


def _limited(content: Iterator[bytes], problem: Problem) -> Iterator[bytes]:
    left = MAX_BYTES
    for chunk in content:
        if len(chunk) > left:
            yield chunk[:left]
            problem.reason = "too_large"
            problem.sample = f"more than {MAX_BYTES} bytes, unpacked; what came before counts"
            return
        left -= len(chunk)
        yield chunk


# --- plain text ---------------------------------------------------------------------------------------


def _read_lines(path: str, head: bytes, content: Iterator[bytes], problem: Problem) -> Iterator[Block]:
    """One URL a line."""
    held, line = b"", 1
    for chunk in _joined(head, content):
        held += chunk
        end = held.rfind(b"\n") + 1
        if end:
            yield from _lines(held[:end], line)
            line += held.count(b"\n", 0, end)
            held = held[end:]
        elif len(held) > MAX_TOKEN_BYTES:
            yield rejected_rows(path, [line], "line_too_long", [_shown(held)])
            return
    if problem.reason:  # the last line may be cut
        yield rejected_file(path, problem.reason, f"line {line}: {problem.sample}")
    else:
        yield from _lines(held, line)


def _lines(block: bytes, line: int) -> Iterator[RawBlock]:
    texts = [text.strip() for text in block.splitlines()]
    rows = [i for i, text in enumerate(texts) if text]
    for start in range(0, len(rows), ROWS):
        part = rows[start : start + ROWS]
        urls = pa.array([texts[i] for i in part], pa.binary()).view(pa.string())
        yield _block(urls, pa.nulls(len(part), pa.string()), [line + i for i in part])


def _block(urls: pa.Array, dates: pa.Array, lines: list[int]) -> RawBlock:
    numbers = np.array(lines, np.int64)
    return RawBlock(pa.RecordBatch.from_arrays([urls, dates], names=["url", "lastmod"]), lambda: numbers)


# --- XML ----------------------------------------------------------------------------------------------


def _read_xml(
    path: str, head: bytes, line: int, content: Iterator[bytes], problem: Problem, notes: Counts
) -> Iterator[Block]:
    reader = _Reader()
    dates = _Dates()
    ended: pa.RecordBatch | None = None
    chunks = _joined(head, content)
    while ended is None:
        try:
            chunk = next(chunks, None)
            if chunk is None:
                if not problem.reason:
                    reader.finish()
                break
            reader.read(chunk)
            if reader.held() >= ROWS:
                yield from _found(path, reader, line, dates)
        except _NoSitemapError as e:
            ended = rejected_rows(path, [line], "not_a_sitemap", [f"<{e}> {_shown(head)}"])
        except (DefusedXmlException, _UnsafeError) as e:
            ended = rejected_rows(path, [-1], "unsafe_xml", [f"line {reader.line(line)}: {_said(e)}"])
        except SAXParseException as e:
            if reader.done:
                break  # what a server appends to a whole sitemap does no harm
            reason = "truncated_file" if chunk is None else "unreadable_file"
            ended = rejected_file(path, reason, f"line {reader.line(line)}: {e.getMessage()}")
        except (LookupError, ValueError) as e:  # whatever else a parser may say of bytes, a night goes on
            ended = rejected_file(path, "unreadable_file", f"line {reader.line(line)}: {_said(e)}")
    yield from _found(path, reader, line, dates)
    if problem.reason:
        ended = rejected_file(path, problem.reason, f"line {reader.line(line)}: {problem.sample}")
    if ended is not None:
        yield ended
    _note(reader, dates, notes)


def _said(error: Exception) -> str:
    return str(error) if isinstance(error, _UnsafeError) else f"{type(error).__name__}: {error}"


class _Dates:
    """How often each date occurs; exact up to `MAX_DISTINCT` of them."""

    def __init__(self) -> None:
        self.total = 0
        self._counts: Counter[str] = Counter()

    def add(self, texts: list[str]) -> None:
        self.total += len(texts)
        self._counts.update(texts)
        if len(self._counts) > MAX_DISTINCT:
            self._counts = Counter(dict(self._counts.most_common(KEPT_DISTINCT)))

    def is_one(self) -> bool:
        """Whether nearly all are the same."""
        return self.total >= MIN_DATES and max(self._counts.values()) >= ONE_DATE_SHARE * self.total


def _found(path: str, reader: _Reader, line: int, dates: _Dates) -> Iterator[Block]:
    """What the reader holds; it holds nothing then."""
    urls, lastmods, lines, missing = reader.taken()
    if missing:
        numbers = [line - 1 + at for at, _ in missing]
        yield rejected_rows(path, numbers, "no_loc", [text or "(no lastmod)" for _, text in missing])
    if urls:
        dates.add([text for text in lastmods if text])
        texts = pa.array(lastmods, pa.string())
        yield _block(pa.array(urls, pa.string()), texts, [line - 1 + at for at in lines])


def _note(reader: _Reader, dates: _Dates, notes: Counts) -> None:
    if reader.children is not None:
        notes.add("sitemaps_index", 1)
        notes.add("sitemaps_index_children", reader.children)
    if reader.news:
        # Two days of news have few dates by their nature.
        notes.add("sitemaps_news", 1)
    elif dates.is_one():
        notes.add("sitemaps_one_lastmod", 1)


class _Texts(ContentHandler):
    """Gathers the text of one element at a time."""

    def __init__(self) -> None:
        super().__init__()
        self.parts: list[str] = []
        self.size = 0

    def characters(self, content: str) -> None:
        if self.size <= MAX_URL_BYTES:  # one byte more is enough to see that it is too long
            self.parts.append(content)
            self.size += len(content)


# Local name of the root: that of an item, its depth, and the local names of its URL and of its dates, the
# better one first.
_KINDS = {
    "urlset": ("url", 2, "loc", ("lastmod",)),
    "rss": ("item", 3, "link", ("pubDate", "date")),
    "RDF": ("item", 2, "link", ("date",)),
    "feed": ("entry", 2, "link", ("updated", "published")),
}


class _Reader(DefusedExpatParser):
    """Events of the parser to URLs and dates.

    Names are compared with their prefixes: `image:loc` is no `loc`, but in `sit:url` a `sit:loc` is one.
    """

    def __init__(self) -> None:
        super().__init__()
        # What comes is UTF-8, whatever the file declares.
        self._source.setEncoding("utf-8")
        self._texts = _Texts()
        self.setContentHandler(self._texts)
        self.urls: list[str] = []
        self._dates: list[str | None] = []
        self._lines: list[int] = []
        self._missing: list[tuple[int, str | None]] = []
        self.children: int | None = None
        self.news = self.done = False
        self._depth, self._item_depth = 0, -1
        self._in_item = False
        self._item = self._loc = ""
        self._fields: dict[str, str] = {}
        self._field: str | None = None
        self._found: dict[str, str] = {}
        self._date_names: tuple[str, ...] = ()
        self._alive, self._silent = False, 0
        self._is_link_in_attribute = False
        self._names: set[str] = set()

    def reset(self) -> None:
        """As of the base class, but that text outside of wanted elements costs nothing."""
        super().reset()
        self._parser.CharacterDataHandler = None
        self._parser.AttlistDeclHandler = self._refuse_defaults

    def _refuse_defaults(self, *of: object) -> None:
        # Every element would get them: few bytes that cost much.
        raise _UnsafeError(f"declares attributes of elements: {of[0]}")

    def read(self, data: bytes) -> None:
        """Parse some bytes."""
        self._alive = False
        self.feed(data)
        self._silent = 0 if self._alive else self._silent + len(data)
        if self._silent > MAX_TOKEN_BYTES and not self.done:
            raise _UnsafeError(f"nothing ends in {self._silent} bytes, more than {MAX_TOKEN_BYTES}")

    def finish(self) -> None:
        """Parse what is held back."""
        self.close()

    def line(self, first: int) -> int:
        """Line of the file that the parser is at, if it began with line `first`."""
        return first - 1 + (self.getLineNumber() or 1)

    def held(self) -> int:
        """Items since the last call of `taken`."""
        return len(self.urls) + len(self._missing)

    def taken(self) -> tuple[list[str], list[str | None], list[int], list[tuple[int, str | None]]]:
        """URLs, their dates and lines, and lines and dates of items without URL, since the last call."""
        out = self.urls, self._dates, self._lines, self._missing
        self.urls, self._dates, self._lines, self._missing = [], [], [], []
        return out

    def start_element(self, name: str, attrs: dict[str, str]) -> None:
        """An element begins."""
        self._alive = True
        self._depth += 1
        depth = self._depth
        if name not in self._names or not self._names.issuperset(attrs):
            self._names.add(name)
            self._names.update(attrs)
            if len(self._names) > MAX_NAMES:
                raise _UnsafeError(f"more than {MAX_NAMES} names of elements and attributes")
        if depth > self._item_depth + 1:
            if self._field is not None:  # only text of the element itself counts
                self._take_field()
            if depth > MAX_DEPTH:
                raise _UnsafeError(f"elements nest more than {MAX_DEPTH} deep")
            if depth == 1:
                self._root(name)
        elif depth == self._item_depth + 1:
            if self._in_item:
                if name in self._fields:
                    self._begin_field(name, attrs)
                elif name.startswith("news:"):
                    self.news = True
        elif depth == self._item_depth:
            self._in_item = name == self._item
            self._found = {}

    def _root(self, name: str) -> None:
        prefix, _, local = name.rpartition(":")
        prefix = f"{prefix}:" if prefix else ""
        if local == "sitemapindex":
            self.children, self._item, self._item_depth = 0, f"{prefix}sitemap", 2
            return
        if local not in _KINDS:
            raise _NoSitemapError(name[:100])
        item, self._item_depth, loc, self._date_names = _KINDS[local]
        if local == "RDF":  # the root has a prefix of its own
            prefix = ""
        self._item, self._loc = prefix + item, loc
        self._fields = {prefix + field: field for field in (loc, *self._date_names)}
        if local in ("rss", "RDF"):
            self._fields |= {"dc:date": "date"}
        if local == "rss":
            self._fields["guid"] = "guid"
        self._is_link_in_attribute = local == "feed"

    def _begin_field(self, name: str, attrs: dict[str, str]) -> None:
        field = self._fields[name]
        if field == "link" and self._is_link_in_attribute:
            if attrs.get("rel", "alternate") == "alternate":
                self._found.setdefault("link", attrs.get("href", "")[: MAX_URL_BYTES + 1])
            return
        if field == "guid" and attrs.get("isPermaLink", "true") != "true":
            return
        self._field = field
        self._parser.CharacterDataHandler = self._texts.characters

    def _take_field(self) -> None:
        # Before the text is taken: the parser hands over what it holds when its handler changes.
        self._parser.CharacterDataHandler = None
        field, texts = self._field, self._texts
        self._field = None
        assert field is not None
        text = "".join(texts.parts).strip()
        texts.parts, texts.size = [], 0
        before = self._found.get(field)
        if field in self._date_names:
            # Two dates of one page are none.
            text = text if before is None else f"{before} {text}"
            text = text[:_MAX_DATE_CHARACTERS]
        elif before:
            return
        self._found[field] = text

    def end_element(self, name: str) -> None:
        """An element ends."""
        self._alive = True
        depth = self._depth
        self._depth = depth - 1
        if self._field is not None:
            self._take_field()
        elif depth == self._item_depth and self._in_item:
            self._in_item = False
            self._end_item()
        elif depth == 1:
            self.done = True

    def _end_item(self) -> None:
        if self.children is not None:
            self.children += 1
            return
        found = self._found
        url = found.get(self._loc) or found.get("guid")
        date = next((found[n] for n in self._date_names if found.get(n)), None)
        at = self._parser.CurrentLineNumber
        if url:
            self.urls.append(url)
            self._dates.append(date)
            self._lines.append(at)
        else:
            self._missing.append((at, date))
