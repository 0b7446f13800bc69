"""Whole nights: siblings move the clock where they are on, and volatile pages are capped and named."""

from __future__ import annotations

import json
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from policies.objectives import objectives
from policies.signals.siblings import MIN_PAGES
from tests.pipelines.jobs import DAY_US, Night, at, command, crawls, nightly, seen

SIZES = {"a.test": 40, "b.test": 30, "small.test": MIN_PAGES - 1}
FIRST = 20
UNIT = 2.0**-32


class _Truth:
    """Pages change one by one; on day 20.3 the first host changes as a whole."""

    def __init__(self) -> None:
        rng = np.random.Generator(np.random.Philox(key=11))
        self.changes = {}
        for host, n in SIZES.items():
            for i in range(n):
                times = rng.random(rng.poisson(6)) * 30
                self.changes[f"https://{host}/{i}"] = np.sort([*times, *([20.3] if host == "a.test" else [])])
        self.first = [
            self.fetch(url, float(day))
            for url in self.changes
            for day in np.sort(rng.random(1 + rng.poisson(5))) * FIRST
        ]

    def fetch(self, url: str, day: float) -> dict[str, Any]:
        return seen(url, at(day), f"v{np.searchsorted(self.changes[url], day)}")

    def follow(self, night: Night) -> list[dict[str, Any]]:
        """The log of a crawler that follows the schedule."""
        origin = np.datetime64(at(0)[:-1]).astype("datetime64[us]").astype(np.int64)
        return [
            self.fetch(row["url"], (row["due_at"].timestamp() * 1e6 - origin) / DAY_US)
            for row in night.rows("schedule")
        ]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("siblings")


@pytest.fixture(scope="module")
def truth() -> _Truth:
    return _Truth()


def _run(folder: Path, name: str, rows: list, day: int, before: Night | None = None, **options: Any) -> Night:
    more = {"state": before.folder / "state", "flags": ["--allow_shrink"]} if before else {}
    night = nightly(folder, name, observations=rows, as_of=at(day), budget=30, **(more | options))
    assert night.code == 0, night.complaints
    return night


@pytest.fixture(scope="module")
def nights(folder, truth) -> list[Night]:
    """Four nights with siblings on."""
    found = [_run(folder, "on0", truth.first, FIRST, siblings="on")]
    for i in range(1, 4):
        found.append(_run(folder, f"on{i}", truth.follow(found[-1]), FIRST + i, found[-1], siblings="on"))
    return found


def _by_host(night: Night) -> dict[int, list[tuple[int, int, float]]]:
    rows = defaultdict(list)
    for row in night.rows("slots/siblings"):
        rows[row["host_hash"]].append((row["day"], row["found"], row["expected"] * UNIT))
    return rows


def test_the_first_night_has_nothing_to_say(nights):
    assert nights[0].rows("slots/siblings") == []
    assert nights[0].manifest["siblings"] == {
        "hosts": 0,
        "hosts_on": 0,
        "pages_on": 0,
        "gain_tonight_nats": 0.0,
        "gain_where_on_nats": 0.0,
        "on": [],
    }


def test_what_is_kept_is_what_was_judged(folder, truth, nights):
    """Changes found and expected, of all hosts but the small one, night after night."""
    hosts = {r["host_hash"]: r["host"] for r in nights[-1].rows("state")}
    found = predicted = 0.0
    for i, night in enumerate(nights[1:], start=1):
        judged = night.manifest["judged"]
        found += judged["changes_found"]
        predicted += judged["changes_predicted"]
        days = _by_host(night)
        assert {hosts[h] for h in days} == {"a.test", "b.test"}
        kept = np.array([(x, e) for rows in days.values() for _, x, e in rows]).sum(0)
        # The small host has about a fifth of the pages.
        assert 0.5 * found < kept[0] <= found and 0.5 * predicted < kept[1] <= predicted
        assert max(len(rows) for rows in days.values()) == i
    assert nights[-1].manifest["siblings"]["hosts_on"] == 2
    assert nights[-1].manifest["siblings"]["pages_on"] == 70
    large = [{"host": "a.test", "pages": 40}, {"host": "b.test", "pages": 30}]
    assert nights[-1].manifest["siblings"]["on"] == large
    assert "70 pages on 2 hosts (a.test, b.test) follow what was found" in nights[-1].printed


def test_the_clock_of_a_page_is_that_of_its_siblings(folder, truth, nights):
    """`crawl_value` at days x (2 + found) / (2 + expected) since the day after its last crawl."""
    night, days = nights[-1], _by_host(nights[-1])
    hashes = {r["url"]: r["host_hash"] for r in night.rows("state")}
    today = int(np.datetime64(at(FIRST + 3)[:10]).astype(int))
    moved = 0
    for row in night.rows("pages"):
        crawled = row["last_crawl_at"].timestamp() / 86_400
        after = [r for r in days[hashes[row["url"]]] if r[0] > int(crawled)]
        factor = (2 + sum(r[1] for r in after)) / (2 + sum(r[2] for r in after))
        columns = (np.array([row[n]]) for n in ("change_rate_per_day", "weight"))
        value = objectives.get("periodic").crawl_value(*columns, np.array([(today - crawled) * factor]))
        assert row["crawl_value"] == pytest.approx(value[0], rel=1e-6)
        moved += abs(factor - 1) > 0.2
    assert moved > 20


def test_crawls_go_where_siblings_changed(folder, truth, nights):
    """The host that changed as a whole is crawled first; without siblings it is one like the others."""
    rows = truth.follow(nights[0])
    off = _run(folder, "off", rows, FIRST + 1, nights[0], siblings="off")
    on = nights[1]
    share = [
        np.mean([r["host"] == "a.test" for r in n.rows("schedule") if r["reason"] != "new"])
        for n in (on, off)
    ]
    assert share[0] > share[1]
    assert off.manifest["siblings"]["hosts_on"] == 0
    for kind in ("state", "slots/siblings"):  # what is counted does not depend on what is done with it
        assert off.digests(kind) == on.digests(kind)
    auto = _run(folder, "auto", rows, FIRST + 1, nights[0])
    assert auto.digests("pages", "schedule", "state", "slots") == off.digests(
        "pages", "schedule", "state", "slots"
    )  # one night proves nothing


def test_the_number_of_shards_does_not_matter(folder, truth, nights):
    rows, keys = truth.follow(nights[1]), [("host_hash", "ascending"), ("day", "ascending")]
    names = ["host_hash", "url_hash", "day", "found", "expected", "gain"]
    wanted = nights[2].table("slots/siblings").select(names).sort_by(keys)
    for n in (1, 5):
        night = _run(folder, f"shards{n}", rows, FIRST + 2, nights[1], siblings="on", num_shards=n)
        assert night.table("slots/siblings").select(names).sort_by(keys).equals(wanted)
        assert night.manifest["siblings"] == nights[2].manifest["siblings"]


def test_a_night_before_siblings_is_no_error(folder, truth, nights):
    """The folder is missing in nights of an older version; they begin with nothing."""
    before = nights[1].folder
    old = folder / "older"
    for path in before.rglob("*"):
        if path.is_file() and "siblings" not in path.parts:
            target = old / path.relative_to(before)
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(path.read_bytes())
    manifest = json.loads((old / "manifest.json").read_text())
    manifest["files"] = [f for f in manifest["files"] if not f["path"].startswith("slots/siblings/")]
    (old / "manifest.json").write_text(json.dumps(manifest))
    night = _run(folder, "after-older", truth.follow(nights[1]), FIRST + 2, Night(0, "", "", old))
    assert night.digests("state") == nights[2].digests("state")
    last = max(r["day"] for r in nights[2].rows("slots/siblings"))
    assert {r["day"] for r in night.rows("slots/siblings")} == {last}


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
