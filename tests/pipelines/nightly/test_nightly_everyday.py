"""Files as people and machines leave them about: what a night makes of them, and what it says."""

from __future__ import annotations

from datetime import datetime, timedelta
from email.utils import format_datetime
from zoneinfo import ZoneInfo

import pytest

from tests.pipelines.jobs import at, crawls, nightly

SHOP = [f"https://shop.test/{i}" for i in range(200)]
LOG = [row for url in SHOP for row in crawls(url, "ABCDEFGH", every_days=3)]


def _http_date(moment, hours):
    """The header of a page that was changed some hours before a moment."""
    return format_datetime(datetime.fromisoformat(moment) - timedelta(hours=hours), usegmt=True)


def _at_clock(moment, zone):
    """What a clock on a wall shows, without its zone."""
    return datetime.fromisoformat(moment).astimezone(ZoneInfo(zone)).replace(tzinfo=None).isoformat()


def _requests(folder, lines, name="clicks.csv"):
    path = folder / "requests" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("url,day,clicks\n" + "".join(f"{line}\n" for line in lines))
    return path


def test_the_most_clicked_pages_keep_their_clicks_however_they_are_spelled(tmp_path):
    small = [f"{url},2026-06-04,{i}" for i, url in enumerate(SHOP[2:])]
    _requests(tmp_path, [*small, f'{SHOP[0]},2026-06-04,"12,345"'])
    _requests(tmp_path, [*small, f"{SHOP[1]},2026-06-04,12\u202f345"], "more.csv")
    night = nightly(tmp_path, observations=LOG, requests=tmp_path / "requests", max_rejected_fraction=0.01)
    assert night.code == 0
    assert "requests_rejected" not in night.counters
    rates = [night.page(SHOP[i])["crawl_rate_per_day"] for i in (0, 1, 150)]
    assert rates[0] == pytest.approx(rates[1]) and rates[0] > 2 * rates[2]


def test_rejected_rows_that_are_the_greatest_are_told_by_what_they_count(tmp_path):
    small = [f"{url},2026-06-04,{i}" for i, url in enumerate(SHOP[2:])]
    path = _requests(tmp_path, [*small, f'{SHOP[0]},{at(3)[:10]},"1,2345.6"'])
    night = nightly(tmp_path, observations=LOG, requests=path, max_rejected_fraction=0.01)
    assert night.code == 0
    (warning,) = [w for w in night.manifest["warnings"] if "--requests" in w]
    # 12,345 beside the 19,503 of the others.
    assert "1 of 199 rows of --requests were rejected, and with them about 39% of the clicks" in warning
    assert warning in night.printed and warning in night.complaints


def test_a_clock_in_the_west_is_told_by_pages_that_change_after_they_were_fetched(tmp_path):
    """A crawler in New York; a tenth of its pages were changed an hour or two before each fetch."""
    rows = [
        {**row, "last_modified": _http_date(row["fetched_at"], hours=1.5 if i % 10 == 0 else 100 + i % 7)}
        for i, row in enumerate(LOG)
    ]
    local = [{**row, "fetched_at": _at_clock(row["fetched_at"], "America/New_York")} for row in rows]
    (warning,) = (
        w
        for w in nightly(tmp_path, "local", observations=local, as_of=at(21, 1)).manifest["warnings"]
        if "timezone" in w
    )
    assert "were changed hours after they were fetched" in warning
    told = nightly(
        tmp_path, "told", observations=local, as_of=at(21, 1), observations_timezone="America/New_York"
    )
    utc = [{**row, "fetched_at": row["fetched_at"].replace("Z", "")} for row in rows]
    for night in (told, nightly(tmp_path, "utc", observations=utc, as_of=at(21, 1))):
        assert night.counters["observations_dates_near"] == sum(i % 10 == 0 for i in range(len(LOG)))
        assert "observations_dates_hours_ahead" not in night.counters
        assert not [w for w in night.manifest["warnings"] if "timezone" in w]


def test_the_clock_of_a_log_is_told_by_an_option(tmp_path):
    """A crawler in Tokyo that logs what its wall shows, read at the end of the day in UTC."""
    local = [{**row, "fetched_at": row["fetched_at"].replace("Z", "")} for row in LOG]
    # Nine hours ahead of the days 0 to 21, 0:00.
    for row in local:
        row["fetched_at"] = row["fetched_at"].replace("T00:00", "T09:00")
    given = {"observations": local, "as_of": at(21, 1)}
    night = nightly(tmp_path, "utc", **given)
    assert night.counters["hours_after_as_of"] == len(SHOP)
    assert any("--observations_timezone" in w for w in night.manifest["warnings"])
    told = nightly(tmp_path, "told", **given, nutch_timezone="Asia/Tokyo")
    right = nightly(tmp_path, "right", observations=LOG, as_of=at(21, 1))
    assert not [w for w in told.manifest["warnings"] if "timezone" in w]
    assert told.counters["observations_local_times"] == len(LOG)
    said = f"{len(LOG):,} times without a zone in fetched_at, read as "
    assert f"{said}UTC (--observations_timezone says another)" in night.printed
    assert f"{said}Asia/Tokyo" in told.printed and "without a zone" not in right.printed
    kinds = ("pages", "schedule", "state")
    assert told.digests(*kinds) == right.digests(*kinds) != night.digests(*kinds)
    wrong = nightly(tmp_path, "wrong", **given, observations_timezone="Tokyo", requests_timezone="a/b")
    assert wrong.code == 2
    assert "--observations_timezone=Tokyo: no such zone; give one like Europe/Berlin" in wrong.complaints
    assert "--requests_timezone=a/b: no such zone" in wrong.complaints


def test_urls_with_a_fragment_are_pages_of_their_own_and_are_counted(tmp_path):
    """Crawlers that watch parts of a page name them so; what one part changes is no change of another."""
    parts = [crawls(f"https://a.test/page#{part}", part * 5) for part in "xy"]
    night = nightly(tmp_path, observations=[row for rows in parts for row in rows], as_of=at(5))
    rows = night.rows("pages")
    assert len(rows) == 2 and all((row["n_intervals"], row["n_changes"]) == (4, 0) for row in rows)
    assert night.counters["observations_fragments"] == 10
    assert "10 URLs with a fragment (#...), which no server sees: pages of their own" in night.printed
