"""Faults of crawl logs seen in other tools, as small inputs: what a user of the job finds afterwards.

All cases share one run. Each has a host of its own, so that what its test reads is its own.
"""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from tests.pipelines.jobs import DAY_US, Night, at, crawls, nightly, seen, write_rows

Row = dict[str, Any]


def _rows(url: str, *rows: tuple[str, str, str], **more: Any) -> list[Row]:
    """Rows of a page: (moment, status, digest)."""
    return [seen(url, moment, digest, status, **more) for moment, status, digest in rows]


def _modified(url: str, *moments: str, digest: str = "") -> list[Row]:
    """A page that says only when it was last modified, crawled daily."""
    return [seen(url, at(i), digest, "200", last_modified=moment) for i, moment in enumerate(moments)]


CASES: dict[str, list[Row]] = {
    "short times": _rows(
        "https://short.test/",
        ("202606010203", "200", "A"),
        ("20260601020359", "200", "A"),  # inside the minute of the first
        ("20260602020304", "200", "B"),
        ("20260603020304123", "200", "B"),
        ("2026-06-04T02:03", "200", "B"),
    ),
    "offsets": _rows(
        "https://offset.test/",
        ("2026-06-01T03:00:00-0500", "200", "A"),
        ("2026-06-01T08:00:00Z", "200", "A"),  # the same moment
        ("2026-06-02T17:00:00+09:00", "200", "A"),
        ("2026-06-03T08:00:00-00:00", "200", "A"),
        ("2026-06-04T08:00:00-00:14400", "200", "A"),  # no such offset
    ),
    "naive": [
        seen("https://naive.test/", "2026-06-01 03:04:05", "", "200", last_modified="2026-05-01"),
        seen("https://naive.test/", "2026-06-02", "", "200", last_modified="2026-06-01"),
    ],
    "moving last-modified": [
        seen("https://moving.test/", at(i), "A", "200", last_modified=at(i, second=-1)) for i in range(3)
    ],
    "swapped": _rows("https://swapped.test/", (at(2), "200", "B"), (at(1), "200", "A")),
    "after as_of": _rows(
        "https://later.test/", (at(1), "200", "A"), (at(30), "200", "A"), (at(30, second=0.001), "200", "B")
    ),
    "only after as_of": _rows("https://tomorrow.test/", (at(30, hour=1), "200", "A")),
    "three orders, file 1": _rows("https://files.test/", (at(3), "200", "B"), (at(1), "200", "A")),
    "revisits": [
        *_rows("https://revisit.test/same", (at(1), "200", "A")),
        *_rows("https://revisit.test/same", (at(2), "-", "A"), (at(3), "", "A"), not_modified="true"),
        *_rows("https://revisit.test/same", (at(4), "-1", "A"), not_modified="true"),
        *_rows("https://revisit.test/other", (at(1), "200", "A")),
        *_rows("https://revisit.test/other", (at(2), "-", "B"), not_modified="true"),
    ],
    "repeats": _rows(
        "https://repeat.test/", *[(at(1), "200", "A")] * 3, (at(1, second=2), "200", "B"), (at(2), "200", "A")
    ),
    "blanks": [
        *_rows("https://blank.test/x ", (at(1), "200", "A")),
        *_rows("https://blank.test/x", (at(2), "200", "A")),
        *_rows("\t https://blank.test/x\r", (at(3), "200", "A")),
        *_rows("https://blank.test/x%20", (at(1), "200", "A")),
    ],
    "304": [
        *_rows("https://unmodified.test/", (at(1), "200", "A"), (at(2), "304", "B"), (at(3), "200", "A")),
        *_rows(
            "https://unmodified.test/first", (at(1), "304", "A"), (at(2), "200", "A"), (at(3), "200", "A")
        ),
        *_rows("https://unmodified.test/only", (at(1), "304", "")),
    ],
    "no evidence": [
        *_rows("https://mute.test/nothing", *((at(i), "200", "") for i in range(4))),
        *_modified("https://mute.test/dated", at(-5), at(-5), at(1, hour=12)),
        *_modified(
            "https://mute.test/empty-body", "", "", "", digest="sha1:3I42H3S6NNFQ2MSVX7XZKYAYSCX5QBYJ"
        ),
    ],
    "there and back": crawls("https://aba.test/", "ABA")
    + crawls("https://aba.test/unseen", "AA", every_days=2),
    "failures": [
        *_rows("https://failing.test/", (at(1), "200", "A"), (at(2), "503", "ERR"), (at(3), "429", "ERR")),
        *_rows("https://failing.test/", (at(4), "200", "A")),
        *_rows("https://failing.test/never", (at(1), "500", "")),
    ],
    "gone": [
        *_rows("https://gone.test/", (at(1), "200", "A"), (at(2), "404", "E1"), (at(3), "410", "E2")),
        *_rows("https://gone.test/", (at(4), "200", "A")),
    ],
}
FILE_2 = _rows("https://files.test/", (at(2), "200", "A"), (at(0), "200", "A"))


@pytest.fixture(scope="module")
def night(tmp_path_factory: pytest.TempPathFactory) -> Night:
    folder: Path = tmp_path_factory.mktemp("faults")
    rows = [row for case in CASES.values() for row in case]
    write_rows(folder / "logs" / "b.csv", rows)
    write_rows(folder / "logs" / "a.csv.gz", FILE_2)
    done = nightly(folder, observations=folder / "logs" / "*", budget=40)
    assert done.code == 0, done.complaints
    return done


def _learned(night: Night, url: str) -> tuple[int, int]:
    """Intervals and changes of a page."""
    page = night.page(url)
    return page["n_intervals"], page["n_changes"]


def _last_crawl_us(night: Night, url: str) -> int | None:
    moment = night.page(url)["last_crawl_at"]
    return None if moment is None else round(moment.timestamp() * 1e6)


def _us(day: float, seconds: float = 0.0) -> int:
    start = datetime(2026, 6, 1, tzinfo=UTC).timestamp()
    return round((start + seconds) * 1e6) + round(day * DAY_US)


def _state(night: Night, url: str) -> Row:
    (row,) = [r for r in night.rows("state") if r["url"] == url]
    return row


def test_short_times_are_read_and_a_minute_holds_one_visit(night):
    """Times without seconds are refused, or count as visits of their own."""
    assert _learned(night, "https://short.test/") == (3, 1)
    assert _last_crawl_us(night, "https://short.test/") == _us(3, 2 * 3600 + 3 * 60)
    assert not [r for r in night.rejected() if "short.test" in r["sample"]]


def test_offsets_without_colon_count(night):
    """Offsets are lost: 03:00-0500 is 08:00 UTC, and one that cannot be is a bad time, not a guess."""
    assert _learned(night, "https://offset.test/") == (2, 0)
    assert _state(night, "https://offset.test/")["baseline_at"] == datetime(2026, 6, 3, 8, tzinfo=UTC)
    assert (
        sum(_state(night, "https://offset.test/")["bin_days"]) == 0 and _exposure(night, "offset.test") == 2.0
    )
    (bad,) = [r for r in night.rejected() if "offset.test" in r["sample"]]
    assert bad["reason"] == "bad_timestamp" and "-00:14400" in bad["sample"]


def _exposure(night: Night, host: str) -> float:
    return sum(r["exposure_days"] for r in night.rows("state") if r["host"] == host)


def test_times_without_zone_are_utc(night):
    """They are taken for local ones. The zone of the machine is tested with the runners."""
    state = _state(night, "https://naive.test/")
    assert state["baseline_at"] == datetime(2026, 6, 2, tzinfo=UTC)
    assert state["last_modified_at"] == datetime(2026, 6, 1, tzinfo=UTC)
    assert _learned(night, "https://naive.test/")[0] == 1


def test_same_digest_is_unchanged_though_last_modified_moves(night):
    """Servers that never answer 304 make every full answer look like a change."""
    assert _learned(night, "https://moving.test/") == (2, 0)


def test_rows_out_of_order_give_positive_gaps(night):
    """Gaps below zero."""
    assert _learned(night, "https://swapped.test/") == (1, 1)
    assert _last_crawl_us(night, "https://swapped.test/") == _us(2)


def test_rows_after_as_of_wait(night):
    """What was fetched after `as_of` is counted, and is not known yet; its very instant is."""
    assert night.counters["after_as_of"] == 2
    assert _learned(night, "https://later.test/") == (1, 0)
    assert _last_crawl_us(night, "https://later.test/") == _us(30)
    assert "https://tomorrow.test/" not in night.urls()


def test_order_within_and_between_files_is_irrelevant(night):
    """Unsorted or joined files lose rows: days 3, 1 in one file, 2, 0 in the other: A A A B."""
    assert _learned(night, "https://files.test/") == (3, 1)
    assert _exposure(night, "files.test") == pytest.approx(2.0, abs=1e-12)


def test_revisits_have_no_status(night):
    """Rows of revisits are dropped for their missing status."""
    assert _learned(night, "https://revisit.test/same") == (3, 0)
    assert _learned(night, "https://revisit.test/other") == (1, 1)
    assert not [r for r in night.rejected() if "revisit.test" in r["sample"]]


def test_repeated_lines_and_double_fetches_are_one_visit(night):
    """Gaps of zero or of two seconds."""
    assert _learned(night, "https://repeat.test/") == (1, 0)
    assert _exposure(night, "repeat.test") == pytest.approx(1.0, abs=1e-12)
    assert night.counters["duplicate"] == 3 + 2  # and one each of short.test and offset.test


def test_blanks_around_a_url_make_no_other_page(night):
    """A blank behind a URL makes another page; what is escaped is part of the URL."""
    assert [u for u in night.urls() if "blank.test" in u] == [
        "https://blank.test/x",
        "https://blank.test/x%20",
    ]
    assert _learned(night, "https://blank.test/x") == (2, 0)
    assert {r["url"] for r in night.rows("schedule") if "blank.test" in r["url"]} <= set(night.urls())


def test_not_modified_is_unchanged_whatever_digest_comes_along(night):
    """A 304 is counted as a change, for the signatures beside it."""
    assert _learned(night, "https://unmodified.test/") == (2, 0)


def test_not_modified_is_no_baseline(night):
    """A 304 on the first fetch: the first 200 is the baseline, no change; without one there is none."""
    assert _learned(night, "https://unmodified.test/first") == (1, 0)
    assert _learned(night, "https://unmodified.test/only") == (0, 0)
    assert _state(night, "https://unmodified.test/only")["baseline_at"] is None
    assert night.counters["not_modified_without_baseline"] == 2


def test_without_digests_last_modified_decides_else_nothing_is_learned(night):
    """Signatures are not kept, so nothing is learned and nobody notices; also digests of empty bodies."""
    assert _learned(night, "https://mute.test/dated") == (2, 1)
    assert _learned(night, "https://mute.test/nothing") == (0, 0)
    assert _learned(night, "https://mute.test/empty-body") == (0, 0)
    # The first row of each page may open its history; what follows can be compared with nothing.
    assert night.counters["no_change_evidence"] >= 6
    assert f"{night.counters['no_change_evidence']} no change evidence" in night.printed
    rates = {
        u: night.page(u)["change_rate_per_day"]
        for u in ("https://mute.test/nothing", "https://mute.test/empty-body")
    }
    assert len(set(rates.values())) == 1 and 0 < min(rates.values()) < 10


def test_there_and_back_unseen_is_unchanged(night):
    """The likelihood asks whether a difference was seen."""
    assert _learned(night, "https://aba.test/") == (2, 2)
    assert _learned(night, "https://aba.test/unseen") == (1, 0)


def test_failed_fetches_are_no_observations(night):
    assert _learned(night, "https://failing.test/") == (1, 0)
    assert _exposure(night, "failing.test") == pytest.approx(3.0, abs=1e-12)
    assert _learned(night, "https://failing.test/never") == (0, 0)
    assert night.counters["failed"] == 3
    assert _state(night, "https://failing.test/never")["last_attempt_at"] == datetime(2026, 6, 2, tzinfo=UTC)


def test_vanishing_and_returning_are_changes(night):
    assert _learned(night, "https://gone.test/") == (3, 2)


def test_every_row_has_one_fate(night):
    rows = sum(map(len, CASES.values())) + len(FILE_2)
    counters = night.counters
    assert counters["observations_accepted"] + counters["observations_rejected"] == rows
    assert len(night.rejected()) == counters["observations_rejected"] == 1
