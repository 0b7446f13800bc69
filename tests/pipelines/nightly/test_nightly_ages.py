"""Whole nights on a log that is not of the night: known already, later, or of long ago."""

from __future__ import annotations

from tests.pipelines.jobs import at, crawls, nightly

ROWS = [r for i in range(6) for r in crawls(f"https://a.test/{i}", "AABBC", 20)]  # until the 25th day


def test_yesterdays_log_given_again(tmp_path):
    first = nightly(tmp_path, "first", observations=ROWS, as_of=at(25))
    assert first.code == 0 and not first.manifest["warnings"]
    assert "30 read: " in first.printed and "; the newest of 2026-06-25\n" in first.printed
    again = nightly(tmp_path, "again", observations=ROWS, as_of=at(26), state=first.folder / "state")
    (text,) = again.manifest["warnings"]
    assert again.code == 0 and text.startswith("no row of the crawl log is new: 6 are known and 24 older")
    assert f"WARNING: {text}" in again.printed
    assert "; the newest of 2026-06-25, 1 day before --as_of\n" in again.printed


def test_the_night_is_before_the_dump(tmp_path):
    """With the dump as `--pages`, too, its pages would all be planned as never crawled, and nothing said."""
    pages = [{"url": row["url"]} for row in ROWS[::5]]
    early = nightly(tmp_path, observations=ROWS, pages=pages, as_of=at(19))
    assert early.code == 0 and "6 on 1 host, 6 never crawled" in early.printed
    (text,) = early.manifest["warnings"]
    assert text.startswith("all 30 rows of the crawl log are later than --as_of")
    assert early.manifest["weights_alike"] and " more pages fresh (" in early.printed  # a list of URLs


def test_the_night_is_long_after_the_log(tmp_path):
    pages = [{"url": ROWS[0]["url"], "importance": 2}]
    late = nightly(tmp_path, observations=ROWS, pages=pages, as_of="2027-07-01T00:00:00Z")
    assert not late.manifest["weights_alike"] and " over all pages, weighted by importance (" in late.printed
    (text,) = late.manifest["warnings"]
    assert late.code == 0 and "of 2026-06-25, 370 days before --as_of. Right for an archive" in text
    assert "; the newest of 2026-06-25, 370 days before --as_of\n" in late.printed
