"""Rows of links: presences and polls for a replay, links seen and sources for the discovery job.

Sources and targets are told apart by texts: what campaigns and fragments add is cut off as from URLs of
requests (`transforms.rows.joining`), and the scheme too: of http and https one redirects to the other, and
lists of links often leave it out. A log names the same source in every row of a fetch, and the same targets
in every fetch, so URLs are looked at once each a block.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from policies.numerics.typing_ import IntArray
from transforms.batches import columns, schemas, times
from transforms.batches.hashing import hash_pages, hash_texts
from transforms.batches.texts import Hashes
from transforms.batches.urls import NO_URL, REASONS, HostTable, Located, locate, site
from transforms.rows.joining import page_urls
from transforms.rows.raw_rows import Made, Mask, RawRows, read, read_time

_HTTPS = "https://"
_NOT_MODIFIED = 304
_OTHER_SCHEME = r"^\s*(?i:mailto|javascript|tel|data|ftp|about|sms|whatsapp|blob|file):"
_NO_SCHEME = r"^(?i:https?)://"


def with_scheme(urls: pa.Array) -> pa.Array:
    """URLs that begin with their host, as `example.org/news`, as https ones: (n,) string."""
    texts = pc.utf8_trim_whitespace(urls)
    other = pc.match_substring_regex(texts, r"^(?:[A-Za-z][A-Za-z0-9+.-]*:(?:[^0-9]|$)|[/?#]|$)")
    return pc.if_else(other, texts, pc.binary_join_element_wise("https://", texts, ""))


def page_texts(urls: pa.Array) -> tuple[pa.Array, Hashes]:
    """URLs without their scheme, and the stable hashes of these: string and uint64 (n,).

    A host without a path is its root page.
    """
    texts = pc.replace_substring_regex(urls.cast(pa.string()), _NO_SCHEME, "", max_replacements=1)
    root = pc.invert(pc.match_substring_regex(texts, r"[/?]"))
    texts = pc.fill_null(pc.if_else(root, pc.binary_join_element_wise(texts, "/", ""), texts), "")
    return texts, hash_texts(texts)


def sites(found: Located) -> pa.Array:
    """Registered domains of the hosts of URLs, null where there is no usable one: string (n,)."""
    keys = pa.array(found.host_hash).dictionary_encode()
    names = [site(found.table.host(key)) if key else None for key in keys.dictionary.to_pylist()]
    return pa.array(names, pa.string()).take(keys.indices)


@dataclass(frozen=True)
class _Urls:
    """Distinct URLs of a column, and which of them each row has.

    Attributes
    ----------
    urls : pa.Array (m,) string
        Null where there is no usable one.
    code : (n,) int32
    text_hash, host_hash : (m,) uint64
    site : pa.Array (m,) string
        Their registered domains, null where there is no usable one.
    reason : (m,) uint8
        An index into `REASONS`.
    web : (m,) bool
        Whether it may be a page: not `mailto:` and the like.
    """

    urls: pa.Array
    code: IntArray
    text_hash: Hashes
    host_hash: Hashes
    site: pa.Array
    reason: np.ndarray
    web: Mask

    def rows(self, values: np.ndarray) -> np.ndarray:
        """Values of distinct URLs for each row."""
        return values.take(self.code)

    def keys(self) -> dict[str, pa.Array]:
        """The keys of each row's page and host."""
        return {
            "url_hash": pa.array(self.rows(self.text_hash)),
            "host_hash": pa.array(self.rows(self.host_hash)),
        }

    def column(self, missing: Mask | None = None) -> pa.Array:
        """The URL of each row, null where it is missing."""
        return pa.DictionaryArray.from_arrays(pa.array(self.code, mask=missing), self.urls)


def _distinct(block: RawRows, name: str, table: HostTable | None) -> _Urls:
    raw = block.column(name)
    assert raw is not None
    if not pa.types.is_dictionary(raw.type):
        raw = (raw.cast(pa.string()) if pa.types.is_null(raw.type) else raw).dictionary_encode()
    texts, broken = columns.text(raw.dictionary)
    if broken is not None:
        texts = pc.if_else(pa.array(broken), None, texts)
    # One more for rows without any.
    texts = pa.concat_arrays([texts.cast(pa.string()), pa.array([None], pa.string())])
    code = pc.fill_null(raw.indices.cast(pa.int32()), len(texts) - 1).to_numpy(zero_copy_only=False)
    web = np.ones(len(texts), np.bool_)
    if not pc.all(
        pc.or_(pc.starts_with(texts, _HTTPS), pc.starts_with(texts, "http://"))
    ).as_py():  # what most logs have costs less
        web = ~np.asarray(pc.fill_null(pc.match_substring_regex(texts, _OTHER_SCHEME), False))
        texts = pc.if_else(pa.array(web), with_scheme(texts), texts)  # tel:80 is no host with a port
    found = locate(page_urls(texts, block.tracking), table, hash_pages)
    urls = pc.if_else(pa.array(found.valid), found.urls, None)
    text_hash = page_hashes(urls, found.url_hash)
    if broken is not None:
        block.reject(np.append(broken, False)[code], "bad_utf8", name)
    return _Urls(urls, code, text_hash, found.host_hash, sites(found), found.reason, web)


def page_hashes(urls: pa.Array, known: Hashes) -> Hashes:
    """The hashes of `page_texts`, mostly without making the texts: uint64 (n,).

    Parameters
    ----------
    urls : pa.Array (n,) string
    known : (n,) uint64
        Of `hash_pages`.
    """
    odd, made = known == 0, known.copy()
    made[odd] = page_texts(urls.filter(pa.array(odd)))[1]
    return made


def _source(block: RawRows, table: HostTable | None, name: str = "source") -> _Urls:
    found = _distinct(block, name, table)
    for code, reason in enumerate(REASONS):
        if code and (found.reason == code).any():
            block.reject(found.rows(found.reason == code), reason, name)
    return found


def _ok(block: RawRows, unchanged: bool | None) -> pa.Array:
    """Whether fetches did not fail, as far as their status says; `unchanged` for what was not modified."""
    status = read(block, "status", columns.status, pa.int16())
    good = pc.fill_null(pc.and_(pc.greater_equal(status, 200), pc.less(status, 300)), True)
    same = pc.fill_null(pc.equal(status, _NOT_MODIFIED), False)
    return pc.if_else(same, pa.scalar(unchanged, pa.bool_()), good)


def links(block: RawRows, table: HostTable | None) -> Made:
    """Presences: what `schemas.LINKS` has, and the keys of the sources."""
    source, target = _source(block, table), _distinct(block, "target", table)
    of = pa.array(source.code)
    block.reject(target.rows(target.reason != 0), "bad_target", "target")
    appeared, gone = read_time(block, "appeared_at"), read(block, "gone_at", _times(block), schemas.TIME)
    early = np.asarray(pc.fill_null(pc.less(gone, appeared), False))
    block.reject(early, "gone_before_appeared", "gone_at")
    domain = block.column("domain")
    named = block.nulls(pa.string()) if domain is None else columns.clean(columns.text(domain)[0])[0]
    named = pc.utf8_trim_whitespace(named.cast(pa.string()))
    given = pc.fill_null(pc.not_equal(named, ""), False)
    return {
        "source": page_texts(source.urls)[0].take(of),
        "target_hash": pa.array(target.rows(target.text_hash)),
        "appeared_at": appeared,
        "gone_at": gone,
        "domain": pc.if_else(given, named, source.site.take(of)),
        "given": given,
    }, source.keys()


def _times(block: RawRows) -> Callable[[pa.Array], tuple[pa.Array, Mask | None]]:
    return lambda array: times.parse_times(array, clock=block.clock)


def snapshots(block: RawRows, table: HostTable | None) -> Made:
    """Polls: what `schemas.SNAPSHOTS` has, and the keys of the sources."""
    source = _source(block, table)
    of = pa.array(source.code)
    return {
        "source": page_texts(source.urls)[0].take(of),
        "seen_at": read_time(block, "seen_at"),
        "ok": _ok(block, True),
        "domain": source.site.take(of),
    }, source.keys()


def links_seen(block: RawRows, table: HostTable | None) -> Made:
    """What `schemas.LINKS_SEEN` has, and the keys of the sources."""
    source, target = _source(block, table), _distinct(block, "target", table)
    bad = (target.reason > NO_URL) & target.web
    if bad.any():
        block.reject(target.rows(bad), "bad_target", "target")
    none = target.rows(target.reason != 0)
    seen_at = read_time(block, "seen_at")
    # Seconds are as exact as crawl logs are, and take half the state.
    seconds = pc.multiply(pc.divide(seen_at.cast(pa.int64()), 1_000_000), 1_000_000)
    other = source.rows(hash_texts(source.site)) != target.rows(hash_texts(target.site))
    return {
        "source": source.column(),
        "target": target.column(none),
        "seen_at": seconds.cast(seen_at.type),
        "ok": _ok(block, None),
        "target_hash": pa.array(target.rows(target.text_hash)),
        "partial": pc.fill_null(read(block, "partial", columns.flag, pa.bool_()), False),
        "off_site": pa.array(~none & other),
    }, source.keys()


def sources(block: RawRows, table: HostTable | None) -> Made:
    """Listed sources: what `schemas.SOURCES` has, and their keys."""
    found = _source(block, table, "url")
    return {"url": found.column().cast(pa.string())}, found.keys()
