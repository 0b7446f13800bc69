"""`recrawl explain NIGHT URL`: why a page is crawled as it is, in words; or a host."""

from __future__ import annotations

import argparse
import json
import math
from datetime import UTC, datetime
from typing import Any

import numpy as np

from policies.history.answers import FAILING, LOST, class_of
from policies.history.silence import LONGEST_WAIT_DAYS
from transforms.batches.urls import canonical_host
from transforms.finished.opened import OpenNight

DESCRIPTION = """\
Say why a page is crawled as often as it is, or never: what is known of it, what one more crawl would keep
fresh, what holds it back, and which option changes that. Of a host: its pages, its limits, and who takes its
crawls. Reads the shard of the page or host only.
"""
EXIT_HELP = (
    "exit codes: 0 explained; 1 the night has no such page or host, or cannot be read; 2 options wrong."
)

_REASONS = {
    "new": "it was never crawled",
    "overdue": "it is overdue",
    "due": "its turn comes",
    "signal": "a signal says that it changed",
    "hour": "this is the hour at which a crawl keeps most requests fresh",
    "discover": "it may bring new links",
}
_ASKED_FOR = ("clicks", "impressions")
_ASKED = {
    "clicks": "clicked {n} times a day",
    "impressions": "shown {n} times a day",
    "importance": "weighted {n} by its importance",
    "equal": "weighted as any other page",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of the command."""
    parser.description = DESCRIPTION
    parser.epilog = EXIT_HELP
    parser.add_argument(
        "night", metavar="NIGHT", help="output folder of a night, or a store: its newest night"
    )
    parser.add_argument("what", metavar="URL|HOST", help="a page as the logs spell it, or a host")
    parser.add_argument("--json", action="store_true", help="all numbers, for programs")


def problems(parsed: argparse.Namespace) -> list[str]:
    """What is wrong with the options."""
    what = parsed.what
    if "://" in what and canonical_host(what) is None:
        return [f"{what}: not an absolute http or https URL"]
    if "://" not in what and ("/" in what or canonical_host(f"http://{what}/") is None):
        return [f"{what}: neither a URL with http:// or https:// nor a host"]
    return []


def run(parsed: argparse.Namespace) -> None:
    """Explain and print.

    Raises
    ------
    RecrawlError
        The night has no such page or host, or cannot be read.
    """
    night = OpenNight.open(parsed.night)
    if "://" in parsed.what:
        found = night.explain(parsed.what)
    else:
        found = night.explain_host(canonical_host(f"http://{parsed.what}/") or parsed.what)
    if parsed.json:
        print(json.dumps(found, indent=1, ensure_ascii=False, default=_plain), flush=True)
    else:
        print("\n".join(page_lines(found) if found["kind"] == "page" else host_lines(found)), flush=True)


def _plain(value: Any) -> str:
    return value.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ") if isinstance(value, datetime) else str(value)


def _row(name: str, text: str) -> str:
    return f"  {name:<14}{text}"


def page_lines(found: dict[str, Any]) -> list[str]:
    """A page in words: what it gets, why, what more would bring, and what holds it back."""
    page, rate = found["page"], found["page"]["crawl_rate_per_day"]
    first = page["limit"] == "new" and rate <= 0.0 and found["crawls"]
    what = "gets a first crawl, and no other yet" if first else _crawled(rate)
    why = f"{what}, because it is {_asked(found)} and {_changes(found)}"
    lines = [page["url"], f"  night of {found['as_of']}: {why}."]
    if crawls := found["crawls"]:
        more = f", and {len(crawls) - 1:,} more tonight" if len(crawls) > 1 else ""
        reason = _REASONS.get(crawls[0]["reason"], crawls[0]["reason"])
        lines.append(_row("next crawl", f"{_plain(crawls[0]['due_at'])}: {reason}{more}"))
    else:
        others = (
            ": it is new, and all crawls for new pages are given to others" if page["limit"] == "new" else ""
        )
        lines.append(_row("next crawl", f"none tonight{others}"))
    if page["last_crawl_at"] is not None:
        lines.append(_row("last crawl", _plain(page["last_crawl_at"])))
    lines += _answers(found) + _evidence(found)
    if rate > 0.0:
        guess = "; a guess" if not page["n_intervals"] else ""
        guess += ", as it was never seen twice" if guess and not _blind(found) else ""
        of = f"of its {_of(found)}" if found["weight_by"] in _ASKED_FOR else "of the time"
        share = f"{page['expected_freshness']:.0%} {of}, as expected{guess}"
        silent = page["limit"] == "silent" or (_answers_nothing(page) and page["expected_freshness"] == 0.0)
        if silent:
            share = "not known, as it does not answer"
        lines.append(_row("kept fresh", share))
        lines += [] if silent else [_row("one more", _more(found))]
    else:
        lines += _never(found)
    return lines + _limits(found)


def _crawled(rate: float) -> str:
    return "gets no crawl" if rate <= 0.0 else f"crawled {often(rate)}"


def often(rate_per_day: float) -> str:
    """A rate in words: twice a day, once in 3 days."""
    if rate_per_day >= 0.95:
        times = number(rate_per_day)
        return {"1": "once a day", "2": "twice a day"}.get(times, f"{times} times a day")
    days = 1.0 / rate_per_day
    return f"once in {number(days)} days" if days < 1000 else f"once in {number(days / 365.25)} years"


def number(value: float) -> str:
    """Two significant digits, no exponent."""
    if value == 0.0 or not math.isfinite(value):
        return f"{value:g}"
    digits = 1 - math.floor(math.log10(abs(value)))
    rounded = round(value, digits)
    return f"{rounded:,.{max(digits if rounded % 1 else 0, 0)}f}"


def duration(days: float) -> str:
    """A time in words."""
    for unit, length in (("days", 1.0), ("hours", 1.0 / 24.0), ("minutes", 1.0 / 1440.0)):
        if days >= 1.95 * length:
            return f"{number(days / length)} {unit}"
    return f"{number(days * 86400.0)} seconds"


def _asked(found: dict[str, Any]) -> str:
    return _ASKED.get(found["weight_by"], "weighted {n}").format(n=number(found["page"]["weight"]))


def _blind(found: dict[str, Any]) -> bool:
    """Whether a page was fetched, and no fetch could be compared with another."""
    kept, page = found.get("kept"), found["page"]
    known = kept is not None and page["last_crawl_at"] is not None
    return known and not page["n_intervals"] and kept.get("baseline_at") is None


def _changes(found: dict[str, Any]) -> str:
    page = found["page"]
    change, error, seen = page["change_rate_per_day"], page["change_rate_stderr"], page["n_intervals"]
    if not seen:
        why = "no visit could show a change" if _blind(found) else "never seen twice"
        return f"thought to change every {duration(1.0 / change)} (a guess from pages like it: {why})"
    sure = f"+- {error / change:.0%}" if error and change else "not known how surely"
    changes = f"{page['n_changes']} changes" if page["n_changes"] != 1 else "one change"
    visits = f"{seen} visits" if seen != 1 else "one visit"
    text = f"changes every {duration(1.0 / change)} ({changes} in {visits}, {sure})"
    if page.get("clock"):
        what = {"hour": "at some hours", "age": "less as it ages"}
        how = what.get(page["clock"], "at some hours, and less as it ages")
        speed = number(page["clock_speed"])
        text += f", {how}: tonight {'at' if speed == '1' else f'{speed} times'} its usual rate"
    if page.get("signal_rate_per_day") is not None:
        text += f"; signals come {often(page['signal_rate_per_day'])}" if page["signal_rate_per_day"] else ""
        if page.get("signal_precision") is not None:
            text += f", {page['signal_precision']:.0%} of them true"
    return text


def _class(page: dict[str, Any]) -> int | None:
    status = page.get("answer")
    return None if status is None else int(class_of(np.array([status], np.int16))[0])


def _answers_nothing(page: dict[str, Any]) -> bool:
    return _class(page) == FAILING


def _answers(found: dict[str, Any]) -> list[str]:
    """Of a page that its last fetch did not find: what it answers, since when, and when it is asked again."""
    page = found["page"]
    if (status := page.get("answer")) is None:
        return []
    since = f"since {_plain(page['answer_since_at'])}"
    if _answers_nothing(page):
        last = f"{_plain(tried)}, " if (tried := (found.get("kept") or {}).get("last_attempt_at")) else ""
        lines = [
            _row("answers", f"nothing: fetches have failed {since}; the last, {last}with status {status}")
        ]
        return [*lines, _row("asked again", _after_failures(found, tried))]
    if _class(page) == LOST:
        text = f"{status} {since}: it is gone"
        back = "as often as it is thought to change: that it comes back would be a change"
        return [_row("answers", text), _row("asked again", back)]
    text = f"{status} {since}: a redirect counts as a page of its own, wherever it leads"
    lines = [_row("answers", text), _row("asked again", "as often as it is thought to change")]
    if not page["n_intervals"]:
        lines[1] += "; without a digest redirects cannot be compared"
        mend = "leave redirects out of the log, log a digest of Location, or max_rate_per_day in --pages"
        lines.append(_row("to change it", mend))
    return lines


def _after_failures(found: dict[str, Any], tried: Any) -> str:
    """When a failing page is asked again."""
    page = found["page"]
    wait = f"twice as long as it has failed, {LONGEST_WAIT_DAYS:g} days at most"
    if page["limit"] == "silent":
        return f"after {wait}; an answer ends that"
    if page["crawl_rate_per_day"] <= 0.0:
        return "not while it gets no crawl"
    if tried is None or tried <= page["answer_since_at"]:
        return "as before: it failed once so far, or most fetches of that night failed"
    return f"as often as planned, and after a failed fetch not before {wait}; an answer ends that"


def _evidence(found: dict[str, Any]) -> list[str]:
    """What told changes of a page, where that is nothing, or of several kinds."""
    kept, page = found.get("kept") or {}, found["page"]
    if _blind(found) and page.get("answer") is None:
        nothing = "none: log a digest, Last-Modified, 304, or whether the page has changed"
        return [_row("evidence", nothing)]
    if not kept.get("digest_hash") or kept.get("last_modified_seen_at") is None:
        return []
    seen = _plain(kept["last_modified_seen_at"])
    return [_row("evidence", f"its digest, and Last-Modified (last seen {seen}), which may date a change")]


def _of(found: dict[str, Any]) -> str:
    """What pages weigh by, as a noun."""
    return {"equal": "pages"}.get(found["weight_by"], str(found["weight_by"]))


def _a_day(found: dict[str, Any]) -> str:
    return f"{_of(found)} a day" if found["weight_by"] in _ASKED_FOR else _of(found)


def _more(found: dict[str, Any]) -> str:
    price, gain = f"{number(found['price'])} {_a_day(found)}", found["one_more_crawl_a_day"]
    of_host = _host_price(found)
    if gain is None:
        if found["page"]["limit"] == "cap":
            return "crawl a day would keep more fresh than elsewhere; its signals or its age decide when"
        most = price if of_host is None else f"{number(of_host)} {_a_day(found)}"
        return (
            f"crawl a day would keep {most} fresh at most, as elsewhere; its signals or its age decide when"
        )
    kept = f"crawl a day would keep {number(gain)} more {_a_day(found)} fresh"
    if of_host is not None:
        return f"{kept}; the last crawl of its host keeps {number(of_host)} {_a_day(found)}"
    return f"{kept}; the last crawl of the budget keeps {price}"


def _host_price(found: dict[str, Any]) -> float | None:
    """What the last crawl of a host at its limit keeps fresh; None of others, and where it is not known."""
    price: float | None = (found["host"] or {}).get("price")
    return price


def _never(found: dict[str, Any]) -> list[str]:
    page, price, first = found["page"], found["price"], found["first_crawl_a_day"]
    if not found["budget_per_day"]:
        return [_row("why", "the budget is 0 crawls a day"), _row("to change it", "--budget")]
    if page["weight"] <= 0.0:
        return [
            _row("why", f"nobody asks for it: no {_of(found)}"),
            _row("to change it", "--weight_by equal, or importance in --pages; or min_rate_per_day there"),
        ]
    if page["limit"] in ("none", "floor", "starved", "new") and first < price:
        lasts = (
            (page.get("clock_gain") or 1.0) / page["change_rate_per_day"]
            if page["change_rate_per_day"]
            else 0
        )
        fresh = duration(lasts) if lasts else "ever"
        why = f"it changes so often that a crawl keeps it fresh for {fresh} only:"
        if not 0.0 < lasts < 1.0:
            why = f"a crawl keeps it fresh for {fresh}, which is worth little:"
        kept = (
            f"{number(first)} {_of(found)} a crawl, where the last crawl of the budget keeps {number(price)}"
        )
        cheaper = f"a --budget at which one more crawl a day brings less than {number(first)}"
        return [
            _row("why", why),
            _row("", kept),
            _row("to change it", f"min_rate_per_day in --pages, or {cheaper}"),
        ]
    lines = [_row("why", _HELD.get(page["limit"], "crawls elsewhere keep more fresh"))]
    if page["limit"] == "host" and (price := _host_price(found)) is not None:
        kept = f"{number(first)} {_of(found)} a crawl, where the last crawl of its host keeps {number(price)}"
        lines = [lines[0] + ":", _row("", kept)]
    if change := _CHANGED_BY.get(page["limit"]):
        lines.append(_row("to change it", change))
    return lines


_CHANGED_BY = {
    "new": "a larger --budget",
    "cap": "a larger max_rate_per_day in --pages, or --page_max_per_day",
    "host": "max_per_day or min_gap_seconds of its host in --hosts, or min_rate_per_day in --pages",
    "silent": "nothing in recrawl: look why its crawls are in no log; once one is, it is crawled as before",
}
_HELD = {
    "cap": "its max_rate_per_day is 0",
    "host": "its host's limit is taken by pages that gain more",
    "volatile": "it is new at every visit, so that crawls tell nothing: at most once in 30 days",
    "silent": "its crawls never come back: it waits longer each time",
}


def _limits(found: dict[str, Any]) -> list[str]:
    page, host = found["page"], found["host"]
    lines, limit = [], page["limit"]
    told = limit == "silent" and page.get("answer") is not None
    if page["crawl_rate_per_day"] > 0.0 and limit in ("floor", "cap", "volatile", "silent") and not told:
        own = {
            "floor": "min_rate_per_day in --pages, or --page_min_per_day, gives it more than it would get",
            "cap": "max_rate_per_day in --pages, or --page_max_per_day, holds it back",
        }
        lines.append(_row("held by", own.get(limit, _HELD.get(limit, limit))))
    if page.get("soft_404"):
        lines.append(_row("looks like", "an error page with status 200 (soft_404)"))
    if host is not None:
        crawls = f"{number(host['crawl_rate_per_day'])} crawls a day for {_pages(host['pages'])}"
        lines.append(_row("its host", f"{crawls}; {_room(host)}"))
    return lines


def _pages(n: int) -> str:
    return "one page" if n == 1 else f"{n:,} pages"


def _room(host: dict[str, Any]) -> str:
    limit, room = host["limit_per_day"], host["room_per_day"]
    if limit is None:
        return "it has no limit"
    gap = f", {number(host['min_gap_seconds'])} s apart," if host["min_gap_seconds"] else ""
    if room >= 0.01 * max(limit, 1.0):
        return f"its limit is {number(limit)}{gap.rstrip(',')}: room for {number(room)} more"
    return f"all that its limit of {number(limit)}{gap} allows (max_per_day, min_gap_seconds in --hosts)"


def host_lines(found: dict[str, Any]) -> list[str]:
    """A host in words."""
    host = found["host"]
    crawls = f"{number(host['crawl_rate_per_day'])} crawls a day for {_pages(found['pages'])}"
    lines = [host["host"], f"  night of {found['as_of']}: {crawls}, {host['slots']:,} tonight."]
    lines.append(_row("limit", _room(host)))
    if never := found["pages_never_crawled"]:
        share = found["weight_never_crawled"] / found["weight"] if found["weight"] else 0.0
        asked = (
            "" if found["weight_by"] == "equal" else f", with {number(100.0 * share)}% of its {_of(found)}"
        )
        lines.append(_row("get no crawl", f"{never:,} of its pages{asked}"))
    if host.get("peak_hour") is not None:
        around = f"{host['peak_share']:.0%} within three hours around it"
        lines.append(_row("changes at", f"{host['peak_hour']}:00 UTC, {around}"))
    if host.get("half_age_hours") is not None:
        half = duration(host["half_age_hours"] / 24.0)
        lines.append(_row("ages", f"half of a page's changes come within {half}"))
    if host.get("source") is not None and host.get("signal_precision") is not None:
        told = f"{host['signal_precision']:.0%} true, {host['signal_recall']:.0%} of changes told"
        lines.append(_row("signals", f"of {host['source']}: {told}"))
    lines.append(_row("most crawls", "for"))
    return lines + [f"    {_crawled(row['crawl_rate_per_day']):<24} {row['url']}" for row in found["top"]]
