"""Whether rows of a crawl log are of the night's time: known already, later than it, or long before it."""

from __future__ import annotations

from datetime import date
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from transforms.batches import schemas
from transforms.batches.tally import Counts
from transforms.batches.zones import FAR_US
from transforms.shards.catalogue import DAY_US

_EPOCH_ORDINAL = date(1970, 1, 1).toordinal()

OLD_LOG_DAYS = 30
"""A log whose newest day ended this long ago is an archive, or not the log of this night."""

MAX_LATER = 0.05
"""Share of rows after the night's instant that is no oversight: clocks differ, and logs grow while read."""

MAX_LATER_GIVEN_AGAIN = 0.5
"""That where files are read again by themselves: of a log that is read once a day, at whatever hour, less
than half is of the day that has begun."""

LEAST_AHEAD, MOST_AHEAD = 10, 0.02
"""Fetches before the date that their page has, and the share of dated fetches, from which a clock is off."""


def day_text(day: int) -> str:
    """ISO date of a day since 1970."""
    return date.fromordinal(_EPOCH_ORDINAL + day).isoformat()


def newest_day(rows_by_day: dict[int, int]) -> str | None:
    """ISO date of the newest row up to the night; None without rows."""
    return day_text(max(rows_by_day)) if rows_by_day else None


def days_old(newest: int, night: int) -> int:
    """Whole days from the end of a log's newest day to that of the night, both days since 1970."""
    return max(night - newest - 1, 0)


def up_to_night(at: pa.Array, as_of_us: int, counts: Counts) -> pa.Array:
    """Which rows are not later than the night; those that are later are counted."""
    kept = pc.less_equal(at, pa.scalar(as_of_us, schemas.TIME))
    later = len(at) - pc.sum(kept).as_py()
    counts.add("observations", later)
    counts.add("after_as_of", later)
    counts.add(
        "hours_after_as_of", pc.sum(pc.greater(at, pa.scalar(as_of_us + FAR_US, schemas.TIME))).as_py()
    )
    return kept


def age_warnings(
    counters: dict[str, int],
    rows_by_day: dict[int, int],
    as_of_us: int,
    previous: dict[str, Any],
    given_again: bool = False,
) -> list[str]:
    """At most one warning of rows that are later than the night, and one of rows that are too old for it.

    Others are of times that the clock of `--..._timezone` never shows, and of fetches that are earlier than
    what they fetched.

    Parameters
    ----------
    counters : dict of str to int
        What `policies.history.history.fold` made of the rows.
    rows_by_day : dict of int to int
        Rows up to the night, by their day since 1970.
    as_of_us : int, microseconds
    previous : dict
        The previous manifest; empty where there is none.
    given_again : bool
        Whether files with rows after the night are read again the next night by themselves.
    """
    rows, later = counters.get("observations", 0), counters.get("after_as_of", 0)
    late, duplicate = counters.get("late", 0), counters.get("duplicate", 0)
    # Pages that a dump shows as the night before did say nothing of its time.
    news = rows - late - duplicate
    found = []
    if later > (MAX_LATER_GIVEN_AGAIN if given_again else MAX_LATER) * news:
        found.append(later_warning(later, rows))
    elif not given_again and counters.get("hours_after_as_of") and counters.get("observations_local_times"):
        found.append(
            f"{counters['hours_after_as_of']:,} rows of the crawl log are more than an hour later than "
            "--as_of, and its times name no zone: if they are of a local clock, all are read wrong. Give its "
            "zone with --observations_timezone"
        )
    ahead, near = (counters.get(f"observations_dates_{what}", 0) for what in ("hours_ahead", "near"))
    if ahead >= LEAST_AHEAD and ahead > MOST_AHEAD * near:
        found.append(
            f"{ahead:,} of {near:,} pages with a Last-Modified of the same day were changed hours after they "
            "were fetched, by the times of the crawl log, which name no zone: they are of a clock west of "
            "the zone that they are read as. Give its zone with --observations_timezone"
        )
    for kind in ("observations", "requests"):
        if skipped := counters.get(f"{kind}_skipped_times"):
            found.append(
                f"{skipped:,} times in --{kind} are of an hour that clocks of --{kind}_timezone skip in "
                "spring: whoever wrote them has another zone"
            )
    options = previous.get("options", {})
    last_us = options.get("as_of_us")
    if not rows_by_day or last_us == as_of_us:
        return found
    newest = max(rows_by_day)
    if not news and previous:
        found.append(
            f"no row of the crawl log is new: {duplicate:,} are known and {late:,} older than what is known "
            f"of their pages. Give what was fetched since the night before, {options.get('as_of')}"
        )
    elif last_us is not None and (newest + 1) * DAY_US <= last_us:
        found.append(
            f"the newest row of the crawl log is of {day_text(newest)}, before the night before, "
            f"{options.get('as_of')}: look whether the log of the time since then is missing"
        )
    elif (age := days_old(newest, as_of_us // DAY_US)) >= OLD_LOG_DAYS:
        found.append(
            f"the newest row of the crawl log is of {day_text(newest)}, {age:,} days before --as_of. Right "
            "for an archive that ends there; else later logs are missing, or --as_of is wrong"
        )
    return found


def later_warning(later: int, rows: int) -> str:
    """What becomes of rows that are later than the night."""
    count = f"all {rows:,}" if later == rows else f"{later:,} of {rows:,}"
    return (
        f"{count} rows of the crawl log are later than --as_of: they count only if they are given again the "
        "next night, and a dump, which has the last fetch of a page only, has lost them by then. Give the "
        "time of the dump as --as_of. If they are not that late, look at their zone: times without one are "
        "read as UTC, or as --observations_timezone says"
    )
