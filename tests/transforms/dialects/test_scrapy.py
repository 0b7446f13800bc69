"""Feeds of Scrapy."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from tests.transforms.dialects.reading import read, write
from transforms.dialects.scrapy import looks_like

FEED = """\
[
{"url":"https://shop.test/p/1","fetched_at":"2026-01-01T02:03:04+01:00","status":200,"body_sha1":"0f0f","last_modified":"Wed, 31 Dec 2025 22:00:00 GMT"},
{"url":["https://shop.test/p/1"],"fetched_at":1767830584,"status":304},
{"url":"https://shop.test/p/2","fetched_at":1767830584000,"status":200,"body_sha1":"0f1f"}
]
{"url":"https://shop.test/p/3","fetch
"""


def test_a_feed_that_mixes_all_that_feeds_mix(tmp_path):
    found = read(write(tmp_path, FEED, "items.jl"))
    assert found.forms == ["scrapy"]
    assert found.seen("url", "fetched_at", "status") == [
        ("https://shop.test/p/1", datetime(2026, 1, 1, 1, 3, 4, tzinfo=UTC), 200),
        ("https://shop.test/p/1", datetime(2026, 1, 8, 0, 3, 4, tzinfo=UTC), 304),
        ("https://shop.test/p/2", datetime(2026, 1, 8, 0, 3, 4, tzinfo=UTC), 200),
    ]
    digests = [r["digest_hash"] for r in found.rows]
    assert digests[1] is None and None not in (digests[0], digests[2]) and digests[0] != digests[2]
    assert found.rows[0]["last_modified"] == datetime(2025, 12, 31, 22, tzinfo=UTC)
    # The last line was cut when the job was killed.
    assert found.reasons == [(6, "bad_json")]


@pytest.mark.parametrize(("time", "digest"), [("crawled_at", "etag"), ("timestamp", "checksum")])
def test_names_that_spiders_choose(tmp_path, time, digest):
    line = f'{{"url": "https://a.test/", "{time}": 1767830584, "{digest}": "x", "etag": "y"}}\n'
    found = read(write(tmp_path, line))
    assert found.forms == ["scrapy"] and found.rows[0]["digest_hash"] is not None


CSV = """\
url,crawled_at,status,body_sha1,title
https://shop.test/p/1,2026-01-01T01:03:04+00:00,200,0f0f,"one, with
two lines"
https://shop.test/p/2,1767830584,404,,
https://shop.test/p/2,1767830584
"""


@pytest.mark.parametrize("bom", ["", "\ufeff"])
def test_a_feed_as_csv(tmp_path, bom):
    found = read(write(tmp_path, bom + CSV, "items.csv"))
    assert found.forms == ["scrapy"]
    assert found.seen("url", "fetched_at", "status") == [
        ("https://shop.test/p/1", datetime(2026, 1, 1, 1, 3, 4, tzinfo=UTC), 200),
        ("https://shop.test/p/2", datetime(2026, 1, 8, 0, 3, 4, tzinfo=UTC), 404),
    ]
    assert [r["digest_hash"] is None for r in found.rows] == [False, True]
    assert found.reasons == [(5, "column_count")]
    assert found.rows[0]["digest_hash"] == read(write(tmp_path, FEED, "items.jl")).rows[0]["digest_hash"]


def test_a_canonical_file_is_none_of_these():
    assert looks_like("x", FEED.encode())
    for other in (
        b'{"url": "https://a.test/", "fetched_at": 1, "digest": "d", "etag": "e"}\n',
        b'{"url": "https://a.test/", "fetched_at": 1, "status": 200}\n',
        b"url,fetched_at,etag\n",
        b"url,fetched_at,digest,etag\nhttps://a.test/,1,d,e\n",
        b"url,fetched_at\nhttps://a.test/,1\n",
        b"url,day,clicks\nhttps://a.test/,2026-01-01,1\n",
        b"url,a\rcrawled_at,etag\n",
        b'{"url": 1',
        b"",
    ):
        assert not looks_like("items.jl", other)
