"""Faults of schedulers seen in other tools, as small inputs: the schedule that a user of the job gets."""

from __future__ import annotations

import math
from collections import Counter
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path

import pytest

from tests.pipelines.jobs import DAY_US, Night, at, crawls, nightly, seen, write_rows


def _minutes(night: Night) -> list[float]:
    """Due times of all slots, minutes from the start of the night."""
    return sorted((r["due_at"].timestamp() - 1_782_864_000) / 60 for r in night.rows("schedule"))


def _gaps_seconds(rows: list[dict]) -> list[float]:
    times = sorted(r["due_at"] for r in rows)
    return [(b - a).total_seconds() for a, b in pairwise(times)]


@pytest.fixture(scope="module")
def overdue(tmp_path_factory: pytest.TempPathFactory) -> dict[int, Night]:
    """134 pages, none crawled for 23 days; budgets 100 and 50."""
    folder = tmp_path_factory.mktemp("overdue")
    rows = [r for i in range(134) for r in crawls(f"https://h{i % 20}.test/{i}", "AB", every_days=7)]
    log = write_rows(folder / "log.csv", rows)
    return {
        budget: nightly(folder, f"budget-{budget}", observations=log, budget=budget) for budget in (100, 50)
    }


def test_overdue_pages_fill_the_budget(overdue):
    """A queue once stood empty for weeks while all was overdue; a crawl once ended when no page was new."""
    night = overdue[100]
    assert night.code == 0 and len(night.rows("schedule")) == 100
    assert {r["reason"] for r in night.rows("schedule")} <= {"due", "overdue"}


def test_a_changed_budget_counts_the_same_night(overdue):
    """A setting that is read and then not used."""
    night = overdue[50]
    assert len(night.rows("schedule")) == night.counters["slots_used"] == 50
    assert night.manifest["budget_per_day"] == night.manifest["options"]["budget_per_day"] == 50
    assert math.fsum(r["crawl_rate_per_day"] for r in night.rows("pages")) == pytest.approx(50, rel=1e-9)
    assert "50 crawls a day" in night.printed


@pytest.mark.parametrize("budget", [0, 0.4])
def test_an_empty_schedule_is_no_success(budget, tmp_path):
    """Nothing is queued, and nobody is told."""
    night = nightly(tmp_path, observations=crawls("https://a.test/", "AB"), budget=budget)
    assert night.code == 3 and night.rows("schedule") == []
    assert night.manifest["status"] == "empty_schedule"
    assert "less than one crawl" in night.printed
    assert night.manifest["carry"]["total"] == pytest.approx(budget)


def test_a_host_that_allows_no_crawl_leaves_slots_empty_and_says_so(tmp_path):
    """The only host is closed: nothing is queued, and it says why."""
    night = nightly(
        tmp_path,
        observations=crawls("https://a.test/", "AB"),
        hosts=[{"host": "a.test", "max_per_day": 0, "min_gap_seconds": None}],
    )
    assert night.code == 3 and night.rows("schedule") == []
    assert night.manifest["unspent_per_day"] == 10 and "limit" in night.manifest["unspent_reason"]


def test_due_pages_are_spread_over_the_window(tmp_path):
    """All pages due at once make a spike: 600 of them have 6 hours."""
    rows = [r for i in range(600) for r in crawls(f"https://h{i % 30}.test/{i}", "AB")]
    night = nightly(tmp_path, observations=rows, budget=2400, horizon_hours=6, host_min_gap_seconds=20)
    minutes = _minutes(night)
    assert len(minutes) == 600 and 0 <= minutes[0] and minutes[-1] < 360
    bins = Counter(int(m // 10) for m in minutes)
    mean = 600 / 36
    assert len(bins) == 36 and max(bins.values()) <= 1.2 * mean and min(bins.values()) >= 0.8 * mean
    for host in {r["host"] for r in night.rows("schedule")}:
        assert min(_gaps_seconds([r for r in night.rows("schedule") if r["host"] == host])) >= 20


@pytest.fixture(scope="module")
def bounds(tmp_path_factory: pytest.TempPathFactory) -> Night:
    """One night with odd importance and odd bounds of rates; the catalogue's rows are numbered."""
    folder = tmp_path_factory.mktemp("bounds")
    rows = [r for name in "abcdefghijkl" for r in crawls(f"https://a.test/{name}", "AABBAA", 24)]
    rows += crawls("https://old.test/", "AB", first_day=-12_000, every_days=11_999)
    catalogue = [
        ("https://a.test/a", "nan", "", ""),
        ("https://a.test/b", "-1", "", ""),
        ("https://a.test/c", "inf", "", ""),
        ("https://a.test/d", "0", "", ""),
        ("https://a.test/e", "0", "2", ""),
        ("https://a.test/f", "1", "", "1e-9"),
        ("https://a.test/g", "1", "1e-9", "1e9"),
        ("https://a.test/h", "1", "90", "60"),
        ("https://a.test/i", "1", "-1", ""),
        ("https://a.test/j", "1e29", "", "3"),
        ("https://a.test/k", "1", "", "0"),
        ("https://a.test/l", "1", "", "1e300"),
    ]
    names = ("url", "importance", "min_rate_per_day", "max_rate_per_day")
    pages = write_rows(folder / "pages.csv", [dict(zip(names, row, strict=True)) for row in catalogue])
    night = nightly(folder, observations=rows, pages=pages, budget=12)
    assert night.code == 0, night.complaints
    return night


def test_importance_that_is_no_number_is_rejected(bounds):
    """NaN, -1 and infinity, each with its line: one of them spoils every sum that it is in."""
    bad = {r["row"]: r for r in bounds.rejected() if r["reason"] == "bad_importance"}
    assert sorted(bad) == [2, 3, 4]
    assert bounds.counters["pages_rejected_bad_importance"] == 3
    # The pages are known from the log all the same, and weigh what pages without importance weigh.
    assert all(bounds.page(f"https://a.test/{name}")["crawl_rate_per_day"] > 0 for name in "abc")


def test_importance_zero_is_visited_by_its_floor_only(bounds):
    """Importance 0 is a value, not one that is missing."""
    assert bounds.page("https://a.test/d")["crawl_rate_per_day"] == 0
    assert bounds.slots_of("https://a.test/d") == []
    assert bounds.page("https://a.test/e")["crawl_rate_per_day"] == 2
    assert bounds.page("https://a.test/e")["limit"] == "floor"
    # Overdue by days, so one more than its two may come.
    assert 2 <= len(bounds.slots_of("https://a.test/e")) <= 3


def test_rates_add_up_to_the_budget(bounds):
    """Odd importance or bounds of one page upset the others: nothing is NaN or infinite, bounds hold."""
    rows = bounds.rows("pages")
    rates = [r["crawl_rate_per_day"] for r in rows]
    assert all(math.isfinite(r) and r >= 0 for r in rates)
    assert math.fsum(rates) == pytest.approx(12, rel=1e-9)
    assert len(bounds.rows("schedule")) == 12
    for row in rows:
        for name in (
            "change_rate_per_day",
            "change_rate_stderr",
            "expected_freshness",
            "crawl_value",
            "owed",
        ):
            assert math.isfinite(row[name]), (row["url"], name)
        assert 0 <= row["expected_freshness"] <= 1


def test_a_cap_of_almost_nothing_is_not_due(bounds):
    """Once in a billion days is taken for now, or wraps."""
    page = bounds.page("https://a.test/f")
    assert page["crawl_rate_per_day"] == pytest.approx(1e-9, rel=1e-12) and page["limit"] == "cap"
    assert bounds.slots_of("https://a.test/f") == []
    assert bounds.page("https://a.test/k")["crawl_rate_per_day"] == 0
    assert bounds.slots_of("https://a.test/k") == []
    assert bounds.page("https://a.test/j")["crawl_rate_per_day"] == 3  # 1e29 is a weight


def test_bounds_that_contradict_each_other_are_rejected_with_their_line(bounds):
    """They fall back to something: a floor above its cap, a negative one, a cap beyond numbers."""
    found = {(r["row"], r["reason"]) for r in bounds.rejected() if r["reason"] != "bad_importance"}
    assert found == {(9, "floor_above_cap"), (10, "bad_rate"), (13, "bad_rate")}


def test_a_gap_of_thirty_years_is_a_long_gap(bounds):
    """An interval overflows."""
    page = bounds.page("https://old.test/")
    assert (page["n_intervals"], page["n_changes"]) == (1, 1)
    assert 0 < page["change_rate_per_day"] < 1


def test_floors_above_the_budget_name_both(tmp_path):
    """Floors that no budget can serve."""
    pages = [{"url": "https://a.test/", "min_rate_per_day": 90_000.5}]
    night = nightly(tmp_path, observations=crawls("https://a.test/", "AB"), pages=pages)
    assert night.code == 2 and not night.committed
    assert "Traceback" not in night.complaints
    assert "90000.5 crawls a day" in night.complaints and "the budget is 10;" in night.complaints


def test_limits_of_hosts_fall_back_one_by_one(tmp_path):
    """A host with one limit of its own loses the default of the other."""
    hosts = [
        {"host": "A.test.", "max_per_day": None, "min_gap_seconds": 7200},
        {"host": "b.test", "max_per_day": 5, "min_gap_seconds": None},
    ]
    rows = [r for host in "abc" for i in range(4) for r in crawls(f"https://{host}.test/{i}", "ABCDE")]
    night = nightly(
        tmp_path, observations=rows, hosts=hosts, budget=200, host_max_per_day=20, host_min_gap_seconds=60
    )
    slots = {h: [r for r in night.rows("schedule") if r["host"] == f"{h}.test"] for h in "abc"}
    assert (len(slots["b"]), len(slots["c"])) == (5, 20)
    # 12 by its gap; the last one may not find a slot, which are 40 minutes apart.
    assert 11 <= len(slots["a"]) <= 12
    assert min(_gaps_seconds(slots["a"])) >= 7200
    assert min(_gaps_seconds(slots["b"])) >= 60 and min(_gaps_seconds(slots["c"])) >= 60
    assert {h["host"] for h in night.manifest["hosts_at_limit"]} == {"a.test", "b.test", "c.test"}
    assert night.manifest["unspent_per_day"] == pytest.approx(200 - 37)


@pytest.mark.parametrize(
    "row", ["b.test,90 60,", "b.test,-1,", "b.test,,soon", ",5,5", 'b.test,"12,34",', "b.test,,1.500"]
)
def test_a_host_row_that_cannot_be_read_stops_the_job(row, tmp_path):
    """A limit that is skipped would be a limit that is broken. Names file and line."""
    hosts = tmp_path / "hosts.csv"
    hosts.write_text(f"host,max_per_day,min_gap_seconds\na.test,5,5\n{row}\n")
    night = nightly(tmp_path, observations=crawls("https://a.test/", "AB"), hosts=hosts)
    assert night.code == 2 and not night.committed
    assert "hosts.csv" in night.complaints and "row 3" in night.complaints
    assert "Traceback" not in night.complaints


def test_all_unchanged_and_all_changed_stay_finite(tmp_path):
    """The maximum likelihood rates would be 0 and infinite."""
    rows = crawls("https://still.test/", "AAAAAA", 24) + crawls("https://busy.test/", "ABCDEF", 24)
    # A site around them, from which the prior is learned.
    pace = ("AAAAAAA", "AAAABBB", "ABCCDEE", "AAAAAAB", "ABCDEFG")
    rows += [r for i in range(40) for r in crawls(f"https://h{i % 6}.test/{i}", pace[i % 5], 20)]
    night = nightly(tmp_path, observations=rows)
    still, busy = night.page("https://still.test/"), night.page("https://busy.test/")
    assert 0 < still["change_rate_per_day"] < 0.3
    assert 1 < busy["change_rate_per_day"] < 20
    assert still["boundary"] and busy["boundary"]
    assert not night.page("https://h1.test/1")["boundary"]
    assert still["change_rate_stderr"] > 0 and busy["change_rate_stderr"] > 0


def test_a_budget_beyond_what_politeness_allows(tmp_path):
    """A budget breaks politeness: 10,000 slots in an hour for one host with 10 seconds between crawls."""
    rows = [r for i in range(50) for r in crawls(f"https://a.test/{i}", "ABCDE", 25)]
    night = nightly(tmp_path, observations=rows, budget=240_000, horizon_hours=1, host_min_gap_seconds=10)
    assert night.code == 0
    slots = night.rows("schedule")
    assert len(slots) == 360 and min(_gaps_seconds(slots)) >= 10
    assert max(_minutes(night)) < 60
    assert night.manifest["unspent_per_day"] / 24 == pytest.approx(9640)
    assert night.manifest["unspent_reason"]
    assert "unspent" in night.printed


def test_limits_beyond_reason_do_not_wrap(tmp_path):
    """A gap of 30 million years, a crawl in a billion days; last crawled yesterday."""
    rows = [r for h in "abc" for r in crawls(f"https://{h}.test/", "ABCD", 26)]
    hosts = [{"host": "a.test", "min_gap_seconds": 1e15}, {"host": "b.test", "max_per_day": 1e-9}]
    night = nightly(tmp_path, observations=rows, hosts=hosts, budget=30)
    assert {r["host"] for r in night.rows("schedule")} == {"c.test"}
    assert night.page("https://c.test/")["crawl_rate_per_day"] == pytest.approx(30)


def test_a_crawl_delay_binds_its_host_only(tmp_path):
    """One slow host, 120 seconds between crawls, holds up all others."""
    rows = [r for i in range(60) for r in crawls(f"https://slow.test/{i}", "ABCD", 26)]
    rows += [r for i in range(60) for r in crawls(f"https://h{i % 10}.test/{i}", "ABCD", 26)]
    hosts = [{"host": "slow.test", "min_gap_seconds": 120}]
    night = nightly(tmp_path, observations=rows, hosts=hosts, budget=24 * 400, horizon_hours=1)
    slow = [r for r in night.rows("schedule") if r["host"] == "slow.test"]
    assert len(slow) == 30 and min(_gaps_seconds(slow)) >= 120
    assert len(night.rows("schedule")) == 400
    assert night.page("https://slow.test/0")["limit"] == "host"
    assert night.page("https://h0.test/0")["limit"] == "none"


def test_a_signal_moves_no_other_page(tmp_path):
    """A ping for /a raises its whole site: here it is read and carried for an objective without signals."""
    rows = [r for name in "abcd" for r in crawls(f"https://a.test/{name}", "AABB")]
    log = write_rows(tmp_path / "log.csv", rows)
    signals = [{"url": "https://a.test/a", "signalled_at": at(29), "source": "ping"}]
    without = nightly(tmp_path, "without", observations=log)
    with_ping = nightly(tmp_path, "with", observations=log, signals=signals, objective="periodic")
    others = [[r for r in n.rows("pages") if r["url"] != "https://a.test/a"] for n in (without, with_ping)]
    assert others[0] == others[1]
    carried = with_ping.rows("state/signals")
    assert sorted((r["source"], r["pending"]) for r in carried) == [([], [])] * 3 + [(["ping"], [1])]


def test_requests_for_one_page_raise_one_page(tmp_path):
    """One page in demand raises its whole site."""
    rows = [r for name in "abcd" for r in crawls(f"https://a.test/{name}", "AABB")]
    clicks = [{"url": "https://a.test/a", "day": at(d)[:10], "clicks": 50} for d in range(30)]
    clicks += [
        {"url": f"https://a.test/{n}", "day": at(d)[:10], "clicks": 1} for d in range(30) for n in "bcd"
    ]
    night = nightly(tmp_path, observations=rows, requests=clicks)
    rate = {n: night.page(f"https://a.test/{n}")["request_rate_per_day"] for n in "abcd"}
    assert 40 < rate["a"] < 55
    assert all(0.8 < rate[n] < 2 for n in "bcd")
    assert len(night.slots_of("https://a.test/a")) > len(night.slots_of("https://a.test/b"))


def test_the_same_inputs_give_the_same_schedule(tmp_path):
    """Crawls that start all over at random: unchanged inputs, another schedule."""
    log = write_rows(
        tmp_path / "log.csv", [r for i in range(20) for r in crawls(f"https://h{i}.test/", "AABB")]
    )
    first, second = (nightly(tmp_path, name, observations=log) for name in ("one", "two"))
    assert first.digests() == second.digests()
    again = nightly(tmp_path, "one", observations=log)  # over its own output
    assert again.digests() == second.digests()


def test_a_page_crawled_a_moment_ago_waits(tmp_path):
    """Pages are fetched before their time: of two alike one was crawled just before the night."""
    rows = crawls("https://a.test/1", "AAAAAAAA", 22) + crawls("https://b.test/1", "AAAAAAAA", 22.99)
    night = nightly(tmp_path, observations=rows, budget=1)
    (slot,) = night.rows("schedule")
    assert slot["url"] == "https://a.test/1"


def _hundred(n: int = 100, day: float = 10.0) -> list[dict]:
    return [seen(f"https://h{i % 9}.test/{i}", at(day), "A") for i in range(n)]


@pytest.fixture(scope="module")
def first(tmp_path_factory: pytest.TempPathFactory) -> Night:
    """A first night with 100 pages, as many rows, and a crawl of each a day."""
    return nightly(tmp_path_factory.mktemp("history"), "first", observations=_hundred(), budget=100)


class TestHistoryShrunk:
    """The loss of history is silent, and all begins anew."""

    def _next(self, first: Night, folder: Path, n: int, flags: tuple[str, ...] = ()) -> Night:
        return nightly(
            folder, observations=_hundred(n, 30.5), state=first.folder / "state", as_of=at(31), flags=flags
        )

    def test_a_lost_input_file(self, first, tmp_path):
        night = self._next(first, tmp_path, 89)
        assert night.code == 5 and not night.committed
        assert "history_shrunk" in night.complaints and "100" in night.complaints and "89" in night.complaints
        assert "Traceback" not in night.complaints

    def test_no_input_file_at_all(self, first, tmp_path):
        night = nightly(
            tmp_path, observations=str(tmp_path / "*.csv"), state=first.folder / "state", as_of=at(31)
        )
        assert night.code == 2 and "no file matches" in night.complaints

    def test_a_tenth_less_is_a_quiet_day(self, first, tmp_path):
        night = self._next(first, tmp_path, 90)
        assert night.code == 0 and night.counters["pages_known"] == 100

    def test_it_may_be_meant(self, first, tmp_path):
        night = self._next(first, tmp_path, 10, ("--allow_shrink",))
        assert night.code == 0 and len(night.rows("pages")) == 100

    def test_a_file_that_ends_early(self, first, tmp_path):
        """Named where it makes the history shrink, and in the night that is meant all the same."""
        log = write_rows(tmp_path / "cut.jsonl.gz", _hundred(100, 30.5))
        log.write_bytes(log.read_bytes()[: log.stat().st_size // 2])
        given = {"observations": log, "state": first.folder / "state", "as_of": at(31)}
        text = f"1 file of observations is damaged, see rejected/: {log}"
        night = nightly(tmp_path, "refused", **given)
        assert night.code == 5 and text in night.complaints
        night = nightly(tmp_path, "meant", flags=["--allow_shrink"], **given)
        assert night.code == 0 and text in night.manifest["warnings"]
        assert f"WARNING: {text}" in night.printed

    def test_a_lost_state_file(self, first, tmp_path):
        lost = tmp_path / "state"
        lost.mkdir()
        for file in sorted((first.folder / "state").glob("*.parquet"))[1:]:
            (lost / file.name).write_bytes(file.read_bytes())
        night = nightly(tmp_path, observations=_hundred(100, 30.5), state=lost, as_of=at(31))
        assert night.code in (1, 2) and "1 of 2 files" in night.complaints
        assert "Traceback" not in night.complaints


def test_the_day_is_the_unit(tmp_path):
    """Rates are per day whatever the horizon."""
    assert DAY_US == 24 * 3600 * 1_000_000
    log = write_rows(
        tmp_path / "log.csv", [r for i in range(5) for r in crawls(f"https://h{i}.test/", "AABB")]
    )
    day, week = (nightly(tmp_path, f"h{h}", observations=log, horizon_hours=h) for h in (24, 168))
    assert [r["crawl_rate_per_day"] for r in day.rows("pages")] == [
        r["crawl_rate_per_day"] for r in week.rows("pages")
    ]
    assert (len(day.rows("schedule")), len(week.rows("schedule"))) == (10, 70)


def test_an_urgent_page_is_never_put_off_by_more_than_its_interval(tmp_path):
    """Elsewhere a random delay of an hour was added to intervals of minutes. Here nothing is random."""
    per_day = {"minute": 1440, "five": 288, "hour": 24, "quarter": 4}
    rows = [r for name in per_day for r in crawls(f"https://{name}.test/", "ABCD", 26)]
    rows += [r for i in range(60) for r in crawls(f"https://h{i % 9}.test/{i}", "AABB", 26)]
    pages = [
        {"url": f"https://{name}.test/", "min_rate_per_day": n, "max_rate_per_day": n}
        for name, n in per_day.items()
    ]
    night = nightly(
        tmp_path, observations=rows, pages=pages, budget=sum(per_day.values()) + 40, host_min_gap_seconds=10
    )
    assert night.code == 0, night.complaints
    slot_seconds = 86_400 / min(Counter(r["shard"] for r in night.rows("schedule")).values())
    for name, n in per_day.items():
        slots = night.slots_of(f"https://{name}.test/")
        interval = 86_400 / n
        assert abs(len(slots) - n) <= 1
        assert (
            slots[0]["due_at"] - datetime(2026, 7, 1, tzinfo=UTC)
        ).total_seconds() < interval + slot_seconds
        assert max(_gaps_seconds(slots)) < 2 * interval + slot_seconds
        assert min(_gaps_seconds(slots)) >= 10


def test_every_setting_that_changes_counts_the_same_night(tmp_path):
    """Elsewhere new settings waited until each page was due by the old ones, or were read and not used."""
    rows = [r for host in "abc" for i in range(8) for r in crawls(f"https://{host}.test/{i}", "ABCD", 26)]
    first = nightly(tmp_path, "first", observations=rows, budget=100, host_max_per_day=60)
    again = [seen(r["url"], r["due_at"].isoformat(), "E") for r in first.rows("schedule")]
    hosts = [{"host": "a.test", "max_per_day": 3}, {"host": "b.test", "min_gap_seconds": 7200}]
    pages = [
        {"url": "https://c.test/0", "max_rate_per_day": 0},
        {"url": "https://c.test/1", "min_rate_per_day": 20},
        {"url": "https://c.test/2", "max_rate_per_day": 2},
    ]
    night = nightly(
        tmp_path,
        "second",
        observations=again,
        state=first.folder / "state",
        as_of=at(31),
        hosts=hosts,
        pages=pages,
        budget=50,
        host_max_per_day=40,
        horizon_hours=24,
    )
    assert night.code == 0, night.complaints
    slots = {h: [r for r in night.rows("schedule") if r["host"] == f"{h}.test"] for h in "abc"}
    assert len(first.rows("schedule")) == 100 and night.counters["slots"] == 50
    # Of b's twelve by its gap some may find no slot of their own.
    assert night.counters["slots_empty"] <= 2 and sum(map(len, slots.values())) >= 48
    assert len(slots["a"]) == 3 and len(slots["c"]) <= 40
    assert len(slots["b"]) <= 12 and min(_gaps_seconds(slots["b"])) >= 7200
    assert night.slots_of("https://c.test/0") == []
    assert len(night.slots_of("https://c.test/1")) >= 19
    assert len(night.slots_of("https://c.test/2")) <= 3
    options = night.manifest["options"]
    assert (options["budget_per_day"], options["host_max_per_day"]) == (50, 40)


@pytest.mark.parametrize("other", ["http://a.test:8080", "https://a.test:8443", "https://A.test."])
def test_ports_and_schemes_of_a_host_share_its_gap(other, tmp_path):
    """One server behind several ports would else get several times what it can bear."""
    rows = [r for i in range(6) for r in crawls(f"http://a.test/{i}", "ABCD", 26)]
    rows += [r for i in range(6) for r in crawls(f"{other}/{i}", "ABCD", 26)]
    hosts = [{"host": "a.test", "min_gap_seconds": 600}]
    night = nightly(tmp_path, observations=rows, hosts=hosts, budget=100)
    slots = night.rows("schedule")
    assert {r["host"] for r in slots} == {"a.test"} and min(_gaps_seconds(slots)) >= 600
    assert {r["url"][:-2] for r in slots} == {"http://a.test", other}


def test_the_order_can_be_told_from_the_rows(tmp_path):
    """Overdue pages come by their value, and each row has what it takes to see that."""
    rows = [r for i in range(12) for r in crawls(f"https://h{i}.test/", "ABCDEFGH"[: 2 + i % 6] * 2, 2)]
    clicks = [
        {"url": f"https://h{i}.test/", "day": at(d)[:10], "clicks": 20 + i}
        for i in range(12)
        for d in range(20, 30)
    ]
    night = nightly(tmp_path, observations=rows, requests=clicks, budget=12, num_shards=1)
    slots = sorted(night.rows("schedule"), key=lambda r: r["slot"])
    first = [r for n, r in enumerate(slots) if r["url"] not in {s["url"] for s in slots[:n]}]
    assert {r["reason"] for r in first} == {"overdue"}
    # Each was found changed at every crawl, so a crawl is worth at most the requests between two changes:
    # the plan takes those of which that is more than the multiplier, and each of these has a slot.
    worth = {p["url"]: p["request_rate_per_day"] / p["change_rate_per_day"] for p in night.rows("pages")}
    planned = {url for url, value in worth.items() if value > night.manifest["multiplier"]}
    assert {r["url"] for r in first} == planned and len(first) == len(planned) == 6
    values = [r["value"] for r in first]
    assert values == sorted(values, reverse=True)
    for row in slots:
        page = night.page(row["url"])
        assert (row["weight"], row["value"], row["crawl_rate_per_day"]) == (
            page["request_rate_per_day"],
            page["crawl_value"],
            page["crawl_rate_per_day"],
        )
