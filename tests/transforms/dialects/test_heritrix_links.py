"""Links of Heritrix' crawl.log."""

from pathlib import Path

from transforms.batches.kinds import REPLAYED
from transforms.intake.sources import ROWS, plan_files, read_split

A = "A" * 32
LOG = f"""\
2026-01-01T02:00:00.010Z   200       5120 https://a.test/ - - text/html #012 20260101020000500+310 sha1:{A} - -
2026-01-01T02:00:05.010Z   200       5120 https://a.test/1 L https://a.test/ text/html #012 20260101020004500+310 sha1:{A} - -
2026-01-01T02:00:06.010Z   200       5120 https://a.test/x.css E https://a.test/ text/css #012 20260101020005500+310 sha1:{A} - -
2026-01-01T02:00:07.010Z     1         52 dns:a.test P https://a.test/ text/dns #003 20260101020006700+95 sha1:{A} - -
2026-01-01T08:00:00.010Z   200       5120 https://a.test/ - - text/html #012 20260101080000500+310 sha1:{A} - - {{"x": 1, "y": "z z"}}
2026-01-01T08:00:05.010Z   404       5120 https://a.test/2 L https://a.test/ text/html #012 20260101080004500+310 sha1:{A} - -
2026-01-01T08:00:06.010Z   200       5120 https://a.test/3 LL https://a.test/1 text/html #012 20260101080005500+310 sha1:{A} - -
2026-01-01T08:00:07.010Z   200       5120 https://a.test/4 LLL https://b.test/ text/html #012 20260101080006500+310 sha1:{A} - -
2026-01-01T08:00:07.110Z   200       5120 https://a.test/s.xml M https://a.test/robots.txt text/xml #012 20260101080006600+10 sha1:{A} - -
2026-01-01T08:00:08.110Z   200       5120 https://a.test/5 MM https://a.test/s.xml text/html #012 20260101080007600+10 sha1:{A} - -
2026-01-01T08:00:08.010Z   200  cut
"""


def test_a_link_is_seen_when_the_page_before_it_was_fetched(tmp_path: Path) -> None:
    (tmp_path / "crawl.log").write_text(LOG)
    (split,) = plan_files(str(tmp_path / "crawl.log"), "links_seen")
    assert split.form == "heritrix"
    found, rejected = [], []
    for tag, batch in read_split(split, REPLAYED["links_seen"]):
        (found if tag == ROWS else rejected).extend(batch.to_pylist())
    links = {(r["source"], r["target"], f"{r['seen_at']:%H:%M:%S}") for r in found if r["target"]}
    assert links == {
        ("https://a.test/", "https://a.test/1", "02:00:00"),
        # A link is one whatever became of its fetch, and belongs to the last fetch of its page.
        ("https://a.test/", "https://a.test/2", "08:00:00"),
        ("https://a.test/1", "https://a.test/3", "02:00:04"),
        # An entry of a sitemap, but not where that is.
        ("https://a.test/s.xml", "https://a.test/5", "08:00:06"),
    }
    fetches = {(r["source"], f"{r['seen_at']:%H:%M:%S}", r["ok"]) for r in found if not r["target"]}
    assert {("https://a.test/", "02:00:00", True), ("https://a.test/2", "08:00:04", False)} <= fetches
    assert len(fetches) == 9 and all(r["partial"] for r in found)
    assert [(r["row"], r["reason"]) for r in rejected] == [(11, "column_count")]
