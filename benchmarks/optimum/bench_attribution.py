"""Nanoseconds per page to tell why crawl rates moved."""

import numpy as np

from benchmarks.measuring.rows import Row
from benchmarks.measuring.timing import best_ns
from benchmarks.optimum.bench_search import pages
from policies.numerics.typing_ import FloatArray
from policies.objectives import objectives
from policies.optimum import attribution, search
from policies.optimum.attribution import RateInputs, SignalQuality

PAGES_OF_HOST = 20


def night(change: FloatArray, weight: FloatArray, limit_per_day: float, budget: float) -> RateInputs:
    """A night on hosts that all have one limit."""
    objective, n = objectives.get("periodic"), change.size
    host = np.arange(n) // PAGES_OF_HOST
    start = np.append(np.arange(0, n, PAGES_OF_HOST), n)
    limit = np.full(start.size - 1, limit_per_day)
    result, (found,) = search.solve(
        search.PageBlock(change, weight, None, None, start, limit), objective, budget
    )
    held = found.limit == search.LIMIT_NAMES.index("host")
    price = attribution.host_prices(
        objective, change, weight, found.crawl_rate_per_day, host, held, limit.size
    )
    return RateInputs(objective, result.multiplier, change, weight, found.crawl_rate_per_day, price[host])


def night_with_signals(change: FloatArray, weight: FloatArray, quality: SignalQuality) -> RateInputs:
    """A night whose pages all have signals."""
    n, objective = change.size, objectives.get("signals")
    found = quality.pages(change, weight)
    signals = search.SignalBlock(
        np.arange(n), found.unsignalled_rate_per_day, found.signal_rate_per_day, found.signal_weight
    )
    block = search.PageBlock(change, weight, signals=signals)
    result, (answer,) = search.solve(block, objective, 0.1 * n)
    rate = answer.crawl_rate_per_day
    return RateInputs(objective, result.multiplier, change, weight, rate, np.zeros(n), quality)


def run(scale: float = 1.0) -> list[Row]:
    """All rows; `scale` 1 is a million pages."""
    n = max(int(1_000_000 * scale), 1000)
    change, weight = pages(n)
    moved = weight * np.where(np.arange(n) % 3 == 0, 1.2, 1.0)
    rows = []
    for limit, name in ((1e6, "no limit binding"), (3.0, "some hosts at their limit")):
        before, after = night(change, weight, limit, 0.1 * n), night(change, moved, limit, 0.08 * n)
        ns = best_ns(lambda before=before, after=after: attribution.attribute(before, after), n, repeats=3)
        rows.append(Row(f"share a change of rates out to causes, {name}", ns, "ns/page"))
    n = max(n // 20, 1000)
    change, moved = change[:n], moved[:n]
    rng = np.random.Generator(np.random.Philox(key=7))
    trust = [SignalQuality(rng.uniform(0.1, 0.95, n), rng.uniform(0.2, 0.95, n)) for _ in range(2)]
    before, after = (
        night_with_signals(change, w, q) for w, q in zip((weight[:n], moved), trust, strict=True)
    )
    ns = best_ns(lambda: attribution.attribute(before, after), n, repeats=3)
    rows.append(Row("share a change of rates out to causes, pages with signals", ns, "ns/page"))
    return rows
