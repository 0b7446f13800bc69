"""What the hazard model of changes would add to the forecasts of the nightly job, forward in time.

    python -m benchmarks.judging.replay_predictors [NAME:BUDGET ...] [--repetitions 3] [--out FOLDER]

A closed loop on real histories (`benchmarks.replay.backtest_histories`) notes each judged crawl of the
nightly job: what its night expected by rates alone, and by which factor it corrected that
(`policies.judging`). The model (`policies.predictors.hazard`) is then fitted each week on the crawls of the
60 days before, in place of the factors and on top of them, and is left out of hosts where it has lost so
far, as factors are. Said is what forecasts gain, nats per 1,000 crawls, after the first quarter of the
nights; errors are over repetitions, with other instants of first crawls.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np

from benchmarks.measuring.histories import shared_folder
from benchmarks.replay.backtest_histories import HISTORIES, convert
from pipelines.door import cli
from policies.history.interval_sums import Intervals
from policies.history.page_state import US_PER_DAY
from policies.judging.host_factors import HALF_LIFE_DAYS, pays
from policies.judging.recalibration import log_score_gain
from policies.numerics.typing_ import BoolArray, FloatArray, IntArray
from policies.predictors.hazard import Hazard
from policies.predictors.rows import WINDOWS_DAYS, Rows
from policies.simulation.predicting import LEARN_DAYS, MOST_LEARNED, REFIT_DAYS
from transforms.kept.predictions import ShardPredictions

CASES = (
    "prices_tcg:0.3", "pages_swiss:0.1", "docs_sitemap:0.1", "api_pypistats:1", "software_releases:0.05",
    "ota_contrib:0.1", "news_articles_nu:0.3",
)  # fmt: skip
_US_PER_HOUR = US_PER_DAY // 24


@dataclass(frozen=True)
class Log:
    """k intervals between crawls, sorted by page and time; log hazards are NaN where nothing was foretold."""

    page: IntArray
    host: IntArray
    at_us: IntArray
    gap_us: IntArray
    changed: BoolArray
    log_rate: FloatArray
    log_hazard: FloatArray
    corrected: FloatArray


def noted(inputs: Sequence[str], name: str, budget: str, repetitions: int, out: Path) -> list[Log]:
    """The crawls of each run."""
    runs: list[list[tuple[np.ndarray, ...]]] = []
    latest_us = [1 << 62]
    watch = ShardPredictions.watch

    def recorded(self: ShardPredictions, first_page: int, intervals: Intervals) -> None:
        now = self._of_signals.others(first_page, intervals)
        forecast, of = self._factors._watch._forecast, now.page + first_page
        row, days = forecast.row[of], now.length_us / US_PER_DAY
        some, factor = np.flatnonzero(row >= 0), self._factors.of(first_page, now)
        rate, hazard = (np.full(len(of), np.nan) for _ in range(2))
        rate[some] = np.log(forecast.change_rate_per_day[row[some]])
        hazard[some] = np.log(np.maximum(-forecast.log_unchanged(row[some], days[some]), 1e-12))
        factor = np.ones(len(of)) if factor is None else factor
        if len(of):
            if now.at_us.max() < latest_us[0] - 20 * US_PER_DAY:  # the next run, one after the other
                runs.append([])
                latest_us[0] = 0
            latest_us[0] = max(latest_us[0], int(now.at_us.max()))
            runs[-1].append(
                (self._pages.url_hash[of], self._pages.host_hash[of], now.at_us, now.gap_us, now.changed,
                 rate, hazard, hazard_at(forecast, row, days, factor, some))
            )  # fmt: skip
        watch(self, first_page, intervals)

    start, end, _ = HISTORIES[name]
    given = ["backtest", *inputs, f"--start={start}", f"--end={end}", "--weights=equal", "--no_plots"]
    given += ["--policies=recrawl", f"--budgets={budget}", "--workers=1", f"--output={out}"]
    with mock.patch.object(ShardPredictions, "watch", recorded):
        if cli.main([*given, f"--repetitions={repetitions}"]):
            raise SystemExit(1)
    return [log_of(found) for found in runs]


def log_of(found: list[tuple[np.ndarray, ...]]) -> Log:
    """Of parts of pages and nights."""
    page, host, at, *rest = (np.concatenate(column) for column in zip(*found, strict=True))
    codes = [np.unique(x, return_inverse=True)[1].astype(np.int64) for x in (page, host)]
    order = np.lexsort((at, codes[0]))
    return Log(*(x[order] for x in (*codes, at, *rest)))


def hazard_at(forecast: Any, row: Any, days: FloatArray, factor: FloatArray, some: IntArray) -> FloatArray:
    """Log cumulative hazards with factors."""
    found = np.full(len(days), np.nan)
    unchanged = forecast.log_unchanged(row[some], days[some] * factor[some])
    found[some] = np.log(np.maximum(-unchanged, 1e-12))
    return found


def features(log: Log) -> Rows:
    """What was known of each page when the interval began, and of its host at the midnight before its end."""
    start, first_day = log.at_us - log.gap_us, int((log.at_us - log.gap_us).min() // US_PER_DAY)
    key = log.page << 40
    found = (key + log.at_us // 1_000_000)[log.changed]

    def until(at_us: IntArray) -> IntArray:
        return np.searchsorted(found, key + np.maximum(at_us // 1_000_000, 0), side="right")

    here = until(start)
    count = np.stack([here - until(start - int(d * US_PER_DAY)) for d in WINDOWS_DAYS]).astype(np.float64)
    last = np.append(found, -1)[here - 1]
    ever = (here > 0) & (last >> 40 == log.page)
    begin = start[np.searchsorted(log.page, log.page)]
    since = (start - np.where(ever, (last & ((1 << 40) - 1)) * 1_000_000, begin)) / US_PER_DAY
    # Of hosts by day: changes found in a month, and days since the last one, of all pages.
    pages, days = int(log.page[-1]) + 1, int(log.at_us.max() // US_PER_DAY) - first_day + 2
    day = log.at_us // US_PER_DAY - first_day
    by_day, last_day = np.zeros((pages, days)), np.full((pages, days), -np.inf)
    np.add.at(by_day, (log.page[log.changed], day[log.changed] + 1), 1.0)
    total = np.cumsum(by_day, axis=1)
    month = total - np.pad(total, ((0, 0), (30, 0)))[:, :days]
    last_day[log.page, start // US_PER_DAY - first_day] = 0.0
    seen = np.maximum.accumulate(last_day, axis=1) == 0.0
    born = np.argmax(seen, axis=1)
    place = np.where(by_day > 0.0, np.arange(days), born[:, None])
    calm = np.where(seen, np.arange(days) - np.maximum.accumulate(place, axis=1), 0.0)
    host_of = np.zeros(pages, np.int64)
    host_of[log.page] = log.host
    sums = []
    for values in (month, calm, seen.astype(np.float64)):
        of_host = np.zeros((int(log.host.max()) + 1, days))
        np.add.at(of_host, host_of, values * seen)
        sums.append(of_host[log.host, day] - (values * seen)[log.page, day])
    others = np.maximum(sums[2], 1.0)
    group = np.zeros((len(WINDOWS_DAYS), len(day)))
    group[2] = sums[0] / others
    return Rows(
        log.page, log.gap_us / US_PER_DAY, count, since, ever, group, sums[1] / others, log.log_rate,
        log.at_us // US_PER_DAY, log.at_us % US_PER_DAY // _US_PER_HOUR, np.zeros((len(day), 0), np.int64),
        log.changed,
    )  # fmt: skip


def multipliers(rows: Rows, offset: FloatArray) -> FloatArray:
    """Log multipliers of crawls by a model fitted on what was known a week's first night, 0 before the first.

    Parameters
    ----------
    rows : Rows
    offset : (k,) float64
    """
    made, model = np.zeros(len(rows)), Hazard()
    first = int(rows.day.min())
    for begin in range(first + 4 * REFIT_DAYS, int(rows.day.max()) + 1, REFIT_DAYS):
        rest = np.flatnonzero((rows.day < begin) & (rows.day >= begin - LEARN_DAYS))
        known = rest[:: 1 + len(rest) // MOST_LEARNED]
        week = np.flatnonzero((rows.day >= begin) & (rows.day < begin + REFIT_DAYS))
        if len(known) and len(week):
            model.fit(rows.take(known), offset[known])
            made[week] = model.log_multiplier(rows.take(week))
    return made


def gains(offset: FloatArray, log_multiplier: FloatArray, changed: BoolArray) -> FloatArray:
    """Log of the probability of what crawls found, less that without multipliers: (k,) nats."""
    to = np.clip(offset + log_multiplier, -25.0, 3.0)
    return log_score_gain(-np.exp(to), -np.exp(offset), changed, np.exp(log_multiplier))


def gated(gain: FloatArray, host: IntArray, day: IntArray) -> FloatArray:
    """The same with the multipliers left out of hosts where they had lost by the night before."""
    made, so_far = np.zeros(len(gain)), np.zeros(int(host.max()) + 1)
    for night in np.unique(day):
        rows = np.flatnonzero(day == night)
        made[rows] = np.where(pays(so_far)[host[rows]], gain[rows], 0.0)
        so_far = so_far * 0.5 ** (1.0 / HALF_LIFE_DAYS) + np.bincount(host[rows], gain[rows], len(so_far))
    return made


def compare(log: Log) -> tuple[int, FloatArray]:
    """Crawls, and nats per 1,000 that factors gain, the model, the model on top, and this over factors."""
    every = features(log)
    some = np.flatnonzero(np.isfinite(log.log_hazard))
    rows, host, plain, factored = every.take(some), log.host[some], log.log_hazard[some], log.corrected[some]
    model, top = multipliers(rows, plain), multipliers(rows, factored)
    by_factor = gains(plain, factored - plain, rows.changed)
    alone = gated(gains(plain, model, rows.changed), host, rows.day)
    both = by_factor + gated(gains(factored, top, rows.changed), host, rows.day)
    late = rows.day >= rows.day.min() + (rows.day.max() - rows.day.min()) // 4
    means = [1000.0 * float(g[late].mean()) for g in (by_factor, alone, both, both - by_factor)]
    return int(late.sum()), np.array(means)


def main(argv: Sequence[str] | None = None) -> int:
    """Print a row of the table for each case."""
    raw = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=raw)
    parser.add_argument("cases", nargs="*", default=CASES)
    parser.add_argument("--repetitions", type=int, default=3)
    parser.add_argument("--out", type=Path, default=Path("build/predictors"))
    options = parser.parse_args(argv)
    print("| history | crawls | factors | model | model on factors | the difference |")
    for case in options.cases:
        name, _, budget = case.partition(":")
        inputs = convert(shared_folder() / "data" / name, options.out / name)
        logs = noted(inputs, name, budget, options.repetitions, options.out / "run")
        made = [compare(log) for log in logs]
        found = np.array([values for _, values in made])
        error = found.std(axis=0, ddof=1) / np.sqrt(len(found))
        cells = [f"{m:+.2f} ± {e:.2f}" for m, e in zip(found.mean(axis=0), error, strict=True)]
        print(f"| {case} | {made[0][0]:,} | {' | '.join(cells)} |", flush=True)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
