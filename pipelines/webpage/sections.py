"""What the page of a night says, section by section; one with nothing to say is left out."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from pipelines.look import diff_report
from pipelines.nightly.expected import floors_said, starved_said
from pipelines.webpage import freshness
from pipelines.webpage.parts import Cell, Chart, Line, Section, Table, Tile, count, share, signed, words
from transforms.batches.tally import counted
from transforms.finished.figures import LISTED, Figures

Manifest = dict[str, Any]
_TOP = 25
_LIMITS = {
    "none": "none: the optimum",
    "floor": "floor: a least rate",
    "cap": "cap: max_rate_per_day",
    "host": "the limit of the host",
    "starved": "starved: worth less than other crawls",
    "new": "new: never crawled",
    "volatile": "volatile: new at every visit",
    "silent": "silent: crawls never come back",
}
_REASONS = {
    "due": "due: the turn of the page",
    "new": "new: never crawled",
    "overdue": "overdue",
    "signal": "signal: said to have changed",
    "hour": "hour: moved to a better hour",
    "discover": "discover: may bring new links",
}


def of_night(
    manifest: Manifest, figures: Figures, moved: dict[str, Any] | None, why_not: str
) -> list[Section]:
    """All sections of a night.

    Parameters
    ----------
    manifest : dict
    figures : Figures
    moved : dict, optional
        `diff_report.report` of the night before and this one.
    why_not : str
        Why there is no `moved`; empty: there is no night before.
    """
    found = [
        freshness.tonight(manifest),
        freshness.judged(manifest),
        freshness.budget(manifest, figures),
        _spent(manifest, figures),
        _moved(moved, why_not),
        _hosts(manifest),
        _signals(manifest, figures),
        _starved(manifest, figures),
        _rejected(manifest, figures),
        _slots(manifest, figures),
    ]
    return found


def _spent(manifest: Manifest, figures: Figures) -> Section:
    section, of = Section("spent", "Where the budget goes"), freshness.asked(manifest)
    limits = figures.by_limit.to_pylist()
    crawls = sum(row["crawl_rate_per_day"] for row in limits)
    weight = sum(row["weight"] for row in limits)
    if not limits:
        return section
    if (floors := manifest.get("floors") or {}).get("pages"):
        section.notes.append(f"{floors_said(floors)}.")

    def rest(row: dict[str, Any]) -> list[Cell]:
        rate, mine = row["crawl_rate_per_day"], row["weight"]
        return [
            count(rate),
            share(row["fresh"] / mine if mine else None),
            count(row["pages"]),
            share(rate / crawls if crawls else None),
            share(mine / weight if weight else None),
            count(row["starved"]),
        ]

    columns = (
        "crawls a day",
        "expected freshness",
        "pages",
        "of all crawls",
        f"of all {of}",
        "asked for, no crawl",
    )
    section.tables.append(
        Table(
            "By what bounds the crawl rate of a page",
            ("bound", *columns),
            [[words(_LIMITS.get(row["limit"], row["limit"])), *rest(row)] for row in limits],
        )
    )
    hosts = figures.hosts.slice(0, _TOP).to_pylist()
    section.tables.append(
        Table(
            f"Hosts with most crawls{_first_of(len(hosts), figures.hosts.num_rows)}",
            ("host", *columns, "slots tonight", "limit, crawls a day"),
            [[words(h["host"]), *rest(h), count(h["slots"]), count(h.get("limit_per_day"))] for h in hosts],
        )
    )
    return section


def _first_of(shown: int, all_of_them: int) -> str:
    return f", {shown:,} of {all_of_them:,}" if shown < all_of_them else ""


def _moved(moved: dict[str, Any] | None, why_not: str) -> Section:
    section = Section("moved", "What moved since the night before")
    if moved is None:
        if why_not:
            section.notes.append(why_not)
        return section
    weight, before, after = moved["after"]["weight_by"], moved["before"], moved["after"]
    pages, rate = moved["pages"], moved["crawl_rate_per_day"]
    share_moved = f", {share(moved['moved_per_day'] / rate[0]).text} of all" if rate[0] else ""
    section.notes.extend(
        [
            f"Since {before['as_of']}: {count(moved['moved_per_day']).text} crawls a day moved from page to "
            f"page{share_moved}. Main cause: {diff_report.main_cause(moved)}.",
            f"{counted(pages['same'], 'page')} in both nights, {pages['new']:,} new, {pages['lost']:,} lost. "
            f"Expected freshness {share(before['expected_freshness']).text} → "
            f"{share(after['expected_freshness']).text}.",
        ]
    )
    if options := moved["options"]:
        section.tables.append(
            Table(
                "Options that differ",
                ("option", "before", "now"),
                [[words(n), *(words(diff_report.number(v)) for v in pair)] for n, pair in options.items()],
            )
        )
    causes = [c for c in moved["causes"] if c["up_per_day"] - c["down_per_day"] >= 1e-6]
    if causes:
        section.tables.append(
            Table(
                "Why crawl rates moved, crawls a day",
                ("cause", "up", "down", "net"),
                [
                    [
                        words(diff_report.label(c["cause"], weight)),
                        *(signed(c[f"{n}_per_day"]) for n in ("up", "down", "net")),
                    ]
                    for c in causes
                ],
            )
        )
    for title, what, rows, name in (
        ("Hosts whose slots moved most", "slots", moved["hosts_by_slots"], "host"),
        ("Pages whose crawl rate moved most", "crawls a day", moved["pages_by_rate"], "url"),
    ):
        if rows:
            section.tables.append(
                Table(
                    title,
                    (name, f"{what} before", "now", "why"),
                    [
                        [words(row[name]), *_pair(row), words(diff_report.why(row["causes_per_day"], weight))]
                        for row in rows[:_TOP]
                    ],
                )
            )
    return section


def _pair(row: dict[str, Any]) -> list[Cell]:
    pair = row["columns"]["crawl_rate_per_day"] if "columns" in row else row["slots"]
    return [count(value or 0.0) for value in pair]


def _hosts(manifest: Manifest) -> Section:
    section = Section("hosts", "Hosts at limit, silent and flooding")
    counters, tables = manifest["counters"], section.tables
    if at_limit := manifest.get("hosts_at_limit"):
        section.notes.append(f"{counted(counters.get('hosts_at_limit', 0), 'host')} at the limit.")
        worth = f"one more crawl a day there would keep fresh, {freshness.asked(manifest)}"
        price = manifest.get("multiplier") or 0.0
        rows = [[words(h["host"]), count(price + h["multiplier"])] for h in at_limit]
        tables.append(Table("Hosts at their limit, tightest first", ("host", worth), rows))
    quiet = manifest.get("silence") or {}
    if quiet.get("in_no_log"):
        missed = quiet["in_no_log"]
        section.notes.append(
            f"{missed:,} of {counted(quiet['scheduled'], 'scheduled page')} "
            f"{'is' if missed == 1 else 'are'} in no log."
        )
    if quiet.get("hosts"):
        rows = [[words(h["host"]), count(h["pages"])] for h in quiet["hosts"]]
        tables.append(
            Table("Hosts of which no scheduled page is in a log", ("host", "scheduled pages"), rows)
        )
    signals = manifest.get("signals") or {}
    silent = [h for h in signals.get("hosts", []) if h["silent"]]
    if silent:
        rows = [
            [words(h["host"]), words(h["source"]), count(h["pages"]), count(h["signals"])] for h in silent
        ]
        columns = ("host", "source", "pages", "signals so far")
        tables.append(Table("Hosts whose signals stopped", columns, rows))
    flooding = [
        (s["source"], h)
        for s in signals.get("sources", [])
        for h in s.get("most_false", [])
        if h.get("floods")
    ]
    if flooding:
        rows = [
            [words(h["host"]), words(source), count(h["signal_rate_per_day"]), count(h["changes_per_day"])]
            for source, h in flooding
        ]
        columns = ("host", "source", "signals a day", "changes a day")
        tables.append(Table("Hosts that signal far more often than they change", columns, rows))
    return section


def _signals(manifest: Manifest, figures: Figures) -> Section:
    section, signals = Section("signals", "Signals and clocks"), manifest.get("signals") or {}
    if signals.get("sources"):
        fresh, without = signals.get("expected_freshness"), signals.get("expected_freshness_without")
        if fresh is not None and without is not None:
            section.tiles.append(Tile("Expected with signals", share(fresh), "the gain by hours left out"))
            section.tiles.append(
                Tile("Expected without signals", share(without), "the same budget and pages")
            )
        names = ("signal_rate_per_day", "pages", "hosts", "hosts_silent", "hosts_flooding")
        section.tables.append(
            Table(
                "Sources of signals",
                (
                    "source",
                    "signals a day",
                    "pages",
                    "hosts",
                    "silent hosts",
                    "flooding hosts",
                    "true",
                    "of changes told",
                ),
                [
                    [
                        words(s["source"]),
                        *(count(s.get(n, 0)) for n in names),
                        *(share(s.get(n)) for n in ("signal_precision", "signal_recall")),
                    ]
                    for s in signals["sources"]
                ],
            )
        )
    clocks = [
        h
        for h in figures.hosts.to_pylist()
        if h.get("peak_hour") is not None or h.get("half_age_hours") is not None
    ]
    if clocks:
        section.tables.append(
            Table(
                f"When pages of a host change{_first_of(len(clocks[:LISTED]), len(clocks))}",
                (
                    "host",
                    "pages",
                    "peak, hour UTC",
                    "of changes within three hours of it",
                    "half of the changes by age, hours",
                ),
                [
                    [
                        words(h["host"]),
                        count(h["pages"]),
                        count(h.get("peak_hour")),
                        share(h.get("peak_share")),
                        count(h.get("half_age_hours")),
                    ]
                    for h in clocks[:LISTED]
                ],
            )
        )
    return section


def _starved(manifest: Manifest, figures: Figures) -> Section:
    section = Section("starved", "Pages that get no crawl")
    if (manifest.get("starved") or {}).get("pages"):
        why = (
            ": crawls of other pages keep more fresh, or of others of their host, where it is at its limit. "
            "recrawl explain says of each which option changes that."
        )
        section.notes.append(starved_said(manifest) + (why if manifest["budget_per_day"] else "."))
    if figures.starved.num_rows:
        rows = [
            [
                words(row["url"]),
                count(row["weight"]),
                count(row["change_rate_per_day"]),
                words(_LIMITS.get(row["limit"], row["limit"]).partition(":")[0]),
                words("seen twice" if row["n_intervals"] else "a guess: never seen twice"),
            ]
            for row in figures.starved.slice(0, _TOP).to_pylist()
        ]
        columns = ("page", freshness.asked(manifest), "changes a day", "bound", "its rate is")
        of = (manifest.get("starved") or {}).get("pages") or len(rows)
        title = f"Those that are asked for most{_first_of(len(rows), of)}"
        section.tables.append(Table(title, columns, rows))
    return section


def _rejected(manifest: Manifest, figures: Figures) -> Section:
    section, counters = Section("rejected", "Rejected rows"), manifest["counters"]
    reasons = [
        (kind, why, n)
        for name, n in counters.items()
        for kind, mark, why in [name.partition("_rejected_")]
        if mark and n and why != "empty_file"
    ]
    if reasons:
        rows = [
            [words(why.replace("_", " ")), words(kind), count(n), share(n / (read or 1))]
            for kind, why, n in sorted(reasons, key=lambda r: (-r[2], r))
            for read in [counters.get(f"{kind}_accepted", 0) + counters.get(f"{kind}_rejected", 0)]
        ]
        section.tables.append(
            Table("Why rows were rejected", ("reason", "input", "rows", "of all its rows"), rows)
        )
    if figures.rejected.num_rows:
        rows = [
            # The file alone: where it lay is of no meaning elsewhere.
            [
                words(row["reason"]),
                words(str(row["source"]).rpartition("/")[2]),
                count(row["row"]),
                words(row["sample"]),
            ]
            for row in figures.rejected.to_pylist()
        ]
        section.tables.append(
            Table("Some of them, from rejected/", ("reason", "file", "row", "sample"), rows)
        )
    return section


def _slots(manifest: Manifest, figures: Figures) -> Section:
    section, counts = Section("slots", "Slots by hour"), figures.slots_by_hour.tolist()
    if not sum(counts):
        return section
    start = datetime.fromtimestamp(manifest["options"]["as_of_us"] / 1e6, UTC)
    hours = [start + timedelta(hours=i) for i in range(len(counts))]
    every = max(1, -(-len(hours) // 8))
    section.charts.append(
        Chart(
            "Crawls scheduled by hour",
            f"{counted(sum(counts), 'crawl')} in {counted(len(counts), 'hour')}.",
            "hour, UTC",
            "Crawls in the hour",
            [Line("", "crawls", list(range(len(counts))), counts, style="bars")],
            Table(
                "Crawls by hour",
                ("hour, UTC", "crawls"),
                [[words(f"{hour:%Y-%m-%d %H:%M}"), count(n)] for hour, n in zip(hours, counts, strict=True)],
            ),
            ticks=[(i, f"{hours[i]:%H:%M}") for i in range(0, len(hours), every)],
        )
    )
    total = sum(figures.slots_by_reason.values())
    rows = [
        [words(_REASONS.get(reason, reason)), count(n), share(n / total)]
        for reason, n in figures.slots_by_reason.items()
    ]
    section.tables.append(Table("Why crawls are scheduled", ("reason", "crawls", "of all"), rows))
    return section
