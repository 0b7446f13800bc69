"""Time of change-rate estimation per page."""

from collections.abc import Callable

import numpy as np

from benchmarks.measuring.rows import Row
from benchmarks.measuring.timing import best_ns
from policies.estimation import estimators, prior, requests
from policies.history.evidence import from_intervals

OBSERVATIONS = 20
PAGES_PER_GROUP = 20


def run(scale: float = 1.0) -> list[Row]:
    """Measure on 200,000 pages times `scale`, 20 observations each, at about one a day."""
    n = max(int(200_000 * scale), 1000)
    rng = np.random.Generator(np.random.Philox(key=1))
    rates = rng.gamma(0.5, 0.2 / 0.5, n)
    gap = rng.exponential(1.0, (n, OBSERVATIONS))
    changed = rng.random((n, OBSERVATIONS)) < -np.expm1(-rates[:, None] * gap)
    page = np.repeat(np.arange(n), OBSERVATIONS)
    evidence = from_intervals(page, gap.ravel(), changed.ravel(), n_pages=n)
    n_groups = n // PAGES_PER_GROUP
    group = rng.integers(0, n_groups, n)
    sample = np.arange(min(n, 32_000))
    learned = prior.fit_prior(evidence.take(sample), group[sample])
    counts, exposure = rng.poisson(rates * 300.0).astype(np.float64), np.full(n, 30.0)
    asked = requests.fit_request_prior(counts[sample], exposure[sample])

    def per_page(name: str, call: Callable[[], object], target: float | None, pages: int = n) -> Row:
        return Row(name, best_ns(call, pages), "ns/page", target)

    return [
        per_page("rates and group means", lambda: prior.estimate(evidence, group, n_groups, learned), 1100.0),
        per_page("rates only", lambda: estimators.rate(evidence, learned.shape, learned.mean_per_day), None),
        per_page(
            "prior, per sampled page",
            lambda: prior.fit_prior(evidence.take(sample), group[sample]),
            None,
            len(sample),
        ),
        per_page("request rates", lambda: requests.request_rate(asked, counts, exposure), None),
        per_page(
            "request prior, per sampled page",
            lambda: requests.fit_request_prior(counts[sample], exposure[sample]),
            None,
            len(sample),
        ),
    ]
