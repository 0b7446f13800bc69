"""The manifest: what was decided, from what, in which files. Writing it is the night's commit."""

from __future__ import annotations

import contextlib
import functools
import math
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

from policies.optimum.search import SearchResult
from transforms.batches.counters import added, published
from transforms.batches.steps import Step
from transforms.batches.tally import counted
from transforms.files.attempts import Attempt
from transforms.files.replacing import MANIFEST, check_empty, finish, is_done, sweep
from transforms.files.sinks import FileInfo, write_json
from transforms.intake.log_ages import age_warnings, newest_day
from transforms.intake.rejects import damaged_sources
from transforms.kept.carrying import Carry
from transforms.kept.judging import account, drift_warnings, tracked
from transforms.kept.predictions import ShardPredictions
from transforms.kept.request_pairs import ShardRequestPairs
from transforms.kept.requested_hosts import asked_warnings, lost_warnings, unknown_pages
from transforms.kept.requests import ShardRequests
from transforms.kept.silence import SilenceSums, vain_warnings
from transforms.night.dividing import Night, Quotas, ShardTotal, divide_slots
from transforms.night.guards import (
    Guards,
    check_rejected,
    check_shrink,
    damaged_files,
    usual_day,
    warnings_of,
)
from transforms.night.input_warnings import (
    option_warnings,
    time_hint,
)
from transforms.night.learning import Learned
from transforms.night.plan_report import floors_of, plan_warnings, range_of, starved_of
from transforms.night.refreshes import discovery_of, new_page_worth
from transforms.night.scheduling import MAX_NAMED_HOSTS
from transforms.night.shard_report import ShardReport
from transforms.night.trust_report import TrustSums, flood_warnings, silent_warnings
from transforms.shards.sharding import Layout


class WriteManifest(Step):
    """Checks the guards and writes `manifest.json`. Input: one element, anything.

    Where the night was made in another folder than `output`, it takes its place there then.

    Raises
    ------
    TooManyRejectedError, HistoryShrunkError, EmptyNightError, StoppedError
        Then there is no manifest: the night is not committed, its files are left for a look.
    """

    def __init__(
        self,
        attempt: Attempt,
        version: str,
        options: dict[str, Any],
        guards: Guards,
        night: Night,
        carry: Carry,
        discovered: dict[str, Any] | None = None,
    ) -> None:
        self._request_share, self._night, self._carry = night.request_share, night, carry
        self._attempt, self._version, self._options, self._guards = attempt, version, options, guards
        self._layout, self._folder, self._discovered = night.layout, attempt.folder, discovered

    def process(
        self,
        _: Any,
        files: list[FileInfo],
        counts: list[dict[str, int]],
        reports: list[ShardReport],
        result: SearchResult,
        learned: Learned,
        totals: list[ShardTotal],
        without: SearchResult | None,
    ) -> Iterator[FileInfo]:
        listed = [f.as_dict() for f in sorted(files, key=lambda f: f.path)]
        if is_done(self._attempt, listed):
            return  # by a worker that was lost before it could say so
        counters = dict(sorted(added(counts).items())) | published(learned.sums[ShardRequests].totals())
        check_rejected(counters, self._guards, self._folder)
        damaged = damaged_sources(self._folder, files) if damaged_files(counters) else []
        check_shrink(counters, learned.rows_by_day, self._guards, damaged)
        quotas = divide_slots(totals, self._night, self._carry)
        manifest = make_manifest(counters, reports, result, learned, quotas, without)
        worth = new_page_worth(reports, self._guards.previous)
        manifest |= {
            "new_page_worth": worth,
            "discovery": discovery_of(self._discovered, manifest, worth),
        }
        yesterday = account(
            learned.sums[ShardPredictions], counters, self._guards.previous, self._guards.as_of_us
        )
        on_request = self._request_share.account(
            learned.sums[ShardRequestPairs],
            learned.rows_by_day,
            learned.weight,
            self._guards.as_of_us,
            self._options["request_half_life_days"],
        )
        manifest |= {
            "on_request": on_request,
            "judged": yesterday,
            "recalibration": tracked(
                learned.sums[ShardPredictions], self._guards.previous, self._guards.as_of_us
            ).as_json(),
            "unknown_pages": unknown_pages(counters, learned.sums[ShardRequests]),
            "warnings": warnings_of(counters, self._guards, damaged)
            + age_warnings(
                counters,
                learned.rows_by_day,
                self._guards.as_of_us,
                self._guards.previous,
                self._guards.given_again,
            )
            + option_warnings(self._options, manifest["signals"])
            + vain_warnings(manifest["silence"])
            + silent_warnings(manifest["signals"])
            + flood_warnings(manifest["signals"])
            + asked_warnings(counters, learned.weight)
            + lost_warnings(counters, self._guards.max_rejected_fraction)
            + drift_warnings(yesterday)
            + plan_warnings(manifest)
            + list(filter(None, [on_request.pop("warning")]))
            + [f"discovery: {text}" for text in (self._discovered or {}).get("warnings", [])],
            "large_hosts": large_hosts(reports, counters.get("pages_known", 0), self._layout),
            "split_hosts": self._layout.as_json(),
            "usual_log_day": usual_day(learned.rows_by_day),
            "newest_log_day": newest_day(learned.rows_by_day),
            "recrawl_version": self._version,
            "options": self._options,
            "files": listed,
        }
        check_empty(manifest["status"], manifest["status_reason"], self._guards.replaced)
        yield write_json(self._folder, MANIFEST, manifest, sealed=True, attempt=self._attempt)
        with contextlib.suppress(OSError):  # it is committed, and the next run does this again
            sweep(self._folder)
        if self._folder != self._attempt.output:
            finish(self._attempt.output, self._attempt.check)


def status_of(counters: dict[str, int], unspent: str | None) -> tuple[str, str]:
    """How the night ended, and why if there is no schedule: ok, no_input or empty_schedule.

    `unspent` says why the budget is not spent.
    """
    if not counters.get("pages_known", 0):
        rejected, later = (counters.get(n, 0) for n in ("observations_rejected", "after_as_of"))
        if later:
            return "no_input", f"all {later:,} usable observations are later than --as_of"
        if rejected:
            return "no_input", (
                f"all {rejected:,} rows of --observations were rejected; rejected/ says why"
                f"{time_hint('observations', counters)}"
            )
        damaged = sum(counters.get(f"observations_files_{what}", 0) for what in ("truncated", "unreadable"))
        if damaged:
            return (
                "no_input",
                f"no row of --observations can be read: {damaged:,} damaged files; rejected/ says why",
            )
        return "no_input", "--observations has no row: no file matches it, or the files are empty"
    if not counters.get("slots_used", 0):
        if counters.get("slots", 0):
            return "empty_schedule", "no page may use a slot: see the limits of hosts and pages"
        if unspent:
            return "empty_schedule", f"less than one crawl may be made in the horizon: {unspent}"
        return "empty_schedule", "the horizon's budget is less than one crawl; a part of one is carried over"
    return "ok", ""


def make_manifest(
    counters: dict[str, int],
    reports: list[ShardReport],
    result: SearchResult,
    learned: Learned,
    quotas: Quotas,
    without: SearchResult | None = None,
) -> dict[str, Any]:
    """What the manifest says of the night; `without` is the search without signals."""
    reports = sorted(reports, key=lambda r: r.shard)
    weight = math.fsum(r.weight for r in reports)

    crawled = math.fsum(r.crawled_weight for r in reports)

    def share(values: list[float], of: float = weight) -> float | None:
        return math.fsum(values) / of if of > 0 else None

    hosts = sorted((h for r in reports for h in r.hosts_at_limit), key=lambda h: (-h[0], h[1]))
    change = learned.change
    n_pages = counters.get("pages_known", 0)
    quiet = functools.reduce(SilenceSums.merge, (r.silence for r in reports), SilenceSums())
    unspent = result.unspent_reason
    if unspent and quiet.silent:
        unspent += f"; waiting for the next try after others in vain: {counted(quiet.silent, 'page')}"
    if unspent and not n_pages:  # of which the search has nothing to say
        unspent = "no page is known"
    status, reason = status_of(counters, unspent)
    return {
        "status": status,
        "status_reason": reason,
        "multiplier": result.multiplier,
        "budget_per_day": result.budget_per_day,
        "allocated_per_day": result.allocated_per_day,
        "unspent_per_day": result.unspent_per_day,
        "unspent_reason": unspent,
        "slots": quotas.total,
        "expected_freshness": share([r.fresh_weight for r in reports]),
        "expected_freshness_crawled": share([r.crawled_fresh_weight for r in reports], crawled),
        "expected_freshness_by_hours": share([r.fresh_weight_by_hours for r in reports]),
        "expected_freshness_uniform": share([r.uniform_fresh_weight for r in reports]),
        "freshness_range": range_of(reports, weight, change, counters),
        "floors": floors_of(reports, weight, result.objective),
        "starved": starved_of(reports, weight, counters),
        "weight_by": learned.weight,
        # Each page weighs 1, as where no importance is given.
        "weights_alike": learned.weight in ("importance", "equal") and math.isclose(weight, n_pages),
        "search": asdict(result) | {"status": result.status.value, "bracket": [result.low, result.high]},
        "prior": {
            "change_rate_shape": change.shape,
            "change_rate_mean_per_day": change.mean_per_day,
            "group_strength": change.group_strength,
            "clicks": None if learned.clicks is None else asdict(learned.clicks),
            "impressions": None if learned.impressions is None else asdict(learned.impressions),
        },
        "signals": None if without is None else signals_of(reports, without),
        "silence": quiet.account(),
        "hours_of_all": learned.hours_of_all.as_json(),
        "hosts_at_limit": [{"host": name, "multiplier": value} for value, name in hosts[:MAX_NAMED_HOSTS]],
        "counters": counters,
        "carry": {
            "shards": list(quotas.carry.shards),
            "total": quotas.carry.total,
            "giants": {f"{h:016x}": list(owed) for h, owed in sorted(quotas.carry.giants.items())},
        },
    }


def signals_of(reports: list[ShardReport], without: SearchResult) -> dict[str, Any]:
    """What signals bought, and how far each source is trusted.

    The value of crawls is concave: to be as fresh without signals takes at least the gain over the value of
    the next crawl there.
    """
    weight = math.fsum(r.weight for r in reports)
    fresh = math.fsum(r.fresh_weight - r.fresh_weight_by_hours for r in reports)
    plain = math.fsum(r.fresh_weight_without or 0.0 for r in reports)
    price = without.multiplier
    trust = functools.reduce(TrustSums.merge, (r.trust for r in reports), TrustSums())
    return {
        "expected_freshness": fresh / weight if weight > 0 else None,
        "expected_freshness_without": plain / weight if weight > 0 else None,
        "crawls_saved_per_day_at_least": max(0.0, fresh - plain) / price if price > 0 else None,
        **trust.account(),
    }


def large_hosts(reports: list[ShardReport], pages: int, layout: Layout) -> list[dict[str, Any]]:
    """Hosts that are split or fill more than a quarter of a mean shard: they decide what is split next."""
    sizes: Counter[tuple[int, str]] = Counter()
    for report in reports:
        for host_hash, host, n_pages in report.large_hosts:
            sizes[host_hash, host] += n_pages
    least = pages / (4 * layout.num_shards)
    chosen = sorted((-n, host, h) for (h, host), n in sizes.items() if n > least or h in layout.parts)
    return [{"host": host, "host_hash": f"{h:016x}", "pages": -n} for n, host, h in chosen]
