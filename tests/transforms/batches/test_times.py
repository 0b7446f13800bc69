"""Times of every spelling; each test value with the instant it means, or None where it means none."""

import os
import time
from datetime import UTC, date, datetime, timedelta

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from transforms.batches.times import END_US, FIRST_US, TIME, parse_times

TEXTS = {
    # Offsets, with and without a colon; without a zone it is UTC.
    "2026-01-01T03:00:00-0500": "2026-01-01T08:00:00",
    "2026-01-01T03:00:00+09:00": "2025-12-31T18:00:00",
    "2026-01-01T03:00:00+09": "2025-12-31T18:00:00",
    "2026-01-02T03:04:05-00:00": "2026-01-02T03:04:05",
    "2026-01-02T03:04:05-00:14400": None,
    "2026-01-02T03:04:05+25:00": None,
    "2026-01-02 03:04:05": "2026-01-02T03:04:05",
    "2026-01-02 03:04:05 +0100": "2026-01-02T02:04:05",
    "2026-01-02T03:04-01:00": "2026-01-02T04:04:00",
    "2026-01-02T03:04:05z": "2026-01-02T03:04:05",
    "2026-01-02T00:00:00Z 2025-12-01T00:00:00Z": None,
    "2026-01-02T03:04:05.5Z": "2026-01-02T03:04:05.500000",
    "2026-01-02T03:04:05,123": "2026-01-02T03:04:05.123000",
    "2026-01-02T03:04:05.123456789+01:00": "2026-01-02T02:04:05.123456",
    "2026-01-02": "2026-01-02T00:00:00",
    " 2026-01-02T03:04:05Z\n": "2026-01-02T03:04:05",
    "2026-01-02T23:59:60Z": "2026-01-03T00:00:00",
    "2026-01-02 03:04:05 UTC": "2026-01-02T03:04:05",
    "2026-01-02T03:04:05.123456 UTC": "2026-01-02T03:04:05.123456",
    "02/Jan/2026:03:04:05 +0100": "2026-01-02T02:04:05",
    "02/jan/2026:03:04:05 -0730": "2026-01-02T10:34:05",
    "30/Feb/2026:03:04:05 +0100": None,
    "2026-01-02 03:04:05 UTX": None,
    "2026-01-02 03:04:05 PST": None,
    # Written as one number.
    "20260102": "2026-01-02T00:00:00",
    "202601020304": "2026-01-02T03:04:00",
    "20260102030405": "2026-01-02T03:04:05",
    "20260102030405678": "2026-01-02T03:04:05.678000",
    "20260102T030405Z": "2026-01-02T03:04:05",
    "20000800241623": None,
    "20261302": None,
    # Seconds, milliseconds, microseconds, nanoseconds since 1970.
    "1767323045": "2026-01-02T03:04:05",
    "1767323045678": "2026-01-02T03:04:05.678000",
    "1767323045678901": "2026-01-02T03:04:05.678901",
    "1767323045678901999": "2026-01-02T03:04:05.678901",
    "1767323045.25": "2026-01-02T03:04:05.250000",
    "1.767323045e9": "2026-01-02T03:04:05",
    # Mail and HTTP dates.
    "Fri, 02 Jan 2026 03:04:05 GMT": "2026-01-02T03:04:05",
    "Fri, 02 Jan 2026 03:04:05 +0100": "2026-01-02T02:04:05",
    "2 Jan 2026 03:04:05 -0000": "2026-01-02T03:04:05",
    "Friday, 02-Jan-26 03:04:05 GMT": "2026-01-02T03:04:05",
    "Fri Jan  2 03:04:05 2026": "2026-01-02T03:04:05",
    "Fri, 02 Foo 2026 03:04:05 GMT": None,
    "Mon, 01 Jun 2026 02:00:00 +02:00": "2026-06-01T00:00:00",
    "Mon, 01 Jun 2026 02:00:00 +0200 (CEST)": "2026-06-01T00:00:00",
    "Mon, 1 Jun 2026 02:00:00 EDT": "2026-06-01T06:00:00",
    "Mon, 1 Jun 2026 02:00 -0730": "2026-06-01T09:30:00",
    "Mon, 01 Jun 2026 02:00:00 CEST": None,
    "Foo, 01 Jun 2026 02:00:00 GMT": None,
    "Foo, 01 Jun 2026 02:00:00 +0200": None,
    "Mon, 01 Jun 2026 02:00:00 (CEST)": None,
    "Mon, 01 Jun 2026 02:00:00 GMT CEST": None,
    "Mon, 01 Jun 2026 02:00:00 +02:00 +0100": None,
    "Mon, 01 Jun 2026 02:00:00 +0200x": None,
    "Mon, 01 Jun 2026 02:00:00 +2500": None,
    "Mon, 31 Jun 2026 02:00:00 GMT": None,
    # JavaScript, Java, C, `date`.
    "Mon Jun 01 2026 02:00:00 GMT+0200 (Central European Summer Time)": "2026-06-01T00:00:00",
    "Mon Jun 01 2026 02:00:00 GMT-0330 (heure d\u2019\u00e9t\u00e9 de Terre-Neuve)": "2026-06-01T05:30:00",
    "Mon Jun 01 2026 02:00:00": "2026-06-01T02:00:00",
    "Mon Jun 01 02:00:00 GMT+02:00 2026": "2026-06-01T00:00:00",
    "Mon Jun  1 02:00:00 UTC 2026": "2026-06-01T02:00:00",
    "Mon Jun  1 02:00:00 CEST 2026": None,
    "Mon Jun  1 02:00:00": None,
    "Mon Jun  1 2026 02:00:00 2026": None,
    "Jun 1, 2026 2:00:00 PM": "2026-06-01T14:00:00",
    "Jun 1, 2026, 12:00:00\u202fAM": "2026-06-01T00:00:00",
    "June 1, 2026 at 12:30 p.m.": "2026-06-01T12:30:00",
    "Monday, June 1, 2026 2:00:00 PM GMT+2": "2026-06-01T12:00:00",
    "Jun 1, 2026 14:00:00 PM": None,
    "Jun 1, 2026 2:00:00 PM, or so": None,
    "2026-06-01 02:00:00 PM": None,
    # No dates at all, or not these hundred years.
    "2026-02-29": None,
    "2024-02-29": "2024-02-29T00:00:00",
    "2100-02-29": None,
    "0001-01-01T00:00:00Z": None,
    "9999-12-31T23:59:59Z": None,
    "0026-01-01": None,
    "1989-12-31T23:59:59Z": None,
    "1990-01-01T00:00:00Z": "1990-01-01T00:00:00",
    "2100-12-31T23:59:59Z": "2100-12-31T23:59:59",
    "2101-01-01T00:00:00Z": None,
    "2026": None,
    "2026-01": None,
    "06/05/2024": None,
    # Points: the day is first.
    "05.06.2024": "2024-06-05T00:00:00",
    "05.06.2024 03:04": "2024-06-05T03:04:00",
    "05.06.2024 03:04:05": "2024-06-05T03:04:05",
    "06.25.2024": None,
    "05,06,2024": None,
    "yesterday": None,
    "-1767323045": None,
    "99999999999999999999": None,
    "NaN": None,
    "inf": None,
    "٢٠٢٦-٠١-٠٢": None,
}


def _expected(text):
    return None if text is None else datetime.fromisoformat(text).replace(tzinfo=UTC)


def test_texts_one_by_one_and_all_mixed():
    times, bad = parse_times(pa.array(list(TEXTS)))
    assert times.to_pylist() == [_expected(v) for v in TEXTS.values()]
    assert bad.tolist() == [v is None for v in TEXTS.values()]
    for text, value in TEXTS.items():
        times, bad = parse_times(pa.array([text]))
        assert times.to_pylist() == [_expected(value)], text
        assert (bad is not None) == (value is None), text


@pytest.mark.parametrize("kind", [pa.large_string(), pa.binary(), pa.dictionary(pa.int32(), pa.string())])
def test_other_types_of_text(kind):
    array = (
        pa.array(list(TEXTS)).cast(kind)
        if not pa.types.is_dictionary(kind)
        else pa.array(list(TEXTS)).dictionary_encode()
    )
    times, bad = parse_times(array)
    assert times.to_pylist() == [_expected(v) for v in TEXTS.values()]
    assert bad.tolist() == [v is None for v in TEXTS.values()]


@pytest.mark.parametrize("zone", ["America/Los_Angeles", "Asia/Kolkata", "UTC"])
def test_the_zone_of_the_machine_does_not_matter(zone, monkeypatch):
    monkeypatch.setenv("TZ", zone)
    time.tzset()
    try:
        times, _ = parse_times(pa.array(list(TEXTS)))
        dates, _ = parse_times(pa.array([date(2026, 1, 2)]))
    finally:
        monkeypatch.delenv("TZ")
        os.environ.pop("TZ", None)
        time.tzset()
    assert times.to_pylist() == [_expected(v) for v in TEXTS.values()]
    assert dates.to_pylist() == [datetime(2026, 1, 2, tzinfo=UTC)]


def test_empty_and_null_are_null_and_not_bad():
    times, bad = parse_times(pa.array(["", None]))
    assert times.null_count == 2
    assert bad is None
    assert parse_times(pa.nulls(3))[0].equals(pa.nulls(3, TIME))


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
@pytest.mark.parametrize("zone", [None, "UTC", "America/New_York"])
def test_timestamps_of_any_unit_and_zone(unit, zone):
    moment = datetime(2026, 7, 1, 12, 0, 1, tzinfo=UTC)
    array = pa.array([moment.replace(tzinfo=None), None], pa.timestamp(unit)).cast(pa.timestamp(unit, "UTC"))
    array = array.cast(pa.timestamp(unit, zone))
    times, bad = parse_times(array)
    assert times.to_pylist() == [moment, None]
    assert bad is None


def test_far_years_of_any_unit_do_not_wrap():
    seconds = pa.array([-62135596800, 253402300799, 1767323045], pa.int64())
    for unit, factor in (("s", 1), ("ms", 1000), ("us", 10**6)):
        scaled = pa.array([v.as_py() * factor for v in seconds], pa.int64()).cast(pa.timestamp(unit))
        times, bad = parse_times(scaled)
        assert bad.tolist() == [True, True, False]
        assert times.to_pylist() == [None, None, datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)]
    times, bad = parse_times(pa.array([date(1, 1, 1), date(9999, 1, 1), date(2026, 1, 2)]))
    assert bad.tolist() == [True, True, False]


def test_numbers():
    ints = [1767323045, 1767323045678, 20260102, 202601020304, 0, -5, 20455, None, 2**62]
    times, bad = parse_times(pa.array(ints))
    good = ["2026-01-02T03:04:05", "2026-01-02T03:04:05.678", "2026-01-02T00:00", "2026-01-02T03:04"]
    assert times.to_pylist() == [_expected(t) for t in good] + [None] * 5
    assert bad.tolist() == [False] * 4 + [True] * 3 + [False, True]
    times, _ = parse_times(pa.array([20455, 20260102]), days=True)
    assert times.to_pylist() == [datetime(2026, 1, 2, tzinfo=UTC)] * 2
    times, bad = parse_times(
        pa.array([1767323045.25, 1767323045678.5, float("nan"), float("inf"), None, -1.0])
    )
    assert times.to_pylist()[:2] == [
        _expected("2026-01-02T03:04:05.25"),
        _expected("2026-01-02T03:04:05.6785"),
    ]
    assert bad.tolist() == [False, False, False, True, False, True]
    assert parse_times(pa.array([2**64 - 1, 1767323045], pa.uint64()))[1].tolist() == [True, False]


@settings(deadline=None, max_examples=60)
@given(st.lists(st.integers(FIRST_US, END_US - 1), min_size=1, max_size=20), st.data())
def test_every_instant_comes_back_from_its_text(instants, data):
    epoch = datetime(1970, 1, 1, tzinfo=UTC)
    moments = [epoch + timedelta(microseconds=us) for us in instants]
    offset = data.draw(st.integers(-14 * 60, 14 * 60))
    from datetime import timezone

    zone = timezone(timedelta(minutes=offset))
    for texts in (
        [m.isoformat() for m in moments],
        [m.astimezone(zone).isoformat(" ") for m in moments if 1990 < m.year < 2100],
        [str(us) for us in instants],
    ):
        times, bad = parse_times(pa.array(texts, pa.string()))
        assert bad is None
        if len(texts) == len(instants):
            assert times.cast(pa.int64()).to_pylist() == instants
        else:
            kept = [us for us, m in zip(instants, moments, strict=True) if 1990 < m.year < 2100]
            assert times.cast(pa.int64()).to_pylist() == kept


def test_values_do_not_depend_on_their_neighbours():
    texts = list(TEXTS) * 300
    order = np.random.default_rng(5).permutation(len(texts))
    times, bad = parse_times(pa.array([texts[i] for i in order]))
    whole, whole_bad = parse_times(pa.array(texts))
    assert times.equals(whole.take(pa.array(order)))
    assert np.array_equal(bad, whole_bad[order])
