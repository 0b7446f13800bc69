"""Schedules over several nights, each crawled as planned and fed back: limits, totals, evenness, debts."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.pipelines.jobs import Night, at, crawls, nightly, seen

N_NIGHTS = 6
HOURS = 20  # nights do not begin at midnight
BUDGET = 160
GAPS_SECONDS = {"slow.test": 1800.0, "quick.test": 45.0}
MAX_PER_DAY = {"small.test": 6}
FREE = tuple(f"free{i}.test" for i in range(6))


def _begin(night: int) -> float:
    """Start of a night in days."""
    return 30 + night * HOURS / 24


def _moment(day: float) -> datetime:
    return datetime(2026, 6, 1, tzinfo=UTC) + timedelta(days=day)


def _first_rows() -> list[dict[str, Any]]:
    """150 pages crawled twice each in the month before, at all sorts of rates."""
    hosts = ["slow.test"] * 40 + ["quick.test"] * 30 + ["small.test"] * 20 + list(FREE) * 10
    rows = []
    for i, host in enumerate(hosts):
        digests = "ABCDEFGH" if i % 3 == 0 else "AAABBBBB" if i % 3 == 1 else "AAAAAAAA"
        rows += crawls(f"https://{host}/{i}", digests, first_day=21 + (i % 17) / 17, every_days=1.1)
    return rows


def _observe(night: Night, rng: np.random.Generator) -> list[dict[str, Any]]:
    """The schedule, crawled on time; some pages have changed."""
    return [
        seen(r["url"], r["due_at"].isoformat(), "same" if rng.random() < 0.6 else str(rng.random()))
        for r in night.rows("schedule")
    ]


@pytest.fixture(scope="module")
def nights(tmp_path_factory: pytest.TempPathFactory) -> list[Night]:
    folder: Path = tmp_path_factory.mktemp("politeness")
    rng = np.random.Generator(np.random.Philox(key=3))
    hosts = [{"host": h, "min_gap_seconds": s, "max_per_day": None} for h, s in GAPS_SECONDS.items()]
    hosts += [{"host": h, "min_gap_seconds": None, "max_per_day": n} for h, n in MAX_PER_DAY.items()]
    catalogue = [{"url": f"https://{FREE[i % 6]}/late-{i}", "importance": 1.0} for i in range(20)]
    rows, done = _first_rows(), []
    for i in range(N_NIGHTS):
        more = {"pages": catalogue} if i >= 3 else {}  # new pages come in the fourth night
        night = nightly(
            folder,
            f"night-{i}",
            observations=rows,
            hosts=hosts,
            budget=BUDGET,
            horizon_hours=HOURS,
            as_of=at(_begin(i)),
            state=done[-1].folder / "state" if done else None,
            num_shards=3,
            flags=["--allow_shrink"],
            **more,
        )
        assert night.code == 0, night.complaints
        done.append(night)
        rows = _observe(night, rng)
    return done


def _due(nights: list[Night], host: str | None = None) -> list[datetime]:
    return sorted(r["due_at"] for n in nights for r in n.rows("schedule") if host in (None, r["host"]))


@pytest.mark.parametrize("host", GAPS_SECONDS)
def test_gaps_hold_within_and_between_nights(host, nights):
    due = _due(nights, host)
    assert len(due) > 20
    assert min((b - a).total_seconds() for a, b in pairwise(due)) >= GAPS_SECONDS[host]


def test_a_host_never_gets_more_than_its_limit(nights):
    """6 a day is 5 in a night of 20 hours."""
    for night in nights:
        assert len(_due([night], "small.test")) <= 5
        assert len(_due([night], "slow.test")) <= HOURS * 2


def test_saturated_hosts_use_what_they_may(nights):
    """All but a slot or two of a night: slots are half an hour apart, and a gap may just miss one."""
    assert all("small.test" in {h["host"] for h in n.manifest["hosts_at_limit"]} for n in nights)
    assert len(_due(nights, "small.test")) >= 5 * N_NIGHTS - 2
    for night in nights:
        if "slow.test" in {h["host"] for h in night.manifest["hosts_at_limit"]}:
            assert len(_due([night], "slow.test")) >= HOURS * 2 - 2


def test_totals_are_exact(nights):
    """Every slot of every night is used, and their sum is the budget of all hours so far."""
    for i, night in enumerate(nights):
        assert night.counters["slots_empty"] == 0
        assert len(night.rows("schedule")) == night.manifest["slots"]
        assert sum(n.manifest["slots"] for n in nights[: i + 1]) == int(BUDGET * HOURS * (i + 1) / 24 + 1e-6)


def test_slots_lie_in_their_night_and_are_even(nights):
    """No bin of ten minutes far above the mean; one more than the grid gives may wait for its host."""
    for i, night in enumerate(nights):
        begin = _moment(_begin(i))
        minutes = [(t - begin).total_seconds() / 60 for t in _due([night])]
        assert 0 <= minutes[0] and minutes[-1] < HOURS * 60
        bins = Counter(int(m // 10) for m in minutes)
        mean = len(minutes) / (HOURS * 6)
        assert max(bins.values()) <= mean + 2


def test_counts_are_within_one_of_what_is_owed(nights):
    """|crawls - (rate x time + owed)| < 1 where no host's limit binds."""
    checked = 0
    for night in nights:
        counts = Counter(r["url"] for r in night.rows("schedule"))
        for page in night.rows("pages"):
            if page["host"] in FREE and page["limit"] not in ("new", "host"):
                due = page["crawl_rate_per_day"] * HOURS / 24 + page["owed"]
                assert abs(counts[page["url"]] - due) < 1, page
                checked += 1
    assert checked > 300


def test_no_page_starves(nights):
    """Over nights a page's count stays near the sum of its rates: one due every few days comes."""
    asked: Counter[str] = Counter()
    for night in nights[:3]:  # before new pages take their share
        for page in night.rows("pages"):
            if page["host"] in FREE:
                asked[page["url"]] += page["crawl_rate_per_day"] * HOURS / 24
    got = Counter(r["url"] for n in nights[:3] for r in n.rows("schedule"))
    assert len(asked) == 60
    # Each was crawled last at most two days before, so it starts with a debt of up to one.
    for url, n in asked.items():
        assert -1.5 < got[url] - n < 2.5, url


def test_new_pages_take_at_most_half(nights):
    fresh = [sum(r["reason"] == "new" for r in n.rows("schedule")) for n in nights]
    assert fresh[:3] == [0, 0, 0] and sum(fresh) == 20
    first = nights[3]
    assert 0 < fresh[3] <= len(first.rows("schedule")) / 2 + 3
    by_shard = Counter(r["shard"] for r in first.rows("schedule"))
    new_by_shard = Counter(r["shard"] for r in first.rows("schedule") if r["reason"] == "new")
    assert all(n <= (by_shard[shard] + 1) // 2 for shard, n in new_by_shard.items())
    limits = Counter(r["limit"] for r in first.rows("pages"))
    assert limits["new"] == 20 == first.counters["pages_new"]


def test_a_night_without_logs_remembers_its_slots(nights, tmp_path):
    """The crawler's log of the last night is missing: what was planned counts as done, and gaps go on."""
    last = nights[-1]
    begin = _begin(N_NIGHTS)
    night = nightly(
        tmp_path,
        observations=[seen("https://free0.test/other", at(begin), "x")],
        budget=BUDGET,
        horizon_hours=HOURS,
        as_of=at(begin),
        state=last.folder / "state",
        num_shards=3,
        flags=["--allow_shrink"],
        hosts=[{"host": h, "min_gap_seconds": s} for h, s in GAPS_SECONDS.items()],
    )
    assert night.code == 0, night.complaints
    for host, gap in GAPS_SECONDS.items():
        due = _due([last, night], host)
        assert min((b - a).total_seconds() for a, b in pairwise(due)) >= gap
    # Those crawled least of late come first: nothing of the last hours of last night is repeated at once.
    recent = {r["url"] for r in last.rows("schedule") if r["due_at"] > _moment(begin) - timedelta(hours=2)}
    slow = {p["url"] for p in night.rows("pages") if p["crawl_rate_per_day"] < 2}
    soon = {r["url"] for r in night.rows("schedule") if r["due_at"] < _moment(begin) + timedelta(hours=2)}
    assert not recent & soon & slow
