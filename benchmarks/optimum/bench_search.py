"""Nanoseconds per page of the multiplier search, on one core."""

from dataclasses import replace

import numpy as np

from benchmarks.measuring.rows import Row
from benchmarks.measuring.timing import best_ns
from policies.numerics import special
from policies.numerics.typing_ import FloatArray
from policies.objectives import objectives
from policies.optimum import search
from policies.signalled.pages import SignalPages


def pages(n: int, seed: int = 1) -> tuple[FloatArray, FloatArray]:
    """Change and request rates per day: Gamma-like rates over three decades, power-law popularity."""
    rng = np.random.Generator(np.random.Philox(key=seed))
    change = np.maximum(rng.gamma(0.4, 0.25, n), 1e-4)
    request = rng.pareto(1.1, n) * 0.5 + 1e-3
    return change, request


def run(scale: float = 1.0) -> list[Row]:
    """All rows; `scale` 1 is a million pages."""
    n = max(int(1_000_000 * scale), 1000)
    periodic = objectives.get("periodic")
    change, request = pages(n)
    rows = []

    def row(name: str, block: search.PageBlock, budget: float, target: float | None, per: int = n) -> None:
        result, _ = search.solve(block, periodic, budget)
        ns = best_ns(lambda: search.solve(block, periodic, budget), per)
        rows.append(Row(f"{name} ({result.rounds} rounds)", ns, "ns/page", target))

    for visits in (0.01, 0.1, 1.0):
        row(f"solve, {visits:g} crawls a page and day", search.PageBlock(change, request), visits * n, 160.0)
    floor = np.where(np.arange(n) % 3 == 0, 0.02, 0.0)
    cap = np.where(np.arange(n) % 2 == 0, 0.5, np.inf)
    row("solve with floors and caps", search.PageBlock(change, request, floor, cap), 0.1 * n, 600.0)
    start = np.arange(0, n + 1, 20)
    start[-1] = n
    free = np.full(start.size - 1, 1e6)
    row(
        "solve, host limits that do not bind",
        search.PageBlock(change, request, None, None, start, free),
        0.1 * n,
        600.0,
    )
    tight = np.full(start.size - 1, 3.0)
    block = search.PageBlock(change, request, None, None, start, tight)
    _, (allocation,) = search.solve(block, periodic, 0.1 * n)
    bound = allocation.totals.hosts_at_limit / tight.size
    row(f"solve, {bound:.0%} of hosts at their limit, 20 pages each", block, 0.1 * n, 1500.0)
    start, tight = np.array([0, n // 2, n]), np.array([0.01 * n, np.inf])
    row(
        "solve, half of all pages in one host at its limit",
        search.PageBlock(change, request, None, None, start, tight),
        0.1 * n,
        1500.0,
    )
    rows += signal_rows(max(n // 4, 1000))
    rng = np.random.Generator(np.random.Philox(key=2))
    for name, c in (("uniform", rng.random(n)), ("log-uniform", 10.0 ** rng.uniform(-18.0, 0.0, n))):
        rows.append(
            Row(f"inverse of P(2, x), {name}", best_ns(lambda c=c: special.p2_inverse(c), n), "ns", 30.0)
        )
    for name in ("memoryless", "discrete", "harmonic"):
        objective = objectives.get(name)
        block = search.PageBlock(change, request)
        ns = best_ns(lambda o=objective, b=block: search.solve(b, o, 0.1 * n), n)
        rows.append(Row(f"solve, {name}", ns, "ns/page", None))
    return rows


def signal_rows(n: int) -> list[Row]:
    """Costs of the objective "signals": without any, on the paper's mix, and where hosts are limited."""
    periodic, with_signals = objectives.get("periodic"), objectives.get("signals")
    change, request = pages(n)
    plain = search.PageBlock(change, request)
    before = best_ns(lambda: search.solve(plain, periodic, 0.1 * n), n)
    after = best_ns(lambda: search.solve(plain, with_signals, 0.1 * n), n)
    rows = [Row("objective signals without signals, over periodic", after / before, "", 1.05)]
    rng = np.random.Generator(np.random.Philox(key=3))
    request, change = rng.random(n), rng.random(n)
    found = SignalPages.from_rates(request, change, rng.beta(0.25, 0.25, n), rng.uniform(0.1, 0.6, n))
    signals = search.SignalBlock(
        np.arange(n), found.unsignalled_rate_per_day, found.signal_rate_per_day, found.signal_weight
    )
    block = search.PageBlock(change, request, signals=signals)
    start = np.arange(0, n + 1, 20)
    start[-1] = n
    limited = replace(block, host_start=start, host_limit_per_day=np.full(start.size - 1, 2.5))
    capped = replace(block, cap_per_day=np.full(n, 0.05))
    for name, case, visits, target in (
        ("all pages with signals", block, 0.1, 10_000.0),
        ("all pages with signals, capped", capped, 0.04, 30_000.0),
        ("all pages with signals, hosts limited", limited, 0.1, 20_000.0),
    ):
        budget = visits * n
        result, (allocation,) = search.solve(case, with_signals, budget)
        hosts = allocation.totals.hosts_at_limit / (start.size - 1)
        ns = best_ns(lambda case=case, budget=budget: search.solve(case, with_signals, budget), n, repeats=2)
        at_limit = f", {hosts:.0%} of them at it" if hosts else ""
        rows.append(Row(f"solve, {name}{at_limit} ({result.rounds} rounds)", ns, "ns/page", target))
    return rows
