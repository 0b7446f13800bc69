"""What failures cost the discovery job, and how soon sources are seen again that were away.

    python -m benchmarks.discovery.failing_sources [--domains 6] [--sources 40] [--budget 3]
        [--hours 24] [--kind day]

A crawler follows the schedules of `recrawl discover` on drawn domains for three weeks. Kinds: `day`, each
source is away for a day or so every ten days; `mixed`, also for hours every three days, and one in five goes
for good; `flaky`, every fifth fetch fails.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.discovery.bench_discovery import settings
from pipelines.discovery.discover import run_job
from policies.discovery import drawn, metrics
from policies.discovery.presences import US_PER_HOUR, Presences
from policies.discovery.replay import Run
from policies.numerics.typing_ import BoolArray, IntArray

DAYS, WARM_UP_HOURS = 21, 48.0
KINDS = ("day", "mixed", "flaky")
Outages = list[tuple[int, int, int]]
"""Source, first hour, and the hour after the last."""


def with_failures(history: Presences, kind: str, seed: int) -> tuple[Presences, Outages]:
    """A history without the polls that fail."""
    rng = np.random.default_rng([seed, 99])
    away: BoolArray = np.zeros((history.sources, history.steps), np.bool_)
    outages: Outages = []

    def spells(first: float, between: float, least: float, mean: float) -> None:
        for source in range(history.sources):
            at = first + rng.exponential(between)
            while at < history.steps:
                hours = least + rng.exponential(mean)
                begin, end = int(at), int(min(at + hours, history.steps))
                if end > begin and not away[source, max(begin - 1, 0) : end + 1].any():
                    away[source, begin:end] = True
                    outages.append((source, begin, end))
                at += hours + rng.exponential(between)

    if kind == "mixed":
        spells(0.0, 72.0, 1.0, 3.0)
    if kind != "flaky":
        spells(48.0, 240.0, 6.0, 24.0)
    if kind == "mixed":
        for source in rng.choice(history.sources, history.sources // 5, replace=False):
            away[source, rng.integers(48, history.steps) :] = True
    if kind == "flaky":
        away |= rng.random(away.shape) < 0.2
    step = (history.poll_us - history.start_us) // history.step_us
    keep = ~away[history.poll_source, np.clip(step, 0, history.steps - 1)]
    return replace(history, poll_source=history.poll_source[keep], poll_us=history.poll_us[keep]), outages


def followed(history: Presences, budget: int, hours: int, folder: Path) -> tuple[IntArray, list[np.ndarray]]:
    """When targets are found, and when each source was asked and whether it answered, hours."""
    url = [f"https://www.site{s % 7}.test/section/{s}" for s in range(history.sources)]
    number = {name: s for s, name in enumerate(url)}
    (folder / "sources.csv").write_text("\n".join(["url", *url]))
    found, asked = np.full(history.targets, history.steps), [np.zeros((0, 2))] * history.sources
    more: list[str] = []
    for step in range(0, history.steps, hours):
        out, at = folder / f"night{step}", history.start_us // 1_000_000 + 3600 * step
        words = (
            f"--budget={24 * budget}", f"--horizon_hours={hours}", "--num_shards=1", "--least_hours=1",
            "--max_rejected_fraction=1", f"--as_of={np.datetime64(at, 's')}Z",
            f"--sources={folder}/sources.csv",
        )  # fmt: skip
        with contextlib.redirect_stderr(io.StringIO()):
            run_job(settings(out, *words, *more))
        rows: list[tuple[str, str | None, int, int]] = []
        for path in sorted(out.glob("schedule/shard-*")):
            for row in pq.read_table(path).to_pylist():
                source, due_us = number[row["url"]], int(row["due_at"].timestamp() * 1e6)
                hour = (due_us - history.start_us) / US_PER_HOUR
                poll = int(history.shown[int(hour), source])
                asked[source] = np.vstack([asked[source], [hour, poll >= 0]])
                if poll < 0:
                    rows.append((row["url"], None, due_us, 503))
                    continue
                target = history.target[history.at(np.array([poll]))[1]]
                found[target] = np.minimum(found[target], int(hour))
                site = row["url"].partition("/section")[0]
                seen = int(history.poll_us[poll])
                rows += [(row["url"], f"{site}/article/{t}", seen, 200) for t in target] or [
                    (row["url"], None, seen, 200)
                ]
        columns = list(zip(*dict.fromkeys(rows), strict=True)) or [()] * 4
        types = pa.string(), pa.string(), pa.timestamp("us", tz="UTC"), pa.int64()
        table = pa.table([pa.array(c, t) for c, t in zip(columns, types, strict=True)], _NAMES)
        pq.write_table(table, folder / f"links{step}.parquet")
        more = [f"--state={out}", f"--links={folder}/links{step}.parquet"]
    return found, asked


_NAMES = ["source", "target", "seen_at", "status"]


def back(outages: Outages, asked: Sequence[np.ndarray], steps: int) -> list[float]:
    """Hours from the end of each outage that was noticed until the source is seen again."""
    found = []
    for source, begin, end in outages:
        hour, answered = asked[source].T
        later = np.sort(hour[(answered > 0) & (hour >= end)])
        if (
            begin >= WARM_UP_HOURS
            and ((hour >= begin) & (hour < end)).any()
            and (len(later) or steps - end > 48)
        ):
            found.append(float(later[0] if len(later) else steps) - end)
    return found


def measured(kind: str, seed: int, sources: int, budget: int, hours: int) -> tuple[float, ...]:
    """Of a domain: coverage, found within 3 hours, share of asks that fail, and hours until sources are back:
    mean, 90th percentile."""
    history, outages = with_failures(drawn.draw(seed, 0, sources, 24 * DAYS), kind, seed)
    with tempfile.TemporaryDirectory() as name:
        found, asked = followed(history, budget, hours, Path(name))
    refreshes = np.zeros((1, 1, history.steps), np.int64)
    job = metrics.judge(history, Run(found[None], refreshes), WARM_UP_HOURS)
    answered = np.concatenate(asked)[:, 1]
    away = back(outages, asked, history.steps) or [np.nan]
    return (
        float(job.coverage[0, 0]), float(job.within[1, 0, 0]), 1.0 - float(answered.mean()),
        float(np.mean(away)), float(np.percentile(away, 90)),
    )  # fmt: skip


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    for name, value in (("domains", 6), ("sources", 40), ("budget", 3), ("hours", 24)):
        parser.add_argument(f"--{name}", type=int, default=value)
    parser.add_argument("--kind", choices=KINDS, default=KINDS[0])
    given = parser.parse_args(argv)
    rest = given.sources, given.budget, given.hours
    rows = np.array([measured(given.kind, seed, *rest) for seed in range(1, given.domains + 1)])
    error = rows.std(axis=0, ddof=1) / np.sqrt(len(rows)) if len(rows) > 1 else np.full(5, np.nan)
    heads = "coverage", "within 3 h", "failed asks", "hours until back", "90 %"
    for head, mean, by in zip(heads, rows.mean(axis=0), error, strict=True):
        print(f"{head:<18}{mean:8.4f} +- {by:.4f}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
