"""Warnings of a crawl log that is not of the night's time."""

from __future__ import annotations

from typing import Any

import pytest

from transforms.intake.log_ages import OLD_LOG_DAYS, age_warnings, days_old, newest_day
from transforms.shards.catalogue import DAY_US

NIGHT = 20_635  # 2026-07-01
LAST = {"options": {"as_of_us": (NIGHT - 1) * DAY_US, "as_of": "2026-06-30T00:00:00Z"}}


def warned(newest: int | None, previous: dict[str, Any] | None = None, again: bool = False, **counts: int):
    """Warnings of a night of `rows` rows whose newest is of the day `newest`, counted from the night's."""
    days = {} if newest is None else {NIGHT + newest: 1}
    counts["observations"] = counts.pop("rows")
    return age_warnings(counts, days, NIGHT * DAY_US, previous or {}, again)


def test_a_log_of_the_day_before_is_as_it_should_be():
    assert not warned(-1, rows=100, baseline=100)
    assert not warned(-1, LAST, rows=100, unchanged=40, late=30, duplicate=30)
    assert not warned(0, LAST, rows=100, unchanged=95, after_as_of=5)
    assert not warned(None, rows=0) and not warned(None, LAST, rows=0)


def test_a_log_that_is_known_already():
    (text,) = warned(-2, LAST, rows=3500, duplicate=1155, late=2345)
    assert text.startswith("no row of the crawl log is new: 1,155 are known and 2,345 older")
    assert "since the night before, 2026-06-30T00:00:00Z" in text
    assert not [t for t in warned(-1, LAST, rows=3500, duplicate=1155, late=2344, failed=1) if "new:" in t]
    # A night that is run on its own state is warned of that.
    same = {"options": {"as_of_us": NIGHT * DAY_US, "as_of": "2026-07-01T00:00:00Z"}}
    assert not warned(-1, same, rows=3500, duplicate=1155, late=2345)


@pytest.mark.parametrize("previous", [None, LAST])
def test_a_log_that_is_later_than_the_night(previous):
    (text,) = warned(None, previous, rows=1500, after_as_of=1500)
    assert text.startswith("all 1,500 rows of the crawl log are later than --as_of")
    for words in ("given again", "last fetch of a page only", "time of the dump", "read as UTC"):
        assert words in text
    (text,) = warned(0, previous, rows=1500, after_as_of=85, baseline=1415)
    assert text.startswith("85 of 1,500 rows")
    assert not warned(0, previous, rows=1500, after_as_of=75, baseline=1425)


def test_few_rows_that_are_hours_ahead_may_be_of_a_local_clock():
    ahead = {"rows": 1500, "after_as_of": 18, "baseline": 1482, "hours_after_as_of": 14}
    (text,) = warned(0, LAST, **ahead, observations_local_times=1500)
    assert text.startswith("14 rows of the crawl log are more than an hour later")
    assert text.endswith("--observations_timezone")
    assert not warned(0, LAST, **ahead)
    assert not warned(0, LAST, again=True, **ahead, observations_local_times=1500)


def test_pages_are_not_changed_after_they_were_fetched():
    def ahead(n, near=500):
        counts = {"observations_dates_near": near, "observations_dates_hours_ahead": n}
        return warned(-1, LAST, rows=900, baseline=900, **counts)

    (text,) = ahead(120)
    assert text.startswith("120 of 500 pages") and text.endswith("--observations_timezone")
    # Servers that date by clocks of their own are few.
    assert not ahead(9, near=9) and not ahead(10) and ahead(11) and not ahead(0, near=0)


def test_times_that_the_clock_of_the_zone_never_shows():
    found = warned(-1, LAST, rows=9, baseline=9, observations_skipped_times=3, requests_skipped_times=1)
    assert ["3 times in --observations" in found[0], "--requests_timezone" in found[1]] == [True, True]


def test_pages_that_a_dump_shows_once_more_do_not_hide_those_that_it_loses():
    (text,) = warned(0, LAST, rows=1000, after_as_of=8, unchanged=92, duplicate=900)
    assert text.startswith("8 of 1,000 rows")
    (text,) = warned(-1, LAST, rows=1000, after_as_of=40, late=60, duplicate=900, again=True)[:1]
    assert text.startswith("40 of 1,000 rows")


def test_a_store_reads_a_growing_log_again_by_itself():
    """Read at noon, a third of it is of the day that has begun: no reason for a mail every night."""
    assert not warned(0, LAST, again=True, rows=150, after_as_of=50, unchanged=100)
    (text,) = warned(0, LAST, again=True, rows=150, after_as_of=80, unchanged=70)
    assert text.startswith("80 of 150")


def test_a_late_log_of_another_machine_alone():
    (text,) = warned(-2, LAST, rows=100, unchanged=10, late=90)
    assert "is of 2026-06-29, before the night before, 2026-06-30T00:00:00Z" in text


@pytest.mark.parametrize("last", [None, 90])
def test_a_night_long_after_its_log(last):
    previous = last and {"options": {"as_of_us": (NIGHT - last) * DAY_US, "as_of": "2026-04-02T00:00:00Z"}}
    assert not warned(-OLD_LOG_DAYS, previous, rows=9, unchanged=9)
    (text,) = warned(-OLD_LOG_DAYS - 1, previous, rows=9, unchanged=9)
    assert "of 2026-05-31, 30 days before --as_of. Right for an archive" in text


def test_a_log_is_as_old_as_the_end_of_its_newest_day():
    assert [days_old(NIGHT - n, NIGHT) for n in (0, 1, 2, 32)] == [0, 0, 1, 31]


def test_the_newest_day():
    assert newest_day({NIGHT: 1, NIGHT - 3: 7}) == "2026-07-01" and newest_day({}) is None
