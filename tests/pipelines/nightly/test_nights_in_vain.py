"""Crawls that never come back: pages that fail, are logged under another URL, or are skipped."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from tests.pipelines.jobs import at, nightly, seen
from tests.pipelines.simulator import Crawler, make_web

N, BUDGET, NIGHTS = 300, 60.0, 30


def dead(n: int = N) -> np.ndarray:
    """Every third page."""
    return np.arange(n) % 3 == 0


def failing(rows: pa.RecordBatch, of: pa.Array) -> pa.RecordBatch:
    status = pc.if_else(of, pa.scalar(503, pa.int16()), rows.column("status"))
    digest = pc.if_else(of, pa.scalar(0, pa.uint64()), rows.column("digest_hash"))
    rows = rows.set_column(rows.schema.get_field_index("status"), "status", status)
    return rows.set_column(rows.schema.get_field_index("digest_hash"), "digest_hash", digest)


def of_dead(rows: pa.RecordBatch) -> pa.Array:
    number = pc.cast(pc.list_element(pc.split_pattern(rows.column("url"), "/"), 3), pa.int64())
    return pa.array(dead()[number.to_numpy(zero_copy_only=False)])


class Log:
    """A log in which some pages answer from a night on or up to it, and otherwise as `how` says."""

    def __init__(self, how: str) -> None:
        self.how = how

    def __call__(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        if self.how == "ok":
            return rows
        mask = of_dead(rows)
        if self.how == "failing":
            return failing(rows, mask)
        if self.how == "all failing":
            return failing(rows, pa.array(np.ones(rows.num_rows, np.bool_)))
        if self.how == "skipped":
            return rows.filter(pc.invert(mask))
        other = pc.replace_substring(rows.column("url"), "https:", "http:")
        return rows.set_column(0, "url", pc.if_else(mask, other, rows.column("url")))


def crawler(how: str, first: str = "ok", warm_up_days: int = 10) -> tuple[Crawler, Log]:
    log = Log(first)
    found = Crawler(make_web(3, N, 6), BUDGET, warm_up_days, logged=log)
    log.how = how
    return found, log


def dead_by_url(found: Crawler) -> list[bool]:
    """In the order of pages/."""
    known = dict(zip(found.web.urls, dead(), strict=True))
    return [bool(known[url]) for url in found.pages.column("url").to_pylist()]


def share_of_dead(found: Crawler) -> float:
    return float(dead()[found.scheduled].mean())


@pytest.mark.parametrize("how", ["failing", "skipped"])
def test_pages_that_do_not_answer_give_way_and_come_back(how: str) -> None:
    found, log = crawler(how)
    shares = []
    for _ in range(NIGHTS):
        found.night()
        shares.append(share_of_dead(found))
    assert shares[0] > 0.2
    assert np.mean(shares[-10:]) < 0.08
    # Conservation: the crawls go to the others.
    assert len(found.scheduled) == BUDGET
    # One try now and then.
    assert 2 * dead().sum() < sum(shares) * BUDGET < 6 * dead().sum()
    pages = {r["url"]: r for r in found.pages.to_pylist()}
    lost = [pages[url] for url, is_dead in zip(found.web.urls, dead(), strict=True) if is_dead]
    silent = [r for r in lost if r["limit"] == "silent"]
    assert len(silent) > 0.5 * len(lost)
    assert all(r["expected_freshness"] == 0.0 for r in silent)
    # An answer, and the page is back at once.
    log.how = "ok"
    back = found.manifest["options"]["as_of_us"]
    for _ in range(12):
        found.night()
    again = [
        r
        for r, is_dead in zip(found.pages.to_pylist(), dead_by_url(found), strict=True)
        if is_dead and r["last_crawl_at"].timestamp() * 1e6 > back
    ]
    assert len(again) > 10
    assert all(
        r["limit"] != "silent" and r["expected_freshness"] > 0.0 for r in again if r["crawl_rate_per_day"]
    )


def test_failures_of_six_weeks_in_the_first_log_count_at_once() -> None:
    """30 % of pages fail at every visit of the log; from the first night on they get next to nothing."""
    found, _ = crawler("failing", first="failing", warm_up_days=42)
    found.night()
    assert share_of_dead(found) < 0.12
    assert found.manifest["silence"]["pages_silent"] > 0.5 * dead().sum()


def test_what_is_scheduled_and_logged_in_another_form_is_said() -> None:
    found, _ = crawler("moved")
    found.take_too({url.replace("https:", "http:"): i for i, url in enumerate(found.web.urls)})
    in_vain = []
    for _ in range(NIGHTS):
        found.night()
        https = np.array([url.startswith("https:") for url in found.scheduled_urls])
        in_vain.append(float((https & dead()[found.scheduled]).mean()))
    twins = found.manifest["silence"]["logged_otherwise"]
    assert twins and all(t["logged"] == t["scheduled"].replace("https:", "http:") for t in twins)
    assert np.mean(in_vain[-10:]) < 0.08


def test_a_log_that_is_missing_is_no_silence() -> None:
    """Ten nights without a log: then the crawler is back, and nothing has been lost but the time."""
    found, log = crawler("ok")
    for _ in range(3):
        found.night()
    log.how = "none"
    keep = found.logged
    found.logged = lambda rows: rows.slice(0, 0)
    for _ in range(10):
        found.night()
        assert len(found.scheduled) == BUDGET
        assert found.manifest["silence"]["in_no_log"] == 0
    found.logged, log.how = keep, "ok"
    found.night()
    found.night()
    assert found.manifest["silence"]["pages_silent"] == 0


def test_the_summary_says_what_is_in_no_log(tmp_path) -> None:
    """Two nights of the job: the crawler skips one host, and logs pages of another one under http."""
    urls = [f"https://{host}.test/{i}" for host in ("good", "moved", "skip") for i in range(10)]
    log = [seen(url, at(day, second=i), f"{day * (i % 3)}") for i, url in enumerate(urls) for day in range(6)]
    first = nightly(tmp_path, "first", observations=log, as_of=at(6), budget=40)
    second_log = [
        seen(row["url"].replace("https://moved", "http://moved"), row["due_at"].isoformat(), "x")
        for row in first.rows("schedule")
        if row["host"] != "skip.test"
    ]
    second = nightly(
        tmp_path,
        "second",
        observations=second_log,
        as_of=at(7),
        budget=40,
        state=first.folder / "state",
        flags=["--allow_shrink"],
    )
    assert second.code == 0, second.complaints
    scheduled = {row["url"]: row["host"] for row in first.rows("schedule")}
    silence = second.manifest["silence"]
    last = max(row["due_at"] for row in first.rows("schedule") if row["host"] != "skip.test")
    due = {row["url"] for row in first.rows("schedule")} - {
        row["url"] for row in first.rows("schedule") if row["due_at"] > last
    }
    missed = {url for url in due if scheduled[url] != "good.test"}
    assert silence["scheduled"] == len(due) and silence["in_no_log"] == len(missed) > 10
    assert {h["host"] for h in silence["hosts"]} == {"moved.test", "skip.test"}
    assert silence["logged_otherwise"][0]["logged"] == silence["logged_otherwise"][0]["scheduled"].replace(
        "https:", "http:"
    )
    assert f"{len(missed)} of {len(due)} scheduled pages are in no log" in second.printed
    (warning,) = [w for w in second.manifest["warnings"] if "in no log" in w]
    assert "https://moved.test/" in warning and "is scheduled, http://moved.test/" in warning
    # Tomorrow knows since when: of all that were missed, and of none that answered.
    assert sum(r["slots_since_at"] is not None for r in second.rows("slots/pages")) == len(missed)


def test_a_crawler_that_follows_its_own_plans_is_no_silence() -> None:
    """It tries the schedule without using it: a page in ten is fetched a day, none is said to be silent."""
    found, _ = crawler("ok")
    rng = np.random.Generator(np.random.Philox(key=5))
    for _ in range(8):
        found.night()
        found.replace_log(np.sort(rng.choice(N, N // 10, replace=False)))
        assert found.manifest["silence"]["pages_silent"] == 0
    assert found.manifest["silence"]["in_no_log"] > 0.5 * found.manifest["silence"]["scheduled"] > 0


def test_a_crawler_without_a_network_is_no_silence_of_pages() -> None:
    """All fetches fail for a week: the schedule goes on, and with the first answers all is as it was."""
    found, log = crawler("ok")
    found.night()
    log.how = "all failing"
    for _ in range(7):
        found.night()
        assert len(found.scheduled) == BUDGET and found.manifest["silence"]["pages_silent"] == 0
    log.how = "ok"
    for _ in range(2):
        found.night()
        assert len(found.scheduled) == BUDGET
    assert found.manifest["silence"]["pages_silent"] < 0.02 * N
