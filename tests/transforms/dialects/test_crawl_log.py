"""Heritrix' crawl.log."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from tests.transforms.dialects.reading import PACKED_OR_UTF_16, read, write
from transforms.dialects.crawl_log import looks_like
from transforms.files import unpacking

A, EMPTY = "A" * 32, "3I42H3S6NNFQ2MSVX7XZKYAYSCX5QBYJ"
LOG = f"""\
2026-01-01T02:03:05.010Z   200       5120 https://shop.test/p/1 L https://shop.test/ text/html #012 20260101020304500+310 sha1:{A} - -
2026-01-08T02:03:05.010Z   304          0 https://shop.test/p/1 L https://shop.test/ unknown #003 20260108020304700+95 sha1:{EMPTY} - duplicate:server-not-modified
2026-01-08T02:03:06.010Z     1         52 dns:shop.test P https://shop.test/ text/dns #003 20260108020304700+95 sha1:{A} - -
2026-01-08T02:03:07.010Z   200         52 https://shop.test/robots.txt EP https://shop.test/ text/plain #003 20260108020304700+95 sha1:{A} - -
2026-01-08T02:03:08.010Z    -2          - https://shop.test/p/9 LL https://shop.test/ unknown #003 - - - 2t,err

2026-01-08T02:03:09.010Z   200         52 https://shop.test/p/2 LL - text/html #003 20260108020304;95 sha1:{A} - 3t,duplicate:digest {{"contentSize": 52, "x": 1}}
2026-01-08T02:03:10.010Z   200         52 whois://shop.test LL - text/plain #003 20260108020304700+95 - - -
2026-01-08T02:03:11.010Z   200  cut
"""


def at(*civil: int) -> datetime:
    return datetime(*civil, tzinfo=UTC)


def test_older_versions_leave_empty_what_has_no_note(tmp_path):
    text = LOG.splitlines()[0].removesuffix("-")
    found = read(
        write(tmp_path, text.replace("/p/1 L ", f"/p/2 12+{'L' * 50} ") + f"\n{text}\n", "crawl.log")
    )
    assert found.forms == ["heritrix"] and not found.rejected
    assert found.seen("url", "status") == [("https://shop.test/p/2", 200), ("https://shop.test/p/1", 200)]


def test_a_log_as_heritrix_writes_it(tmp_path):
    found = read(write(tmp_path, LOG, "crawl.log"))
    assert found.forms == ["heritrix"]
    assert found.seen("url", "fetched_at", "status", "not_modified") == [
        ("https://shop.test/p/1", at(2026, 1, 1, 2, 3, 4, 500_000), 200, False),
        ("https://shop.test/p/1", at(2026, 1, 8, 2, 3, 4, 700_000), 304, True),
        # A fetch that never began has the time of its line.
        ("https://shop.test/p/9", at(2026, 1, 8, 2, 3, 8, 10_000), -2, False),
        # A duplicate by its digest; the field of extra information has blanks.
        ("https://shop.test/p/2", at(2026, 1, 8, 2, 3, 4), 200, True),
    ]
    assert [row["digest_hash"] is None for row in found.rows] == [False, True, True, False]
    assert found.left_out == {"prerequisite": 2, "not_http": 1}
    assert found.reasons == [(9, "column_count")] and "3 fields, expected 12" in found.rejected[0]["sample"]
    assert found.lines == 8


def test_it_is_told_by_its_content_and_no_other_is_taken_for_it():
    assert looks_like("x", LOG.encode())
    for other in (
        b'{"url":"https://a.test/"}',
        b"url,fetched_at\nhttps://a.test/,2026-01-01\n",
        b"",
        b"\0\1",
    ):
        assert not looks_like("crawl.log", other)


@pytest.mark.parametrize("size", [64, 200, 1000])
def test_where_a_block_begins_does_not_matter(tmp_path, monkeypatch, size):
    path = write(tmp_path, LOG, "crawl.log")
    whole = read(path)
    monkeypatch.setattr(unpacking, "CHUNK_BYTES", size)
    parts = read(path)
    assert sorted(map(str, parts.rows)) == sorted(map(str, whole.rows))
    assert (parts.reasons, parts.left_out) == (whole.reasons, whole.left_out)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.one_of(st.sampled_from(LOG.encode().splitlines()), st.binary(max_size=60)), max_size=8))
def test_any_bytes_are_accounted_for(tmp_path_factory, lines):
    lines = [line.replace(b"\n", b" ").replace(b"\r", b" ").lstrip(b"\0") for line in lines]
    assume(not b"\n".join(lines).startswith(PACKED_OR_UTF_16))
    path = write(tmp_path_factory.mktemp("fuzz"), b"\n".join(lines), "crawl.log")
    found = read(path, form="heritrix")
    assert found.lines == sum(bool(line.strip(b" \t")) for line in lines)


def test_lines_that_run_into_each_other_are_rejected_and_blanks_in_front_shift_nothing(tmp_path):
    one, two = LOG.splitlines()[:2]
    torn = read(write(tmp_path, f"{one}\n{one} {two}\n{two}\n", "crawl.log"))
    assert len(torn.rows) == 2 and torn.reasons == [(2, "column_count")]
    assert read(write(tmp_path, f"{one}\r{two}\r", "crawl.log")).reasons == [(1, "column_count")]
    padded = read(write(tmp_path, f"  {one}\n\t{two}\t \r\n", "crawl.log"))
    assert padded.seen("url", "status") == [("https://shop.test/p/1", 200), ("https://shop.test/p/1", 304)]
    assert padded.lines == 2
