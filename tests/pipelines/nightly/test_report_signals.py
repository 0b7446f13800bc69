"""The summary of a night: what it says of signals."""

from __future__ import annotations

import re
from typing import Any

from pipelines.nightly.report import summary
from tests.pipelines.jobs import at, crawls, nightly, seen
from tests.pipelines.signalled import Host, World, after, ping


def _source(name: str, **more: Any) -> dict[str, Any]:
    return {
        "source": name,
        "hosts": 2,
        "hosts_silent": 0,
        "pages": 1234,
        "signals_since_crawl": 5,
        "signal_rate_per_day": 12.5,
        "signal_precision": 0.81,
        "signal_recall": 0.6,
    } | more


def _manifest(said: dict[str, Any] | None, **counters: int) -> dict[str, Any]:
    """As much of a manifest as the summary reads."""
    return {
        "status": "ok",
        "options": {
            "as_of": "2026-07-01T00:00:00Z",
            "host_max_per_day": None,
            "host_min_gap_seconds": 0,
            "hosts": None,
        },
        "counters": counters,
        "signals": said,
        "budget_per_day": 10.0,
        "allocated_per_day": 10.0,
        "unspent_per_day": 0.0,
        "multiplier": 0.5,
        "weight_by": "equal",
        "search": {"status": "converged", "rounds": 2},
        "expected_freshness": 0.9,
        "expected_freshness_uniform": 0.8,
        "hosts_at_limit": [],
        "files": [],
        "warnings": [],
    }


def _signals(*sources: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {
        "expected_freshness": 0.9,
        "expected_freshness_without": 0.85,
        "crawls_saved_per_day_at_least": 123.4,
        "sources": list(sources),
        "hosts": [],
    } | more


def _line(text: str, name: str) -> str:
    (line,) = [row for row in text.splitlines() if row.startswith(f"  {name:<20}")]
    return line[22:]


def test_the_summary_names_sources_and_what_they_buy():
    few = _source("sitemap", hosts_silent=1, signal_rate_per_day=0.25, signal_precision=None)
    text = summary(_manifest(_signals(few, _source("ping")), signals=70, signals_counted=60), "out", 1.0)
    assert _line(text, "signals") == (
        "70 of known pages, 60 counted; ping 81% true, 60% of changes told (12.5 a day on 1,234 pages of "
        "2 hosts); sitemap unknown true, 60% of changes told (0.25 a day on 1,234 pages of 2 hosts, "
        "silent on 1)"
    )
    assert _line(text, "signals buy") == (
        "expected freshness 0.9000 with signals, 0.8500 without: as good as 123 more crawls a day, at least"
    )


def test_the_host_that_pulls_a_source_down_is_named():
    flood = {
        "host": "flood.test",
        "signal_rate_per_day": 12_000.4,
        "signal_precision": 0.011,
        "learned": True,
    }
    source = _source(
        "indexnow",
        signal_rate_per_day=12_400.0,
        signal_precision=0.05,
        most_false=[flood],
        signal_precision_of_others=0.98,
    )

    def said(**more: Any) -> str:
        return _line(summary(_manifest(_signals(source | more), signals=7), "out", 1.0), "signals")

    assert said().endswith(
        "indexnow 5% true (flood.test: 12,000 of 12,400 signals a day, 1% true; others 98%), 60% of changes "
        "told (1.24e+04 a day on 1,234 pages of 2 hosts)"
    )
    assert "signals a day, not learned yet; others 98%" in said(most_false=[flood | {"learned": False}])
    for others in (None, 0.14, 0.01):
        assert "flood" not in said(signal_precision_of_others=others)


def test_what_is_not_learned_has_no_figures():
    new = _source("sitemap", learned=False, hosts_not_learned=2)
    some = _source("ping", signal_rate_per_day=9.0, learned=True, hosts_not_learned=1, hosts_silent=1)
    text = _line(summary(_manifest(_signals(new, some), signals=7), "out", 1.0), "signals")
    assert "; sitemap not learned yet (12.5 a day on 1,234 pages of 2 hosts); ping 81% true, " in text
    assert text.endswith("(9 a day on 1,234 pages of 2 hosts, not learned yet on 1, silent on 1)")


def test_only_the_largest_sources_are_named():
    sources = [_source(f"s{i}", signal_rate_per_day=float(i)) for i in range(7)]
    line = _line(summary(_manifest(_signals(*sources)), "out", 1.0), "signals")
    assert "s6" in line and "s3" in line and "s2" not in line and line.endswith("; 3 more")


def test_nights_without_signals_do_not_speak_of_them():
    for signals in (None, _signals()):
        assert "signals" not in summary(_manifest(signals), "out", 1.0)
    none = _signals(expected_freshness=None, expected_freshness_without=None)
    text = summary(_manifest(none, signals=3), "out", 1.0)
    assert _line(text, "signals").endswith("none yet") and "signals buy" not in text
    waiting = summary(_manifest(none, signals=5, signals_after_as_of=2), "out", 1.0)
    assert _line(waiting, "signals").startswith("3 of known pages, 0 counted")


def test_rows_are_named_by_what_they_are():
    """Of unknown pages are others than those from before a page's first visit."""
    requests = {"requests_accepted": 9, "requests_unmatched": 2, "requests_before_known": 3}
    requests |= {"requests_after_as_of": 1, "requests_late": 4}
    signals = {"signals_accepted": 9, "signals_unmatched": 1, "signals_before_known": 5}
    signals |= {"signals_after_as_of": 6, "signals_late": 7}
    text = summary(_manifest(None, **requests, **signals, hosts_accepted=2, hosts_unmatched=1), "out", 1.0)
    assert _line(text, "requests rows") == (
        "9 read, 2 of unknown pages, 3 from before their page was known, 4 of days counted before, "
        "1 of days not over yet"
    )
    assert _line(text, "signals rows") == (
        "9 read, 1 of unknown pages, 5 from before their page was known, "
        "7 not newer than the last visit or signal of their page, 6 later than --as_of"
    )
    assert _line(text, "hosts rows") == "2 read, 1 of hosts without pages"


def test_the_dates_of_sitemaps():
    files = {"sitemaps_files": 4, "sitemaps_accepted": 90}
    first = summary(_manifest(None, **files, lastmod_first_seen=80, lastmod_moved=0), "out", 1.0)
    noted = "they are noted, those that move are signals from the next night"
    assert _line(first, "sitemaps") == f"dates: 0 moved, 80 first seen; {noted}"
    dates = {"lastmod_moved": 5, "lastmod_first_seen": 3, "sitemap_unknown_pages": 2, "bad_lastmod": 4}
    dates |= {"future_lastmod": 1, "sitemaps_one_lastmod": 2, "lastmod_same": 70, "lastmod_back": 6}
    dates |= {"sitemaps_index": 2, "sitemaps_index_children": 1400}
    dates |= {"sitemap_repeated": 9, "no_lastmod": 7, "coarse_lastmod": 8}
    assert _line(summary(_manifest(None, **files, **dates), "out", 1.0), "sitemaps") == (
        "dates: 5 moved, 3 first seen, 70 the same, 6 older than before, 9 of pages in several files, "
        "2 of unknown pages, 7 missing, 8 a year or a month, 4 unreadable, "
        "1 later than --as_of; 2 files have one date for all; 2 indexes name 1,400 sitemaps, "
        "at least 1,398 of which are not among the files: give all"
    )
    one = {"sitemaps_one_lastmod": 1, "sitemaps_index": 1, "sitemaps_index_children": 1}
    assert _line(summary(_manifest(None, **files, **one), "out", 1.0), "sitemaps") == (
        "dates: 0 moved; 1 file has one date for all; 1 index names 1 sitemap"
    )
    assert not [row for row in summary(_manifest(None), "out", 1.0).splitlines() if "sitemaps" in row]


def test_rejected_rows_and_notes_are_told_apart():
    counters = {"sitemaps_rejected": 3, "sitemaps_rejected_bad_url": 3, "sitemaps_files_truncated": 1}
    manifest = _manifest(None, **counters)
    manifest["files"] = [{"path": "rejected/0.parquet", "rows": 4}, {"path": "pages/0.parquet", "rows": 9}]
    said = "3 sitemaps bad_url, 1 sitemaps truncated_file"
    assert _line(summary(manifest, "out", 1.0), "rejected") == said
    manifest["counters"]["sitemaps_noted_bad_lastmod"] = 2
    manifest["files"][0]["rows"] = 6
    said += "; rejected/ has notes, too, where no row is lost: 2 sitemaps bad_lastmod"
    assert _line(summary(manifest, "out", 1.0), "rejected") == said
    manifest["counters"]["sitemaps_rejected_bad_url"] = 1000
    assert "; rejected/ has 4 rows for them; " in _line(summary(manifest, "out", 1.0), "rejected")


def test_a_night_prints_them(tmp_path):
    log = [row for i in range(6) for row in crawls(f"https://a.test/{i}", "AABBCC", 24)]
    told = [
        {"url": f"https://a.test/{i}", "signalled_at": at(24 + d, 12), "source": "ping"}
        for i in range(6)
        for d in (1, 3)
    ]
    night = nightly(tmp_path, observations=[*log, seen("https://a.test/0", at(29.5), "C")], signals=told)
    assert night.code == 0, night.complaints
    assert _line(night.printed, "signals rows") == "12 read"
    (source,) = night.manifest["signals"]["sources"]
    line = _line(night.printed, "signals")
    assert line.startswith("12 of known pages, 12 counted; ping ")
    assert f"{source['signal_precision']:.0%} true, {source['signal_recall']:.0%} of changes told" in line
    assert "without" in _line(night.printed, "signals buy")


def test_signals_that_are_all_bad_and_options_without_effect_are_told_on_standard_error(tmp_path):
    """The share of all rows is too small to stop the night."""
    log = [row for i in range(60) for row in crawls(f"https://a.test/{i}", "AABBCCDDEE", 19)]
    bad = [{"url": f"https://a.test/{i}", "signalled_at": "soon", "source": "ping"} for i in range(5)]
    night = nightly(
        tmp_path, observations=log, signals=bad, max_rejected_fraction=0.01, flags=["--sitemap_pages"]
    )
    assert night.code == 0, night.complaints
    rejected, alone = night.manifest["warnings"]
    assert rejected.startswith("all 5 rows of --signals were rejected (bad_timestamp: 5)")
    assert alone.startswith("--sitemap_pages does nothing without --sitemaps")
    for text in (rejected, alone):
        assert f"recrawl nightly: WARNING: {text}\n" in night.complaints
        assert f"WARNING: {text}" in night.printed


def test_an_objective_without_its_signals_is_told(tmp_path):
    night = nightly(tmp_path, observations=crawls("https://a.test/", "AABB", 24), objective="signals")
    assert night.code == 0, night.complaints
    assert "recrawl nightly: WARNING: --objective=signals without any signals" in night.complaints


def test_a_night_names_a_flood_and_what_it_has_not_learned(tmp_path):
    """Two good hosts beside one with thousands of false signals; a source of which no crawl has told yet."""
    good = Host(30, 0.2, 0.95, 0.8)
    flood = Host(100, 0.05, 1.0, 0.0, false_per_day=4.0)
    world = World({"a.test": good, "b.test": good, "flood.test": flood})
    log = world.first_log(20, 0.7)
    told = world.announced(0, 20) + [ping(f"https://b.test/{i}", 19.9, "sitemap") for i in range(9)]
    night = after(tmp_path, "night", None, 20, log, signals=told, budget=100)
    line = _line(night.printed, "signals")
    assert re.search(
        r"ping \d% true \(flood.test: 3\d\d of 3\d\d signals a day, 0% true; others 9\d%\)", line
    )
    assert "; sitemap not learned yet (" in line
    (text,) = night.manifest["warnings"]
    assert re.match(
        r"host flood.test sends 3\d\d signals of source ping a day, less than 1% of them true", text
    )
