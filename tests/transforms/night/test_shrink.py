"""When a night is refused because rows or pages are gone, and when fewer rows are only a smaller schedule."""

from __future__ import annotations

from typing import Any

import pytest

from transforms.night.errors import HistoryShrunkError
from transforms.night.guards import Guards, check_shrink, warnings_of
from transforms.shards.catalogue import DAY_US

LAST = 20_605  # the day that the previous night begins


def _guards(usual: int, **night: Any) -> Guards:
    """After a night whose log had `usual` rows a day and that scheduled `slots` crawls in `hours`."""
    counters = {"pages_known": 50}
    options: dict[str, Any] = {"as_of_us": LAST * DAY_US}
    if "slots" in night:
        counters["slots_used"] = night["slots"]
        options["horizon_hours"] = night.get("hours", 24.0)
    previous = {"counters": counters, "options": options, "usual_log_day": usual}
    return Guards(0.01, False, (LAST + 1) * DAY_US, True, previous)


def _check(guards: Guards, rows: int, **counters: int) -> None:
    check_shrink({"pages_known": 50, "observations": rows, **counters}, {LAST: rows} if rows else {}, guards)


@pytest.mark.parametrize(
    ("usual", "slots", "hours", "least"),
    [
        (223, 120, 24, 108),  # begins to follow a schedule of half its old crawl
        (120, 60, 24, 54),  # the budget was cut
        (120, 240, 48, 108),
        (120, 30, 12, 54),
        (120, 500, 24, 108),  # a crawler that does less than the schedule: its own usual day
        (500, 120, 24, 108),  # or more: only what was scheduled is sure to be missed
        (120, 0, 24, 0),  # nothing was to be crawled
    ],
)
def test_a_log_is_missed_below_nine_tenths_of_both_its_usual_day_and_the_schedule(usual, slots, hours, least):
    guards = _guards(usual, slots=slots, hours=hours)
    _check(guards, least)
    if least:
        with pytest.raises(HistoryShrunkError) as caught:
            _check(guards, least - 1)
        per_day = slots * 24 // hours
        assert f"{least - 1} crawl-log rows a day tonight, {usual} last night, of {per_day} that were" in str(
            caught.value
        )


def test_without_a_schedule_in_the_manifest_the_usual_day_counts():
    _check(_guards(100), 90)
    with pytest.raises(
        HistoryShrunkError, match=r"89 crawl-log rows a day tonight, 100 last night: 11% less"
    ):
        _check(_guards(100), 89)


def test_a_schedule_excuses_no_lost_pages():
    with pytest.raises(HistoryShrunkError, match="44 known pages tonight, 50 last night"):
        _check(_guards(100, slots=10), 100, pages_known=44)


@pytest.mark.parametrize(
    ("counters", "words"),
    [
        ({"observations_files_truncated": 1}, "1 file of observations is damaged, see rejected/"),
        (
            {"observations_files_truncated": 2, "observations_files_unreadable": 1},
            "3 files of observations are damaged, see rejected/",
        ),
        ({"requests_files_unreadable": 1}, "1 file of requests is damaged, see rejected/"),
    ],
)
def test_damaged_files_are_named_beside_the_loss_and_in_any_night(counters, words):
    with pytest.raises(HistoryShrunkError) as caught:
        _check(_guards(100, slots=100), 50, **counters)
    assert words in str(caught.value)
    warned = warnings_of({"observations_accepted": 100, **counters}, _guards(100))
    assert words in warned
    named = warnings_of({"observations_accepted": 100, **counters}, _guards(100), list("abcde"))
    assert f"{words}: a, b, c and 2 more" in named


def test_an_empty_file_is_not_damaged():
    assert not warnings_of({"observations_accepted": 100, "observations_files_empty": 3}, _guards(100))


def _of_sitemaps(**counters):
    found = warnings_of({"observations_accepted": 100, **counters}, _guards(100))
    return [text for text in found if "--sitemaps" in text]


def test_sitemaps_that_are_error_pages_are_a_warning_when_they_are_the_most():
    page, empty = "sitemaps_rejected_not_a_sitemap", "sitemaps_files_empty"
    assert not _of_sitemaps(sitemaps_files=4, sitemaps_accepted=9, **{page: 2})
    for bad in ({page: 3}, {page: 1, empty: 1, "sitemaps_rejected_unsafe_xml": 1}):
        (text,) = _of_sitemaps(sitemaps_files=4, sitemaps_accepted=9, **bad)
        assert text.startswith("3 of 4 files of --sitemaps are no sitemaps") and "no signals" in text
    assert not _of_sitemaps(sitemaps_files=0)


def test_indexes_alone_are_a_warning():
    index = {"sitemaps_files": 2, "sitemaps_index": 2, "sitemaps_index_children": 40}
    assert _of_sitemaps(**index) == ["--sitemaps has no page: 2 indexes name 40 sitemaps: give those"]
    assert not _of_sitemaps(**index, sitemaps_accepted=1)
    one = {"sitemaps_files": 1, "sitemaps_index": 1, "sitemaps_index_children": 1}
    assert _of_sitemaps(**one) == ["--sitemaps has no page: 1 index names 1 sitemap: give those"]


def test_signals_and_sitemaps_of_which_no_page_is_known_are_a_warning():
    def of(**counters):
        found = warnings_of({"observations_accepted": 100, **counters}, _guards(100))
        return [text for text in found if "of a known page" in text]

    (text,) = of(signals_accepted=50, signals_unmatched=30, signals_after_as_of=20, signals=99)
    assert text.startswith("none of 30 URLs of --signals is that of a known page")
    (text,) = of(sitemap_urls=200, sitemap_unknown_pages=200)
    assert text.startswith("none of 200 URLs of --sitemaps") and text.endswith("makes them pages")
    assert not of(signals_accepted=31, signals_unmatched=30, signals_before_known=1)
    assert not of(sitemap_urls=200, sitemap_unknown_pages=199)
    assert not of(signals_accepted=19, signals_unmatched=19)
