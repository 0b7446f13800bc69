"""Sitemaps and feeds as sources, by a list of their fetches."""

import gzip
import json

import pytest

from tests.transforms.dialects.seen_links import read

SITEMAP = """<?xml version="1.0"?><urlset xmlns="http://www.sitemaps.org/schemas/sitemap/0.9">
<url><loc>https://a.test/1</loc><lastmod>2026-07-01</lastmod></url><url><loc>https://a.test/2</loc></url></urlset>"""
FEED = """<rss version="2.0"><channel><link>https://b.test/</link><item><title>x</title>
<link>https://b.test/news?utm_source=rss</link></item></channel></rss>"""
EMPTY = '<rss version="2.0"><channel><link>https://b.test/</link></channel></rss>'
FETCHES = [
    ("https://a.test/sitemap.xml", "2026-07-01T02:00:00Z", "a/1.xml.gz", 200),
    ("https://b.test/feed", "2026-07-01T02:01:00Z", "b/1", 200),
    ("https://b.test/feed", "2026-07-01T03:01:00Z", "b/2", 200),
    ("https://b.test/feed", "2026-07-01T04:01:00Z", "b/3", 503),
    ("https://c.test/feed", "2026-07-01T05:01:00Z", "c/none", 200),
    ("https://c.test/feed", "2026-07-01T06:01:00Z", "", 200),
    ("https://c.test/feed", "2026-07-01T07:01:00Z", "c/cut", 200),
    ("https://c.test/feed", "2026-07-01T08:01:00Z", "c/page", 200),
    ("https://c.test/feed", "2026-07-01T08:01:00Z", "none://page", 200),
    ("https://c.test/\udcff", "2026-07-01T08:01:00Z", "c/page", 200),
]


@pytest.mark.parametrize("form", ["csv", "jsonl"])
def test_an_entry_is_a_link_of_the_file_that_was_fetched(tmp_path, form):
    for folder in "abc":
        (tmp_path / folder).mkdir()
    (tmp_path / "a/1.xml.gz").write_bytes(gzip.compress(SITEMAP.encode()))
    (tmp_path / "b/1").write_text(FEED)
    (tmp_path / "b/2").write_text(EMPTY)
    (tmp_path / "b/3").write_text("<html>try again")
    (tmp_path / "c/cut").write_text(SITEMAP[:-40].replace("a.test", "c.test"))
    (tmp_path / "c/page").write_text("<!doctype html><html></html>")
    path = tmp_path / f"fetched.{form}"
    names = ("source", "seen_at", "file", "status")
    if form == "csv":
        text = "\n".join(",".join(map(str, row)) for row in (names, *FETCHES))
    else:
        items = (dict(zip(names, row, strict=True)) for row in FETCHES)
        text = "\n".join(json.dumps(item, ensure_ascii=False) for item in items)
    path.write_text(text, errors="surrogateescape")
    found = read(path)
    assert found.form == "files"
    assert found.rows == [
        ("https://a.test/sitemap.xml", "https://a.test/1", "02:00:00", True),
        ("https://a.test/sitemap.xml", "https://a.test/2", "02:00:00", True),
        ("https://b.test/feed", "https://b.test/news", "02:01:00", True),
        ("https://b.test/feed", None, "03:01:00", True),
        ("https://b.test/feed", None, "04:01:00", False),
        ("https://c.test/feed", "https://c.test/1", "07:01:00", True),
    ]
    assert found.partial == {False, True}
    assert [reason for _, reason in found.rejected] == [
        "no_file",
        "no_file",
        "truncated_file",
        "not_a_sitemap",
        "no_file",
        "bad_utf8",
    ]


def test_an_entry_without_an_address_costs_itself(tmp_path):
    items = "<item><title>x</title></item><item><link>/news/1</link></item>"
    (tmp_path / "feed").write_text(f'<rss version="2.0"><channel>{items}</channel></rss>')
    path = tmp_path / "fetched.csv"
    path.write_text("source,seen_at,file\nhttps://b.test/feed,2026-07-01T02:00:00Z,feed\n")
    found = read(path)
    assert found.rows == [("https://b.test/feed", "https://b.test/news/1", "02:00:00", True)]
    assert found.partial == {False} and [reason for _, reason in found.rejected] == ["no_loc"]


def test_links_of_our_own_are_not_taken_for_a_list(tmp_path):
    path = tmp_path / "links.csv"
    path.write_text("source,target,seen_at,file\nhttps://a.test/,https://a.test/1,2026-07-01,x\n")
    assert read(path).form == "csv"
