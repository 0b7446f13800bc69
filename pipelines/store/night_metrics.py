"""Metrics of one night in Prometheus' text format, `metrics.prom` beside its manifest."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from pipelines.webpage.trends import rejected_share

Manifest = Mapping[str, Any]
Samples = Iterator[tuple[dict[str, str], float | None]]


def _of(*path: str) -> Callable[[Manifest], Samples]:
    """The number at a path of the manifest; none where there is none."""

    def samples(manifest: Manifest) -> Samples:
        value: Any = manifest
        for name in path:
            value = value.get(name) if isinstance(value, Mapping) else None
        yield {}, None if value is None else float(value)

    return samples


def _one(value: Callable[[Manifest], float | None]) -> Callable[[Manifest], Samples]:
    return lambda manifest: iter([({}, value(manifest))])


def _by(label: str, begin: str, end: str) -> Callable[[Manifest], Samples]:
    """Counters whose names have a part in the middle that is the label."""

    def samples(manifest: Manifest) -> Samples:
        for name, n in sorted(manifest["counters"].items()):
            middle = name[len(begin) : len(name) - len(end)]
            if name == f"{begin}{middle}{end}" and middle:
                yield {label: middle}, float(n)

    return samples


def _drift(manifest: Manifest) -> float | None:
    judged = manifest.get("judged") or {}
    return float(bool(judged["drift"]["night"] or judged["drift"]["week"])) if judged.get("crawls") else None


_NIGHT: dict[str, tuple[str, Callable[[Manifest], Samples]]] = {
    "as_of_timestamp_seconds": (
        "Instant of the night.",
        _one(lambda m: m["options"]["as_of_us"] / 1e6),
    ),
    "schedule_end_timestamp_seconds": (
        "Instant at which its schedule ends.",
        _one(lambda m: m["options"]["as_of_us"] / 1e6 + float(m["options"].get("horizon_hours", 24)) * 3600),
    ),
    "ok": ("1 where the night has a schedule, else 0.", _one(lambda m: float(m["status"] == "ok"))),
    "warnings": ("Warnings of the night.", _one(lambda m: float(len(m.get("warnings", []))))),
    "pages": ("Known pages.", _of("counters", "pages_known")),
    "hosts": ("Known hosts.", _of("counters", "hosts_known")),
    "scheduled_crawls": ("Crawls that the night has scheduled.", _of("counters", "slots_used")),
    "budget_crawls_per_day": ("Budget.", _of("budget_per_day")),
    "unspent_crawls_per_day": ("Part of the budget that no page can use.", _of("unspent_per_day")),
    "expected_freshness_ratio": (
        "Share of requests that are expected to meet a fresh copy.",
        _of("expected_freshness"),
    ),
    "expected_freshness_uniform_ratio": (
        "The same if all pages had the same crawl rate.",
        _of("expected_freshness_uniform"),
    ),
    "expected_freshness_low_ratio": (
        "Lower end of its 90 % range; none where it is a guess.",
        _of("freshness_range", "low"),
    ),
    "expected_freshness_high_ratio": ("Upper end of that range.", _of("freshness_range", "high")),
    "floors_crawls_per_day": (
        "Crawls that floors of pages take beyond what pays.",
        _of("floors", "crawls_per_day"),
    ),
    "crawl_value_at_margin": ("Requests kept fresh by the last crawl of the budget.", _of("multiplier")),
    "starved_pages": ("Pages that are asked for and get no crawl.", _of("starved", "pages")),
    "starved_weight_ratio": ("Share of requests that are of such pages.", _of("starved", "weight_share")),
    "pages_by_limit": ("Pages by what bounds their crawl rate.", _by("limit", "pages_limit_", "")),
    "hosts_at_limit": (
        "Hosts whose limit holds crawls back; at most as many as the manifest lists.",
        _one(lambda m: float(len(m.get("hosts_at_limit", [])))),
    ),
    "rows_accepted": ("Rows of an input that were used.", _by("input", "", "_accepted")),
    "rows_rejected": ("Rows of an input that were rejected.", _by("input", "", "_rejected")),
    "rejected_ratio": ("Share of all rows that were rejected.", _one(lambda m: rejected_share(dict(m)))),
    "judged_crawls": ("Crawls by which the night before was judged.", _of("judged", "crawls")),
    "judged_changes_found": ("Changes that they found.", _of("judged", "changes_found")),
    "judged_changes_predicted": ("Changes that were predicted of them.", _of("judged", "changes_predicted")),
    "judged_freshness_ratio": (
        "Share of the time in which pages judged were fresh.",
        _of("judged", "freshness", "realised"),
    ),
    "judged_freshness_predicted_ratio": (
        "What was predicted of it.",
        _of("judged", "freshness", "predicted"),
    ),
    "drift": ("1 where pages change otherwise than predicted, beyond chance.", _one(_drift)),
    "awaited_pages": ("Pages that the night before had scheduled.", _of("silence", "scheduled")),
    "missed_pages": ("Of these, pages that are in no log.", _of("silence", "in_no_log")),
    "silent_pages": (
        "Pages that wait longer since tries of them were in vain.",
        _of("silence", "pages_silent"),
    ),
    "silent_hosts": (
        "Hosts of which no scheduled page is in a log; at most as many as the manifest lists.",
        _one(lambda m: float(len((m.get("silence") or {}).get("hosts", [])))),
    ),
}


def of_night(manifest: Manifest) -> str:
    """The metrics of a night, from its manifest alone."""
    return "".join(
        family(f"recrawl_night_{name}", text, samples(manifest)) for name, (text, samples) in _NIGHT.items()
    )


def family(name: str, text: str, samples: Iterable[tuple[Mapping[str, str], float | None]]) -> str:
    """The lines of a metric; none where no value of it is known."""
    lines = [f"{name}{_labels(labels)} {value!r}" for labels, value in samples if value is not None]
    return "\n".join([f"# HELP {name} {text}", f"# TYPE {name} gauge", *lines, ""]) if lines else ""


def _labels(labels: Mapping[str, str]) -> str:
    # Names of inputs and limits: nothing in them is to be escaped.
    return "{" + ",".join(f'{name}="{value}"' for name, value in labels.items()) + "}" if labels else ""
