"""Instructions of kernels, counted by valgrind.

A count does not depend on what else a machine does, so a small change shows, and CI can fail for it. Each
kernel runs in a process of its own, and once more without the call, whose count is taken off. Figures are
kept in `instructions.json`; one that is a fifth above its own fails. They hold for one version of Python
and the versions of `constraints.txt`; elsewhere nothing is compared.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np

KEPT = Path(__file__).with_suffix(".json")
MORE = 1.2
"""Times its figure that a kernel may take."""
PYTHON = ".".join(map(str, sys.version_info[:2]))
N = 20_000

Call = Callable[[], object]


def _fold() -> Call:
    from benchmarks.estimation.bench_history import FOREVER, fold, log
    from policies.history.page_state import PageState

    state, _ = fold(PageState.empty(N), log(N, 20_000, 3), FOREVER, half_life_changes=12)
    day = log(N, 20_003, 1)
    return lambda: fold(state, day, FOREVER, half_life_changes=12)


def _estimate() -> Call:
    from policies.estimation import prior
    from policies.history.evidence import from_intervals

    rng = np.random.Generator(np.random.Philox(key=1))
    gap, page = rng.exponential(1.0, 10 * N), np.repeat(np.arange(N), 10)
    changed = rng.random(10 * N) < -np.expm1(-rng.gamma(0.5, 0.4, N)[page] * gap)
    evidence, group = from_intervals(page, gap, changed, n_pages=N), np.arange(N) // 20
    learned = prior.Prior(0.5, 0.2, 2.0)
    return lambda: prior.estimate(evidence, group, N // 20, learned)


def _search() -> Call:
    from benchmarks.optimum.bench_search import objectives, pages, search

    block = search.PageBlock(*pages(N))
    return lambda: search.solve(block, objectives.get("periodic"), 0.1 * N)


def _search_with_signals() -> Call:
    from benchmarks.optimum.bench_search import objectives, pages, search

    change, request = pages(N)
    rng = np.random.Generator(np.random.Philox(key=3))
    row = np.arange(0, N, 5)
    told = change[row] * rng.uniform(0.2, 0.9, len(row))
    signals = search.SignalBlock(row, change[row] - told, told * 1.5, np.full(len(row), 1.1))
    block = search.PageBlock(change, request, signals=signals)
    return lambda: search.solve(block, objectives.get("signals"), 0.1 * N)


def _sequence(gap_seconds: int | None) -> Call:
    from benchmarks.sequencing.bench_sequencing import DAY_US, _pages, sequence, slot_offsets_us

    pages, offsets = _pages(N, N, gap_seconds), slot_offsets_us([N], 0, DAY_US)
    return lambda: sequence(pages, offsets, DAY_US)


def _clocks() -> Call:
    from policies.clocks.learning import CERTAIN, Spells, profiles

    rng = np.random.Generator(np.random.Philox(key=4))
    group = np.repeat(np.arange(100), N // 100)
    length = rng.dirichlet(np.ones(24), N) * rng.exponential(1.0, (N, 1))
    changed = rng.random(N) < -np.expm1(-0.5 * length.sum(axis=1))
    spells = Spells(group, length, changed, np.full(N, 0.5))
    return lambda: profiles(spells, np.full(100, CERTAIN), True)


KERNELS: dict[str, Callable[[], Call]] = {
    "fold a day": _fold,
    "change rates and means of groups": _estimate,
    "search": _search,
    "search, a fifth of the pages with signals": _search_with_signals,
    "sequence": lambda: _sequence(None),
    "sequence, a gap of 10 s on every host": lambda: _sequence(10),
    "clocks of hosts": _clocks,
}


def count(kernel: str, call: bool) -> int:
    """Instructions of a process that gets a kernel's input ready, and calls it."""
    tool = ["valgrind", "--tool=cachegrind", "--cache-sim=no", "--cachegrind-out-file=/dev/null"]
    line = [*tool, sys.executable, "-m", "benchmarks.instructions", kernel, *(["--call"] if call else [])]
    alone = {"PYTHONHASHSEED": "0", "OPENBLAS_NUM_THREADS": "1", "PYTHONPATH": str(Path(__file__).parents[1])}
    done = subprocess.run(line, env=os.environ | alone, capture_output=True, text=True, check=False)
    found = re.search(r"I\s+refs:\s+([\d,]+)", done.stderr)
    if done.returncode or found is None:
        raise RuntimeError(f"{' '.join(line)} failed:\n{done.stderr[-2000:]}")
    return int(found.group(1).replace(",", ""))


def main(argv: Sequence[str] | None = None) -> int:
    """Count, and print or record."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks instructions", description=__doc__)
    parser.add_argument("--record", action="store_true", help="keep the figures")
    options = parser.parse_args(argv)
    kept = json.loads(KEPT.read_text()) if KEPT.exists() else {"python": PYTHON, "instructions_per_row": {}}
    tasks = [(kernel, call) for kernel in KERNELS for call in (True, False)]
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        counts = dict(zip(tasks, pool.map(lambda task: count(*task), tasks), strict=True))
    found = {kernel: (counts[kernel, True] - counts[kernel, False]) / N for kernel in KERNELS}
    if options.record:
        rounded = {kernel: round(per_row) for kernel, per_row in found.items()}
        KEPT.write_text(json.dumps({"python": PYTHON, "instructions_per_row": rounded}, indent=2) + "\n")
    comparable, before, worse = kept["python"] == PYTHON, kept["instructions_per_row"], []
    print(f"{'kernel':<50} {'a row':>10} {'kept':>10} {'times':>6}")
    for kernel, per_row in found.items():
        own = before.get(kernel)
        times = per_row / own if own and comparable else None
        print(f"{kernel:<50} {per_row:>10,.0f} {own or 0:>10,} {'' if times is None else f'{times:.2f}':>6}")
        if times is not None and times > MORE and not options.record:
            worse.append(kernel)
    if worse:
        print(f"more than {MORE} times what is kept: {', '.join(worse)}. Mend it, or say why and --record")
    return int(bool(worse))


if __name__ == "__main__":
    ready = KERNELS[sys.argv[1]]()
    if sys.argv[2:] == ["--call"]:
        ready()
