"""`recrawl night --discover_share`: sources and pages share one budget, and the limits of hosts once."""

from __future__ import annotations

from collections import Counter
from datetime import timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from pipelines.nightly.discovered import Discovered
from tests.pipelines.jobs import Night, at, command, crawls
from tests.pipelines.stores import Stored, midnight

DAYS, HOSTS, PAGES = 3, 4, 12
FRONT = "https://www.site{}.test/news"


def page(host: int, number: int) -> str:
    return f"https://www.site{host}.test/page/{number}"


def article(host: int, day: int, number: int) -> str:
    return f"https://www.site{host}.test/article/{day}-{number}"


def links(day: int, per_hour: int, hosts: int = HOSTS) -> list[dict[str, Any]]:
    """Fronts that were looked at every two hours and show the articles of the last six."""
    rows = []
    for host in range(hosts):
        for hour in range(0, 24, 2):
            shown = [
                article(host, day, 100 * h + i)
                for h in range(max(hour - 6, 0), hour)
                for i in range(per_hour)
            ]
            rows += [
                {"source": FRONT.format(host), "target": t, "seen_at": at(day, hour), "status": 200}
                for t in shown or [None]
            ]
    return rows


def world(folder: Path, per_hour: int = 1) -> Stored:
    """A store; its crawler keeps pages that change every few days, and fronts that always do."""
    found = Stored(folder, options={"links": folder / "links" / "{date}.jsonl", "budget": 240})
    rows = []
    for host in range(HOSTS):
        for number in range(PAGES):
            rows += crawls(page(host, number), "AAB", every_days=0.4)
    found.log("logs/old.jsonl", rows, at(1))
    for day in range(DAYS):
        found.log(f"links/{at(day)[:10]}.jsonl", links(day, per_hour), at(day, 23.9))
    return found


def discovered(night: Night) -> list[dict[str, Any]]:
    return [r for r in night.rows("schedule") if r["reason"] == "discover"]


def apart(rows: list[dict[str, Any]]) -> timedelta:
    """The least time between two crawls of a host."""
    times: dict[str, list[Any]] = {}
    for row in sorted(rows, key=lambda r: r["due_at"]):
        times.setdefault(row["host"], []).append(row["due_at"])
    return min(b - a for t in times.values() for a, b in pairwise(t))


def test_a_share_of_the_budget_refreshes_sources_and_totals_are_exact(tmp_path):
    store = world(tmp_path)
    refreshed = crawled = 0
    for day in range(1, DAYS + 1):
        done = store.run(midnight(day), discover_share=0.11, budget=240.5)
        assert done.code == 0, done.complaints
        refreshed += len(discovered(done))
        crawled += done.table("schedule").num_rows
        # What a night has left over the next one has.
        assert refreshed == int(0.11 * 240.5 * day + 1e-9)
        assert crawled + done.counters.get("slots_empty", 0) == int(240.5 * day + 1e-9)
        assert {r["url"] for r in discovered(done)} == {FRONT.format(h) for h in range(HOSTS)}
    assert done.counters["slots_discover"] == len(discovered(done))
    assert "refresh sources" in done.printed and "--discover_share=0.11" in done.printed


def test_targets_are_new_pages_of_the_night_that_finds_them(tmp_path):
    store = world(tmp_path)
    assert store.run(midnight(1), discover_share=0.1).code == 0
    done = store.run(midnight(2), discover_share=0.1)
    found = {r["url"]: r for r in done.rows("pages") if r.get("found_by")}
    new = {article(h, 1, 100 * hour) for h in range(HOSTS) for hour in range(22)}
    assert set(found) == new
    one = found[article(2, 1, 300)]
    assert (one["found_by"], one["found_at"][:19]) == (FRONT.format(2), "2026-06-02 04:00:00")
    reasons = Counter(r["reason"] for r in done.rows("schedule") if r["url"] in new)
    assert set(reasons) == {"new"} and reasons["new"] > len(new) // 2
    assert done.manifest["discovery"]["counters"]["targets_new"] == len(new)


def test_limits_of_hosts_count_once_for_both(tmp_path):
    store = world(tmp_path)
    hosts = store.log(
        "hosts.jsonl",
        [{"host": "www.site0.test", "max_per_day": 9}, {"host": "www.site1.test", "min_gap_seconds": 5000}],
    )
    free = Counter(r["host"] for r in store.run(midnight(1), discover_share=0.3).rows("schedule"))
    assert free["www.site0.test"] > 9 and free["www.site1.test"] > 24 * 3600 // 5000
    other = Stored(tmp_path, "limited", store.options)
    for day in range(1, DAYS + 1):
        done = other.run(midnight(day), discover_share=0.3, hosts=hosts)
        rows = done.rows("schedule")
        count = Counter(r["host"] for r in rows)
        assert count["www.site0.test"] == 9
        assert count["www.site1.test"] <= 24 * 3600 // 5000
        assert apart([r for r in rows if r["host"] == "www.site1.test"]) >= timedelta(seconds=5000)
        refreshed = Counter(r["host"] for r in discovered(done))
        # What they find is crawled: half of a host's slots are left to pages.
        assert 0 < refreshed["www.site0.test"] <= 5 and 0 < refreshed["www.site1.test"] <= 9
        assert done.table("schedule").num_rows + done.counters.get("slots_empty", 0) == 240


def test_a_group_of_hosts_has_one_limit_for_both(tmp_path):
    store = world(tmp_path)
    hosts = [{"host": f"www.site{h}.test", "group": "one", "max_per_day": 15} for h in range(3)]
    listed = store.log("hosts.jsonl", hosts)
    for day in (1, 2):
        done = store.run(midnight(day), "--host_groups", discover_share=0.2, hosts=listed)
        rows = [r for r in done.rows("schedule") if r["host"] != "www.site3.test"]
        assert 8 < len(rows) <= 15 and 0 < sum(r["reason"] == "discover" for r in rows) <= 8


def test_a_gap_for_all_hosts_holds_between_refreshes_and_crawls(tmp_path):
    done = world(tmp_path).run(midnight(1), discover_share=0.4, host_min_gap_seconds=900)
    assert len(discovered(done)) == 96
    assert apart(done.rows("schedule")) >= timedelta(seconds=900)


def test_a_page_that_is_a_source_is_not_crawled_twice(tmp_path):
    """The front is a page of the crawl log as well, which changes at every visit."""
    store = world(tmp_path)
    rows = [row for h in range(HOSTS) for row in crawls(FRONT.format(h), "ABCDEFGH", every_days=0.12)]
    store.log("logs/fronts.jsonl", rows, at(1))
    alone = store.run(midnight(1), links=None)
    wanted = Counter(r["url"] for r in alone.rows("schedule"))
    both = Stored(tmp_path, "both", store.options).run(midnight(1), discover_share=0.4)
    for host in range(HOSTS):
        front = FRONT.format(host)
        slots = both.slots_of(front)
        refreshes = sum(r["reason"] == "discover" for r in slots)
        assert 0 < wanted[front] < refreshes == len(slots)
        assert both.page(front)["crawl_rate_per_day"] == pytest.approx(refreshes)
    others = [r for r in both.rows("schedule") if r["reason"] != "discover"]
    assert len(others) == 240 - 96


def test_hosts_that_are_split_take_refreshes_at_their_own_slots(tmp_path):
    store = world(tmp_path)
    options = {"split_hosts_above": 5, "host_max_per_day": 30, "host_min_gap_seconds": 1200}
    for day in (1, 2):
        done = store.run(midnight(day), discover_share=0.2, num_shards=3, **options)
        assert done.code == 0 and len(discovered(done)) == 48
        rows = done.rows("schedule")
        assert max(Counter(r["host"] for r in rows).values()) <= 30
        assert apart(rows) >= timedelta(seconds=1200)
    assert len(done.manifest["split_hosts"]) > 0


def shares(folder: Path, per_hour: int, nights: int = DAYS) -> list[dict[str, Any]]:
    store = world(folder, per_hour)
    found = []
    for day in range(1, nights + 1):
        done = store.run(midnight(day), discover_share="auto")
        assert done.code == 0, done.complaints
        used = done.table("schedule").num_rows + done.counters.get("slots_empty", 0)
        assert used == 240
        found.append(done.manifest["discovery"])
    assert "at one price for both" in done.printed
    return found


def test_auto_gives_sources_more_where_links_appear_faster(tmp_path):
    slow, fast = (shares(tmp_path / str(rate), rate, nights=2)[-1] for rate in (1, 6))
    assert 0.0 < slow["share_of_slots"] < fast["share_of_slots"] <= 0.9
    assert slow["options"]["recrawling"]["new_page_worth"] > 0.0


def test_auto_begins_with_a_tenth_and_says_so(tmp_path):
    (first,) = shares_of_first(tmp_path)
    assert first["refreshes"] == 24 and "no night before" in first["options"]["why"]


def shares_of_first(folder: Path) -> list[dict[str, Any]]:
    done = world(folder).run(midnight(1), discover_share="auto")
    return [done.manifest["discovery"]]


@pytest.mark.parametrize("split", [1000, 262144])
def test_a_night_with_discovery_has_the_same_bytes_however_it_is_cut(tmp_path, split):
    store = world(tmp_path)
    one = store.run(midnight(1), discover_share=0.2)
    other = Stored(tmp_path, "other", store.options).run(
        midnight(1), discover_share=0.2, rows_per_batch=split
    )
    kinds = ("schedule", "pages", "state", "discovery/state", "discovery/schedule", "discovery/targets")
    assert one.digests(*kinds) == other.digests(*kinds)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"discover_share": "half"}, "--discover_share=half: expected auto, or a part from 0 to 0.9"),
        ({"discover_share": 0.95}, "--discover_share=0.95: expected auto"),
        ({"discover_share": None}, "need --discover_share"),
        ({"discover_share": 0.1, "links": None}, "--discover_share needs --links"),
        ({"discover_share": "auto", "policy": "round-robin"}, "--policy=round-robin has no price"),
    ],
)
def test_wrong_options_are_told(tmp_path, options, said):
    done = world(tmp_path).run(midnight(1), **options)
    assert done.code == 2 and said in done.complaints


def test_what_may_not_be_crawled_is_not_refreshed(tmp_path):
    store = world(tmp_path)
    listed = [
        {"url": FRONT.format(0), "max_rate_per_day": 0},
        {"url": FRONT.format(1), "max_rate_per_day": 2},
    ]
    pages = store.log("pages.jsonl", listed)
    done = store.run(midnight(1), discover_share=0.2, pages=pages)
    count = Counter(r["url"] for r in done.rows("schedule"))
    assert count[FRONT.format(0)] == 0 and count[FRONT.format(1)] == 2
    planned = done.manifest["discovery"]["counters"]["refreshes"]
    assert planned == 48 == len(discovered(done)) + done.counters["refreshes_capped"]
    # What they would have taken goes to other pages.
    assert done.table("schedule").num_rows + done.counters.get("slots_empty", 0) == 240


def test_a_night_without_new_links_goes_on_from_what_is_known(tmp_path):
    store = world(tmp_path)
    assert store.run(midnight(1), discover_share=0.1).code == 0
    day = midnight(DAYS + 2)
    for path in (tmp_path / "links").glob("*"):
        path.unlink()
    done = store.run(day, discover_share=0.1)
    assert done.code == 0 and len(discovered(done)) == 24
    assert "no file for" in done.printed and "found_by" not in done.table("pages").column_names


def test_a_first_night_without_any_link_has_no_discovery(tmp_path):
    store = world(tmp_path)
    for path in (tmp_path / "links").glob("*"):
        path.unlink()
    done = store.run(midnight(1), discover_share="auto")
    assert done.code == 0 and done.manifest["discovery"] is None
    assert "no file, and no source is known" in done.complaints
    assert done.table("schedule").num_rows + done.counters.get("slots_empty", 0) == 240


def test_why_no_source_is_known_is_a_warning_of_the_night():
    names = ("price", "refreshes", "new_links_per_day", "options", "counters")
    found = dict.fromkeys(names, 0) | {"warnings": ["one"], "status_reason": "all rows are later"}
    assert Discovered("found", found | {"status": "no_input"}).said()["warnings"] == [
        "one",
        "all rows are later",
    ]
    assert Discovered("found", found | {"status": "empty_schedule"}).said()["warnings"] == ["one"]


def test_what_sources_cannot_use_is_told(tmp_path):
    """Listed pages that nobody visits, and a budget that sources cannot use."""
    store = world(tmp_path)
    listed = store.log("sources.jsonl", [{"url": "https://www.site0.test/other"}, {"url": "::"}])
    done = store.run(midnight(1), discover_share=0.9, budget=1000, sources=listed)
    assert len(discovered(done)) == 96
    assert "no page of --sources was visited, 48 visits are of other pages" in done.complaints
    assert "1 row of --sources rejected" in done.complaints


def test_a_price_that_is_no_links_is_not_told_as_such(tmp_path):
    done = world(tmp_path).run(midnight(1), discover_share=0.1, policy="round-robin")
    assert len(discovered(done)) == 24 and done.manifest["discovery"]["worth_of_last_refresh"] is None
    assert "The last refresh finds" not in done.printed


def test_results_of_another_instant_are_refused(tmp_path):
    store = world(tmp_path)
    done = store.run(midnight(1), discover_share=0.1)
    words = ("nightly", f"--discovery={done.folder}/discovery", "--budget=9", f"--output={tmp_path}/out")
    logs = f"--observations={tmp_path}/logs/*.jsonl"
    code, _, complaints = command(*words, logs, f"--as_of={midnight(2)}")
    assert code == 2 and "run discover with the --as_of" in complaints
    code, _, complaints = command(
        *words[:1], f"--discovery={tmp_path}/logs", *words[2:], logs, "--as_of=2026-06-02"
    )
    assert code == 2 and "finished `recrawl discover`" in complaints
    code, _, complaints = command(*words, logs, f"--as_of={midnight(1)}", "--overwrite")
    assert code == 2 and "floor" in complaints.lower()  # 24 refreshes are more than 9 crawls
