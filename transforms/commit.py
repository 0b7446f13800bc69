"""The manifest: what was decided, from what, in which files. Writing it is the night's commit."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

import apache_beam as beam

from policies.errors import RecrawlError
from policies.search import SearchResult
from transforms.learning import Learned
from transforms.scheduling import MAX_NAMED_HOSTS, Quotas, ShardReport
from transforms.sinks import FileInfo, write_json

KINDS = ("observations", "requests", "signals", "pages", "hosts")


class TooManyRejectedError(RecrawlError):
    """More input rows were rejected than the team allows."""


class HistoryShrunkError(RecrawlError):
    """Known pages or input rows are gone since the previous night."""


@dataclass(frozen=True)
class Guards:
    """When not to commit.

    Attributes
    ----------
    max_rejected_fraction : float
    allow_shrink : bool
    previous : dict
        The previous manifest's counters; empty on a first night.
    """

    max_rejected_fraction: float
    allow_shrink: bool
    previous: dict[str, int]


MAX_SHRINK = 0.10


def input_rows(counters: dict[str, int]) -> int:
    """Rows of all inputs, accepted and rejected."""
    return sum(counters.get(f"{k}_{what}", 0) for k in KINDS for what in ("accepted", "rejected"))


def check_rejected(counters: dict[str, int], guards: Guards) -> None:
    """Raise `TooManyRejectedError` if too large a share of the input was rejected."""
    rows, rejected = input_rows(counters), sum(counters.get(f"{k}_rejected", 0) for k in KINDS)
    if rejected > guards.max_rejected_fraction * rows:
        worst = sorted(
            ((n, k) for k, n in counters.items() if "_rejected_" in k), key=lambda item: (-item[0], item[1])
        )
        reasons = ", ".join(f"{k.replace('_rejected_', ' ')}: {n}" for n, k in worst[:5])
        raise TooManyRejectedError(
            f"{rejected} of {rows} input rows were rejected ({rejected / rows:.2%}), more than "
            f"--max_rejected_fraction={guards.max_rejected_fraction:g} allows ({reasons}). They are in "
            "rejected/; mend the input or raise the limit"
        )


def check_shrink(counters: dict[str, int], guards: Guards) -> None:
    """Raise `HistoryShrunkError` if more than a tenth of pages or input rows is gone."""
    if guards.allow_shrink or not guards.previous:
        return
    for what, now, before in (
        ("known pages", counters.get("pages_known", 0), guards.previous.get("pages_known", 0)),
        ("input rows", input_rows(counters), input_rows(guards.previous)),
    ):
        if now < (1 - MAX_SHRINK) * before:
            raise HistoryShrunkError(
                f"history_shrunk: {now} {what} tonight, {before} last night: {1 - now / before:.0%} less, "
                f"more than {MAX_SHRINK:.0%}. Look for missing input files; if this is meant, give "
                "--allow_shrink"
            )


class WriteManifest(beam.DoFn):
    """Checks the guards and writes `manifest.json`. Input: one element, anything.

    Raises
    ------
    TooManyRejectedError, HistoryShrunkError
        Then there is no manifest: the night is not committed, its files are left for a look.
    """

    def __init__(self, folder: str, version: str, options: dict[str, Any], guards: Guards) -> None:
        self._folder, self._version, self._options, self._guards = folder, version, options, guards

    def process(
        self,
        _: Any,
        files: list[FileInfo],
        counters: dict[str, int],
        reports: list[ShardReport],
        result: SearchResult,
        learned: Learned,
        quotas: Quotas,
    ) -> Iterator[FileInfo]:
        if counters.get("pages_known", 0):  # else there is nothing to schedule, which has a status of its own
            check_rejected(counters, self._guards)
        check_shrink(counters, self._guards)
        manifest = make_manifest(counters, reports, result, learned, quotas)
        manifest |= {
            "recrawl_version": self._version,
            "options": self._options,
            "files": [f.as_dict() for f in sorted(files, key=lambda f: f.path)],
        }
        yield write_json(self._folder, "manifest.json", manifest)


def status_of(counters: dict[str, int], result: SearchResult) -> tuple[str, str]:
    """How the night ended, and why if there is no schedule: ok, no_input or empty_schedule."""
    if not counters.get("pages_known", 0):
        rejected, later = (counters.get(n, 0) for n in ("observations_rejected", "after_as_of"))
        if later:
            return "no_input", f"all {later} usable observations are later than --as_of"
        if rejected:
            return "no_input", f"all {rejected} rows of --observations were rejected; rejected/ says why"
        damaged = sum(counters.get(f"observations_files_{what}", 0) for what in ("truncated", "unreadable"))
        if damaged:
            return (
                "no_input",
                f"no row of --observations can be read: {damaged} damaged files; rejected/ says why",
            )
        return "no_input", "--observations has no row: no file matches it, or the files are empty"
    if not counters.get("slots_used", 0):
        if counters.get("slots", 0):
            return "empty_schedule", "no page may use a slot: see the limits of hosts and pages"
        if result.unspent_reason:
            return (
                "empty_schedule",
                f"less than one crawl may be made in the horizon: {result.unspent_reason}",
            )
        return "empty_schedule", "the horizon's budget is less than one crawl; it is carried over"
    return "ok", ""


def make_manifest(
    counters: dict[str, int],
    reports: list[ShardReport],
    result: SearchResult,
    learned: Learned,
    quotas: Quotas,
) -> dict[str, Any]:
    """What the manifest says of the night."""
    reports = sorted(reports, key=lambda r: r.shard)
    weight = math.fsum(r.weight for r in reports)

    def share(values: list[float]) -> float | None:
        return math.fsum(values) / weight if weight > 0 else None

    hosts = sorted((h for r in reports for h in r.hosts_at_limit), key=lambda h: (-h[0], h[1]))
    change = learned.change
    status, reason = status_of(counters, result)
    return {
        "status": status,
        "status_reason": reason,
        "multiplier": result.multiplier,
        "budget_per_day": result.budget_per_day,
        "allocated_per_day": result.allocated_per_day,
        "unspent_per_day": result.unspent_per_day,
        "unspent_reason": result.unspent_reason,
        "slots": quotas.total,
        "expected_freshness": share([r.fresh_weight for r in reports]),
        "expected_freshness_uniform": share([r.uniform_fresh_weight for r in reports]),
        "weight_by": learned.weight,
        "search": asdict(result) | {"status": result.status.value},
        "prior": {
            "change_rate_shape": change.shape,
            "change_rate_mean_per_day": change.mean_per_day,
            "group_strength": change.group_strength,
            "clicks": None if learned.clicks is None else asdict(learned.clicks),
            "impressions": None if learned.impressions is None else asdict(learned.impressions),
        },
        "hosts_at_limit": [{"host": name, "multiplier": value} for value, name in hosts[:MAX_NAMED_HOSTS]],
        "counters": counters,
        "carry": {"shards": list(quotas.carry.shards), "total": quotas.carry.total},
    }
