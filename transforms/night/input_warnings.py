"""Inputs and options that are of no use, as their counters tell: what a person should look at."""

from __future__ import annotations

from typing import Any

from transforms.batches.tally import counted
from transforms.batches.times import READ_AS

MAX_NAMED_REASONS = 3

LEAST_STRANGERS = 20
"""URLs of signals or sitemaps of which not one is known: fewer may be of new pages."""


def useless_warning(kind: str, counters: dict[str, int]) -> str:
    """An input that is small beside the others may be useless as a whole without stopping the night."""
    rejected, accepted = counters.get(f"{kind}_rejected", 0), counters.get(f"{kind}_accepted", 0)
    start = f"{kind}_rejected_"
    reasons = sorted((-n, k.removeprefix(start)) for k, n in counters.items() if k.startswith(start) and n)
    said = ", ".join(f"{name}: {-n:,}" for n, name in reasons[:MAX_NAMED_REASONS])
    return (
        f"{'all' if not accepted else f'{rejected:,} of'} {rejected + accepted:,} rows of --{kind} were "
        f"rejected ({said}): {'nothing' if not accepted else 'less than half'} of it counts tonight; "
        f"rejected/ has them, mend the input{time_hint(kind, counters)}"
    )


def time_hint(kind: str, counters: dict[str, int]) -> str:
    """What times are read as, where rows of an input were rejected for theirs; else empty."""
    return f"; times are read as {READ_AS}" if counters.get(f"{kind}_rejected_bad_timestamp") else ""


def option_warnings(options: dict[str, Any], signals: dict[str, Any] | None) -> list[str]:
    """Options that do nothing without others; `signals` is of the manifest."""
    found = []
    if options.get("sitemap_pages") and not options.get("sitemaps"):
        found.append("--sitemap_pages does nothing without --sitemaps: give those whose URLs are pages")
    given = options.get("signals") or options.get("sitemaps")
    if options.get("objective") == "signals" and not given and not (signals or {}).get("sources"):
        found.append(
            "--objective=signals without any signals: neither --signals nor --sitemaps is given and the "
            "state has none, so pages are crawled as with --objective=periodic"
        )
    return found


def sitemap_warnings(counters: dict[str, int]) -> list[str]:
    """Sitemaps of which nothing can be used: error pages, and indexes without the files that they name."""
    found = []
    reasons = ("rejected_not_a_sitemap", "rejected_unsafe_xml", "files_empty")
    unusable = sum(counters.get(f"sitemaps_{reason}", 0) for reason in reasons)
    files = counters.get("sitemaps_files", 0)
    if unusable > files / 2:
        found.append(
            f"{unusable:,} of {files:,} files of --sitemaps are no sitemaps, such as error pages: their "
            "hosts have no signals from sitemaps tonight"
        )
    indexes = counters.get("sitemaps_index", 0)
    if indexes and not counters.get("sitemaps_accepted", 0):
        children = counters.get("sitemaps_index_children", 0)
        found.append(
            f"--sitemaps has no page: {indexes:,} index{'es name' if indexes > 1 else ' names'} "
            f"{counted(children, 'sitemap')}: give those"
        )
    return found


def stranger_warnings(counters: dict[str, int]) -> list[str]:
    """Requests, signals or sitemaps without a known page: their URLs are most likely written otherwise."""
    unknown = {
        "requests": counters.get("requests_unmatched", 0),
        "signals": counters.get("signals_unmatched", 0),
        "sitemaps": counters.get("sitemap_unknown_pages", 0),
    }
    # Of signals that wait for the next night nobody has asked whether their page is known.
    found = {
        "requests": counters.get("requests_accepted", 0)
        - counters.get("requests_after_as_of", 0)
        - unknown["requests"],
        "signals": counters.get("signals_accepted", 0)
        - counters.get("signals_after_as_of", 0)
        - unknown["signals"],
        "sitemaps": counters.get("sitemap_urls", 0) - unknown["sitemaps"],
    }
    return [
        f"none of {n:,} URLs of --{kind} is that of a known page: http and https are not the same, nor are "
        "hosts with and without www" + ("; --sitemap_pages makes them pages" if kind == "sitemaps" else "")
        for kind, n in unknown.items()
        if n >= LEAST_STRANGERS and not found[kind]
    ]
