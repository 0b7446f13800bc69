"""What logs of web servers have in common: which requests are clicks, and of which site."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from transforms.batches.errors import InputError, NoSiteError
from transforms.batches.texts import Texts
from transforms.batches.urls import canonical_host
from transforms.dialects import Source
from transforms.files.blocks import Block, RawBlock
from transforms.rows.bots import REASONS, Visitors
from transforms.rows.normalise import rejected_rows

Ints = NDArray[np.int64]
Mask = NDArray[np.bool_]
# A host: of letters, so that neither an address nor a version is taken for one where columns are unknown.
NAME = rb"(?:[A-Za-z0-9](?:[A-Za-z0-9_-]*[A-Za-z0-9])?\.)+[A-Za-z][A-Za-z0-9-]*[A-Za-z0-9]"
_HOST = re.compile(rb"([A-Za-z0-9][A-Za-z0-9_.-]*|\[[0-9A-Fa-f:.]+\])(?::(\d{1,5}))?")
_NO_PAGE = ("/robots.txt", "/favicon.ico")
_ESCAPE = re.compile(rb"\\(?:x([0-9A-Fa-f]{2})|(.))", re.DOTALL)
_CONTROL = {"n": 10, "r": 13, "t": 9, "v": 11, "b": 8, "f": 12}


@dataclass(frozen=True)
class Requests:
    """GET requests with a good status, in the order of their lines.

    Attributes
    ----------
    line : int64 (n,)
    target : pa.Array (n,) of binary
        What was asked for: a path with its query, or a whole URL.
    at : pa.Array (n,)
    agent : pa.Array (n,) of binary
        Null where the log has none.
    host : pa.Array (n,) of binary
        With or without port; null where the line has none.
    """

    line: NDArray[np.int64]
    target: pa.Array
    at: pa.Array
    agent: pa.Array
    host: pa.Array

    def merge(self, other: Requests) -> Requests:
        """Those of two, in the order of their lines."""
        if not len(self.line) or not len(other.line):
            return self if len(self.line) else other
        line = np.concatenate([self.line, other.line])
        order = np.argsort(line, kind="stable")
        index = pa.array(order)
        names = ("target", "at", "agent", "host")
        both = (pa.concat_arrays([getattr(self, name), getattr(other, name)]) for name in names)
        return Requests(line[order], *(array.take(index) for array in both))


class Lines:
    """Where the lines of a block are.

    Attributes
    ----------
    data : uint8 (bytes,)
    start, end : int64 (lines,)
        Without the line end.
    """

    def __init__(self, block: bytes) -> None:
        self.block = block
        self.data = np.frombuffer(block, np.uint8)
        end = np.flatnonzero(self.data == 10)
        if not block.endswith(b"\n"):
            end = np.append(end, len(self.data))
        self.start = np.concatenate([np.zeros(1, np.int64), end[:-1] + 1])
        if b"\r" in block:
            end = end - (self.has(end - 1, 13) & (end > self.start))
        self.end = end

    def has(self, at: Ints, byte: int) -> Mask:
        """Whether there is a byte: bool (n,) for int64 (n,)."""
        return self.data.take(at, mode="clip") == byte

    def texts(self, start: Ints, end: Ints, null: Mask | None = None) -> pa.Array:
        """Parts of the block, in its order and apart from each other: binary (n,)."""
        n = len(start)
        # Every other text is what lies between them; no block has more bytes than 31 bits count.
        offsets = np.empty(2 * n + 1, np.int32)
        offsets[0:-1:2], offsets[1::2] = start, end
        offsets[-1] = end[-1] if n else 0
        parts = [None, pa.py_buffer(offsets), pa.py_buffer(self.block)]
        whole = pa.Array.from_buffers(pa.binary(), 2 * n, parts)
        return whole.take(pa.array(np.arange(0, 2 * n, 2), mask=null))


def good_status(status: NDArray[np.integer]) -> NDArray[np.bool_]:
    """Which answers are of a page that somebody saw: 2xx, and 304, which a browser had before."""
    return (status >= 200) & (status < 300) | (status == 304)


def unescape(target: bytes) -> bytes:
    r"""A logged target as a URL: `\"`, `\\`, `\xhh` become `%hh`."""

    def percent(found: re.Match[bytes]) -> bytes:
        code = int(found[1], 16) if found[1] else _CONTROL.get(found[2].decode("latin-1"), found[2][0])
        return b"%%%02X" % code

    return _ESCAPE.sub(percent, target)


class Clicks:
    """From the requests of a file to rows of clicks; what is left out is counted."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self._visitors = Visitors(source.options.get("own_user_agent", ""))
        self._site = site_of_option(source.options.get("requests_site", ""))
        self._seen_host = False

    @property
    def has_site(self) -> bool:
        """Whether somebody told the site: that is better than a guess."""
        return bool(self._site)

    def leave_out(self, reason: str, rows: int) -> None:
        """Count lines that are no clicks."""
        self._source.leave_out(reason, int(rows))

    def rows(self, requests: Requests) -> Iterator[Block]:
        """Rows of requests, and rejected ones of those whose host nobody told.

        Raises
        ------
        NoSiteError
            If the first click of a file has no host and `requests_site` does not say it.
        """
        whose = self._visitors.of(requests.agent)
        for code, reason in enumerate(REASONS):
            if code:
                self.leave_out(reason, int((whose == code).sum()))
        use = np.flatnonzero(whose == 0)
        target = requests.target.take(pa.array(use))
        extra = _no_pages(target)
        if extra.any():
            self.leave_out("robots_or_icon", int(extra.sum()))
            use, target = use[~extra], target.filter(pa.array(~extra))
        if not len(use):
            return
        line, at = requests.line[use], requests.at.take(pa.array(use))
        # What begins with a path is none.
        whole = ~np.asarray(pc.starts_with(target, b"/"))
        site = self._sites(requests.host.take(pa.array(use)), whole)
        unknown = np.asarray(site.is_null())
        if unknown.any():
            first = int(np.flatnonzero(unknown)[0])
            if not self._seen_host and not (~unknown[:first]).any():
                raise NoSiteError(
                    f"{self._source.path}: line {line[first]} does not say of which site it is: "
                    f"{_text(target[first])!r}. Give --requests_site https://HOST, or log the host, as "
                    "%v:%p in front of the line or %v behind it"
                )
            samples = [_text(t) for t in target.filter(pa.array(unknown))]
            yield rejected_rows(self._source.path, line[unknown].tolist(), "no_host", samples)
            keep = pa.array(~unknown)
            line, target, at, site = line[~unknown], target.filter(keep), at.filter(keep), site.filter(keep)
        self._seen_host = True
        url = pc.binary_join_element_wise(site, target, b"")
        if (Texts(url).span() == 32).any():
            url = pc.replace_substring(url, b" ", b"%20")
        clicks = pa.array(np.ones(len(line), np.int64))
        batch = pa.RecordBatch.from_arrays([url, at, clicks], names=["url", "at", "clicks"])
        yield RawBlock(batch, lambda: line)

    def _sites(self, hosts: pa.Array, whole: NDArray[np.bool_]) -> pa.Array:
        """What stands in front of each target; null where nobody tells."""
        encoded = hosts.dictionary_encode()
        found = [_site(host, self._site) or None for host in encoded.dictionary.to_pylist()]
        sites = pa.array([*found, self._site or None, b""], pa.binary())
        index = encoded.indices.fill_null(len(found)).to_numpy(zero_copy_only=False)
        none = np.array([site is None for site in found] + [False, False], np.bool_)
        index = np.where(whole, len(found) + 1, np.where(none[index], len(found), index))
        return sites.take(pa.array(index))


def site_of_option(text: str) -> bytes:
    """`https://shop.test` of whatever somebody typed for it, empty for nothing."""
    text = text.strip()
    if not text:
        return b""
    site = (text if "://" in text else f"https://{text}").rstrip("/")
    if canonical_host(site) is None or re.search(r"[/?#\s]", site.split("://", 1)[1]):
        raise InputError(f"--requests_site={text}: expected a scheme and a host, such as https://shop.test")
    return site.encode()


@lru_cache(maxsize=1 << 12)
def _site(host: bytes, default: bytes) -> bytes:
    """The site of a host with or without port; empty if the text is none.

    The port behind a proxy says little: it counts for the scheme, and it is kept where it is unusual. A
    site that was given says it better for its own host.
    """
    found = _HOST.fullmatch(host)
    if found is None:
        return b""
    name, port = found[1].lower(), found[2] or b""
    scheme, _, known = default.partition(b"://")
    if known.lower().rpartition(b":")[0] == name or known.lower() == name:
        return default
    if port in (b"", b"0", b"80", b"443"):
        if port != b"80":
            return (b"https://" if port == b"443" or not scheme else scheme + b"://") + name
        return b"http://" + name
    return (b"https://" if port.endswith(b"443") else b"http://") + name + b":" + port


def _no_pages(target: pa.Array) -> NDArray[np.bool_]:
    """Which targets are files for machines."""
    near = np.asarray(pc.or_(*(pc.starts_with(target, name.encode()) for name in _NO_PAGE)))
    rows = np.flatnonzero(near)
    found = np.zeros(len(target), np.bool_)
    found[rows] = [t.split(b"?", 1)[0].decode("latin-1") in _NO_PAGE for t in target.take(rows).to_pylist()]
    return found


def _text(value: pa.Scalar) -> str:
    return value.as_py()[:200].decode("utf-8", "replace")
