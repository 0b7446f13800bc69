"""Freshness on the page of a night: now, as promised and found, and at other budgets."""

from __future__ import annotations

import math
from typing import Any

from pipelines.nightly.expected import beside_its_range
from pipelines.nightly.report import said_of_forecasts
from pipelines.webpage.parts import Cell, Chart, Line, Section, Table, Tile, count, share, words
from policies.numerics.special import HALF_95
from transforms.batches.tally import counted
from transforms.finished.figures import Figures
from transforms.finished.folders import weights_of

Manifest = dict[str, Any]
_LEAST_APART = 0.001


def asked(manifest: Manifest) -> str:
    """What pages are weighted with, as a noun."""
    weight = weights_of(manifest)
    return {"equal": "pages", "importance": "importance"}.get(weight, f"{weight} a day")


def tonight(manifest: Manifest) -> Section:
    """What the night expects, and what it spends."""
    section = Section("now", "Freshness now")
    counters, tiles = manifest["counters"], section.tiles
    weight = weights_of(manifest)
    over = "over all pages" + ("" if weight == "equal" else f", weighted by {weight}")
    if manifest.get("expected_freshness") is not None:
        guess = "; a guess: no page was seen twice" if counters.get("pages_seen_twice") == 0 else ""
        if between := manifest.get("freshness_range"):
            low, high = (share(between[end]).text for end in ("low", "high"))
            beside = beside_its_range(manifest["expected_freshness"], between)
            over += f"; {share(between['level'], 0).text} range {low} to {high}{beside}"
        tiles.append(Tile("Expected freshness", share(manifest["expected_freshness"]), over + guess))
        tiles.append(
            Tile(
                "With one rate for all pages",
                share(manifest["expected_freshness_uniform"]),
                "as far as hosts allow",
            )
        )
    if gain := manifest.get("expected_freshness_by_hours"):
        tiles.append(Tile("Of which by hours", share(gain), "crawls at the hours that keep most fresh"))
    spent = manifest.get("allocated_per_day")
    if spent is not None:
        of = f"of a budget of {count(manifest['budget_per_day']).text}"
        unspent = manifest.get("unspent_reason") or ""
        tiles.append(Tile("Crawls a day", count(spent), f"{of}; {unspent}" if unspent else of))
    known, hosts = counters.get("pages_known", 0), counters.get("hosts_known", 0)
    never = counters.get("pages_never_crawled", 0)
    tiles.append(Tile("Pages", count(known), f"on {counted(hosts, 'host')}; {never:,} never crawled"))
    used, empty = counters.get("slots_used", 0), counters.get("slots_empty", 0)
    tiles.append(Tile("Crawls scheduled", count(used), f"{empty:,} slots stay empty"))
    return section


def judged(manifest: Manifest) -> Section:
    """What the night before promised, and what the crawls since found."""
    section, judged = Section("judged", "Promised and found"), manifest.get("judged") or {}
    if not manifest["options"].get("state") and manifest.get("status", "ok") == "ok":
        section.notes.append("This is the first night. The next one says what came of what it promises.")
    if not judged.get("crawls"):
        return section
    time, ratio = judged["freshness"], judged.get("ratio")
    if time.get("realised") is not None:
        between = f"any process of changes: {share(time['at_least']).text} to {share(time['at_most']).text}"
        section.tiles.append(
            Tile("Promised", share(time["predicted"]), "on crawled pages, between their crawls")
        )
        section.tiles.append(Tile("Found", share(time["realised"]), between))
    section.tiles.append(
        Tile(
            "Changes found",
            count(judged["changes_found"]),
            f"in {counted(judged['crawls'], 'crawl')}; {judged['changes_predicted']:,.0f} predicted",
        )
    )
    if ratio is not None:
        low, high = judged["ratio_95"]
        section.tiles.append(
            Tile(
                "Found over predicted",
                Cell(f"{ratio:.2f}", ratio),
                f"95 % by chance: {low:.2f} to {high:.2f}",
            )
        )
    if judged.get("from_priors"):
        section.notes.append(
            "Few pages had been seen twice, so that these predictions were guesses from priors."
        )
    if text := said_of_forecasts(judged):
        section.notes.append(f"Forecasts of changes: {text}.")
    bins = [row for row in judged.get("reliability", []) if row["crawls"]]
    if bins:
        section.charts.append(_calibration(bins))
    if judged.get("hosts"):
        rows = [
            [
                words(h["host"]),
                count(h["crawls"]),
                count(round(h["changes_predicted"], 1)),
                count(h["changes_found"]),
            ]
            for h in judged["hosts"]
        ]
        columns = ("host", "crawls", "changes predicted", "changes found")
        section.tables.append(Table("Hosts furthest from what was predicted", columns, rows))
    return section


def _calibration(bins: list[dict[str, Any]]) -> Chart:
    x = [row["predicted"] / row["crawls"] for row in bins]
    y = [row["found"] / row["crawls"] for row in bins]
    # Wilson's interval: it stays within 0 and 1.
    error = [_wilson(row["found"], row["crawls"]) for row in bins]
    numbers = Table(
        "Crawls by the predicted probability of a change",
        ("predicted, from", "to", "crawls", "mean predicted", "changed"),
        [
            [share(row["from"]), share(row["to"]), count(row["crawls"]), share(p), share(q)]
            for row, p, q in zip(bins, x, y, strict=True)
        ],
    )
    return Chart(
        "Calibration",
        "Points on the dashed line are crawls that changed as often as predicted; bars are 95 % by chance.",
        "predicted to have changed",
        "Share of crawls that found a change",
        [
            Line("", "plain", (0.0, 1.0), (0.0, 1.0), style="rule"),
            Line("", "found", x, y, error, "points"),
        ],
        numbers,
        percent=True,
        ticks=[(i / 4, f"{25 * i} %") for i in range(5)],
    )


def _wilson(found: int, n: int, z: float = HALF_95) -> tuple[float, float]:
    p, square = found / n, z * z / n
    middle, half = p + square / 2, z * math.sqrt(p * (1 - p) / n + square / (4 * n))
    return max(0.0, (middle - half) / (1 + square)), min(1.0, (middle + half) / (1 + square))


def budget(manifest: Manifest, figures: Figures) -> Section:
    """Expected freshness by budget."""
    section = Section("budget", "What another budget buys")
    budgets, fresh = figures.budgets_per_day.tolist(), figures.freshness.tolist()
    if len(budgets) < 2:
        return section
    pages = manifest["counters"].get("pages_known", 0)
    from_sample = figures.sampled < pages
    section.notes.append(
        "The same pages, rates and limits, with the budget alone changed; crawls by signals and by hours are "
        "taken as evenly spread ones, and caps that do not bind tonight are not known."
        + (f" From a sample of {counted(figures.sampled, 'page')}." if from_sample else "")
    )
    now, uniform = manifest["budget_per_day"], manifest.get("expected_freshness_uniform")
    numbers = Table(
        "Expected freshness by budget",
        ("crawls a day", "times tonight's", "expected freshness"),
        [[count(b), count(b / now), share(f)] for b, f in zip(budgets, fresh, strict=True)],
    )
    lines = [Line("best rates", "fresh", budgets, fresh)]
    tonight = fresh[budgets.index(now)] if now in budgets else None
    if tonight is not None:
        lines.append(Line("", "fresh", [now], [tonight], style="rings"))
    if uniform is not None and (tonight is None or abs(tonight - uniform) > _LEAST_APART):
        lines.append(Line("one rate for all, tonight", "plain", [now], [uniform], style="points"))
    section.charts.append(
        Chart(
            "Freshness by budget",
            f"The ring is tonight's budget, {_crawls(now)} a day.",
            "budget, crawls a day (each mark doubles it)",
            "Expected freshness",
            lines,
            numbers,
            percent=True,
            ticks=[(b, _short(b)) for b in budgets if _is_power(b / now)],
            log_x=True,
            from_zero=False,
        )
    )
    price, of = manifest.get("multiplier"), asked(manifest)
    if price:
        section.notes.append(f"One more crawl a day would keep {price:.3g} more {of} fresh.")
    return section


def _crawls(n: float) -> str:
    return f"{count(n).text} crawl{'s' * (n != 1.0)}"


def _is_power(factor: float) -> bool:
    return abs(math.log2(factor) - round(math.log2(factor))) < 1e-9


def _short(value: float) -> str:
    for size, unit in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= size:
            return f"{value / size:.3g}{unit}"
    return f"{value:.3g}"
