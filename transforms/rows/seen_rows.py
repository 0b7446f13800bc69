"""Rows of links seen: fetches of sources, and what they named.

A log names the same source in every row of a fetch, and the same targets in every fetch, so URLs are looked
at once each a block. Sources and targets are told apart as in `transforms.rows.link_rows`.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from policies.numerics.typing_ import IntArray
from transforms.batches import columns
from transforms.batches.hashing import Hashes, Texts, hash_of, hash_texts
from transforms.batches.urls import NO_URL, REASONS, HostTable, locate
from transforms.rows.joining import page_urls
from transforms.rows.link_rows import page_texts, sites, with_scheme
from transforms.rows.raw_rows import Made, Mask, RawRows, read, read_time

_HTTPS = "https://"
_OTHER_SCHEME = r"^\s*(?i:mailto|javascript|tel|data|ftp|about|sms|whatsapp|blob|file):"


@dataclass(frozen=True)
class _Urls:
    """Distinct URLs of a column, and which of them each row has.

    Attributes
    ----------
    urls : pa.Array (m,) string
        Null where there is no usable one.
    code : (n,) int32
    text_hash, host_hash, site_hash : (m,) uint64
    reason : (m,) uint8
        An index into `REASONS`.
    web : (m,) bool
        Whether it may be a page: not `mailto:` and the like.
    """

    urls: pa.Array
    code: IntArray
    text_hash: Hashes
    host_hash: Hashes
    site_hash: Hashes
    reason: np.ndarray
    web: Mask

    def rows(self, values: np.ndarray) -> np.ndarray:
        """Values of distinct URLs for each row."""
        return values.take(self.code)

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
        texts = with_scheme(texts)
    found = locate(page_urls(texts, block.tracking), table)
    urls = pc.if_else(pa.array(found.valid), found.urls, None)
    text_hash = page_hashes(urls)
    if broken is not None:
        block.reject(np.append(broken, False)[code], "bad_utf8", name)
    site_hash = hash_texts(sites(found))
    return _Urls(urls, code, text_hash, found.host_hash, site_hash, found.reason, web)


def page_hashes(urls: pa.Array) -> Hashes:
    """The hashes of `link_rows.page_texts`, mostly without making the texts: uint64 (n,)."""
    usual = pc.and_(pc.starts_with(urls, _HTTPS), pc.greater_equal(pc.count_substring(urls, "/"), 3))
    rows = np.asarray(pc.fill_null(usual, False))
    texts = Texts(urls)
    texts.start = texts.start + len(_HTTPS) * rows
    texts.size = np.where(rows, texts.size - len(_HTTPS), 0)
    made = hash_of(texts)
    if not rows.all():
        made[~rows] = page_texts(urls.filter(pa.array(~rows)))[1]
    return made


def links_seen(block: RawRows, table: HostTable | None) -> Made:
    """What `schemas.LINKS_SEEN` has, and the keys of the sources."""
    source, target = (_distinct(block, name, table) for name in ("source", "target"))
    for code, reason in enumerate(REASONS):
        if code and (source.reason == code).any():
            block.reject(source.rows(source.reason == code), reason, "source")
    bad = (target.reason > NO_URL) & target.web
    if bad.any():
        block.reject(target.rows(bad), "bad_target", "target")
    none = target.rows(target.reason != 0)
    seen_at = read_time(block, "seen_at")
    status = read(block, "status", columns.status, pa.int16())
    good = pc.and_(pc.greater_equal(status, 200), pc.less(status, 300))
    # Seconds are as exact as crawl logs are, and take half the state.
    seconds = pc.multiply(pc.divide(seen_at.cast(pa.int64()), 1_000_000), 1_000_000)
    return {
        "source": source.column(),
        "target": target.column(none),
        "seen_at": seconds.cast(seen_at.type),
        "ok": pc.fill_null(good, True),
        "target_hash": pa.array(target.rows(target.text_hash)),
        "partial": pc.fill_null(read(block, "partial", columns.flag, pa.bool_()), False),
        "off_site": pa.array(~none & (source.rows(source.site_hash) != target.rows(target.site_hash))),
    }, {
        "url_hash": pa.array(source.rows(source.text_hash)),
        "host_hash": pa.array(source.rows(source.host_hash)),
    }


def sources(block: RawRows, table: HostTable | None) -> Made:
    """Listed sources: what `schemas.SOURCES` has, and their keys."""
    found = _distinct(block, "url", table)
    for code, reason in enumerate(REASONS):
        if code:
            block.reject(found.rows(found.reason == code), reason, "url")
    return {"url": found.column().cast(pa.string())}, {
        "url_hash": pa.array(found.rows(found.text_hash)),
        "host_hash": pa.array(found.rows(found.host_hash)),
    }
