"""What can be measured, and the costs that have targets.

    python -m benchmarks                                      what there is, a line each
    python -m benchmarks [--scale 0.1] all|search|job|...     time and memory, beside their targets
    python -m benchmarks compare REV                          whole nights of this tree and of another
    python -m benchmarks instructions                         what kernels take, beside what they took

All others are run by their names, such as `python -m benchmarks.replay.ablation --help`.
"""

import argparse
import ast
import importlib
import sys
from pathlib import Path

from benchmarks import compare, instructions
from benchmarks.measuring.rows import show

HERE = Path(__file__).parent
COSTS = "bench_"


def found() -> dict[str, str]:
    """First line of each benchmark's docstring, by the name of its module; none is imported."""
    lines = {}
    for path in sorted(HERE.glob("*/*.py")):
        text = path.read_text(encoding="utf-8")
        if path.stem.startswith(COSTS) or "\nif __name__" in text:
            said = ast.get_docstring(ast.parse(text)) or ""
            lines[f"{HERE.name}.{path.parent.name}.{path.stem}"] = said.partition("\n")[0]
    return lines


def main() -> None:
    """Run `bench_*.py` one after the other; each prints its figures, its targets and their ratio."""
    if sys.argv[1:2] == ["compare"]:
        compare.main(sys.argv[2:])
        return
    if sys.argv[1:2] == ["instructions"]:
        raise SystemExit(instructions.main(sys.argv[2:]))
    modules = found()
    costs = {name: m for m in modules if (name := m.rpartition(f".{COSTS}")[2]) != m}
    raw = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__, formatter_class=raw)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"all, or of {', '.join(costs)}")
    parser.add_argument("--scale", type=float, default=1.0, help="size of the data (default %(default)s)")
    arguments = parser.parse_args()
    if unknown := set(arguments.names) - {*costs, "all"}:
        parser.error(f"no benchmark {', '.join(sorted(unknown))}; there are all, {', '.join(costs)}")
    if not arguments.names:
        for name, line in modules.items():
            print(f"{name:<42} {line}")
    for name in costs if "all" in arguments.names else arguments.names:
        print(f"\n{name}", flush=True)
        show(importlib.import_module(costs[name]).run(arguments.scale))


if __name__ == "__main__":
    main()
