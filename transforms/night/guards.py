"""When a night is not committed, and what a person should look at although it is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from transforms.batches.tally import counted
from transforms.night.errors import HistoryShrunkError, TooManyRejectedError
from transforms.night.evidence_warnings import evidence_warnings
from transforms.night.input_warnings import (
    sitemap_warnings,
    stranger_warnings,
    useless_warning,
)
from transforms.shards.catalogue import DAY_US

KINDS = ("observations", "requests", "signals", "sitemaps", "pages", "hosts")
# Sitemaps are written by the sites that are crawled: what they get wrong must not stop the night.
OWN_KINDS = tuple(k for k in KINDS if k != "sitemaps")

LEAST_USELESS = 5
"""Rejected rows of an input of which more than half were rejected."""


@dataclass(frozen=True)
class Guards:
    """When not to commit.

    Attributes
    ----------
    max_rejected_fraction : float
    allow_shrink : bool
    as_of_us : int
        The night, UTC microseconds.
    has_state : bool
        Whether a state was given.
    previous : dict
        The previous manifest; empty where there is none.
    given_again : bool
        Whether files with rows after the night are read again the next night by themselves.
    replaced : dict
        The manifest of the night that this one replaces; empty where an empty one may do so.
    """

    max_rejected_fraction: float
    allow_shrink: bool
    as_of_us: int
    has_state: bool
    previous: dict[str, Any]
    given_again: bool = False
    replaced: dict[str, Any] = field(default_factory=dict)


MAX_SHRINK = 0.10
MAX_NAMED_FILES = 3


def input_rows(counters: dict[str, int]) -> int:
    """Rows of a team's own inputs, accepted and rejected."""
    return sum(input_rows_of(kind, counters) for kind in OWN_KINDS)


def input_rows_of(kind: str, counters: dict[str, int]) -> int:
    """Rows of one input, accepted and rejected."""
    return sum(counters.get(f"{kind}_{what}", 0) for what in ("accepted", "rejected"))


def check_rejected(counters: dict[str, int], guards: Guards, folder: str = "") -> None:
    """Raise `TooManyRejectedError` if too large a share of the input of a night in `folder` was rejected."""
    rejected = sum(counters.get(f"{k}_rejected", 0) for k in OWN_KINDS)
    check_share(rejected, input_rows(counters), guards.max_rejected_fraction, counters, folder)


def check_share(rejected: int, rows: int, most: float, counters: dict[str, int], folder: str) -> None:
    """Raise `TooManyRejectedError`, with reasons by `counters`, if more than a share of rows was rejected."""
    if rejected > most * rows:
        worst = sorted(
            ((n, k) for k, n in counters.items() if "_rejected_" in k and not k.startswith("sitemaps_")),
            key=lambda item: (-item[0], item[1]),
        )
        reasons = ", ".join(f"{k.replace('_rejected_', ' ')}: {n:,}" for n, k in worst[:5])
        raise TooManyRejectedError(
            f"{rejected:,} of {rows:,} input rows were rejected ({rejected / rows:.2%}), more than "
            f"--max_rejected_fraction={most:g} allows ({reasons}). They are in "
            f"{folder and folder + '/'}rejected/; mend the input or raise the limit"
        )


def usual_day(rows_by_day: dict[int, int]) -> int:
    """Rows of a usual day of a log: half of all rows are of days with at least as many. 0 without rows."""
    half, seen = sum(rows_by_day.values()) / 2, 0
    for rows in sorted(rows_by_day.values(), reverse=True):
        seen += rows
        if seen >= half:
            return rows
    return 0


def check_shrink(
    counters: dict[str, int], rows_by_day: dict[int, int], guards: Guards, damaged: Sequence[str] = ()
) -> None:
    """Raise `HistoryShrunkError` if more than a tenth of known pages or of input rows is gone.

    A first night reads weeks and the next one a day. So a crawl log whose news mainly follow on the previous
    night is compared by the rows of a usual day, any other by all its rows. Rows that the state knows already
    are no news: a file may be given again. Another input that had rows and now has none counts as gone.

    A crawler that follows the schedule makes as many rows as were scheduled, which may be fewer than its old
    log has: the rows of a usual day are missed only where they are fewer than both.
    """
    before = guards.previous
    if guards.allow_shrink or not before:
        return
    old = before.get("counters", {})
    previous_day = before.get("options", {}).get("as_of_us", 0) // DAY_US
    rows = sum(rows_by_day.values())
    newer = {day: n for day, n in rows_by_day.items() if day >= previous_day}
    known = counters.get("late", 0) + counters.get("duplicate", 0)
    compared: list[tuple[str, int, int, float | None]] = [
        ("known pages", counters.get("pages_known", 0), old.get("pages_known", 0), None)
    ]
    if 2 * sum(newer.values()) > rows - known:
        usual = before.get("usual_log_day", 0)
        compared.append(("crawl-log rows a day", usual_day(newer), usual, scheduled_per_day(before)))
    else:
        compared.append(("crawl-log rows", counters.get("observations", 0), old.get("observations", 0), None))
    for kind in OWN_KINDS[1:]:
        if f"{kind}_files" in counters:
            now = counters.get(f"{kind}_accepted", 0)
            compared.append((f"{kind} rows", min(now, 1), min(old.get(f"{kind}_accepted", 0), 1), None))
    for what, now, then, scheduled in compared:
        expected = then if scheduled is None else min(then, scheduled)
        if now < (1 - MAX_SHRINK) * expected:
            asked = "" if scheduled is None else f", of {scheduled:,.0f} that were scheduled"
            look = damaged_files(counters, damaged) or "Look for missing input files"
            raise HistoryShrunkError(
                f"history_shrunk: {now:,} {what} tonight, {then:,} last night{asked}: "
                f"{1 - now / expected:.0%} less, more than {MAX_SHRINK:.0%}. {look}; if this "
                "is meant, give --allow_shrink"
            )


def scheduled_per_day(manifest: dict[str, Any]) -> float | None:
    """Crawls a day that a night has scheduled; None where its manifest does not say."""
    slots = manifest.get("counters", {}).get("slots_used")
    hours = manifest.get("options", {}).get("horizon_hours")
    return None if slots is None or not hours else 24 * slots / hours


def damaged_files(counters: dict[str, int], names: Sequence[str] = ()) -> str:
    """What to say of files that could not be read to their end; empty if there are none."""
    found = []
    for kind in KINDS:
        n = sum(counters.get(f"{kind}_files_{what}", 0) for what in ("truncated", "unreadable"))
        if n:
            found.append(f"{counted(n, 'file')} of {kind} {'is' if n == 1 else 'are'} damaged")
    if not found:
        return ""
    more = f" and {len(names) - MAX_NAMED_FILES:,} more" if len(names) > MAX_NAMED_FILES else ""
    named = f": {', '.join(names[:MAX_NAMED_FILES])}{more}" if names else ""
    return f"{', '.join(found)}, see rejected/{named}"


def warnings_of(counters: dict[str, int], guards: Guards, damaged: Sequence[str] = ()) -> list[str]:
    """What a person should look at, although the night is done."""
    found = []
    if guards.has_state and not input_rows_of("observations", counters):
        found.append("the crawl log has no row tonight: the schedule follows from what was known before")
    of_no_news = ("failed", "after_as_of", "late", "duplicate")
    fetched = counters.get("observations", 0) - sum(counters.get(what, 0) for what in of_no_news)
    if not fetched and counters.get("failed", 0):
        found.append(
            f"none of {counters['failed']:,} fetches in the crawl log succeeded: nothing is learned of their "
            "pages. Look whether the crawler is blocked; the rows' status is that of the answer"
        )
    blind = counters.get("no_change_evidence", 0)
    if blind > fetched / 2:
        found.append(
            f"{blind:,} of {fetched:,} fetches cannot show a change: give the crawl log a digest, changed, "
            "last_modified or not_modified"
        )
    found += evidence_warnings(counters, fetched)
    if text := damaged_files(counters, damaged):
        found.append(text)
    for kind in KINDS:
        rejected, accepted = counters.get(f"{kind}_rejected", 0), counters.get(f"{kind}_accepted", 0)
        if rejected >= LEAST_USELESS and rejected > accepted:
            found.append(useless_warning(kind, counters))
        elif rejected > guards.max_rejected_fraction * (rejected + accepted):
            found.append(f"{rejected:,} of {rejected + accepted:,} {kind} rows were rejected: see rejected/")
    found += sitemap_warnings(counters)
    found += stranger_warnings(counters)
    if n := counters.get("requests_gsc_truncated", 0):
        found.append(
            f"gsc_truncated: {n:,} export{' has' if n == 1 else 's have'} just as many rows as Search "
            "Console gives at most, 1,000 or 25,000. Pages without a row are taken as asked for hardly ever: "
            "they get few crawls, and the expected freshness is too good. Give the logs of the web server, "
            "the bulk export, or the further answers of the API"
        )
    logged, searched = (counters.get(f"requests_{by}_clicks", 0) for by in ("web_log", "search_console"))
    if logged and searched:
        found.append(
            f"{logged:,} clicks are of logs of web servers and {searched:,} of exports of Search Console: "
            "who comes from a search is in both, and counts twice on days that both have. Give one of them "
            "to --requests and run this night again, from the same --state as now, or without one on a first "
            "night"
        )
    if counters.get("hosts_unmatched", 0):
        found.append(
            f"{counters['hosts_unmatched']:,} of {counters['hosts_accepted']:,} rows of --hosts name a host "
            "without pages; a subdomain is a host of its own"
        )
    if counters.get("requests_late", 0) and not counters.get("requests_folded", 0):
        found.append("all request rows are of days that the state has counted already")
    if guards.has_state and not guards.previous:
        found.append("no manifest.json beside the state: that night failed, or only its state was copied")
    same = guards.previous.get("options", {}).get("as_of_us") == guards.as_of_us
    if same:
        found.append(
            "the state is of this very night: to run a night again, give the state of the night before"
        )
    return found
