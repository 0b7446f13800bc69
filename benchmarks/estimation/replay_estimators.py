"""Compare estimators of change rates on replayed real histories.

    python -m benchmarks.estimation.replay_estimators [--rates 0.1 0.3 1] [--sets ota_contrib ...]
        [--out table.md]

A crawler's log is drawn from each history by the workshop's `replay.py` (skipped with a note where that is
absent; set RECRAWL_SHARED to its folder). Everything is fitted on the intervals that end in the first half
of the window and scored on those that end in the second: the mean log-probability of what each gap showed,
changed or not. Pages that appear only in the second half count too.
"""

import argparse
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import numpy as np
import pyarrow.compute as pc
import pyarrow.parquet as pq

from benchmarks.measuring.histories import shared_folder
from policies.estimation import estimators, prior
from policies.estimation.forecast import Forecast, forecast
from policies.history.evidence import Evidence, empty, forgetting_weights, from_intervals
from policies.numerics.typing_ import BoolArray, FloatArray, IntArray

HALF_LIFE_CHANGES = 12.0
BOOTSTRAP = 400

# Window (within the days that the files cover: beyond them nothing seems to change) and metadata columns.
SETS: dict[str, tuple[str, str, tuple[str, ...]]] = {
    "ota_contrib": ("2024-01-01", "2025-01-01", ("terms_type",)),
    "prices_tcg": ("2026-02-14", "2026-06-15", ("expansion", "finish", "rarity")),
    "docs_sitemap": ("2026-01-15", "2026-07-01", ("lang",)),
    "policies_aws": ("2022-01-01", "2025-01-01", ()),
    "pages_swiss": ("2024-01-01", "2025-01-01", ("monitor", "type")),
    "software_releases": ("2024-06-01", "2025-12-31", ("owner",)),
}


@dataclass(frozen=True, slots=True)
class History:
    """Intervals between successful crawls, sorted by page, then time; `late` ones end in the second half."""

    n_pages: int
    page: IntArray
    gap_days: FloatArray
    changed: BoolArray
    late: BoolArray
    groups: dict[str, IntArray]


def replay(shared: Path, name: str, rate: float, seed: int) -> History:
    """Draw a crawler's log and turn it into intervals."""
    start, end, columns = SETS[name]
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, str(shared / "tools" / "replay.py"), name, "--start", start, "--end", end]
        command += ["--rate", str(rate), "--seed", str(seed), "--out", folder]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        log = pq.read_table(Path(folder) / "observations.parquet")
        catalogue = pq.read_table(Path(folder) / "pages.parquet")
    urls = catalogue["url"].to_pylist()
    page = pc.index_in(log["url"], catalogue["url"]).to_numpy().astype(np.int64)
    seen = log["fetched_at"].cast("int64").to_numpy() / 86400e6
    status = log["status"].to_numpy()
    version = pc.index_in(pc.fill_null(log["digest"], "gone"), pc.unique(pc.fill_null(log["digest"], "gone")))
    order = np.lexsort((seen, page))
    order = order[status[order] != 503]  # a failed fetch says nothing: the interval spans it
    page, seen, digest = page[order], seen[order], version.to_numpy()[order]
    same = page[1:] == page[:-1]
    gap = np.maximum(np.diff(seen), 1e-6)
    middle = 0.5 * sum(np.datetime64(t, "D").astype(float) for t in (start, end))
    parts = [urlsplit(u) for u in urls]
    labels = {
        "none": ["" for _ in urls],
        "host": [str(p.hostname) for p in parts],
        "path": [f"{p.hostname}/{p.path.strip('/').split('/')[0]}" for p in parts],
    }
    if columns:
        values = zip(*(catalogue[c].to_pylist() for c in columns), strict=True)
        labels["meta"] = [repr(v) for v in values]
        labels["host+meta"] = [h + m for h, m in zip(labels["host"], labels["meta"], strict=True)]
    return History(
        len(urls),
        page[1:][same],
        gap[same],
        (digest[1:] != digest[:-1])[same],
        seen[1:][same] > middle,
        {k: np.unique(v, return_inverse=True)[1].astype(np.int64) for k, v in labels.items()},
    )


def fit(history: History) -> dict[str, Forecast]:
    """What every page is thought to do, by estimator."""
    n, early = history.n_pages, ~history.late
    page, gap, changed = history.page[early], history.gap_days[early], history.changed[early]
    plain = from_intervals(page, gap, changed, n_pages=n)
    weights = forgetting_weights(page, changed, HALF_LIFE_CHANGES)
    faded = from_intervals(page, gap, changed, weight=weights, n_pages=n)

    one = estimators.mle(np.zeros_like(page), gap, changed, n_pages=1)
    everywhere = float(one.change_rate_per_day[0])
    result = {"global": _gamma(np.full(n, everywhere), np.full(n, 1e9))}

    count, changes = np.bincount(page, minlength=n).astype(float), plain.changes()
    known = count > 0
    observed = np.where(known, plain.exposure_days + plain.changed_days(), 1.0)
    mean_gap = observed / np.maximum(count, 1.0)
    top = np.log(2.0 * count + 1.0) / mean_gap
    low = 0.5 / observed
    lam, h = clipped_mle(page, gap, changed, low, np.maximum(top, low))
    result["mle"] = _gamma(np.where(known, lam, everywhere), np.where(known, np.maximum(h, 0.5), 1e9))
    lam = np.maximum(cho_garcia_molina(count, changes, mean_gap), 1e-9)
    result["cho"] = _gamma(np.where(known, lam, everywhere), np.where(known, changes + 0.5, 1e9))

    for name, group in history.groups.items():
        result[name] = _learned(faded, group)
        if name in ("host", "meta"):
            result[name + ", no forgetting"] = _learned(plain, group)
    return result


def clipped_mle(
    page: IntArray,
    gap_days: FloatArray,
    changed: BoolArray,
    low_per_day: FloatArray,
    high_per_day: FloatArray,
) -> tuple[FloatArray, FloatArray]:
    """Maximum of the likelihood kept inside limits, and the information in log rate there: (n,) each.

    `low` is the answer where nothing changed or is known, `high` where everything changed.
    """
    n = len(low_per_day)
    found = estimators.mle(page, gap_days, changed, n_pages=n).change_rate_per_day
    lam = np.clip(np.nan_to_num(found, nan=0.0, posinf=np.inf), low_per_day, high_per_day)
    gaps = page[changed], np.ones(np.count_nonzero(changed)), gap_days[changed]
    exposure = np.bincount(page[~changed], gap_days[~changed], n)
    return lam, lam * exposure + estimators.changed_gaps(*gaps, lam)[1]


def cho_garcia_molina(
    n_intervals: FloatArray | IntArray, n_changes: FloatArray | IntArray, mean_gap_days: FloatArray | float
) -> FloatArray:
    """Cho and Garcia-Molina's bias-reduced estimate, "Estimating frequency of change".

    ``-log((n - X + 0.5) / (n + 0.5)) / gap`` for `n` equal gaps of which `X` changed; finite at X = n. For
    irregular gaps it is used with their mean, which is biased: kept for comparison.

    Parameters
    ----------
    n_intervals, n_changes : (n,) float64 or int64, 0 <= n_changes <= n_intervals
    mean_gap_days : float or (n,) float64, positive, days

    Returns
    -------
    (n,) float64, per day
    """
    count, changes = np.asarray(n_intervals, dtype=np.float64), np.asarray(n_changes, dtype=np.float64)
    if ((changes < 0.0) | (changes > count)).any():
        raise ValueError("n_changes must be between 0 and n_intervals")
    result: FloatArray = -np.log1p(-changes / (count + 0.5)) / mean_gap_days
    return result


def _gamma(rate: FloatArray, information: FloatArray) -> Forecast:
    return forecast(empty(len(rate)), rate, information)


def _learned(evidence: Evidence, group: IntArray) -> Forecast:
    sampled = evidence.exposure_days + evidence.changed_days() > 0.0
    learned = prior.fit_prior(evidence.take(sampled), group[sampled])
    found = prior.estimate(evidence, group, int(group.max()) + 1, learned)
    return forecast(evidence, found.change_rate_per_day, found.information)


def score(history: History, told: Forecast, averaged: bool) -> FloatArray:
    """Log-probability of each late interval, nats; averaged over the posterior or at the rate."""
    page, gap = history.page[history.late], history.gap_days[history.late]
    unchanged = told.log_unchanged(page, gap) if averaged else -told.change_rate_per_day[page] * gap
    unchanged = np.minimum(unchanged, -1e-300)
    return np.where(history.changed[history.late], np.log(-np.expm1(unchanged)), unchanged)


def bootstrap(history: History, values: FloatArray, rng: np.random.Generator) -> float:
    """Standard error of the mean of `values` (per late interval) when pages are drawn again."""
    page = history.page[history.late]
    total = np.bincount(page, weights=values, minlength=history.n_pages)
    count = np.bincount(page, minlength=history.n_pages)
    has = count > 0
    total, count = total[has], count[has]
    drawn = rng.multinomial(len(total), np.full(len(total), 1.0 / len(total)), size=BOOTSTRAP)
    return float(np.std((drawn @ total) / (drawn @ count)))


COLUMNS = (
    ("global rate", "global", False),
    ("clipped MLE", "mle", False),
    ("clipped MLE, pred.", "mle", True),
    ("Cho-GM", "cho", False),
    ("Cho-GM, pred.", "cho", True),
    ("prior", "none", False),
    ("prior, pred.", "none", True),
    ("host", "host", False),
    ("host, pred. (default)", "host", True),
    ("host, pred., no forgetting", "host, no forgetting", True),
    ("host + path, pred.", "path", True),
    ("metadata", "meta", False),
    ("metadata, pred.", "meta", True),
    ("metadata, pred., no forgetting", "meta, no forgetting", True),
    ("host + metadata, pred.", "host+meta", True),
)


def compare(shared: Path, name: str, rate: float, seed: int) -> list[str]:
    """One row of the table: scores in nats per 1,000 intervals, best in bold.

    After the sign stands the paired bootstrap error of the difference to the best.
    """
    history = replay(shared, name, rate, seed)
    fits = fit(history)
    scores = {label: score(history, fits[key], averaged) for label, key, averaged in COLUMNS if key in fits}
    rng = np.random.Generator(np.random.Philox(key=seed))
    mean = {label: 1000.0 * float(values.mean()) for label, values in scores.items()}
    best = max(mean, key=lambda label: mean[label])
    own = 1000.0 * bootstrap(history, scores[best], rng)
    cells = []
    for label, _, _ in COLUMNS:
        if label not in scores:
            cells.append("-")
        elif label == best:
            cells.append(f"**{mean[label]:.1f}**")
        else:
            error = 1000.0 * bootstrap(history, scores[label] - scores[best], rng)
            cells.append(f"{mean[label]:.1f} ± {error:.1f}")
    return [name, f"{rate:g}", str(int(history.late.sum())), *cells, f"{own:.1f}"]


HEAD = ["history", "crawls/day", "intervals", *(c[0] for c in COLUMNS), "s.e. of best"]


def table(rows: Sequence[Sequence[str]]) -> str:
    """The rows as Markdown."""
    lines = [HEAD, ["---"] * len(HEAD), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def main(argv: Sequence[str] | None = None) -> int:
    """Print the table."""
    raw = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=raw)
    parser.add_argument("--rates", type=float, nargs="+", default=[0.1, 0.3, 1.0], help="crawls/page/day")
    parser.add_argument("--sets", nargs="+", default=list(SETS), choices=list(SETS), help="histories")
    parser.add_argument("--seed", type=int, default=0, help="of the replay and of the bootstrap")
    parser.add_argument("--out", type=Path, help="also write the table here")
    options = parser.parse_args(argv)
    shared = shared_folder()
    if not (shared / "tools" / "replay.py").exists():
        print(f"skipped: no tools/replay.py in {shared}; set RECRAWL_SHARED to the folder that holds it")
        return 0
    rows = [compare(shared, name, rate, options.seed) for name in options.sets for rate in options.rates]
    text = table(rows)
    print(text)
    if options.out:
        options.out.write_text(text + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
