"""How true is a backtest of a crawl log? Real histories are crawled, and the log's answers put beside theirs.

    python -m benchmarks.replay.backtest_logs [NAME ...] [--pages N]

Each history is replayed three times with the same pages, nights, budgets and equal weights: as it is, by the
log of a crawler that visits every page at a fixed distance and keeps digests only, and by that log with one
change to a gap, as if nothing were drawn. Histories that are absent are skipped, see
`benchmarks.replay.backtest_histories`.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from unittest import mock

import numpy as np
import pyarrow as pa

from benchmarks.measuring.histories import shared_folder
from benchmarks.replay.backtest_histories import convert
from policies.history.page_state import US_PER_DAY
from policies.numerics.typing_ import FloatArray, IntArray
from transforms.batches import schemas
from transforms.batches.urls import HostTable
from transforms.intake.sources import ROWS, plan_files, read_split
from transforms.replay import replaying
from transforms.replay.backtesting import EQUAL, Trial, Weighting, play
from transforms.replay.replaying import ReplaySettings, build_world
from transforms.replay.worlds import World
from transforms.rows.normalise import CHANGES, KINDS, normalise

HISTORIES = {
    "ota_contrib": ("2024-01-01", "2024-07-01", 10.0),
    "pages_swiss": ("2024-01-01", "2024-07-01", 5.0),
    "docs_sitemap": ("2026-02-01", "2026-06-01", 5.0),
    "prices_tcg": ("2026-03-01", "2026-06-15", 5.0),
    "api_status": ("2017-09-15", "2017-11-24", 1.0),
}
PARTS = (0.25, 0.5, 1.0)
POLICIES = ("recrawl", "uniform", "nutch-adaptive", "heritrix")
SEED = 0


def truth(folder: Path, settings: ReplaySettings) -> World:
    """The history itself, of pages that are there before its end."""
    with tempfile.TemporaryDirectory() as out:
        convert(folder, Path(out))
        splits = plan_files(f"{out}/changes.parquet", "changes", True)
        batches = [b for s in splits for tag, b in read_split(s, CHANGES, None, HostTable()) if tag == ROWS]
    world = build_world(batches, settings).world
    return World(world.history, world.url, world.url_hash, world.host_hash, world.host, world.hosts)


def crawled(world: World, every: float) -> pa.RecordBatch:
    """Its crawl log: every page at a distance of so many days, from the page's own phase on."""
    past, n = world.history, len(world)
    rng = np.random.Generator(np.random.Philox(key=SEED))
    first = np.maximum(past.first_us, past.start_us - round(every * US_PER_DAY))
    number = int((past.end_us - past.start_us) / US_PER_DAY / every) + 2
    at_us = first[:, None] + ((rng.random((n, 1)) + np.arange(number)) * every * US_PER_DAY).astype(np.int64)
    inside = at_us < past.end_us
    page, at_us = np.broadcast_to(np.arange(n)[:, None], inside.shape)[inside], at_us[inside]
    columns = {
        "url": world.url.take(pa.array(page)),
        "fetched_at": pa.array(at_us).cast(schemas.TIME),
        "digest": [str(v) for v in past.version(page, at_us)],
    }
    return normalise(KINDS["observations"], pa.RecordBatch.from_pydict(columns), "log").rows


def one_a_gap(key: IntArray, at_us: IntArray, gap_us: IntArray, *_: object) -> tuple[IntArray, ...]:
    """What a log shows, at a random instant of its gap."""
    rng = np.random.Generator(np.random.Philox(key=SEED))
    back = (rng.random(len(key)) * gap_us).astype(np.int64)
    return np.arange(len(key)), at_us - back, np.ones(len(key), np.bool_)


def asked(fresh: FloatArray, budgets: FloatArray, target: float) -> str:
    """Budget for a target that is in truth reached at the second of three, as a difference to that."""
    x, y = np.log(budgets / budgets[1]), np.log(fresh / (1 - fresh)) - np.log(target / (1 - target))
    if y[0] > 0:
        return f"below {100 * np.expm1(x[0]):+.0f} %"
    return f"{100 * np.expm1(np.interp(0.0, y, x)):+.0f} %"


def compare(name: str, max_pages: int) -> str:
    """A line of the table."""
    start, end, every = HISTORIES[name]
    window = [int(np.datetime64(t, "us").astype(np.int64)) for t in (start, end)]
    settings = ReplaySettings(*window, max_pages, SEED)
    true = truth(shared_folder() / "data" / name, settings)
    log = crawled(true, every)
    drawn = build_world([log], settings)
    with mock.patch.object(replaying.imputation, "changes", one_a_gap):
        single = build_world([log], settings)
    kept = np.isin(true.url_hash, drawn.world.url_hash)
    # A page is known from its first crawl on.
    known = np.maximum(true.history.first_us[kept], drawn.world.history.first_us)
    true = true.of_pages(kept)
    true = replace(true, history=replace(true.history, first_us=known))
    budgets = [float(f"{part * drawn.facts.crawls_per_page_day:.2g}") for part in PARTS]
    worlds = [true, single.world, drawn.world]
    weighting = (Weighting(EQUAL),)
    fresh = np.array(
        [[[play(w, Trial(p, b, weighting))[0].accuracy for b in budgets] for p in POLICIES] for w in worlds]
    )
    off = 100 * (fresh[1:] - fresh[0])
    apart = off[:, 1:] - off[:, :1]
    need = [asked(f[0], np.array(budgets), fresh[0, 0, 1]) for f in fresh[1:]]
    changes = [
        int(np.count_nonzero((w.history.change_us >= w.start_us) & (w.history.change_us < w.end_us)))
        for w in worlds
    ]
    cells = [
        f"{name}, {len(true)} pages",
        f"{every:g} days, {100 * drawn.facts.found:.0f} %",
        " / ".join(f"{c:,}" for c in changes),
        " / ".join(f"{x:+.1f}" for x in off[:, 0].mean(axis=1)),
        " / ".join(need),
        " / ".join(f"{x:.1f}" for x in np.abs(off).mean(axis=(1, 2))),
        " / ".join(f"{x:.1f}" for x in np.abs(apart).mean(axis=(1, 2))),
    ]
    return "| " + " | ".join(cells) + " |"


def main(argv: Sequence[str] | None = None) -> int:
    """Print the table, a history after the other."""
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("names", nargs="*", default=list(HISTORIES), help="(default: all)")
    p.add_argument("--pages", type=int, default=300, help="at most, by hash (default %(default)s)")
    parsed = p.parse_args(argv)
    print(
        "| history | crawled every, found a change | changes: true / one a gap / drawn "
        "| recrawl, points too fresh: one a gap / drawn | budget asked for | all four policies, points off "
        "| differences, points off |"
    )
    print("| --- | --- | ---: | ---: | ---: | ---: | ---: |")
    for name in parsed.names:
        if not (shared_folder() / "data" / name / "events.tsv.gz").exists():
            print(f"skipped: no events.tsv.gz of {name}; set RECRAWL_SHARED")
            continue
        print(compare(name, parsed.pages), flush=True)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
