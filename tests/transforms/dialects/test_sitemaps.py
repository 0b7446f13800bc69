"""Sitemaps and feeds of all sorts, sound, odd, broken and hostile."""

import gzip
import os
import tracemalloc
import zlib
from pathlib import Path

import pyarrow as pa
import pytest

from policies.history.lastmods import DAY, INSTANT, NONE
from tests.transforms.read_files import reasons
from transforms.batches.errors import InputError
from transforms.batches.tally import Counts
from transforms.dialects import sitemaps
from transforms.files.filesystems import InputFile
from transforms.files.inputs import match_files
from transforms.intake.formats import plan
from transforms.intake.sources import read_split
from transforms.rows.normalise import KINDS

SAMPLES = Path(__file__).resolve().parents[4] / "shared" / "data" / "formats" / "sitemaps"
NS = 'xmlns="http://www.sitemaps.org/schemas/sitemap/0.9"'


def read_bytes(folder: Path, data: bytes, name: str = "a.xml"):
    """Rows, rejected rows and notes of a file with these bytes."""
    path = folder / name
    path.write_bytes(data)
    return read_path(path)


def read_path(path: Path):
    rows, rejected, notes = [], [], Counts()
    for split in plan(InputFile(str(path), os.path.getsize(path)), "sitemaps"):
        for tag, batch in read_split(split, KINDS["sitemaps"], notes=notes):
            (rows if tag == "rows" else rejected).extend(batch.to_pylist())
    return rows, rejected, notes.totals()


def urlset(*items: str, root: str = f"urlset {NS}") -> bytes:
    inside = "\n".join(f"<url>{item}</url>" for item in items)
    return f"<{root}>\n{inside}\n</{root.split()[0]}>".encode()


def one(folder: Path, data: bytes, name: str = "a.xml"):
    """URL, date and precision of the only row; nothing is rejected."""
    (row,), rejected, _ = read_bytes(folder, data, name)
    assert not rejected
    return row["url"], row["lastmod"] and row["lastmod"].isoformat(), row["precision"]


# --- what is sound ------------------------------------------------------------------------------------


def test_a_sitemap(tmp_path):
    data = urlset(
        "<loc>https://shop.test/p?a=1&amp;b=2</loc><lastmod>2026-01-02</lastmod><priority>0.8</priority>",
        "\n<lastmod>\n2026-01-03T10:00+01:00\n</lastmod>\n<loc>\n  https://shop.test/q\n</loc>",
        "<loc><![CDATA[https://shop.test/r]]></loc>",
    )
    rows, rejected, _ = read_bytes(tmp_path, data)
    assert [r["url"] for r in rows] == [f"https://shop.test/{x}" for x in ("p?a=1&b=2", "q", "r")]
    assert [r["precision"] for r in rows] == [DAY, INSTANT, NONE]
    assert rows[1]["lastmod"].isoformat() == "2026-01-03T09:00:00+00:00"
    assert not rejected
    assert [r["host_hash"] == rows[0]["host_hash"] and r["url_hash"] > 0 for r in rows] == [True] * 3


PAGE = ("https://a.test/x", "2026-01-02T00:00:00+00:00", DAY)
ITEM = "<loc>https://a.test/x</loc><lastmod>2026-01-02</lastmod>"


@pytest.mark.parametrize(
    ("root", "item"),
    [
        ("urlset", ITEM),  # no namespace
        ('urlset xmlns="http://www.google.com/schemas/sitemap/0.9"', ITEM),  # another one
        (
            f"urlset {NS}",
            f"<image:image xmlns:image='i'><image:loc>https://no.test/</image:loc></image:image>{ITEM}",
        ),
        (f"urlset {NS} xmlns:i='i'", f"<i:loc>https://no.test/</i:loc>{ITEM}<i:lastmod>2000</i:lastmod>"),
        (f"urlset {NS}", f"<x><loc>https://no.test/</loc><lastmod>2000</lastmod></x>{ITEM}"),
        (f"urlset {NS}", f"{ITEM}<loc>https://second.test/</loc>"),
    ],
)
def test_only_a_pages_own_loc_counts(root, item, tmp_path):
    assert one(tmp_path, urlset(item, root=root)) == PAGE


def test_prefixed_names(tmp_path):
    data = (
        f"<s:urlset xmlns:s='x'><s:url>{ITEM.replace('<', '<s:').replace('<s:/', '</s:')}</s:url></s:urlset>"
    )
    assert one(tmp_path, data.encode()) == PAGE


@pytest.mark.parametrize("layers", [0, 1, 2])
@pytest.mark.parametrize("before", [b"", b"\xef\xbb\xbf", b"\n  ", b"\xef\xbb\xbf\r\n"])
@pytest.mark.parametrize("name", ["a.xml", "a.xml.gz", "a.gz", "a"])
def test_bytes_decide_not_names(name, before, layers, tmp_path):
    data = before + b'<?xml version="1.0" encoding="UTF-8"?>\n' + urlset(ITEM)
    for _ in range(layers):
        data = gzip.compress(data)
    assert one(tmp_path, data, name) == PAGE


def test_an_index_has_no_pages(tmp_path):
    """Its dates are of files. One that names itself is no loop."""
    entry = "<sitemap><loc>https://a.test/sitemap.xml</loc><lastmod>2026-01-02</lastmod></sitemap>"
    rows, rejected, notes = read_bytes(tmp_path, f"<sitemapindex {NS}>{entry * 3}</sitemapindex>".encode())
    assert not rows and not rejected
    assert notes == {"sitemaps_index": 1, "sitemaps_index_children": 3}


def test_rss(tmp_path):
    data = b"""<rss version="2.0" xmlns:atom="a" xmlns:dc="d"><channel><title>T</title><link>https://a.test/</link>
    <atom:link href="https://a.test/feed" rel="self"/><pubDate>Mon, 01 Jan 2024 00:00:00 GMT</pubDate>
    <item><link>https://a.test/1</link><pubDate>Fri, 02 Jan 2026 03:04:05 GMT</pubDate></item>
    <item><guid>https://a.test/2</guid><dc:date>2026-01-02</dc:date></item>
    <item><guid isPermaLink="false">7</guid><title>no link</title></item>
    </channel></rss>"""
    rows, rejected, _ = read_bytes(tmp_path, data, "feed.rss")
    assert [(r["url"], r["lastmod"].isoformat(), r["precision"]) for r in rows] == [
        ("https://a.test/1", "2026-01-02T03:04:05+00:00", INSTANT),
        ("https://a.test/2", "2026-01-02T00:00:00+00:00", DAY),
    ]
    assert reasons(rejected) == [(5, "no_loc")]


def test_rdf_and_atom(tmp_path):
    rdf = b"""<rdf:RDF xmlns:rdf="r" xmlns="http://purl.org/rss/1.0/" xmlns:dc="d"><channel><link>https://a.test/</link>
    </channel><item><link>https://a.test/x</link><dc:date>2026-01-02</dc:date></item></rdf:RDF>"""
    assert one(tmp_path, rdf) == PAGE
    atom = b"""<feed xmlns="http://www.w3.org/2005/Atom"><link href="https://a.test/"/><updated>2026-06-01</updated>
    <entry><link rel="edit" href="https://a.test/edit"/><link href="https://a.test/x"/>
    <published>2025-01-01</published><updated>2026-01-02</updated></entry></feed>"""
    assert one(tmp_path, atom) == PAGE


def test_plain_text(tmp_path):
    data = b"\xef\xbb\xbfhttps://a.test/1\r\n\r\n  https://a.test/2 \nftp://a.test/3\nHTTPS://a.test/4"
    rows, rejected, _ = read_bytes(tmp_path, data, "a.txt")
    assert [r["url"][-1] for r in rows] == ["1", "2", "4"] and {r["precision"] for r in rows} == {NONE}
    assert reasons(rejected) == [(4, "bad_url")]


def test_rows_are_lines_of_the_file(tmp_path):
    data = b"\n\n<urlset>\n<url><loc>relative</loc></url>\n\n<url>\n<loc>https://a.test/</loc>"
    data += b"<lastmod>?</lastmod></url></urlset>"
    rows, rejected, _ = read_bytes(tmp_path, data)
    assert reasons(rejected) == [(4, "bad_url"), (7, "bad_lastmod")]
    assert [r["url"] for r in rows] == ["https://a.test/"]


# --- faults of others -----------------------------------------------------------------------------------


def test_a_date_does_not_leak_to_the_next_page(tmp_path):
    data = urlset("<lastmod>2026-01-05</lastmod>", "<loc>https://s.test/b</loc>", "", "<loc> </loc>")
    (row,), rejected, _ = read_bytes(tmp_path, data)
    assert (row["url"], row["lastmod"], row["precision"]) == ("https://s.test/b", None, NONE)
    assert reasons(rejected) == [(2, "no_loc"), (4, "no_loc"), (5, "no_loc")]
    assert rejected[0]["sample"] == "2026-01-05"


@pytest.mark.parametrize("priority", ["NaN", "-1", "0.0", "7", "inf", "high", ""])
@pytest.mark.parametrize("often", ["fortnightly", "Daily", "always", ""])
def test_priority_and_changefreq_are_not_read(priority, often, tmp_path):
    extra = f"<priority>{priority}</priority><changefreq>{often}</changefreq>"
    assert one(tmp_path, urlset(extra + ITEM)) == PAGE


@pytest.mark.parametrize(
    ("dates", "expected"), [("2026-01-05T00:00:00Z 2025-12-01T00:00:00Z", 1), ("2026-01-05", 0)]
)
def test_two_dates_are_none(dates, expected, tmp_path):
    (row,), rejected, _ = read_bytes(
        tmp_path, urlset(f"<loc>https://a.test/</loc><lastmod>{dates}</lastmod>")
    )
    assert [r["reason"] for r in rejected] == ["bad_lastmod"] * expected
    split = "".join(f"<lastmod>{d}</lastmod>" for d in dates.split())
    again, rejected, _ = read_bytes(tmp_path, urlset(f"<loc>https://a.test/</loc>{split}"))
    assert again == [row] and len(rejected) == expected


BOMBS = {
    "entity": b'<!DOCTYPE x [<!ENTITY a "https://a.test/">]><urlset><url><loc>&a;</loc></url></urlset>',
    "unused entity": b'<!DOCTYPE x [<!ENTITY a "b">]><urlset><url><loc>https://a.test/</loc></url></urlset>',
    "laughs": b'<!DOCTYPE x [<!ENTITY a "aa"><!ENTITY b "&a;&a;">]><urlset><url><loc>&b;</loc></url>',
    "parameter entity": b'<!DOCTYPE x [<!ENTITY % a "b"> %a;]><urlset/>',
    "file": b'<!DOCTYPE x [<!ENTITY a SYSTEM "file:///etc/passwd">]><urlset><url><loc>&a;</loc></url></urlset>',
    "external": b'<!DOCTYPE x SYSTEM "http://a.test/x.dtd"><urlset><url><loc>https://a.test/</loc></url></urlset>',
    "depth": b"<urlset><url>" + b"<a>" * 100_000,
    "attributes": b"<urlset><url " + b" ".join(b"a%d=''" % i for i in range(600_000)) + b"/></urlset>",
    "defaults": b"<!DOCTYPE urlset [<!ATTLIST url a CDATA '1'>]>" + b"<urlset><url/></urlset>",
    "names": b"<urlset>" + b"".join(b"<a%d/>" % i for i in range(10_001)) + b"</urlset>",
    "names of attributes": b"<urlset>" + b"".join(b"<x a%d=''/>" % i for i in range(10_001)) + b"</urlset>",
    "comment": b"<urlset><!--" + b"x" * (6 << 20) + b"--></urlset>",
}


@pytest.mark.parametrize("name", BOMBS)
def test_bombs_in_xml(name, tmp_path):
    rows, rejected, _ = read_bytes(tmp_path, BOMBS[name])
    assert not rows and [r["reason"] for r in rejected] == ["unsafe_xml"]


def test_some_thousand_names_are_no_bomb(tmp_path):
    assert one(tmp_path, urlset(ITEM + "".join(f"<a{i} b{i}=''/>" for i in range(4_000)))) == PAGE


def test_a_doctype_alone_is_harmless(tmp_path):
    assert one(tmp_path, b"<!DOCTYPE urlset>" + urlset(ITEM)) == PAGE


def packed(size: int, start: bytes, of: bytes) -> bytes:
    """gzip of `start`, then `of` again and again up to `size` bytes, made without holding them."""
    pack = zlib.compressobj(1, zlib.DEFLATED, 31)
    parts = [pack.compress(start)]
    block = of * ((1 << 20) // len(of))
    parts += [pack.compress(block) for _ in range(size >> 20)]
    return b"".join([*parts, pack.flush()])


@pytest.mark.parametrize("layers", [1, 2])
def test_bombs_in_gzip(layers, tmp_path):
    """What comes before the limit counts; memory does not follow what a file could become."""
    item = f"<url>{ITEM}</url><url><x/>".encode()
    data = packed(200 << 20, b"<urlset>" + item, b"<x/>" + b" " * 252)
    for _ in range(layers - 1):
        data = gzip.compress(data)
    path = tmp_path / "bomb.xml.gz"
    path.write_bytes(data)
    tracemalloc.start()
    rows, rejected, _ = read_path(path)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert [r["url"] for r in rows] == ["https://a.test/x"]
    assert [r["reason"] for r in rejected] == ["too_large"]
    assert len(data) < 4 << 20 and peak < 80 << 20


@pytest.mark.parametrize("extra", [0, 1])
def test_the_limit_is_exact(extra, tmp_path, monkeypatch):
    data = urlset(ITEM)
    monkeypatch.setattr(sitemaps, "MAX_BYTES", len(data) - extra)
    rows, rejected, _ = read_bytes(tmp_path, data)
    assert len(rows) == 1 and [r["reason"] for r in rejected] == ["too_large"] * extra


@pytest.mark.parametrize("cut", [20, 60, 200, -1, -9])
@pytest.mark.parametrize("pack", [False, True])
def test_what_comes_before_a_cut_counts(cut, pack, tmp_path):
    data = urlset(*(f"<loc>https://a.test/{i}</loc>" for i in range(100)))
    if pack:
        data = gzip.compress(data, mtime=0)
        cut = cut if cut < 0 else len(data) - cut
    rows, rejected, _ = read_bytes(tmp_path, data[:cut])
    assert [r["reason"] for r in rejected] == ["truncated_file"] and rejected[0]["row"] == -1
    assert [r["url"] for r in rows] == [f"https://a.test/{i}" for i in range(len(rows))]


def test_a_defect_ends_the_file_where_it_is(tmp_path):
    data = urlset(ITEM, "<loc>https://a.test/y</loc>", "<loc>https://a.test/z?a&b</loc>", ITEM)
    rows, rejected, _ = read_bytes(tmp_path, data)
    assert [r["url"][-1] for r in rows] == ["x", "y"]
    assert [r["reason"] for r in rejected] == ["unreadable_file"] and "line 4" in rejected[0]["sample"]


def test_what_follows_a_whole_sitemap_does_no_harm(tmp_path):
    assert one(tmp_path, urlset(ITEM) + b"\n<!-- cached --> <script>x</script>") == PAGE


@pytest.mark.parametrize(
    "data",
    [
        b"<!DOCTYPE html><html><body>Not found</html>",
        b'<!DOCTYPE html PUBLIC "-//W3C//DTD XHTML 1.0//EN" "http://www.w3.org/TR/x.dtd"><html/>',
        b"<!-- x --> <HTML><p>Not found",
        # Each once took time that grew with the square of the length, or as a power of two.
        b"<!---->" * 30_000 + b"<!DOCTYPE html>",
        b"<!---->" * 30_000 + b"<svg/>",
        b"x" + b"\n" * 200_000,
        b"x" + b"\n \r\t" * 50_000,
        b"<svg/>",
        b'{"error": 404}',
        b"Not found",
        b"\x00\x01\x02",
        b"PAR1....PAR1",
        gzip.compress(b"", mtime=0),
        gzip.compress(b"Not found", mtime=0),
    ],
)
def test_other_files_are_one_rejected_row(data, tmp_path):
    rows, rejected, _ = read_bytes(tmp_path, data)
    assert not rows and [r["reason"] for r in rejected] == ["not_a_sitemap"]


def test_long_texts_are_cut_not_held(tmp_path):
    rows, rejected, _ = read_bytes(
        tmp_path,
        urlset(
            f"<loc>https://a.test/{'x' * 9000}</loc>",
            f"<lastmod>{'2' * 1_000_000}</lastmod><loc>https://a.test/x</loc>",
        ),
    )
    assert sorted(r["reason"] for r in rejected) == ["bad_lastmod", "url_too_long"]
    assert all(len(r["sample"]) <= 200 for r in rejected) and len(rows) == 1


# --- what is shown of much that is wrong ----------------------------------------------------------------


@pytest.mark.parametrize(
    ("item", "reason"), [("", "no_loc"), ("<loc>x</loc>", "bad_url"), ("<loc>http://</loc>", "bad_url")]
)
@pytest.mark.parametrize("n", [99, 100, 101, 1234])
def test_the_first_hundred_of_a_reason_are_shown_and_the_others_counted(n, item, reason, tmp_path):
    """By reason: what is rare is shown beside what is not."""
    data = urlset(*[item] * n, ITEM, f"<loc>https://a.test/{'x' * 9000}</loc>")
    rows, rejected, notes = read_bytes(tmp_path, data)
    assert len(rows) == 1
    shown = [(r["row"], r["reason"]) for r in rejected if r["row"] > 0]
    assert shown == [*((i + 2, reason) for i in range(min(n, 100))), (n + 3, "url_too_long")]
    more = [(r["reason"], r["sample"]) for r in rejected if r["row"] < 0]
    assert more == [(reason, f"and {n - 100} more")] * (n > 100)
    left = sum(m for name, m in notes.items() if name == "sitemaps_rejected")
    assert left + len(rejected) == n + 1
    assert notes.get(f"sitemaps_rejected_{reason}", 0) == left


def test_lines_of_text_are_shown_alike(tmp_path):
    rows, rejected, notes = read_bytes(tmp_path, b"https://a.test/\n" + b"ab\n" * 500, "a.txt")
    assert len(rows) == 1 and len(rejected) == 101 and rejected[-1]["sample"] == "and 400 more"
    assert notes == {"sitemaps_rejected": 399, "sitemaps_rejected_bad_url": 399}


@pytest.mark.parametrize(
    "item", [b"<url/>", b"<url><loc>x</loc></url>", b"<url><lastmod>1</lastmod></url>", b"ab\n"]
)
def test_memory_does_not_follow_what_is_rejected(item, tmp_path, monkeypatch):
    """Items without any URL once were held until one had some."""
    monkeypatch.setattr(sitemaps, "ROWS", 1000)
    monkeypatch.setattr(sitemaps, "FEED_BYTES", 1 << 12)
    path = tmp_path / "a.xml"
    start = b"<urlset>" if item[:1] == b"<" else b"https://a.test/\n"
    path.write_bytes(start + item * 100_000)
    for block in sitemaps.read_sitemap(str(path), False):
        rows = block.num_rows if isinstance(block, pa.RecordBatch) else block.batch.num_rows
        assert rows <= 1000 + (1 << 12) / len(item)


# --- files whose dates say little -----------------------------------------------------------------------


def dated(dates, news=False):
    extra = "<news:news xmlns:news='n'><news:publication_date>2026-01-01</news:publication_date></news:news>"
    return urlset(
        *(f"<loc>https://a.test/{i}</loc><lastmod>{d}</lastmod>{extra * news}" for i, d in enumerate(dates))
    )


@pytest.mark.parametrize(
    ("dates", "news", "expected"),
    [
        (["2026-01-02"] * 10, False, {"sitemaps_one_lastmod": 1}),
        (["2026-01-02"] * 9, False, {}),
        (["2026-01-02"] * 19 + ["2025-01-01"], False, {"sitemaps_one_lastmod": 1}),
        (["2026-01-02"] * 18 + ["2025-01-01"], False, {}),
        # 38 news pages on 2 days, or on one: dates of now are right for news.
        (["2026-01-02"] * 20 + ["2026-01-03"] * 18, True, {"sitemaps_news": 1}),
        (["2026-01-02"] * 38, True, {"sitemaps_news": 1}),
    ],
)
def test_sitemaps_with_one_date_are_counted_but_for_news(dates, news, expected, tmp_path):
    rows, rejected, notes = read_bytes(tmp_path, dated(dates, news))
    assert len(rows) == len(dates) and not rejected and notes == expected


def test_of_many_distinct_dates_the_one_of_nearly_all_is_known(tmp_path, monkeypatch):
    """Though not all are held."""
    monkeypatch.setattr(sitemaps, "MAX_DISTINCT", 50)
    monkeypatch.setattr(sitemaps, "KEPT_DISTINCT", 5)
    monkeypatch.setattr(sitemaps, "ROWS", 20)
    monkeypatch.setattr(sitemaps, "FEED_BYTES", 1000)
    many = [f"2025-01-01T00:{i // 60:02}:{i % 60:02}Z" for i in range(200)]
    rows, _, notes = read_bytes(
        tmp_path, dated([*["2026-01-02"] * 2000, *many[:100], *["2026-01-02"] * 2000])
    )
    assert len(rows) == 4100 and notes == {"sitemaps_one_lastmod": 1}
    rows, _, notes = read_bytes(tmp_path, dated([*["2026-01-02"] * 2000, *many]))
    assert len(rows) == 2200 and notes == {}
    found = sitemaps._Dates()
    for i in range(0, 10_000, 20):
        found.add([str(j) for j in range(i, i + 20)])
        assert len(found._counts) <= 50


# --- files and memory -----------------------------------------------------------------------------------


def test_a_folder_of_sitemaps(tmp_path):
    for name in ("a.xml", "b.xml.gz", "c.txt", "d.rss", "e.atom", "_x.xml", "f.csv", "g.jsonl"):
        (tmp_path / name).write_bytes(urlset(ITEM))
    found = [Path(f.path).name for f in match_files(str(tmp_path), "sitemaps")]
    assert found == ["a.xml", "b.xml.gz", "c.txt", "d.rss", "e.atom"]
    assert [Path(f.path).name for f in match_files(str(tmp_path), "pages")] == ["f.csv", "g.jsonl"]
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match=r"--sitemaps: no data file.*end in \.xml"):
        match_files(f"{tmp_path}/empty", "sitemaps")


def test_rows_come_while_the_file_is_read(tmp_path, monkeypatch):
    """So memory does not follow the size of a file: neither its bytes nor its rows are gathered."""
    monkeypatch.setattr(sitemaps, "ROWS", 1000)
    path = tmp_path / "large.xml"
    path.write_bytes(urlset(*(f"<loc>https://a.test/{i}/{'x' * 80}</loc>" for i in range(50_000))))
    taken = 0

    def watched(path, size=1 << 16):
        nonlocal taken
        for chunk in stored(path, size):
            taken += len(chunk)
            yield chunk

    stored = sitemaps.stored
    monkeypatch.setattr(sitemaps, "stored", watched)
    seen = 0
    for block in sitemaps.read_sitemap(str(path), False):
        rows = block.batch.num_rows
        assert rows < 1000 + sitemaps.FEED_BYTES / 130
        seen += rows
        assert taken < seen * 140 + 3 * sitemaps.FEED_BYTES
    assert seen == 50_000 and taken == path.stat().st_size > 5 << 20


def test_memory_does_not_grow_with_the_number_of_sitemaps(tmp_path):
    """Files of 20,000 URLs, gzipped: parsed as a whole, and all at once, they took gigabytes elsewhere."""
    item = "<loc>https://a.test/{}</loc><lastmod>2026-01-02T03:04:05Z</lastmod>"
    data = gzip.compress(urlset(*(item.format(f"{i}/{'x' * 200}") for i in range(20_000))), 1)
    for name in "abc":
        (tmp_path / f"{name}.xml.gz").write_bytes(data)
    pool, peaks = pa.default_memory_pool(), []
    for pattern in ("a.xml.gz", "*.gz"):
        rows, arrow, before = 0, 0, pool.bytes_allocated()
        tracemalloc.start()
        for file in match_files(f"{tmp_path}/{pattern}", "sitemaps"):
            for split in plan(file, "sitemaps"):
                for _, batch in read_split(split, KINDS["sitemaps"]):
                    rows += batch.num_rows
                    arrow = max(arrow, pool.bytes_allocated() - before)
        peaks.append(tracemalloc.get_traced_memory()[1] + arrow)
        tracemalloc.stop()
        del batch
    assert rows == 60_000
    assert peaks[1] < 1.2 * peaks[0] < 60 << 20


@pytest.mark.skipif(not SAMPLES.is_dir(), reason="the folder of format samples is not beside the project")
def test_samples_of_others_are_read():
    """Every page once, by a count of the tags; nothing is rejected."""
    files = sorted(p for p in SAMPLES.rglob("*") if p.is_file())
    assert len(files) >= 25
    for path in files:
        data = path.read_bytes()
        text = (gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data).decode()
        rows, rejected, notes = read_path(path)
        assert not rejected, path
        if path.suffix == ".txt":
            assert len(rows) == len(text.split())
        elif "<sitemapindex" in text:
            assert not rows and notes["sitemaps_index_children"] == text.count("</sitemap>")
        else:
            assert len(rows) == text.count("</url>") + text.count("</sit:url>") > 0
            assert sum(r["precision"] > 1 for r in rows) == text.count("</lastmod>") + text.count(
                "</sit:lastmod>"
            )
