"""Dates of sitemaps and feeds as they are read."""

import os
import time
from datetime import UTC, datetime

import numpy as np
import pyarrow as pa
import pytest

from policies.history.lastmods import BAD, DAY, INSTANT, LOCAL, MONTH, NONE, YEAR
from transforms.batches.sitemap_dates import parse_lastmods
from transforms.batches.times import END_US


def micros(text: str) -> int:
    return int(datetime.fromisoformat(text).astimezone(UTC).timestamp()) * 1_000_000


def read(text: str | None) -> tuple[int, int]:
    begin_us, precision = parse_lastmods(pa.array([text], pa.string()))
    return int(begin_us[0]), int(precision[0])


GOOD = [
    # Years and months: nothing is taken from today.
    ("2024", "2024-01-01T00:00Z", YEAR),
    ("2024-05", "2024-05-01T00:00Z", MONTH),
    ("2026-01-02", "2026-01-02T00:00Z", DAY),
    ("20260102", "2026-01-02T00:00Z", DAY),
    ("2024-02-29", "2024-02-29T00:00Z", DAY),
    # No zone: UTC, and known to be unsure.
    ("2026-01-02T03:04:05", "2026-01-02T03:04:05Z", LOCAL),
    ("2026-01-02T03:04", "2026-01-02T03:04Z", LOCAL),
    ("2026-01-02T03:04:05.000", "2026-01-02T03:04:05Z", LOCAL),
    # Blanks, unusual offsets.
    ("2026-01-02 03:04:05", "2026-01-02T03:04:05Z", LOCAL),
    ("2026-01-02T03:04:05-00:00", "2026-01-02T03:04:05Z", INSTANT),
    ("2026-01-02T03:04-01:00", "2026-01-02T04:04Z", INSTANT),
    ("2026-01-02 03:04:05 +01:00", "2026-01-02T02:04:05Z", INSTANT),
    ("2026-01-02T03:04:05+0100", "2026-01-02T02:04:05Z", INSTANT),
    ("2026-01-02T03:04:05Z", "2026-01-02T03:04:05Z", INSTANT),
    ("2026-01-02 03:04:05 UTC", "2026-01-02T03:04:05Z", INSTANT),
    ("2026-01-02 03:04:05.000 UTC", "2026-01-02T03:04:05Z", INSTANT),
    ("2026-01-02t03:04:05z", "2026-01-02T03:04:05Z", INSTANT),
    (" \n2026-01-02T03:04:05Z\n ", "2026-01-02T03:04:05Z", INSTANT),
    ("2026-01-02T24:00:00Z", "2026-01-03T00:00Z", INSTANT),
    ("2026-12-31T24:00", "2027-01-01T00:00Z", LOCAL),
    # Feeds.
    ("Fri, 02 Jan 2026 03:04:05 GMT", "2026-01-02T03:04:05Z", INSTANT),
    ("Fri, 02 Jan 26 03:04:05 +0100", "2026-01-02T02:04:05Z", INSTANT),
    ("2 Jan 2026 03:04 EST", "2026-01-02T08:04Z", INSTANT),
    ("1767323045", "2026-01-02T03:04:05Z", INSTANT),
    ("Jun 1, 2026 2:00:00 PM", "2026-06-01T14:00:00Z", LOCAL),
    ("Mon Jun  1 02:00:00 2026", "2026-06-01T02:00:00Z", LOCAL),
    ("20260601T020000", "2026-06-01T02:00:00Z", LOCAL),
    ("Mon Jun 01 2026 02:00:00 GMT+0200 (CEST)", "2026-06-01T00:00:00Z", INSTANT),
]


@pytest.mark.parametrize(("text", "expected", "precision"), GOOD)
def test_dates_that_sites_write(text, expected, precision):
    assert read(text) == (micros(expected), precision)


@pytest.mark.parametrize(
    "text",
    [
        "2026-01-02T03:04:05-00:14400",
        "2026-01-02T00:00:00Z 2025-12-01T00:00:00Z",
        "06/05/2024",
        "2026-13-01",
        "2026-02-29",
        "2026-00",
        "2026-01-02T25:00Z",
        "2026-01-02T24:01Z",
        "2026-01-02T03:04:05+99:00",
        "yesterday",
        "Mon, 01 Jun 2026 02:00:00 CEST",
        "0",
        "-2026-01-02",
        "٢٠٢٦-٠١-٠٢",
        # Of clocks that were never set.
        "1970-01-01",
        "1970-01-01T00:00:00Z",
        "0001-01-01T00:00:00",
        "1989",
        "x" * 5000,
    ],
)
def test_anything_else_is_no_date(text):
    assert read(text) == (0, BAD)


@pytest.mark.parametrize(
    "text", ["2999-01-01", "2101-02-28T00:00:00Z", "2999-02-29", "9999-12-31T23:59:59Z", "2150"]
)
def test_far_years_are_later_than_any_night(text):
    """2999-02-29 is no day either, but that is no matter: both drop the signal."""
    begin_us, precision = read(text)
    assert begin_us == END_US and precision > BAD


@pytest.mark.parametrize("text", [None, "", "  ", "\n"])
def test_nothing_is_no_date_and_no_fault(text):
    assert read(text) == (0, NONE)


@pytest.fixture
def elsewhere(monkeypatch):
    monkeypatch.setenv("TZ", "America/Los_Angeles")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


def test_the_zone_of_the_machine_is_nothing(elsewhere):
    """A day is one of UTC wherever the job runs."""
    assert os.environ["TZ"] == "America/Los_Angeles" and time.timezone == 8 * 3600
    for text, expected, precision in GOOD:
        assert read(text) == (micros(expected), precision)


def test_a_column_is_its_values():
    """Whatever the neighbours, and for slices, too."""
    texts = [text for text, _, _ in GOOD] + [None, "", "soon", "2999-01-01"]
    column = pa.array(["skipped", *texts, *texts], pa.string()).slice(1)
    begin_us, precision = parse_lastmods(column)
    single = [read(text) for text in texts] * 2
    assert list(zip(begin_us.tolist(), precision.tolist(), strict=True)) == single
    assert precision.dtype == np.int8 and begin_us.dtype == np.int64
    assert [len(a) for a in parse_lastmods(pa.array([], pa.string()))] == [0, 0]
