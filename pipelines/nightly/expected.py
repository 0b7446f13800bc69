"""What the summary of a night says of the freshness that its plan should bring, and at what price."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from transforms.batches.tally import counted


def weights_of(manifest: dict[str, Any]) -> str:
    """What pages are weighted with; equal where no page has an importance of its own."""
    weight_by = str(manifest["weight_by"])
    alike = manifest.get("weights_alike") or not manifest["options"].get("pages")
    return "equal" if weight_by == "importance" and alike else weight_by


def said_of_plan(manifest: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Rows of the summary: a name and a text each."""
    weight_by = weights_of(manifest)
    if manifest["expected_freshness"] is not None:
        guess = manifest["counters"].get("pages_seen_twice") == 0
        found = manifest.get("freshness_range")
        between = ""
        if found:
            inside = found["low"] <= manifest["expected_freshness"] <= found["high"]
            besides = "" if inside else ", which counts what rates may be besides"
            between = f" ({found['level']:.0%} range {found['low']:.4f} to {found['high']:.4f}{besides})"
        yield (
            "expected freshness",
            f"{manifest['expected_freshness']:.4f} over all pages"
            f"{'' if weight_by == 'equal' else f', weighted by {weight_by}'}{between}; "
            f"{manifest['expected_freshness_uniform']:.4f} if all pages had one rate, as far as hosts allow"
            f"{'; a guess: no page was seen twice' if guess else ''}",
        )
    if pages := manifest.get("starved", {}).get("pages"):
        share = manifest["starved"]["weight_share"] or 0.0
        asked = f", with {share:.2%} of {weight_by}" if weight_by != "equal" else ""
        yield "starved", f"{counted(pages, 'page')} get no crawl{asked}: recrawl explain says why"
    if (floors := manifest.get("floors", {})).get("pages"):
        yield "floors", floors_said(floors)


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
