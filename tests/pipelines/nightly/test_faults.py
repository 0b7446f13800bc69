"""Faults seen in other tools that take more than one part of a night: what a user of the job gets."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest

from tests.pipelines.jobs import Night, at, crawls, nightly, seen, write_rows

OLD = [f"https://shop.test/old/{i}" for i in range(4)]
TARGET = "https://shop.test/new"


@pytest.fixture(scope="module")
def redirected(tmp_path_factory: pytest.TempPathFactory) -> Night:
    """Four URLs that redirect to one page, which changes every other day; other pages beside it."""
    rows = [seen(url, at(10 + d), "moved to /new", 301) for url in OLD for d in range(20)]
    rows += [seen(TARGET, at(10 + d), f"new {d // 2}") for d in range(20)]
    pace = ("A" * 20, "AAAAABBBBB" * 2, "AABBCCDDEE" * 2, "A" * 10 + "B" * 10, "ABCDEFGHIJ" * 2)
    rows += [r for i in range(40) for r in crawls(f"https://h{i % 7}.test/{i}", pace[i % 5], 10)]
    night = nightly(tmp_path_factory.mktemp("redirected"), observations=rows, budget=60)
    assert night.code == 0, night.complaints
    return night


def test_redirects_are_pages_of_their_own_that_hardly_change(redirected):
    """Elsewhere each fetch of a redirect was one of its target, too, and a 301 was taken for a change."""
    target = redirected.page(TARGET)
    assert (target["n_intervals"], target["n_changes"]) == (19, 9)
    for url in OLD:
        page = redirected.page(url)
        assert (page["n_intervals"], page["n_changes"]) == (19, 0)
        assert 0 < page["change_rate_per_day"] < 0.25 * target["change_rate_per_day"]
        assert page["crawl_rate_per_day"] < 0.5 * target["crawl_rate_per_day"]


def test_a_target_has_the_slots_of_one_page(redirected):
    slots, rate = redirected.slots_of(TARGET), redirected.page(TARGET)["crawl_rate_per_day"]
    assert 1 <= len(slots) <= rate + 2
    assert len({r["due_at"] for r in slots}) == len(slots)
    others = [redirected.page(u)["crawl_rate_per_day"] for u in redirected.urls() if "//h" in u]
    assert rate < 1.5 * max(others)


def _cdx(day: float, url: str, status: str = "200", digest: str = "A", mime: str = "text/html") -> str:
    host, path = url.removeprefix("https://").split("/", 1)
    when = at(day)[:19].translate({ord(c): None for c in "-:T"})
    key = f"{','.join(reversed(host.split('.')))})/{path}"
    return f"{key} {when} {url} {mime} {status} {digest * 32} - - 9 0 a.warc.gz\n"


def test_an_index_of_an_archive_as_a_crawl_log(tmp_path: Path):
    """Lines that are broken, given again, seconds apart, revisits, or unsorted make a false history."""
    url, other = "https://a.test/x", "https://a.test/y"
    first = [_cdx(3, url), *[_cdx(1, url)] * 3, _cdx(1 + 2 / 86_400, url, digest="B")]
    first += ["<urlopen error [Errno -3] Temporary failure in name resolution>\n", _cdx(2, f"{url} z")]
    second = [_cdx(2, url, "-", mime="warc/revisit"), _cdx(4, url, "-", "C", "warc/revisit")]
    second += [_cdx(1, other, "304"), _cdx(2, other), _cdx(3, other), _cdx(2, "https://a.test/100%")]
    (tmp_path / "logs").mkdir()
    header = " CDX N b a m s k r M S V g\n"
    (tmp_path / "logs" / "b.cdx").write_text(header + "".join(first))
    (tmp_path / "logs" / "a.cdx").write_text(header + "".join(second))
    night = nightly(tmp_path, observations=tmp_path / "logs")
    assert night.code == 0, night.complaints
    assert night.urls() == ["https://a.test/100%", url, other]
    learned = {u: (night.page(u)["n_intervals"], night.page(u)["n_changes"]) for u in night.urls()}
    assert learned == {"https://a.test/100%": (0, 0), url: (3, 1), other: (1, 0)}
    assert night.counters["duplicate"] == 3 and night.counters["not_modified_without_baseline"] == 1
    found = {(Path(r["source"]).name, r["row"]) for r in night.rejected()}
    assert found == {("b.cdx", 7), ("b.cdx", 8)}


def test_pages_that_a_full_export_lacks_are_still_asked_for(tmp_path: Path):
    """An export ends at 1,000 rows: what is not among them has few clicks, not none."""
    listed = [f"https://h{i % 20}.test/{i}" for i in range(1000)]
    absent = [f"https://h{i}.test/absent" for i in range(20)]
    log = write_rows(
        tmp_path / "log.csv", [seen(u, at(27 + d), f"{u}{d}") for u in [*listed, *absent] for d in (0, 2)]
    )
    table = tmp_path / "Pages-2026-06-29.csv"
    lines = [f"{u},{1 + 2000 // (1 + i)},{9000 // (1 + i)},20%,3.1\n" for i, u in enumerate(listed)]
    table.write_text("Top pages,Clicks,Impressions,CTR,Position\n" + "".join(lines))
    night = nightly(tmp_path, observations=log, requests=table, budget=500)
    assert night.code == 0, night.complaints
    assert any("gsc_truncated" in text for text in night.manifest["warnings"])
    weight = {r["url"]: r["weight"] for r in night.rows("pages")}
    least = min(weight[u] for u in listed)
    assert all(0 < weight[u] <= least for u in absent)


def test_a_url_that_was_stored_with_a_blank_is_crawled_once_a_gap(tmp_path: Path):
    """The same page under two spellings was fetched hundreds of times in hours, never found as known."""
    rows = crawls("https://a.test/x ", "ABCDE", 24) + crawls("https://a.test/x", "ABCDE", 24.5)
    first = nightly(tmp_path, "first", observations=rows, budget=50, host_min_gap_seconds=3600)
    again = [seen(f"{r['url']}\t", r["due_at"].isoformat(), "E") for r in first.rows("schedule")]
    second = nightly(
        tmp_path,
        "second",
        observations=again,
        state=first.folder / "state",
        as_of=at(31),
        budget=50,
        host_min_gap_seconds=3600,
    )
    for night in (first, second):
        assert night.code == 0 and night.urls() == ["https://a.test/x"]
        due = [r["due_at"] for r in night.slots_of("https://a.test/x")]
        assert len(due) == 24
        assert min((b - a).total_seconds() for a, b in pairwise(due)) >= 3600
