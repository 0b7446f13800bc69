"""What the nights of a store show side by side."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pipelines.webpage.parts import Chart, Line, Section, Table, count, share, words

Manifest = dict[str, Any]


def of_nights(manifests: Sequence[Manifest]) -> Section:
    """Trends over nights, oldest first."""
    section = Section("trends", f"Trends over {len(manifests)} nights")
    names = [when(m) for m in manifests]
    fresh = [m.get("expected_freshness") for m in manifests]
    judged = [(m.get("judged") or {}).get("freshness") or {} for m in manifests]
    promised, found = ([j.get(n) for j in judged] for n in ("predicted", "realised"))
    between = [m.get("freshness_range") or {} for m in manifests]
    slots = [m["counters"].get("slots_used", 0) for m in manifests]
    lost = [rejected_share(m) for m in manifests]
    numbers = Table(
        "Nights",
        (
            "night",
            "status",
            "pages",
            "slots",
            "expected freshness",
            "promised, of crawled pages",
            "found",
            "rejected rows",
            "warnings",
        ),
        [
            [
                words(name),
                words(m.get("status", "")),
                count(m["counters"].get("pages_known", 0)),
                count(n),
                share(f),
                share(p),
                share(q),
                share(r),
                count(len(m.get("warnings", []))),
            ]
            for name, m, n, f, p, q, r in zip(
                names, manifests, slots, fresh, promised, found, lost, strict=True
            )
        ],
    )
    section.tables.append(numbers)
    at = list(range(len(names)))
    every = max(1, -(-len(names) // 4))
    ticks = [(i, names[i]) for i in range(0, len(names), every)]

    def chart(title: str, text: str, y: str, lines: list[Line], percent: bool, from_zero: bool) -> None:
        lines = [line for line in lines if any(v is not None for v in line.y)]
        if lines:
            section.charts.append(
                Chart(
                    title,
                    text,
                    "night",
                    y,
                    lines,
                    _columns(title, names, lines, percent),
                    percent,
                    ticks,
                    from_zero=from_zero,
                )
            )

    chart(
        "Freshness",
        "Expected is of all pages and the time to come, with its 90 % range; promised and found are of the "
        "pages that were crawled since the night before, so the line may lie elsewhere. Bars are what crawls "
        "leave open.",
        "Freshness",
        [
            Line("expected", "fresh", at, fresh, _ends(fresh, between, "low", "high"), "band"),
            Line("promised", "plain", at, promised, style="points"),
            Line("found", "found", at, found, _ends(found, judged, "at_least", "at_most"), "points"),
        ],
        True,
        False,
    )
    chart(
        "Slots",
        "Crawls that each night scheduled.",
        "Crawls",
        [Line("", "crawls", at, slots, style="bars")],
        False,
        True,
    )
    chart(
        "Rejected rows",
        "Share of all rows read.",
        "Rejected",
        [Line("", "trouble", at, lost, style="bars")] if any(lost) else [],
        True,
        True,
    )
    return section


def _ends(
    values: Sequence[float | None], ends: Sequence[Manifest], low: str, high: str
) -> list[tuple[float, float]]:
    """Bars around values; none, as long as nothing, where nothing is known."""
    usual = next((v for v in values if v is not None), 0.0)
    bars = []
    for value, end in zip(values, ends, strict=True):
        pair = end.get(low), end.get(high)
        at = usual if value is None else value
        bars.append((at, at) if value is None or None in pair else (float(pair[0]), float(pair[1])))
    return bars


def when(manifest: Manifest) -> str:
    """The instant of a night, in few letters; UTC."""
    return str(manifest["options"].get("as_of", ""))[:16].replace("T", " ").removesuffix(" 00:00")


def rejected_share(manifest: Manifest) -> float | None:
    """Rejected rows of all inputs over all that were read."""
    counters = manifest["counters"]
    rejected = sum(n for name, n in counters.items() if name.endswith("_rejected"))
    read = rejected + sum(n for name, n in counters.items() if name.endswith("_accepted"))
    return rejected / read if read else None


def _columns(title: str, names: Sequence[str], lines: Sequence[Line], percent: bool) -> Table:
    form = share if percent else count
    rows = [[words(name), *(form(line.y[i]) for line in lines)] for i, name in enumerate(names)]
    return Table(title, ("night", *(line.name or title.lower() for line in lines)), rows)
