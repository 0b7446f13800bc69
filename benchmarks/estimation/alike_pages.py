"""What the means of groups are worth where pages of a host are alike.

Pages are crawled daily for 15 days; then .2 crawls a page and day are shared out by what was learned, and
what is fresh then follows from the true rates. No estimate can do better than the first column.
"""

from __future__ import annotations

import numpy as np

from policies.estimation import prior
from policies.estimation.estimators import rate
from policies.history.evidence import from_intervals
from policies.numerics.typing_ import FloatArray, IntArray
from policies.objectives.objectives import get
from policies.optimum import search

SEEDS = 10
VISITS, PAGES, CRAWLS_A_PAGE = 15, 200, 0.2


def populations(rng: np.random.Generator) -> dict[str, tuple[FloatArray, IntArray]]:
    """True rates per day and hosts, by name."""
    two, twenty = np.repeat([0, 1], PAGES), np.repeat(np.arange(20), PAGES)
    host = np.exp(rng.normal(-1.5, 1.5, 20))
    found = {"two hosts, one busy, one still": (np.where(two == 0, 1.0, 0.0), two)}
    found["twenty hosts of one rate each"] = (host[twenty], twenty)
    for shape in (5.0, 0.5):
        rates = host[twenty] * rng.gamma(shape, 1.0 / shape, len(twenty))
        found[f"twenty hosts, pages like a gamma of shape {shape:g}"] = (rates, twenty)
    return found


def freshness(true: FloatArray, believed: FloatArray) -> float:
    """Share of time in which copies are fresh at the rates that are best for those `believed`."""
    n = len(true)
    block = search.PageBlock(np.maximum(believed, 1e-12), np.ones(n))
    (found,) = search.solve(block, get("periodic"), CRAWLS_A_PAGE * n)[1]
    return float(get("periodic").freshness(found.crawl_rate_per_day, true).mean())


def measure(true: FloatArray, host: IntArray, rng: np.random.Generator) -> dict[str, float]:
    """Freshness by what is believed."""
    n = len(true)
    changed = rng.random((n, VISITS)) < -np.expm1(-true[:, None])
    page = np.repeat(np.arange(n), VISITS)
    evidence = from_intervals(page, np.ones(len(page)), changed.ravel(), n_pages=n)
    learned, alone = prior.fit_prior(evidence, host), prior.fit_prior(evidence, np.zeros(n, np.int64))
    equal = get("periodic").freshness(np.full(n, CRAWLS_A_PAGE), true)
    return {
        "true rates": freshness(true, true),
        "hosts": freshness(
            true, prior.estimate(evidence, host, int(host.max()) + 1, learned).change_rate_per_day
        ),
        "no groups": freshness(true, rate(evidence, alone.shape, alone.mean_per_day)[0]),
        "equal rates": float(equal.mean()),
    }


def main() -> None:
    """Print the table."""
    results: dict[str, list[dict[str, float]]] = {}
    for seed in range(SEEDS):
        rng = np.random.Generator(np.random.Philox(key=seed))
        for name, (true, host) in populations(rng).items():
            results.setdefault(name, []).append(measure(true, host, rng))
    names = list(next(iter(results.values()))[0])
    print("| pages | " + " | ".join(names) + " |\n|" + " --- |" * (len(names) + 1))
    for name, rows in results.items():
        columns = np.array([[row[n] for n in names] for row in rows])
        error = columns.std(axis=0, ddof=1) / np.sqrt(len(rows))
        cells = (f"{m:.3f} ± {e:.3f}" for m, e in zip(columns.mean(axis=0), error, strict=True))
        print(f"| {name} | " + " | ".join(cells) + " |")


if __name__ == "__main__":
    main()
