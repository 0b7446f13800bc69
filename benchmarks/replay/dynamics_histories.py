"""`recrawl dynamics` on real histories: the table and the pictures of docs/dynamics.md.

    python -m benchmarks.replay.dynamics_histories [NAME ...] [--out FOLDER] [--sparse N] [--seed N]
    python -m benchmarks.replay.dynamics_histories --pictures docs/pictures [--out FOLDER] [--sparse N]

Histories whose polls are known become a crawl log with a row a page and poll; others are lists of changes.
With --sparse a poll log is thinned: each page is seen at one poll in so many, drawn. What the thinned log
shows can be compared with all polls.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from benchmarks.measuring.histories import read_polls, read_rows, shared_folder, url_of
from benchmarks.replay.backtest_histories import convert
from pipelines.door import cli
from pipelines.pictures.plots import Panel, Picture, Series, draw
from policies.numerics.typing_ import FloatArray, IntArray
from transforms.batches.schemas import TIME

HISTORIES: dict[str, tuple[str, str, str, tuple[str, ...]]] = {
    "prices_tcg": ("polled", "2026-03-01", "2026-06-15", ("finish", "rarity")),
    "api_pypistats": ("listed", "2024-03-01", "2024-08-01", ("host",)),
    "pages_news_de": ("polled", "2025-12-29", "2026-01-04", ("host",)),
    "docs_sitemap": ("polled", "2026-02-01", "2026-07-01", ("host", "lang")),
    "pages_swiss": ("listed", "2024-01-01", "2025-01-01", ("monitor",)),
    "ota_contrib": ("listed", "2022-01-01", "2025-01-01", ("terms_type",)),
    "software_releases": ("listed", "2024-06-01", "2025-12-31", ()),
    "news_articles_nu": ("listed", "2022-08-05", "2022-12-31", ("section",)),
    "policies_aws": ("listed", "2020-01-01", "2025-02-22", ()),
    "api_status": ("listed", "2017-09-10", "2026-07-23", ("host",)),
}
"""How each is read, its window, and columns of groups."""
ZONES = {
    "pages_news_de": "Europe/Berlin",
    "pages_swiss": "Europe/Zurich",
    "news_articles_nu": "Europe/Amsterdam",
    "prices_tcg": "America/New_York",
    "docs_sitemap": "America/Los_Angeles",
    "policies_aws": "America/Los_Angeles",
}


def _us(day: str) -> int:
    return int(np.datetime64(day, "us").astype(np.int64))


def inputs(name: str, out: Path, sparse: int, seed: int) -> list[str]:
    """Write the inputs of a history; returns the options that name them."""
    how, start, end, by = HISTORIES[name]
    folder = shared_folder() / "data" / name
    begin_us, end_us = _us(start), _us(end)
    given = convert(folder, out)
    pages = next(o for o in given if o.startswith("--pages="))
    changes = pq.read_table(out / "changes.parquet")
    at = changes["changed_at"].cast(pa.int64()).to_numpy()
    options = [pages, *(["--by", *by] if by else []), f"--timezone={ZONES.get(name, 'UTC')}"]
    if how == "listed":
        pq.write_table(changes.filter(pa.array((at >= begin_us) & (at < end_us))), out / "window.parquet")
        return [f"--changes={out}/window.parquet", *options]
    polls, of_page = _polls(folder)
    log = _log(changes, at, polls, of_page, (begin_us, end_us), sparse, seed)
    pq.write_table(log, out / "log.parquet")
    found = [f"--observations={out}/log.parquet", *options]
    if (folder / "lastmod.tsv.gz").exists():
        rows = [
            r for r in read_rows(folder / "lastmod.tsv.gz") if begin_us <= int(r["seen_time"]) * 1e6 < end_us
        ]
        entries = (
            f"<url><loc>https://{r['page_id']}</loc><lastmod>{r['lastmod']}</lastmod></url>\n" for r in rows
        )
        head = '<?xml version="1.0"?>\n<urlset xmlns="http://www.sitemaps.org/schemas/sitemap/0.9">\n'
        (out / "sitemap.xml").write_text(f"{head}{''.join(entries)}</urlset>\n")
        found.append(f"--sitemaps={out}/sitemap.xml")
    return found


def _polls(folder: Path) -> tuple[IntArray, dict[str, IntArray]]:
    """When pages were looked at: all of them, or each by its URL."""
    rows = list(read_rows(folder / "polls.tsv.gz"))
    if "what" in rows[0]:
        return read_polls(folder, "content"), {}
    at = np.array([int(float(r["poll_time"]) * 1e6) for r in rows], np.int64)
    if "page_id" not in rows[0]:
        return np.unique(at), {}
    url = np.array([url_of(r["page_id"]) for r in rows])
    return np.zeros(0, np.int64), {u: np.unique(at[url == u]) for u in np.unique(url).tolist()}


def _log(
    changes: pa.Table,
    at: IntArray,
    polls: IntArray,
    of_page: dict[str, IntArray],
    window: tuple[int, int],
    sparse: int,
    seed: int,
) -> pa.Table:
    """A row a page and poll from the page's first row on: which version it had."""
    url = changes["url"].combine_chunks().dictionary_encode()
    code = url.indices.to_numpy().astype(np.int64)
    rng = np.random.Generator(np.random.Philox(key=seed))
    digest = changes["digest"].to_numpy(zero_copy_only=False)
    order = np.lexsort((at, code))
    start = np.searchsorted(code[order], np.arange(len(url.dictionary) + 1))
    rows, when, version = [], [], []
    for page, name in enumerate(url.dictionary.to_pylist()):
        mine = order[start[page] : start[page + 1]]
        seen = of_page.get(name, polls)
        seen = seen[(seen >= max(at[mine[0]], window[0])) & (seen < window[1])]
        if sparse > 1:
            seen = seen[rng.random(len(seen)) < 1.0 / sparse]
        rows.append(np.full(len(seen), page))
        when.append(seen)
        version.append(digest[mine[np.searchsorted(at[mine], seen, side="right") - 1]])
    columns = url.dictionary.take(pa.array(np.concatenate(rows))), pa.array(np.concatenate(when)).cast(TIME)
    named = dict(zip(("url", "fetched_at"), columns, strict=True))
    return pa.table(named | {"digest": pa.array(np.concatenate(version))})


def picture(out: Path, sparse: int) -> Picture:
    """Hours of prices_tcg by a thinned log and by all polls, and waits between its changes."""
    name = "prices_tcg"
    hours = [
        (f"{estimate}, {what}", _all(out / folder / "hours.parquet", estimate))
        for folder, what in ((f"{name}-{sparse}-0", f"one poll in {sparse}"), (name, "all polls"))
        for estimate in ("corrected", "found")
    ]
    lines = [Series(label, r["hour"], r["share"], r["share_error"]) for label, r in hours]
    waits = []
    for label in ("corrected", "found"):
        r = _all(out / name / "intervals.parquet", label)
        some = (r["share"] > 1e-6) & np.isfinite(r["to_hours"]) & (r["to_hours"] > 12.0)
        middle = np.sqrt(r["from_hours"] * r["to_hours"])
        waits.append(Series(f"{label}, all polls", middle[some], r["share_per_hour"][some]))
    panels = [
        Panel("Hours of changes", "hour of the day (New York)", "share of changes", lines),
        Panel("Waits", "hours from a change to the next", "share of waits per hour", waits, True, True),
    ]
    return Picture("dynamics", "When prices change (prices_tcg)", panels)


def all_histories(out: Path) -> list[Picture]:
    """Hours, and waits, of every history that was run: by the log, or by sitemaps where these tell more."""
    hours, waits = [], []
    for name in HISTORIES:
        if not (out / name / "hours.parquet").exists():
            continue
        made = {e: _all(out / name / "hours.parquet", e) for e in ("corrected", "sitemap")}
        errors = {e: float(np.mean(r["share_error"])) for e, r in made.items() if len(r["share"])}
        told = min((e for e in errors if np.isfinite(errors[e])), key=errors.__getitem__, default=None)
        if told:
            lines = [Series(told, *(made[told][n] for n in ("hour", "share", "share_error")))]
            hours.append(
                Panel(name, f"hour ({ZONES.get(name, 'UTC')})", "share of changes", lines, named=False)
            )
        r = _all(out / name / "intervals.parquet", "corrected")
        some = (r["share"] > 1e-6) & np.isfinite(r["to_hours"])
        middle = np.sqrt(np.maximum(r["from_hours"], 0.1) * r["to_hours"])[some]
        line = [Series("corrected", middle, r["share_per_hour"][some])]
        waits.append(Panel(name, "hours to the next change", "share per hour", line, True, True, named=False))
    return [
        Picture("dynamics-hours", "Hours of changes", hours, across=3),
        Picture("dynamics-waits", "Waits from a change to the next", waits, across=3),
    ]


def _all(path: Path, estimate: str) -> dict[str, FloatArray]:
    """Rows of all pages by one estimate."""
    table = pq.read_table(path)
    mask = pc.and_(pc.equal(table["by"], "all"), pc.equal(table["estimate"], estimate))
    rows = table.filter(mask)
    return {n: rows[n].to_numpy() for n in rows.schema.names if n not in ("by", "group", "estimate", "peak")}


def main(argv: Sequence[str] | None = None) -> int:
    """Run one after the other."""
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("names", nargs="*", default=list(HISTORIES), help="(default: all)")
    p.add_argument("--out", type=Path, default=Path("build/dynamics"))
    p.add_argument("--sparse", type=int, default=1)
    p.add_argument("--seed", type=int, default=0)
    p.add_argument("--pictures", type=Path, help="only draw what these runs have left, into this folder")
    parsed = p.parse_args(sys.argv[1:] if argv is None else argv)
    if parsed.pictures:
        for drawn in [picture(parsed.out, parsed.sparse), *all_histories(parsed.out)]:
            for file, content in draw(drawn, ["png"]).items():
                (parsed.pictures / file).write_bytes(content)
        return 0
    for name in parsed.names:
        if not (shared_folder() / "data" / name / "events.tsv.gz").exists():
            print(f"skipped: no {name} in {shared_folder()}; set RECRAWL_SHARED")
            continue
        folder = parsed.out / (name if parsed.sparse == 1 else f"{name}-{parsed.sparse}-{parsed.seed}")
        options = inputs(name, folder / "inputs", parsed.sparse, parsed.seed)
        print(f"\n## {folder.name}\n", flush=True)
        if code := cli.main(["dynamics", *options, f"--output={folder}", "--workers=1"]):
            return code
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
