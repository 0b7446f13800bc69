"""WAT files of web archives: what a page's answer had in its head and which links it showed, as JSON.

A WAT is a WARC of metadata records, each a line of JSON between lines of headers, for requests, answers and
metadata of the archive; only those of answers have links. Addresses are as the page has them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from urllib.parse import urljoin

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from policies.numerics.typing_ import IntArray
from transforms.batches.urls import trim
from transforms.dialects import Dialect, Source
from transforms.dialects.json_rows import parse
from transforms.dialects.text_blocks import line_blocks, of_each
from transforms.files.blocks import Block, RawBlock

_HEADERS = re.compile(rb"(?m)^[^{\n][^\n]*")
_TEXT = pa.string()
SCHEMA = pa.schema(
    [
        (
            "Envelope",
            pa.struct(
                [
                    (
                        "WARC-Header-Metadata",
                        pa.struct([(n, _TEXT) for n in ("WARC-Type", "WARC-Target-URI", "WARC-Date")]),
                    ),
                    (
                        "Payload-Metadata",
                        pa.struct(
                            [
                                (
                                    "HTTP-Response-Metadata",
                                    pa.struct(
                                        [
                                            ("Response-Message", pa.struct([("Status", _TEXT)])),
                                            (
                                                "HTML-Metadata",
                                                pa.struct(
                                                    [
                                                        ("Head", pa.struct([("Base", _TEXT)])),
                                                        (
                                                            "Links",
                                                            pa.list_(
                                                                pa.struct([("path", _TEXT), ("url", _TEXT)])
                                                            ),
                                                        ),
                                                    ]
                                                ),
                                            ),
                                        ]
                                    ),
                                )
                            ]
                        ),
                    ),
                ]
            ),
        )
    ]
)
_ANSWER = ("Payload-Metadata", "HTTP-Response-Metadata")
# Where a page leads; not its pictures, styles, scripts and forms.
_LEADS = r"^(?:A|AREA)@/href$"


def looks_like(path: str, text: bytes) -> bool:
    begins = text.startswith(b"WARC/") or text.lstrip().startswith((b'{"Container"', b'{"Envelope"'))
    return begins and b'"WARC-Header-Metadata"' in text


def read(source: Source) -> Iterator[Block]:
    """A row a link; one without a target for a page that has none, or whose fetch failed."""

    def rows(block: bytes, line: int) -> Iterator[Block]:
        found = parse(_HEADERS.sub(b"", block), line, SCHEMA, source.path)
        if found.rejected is not None:
            yield found.rejected
        yield from _rows(source, found.table.column("Envelope").combine_chunks(), found.line)

    return of_each(line_blocks(source.path, source.gzip), rows)


def _field(of: pa.Array, *names: str) -> pa.Array:
    for name in names:
        of = pc.struct_field(of, name)
    return of


def _rows(source: Source, envelope: pa.Array, line: IntArray) -> Iterator[Block]:
    if isinstance(envelope, pa.ChunkedArray):
        envelope = pa.concat_arrays(envelope.chunks) if envelope.num_chunks else envelope.type.wrap_array([])
    of_record = _field(envelope, "WARC-Header-Metadata", "WARC-Type")
    is_answer = pc.fill_null(pc.equal(of_record, "response"), False)
    source.leave_out("not_an_answer", int(len(line) - pc.sum(is_answer).as_py() if len(line) else 0))
    envelope, line = envelope.filter(is_answer), line[np.asarray(is_answer)]
    if not len(envelope):
        return
    page, at = (_field(envelope, "WARC-Header-Metadata", f"WARC-{n}") for n in ("Target-URI", "Date"))
    html = _field(envelope, *_ANSWER, "HTML-Metadata")
    status = _field(envelope, *_ANSWER, "Response-Message", "Status")
    lists = _field(html, "Links")
    of = pc.list_parent_indices(lists).to_numpy()
    links = pc.list_flatten(lists)
    leads = np.asarray(pc.fill_null(pc.match_substring_regex(_field(links, "path"), _LEADS), False))
    url = trim(_field(links, "url"))
    # A mark within the page leads to itself.
    leads &= ~np.asarray(pc.fill_null(pc.starts_with(url, "#"), True))
    of, url = of[leads], url.filter(pa.array(leads))
    # It may be relative to the page.
    base = pc.coalesce(_absolute(resolved(page, trim(_field(html, "Head", "Base")))), page)
    none = np.flatnonzero(np.bincount(of, minlength=len(line)) == 0)
    row = np.concatenate([of, none])
    order = np.argsort(row, kind="stable")
    target = pa.concat_arrays([resolved(base.take(pa.array(of)), url), pa.nulls(len(none), pa.string())])
    take = pa.array(row[order])
    batch = pa.RecordBatch.from_pydict(
        {
            "source": page.take(take),
            "target": target.take(pa.array(order)),
            "seen_at": at.take(take),
            "status": status.take(take),
        }
    )
    numbers = line[row[order]]
    yield RawBlock(batch, lambda: numbers)


def _absolute(urls: pa.Array) -> pa.Array:
    return pc.if_else(pc.match_substring_regex(urls, r"^(?i:https?)://"), urls, None)


def resolved(base: pa.Array, url: pa.Array) -> pa.Array:
    """Addresses on pages as URLs (RFC 3986, section 5): (n,) string each.

    Most are whole, or begin with a slash; only the rest is looked at one by one.
    """
    whole = pc.fill_null(pc.match_substring_regex(url, r"^[A-Za-z][A-Za-z0-9+.-]*:"), False)
    site = pc.struct_field(pc.extract_regex(base, r"^(?P<site>(?P<scheme>[A-Za-z]+:)//[^/?#]+)"), "site")
    scheme = pc.struct_field(pc.extract_regex(base, r"^(?P<scheme>[A-Za-z]+:)//"), "scheme")
    other = pc.starts_with(url, "//")
    rooted = pc.and_(pc.starts_with(url, "/"), pc.invert(pc.match_substring_regex(url, r"/\.\.?(?:[/?#]|$)")))
    made = pc.if_else(
        whole,
        url,
        pc.if_else(
            other,
            pc.binary_join_element_wise(scheme, url, ""),
            pc.if_else(rooted, pc.binary_join_element_wise(site, url, ""), None),
        ),
    )
    left = np.flatnonzero(np.asarray(pc.and_(made.is_null(), pc.and_(url.is_valid(), base.is_valid()))))
    if not len(left):
        return made
    bases, urls = (_strings(texts.take(pa.array(left))) for texts in (base, url))
    joined = [_joined(b, u).encode("utf-8", "surrogateescape") for b, u in zip(bases, urls, strict=True)]
    mask = np.zeros(len(made), np.bool_)
    mask[left] = True
    return pc.replace_with_mask(made, pa.array(mask), pa.array(joined, pa.binary()).view(pa.string()))


def _strings(texts: pa.Array) -> list[str]:
    """Texts that need not be UTF-8: those that are not are rejected where targets are read."""
    return [raw.decode("utf-8", "surrogateescape") for raw in texts.cast(pa.binary()).to_pylist()]


def _joined(base: str, url: str) -> str:
    try:
        return urljoin(base, url)
    except ValueError:  # such as a bracket that is no address: rejected, too
        return url


DIALECT = Dialect("wat", "links_seen", "WAT files of web archives", looks_like, read)
