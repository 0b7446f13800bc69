"""The policies on real histories of changes: the table of docs/backtest.md.

    python -m benchmarks.replay.backtest_histories [NAME ...] [--out FOLDER] [-- OPTIONS of recrawl backtest]
    python -m benchmarks.replay.backtest_histories --table FOLDER ...

Histories are those of the workshop (skipped with a note where they are absent; set RECRAWL_SHARED to its
folder), read as its `replay.py` reads them, and given to `recrawl backtest --changes`.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import quote

import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.measuring.histories import read_rows, shared_folder, url_of
from pipelines.door import cli
from pipelines.experiments.backtest_report import Comparison, compare
from policies.numerics.special import SURE
from policies.rules.crawler_rules import RULES
from transforms.batches.schemas import TIME
from transforms.replay.backtesting import POLICIES

HISTORIES: dict[str, tuple[str, str, tuple[float, ...]]] = {
    "ota_contrib": ("2024-01-01", "2025-01-01", (0.03, 0.1)),
    "prices_tcg": ("2026-03-01", "2026-06-15", (0.1, 0.3, 1.0)),
    "pages_swiss": ("2024-01-01", "2025-01-01", (0.1,)),
    "software_releases": ("2024-06-01", "2025-12-31", (0.05,)),
    "docs_sitemap": ("2026-02-01", "2026-07-01", (0.1,)),
    "pages_news_de": ("2025-12-29", "2026-01-04", (1.0, 4.0)),
    "api_pypistats": ("2024-03-01", "2024-08-01", (0.3, 1.0)),
    "news_articles_nu": ("2022-08-05", "2022-09-15", (0.1, 0.3)),
}
_DROPPED = ("manual", "restored", "error", "empty"), ("refilter", "manual", "bulk")
_EVENT_COLUMNS = (
    "page_id event_time prev_poll kind digest cause price value version seen_time links_added links_removed "
    "in_sitemap prerelease watched_until"
).split()


def _url(row: dict[str, str]) -> str:
    if row.get("service"):
        slug = "".join(c if c.isalnum() else "-" for c in row["service"].lower()).strip("-") or "x"
        return f"https://{slug}.test/{quote(row['terms_type'])}"
    return url_of(row["page_id"])


def convert(folder: Path, out: Path) -> list[str]:
    """Write the inputs of a backtest; returns its options."""
    out.mkdir(parents=True, exist_ok=True)
    events: dict[str, list[tuple[int, str]]] = {}
    metadata: dict[str, dict[str, str]] = {}
    for row in read_rows(folder / "events.tsv.gz"):
        if row["kind"] in _DROPPED[0] or row.get("cause") in _DROPPED[1]:
            continue
        version = next((row[n] for n in ("digest", "price", "value", "version") if row.get(n)), "")
        content = "gone" if row["kind"] == "delete" else version or row["event_time"]
        events.setdefault(_url(row), []).append((int(float(row["event_time"]) * 1e6), content))
        metadata[_url(row)] = {k: v for k, v in row.items() if k not in _EVENT_COLUMNS}
    rows = [
        (u, at, d, "change" if i else "first")
        for u in sorted(events)
        for i, (at, d) in enumerate(sorted(events[u]))
    ]
    url, at, digest, kind = zip(*rows, strict=True)
    changes = {"url": url, "changed_at": pa.array(at).cast(TIME), "digest": digest, "kind": kind}
    pq.write_table(pa.table(changes), out / "changes.parquet")
    names = sorted({n for values in metadata.values() for n in values})
    pages = {"url": sorted(events), **{n: [metadata[u].get(n) for u in sorted(events)] for n in names}}
    pq.write_table(pa.table({n: pa.array(v, pa.string()) for n, v in pages.items()}), out / "pages.parquet")
    options = [f"--changes={out}/changes.parquet", f"--pages={out}/pages.parquet"]
    if (folder / "lastmod.tsv.gz").exists():
        seen, known = [], set()
        for row in read_rows(folder / "lastmod.tsv.gz"):  # by page, then time; a first date is no signal
            if row["lastmod"] and row["page_id"] in known and _url(row) in events:
                seen.append((_url(row), int(float(row["seen_time"]) * 1e6)))
            if row["lastmod"]:
                known.add(row["page_id"])
        signals = {
            "url": [u for u, _ in seen],
            "signalled_at": pa.array([t for _, t in seen]).cast(TIME),
            "source": ["sitemap"] * len(seen),
        }
        pq.write_table(pa.table(signals), out / "signals.parquet")
        options.append(f"--signals={out}/signals.parquet")
    return options


def table(folders: Sequence[Path], against: str = "recrawl") -> str:
    """Results of several runs as Markdown: fresh requests in percent, and differences with errors."""
    lines = []
    for weights in ("equal", "zipf"):
        found: dict[tuple[str, float], dict[str, str]] = {}
        names: list[str] = []
        for name in HISTORIES:
            for c in _comparisons(folders, name, against):
                for budget in c.budgets if c.weights == weights else ():
                    cells = found.setdefault((name, budget), {})
                    for policy in c.policies:
                        cells[policy] = _text(c, policy, budget)
                        if policy not in names:
                            names.append(policy)
        order = [against, *(n for n in POLICIES if n in names and n != against)]
        keys = list(found)
        lines += [
            f"**{weights} weights**",
            "",
            "| policy | " + " | ".join(f"{name} {budget:g}" for name, budget in keys) + " |",
            "| --- |" + " ---: |" * len(keys),
            *(f"| {p} | " + " | ".join(found[k].get(p, "") for k in keys) + " |" for p in order),
            "",
        ]
    return "\n".join(lines)


def summary(folders: Sequence[Path], against: str = "recrawl") -> str:
    """The same in short: the best rule of a crawler, and the references."""
    lines = [
        "| history, budget | weights | recrawl | best rule | `uncensored` | `known-rates` |",
        "| --- | --- | ---: | ---: | ---: | ---: |",
    ]
    for weights in ("equal", "zipf"):
        for name in HISTORIES:
            for c in _comparisons(folders, name, against):
                for budget in c.budgets if c.weights == weights else ():
                    rules = [p for p in c.policies if p in ("uniform", *RULES)]
                    best = max(rules, key=lambda p, c=c, b=budget: c.cells[p, b].accuracy)
                    shown = (against, best, "uncensored", "known-rates")
                    texts = [_text(c, p, budget) if p in c.policies else "" for p in shown]
                    texts[1] += f" ({best})"
                    lines.append(f"| {name}, {budget:g} | {weights} | " + " | ".join(texts) + " |")
    return "\n".join(lines)


def _comparisons(folders: Sequence[Path], name: str, against: str) -> list[Comparison]:
    parts = [f / name for f in folders if (f / name / "results.parquet").exists()]
    if not parts:
        return []
    results, days = (
        pa.concat_tables([pq.read_table(p / f"{kind}.parquet") for p in parts])
        for kind in ("results", "days")
    )
    return compare(results, days, against)


def _text(c: Comparison, policy: str, budget: float) -> str:
    cell = c.cells[policy, budget]
    if policy == c.against:
        return f"{100 * cell.accuracy:.2f} ± {100 * cell.error:.2f}"
    text = f"{100 * cell.gain:+.2f} ± {100 * cell.gain_error:.2f}"
    return f"**{text}**" if cell.gain > SURE * cell.gain_error else text


def main(argv: Sequence[str] | None = None) -> int:
    """Run one backtest after the other."""
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("names", nargs="*", default=list(HISTORIES), help="(default: all)")
    p.add_argument("--table", type=Path, nargs="+", help="only print tables of these results")
    p.add_argument("--out", type=Path, default=Path("out/backtests"))
    arguments, more = list(sys.argv[1:] if argv is None else argv), []
    if "--" in arguments:
        at = arguments.index("--")
        arguments, more = arguments[:at], arguments[at + 1 :]
    parsed = p.parse_args(arguments)
    if parsed.table:
        print(summary(parsed.table) + "\n\n" + table(parsed.table))
        return 0
    for name in parsed.names:
        folder = shared_folder() / "data" / name
        if not (folder / "events.tsv.gz").exists():
            print(f"skipped: no events.tsv.gz in {folder}; set RECRAWL_SHARED")
            continue
        start, end, budgets = HISTORIES[name]
        options = convert(folder, parsed.out / name / "inputs")
        options += [f"--start={start}", f"--end={end}", "--budgets", *map(str, budgets)]
        print(f"\n## {name}\n", flush=True)
        code = cli.main(["backtest", *options, f"--output={parsed.out / name}", *more])
        if code:
            return code
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
