"""Outlinks of dumps of Nutch' segments."""

import pytest

from tests.transforms.dialects.seen_links import read
from transforms.batches.errors import InputError


def datum(status: str, time: str = "Wed Jul 01 02:00:05 UTC 2026") -> str:
    """A CrawlDatum as Nutch prints it."""
    return f"""
CrawlDatum::
Version: 7
Status: {status}
Fetch time: {time}
Modified time: Thu Jan 01 00:00:00 UTC 1970
Retries since fetch: 0
Retry interval: 2592000 seconds (30 days)
Score: 1.0
Signature: null
Metadata:
 \t_ngt_=1401872401245
"""


def parsed(*links: str) -> str:
    """ParseData as Nutch prints it."""
    lines = "".join(f"  outlink: toUrl: {url} anchor: to {url} anchor: x\n" for url in links)
    return (
        f"\nParseData::\nVersion: 5\nStatus: success(1,0)\nTitle: Status: 37 (fetch_gone)\n"
        f"Outlinks: {len(links)}\n{lines}Content Metadata: nutch.crawl.score=1.0\nParse Metadata:\n"
    )


def record(number: int, url: str, *sections: str) -> str:
    return f"\nRecno:: {number}\nURL:: {url}\n" + "".join(sections)


GENERATED, LINKED = datum("1 (db_unfetched)", "Tue Jun 30 00:00:00 UTC 2026"), datum("67 (linked)")
FRONT = record(
    0,
    "https://a.test/",
    GENERATED,
    parsed("https://a.test/1", "https://a.test/2"),
    datum("33 (fetch_success)"),
    "\nParseText::\n  outlink: toUrl: https://spoof.test/ anchor: x\nStatus: 34 (fetch_retry)\n",
    LINKED,
)
DUMP = (
    FRONT
    + record(1, "https://a.test/1", LINKED)
    + record(2, "https://b.test/", datum("33 (fetch_success)", "Wed Jul 01 03:00:00 GMT 2026"), parsed())
    + record(3, "https://c.test/", datum("37 (fetch_gone)"))
    + record(4, "https://d.test/", datum("36 (fetch_redir_perm)"), parsed("https://d.test/en"))
    + record(5, "https://e.test/", datum("38 (fetch_notmodified)"))
    + record(6, "https://f.test/", datum("33 (fetch_success)"))
    + record(
        10,
        "https://i.test/",
        datum("33 (fetch_success)"),
        parsed().replace("success(1,0)", "failed(2,200): x"),
    )
    + record(7, "https://g.test/", parsed("https://g.test/1"))
    + record(8, "https://h.test/", datum("33 (fetch_success)", "Foo Bar"), parsed("https://h.test/1"))
    + "\nRecno:: 9\nURL:: \n"
    + datum("33 (fetch_success)")
)


def test_outlinks_are_seen_at_the_fetch_of_their_page(tmp_path):
    path = tmp_path / "dump"
    path.write_text(DUMP)
    found = read(path)
    assert found.form == "nutch"
    assert found.rows == [
        ("https://a.test/", "https://a.test/1", "02:00:05", True),
        ("https://a.test/", "https://a.test/2", "02:00:05", True),
        ("https://b.test/", None, "03:00:00", True),
        ("https://c.test/", None, "02:00:05", False),
        # What a redirect shows is of another page.
        ("https://d.test/", None, "02:00:05", False),
    ]
    first = [1 + DUMP[: DUMP.index(f"Recno:: {n}")].count("\n") for n in (7, 8, 9)]
    assert found.rejected == [(line, "not_nutch") for line in first]
    assert found.left_out == {"never_fetched": 1, "not_modified": 1, "not_parsed": 2}


def test_a_link_that_is_not_utf_8_is_refused(tmp_path):
    path = tmp_path / "dump"
    path.write_bytes(FRONT.encode().replace(b"toUrl: https://a.test/1", b"toUrl: https://a.test/\xe9"))
    found = read(path)
    assert [r[1] for r in found.rows] == ["https://a.test/2"]
    assert [reason for _, reason in found.rejected] == ["bad_utf8"]


def test_records_may_be_cut_by_any_block(tmp_path, monkeypatch):
    path = tmp_path / "dump"
    path.write_text(DUMP)
    whole = read(path)
    monkeypatch.setattr("transforms.files.unpacking.CHUNK_BYTES", 200)
    assert read(path) == whole


def test_a_record_that_lacks_links_is_partial(tmp_path):
    path = tmp_path / "dump"
    text = record(
        0, "https://a.test/", datum("33 (fetch_success)"), parsed("https://a.test/1", "https://a.test/2")
    )
    for end, links, partial in ((len(text), 2, {False}), (text.index("https://a.test/2") + 5, 1, {True})):
        path.write_text(text[:end])
        found = read(path)
        assert len(found.rows) == links and found.partial == partial


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("https://a.test/\tInlinks:\n fromUrl: https://b.test/ anchor: a\n\n", "readseg -dump SEGMENT"),
        (FRONT.replace("02:00:05 UTC", "02:00:05 CST"), "TZ=UTC"),
    ],
)
def test_dumps_without_times_are_refused(tmp_path, text, said):
    path = tmp_path / "dump"
    path.write_text(text)
    with pytest.raises(InputError, match=said):
        read(path)
