"""The summary of a night, as a person reads it."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Sequence
from datetime import date
from typing import Any, TextIO

from pipelines.nightly.as_read import said_of_input
from pipelines.nightly.expected import said_of_discovery, said_of_plan
from transforms.batches.tally import counted
from transforms.finished.folders import weights_of
from transforms.intake.log_ages import days_old
from transforms.kept.statistics import said as said_of_pages
from transforms.night.request_share import said_of_share


def _clocks(manifest: dict[str, Any]) -> str:
    """How many pages change at some hours or ages rather than at others, and what the night makes of it."""
    counters = manifest["counters"]
    both = counters.get("pages_clock_hour_and_age", 0)
    by_hour, by_age = (counters.get(f"pages_clock_{name}", 0) + both for name in ("hour", "age"))
    said = [
        f"{counted(n, 'page')} change {what}"
        for n, what in ((by_hour, "at hours of the day or week"), (by_age, "less and less as they age"))
        if n
    ]
    for name, what in (
        ("slots_hour", "moved to better hours"),
        ("slots_to_learn_clocks", "to learn when pages change"),
    ):
        if n := counters.get(name, 0):
            said.append(f"{counted(n, 'crawl')} {what}")
    if gain := manifest.get("expected_freshness_by_hours"):
        said.append(f"hours are worth {gain:.4f} of freshness")
    return "; ".join(said)


def to_look_at(manifest: dict[str, Any]) -> list[str]:
    """What a person should look at: that there is no schedule, and warnings."""
    empty = manifest.get("status", "ok") != "ok"
    why = [f"The schedule is empty: {manifest.get('status_reason', '')}"] if empty else []
    return [*why, *manifest.get("warnings", [])]


def also_on_stderr(command: str, warnings: Sequence[str]) -> None:
    """Warnings for whom standard output does not reach, such as cron's mail; they were printed there.

    Where both lead to one terminal, file or pipe they stand there already.
    """
    if not _lead_to_one(sys.stdout, sys.stderr):
        for warning in warnings:
            print(f"recrawl {command}: WARNING: {warning}", file=sys.stderr)


def _lead_to_one(one: TextIO, other: TextIO) -> bool:
    if one.isatty() and other.isatty():
        return True
    try:
        return os.path.sameopenfile(one.fileno(), other.fileno())
    except (OSError, ValueError):  # a stream without a file, or a closed one
        return False


_NOTES = {
    "unmatched": "of unknown pages",
    "before_known": "from before their page was known",
    "late": "of days counted before",
    "after_as_of": "of days not over yet",
    "too_old": "too old to count",
    "repeated_times": "of an hour that clocks show twice",
    "skipped_times": "of an hour that clocks skip",
}
_OWN_NOTES = {
    "signals_late": "not newer than the last visit or signal of their page",
    "signals_after_as_of": "later than --as_of",
    "hosts_unmatched": "of hosts without pages",
}
_DATES = {
    "lastmod_moved": "moved",
    "lastmod_first_seen": "first seen",
    "lastmod_same": "the same",
    "lastmod_back": "older than before",
    "sitemap_repeated": "of pages in several files",
    "sitemap_unknown_pages": "of unknown pages",
    "no_lastmod": "missing",
    "coarse_lastmod": "a year or a month",
    "bad_lastmod": "unreadable",
    "future_lastmod": "later than --as_of",
}

# What one more crawl a day would do, by what pages are weighted with.
_GAINS = {
    "clicks": "bring {} more clicks a day to a fresh page",
    "impressions": "bring {} more impressions a day to a fresh page",
    "importance": "add {} to the importance of fresh pages",
    "equal": "keep {} more pages fresh",
}


def _n(value: float) -> str:
    return f"{value:,.0f}" if value == int(value) else f"{value:,.2f}"


MAX_SOURCES_SHOWN = 4
MIN_PULL = 0.1  # by so much one host must make a source look worse to be named


def _share(value: float | None) -> str:
    return "unknown" if value is None else f"{value:.0%}"


def _partly_learned(source: dict[str, Any]) -> bool:
    return bool(source.get("learned", True) and source.get("hosts_not_learned"))


def _trust(source: dict[str, Any]) -> str:
    """How far a source is trusted, and which host pulls that down."""
    if not source.get("learned", True):
        return "not learned yet"
    precision, others = source["signal_precision"], source.get("signal_precision_of_others")
    text = f"{_share(precision)} true"
    if others is not None and precision is not None and others - precision >= MIN_PULL:
        worst = source["most_false"][0]
        found = f"{_share(worst['signal_precision'])} true" if worst["learned"] else "not learned yet"
        text += (
            f" ({worst['host']}: {worst['signal_rate_per_day']:,.0f} of {source['signal_rate_per_day']:,.0f} "
            f"signals a day, {found}; others {_share(others)})"
        )
    return f"{text}, {_share(source.get('signal_recall'))} of changes told"


def _sources(signals: dict[str, Any]) -> str:
    """How far each source is trusted, those with most signals first."""
    sources = sorted(signals["sources"], key=lambda s: (-s["signal_rate_per_day"], s["source"]))
    said = [
        f"{s['source']} {_trust(s)} "
        f"({s['signal_rate_per_day']:,.3g} a day on {counted(s['pages'], 'page')} of "
        f"{counted(s['hosts'], 'host')}"
        + (f", not learned yet on {_n(s['hosts_not_learned'])}" if _partly_learned(s) else "")
        + (f", silent on {_n(s['hosts_silent'])}" if s["hosts_silent"] else "")
        + ")"
        for s in sources[:MAX_SOURCES_SHOWN]
    ]
    if len(sources) > MAX_SOURCES_SHOWN:
        said.append(f"{_n(len(sources) - MAX_SOURCES_SHOWN)} more")
    return "; ".join(said) or "none yet"


def _bought(signals: dict[str, Any]) -> str:
    """What signals are worth, in a line."""
    text = (
        f"expected freshness {signals['expected_freshness']:.4f} with signals, "
        f"{signals['expected_freshness_without']:.4f} without"
    )
    saved = signals["crawls_saved_per_day_at_least"]
    if saved:
        text += f": as good as {saved:,.3g} more crawls a day, at least"
    return text


def _judged(judged: dict[str, Any]) -> str:
    """How the night before did, in a line."""
    if not judged["crawls"]:
        return "no crawl yet of a scheduled page that shows whether it had changed"
    text = (
        f"{counted(judged['crawls'], 'crawl')}: {counted(judged['changes_found'], 'change')} found, "
        f"{judged['changes_predicted']:,.0f} predicted"
    )
    if judged["ratio"] is not None:
        text += f" (ratio {judged['ratio']:.2f} +- {judged['ratio_95'][1] - judged['ratio']:.2f})"
    fresh = judged["freshness_of_time"]
    text += f"; fresh {fresh['realised']:.2f} of the time on these pages, {fresh['predicted']:.2f} predicted"
    return text + ("; few pages had been seen twice, so by priors" if judged.get("from_priors") else "")


def said_of_forecasts(judged: dict[str, Any]) -> str:
    """Whether forecasts were corrected by what came of earlier ones, where, and what it gained; empty where
    nothing was judged.
    """
    told = judged.get("corrected")
    if not told or not judged["crawls"]:
        return ""
    if not told["crawls"] and told["so_far"]["crawls"]:
        return "no crawl of these tells whether to correct them: how long its page had been calm is not known"
    if told["so_far"]["crawls"] <= told["crawls"]:
        return "not corrected yet: these are the first that are judged, the next ones learn from them"
    hosts = counted(told["hosts"], "host")
    if not told["hosts_by_cells"] and not told["hosts_by_own"]:
        text = f"not corrected: what came of earlier ones made them worse on the {hosts} crawled"
    else:
        text = (
            f"corrected by how long pages had been calm on {_n(told['hosts_by_cells'])} of {hosts} crawled, "
            f"by how far the host's had been off on {_n(told['hosts_by_own'])}"
        )
        if min(told["hosts_by_cells"], told["hosts_by_own"]) < told["hosts"]:
            text += "; where not, it had made them worse"
    return f"{text}; log loss per 1,000 crawls {_losses(told)}; in the last weeks {_losses(told['so_far'])}"


def _losses(told: dict[str, Any]) -> str:
    now, by_rates = (1000.0 * told[name] / told["crawls"] for name in ("log_loss", "log_loss_by_rates"))
    return f"{now:.1f}, by rates alone {by_rates:.1f}"


def _silent(quiet: dict[str, Any]) -> str:
    """What was tried in vain, in a line."""
    n = quiet["pages_silent"]
    waiting = f"{counted(n, 'page')} wait{'s' * (n == 1)} longer for having been tried in vain"
    if not quiet["scheduled"]:
        return waiting
    scheduled = counted(quiet["scheduled"], "scheduled page")
    are = "is" if quiet["in_no_log"] == 1 else "are"
    return f"{_n(quiet['in_no_log'])} of {scheduled} {are} in no log; {waiting}"


def _never_fetched(counters: dict[str, int]) -> str:
    """Of how many pages that were crawled no crawl succeeded."""
    n = counters.get("pages_never_fetched", 0) - counters.get("pages_never_crawled", 0)
    return f", {_n(n)} crawled without success" if n > 0 else ""


def _joined(counters: dict[str, int]) -> list[str]:
    """Of how many requests the page is known."""
    for name in ("clicks", "impressions"):
        if n := counters.get(f"requests_{name}", 0):
            if not (joined := counters.get(f"requests_{name}_joined", 0)):
                # What hosts have is of earlier nights: beside this it would sound as if all were well.
                return [f"none of {_n(n)} {name} are of known pages"]
            share = joined / n
            hosts = (
                f"{_n(counters.get(f'hosts_with_{name}', 0))} of {_n(counters.get('hosts_known', 0))} hosts"
            )
            return [f"{share:.1%} of {_n(n)} {name} are of known pages", f"{hosts} have {name}"]
    return []


def _unknown_pages(urls: Sequence[str], counters: dict[str, int]) -> str:
    """Examples of what was asked for and is no page, in a line, and what is most likely wrong."""
    text = f"such as {', '.join(urls)}"
    some = any(counters.get(f"requests_{name}_joined") for name in ("clicks", "impressions"))
    site = "scheme and host (--requests_site)"
    if (any if some else all)("?" in url for url in urls):
        text += "; name parameters that are no part of a page with --tracking_parameters"
        return text if some else f"{text}, if {site} are right"
    return text if some else f"{text}; not one is a page: see {site}"


def left_out(kind: str, counters: dict[str, int], more: str = "") -> list[str]:
    """What is of no use, by reason; `more` says that it is not among the rows that were read."""
    mark = f"{kind}_left_out_"
    reasons = {k.removeprefix(mark): n for k, n in counters.items() if k.startswith(mark) and n}
    said = (f"{_n(n)} {k.replace('_', ' ')}" for k, n in sorted(reasons.items(), key=lambda r: (-r[1], r[0])))
    return [f"{_n(sum(reasons.values()))}{more} left out ({', '.join(said)})"] if reasons else []


def _of_sitemaps(counters: dict[str, int]) -> str:
    """What became of the dates of sitemaps, in a line."""
    counts = {name: counters.get(name, 0) for name in _DATES}
    text = "dates: " + ", ".join(
        f"{_n(n)} {_DATES[name]}" for name, n in counts.items() if n or name == "lastmod_moved"
    )
    if counts["lastmod_first_seen"] and not any(counts[f"lastmod_{n}"] for n in ("moved", "same", "back")):
        text += "; they are noted, those that move are signals from the next night"
    if n := counters.get("sitemaps_one_lastmod", 0):
        text += f"; {_n(n)} file{' has' if n == 1 else 's have'} one date for all"
    if n := counters.get("sitemaps_index", 0):
        named, files = counters.get("sitemaps_index_children", 0), counters.get("sitemaps_files", 0)
        text += f"; {_n(n)} index{' names' if n == 1 else 'es name'} {counted(named, 'sitemap')}"
        if files and (lacking := named - (files - n)) > 0:
            are = "is" if lacking == 1 else "are"
            text += f", at least {_n(lacking)} of which {are} not among the files: give all"
    return text


_FOLDED = (
    "unchanged",
    "changed_undated",
    "changed_dated",
    "baseline",
    "failed",
    "duplicate",
    "late",
    "after_as_of",
    "no_change_evidence",
    "not_modified_without_baseline",
)
"""What an observation was to the history of its page."""
_FOLDED_SAID = {"late": "older than the last fetch of their page", "after_as_of": "later than --as_of"}


def _observations(counters: dict[str, int]) -> str:
    """What became of the rows of the crawl log, in a line."""
    read = f"{_n(counters.get('observations_accepted', 0))} read"
    words = {k: _FOLDED_SAID.get(k, k.replace("_", " ")) for k in _FOLDED if counters.get(k)}
    found = ", ".join(f"{_n(counters[k])} {text}" for k, text in words.items())
    clocks = [
        f"{_n(n)} {_NOTES[what]}"
        for what in ("repeated_times", "skipped_times")
        if (n := counters.get(f"observations_{what}", 0))
    ]
    said = [f"{read}: {found}" if found else read, *clocks, *left_out("observations", counters, " more")]
    return "; ".join(said)


def _newest(day: str | None, options: dict[str, Any]) -> str:
    """Of which day the newest row of the crawl log is, and its age where it is not of the day before."""
    if day is None:
        return ""
    age = days_old(*(date.fromisoformat(text).toordinal() for text in (day, options["as_of"][:10])))
    said = f", {counted(age, 'day')} before --as_of" if age else ""
    return f"; the newest of {day}{said}"


def _rejected(counters: dict[str, int], files: list[dict[str, Any]]) -> str:
    """How many rows were rejected and why, in a line; and what else `rejected/` shows."""
    # Damaged files stand among the reasons of rows, by the name that rejected/ has for them.
    reasons = {re.sub("_files_(.*)", r"_rejected_\1_file", k): n for k, n in counters.items()}
    rejected = {k: n for k, n in reasons.items() if "_rejected_" in k and n and not k.endswith("_empty_file")}
    text = ", ".join(f"{_n(n)} {k.replace('_rejected_', ' ')}" for k, n in sorted(rejected.items())) or "none"
    total, shown = sum(rejected.values()), sum(f["rows"] for f in files if f["path"].startswith("rejected/"))
    noted = {k: n for k, n in counters.items() if "_noted_" in k and n}
    if (few := shown - sum(noted.values())) < total:
        text += f"; rejected/ has {counted(few, 'row')} for them"
    if noted:
        named = ", ".join(f"{_n(n)} {k.replace('_noted_', ' ')}" for k, n in sorted(noted.items()))
        text += f"; rejected/ has notes, too, where no row is lost: {named}"
    return text


def summary(manifest: dict[str, Any], folder: str, seconds: float | None = None) -> str:
    """A screen of text about a night; `seconds` is how long it took, if it has just ended."""
    counters, options = manifest["counters"], manifest["options"]
    took = "" if seconds is None else f" in {seconds:.1f} s"
    lines = [f"recrawl nightly, as of {options['as_of']}: {manifest['status']}{took}"]
    if manifest["status"] != "ok":
        lines.append(f"The schedule is empty: {manifest['status_reason']}")
    lines.append("")

    def row(name: str, text: str) -> None:
        lines.append(f"  {name:<20}{text}")

    row(
        "pages",
        f"{_n(counters.get('pages_known', 0))} on {counted(counters.get('hosts_known', 0), 'host')}, "
        f"{_n(counters.get('pages_never_crawled', 0))} never crawled"
        + _never_fetched(counters)
        + said_of_pages(counters),
    )
    read = _observations(counters) + _newest(manifest.get("newest_log_day"), options)
    row("observations", "; ".join([read, *said_of_input("observations", counters, options)]))
    for kind in ("requests", "signals", "sitemaps", "pages", "hosts"):
        if f"{kind}_accepted" in counters:
            found = {f"{kind}_{what}": note for what, note in _NOTES.items()}
            said = [f"{_n(counters[k])} {_OWN_NOTES.get(k, v)}" for k, v in found.items() if counters.get(k)]
            said += _joined(counters) if kind == "requests" else []
            read = ", ".join([f"{_n(counters[f'{kind}_accepted'])} read", *said])
            said = [
                read,
                *left_out(kind, counters, " more"),
                *said_of_input(kind, counters, options),
            ]
            row(f"{kind} rows", "; ".join(said))
            if kind == "requests" and manifest.get("unknown_pages"):
                row("unknown pages", _unknown_pages(manifest["unknown_pages"], counters))
    if counters.get("sitemaps_files"):
        row("sitemaps", _of_sitemaps(counters))
    signals = manifest.get("signals")
    if signals is not None and (counters.get("signals") or signals["sources"]):
        row(
            "signals",
            # Of those that wait for the next night nobody has asked whether their page is known.
            f"{_n(counters.get('signals', 0) - counters.get('signals_after_as_of', 0))} of known pages, "
            f"{_n(counters.get('signals_counted', 0))} counted; {_sources(signals)}",
        )
    row("rejected", _rejected(counters, manifest["files"]))
    quiet = manifest.get("silence")
    if quiet and (quiet["in_no_log"] or quiet["pages_silent"]):
        row("silent", _silent(quiet))
    judged = manifest.get("judged")
    if judged and judged["nights"]:
        row("judged", _judged(judged))
        if text := said_of_forecasts(judged):
            row("forecasts", text)
    lines.append("")
    row(
        "budget",
        f"{_n(manifest['budget_per_day'])} crawls a day; allocated {_n(manifest['allocated_per_day'])}"
        + (
            f"; unspent {_n(manifest['unspent_per_day'])} ({manifest['unspent_reason']})"
            if manifest["unspent_per_day"] > 0
            else ""
        ),
    )
    search = manifest["search"]
    weight_by = weights_of(manifest)
    gain = _GAINS[weight_by].format(f"{manifest['multiplier']:.6g}")
    row(
        "multiplier",
        f"one more crawl a day would {gain} ({search['status']} after {counted(search['rounds'], 'round')})",
    )
    for name, text in said_of_plan(manifest):
        row(name, text)
    if signals is not None and signals["sources"] and signals["expected_freshness"] is not None:
        row("signals buy", _bought(signals))
    if clocks := _clocks(manifest):
        row("clocks", clocks)
    if manifest.get("discovery"):
        row("discovery", said_of_discovery(manifest))
    if said := said_of_share(manifest.get("on_request")):
        row("crawls at requests", said)
    at_limit = counters.get("hosts_at_limit", 0)
    named = ", ".join(h["host"] for h in manifest["hosts_at_limit"][:5])
    if (
        options["host_max_per_day"] is None
        and not options["host_min_gap_seconds"]
        and options["hosts"] is None
    ):
        row("hosts at limit", "no limits given: set --hosts, --host_max_per_day or --host_min_gap_seconds")
    else:
        row("hosts at limit", f"{_n(at_limit)}" + (f", tightest: {named}" if named else ""))
    new = counters.get("slots_new", 0)
    row(
        "slots",
        f"{_n(counters.get('slots_used', 0))} used{f' ({_n(new)} of new pages)' if new else ''}, "
        f"{_n(counters.get('slots_empty', 0))} empty",
    )
    lines.append("")
    rows_of: dict[str, list[int]] = {}
    for file in manifest["files"]:
        entry = rows_of.setdefault(file["path"].split("/")[0], [0, 0])
        entry[0] += 1
        entry[1] += file["rows"]
    for kind, (files, rows) in sorted(rows_of.items()):
        row(
            f"{kind}/",
            f"{counted(rows, 'row')} in {counted(files, 'file')}",
        )
    row("folder", folder)
    if manifest["warnings"]:
        lines += ["", *(f"WARNING: {text}" for text in manifest["warnings"])]
    return "\n".join(lines)
