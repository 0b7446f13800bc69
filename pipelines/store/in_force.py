"""The schedule in force: in words, and as a document."""

from __future__ import annotations

from typing import Any

from pipelines.command.instants import format_instant
from pipelines.store import clock
from pipelines.store.store import Night, Store, StoreError, ends_at, latest_of


def said(night: Night) -> str:
    """The schedule in force in words: of when, how old, and whether its time has run out."""
    clock_us = clock.now_us()
    try:
        until_us = ends_at(night, night.manifest())
    except (StoreError, OSError):  # a failure must not hide the one that it is told beside
        return f"the schedule of {night.as_of} in {night.folder}, whose manifest cannot be read"
    if until_us >= clock_us:
        rest = f"it covers the time until {format_instant(until_us)}"
    else:
        rest = f"it has RUN OUT {_span(clock_us - until_us)} ago, at {format_instant(until_us)}"
    age = _span(max(clock_us - night.as_of_us, 0))
    return f"the schedule of {night.as_of}, {age} old, in {night.folder}: {rest}"


def _span(us: int) -> str:
    hours = us / 3_600_000_000
    return f"{hours:.1f} hours" if hours < 48 else f"{hours / 24:.1f} days"


def document(one: Night) -> dict[str, Any]:
    """What programs are told of a committed night.

    Raises
    ------
    StoreError
    """
    manifest = one.manifest()
    counters = manifest.get("counters", {})
    return latest_of(one, manifest) | {
        "folder": one.folder,
        "schedule": f"{one.folder}/schedule",
        "run_out": ends_at(one, manifest) < clock.now_us(),
        "pages": counters.get("pages_known", 0),
        "scheduled_crawls": counters.get("slots_used", 0),
        "budget_per_day": manifest.get("budget_per_day"),
        "expected_freshness": manifest.get("expected_freshness"),
        "warnings": len(manifest.get("warnings", [])),
    }


def in_force(root: str | None) -> dict[str, Any] | None:
    """The document of the schedule in force; None where there is none, or it cannot be read."""
    try:
        return document(Store(root, clock.now).nights()[-1]) if root else None
    except (IndexError, OSError, ValueError, StoreError):
        return None
