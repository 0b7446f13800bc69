"""Page and host keys of whole columns of URLs.

A page is its URL as it came (outer white space apart). A host is the politeness key: the host of the URL as
the WHATWG URL standard reads it, in its canonical spelling, without port, so that `http` and `https`, ports
and spellings of one host share one limit. Only URLs whose authority was not seen before reach the URL
library; all others find their host by the hash of the text up to the end of the authority.
"""

import re
import threading
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from itertools import product
from urllib.parse import quote, unquote, urlsplit, urlunsplit

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from ada_url import parse_url
from numpy.typing import NDArray
from publicsuffixlist import PublicSuffixList

from transforms.batches.hashing import hash_texts_and_prefixes, stable_hash
from transforms.batches.texts import Hashes, Texts

__all__ = [
    "HostTable",
    "Located",
    "canonical_host",
    "hash_urls",
    "locate",
    "other_forms",
    "site",
    "stable_hash",
    "trim",
]

MAX_URL_BYTES = 8192
MAX_HOST_BYTES = 253
# Beyond this many authorities the cache starts anew; a worker's memory must not grow with the crawl.
MAX_AUTHORITIES = 1 << 21

OK, NO_URL, URL_TOO_LONG, BAD_URL = range(4)
REASONS = ("", "no_url", "url_too_long", "bad_url")

_RESERVED = "%/:?#[]@!$&'()*+,;=~"
_BLANKS = "".join(map(chr, range(33)))
# What ends before the first / ? or #, as the prefix that is hashed does, or earlier.
_AUTHORITY = re.compile(rb"https?://[^/?#][^/?#]*", re.IGNORECASE)
# Parsers of other standards see another host where these are not kept: a backslash is a slash for one and a
# letter for the next, of two @ one takes the first and one the last, and some guess at missing slashes.
_PLAIN = re.compile(
    r"https?://(?:[\w.~!$&'()*+,;=:%-]*@)?[^\\/?#@\x00-\x20\x7f]+(?:[/?#].*)?", re.I | re.A | re.S
)
# The URL standard takes more signs for a name than any registry gives out, and spreadsheets run some of them.
_NAME = re.compile(r"[a-z0-9_][a-z0-9_-]*(?:\.[a-z0-9_-]+)*|\[[0-9a-f:.]+\]")


def hash_urls(array: pa.Array) -> tuple[Hashes, Hashes]:
    """Hash every URL and its authority in one pass.

    Parameters
    ----------
    array : pa.Array of n string, large_string, binary or large_binary values

    Returns
    -------
    url_hash : uint64 (n,)
        `stable_hash` of the bytes of each URL. A null counts as the empty text.
    authority_hash : uint64 (n,)
        `stable_hash` of the URL up to the end of its authority. Equal hashes mean equal hosts; two hashes
        may still mean one host (scheme, port, spelling). URLs without `http(s)://` keep their whole hash.
    """
    if pa.types.is_dictionary(array.type):
        array = array.cast(array.type.value_type)
    return hash_texts_and_prefixes(Texts(array))


def canonical_host(url: str) -> str | None:
    """The politeness key of a URL: its host in the canonical spelling of the WHATWG URL standard.

    Lower case, percent-decoded, IDNA to ASCII, numeric forms of IPv4 as four decimals, IPv6 compressed in
    brackets; no port, no trailing dots.

    Returns
    -------
    str or None
        None where the URL is not http or https, cannot be parsed, or would be read as another host by a
        parser of another standard; where its host is longer than 253 bytes, or has other signs than letters,
        digits, hyphens and underscores.
    """
    if not _PLAIN.fullmatch(url):
        return None
    try:
        parts = parse_url(url, attributes=("protocol", "hostname"))
    except (ValueError, UnicodeError):
        return None
    if parts["protocol"] not in ("http:", "https:"):
        return None
    host: str = parts["hostname"].rstrip(".")
    return host if len(host) <= MAX_HOST_BYTES and _NAME.fullmatch(host) else None


class HostTable:
    """A cache from authority to host, for the batches of one worker.

    Looking up is vectorised: a batch's distinct authorities are searched in a sorted array. Threads may
    share a table.
    """

    def __init__(self, max_authorities: int = MAX_AUTHORITIES) -> None:
        self.max_authorities = max_authorities
        self.parse_calls = 0
        self._lock = threading.Lock()
        self._known: tuple[Hashes, Hashes] = (np.empty(0, np.uint64), np.empty(0, np.uint64))
        self._texts: dict[int, str] = {}

    def __len__(self) -> int:
        return len(self._known[0])

    def __reduce__(self) -> tuple[type, tuple[int]]:
        """A cache does not travel: a copy on another worker starts empty."""
        return HostTable, (self.max_authorities,)

    def host(self, host_hash: int) -> str:
        """The text of a host that this table has seen. KeyError if it has not."""
        return self._texts[int(host_hash)]

    def find(self, authority_hash: Hashes, texts: Texts) -> Hashes:
        """Host hashes of n URLs, 0 where a URL has no usable host: uint64 (n,)."""
        encoded = pa.array(authority_hash).dictionary_encode()
        codes = encoded.indices.to_numpy()
        distinct = encoded.dictionary.to_numpy()
        hosts, unknown = self._lookup(distinct)
        if len(unknown):
            first = np.empty(len(distinct), np.int64)
            first[codes[::-1]] = np.arange(len(codes) - 1, -1, -1)
            with self._lock:
                # Another thread may have been here first.
                hosts, unknown = self._lookup(distinct)
                if len(unknown):
                    hosts[unknown] = [self._ask(texts, row) for row in first[unknown].tolist()]
                    self._learn(distinct[unknown], hosts[unknown])
        return hosts.take(codes)

    def _lookup(self, distinct: Hashes) -> tuple[Hashes, NDArray[np.intp]]:
        keys, values = self._known
        if not len(keys):
            return np.zeros(len(distinct), np.uint64), np.arange(len(distinct))
        at = np.minimum(np.searchsorted(keys, distinct), len(keys) - 1)
        missing = keys[at] != distinct
        return np.where(missing, np.uint64(0), values[at]), np.flatnonzero(missing)

    def _ask(self, texts: Texts, row: int) -> int:
        start, size = int(texts.start[row]), int(texts.size[row])
        raw = texts.data[start : start + size].tobytes()
        match = _AUTHORITY.match(raw)
        try:
            text = (match[0] if match else raw).decode()
        except UnicodeDecodeError:
            return 0
        self.parse_calls += 1
        host = canonical_host(text)
        if host is None:
            return 0
        # 0 means "no host"; no host is known that hashes to it.
        key = stable_hash(host) or 1
        if self._texts.setdefault(key, host) != host:
            raise RuntimeError(f"hosts {host} and {self._texts[key]} have the same hash {key}")
        return key

    def _learn(self, authorities: Hashes, hosts: Hashes) -> None:
        keys, values = self._known
        if len(keys) + len(authorities) <= self.max_authorities:
            authorities, hosts = np.concatenate([keys, authorities]), np.concatenate([values, hosts])
        order = np.argsort(authorities)
        self._known = (authorities[order], hosts[order])


_SHARED = HostTable()


@dataclass(frozen=True)
class Located:
    """Where the n URLs of a batch belong.

    Attributes
    ----------
    urls : pa.Array (n,)
        The URLs without outer white space.
    url_hash, host_hash : uint64 (n,)
        0 where `reason` is not 0.
    reason : uint8 (n,)
        0, or an index into `REASONS`.
    """

    urls: pa.Array
    url_hash: Hashes
    host_hash: Hashes
    reason: NDArray[np.uint8]
    table: HostTable

    @property
    def valid(self) -> NDArray[np.bool_]:
        """Rows with a usable URL: bool (n,)."""
        return self.reason == OK

    def hosts(self) -> dict[int, str]:
        """Texts of the hosts of this batch, by host hash."""
        distinct = pc.unique(pa.array(self.host_hash)).to_pylist()
        return {key: self.table.host(key) for key in distinct if key}

    def host_texts(self) -> pa.Array:
        """The host of each URL, null where there is none: (n,) string."""
        encoded = pa.array(self.host_hash).dictionary_encode()
        texts = [self.table.host(key) if key else None for key in encoded.dictionary.to_pylist()]
        return pa.array(texts, pa.string()).take(encoded.indices)


def trim(array: pa.Array) -> pa.Array:
    """The texts without white space and control characters at their ends; the same array if none has any."""
    texts = Texts(array)
    if not _has_blank_ends(texts):
        return array
    kind = array.type
    if pa.types.is_binary(kind):
        return pc.ascii_trim(array.view(pa.string()), characters=_BLANKS).view(kind)
    if pa.types.is_large_binary(kind):
        return pc.ascii_trim(array.view(pa.large_string()), characters=_BLANKS).view(kind)
    return pc.ascii_trim(array, characters=_BLANKS)


def _has_blank_ends(texts: Texts) -> bool:
    # One pass over all bytes is much faster than one over the ends, and most URLs have no blank anywhere.
    if texts.span().min(initial=255) > 32:
        return False
    for a, b in texts.chunks():
        start, size = texts.start[a:b], texts.size[a:b]
        end = start + size
        end -= 1
        # An empty text looks at a byte of its neighbours: at worst the slow path is taken for nothing.
        low = texts.data.take(start, mode="clip") <= 32
        low |= texts.data.take(end, mode="clip") <= 32
        low &= size > 0
        if low.any():
            return True
    return False


def _with_controls(texts: Texts) -> NDArray[np.intp]:
    """Rows with a control character: one that ends a line, hides text, or turns it around for some reader.

    C0, DEL and C1, which are in no URL, the separators of lines and paragraphs, and the signs for the
    direction of text, which RFC 3987 forbids.
    """
    span = texts.span()
    # One pass tells that there is nothing but visible ASCII.
    if not len(span) or (span - np.uint8(0x20)).max() < 0x5F:
        return np.empty(0, np.intp)
    odd = np.flatnonzero((span < 0x20) | (span >= 0x7F))
    first = span[odd]
    second, third = (span.take(odd + i, mode="clip") for i in (1, 2))
    found = (first < 0x20) | (first == 0x7F)
    found |= (first == 0xC2) & (second < 0xA0)
    found |= (first == 0xD8) & (second == 0x9C)  # U+061C
    after = third - np.uint8(0x8E)
    found |= (first == 0xE2) & (second == 0x80) & ((after < 2) | ((third >= 0xA8) & (third <= 0xAE)))
    found |= (first == 0xE2) & (second == 0x81) & (third >= 0xA6) & (third <= 0xA9)
    at = odd[found] + int(texts.start[0])
    row = np.searchsorted(texts.start, at, side="right") - 1
    return np.unique(row[at < texts.start[row] + texts.size[row]])


def locate(
    urls: pa.Array,
    table: HostTable | None = None,
    hashes: Callable[[Texts], tuple[Hashes, Hashes]] = hash_texts_and_prefixes,
) -> Located:
    """Find the page and host keys of a column of URLs.

    Parameters
    ----------
    urls : pa.Array of n string, large_string, binary or large_binary values
    table : HostTable, optional
        The cache to use; one shared by the process if None.
    hashes : callable
        What `url_hash` is, and the hashes of prefixes, as `hash_texts_and_prefixes` tells them.

    Returns
    -------
    Located
        A null or empty URL is `no_url`, one above 8 KiB `url_too_long`, one that is not http(s), has no host
        (see `canonical_host`), or has control characters within `bad_url`.
    """
    table = _SHARED if table is None else table
    if isinstance(urls, pa.ChunkedArray):
        urls = urls.combine_chunks()
    if pa.types.is_dictionary(urls.type):
        urls = urls.cast(urls.type.value_type)
    urls = trim(urls)
    texts = Texts(urls)
    reason = np.zeros(len(texts), np.uint8)
    empty = texts.size == 0
    if empty.any():
        reason[empty] = NO_URL
    long = texts.size > MAX_URL_BYTES
    if long.any():
        reason[long] = URL_TOO_LONG
        texts.size[long] = 0
    url_hash, authority_hash = hashes(texts)
    host_hash = table.find(authority_hash, texts)
    host_hash[_with_controls(texts)] = 0
    bad = host_hash == 0
    if bad.any():
        reason[bad & (reason == OK)] = BAD_URL
        url_hash[bad] = 0
    return Located(urls, url_hash, host_hash, reason, table)


def site(host: str) -> str:
    """What is registered of a host, `shop.co.uk` of `www.shop.co.uk`, by the Public Suffix List."""
    if host.startswith("[") or host.rsplit(".", 1)[-1].isdigit():
        return host
    return _suffixes().privatesuffix(host) or host


@cache
def _suffixes() -> PublicSuffixList:
    return PublicSuffixList()


def other_forms(url: str) -> list[str]:
    """Spellings under which a log may have a URL: scheme, slash at the end, percent-encoding."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return []
    plain = unquote(parts.path)
    paths = dict.fromkeys((parts.path, quote(plain, _RESERVED), quote(parts.path, _RESERVED), plain))
    slashed = [p[:-1] if p.endswith("/") and len(p) > 1 else f"{p}/" for p in paths]
    found = dict.fromkeys(
        urlunsplit(parts._replace(scheme=scheme, path=path))
        for scheme, path in product(("https", "http"), (*paths, *slashed))
    )
    found.pop(url, None)
    return list(found)
