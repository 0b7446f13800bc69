"""What a person sees when the discovery job is done."""

from __future__ import annotations

from typing import Any

from policies.discovery.names import LEAST_PRICE


def summary(manifest: dict[str, Any], output: str, seconds: float) -> str:
    """The numbers of a night, as lines."""
    counters = manifest["counters"]

    def n(name: str) -> int:
        return int(counters.get(name, 0))

    worth = f"each worth {manifest['price']:.3g} new links or more"
    if manifest["price"] <= LEAST_PRICE:
        worth = "as many as limits allow"
    rejected = f", {n('links_seen_rejected'):,} rejected" if n("links_seen_rejected") else ""
    rejected += f", {n('links_after_as_of'):,} later than --as_of" if n("links_after_as_of") else ""
    lines = [
        f"links      {n('links_seen_accepted'):,} rows{rejected}; {n('links_shown'):,} links, "
        f"{n('links_off_site'):,} off the site",
        f"visits     {n('visits'):,} of sources, {n('visits_failed'):,} failed, {n('visits_late'):,} known "
        f"before; {n('visits_of_no_source'):,} of pages that are none",
        f"targets    {n('targets_new'):,} new, {n('targets_known'):,} known",
        f"sources    {n('sources_known'):,}, {n('sources_never_seen'):,} never seen, "
        f"{n('sources_failing'):,} do not answer, {n('sources_forgotten'):,} forgotten; "
        f"about {manifest['new_links_per_day']:,.0f} new links a day",
        f"refreshes  {n('refreshes'):,} of {n('sources_refreshed'):,} sources, {worth}; "
        f"{n('hosts_at_limit'):,} hosts at their limit",
        f"wrote      {output} in {seconds:.1f} s",
    ]
    if manifest["status"] != "ok":
        lines.append(f"{manifest['status']}: {manifest['status_reason']}")
    lines += [f"WARNING: {text}" for text in manifest["warnings"]]
    return "\n".join(lines)
