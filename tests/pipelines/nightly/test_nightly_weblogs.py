"""Whole nights whose requests are logs of web servers and whose limits are robots.txt files."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from tests.pipelines.jobs import Night, at, crawls, nightly
from transforms.batches.hashing import stable_hash

PAGES = [f"https://shop.test/p/{i}" for i in range(40)]
OTHER = [f"https://other.test/p/{i}" for i in range(40)]
LOG = [row for i, url in enumerate(PAGES + OTHER) for row in crawls(url, "ABC", 20 + i / 100)]
BROWSER = "Mozilla/5.0 (X11; Linux x86_64; rv:126.0) Gecko/20100101 Firefox/126.0"
OURS = "OurBot/1.0 (+https://shop.test/bot)"


def clicks(path: str, n: int, agent: str = BROWSER, more: str = "") -> str:
    text = f'192.0.2.7 - - [29/Jun/2026:10:00:00 +0000] "GET {path} HTTP/1.1" 200 512 "-" "{agent}"{more}\n'
    return text * n


def clicked(night: Night) -> list[str]:
    """Pages of which the state has clicks."""
    return [row["url"] for row in night.rows("state") if sum(row["request_clicks"] or [])]


@pytest.fixture(scope="module")
def night(tmp_path_factory: pytest.TempPathFactory) -> Night:
    folder = tmp_path_factory.mktemp("weblogs")
    logs, robots = folder / "logs", folder / "robots"
    logs.mkdir()
    robots.mkdir()
    (logs / "access.log").write_text(
        clicks("/p/1?utm_source=mail#top", 30)
        + clicks("/p/2", 1000, OURS)
        + clicks("/p/3", 1000, "Mozilla/5.0 (compatible; Googlebot/2.1)")
        + clicks("/gone", 10)
        + "broken\n"
    )
    rules = "User-agent: OurBot\nCrawl-delay: 120\n\nUser-agent: *\nCrawl-delay: 1\n"
    (robots / "shop.test.txt").write_text(rules)
    (robots / "huge.test.txt").write_text("User-agent: *\nCrawl-delay: 1e12\n")
    return nightly(
        folder,
        observations=LOG,
        requests=logs,
        hosts=robots,
        requests_site="https://shop.test",
        own_user_agent="ourbot",
        budget=24 * 400,
        host_min_gap_seconds=1,
        weight_by="equal",
    )


def test_own_hits_and_bots_give_no_importance(night: Night):
    """A crawler that reads its own hits as clicks would crawl what it has crawled."""
    assert night.code == 0
    assert clicked(night) == [PAGES[1]]
    rates = [night.page(url)["request_rate_per_day"] for url in PAGES[1:5]]
    assert rates[0] > 2 * rates[1] > 0 and rates[1] == rates[2] == rates[3]
    kept = {k: n for k, n in night.counters.items() if k.startswith("requests_left_out_")}
    assert kept == {"requests_left_out_bot": 1000, "requests_left_out_own_crawler": 1000}
    assert night.counters["requests_rejected_bad_line"] == 1


def test_the_share_of_clicks_that_join_a_page_is_told(night: Night):
    counters = night.counters
    assert (counters["requests_clicks"], counters["requests_clicks_joined"]) == (40, 30)
    assert "75.0% of 40 clicks are of known pages" in night.printed
    assert "; 2,000 more left out (1,000 bot, 1,000 own crawler)" in night.printed


def test_a_slow_host_takes_its_time_and_no_one_elses(night: Night):
    """120 s are 30 slots an hour; the other host has all that it can use."""
    hours = {
        host: Counter(row["due_at"].hour for row in night.slots_of(*urls))
        for host, urls in (("slow", PAGES), ("free", OTHER))
    }
    assert max(hours["slow"].values()) == 30
    assert sum(hours["slow"].values()) == 24 * 30
    assert min(hours["free"].values()) > 100
    (limit,) = [row for row in night.rows("hosts") if row["host"] == "shop.test"]
    assert limit["min_gap_seconds"] == 120
    assert [row["reason"] for row in night.rejected() if "huge" in row["source"]] == ["crawl_delay"]


def test_a_log_without_its_site_is_told_before_the_night(tmp_path: Path):
    (tmp_path / "access.log").write_text(clicks("/p/1", 3))
    stopped = nightly(tmp_path, observations=LOG, requests=tmp_path / "access.log")
    assert stopped.code == 2 and "--requests_site https://HOST" in stopped.complaints
    assert not stopped.committed


def test_a_log_of_strangers_and_a_full_export_are_warned_of(tmp_path: Path):
    """A cut export; and URLs that no page has, which most often are written otherwise."""
    rows = "".join(f"https://www.shop.test/{i},1,2,50%,1\n" for i in range(1000))
    path = tmp_path / "Pages-2026-06-29.csv"
    path.write_text("Top pages,Clicks,Impressions,CTR,Position\n" + rows)
    found = nightly(tmp_path, observations=LOG, requests=path, as_of=at(30))
    assert found.code == 0
    assert "none of 1,000 clicks are of known pages" in found.printed
    assert "; not one is a page: see scheme and host (--requests_site)\n" in found.printed
    assert "--tracking_parameters" not in found.printed and "have clicks" not in found.printed
    warned = " ".join(found.manifest["warnings"])
    assert "gsc_truncated: 1 export has" in warned
    assert "none of 1,000 URLs of --requests is that of a known page" in warned


def test_a_log_and_an_export_in_one_night_are_warned_of(tmp_path: Path):
    """The same visitors, counted by the server and by the search engine."""
    (tmp_path / "access.log").write_text(clicks("/p/1", 30))
    export = tmp_path / "Pages-2026-06-29.csv"
    export.write_text(f'Top pages,Clicks,Impressions,CTR,Position\n{PAGES[1]},"1,200",9999,12%,1\n')
    given = {"observations": LOG, "requests_site": "https://shop.test"}
    both = nightly(tmp_path, "both", requests=f"{tmp_path / 'access.log'},{export}", **given)
    (text,) = [w for w in both.manifest["warnings"] if "twice" in w]
    assert text.startswith("30 clicks are of logs of web servers and 1,200 of exports of Search Console")
    assert f"WARNING: {text}" in both.printed
    for one in (tmp_path / "access.log", export):
        night = nightly(tmp_path, one.stem, requests=one, **given)
        assert not [w for w in night.manifest["warnings"] if "twice" in w]


@pytest.mark.parametrize("cut", [{}, {"num_shards": 3, "rows_per_batch": 7}])
def test_urls_that_find_no_page_are_shown(cut: dict[str, int], tmp_path: Path):
    """Some of them, the same ones however the night is cut; none where nearly all find theirs."""
    lost = [f"/p/{i}?ref=home" for i in range(40)]
    (tmp_path / "access.log").write_text("".join(clicks(path, 1 + i) for i, path in enumerate(lost)))
    given = {"observations": LOG, "requests": tmp_path / "access.log", "requests_site": "https://shop.test"}
    night = nightly(tmp_path, **given, **cut)
    urls = sorted((f"https://shop.test{path}" for path in lost), key=stable_hash)[:3]
    assert night.manifest["unknown_pages"] == urls
    assert f"such as {', '.join(urls)}; name parameters" in night.printed
    assert "--tracking_parameters, if scheme and host (--requests_site) are right\n" in night.printed
    assert not clicked(night)
    named = nightly(tmp_path, "named", **given, tracking_parameters="src,ref")
    assert named.manifest["unknown_pages"] == [] and "such as" not in named.printed
    assert named.counters["requests_clicks_joined"] == 820 and len(clicked(named)) == 40


def test_inputs_without_a_click_are_no_error(tmp_path: Path):
    """Header only, or nothing but bots."""
    header = tmp_path / "Search appearance.csv"
    header.write_text("Search appearance,Clicks,Impressions,CTR,Position\n")
    bots = tmp_path / "access.log"
    bots.write_text(clicks("/p/1", 3, "Googlebot/2.1"))
    found = nightly(tmp_path, observations=LOG, requests=f"{header},{bots}")
    assert found.code == 0
    assert not clicked(found)


def test_a_click_log_of_one_host_of_three_is_a_warning(tmp_path):
    """It decides what all pages weigh, so those of the others are hardly crawled."""
    rows = [r for h in "abc" for i in range(6) for r in crawls(f"https://{h}.test/{i}", "AABB")]
    clicks = [{"url": f"https://a.test/{i}", "day": "2026-06-03", "clicks": 50} for i in range(6)]
    night = nightly(tmp_path, observations=rows, requests=clicks)
    (text,) = [w for w in night.manifest["warnings"] if "hosts" in w]
    assert text.startswith("clicks are of 1 of 3 hosts: ") and f"WARNING: {text}" in night.printed
    assert "1 of 3 hosts have clicks" in night.printed
    equal = nightly(tmp_path, "equal", observations=rows, requests=clicks, weight_by="equal")
    assert not [w for w in equal.manifest["warnings"] if "hosts" in w]
