"""Whole nights: volatile pages are capped and named."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.pipelines.jobs import Night, at, command, crawls, nightly, seen

FIRST = 20


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("volatile")


def _run(folder: Path, name: str, rows: list, day: int, before: Night | None = None, **options: Any) -> Night:
    more = {"state": before.folder / "state", "flags": ["--allow_shrink"]} if before else {}
    night = nightly(folder, name, observations=rows, as_of=at(day), budget=30, **(more | options))
    assert night.code == 0, night.complaints
    return night


VISITS = [0, 0.02, 0.04, 0.06, 0.1, 0.2, 1, 2, 4, 7, 8, 13, 19]


def _volatile_log() -> list[dict[str, Any]]:
    """Found changed whatever the gap; at an even pace; once unchanged; and forty ordinary pages."""
    rows = [seen("https://v.test/token", at(d), f"t{d}") for d in VISITS]
    rows += crawls("https://v.test/even", "abcdefghijklmnopqrst")
    rows += [
        seen("https://v.test/once", at(d), f"t{d - (d == 19)}")
        for d in [0, 1, 2, 4, 7, 8, 13, 14, 15, 18, 19]
    ]
    for i in range(40):
        rows += crawls(f"https://v.test/page{i}", "AAAAABBBBB", i / 40, 2.0)
    return rows


def _volatile(folder: Path, name: str, **options: Any) -> Night:
    """The second of two nights on that log: the first knows no multiplier, and calls no page volatile."""
    middle, log, signals = at(10), _volatile_log(), options.pop("signals", [])
    before: Night | None = None
    for day, now in ((10, [True, False]), (FIRST, [False, True])):
        rows = [r for r in log if now[r["fetched_at"] >= middle]]
        if signals:
            options["signals"] = [r for r in signals if now[r["signalled_at"] >= middle]]
        before = _run(folder, f"{name}{day}", rows, day, before, **options)
        if day == 10:
            assert before.counters["pages_volatile"] == 0
    assert before is not None
    return before


def test_a_first_night_puts_no_page_aside(folder):
    """The home page changes daily and is nearly all that is asked for; its articles hardly change."""
    days = [0.5, 1.5, 2.5, 4.5, 5.5, 9.5, 11.5, 12.5, 16.5, 17.5]
    rows = [seen("https://w.test/", at(d), f"home{int(d):03d}") for d in days]
    for i in range(60):
        rows += [
            seen(f"https://w.test/{i}", at(d), "b" if i % 6 == 0 and d > 15 else "a")
            for d in (0.2 + i / 100, 7, 14 + i / 100, 18)
        ]
    pages = [{"url": "https://w.test/", "importance": 1000.0}]
    night = _run(folder, "home", rows, FIRST, pages=pages)
    assert night.page("https://w.test/")["crawl_rate_per_day"] > 10
    fresh, equal = (night.manifest[f"expected_freshness{name}"] for name in ("", "_uniform"))
    assert fresh > 0.9 > 0.6 > equal and not night.manifest["warnings"]

    # The same by a cap is worse than no plan at all, and says so.
    capped = _run(folder, "capped", rows, FIRST, pages=[{**pages[0], "max_rate_per_day": 0.03}])
    fresh, equal = (capped.manifest[f"expected_freshness{name}"] for name in ("", "_uniform"))
    (warning,) = capped.manifest["warnings"]
    assert warning.startswith(f"expected freshness is {fresh:.4f}, below the {equal:.4f} of one rate")
    assert ": 1 by a cap (max_rate_per_day" in warning


def test_volatile_pages_are_capped_and_said_to_be_so(folder):
    night = _volatile(folder, "volatile")
    flags = {r["url"]: r["volatile"] for r in night.rows("pages")}
    assert [url for url, flag in flags.items() if flag] == ["https://v.test/token"]
    assert night.counters["pages_volatile"] == 1
    page = night.page("https://v.test/token")
    assert page["crawl_rate_per_day"] <= 1 / 30 and page["limit"] in ("volatile", "starved")
    assert night.page("https://v.test/even")["crawl_rate_per_day"] > 0.5
    assert "1 volatile" in night.printed

    code, text, complaints = command("diff", str(night.folder), str(night.folder), "--url", page["url"])
    assert code == 0, complaints
    (line,) = [line for line in text.splitlines() if line.startswith("  volatile ")]
    assert line.count("yes, new at every visit") == 2
    even = command("diff", str(night.folder), str(night.folder), "--url", "https://v.test/even")[1]
    assert "\n  limit " in even and "\n  volatile" not in even

    again = [seen("https://v.test/token", at(20.5), "t19")]
    after = _run(folder, "unchanged", again, FIRST + 1, night)
    assert not after.page("https://v.test/token")["volatile"]
    assert after.counters["pages_volatile"] == 0


def test_what_was_crawled_because_of_signals_is_none(folder):
    """The same log: each visit to the page came after a signal, and its host's signals tell of changes."""
    signals = [{"url": "https://v.test/token", "signalled_at": at(d - 0.05)} for d in VISITS[1:]]
    signals += [{"url": f"https://v.test/page{i}", "signalled_at": at(9.0 + i / 40)} for i in range(40)]
    night = _volatile(folder, "signalled", signals=signals)
    assert night.manifest["options"]["objective"] == "signals" and night.counters["pages_volatile"] == 0
    assert night.page("https://v.test/token")["crawl_rate_per_day"] > 1 / 30
    night = _volatile(folder, "unheard", signals=signals, objective="periodic")
    assert night.counters["pages_volatile"] == 1


def test_a_split_host_is_one_host(folder):
    """Of its parts some have the token alone with few others: what is ordinary there is learned from all."""
    flags = []
    for above, shards in ((10**9, 1), (20, 2), (20, 5)):
        options = {"split_hosts_above": above, "num_shards": shards}
        night = _volatile(folder, f"split{above}-{shards}", **options)
        assert bool(night.manifest["split_hosts"]) == (shards > 1)
        flags.append([r["url"] for r in night.rows("pages") if r["volatile"]])
    assert flags == [["https://v.test/token"]] * 3


def test_a_floor_stands_for_a_volatile_page(folder):
    pages = [{"url": "https://v.test/token", "min_rate_per_day": 2.0}]
    night = _volatile(folder, "floor", pages=pages)
    page = night.page("https://v.test/token")
    assert page["volatile"] and page["crawl_rate_per_day"] == pytest.approx(2.0)


def test_what_is_asked_for_most_is_tried_at_shorter_gaps_first(folder):
    """With the multiplier of the night before a page that weighs enough keeps its rate."""
    first = _volatile(folder, "heavy0")
    assert first.page("https://v.test/token")["volatile"]
    multiplier = json.loads((first.folder / "manifest.json").read_text())["multiplier"]
    rows = [seen("https://v.test/token", at(20.5), "t20")]
    shortest = 29 / 1440  # days: gaps are in whole minutes
    for factor, flagged in ((0.9, True), (1.1, False)):
        weight = factor * multiplier * 5 / shortest
        pages = [{"url": "https://v.test/token", "importance": weight}]
        night = _run(folder, f"heavy{factor}", rows, FIRST + 1, first, pages=pages)
        assert night.page("https://v.test/token")["volatile"] == flagged
