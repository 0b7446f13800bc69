"""Sources and targets of links: texts that tell one page from another, whatever was added to its URL.

What campaigns and fragments add is cut off as from URLs of requests (`transforms.rows.joining`), and the
scheme too: of http and https one redirects to the other, and lists of links often leave it out.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from transforms.batches import columns, schemas, times
from transforms.batches.hashing import Hashes, hash_texts
from transforms.batches.urls import REASONS, HostTable, Located, locate, site
from transforms.rows.joining import page_urls
from transforms.rows.raw_rows import Made, Mask, RawRows, read, read_time

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


def _located(block: RawRows, name: str, table: HostTable | None) -> Located:
    """URLs of a column that may lack their schemes; null where they are no text."""
    raw = block.column(name)
    assert raw is not None
    url, broken = columns.text(raw)
    block.reject(broken, "bad_utf8", name)
    if broken is not None:
        url = pc.if_else(pa.array(broken), None, url)
    return locate(page_urls(with_scheme(url)), table)


def _source(block: RawRows, table: HostTable | None) -> tuple[pa.Array, pa.Array, dict[str, pa.Array]]:
    """Texts of sources, their sites, and the keys of both."""
    found = _located(block, "source", table)
    for code, reason in enumerate(REASONS):
        if code:
            block.reject(found.reason == code, reason, "source")
    texts, url_hash = page_texts(found.urls)
    keys = {"url_hash": pa.array(url_hash), "host_hash": pa.array(found.host_hash)}
    return texts, sites(found), keys


def links(block: RawRows, table: HostTable | None) -> Made:
    """Presences: what `schemas.LINKS` has, and the keys of the sources."""
    source, site, keys = _source(block, table)
    target = _located(block, "target", table)
    block.reject(~target.valid, "bad_target", "target")
    appeared, gone = read_time(block, "appeared_at"), read(block, "gone_at", _times(block), schemas.TIME)
    early = np.asarray(pc.fill_null(pc.less(gone, appeared), False))
    block.reject(early, "gone_before_appeared", "gone_at")
    domain = block.column("domain")
    named = block.nulls(pa.string()) if domain is None else columns.clean(columns.text(domain)[0])[0]
    named = pc.utf8_trim_whitespace(named.cast(pa.string()))
    given = pc.fill_null(pc.not_equal(named, ""), False)
    return {
        "source": source,
        "target_hash": pa.array(page_texts(target.urls)[1]),
        "appeared_at": appeared,
        "gone_at": gone,
        "domain": pc.if_else(given, named, site),
        "given": given,
    }, keys


def _times(block: RawRows) -> Callable[[pa.Array], tuple[pa.Array, Mask | None]]:
    return lambda array: times.parse_times(array, clock=block.clock)


def snapshots(block: RawRows, table: HostTable | None) -> Made:
    """Polls: what `schemas.SNAPSHOTS` has, and the keys of the sources."""
    source, site, keys = _source(block, table)
    status = read(block, "status", columns.status, pa.int16())
    good = pc.and_(pc.greater_equal(status, 200), pc.less(status, 300))
    return {
        "source": source,
        "seen_at": read_time(block, "seen_at"),
        "ok": pc.fill_null(good, True),
        "domain": site,
    }, keys
