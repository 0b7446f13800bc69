"""All benchmarks, or those that are named: `python -m benchmarks [--scale 0.1] [search estimation ...]`.

`python -m benchmarks compare REV` compares two revisions, see `benchmarks.compare`;
`python -m benchmarks instructions` counts what kernels take, see `benchmarks.instructions`.
"""

import argparse
import importlib
import pkgutil
import sys

import benchmarks
from benchmarks import compare, instructions
from benchmarks.rows import show


def main() -> None:
    """Run `bench_*.py` one after the other; each prints its figures, its targets and their ratio."""
    if sys.argv[1:2] == ["compare"]:
        compare.main(sys.argv[2:])
        return
    if sys.argv[1:2] == ["instructions"]:
        raise SystemExit(instructions.main(sys.argv[2:]))
    found = [m.name.removeprefix("bench_") for m in pkgutil.iter_modules(benchmarks.__path__)
             if m.name.startswith("bench_")]  # fmt: skip
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(found)} (default all)")
    parser.add_argument("--scale", type=float, default=1.0, help="size of the data (default %(default)s)")
    arguments = parser.parse_args()
    unknown = set(arguments.names) - set(found)
    if unknown:
        parser.error(f"no benchmark {', '.join(sorted(unknown))}; there are {', '.join(found)}")
    for name in arguments.names or found:
        print(f"\n{name}", flush=True)
        show(importlib.import_module(f"benchmarks.bench_{name}").run(arguments.scale))


if __name__ == "__main__":
    main()
