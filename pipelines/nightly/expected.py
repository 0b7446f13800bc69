"""What the summary of a night says of its plan: what freshness it brings, at what price, and links."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from policies.discovery.names import LEAST_PRICE
from transforms.batches.tally import counted
from transforms.finished.folders import weights_of


def said_of_plan(manifest: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Rows of the summary: a name and a text each."""
    weight_by = weights_of(manifest)
    if manifest["expected_freshness"] is not None:
        guess = manifest["counters"].get("pages_seen_twice") == 0
        found = manifest.get("freshness_range")
        between = ""
        if found:
            besides = beside_its_range(manifest["expected_freshness"], found)
            between = f" ({found['level']:.0%} range {found['low']:.4f} to {found['high']:.4f}{besides})"
        yield (
            "expected freshness",
            f"{manifest['expected_freshness']:.4f} over all pages"
            f"{'' if weight_by == 'equal' else f', weighted by {weight_by}'}{between}; "
            f"{manifest['expected_freshness_uniform']:.4f} if all pages had one rate, as far as hosts allow"
            f"{'; a guess: no page was seen twice' if guess else ''}",
        )
    if manifest.get("starved", {}).get("pages"):
        yield "starved", f"{starved_said(manifest)}: recrawl explain says why"
    if (floors := manifest.get("floors", {})).get("pages"):
        yield "floors", floors_said(floors)


def beside_its_range(fresh: float, found: dict[str, float]) -> str:
    """What to say of freshness that its range does not hold."""
    if found["low"] <= fresh <= found["high"]:
        return ""
    end = "low" if fresh < found["low"] else "high"
    return f"; the figure at the estimated rates is likely too {end}"


_BOUND = {
    "starved": "worth less than the last crawl of the budget",
    "host": "at the limit of their host",
    "cap": "capped at 0",
    "volatile": "volatile",
    "silent": "silent",
    "new": "new, which get a first crawl at most",
}


def starved_said(manifest: dict[str, Any]) -> str:
    """How many pages that are asked for get no crawl, and where not all for one price what bounds them."""
    starved, weight_by = manifest["starved"], weights_of(manifest)
    share = starved["weight_share"] or 0.0
    asked = f", with {share:.2%} of {weight_by}" if weight_by != "equal" else ""
    by_limit = starved.get("by_limit", {})  # older nights have none
    parts = [
        f"{n:,} {_BOUND.get(name, name)}" for name, n in by_limit.items() if by_limit.keys() - {"starved"}
    ]
    count = starved["pages"]
    text = f"{counted(count, 'page')} {'gets' if count == 1 else 'get'} no crawl{asked}"
    return f"{text} ({', '.join(parts)})" if parts else text


def floors_said(floors: dict[str, Any]) -> str:
    """What floors of crawl rates cost, in a line."""
    pages, lost = floors["pages"], floors["freshness_at_most"]
    text = (
        f"{counted(pages, 'page')} at {'its floor takes' if pages == 1 else 'their floors take'} "
        f"{floors['crawls_per_day']:,.1f} crawls a day more than pays"
    )
    if lost is None:
        return text
    higher = f"at most {lost:.4f}" if lost >= 5e-5 else "hardly"
    return f"{text}; without, expected freshness would be {higher} higher"


def said_of_discovery(manifest: dict[str, Any]) -> str:
    """What discovery took of a night's budget and why, in a line."""
    found, used = manifest["discovery"], manifest["counters"].get("slots_discover", 0)
    counters = found["counters"]
    text = (
        f"{counted(used, 'crawl')} ({found['share_of_slots']:.1%}) refresh sources, which bring about "
        f"{found['new_links_per_day']:,.0f} new links a day; "
        f"{counted(counters.get('targets_new', 0), 'new page')}"
    )
    if counters.get("refreshes", 0) and found["price"] <= LEAST_PRICE:
        text += ". Sources are refreshed as often as their hosts' limits allow"
    elif (worth := found["worth_of_last_refresh"]) is not None and found["price"] > LEAST_PRICE:
        text += (
            f". The last refresh finds {found['price']:.3g} links more, each worth "
            f"{found['new_page_worth']:.3g}: {worth:.3g}; the last crawl of a page is worth "
            f"{found['worth_of_last_crawl']:.3g}"
        )
    return f"{text}. {found['options']['why']}".rstrip(". ")
