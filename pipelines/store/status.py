"""`recrawl night --status`: the nights of a store, and which is in force."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

from pipelines.command.exit_codes import EXIT_EMPTY, EXIT_OK, EXIT_RUN_OUT
from pipelines.store import night
from pipelines.store.store import Night, Store, StoreError, ends_at, latest_of


def status(argv: Sequence[str], as_json: bool = False, say: Callable[[str], None] = print) -> int:
    """Print the nights of a store. Needs no lock and changes nothing.

    Raises
    ------
    OptionsError, StoreError
    """
    store = night.parse(argv).store
    nights = store.nights()
    last = nights[-1] if nights else None
    manifest = last.manifest() if last else {}
    warnings = store.damage()
    if last:
        warnings += [*manifest.get("warnings", []), *last.noted().get("warnings", [])]
        if store.latest() != latest_of(last, manifest):
            warnings.append("latest.json is of another night; the next run mends it")
    if as_json:
        found = {
            "store": store.root,
            "nights": [document(one) for one in nights],
            "in_force": document(last) if last else None,
            "warnings": warnings,
        }
        say(json.dumps(found, indent=1, ensure_ascii=False))
    else:
        _tell(store, nights, warnings, say)
    if last is None:
        return EXIT_EMPTY
    return EXIT_RUN_OUT if ends_at(last, manifest) < night.now_us() else EXIT_OK


def _tell(store: Store, nights: Sequence[Night], warnings: Sequence[str], say: Callable[[str], None]) -> None:
    if nights:
        say(f"{'night':<18}{'status':<16}{'pages':>14}{'slots':>14}{'freshness':>11}  warnings")
    for one in nights:
        manifest = one.manifest()
        counters, fresh = manifest.get("counters", {}), manifest.get("expected_freshness")
        say(
            f"{one.name:<18}{manifest.get('status', '?'):<16}{counters.get('pages_known', 0):>14,}"
            f"{counters.get('slots_used', 0):>14,}{'' if fresh is None else format(fresh, '.4f'):>11}"
            f"  {len(manifest.get('warnings', []))}"
        )
    say(f"In force: {night.in_force(nights[-1])}" if nights else f"{store.root}: no committed night")
    for warning in warnings:
        say(f"WARNING: {warning}")


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
        "run_out": ends_at(one, manifest) < night.now_us(),
        "pages": counters.get("pages_known", 0),
        "scheduled_crawls": counters.get("slots_used", 0),
        "budget_per_day": manifest.get("budget_per_day"),
        "expected_freshness": manifest.get("expected_freshness"),
        "warnings": len(manifest.get("warnings", [])),
    }


def in_force(root: str | None) -> dict[str, Any] | None:
    """The document of the schedule in force; None where there is none, or it cannot be read."""
    try:
        return document(Store(root, night.now).nights()[-1]) if root else None
    except (IndexError, OSError, ValueError, StoreError):
        return None
