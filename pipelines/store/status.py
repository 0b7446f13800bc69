"""`recrawl night --status`: the nights of a store, and which is in force."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence

from pipelines.command.errors import OptionsError
from pipelines.command.exit_codes import EXIT_EMPTY, EXIT_OK, EXIT_RUN_OUT
from pipelines.store.clock import now_us
from pipelines.store.in_force import document, said
from pipelines.store.night_options import asked, split
from pipelines.store.store import Night, Store, ends_at, latest_of


def status(argv: Sequence[str], as_json: bool = False, say: Callable[[str], None] = print) -> int:
    """Print the nights of a store. Needs no lock and changes nothing.

    Raises
    ------
    OptionsError, StoreError
    """
    problems: list[str] = []
    store = asked(split(argv)[0], problems).store
    if problems:
        raise OptionsError(problems)
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
    return EXIT_RUN_OUT if ends_at(last, manifest) < now_us() else EXIT_OK


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
    say(f"In force: {said(nights[-1])}" if nights else f"{store.root}: no committed night")
    for warning in warnings:
        say(f"WARNING: {warning}")
