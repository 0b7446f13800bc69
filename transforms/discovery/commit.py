"""The manifest of the discovery job; writing it is the commit."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from policies.discovery.lifetimes import CLASS_HOURS
from transforms.batches.steps import Step
from transforms.batches.tally import counted
from transforms.discovery.learning import Learned, Part
from transforms.discovery.planning import Price, total_worth
from transforms.discovery.previous import BANDIT, JOB
from transforms.files.attempts import Attempt
from transforms.files.replacing import MANIFEST, finish, is_done, sweep
from transforms.files.sinks import FileInfo, write_json
from transforms.night.guards import check_share

KINDS = {"links_seen": "--links", "sources": "--sources"}
"""Inputs, and their options."""


@dataclass(frozen=True)
class Said:
    """What the manifest says beside what was found.

    Attributes
    ----------
    version : str
    options : dict
    max_rejected_fraction : float
    carry : float
        The part of a refresh that the budget has left.
    """

    version: str
    options: dict[str, Any]
    max_rejected_fraction: float
    carry: float


class WriteManifest(Step):
    """Checks the share of rejected rows and writes `manifest.json`. Input: one element, anything.

    Raises
    ------
    TooManyRejectedError, StoppedError
    """

    def __init__(self, attempt: Attempt, said: Said) -> None:
        self._attempt, self._said = attempt, said

    def process(
        self,
        _: Any,
        files: Sequence[FileInfo],
        counters: dict[str, int],
        worth: Sequence[Part],
        price: Price,
        learned: Learned,
    ) -> Iterator[FileInfo]:
        attempt, said = self._attempt, self._said
        listed = [f.as_dict() for f in sorted(files, key=lambda f: f.path)]
        if is_done(attempt, listed):
            return
        rejected = counters.get("links_seen_rejected", 0)
        rows = rejected + counters.get("links_seen_accepted", 0)
        check_share(rejected, rows, said.max_rejected_fraction, counters, attempt.folder)
        status, reason = _status(counters, said)
        regression = learned.regression
        manifest = {
            "job": JOB,
            "status": status,
            "status_reason": reason,
            "price": price.bracket.high if regression is None else regression.price,
            "refreshes": price.refreshes,
            "new_links_per_day": total_worth(worth),
            "speed_by_hour": learned.common.speed,
            "lifetimes": dict(
                zip(map(str, CLASS_HOURS.tolist()), learned.common.share.tolist(), strict=True)
            ),
            "prior": asdict(learned.prior) | {"early_per_root": learned.common.early},
            **({} if regression is None else {BANDIT: asdict(regression.bandit)}),
            "counters": counters,
            "warnings": list(_warnings(counters, "sources" in said.options["inputs"])),
            "carry": said.carry,
            "recrawl_version": said.version,
            "options": said.options,
            "files": listed,
        }
        yield write_json(attempt.folder, MANIFEST, manifest, sealed=True, attempt=attempt)
        with contextlib.suppress(OSError):
            sweep(attempt.folder)
        if attempt.folder != attempt.output:
            finish(attempt.output, attempt.check)


def _status(counters: dict[str, int], said: Said) -> tuple[str, str]:
    if not counters.get("sources_known", 0):
        accepted, later = (counters.get(f"links_{n}", 0) for n in ("seen_accepted", "after_as_of"))
        if "sources" in said.options["inputs"]:
            why = "--sources has no usable row"
        elif later and later == accepted:
            why = f"all {counted(later, 'usable row')} of --links are later than --as_of"
        elif not accepted and (bad := counters.get("links_seen_rejected", 0)):
            why = f"no row of --links could be used, {bad:,} rejected: rejected/ says why"
        elif not accepted and counters.get("links_seen_files", 0):
            why = "--links has no row, and no source is listed"
        else:
            why = "no page of --links has brought a new link, and none is listed"
        return "no_input", f"no source is known: {why}"
    if not counters.get("refreshes", 0):
        kept = f" ({said.carry:.3g} is carried over)" if said.carry else ""
        why = f"no refresh: the budget of the horizon is below one{kept}, or limits of hosts are 0"
        return "empty_schedule", why
    return "ok", ""


def _warnings(counters: dict[str, int], listed: bool) -> Iterator[str]:
    for kind, option in KINDS.items():
        if damaged := sum(counters.get(f"{kind}_files_{what}", 0) for what in ("truncated", "unreadable")):
            yield f"{counted(damaged, 'file')} of {option} damaged, and read up to there: see rejected/"
    shown, off = counters.get("links_shown", 0), counters.get("links_off_site", 0)
    if off > shown:
        yield f"{off:,} links lead to other sites and {shown:,} do not; --off_site takes them as targets, too"
    if (late := counters.get("visits_late", 0)) > counters.get("visits", 0):
        yield f"{counted(late, 'visit')} are not later than the last one that is known: given twice?"
    failed, visits = counters.get("visits_failed", 0), counters.get("visits", 0)
    others = counters.get("visits_of_no_source", 0)
    if listed and others and not visits:
        found = counted(others, "visit")
        yield f"no page of --sources was visited, {found} are of other pages: compare the URLs"
    if bad := counters.get("sources_rejected", 0):
        yield f"{counted(bad, 'row')} of --sources rejected: see rejected/"
    if visits and failed > visits / 2:
        yield f"{failed:,} of {counted(visits, 'visit')} failed: look whether the crawler is blocked"
