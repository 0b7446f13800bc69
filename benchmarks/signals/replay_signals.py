"""Freshness with and without change signals, in a closed loop on a real history.

    python -m benchmarks.signals.replay_signals [--budgets 0.2 0.5 1] [--draws 5] [--modes NAME ...] [--flood]
        [--without PART] [--second_source]

A crawler follows the nightly schedule through the history `docs_sitemap` of the workshop (skipped with a note
where that is absent; set RECRAWL_SHARED to its folder, or give --data): each night folds the day's crawls and
sitemap dates, estimates, solves and schedules in this process. Scored is the share of requests that find a
fresh copy, exact from the times of changes; the first part of the window is not scored. All modes see the
same changes and signals, so their differences are paired: standard errors are those over blocks of days, and
for Zipf weights those over draws of the weights besides, added in squares.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import nullcontext
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np

from benchmarks.measuring.histories import US_PER_DAY, PolledWorld, read_polls, read_world, shared_folder
from benchmarks.signals.signal_modes import MODES
from policies.numerics.typing_ import FloatArray, IntArray
from policies.sequencing import bursts
from policies.signals import host_signals
from policies.signals.bundles import Bundles
from policies.signals.forecast import SignalForecast
from policies.simulation.metrics import by_period, zipf_weights
from transforms.kept import predictions
from transforms.night import trusting
from transforms.replay.closed_loop import ClosedLoop, Crawls, Run
from transforms.replay.job_nights import JobNights, JobOptions

GROUPS = {"all": (0, 1), "with signals": (1,), "without": (0,)}
DECILES = 10
TIMES = ("polled", "spread", "dated")
FLOOD_SOURCES, FLOOD_BUDGET = ("sitemap", "indexnow"), 0.5

# By part that may be taken out: what is put in place of what.
PARTS: dict[str, tuple[Any, str, Any]] = {
    "bursts": (bursts, "allowance", lambda *_: np.inf),
    "credible": (host_signals, "_page_cut", lambda heard, *_: (heard.running, heard.running)),
    "bundles": (trusting, "choose_bundles", lambda share, signals: Bundles.none(*signals.shape)),
    "forecasts": (predictions, "signal_forecast_of", lambda slots, code, n, _: SignalForecast.empty(n)),
    "holding": (trusting, "hold_to_changes", lambda pooled, *_: pooled),
    "silence": (trusting, "_silent", lambda found, _s, _g, n, _t: np.zeros((n, len(found.sources)), bool)),
}


@dataclass(frozen=True)
class Job:
    """One run: a mode, a budget in crawls per page and day, a draw of weights (0: equal ones)."""

    mode: str
    budget: float
    draw: int
    max_signal_shift: float = 0.005


@dataclass(frozen=True)
class Score:
    """What is kept of a run.

    Attributes
    ----------
    fresh, held : (nights, 2) float64
        See `freshness`.
    crawls : Crawls
        Of the second half of the window.
    slots : (nights, hosts) int64
    trust : list of dict
    seconds : float
        Per night.
    """

    fresh: FloatArray
    held: FloatArray
    crawls: Crawls
    slots: np.ndarray
    trust: list[dict[str, tuple[float, float]]]
    seconds: float


def follow(world: PolledWorld, job: Job, nights: int | None = None) -> tuple[Run, FloatArray]:
    """Make one run; returns the weights, too."""
    weight = zipf_weights(len(world), job.draw) if job.draw else np.ones(len(world))
    mode, _, hours = job.mode.partition("@")
    horizon_us = US_PER_DAY * int(hours or 24) // 24
    options = JobOptions(job.max_signal_shift, horizon_us=horizon_us)
    planner = JobNights(world, MODES[mode](world), job.budget, weight, options)
    return ClosedLoop(world, planner, horizon_us=horizon_us).run(nights), weight


def freshness(world: PolledWorld, crawls: Crawls, weight: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Weight times days of fresh copies and of known pages in each day, of pages without and with signals."""
    edges = np.append(world.nights(), world.nights()[-1] + US_PER_DAY)
    group: IntArray = world.signalled.astype(np.int64)
    fresh, held = by_period(world.history, crawls.page, crawls.at_us, edges, weight, group)
    return tuple(np.pad(v, ((0, 0), (0, 2 - v.shape[1]))) for v in (fresh, held))  # type: ignore[return-value]


def play(world: PolledWorld, job: Job, nights: int | None = None) -> Score:
    """Make one run and score it."""
    run, weight = follow(world, job, nights)
    crawls = run.crawls
    late = (crawls.at_us > (world.start_us + world.end_us) // 2) & ~crawls.free
    fresh, held = freshness(world, crawls, weight)
    return Score(fresh, held, crawls.take(late), run.slots, run.trust, float(run.seconds.mean()))


def play_all(world: PolledWorld, jobs: Sequence[Job], processes: int) -> dict[Job, Score]:
    """Make all runs, in the order of `jobs` or at the same time."""
    scores: dict[Job, Score] = {}
    with ProcessPoolExecutor(processes) if processes > 1 else nullcontext() as pool:
        for job, score in zip(
            jobs, (pool.map if pool else map)(play, [world] * len(jobs), jobs), strict=True
        ):
            scores[job] = score
            fresh = 100.0 * share(score.fresh, score.held, "all", len(score.fresh) * 2 // 5)
            print(f"{job}: {fresh:.2f} % fresh, {score.seconds:.3f} s a night", file=sys.stderr, flush=True)
    return scores


def share(values: FloatArray, held: FloatArray, group: str, first: int) -> float:
    """Share of the time held that is `values`, from the night `first` on."""
    columns = list(GROUPS[group])
    return float(values[first:, columns].sum() / held[first:, columns].sum())


def block_error(values: FloatArray, held: FloatArray, group: str, first: int, days: int) -> float:
    """Standard error of `share`, blocks of days being clusters (Cochran, Sampling Techniques, 6.3)."""
    columns = list(GROUPS[group])
    y, x = (v[first:, columns].sum(axis=1) for v in (values, held))
    block = np.arange(len(y)) // days
    y, x = np.bincount(block, y), np.bincount(block, x)
    off = y - y.sum() / x.sum() * x
    n = len(y)
    return float(np.sqrt(n / max(n - 1, 1) * (off**2).sum()) / x.sum())


def compare(
    scores: dict[Job, Score],
    modes: Sequence[str],
    budget: float,
    draws: Sequence[int],
    group: str,
    first: int,
    days: int,
) -> list[str]:
    """Freshness in percent of the first mode, and differences to it of the others, over draws of weights."""
    of = {
        m: [s for j, s in scores.items() if j.mode == m and j.budget == budget and j.draw in draws]
        for m in modes
    }
    base = of[modes[0]]
    each = [share(s.fresh, s.held, group, first) for s in base]
    held = sum(s.held / s.held.sum() for s in base)
    cells = [f"{100 * np.mean(each):.2f}"]
    for mode in modes[1:]:
        gains = [s.fresh - b.fresh for s, b in zip(of[mode], base, strict=True)]
        gain = [share(g, s.held, group, first) for g, s in zip(gains, base, strict=True)]
        together = sum(g / s.held.sum() for g, s in zip(gains, base, strict=True))
        error = block_error(together, held, group, first, days)
        if len(draws) > 1:
            error = np.hypot(error, np.std(gain, ddof=1) / np.sqrt(len(draws)))
        cells.append(f"{100 * np.mean(gain):+.2f} ± {100 * error:.2f}")
    return cells


def reliability(world: PolledWorld, crawls: Crawls) -> list[list[str]]:
    """Predicted and found changes by decile of the prediction.

    Standard errors are those over days, or of independent crawls where these are larger: where all crawls but
    two of a hundred find a change, the days say nothing of chance.
    """
    p, found = crawls.predicted, crawls.changed.astype(np.float64)
    night = (crawls.at_us - world.start_us) // US_PER_DAY
    edges = np.quantile(p, np.arange(1, DECILES) / DECILES)
    place = np.searchsorted(edges, p, side="right")
    rows = []
    for name, use in [
        *((str(i + 1), place == i) for i in range(DECILES)),
        ("all", np.ones(len(p), np.bool_)),
    ]:
        if not use.any():
            continue
        n = int(use.sum())
        off = np.bincount(night[use], (found - p)[use])
        alone = (p * (1.0 - p))[use].sum()
        error = float(np.sqrt(max((off**2).sum(), alone))) / n
        difference = float((found - p)[use].mean())
        z = difference / error if error > 0 else 0.0
        rows.append(
            [
                name,
                f"{n:,}",
                f"{p[use].mean():.4f}",
                f"{found[use].mean():.4f}",
                f"{difference:+.4f} ± {error:.4f}",
                f"{z:+.1f}",
            ]
        )
    return rows


def quality(world: PolledWorld, trust: dict[str, tuple[float, float]]) -> list[list[str]]:
    """Learned precision and recall of each source beside those of all signals of its host in the history."""
    truth = world.true_quality()
    none = (float("nan"), float("nan"))
    rows = []
    for name, learned in sorted(trust.items()):
        pairs = zip(learned, truth.get(name.split(",")[0], none), strict=True)
        rows.append([name, *(f"{v:.3f}" for pair in pairs for v in pair)])
    return rows


def flood(
    world: PolledWorld, job: Job, flooded: PolledWorld, host: str, night: int, after: int
) -> list[list[str]]:
    """What a flood of pings for one host does to the slots of the others and to the trust in that host."""
    calm, wet = (play(w, job, night + after) for w in (world, flooded))
    others = np.arange(len(world.hosts)) != world.hosts.index(host)
    rows = []
    for n in sorted({1, min(3, after), after}):
        slots = [s.slots[night : night + n] for s in (calm, wet)]
        one, other = (s[:, others].sum() for s in slots)
        moved = 100.0 * (one - other) / np.array([one, slots[0].sum()])
        cells = [str(n), str(one), str(other), *(f"{m:.2f} %" for m in moved)]
        for source in flooded.signals.sources:
            nights = (wet.trust[night - 1], calm.trust[night + n - 1], wet.trust[night + n - 1])
            found = [t.get(f"{host}, {source}") for t in nights]
            cells.append(" / ".join("-" if f is None else f"{f[0]:.3f}" for f in found))
        rows.append(cells)
    return rows


def report_flood(world: PolledWorld, options: argparse.Namespace) -> list[str]:
    """Floods of a source that the history has and of a new one, in every mode."""
    nights = len(world.nights())
    host = options.flood_host or world.hosts[int(world.host[world.signalled][0])]
    night = round(0.7 * nights)
    after = min(7, nights - night)
    parts = []
    for source in FLOOD_SOURCES:
        flooded = world.flooded(host, options.flood, night, source)
        trusts = (f"precision of {s}: before / after without / with" for s in flooded.signals.sources)
        head = ["nights", "slots of others", "flooded", "moved, of theirs", "of all", *trusts]
        for mode in options.modes:
            parts.append(
                f"{options.flood} pings from {source} for pages of {host} that do not change, in the day "
                f"before night {night + 1}: {mode}, {FLOOD_BUDGET:g} crawls per page and day"
            )
            job = Job(mode, FLOOD_BUDGET, 0, options.max_signal_shift)
            parts.append(markdown(head, flood(world, job, flooded, host, night, after)))
    return parts


def markdown(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table with a head."""
    return "\n".join("| " + " | ".join(r) + " |" for r in (head, ["---"] * len(head), *rows))


def report(world: PolledWorld, options: argparse.Namespace) -> str:
    """Run and tell."""
    modes, budgets, draws = options.modes, options.budgets, range(1, options.draws + 1)
    nights = len(world.nights())
    first = round(options.warm_up * nights)
    jobs = [Job(m, b, d, options.max_signal_shift) for b in budgets for d in (0, *draws) for m in modes]
    scores = play_all(world, jobs, options.jobs)
    n_signalled = int(world.signalled.sum())
    parts = [
        f"{len(world)} pages, {n_signalled} of them with signals; {len(world.history.change_page)} changes, "
        f"{len(world.signals.page)} signals; {nights} nights, scored from the {first + 1}th on; blocks of "
        f"{options.block_days} days; {np.mean([s.seconds for s in scores.values()]):.3f} s a night."
    ]
    rows = []
    for name, which in (("equal", [0]), (f"Zipf ({len(draws)})", list(draws))):
        for budget in budgets if which else ():
            for group in GROUPS:
                cells = compare(scores, modes, budget, which, group, first, options.block_days)
                rows.append([name, f"{budget:g}", group, *cells])
    head = ["weights", "crawls/page/day", "pages", f"{modes[0]}, fresh %", *(f"{m}, gain" for m in modes[1:])]
    parts.append(markdown(head, rows))
    for mode in modes:
        for budget in budgets:
            score = scores[Job(mode, budget, 0, options.max_signal_shift)]
            of_signalled = world.signalled[score.crawls.page]
            for name, use in (("all pages", of_signalled >= 0), ("pages with signals", of_signalled)):
                parts.append(
                    f"Predicted and found, {name}: {mode}, {budget:g} crawls per page and day, second half"
                )
                head = ["decile", "crawls", "predicted", "found", "difference", "z"]
                parts.append(markdown(head, reliability(world, score.crawls.take(use))))
            if score.trust[-1]:
                head = ["host, source", "precision learned", "true", "recall learned", "true"]
                parts.append(markdown(head, quality(world, score.trust[-1])))
    if options.flood:
        parts += report_flood(world, options)
    return "\n\n".join(parts)


def _instant(text: str, hour: float) -> int:
    moment = datetime.fromisoformat(text).replace(tzinfo=UTC)
    return int(moment.timestamp() * 1e6) + round(hour * 3.6e9)


def parser() -> argparse.ArgumentParser:
    """Options."""
    raw = argparse.RawDescriptionHelpFormatter
    p = argparse.ArgumentParser(description=__doc__, formatter_class=raw)
    p.add_argument("--data", type=Path, help="folder of the history (default: docs_sitemap of the workshop)")
    p.add_argument("--budgets", type=float, nargs="+", default=[0.2, 0.5, 1.0], help="crawls/page/day")
    p.add_argument("--draws", type=int, default=5, help="draws of Zipf weights, besides equal ones")
    p.add_argument(
        "--modes",
        nargs="+",
        default=list(MODES),
        choices=[f"{mode}{every}" for mode in MODES for every in ("", "@12", "@6", "@3", "@1")],
        metavar="MODE[@HOURS]",
        help=f"of {', '.join(MODES)}; with @6 a plan every 6 hours (12, 6, 3 or 1) in place of one a night",
    )
    p.add_argument("--start", default="2026-01-15")
    p.add_argument("--end", default="2026-07-01")
    p.add_argument("--hour", type=float, default=6.0, help="of the day, UTC, when the night runs")
    p.add_argument("--warm_up", type=float, default=0.4, help="share of the window that is not scored")
    p.add_argument("--block_days", type=int, default=7)
    p.add_argument(
        "--times",
        default="dated",
        choices=TIMES,
        help="of changes and signals: when they were polled; changes spread between polls; or both at the "
        "lastmod where it tells of a change, other changes spread (default: %(default)s)",
    )
    p.add_argument("--max_signal_shift", type=float, default=0.005, help="as the job's option")
    p.add_argument("--hosts", nargs="+", help="only pages of these hosts")
    p.add_argument(
        "--junk", type=float, default=0.0, help="false signals per page and day for hosts without any"
    )
    p.add_argument(
        "--flood", type=int, nargs="?", const=10_000, default=0, help="pings for one host on one day"
    )
    p.add_argument("--flood_host", help="(default: one with signals)")
    p.add_argument("--without", choices=PARTS, help="a part of the job that is taken out")
    p.add_argument("--second_source", action="store_true", help="pings that mostly repeat the signals")
    p.add_argument("--jobs", type=int, default=1, help="processes")
    p.add_argument("--out", type=Path, help="also write the report here")
    return p


def main(argv: Sequence[str] | None = None) -> int:
    """Print the report."""
    options = parser().parse_args(argv)
    folder = options.data or shared_folder() / "data" / "docs_sitemap"
    if not (folder / "events.tsv.gz").exists():
        print(f"skipped: no events.tsv.gz in {folder}; set RECRAWL_SHARED or give --data")
        return 0
    start, end = (_instant(t, options.hour) for t in (options.start, options.end))
    world = read_world(folder, start, end)
    if options.hosts:
        world = world.of_hosts(options.hosts)
    polls = read_polls(folder, "content")
    if options.times != "polled":
        world = world.spread(0, polls) if options.times == "spread" else world.dated(0, polls)
    if options.junk:
        quiet = np.bincount(world.host[world.signalled], minlength=len(world.hosts)) == 0
        for code in np.flatnonzero(quiet):
            world = world.with_junk(world.hosts[code], options.junk, "sitemap", int(code))
    if options.second_source:
        world = world.told_twice("ping")
    out = mock.patch.object(*PARTS[options.without]) if options.without else nullcontext()
    with out:
        text = report(world, options)
    print(text)
    if options.out:
        options.out.write_text(text + "\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
