"""Times of clocks on walls, of years in which they were put forward and back."""

from datetime import UTC, date, datetime, timedelta
from zoneinfo import ZoneInfo

import numpy as np
import pyarrow as pa
import pytest

from transforms.batches.times import parse_times
from transforms.batches.zones import DAY_US, LocalClock, summer_time, zone_of

ZONES = [
    "Europe/Berlin",
    "America/New_York",
    "Australia/Lord_Howe",
    "Asia/Kolkata",
    "America/St_Johns",
    "UTC",
]


def _texts(zone, start, days=400, step=timedelta(minutes=17)):
    moment = datetime.fromisoformat(start)
    return [str(moment + i * step) for i in range(days * 1440 // 17)]


@pytest.mark.parametrize("zone", ZONES)
def test_a_year_of_local_times_is_as_zoneinfo_has_it(zone):
    """Of an hour that comes twice the first; of one that does not exist the offset from before it."""
    texts, clock, tz = _texts(zone, "2009-12-01T00:00:00"), LocalClock(zone), ZoneInfo(zone)
    found, bad = parse_times(pa.array(texts), clock=clock)
    local = [datetime.fromisoformat(t) for t in texts]
    assert bad is None and found.to_pylist() == [t.replace(tzinfo=tz).astimezone(UTC) for t in local]
    offsets = [
        (t.replace(tzinfo=tz, fold=0).utcoffset(), t.replace(tzinfo=tz, fold=1).utcoffset()) for t in local
    ]
    assert clock.counts() == {
        name: n
        for name, n in (
            ("local_times", len(texts)),
            ("repeated_times", sum(first > second for first, second in offsets)),
            ("skipped_times", sum(first < second for first, second in offsets)),
        )
        if n
    }


def test_only_times_without_a_zone_are_local():
    def read(values, kind=None):
        return parse_times(pa.array(values, kind), clock=LocalClock("Europe/Berlin"))[0].to_pylist()

    midnight, ten = datetime(2026, 6, 1, tzinfo=UTC), datetime(2026, 5, 31, 22, tzinfo=UTC)
    named = [
        "2026-06-01T00:00:00Z",
        "2026-06-01T02:00:00+02:00",
        "1780272000",
        "Mon, 01 Jun 2026 00:00:00 GMT",
    ]
    named += ["Mon Jun  1 02:00:00 CEST 2026", "2026-06-01 00:00:00 UTC"]
    naive = [
        "2026-06-01",
        "2026-06-01 00:00:00",
        "20260601000000",
        "Jun 1, 2026 12:00 AM",
        "2026-06-01T00:00",
    ]
    assert read(named) == [midnight] * len(named) and read(naive) == [ten] * len(naive)
    assert read(named + naive) == [midnight] * len(named) + [ten] * len(naive)
    assert read([1780272000, 20260601000000]) == [midnight, ten]
    assert read([1780272000.0]) == [midnight]
    assert read([date(2026, 6, 1)]) == [ten]
    assert read([midnight], pa.timestamp("ms", "UTC")) == [midnight]
    assert read([midnight.replace(tzinfo=None)], pa.timestamp("ms")) == [ten]
    assert read([None, "", "x"]) == [None] * 3


def test_a_dictionary_counts_its_rows():
    clock = LocalClock("Europe/Berlin")
    array = pa.array(["2026-10-25 02:30:00"] * 5 + ["2026-10-25 01:30:00"]).dictionary_encode()
    assert parse_times(array, clock=clock)[0].equals(
        parse_times(array.cast(pa.string()), clock=LocalClock("Europe/Berlin"))[0]
    )
    assert clock.counts() == {"local_times": 6, "repeated_times": 5}


def test_without_a_name_it_is_a_clock_of_utc():
    clock = LocalClock()
    assert np.array_equal(clock.to_utc(np.arange(3)), np.arange(3)) and clock.counts() == {"local_times": 3}
    with pytest.raises(ValueError, match="Berlin"):
        zone_of("Berlin")


def test_summer_time_begins_and_ends_somewhere() -> None:
    """New York on 9 March 2025, Berlin on 30 March, Sydney on 5 April (back) and 4 October."""

    def moved(day: str, days: int = 3) -> int:
        return summer_time(int(np.datetime64(day, "us").astype(np.int64)), days * DAY_US)

    assert [moved(d) for d in ("2025-03-08", "2025-03-10", "2025-03-13")] == [0, -1, 0]
    assert [moved(d) for d in ("2025-03-30", "2025-03-31", "2025-04-02", "2025-04-03")] == [0, -1, -1, 0]
    assert [moved(d) for d in ("2025-04-06", "2025-10-05", "2025-10-27", "2025-11-03")] == [1, -1, 1, 1]
    assert moved("2025-07-01") == moved("2025-01-15") == 0
