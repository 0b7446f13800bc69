"""A command whose work never ends, to stop it: `python -m tests.pipelines.endless COMMAND WORKERS DIR`."""

from __future__ import annotations

import argparse
import sys
import threading
from typing import Any


def work(part: Any) -> None:
    """Say so, and never end."""
    print("working", flush=True)
    threading.Event().wait()


def _build(pipeline: Any) -> None:
    import apache_beam as beam

    _ = pipeline | beam.Create([1, 2]) | beam.Reshuffle() | beam.Map(work)


def main(command: str, workers: int, folder: str) -> int:
    """Run the command line with a command that does `work` in its workers.

    Workers import this module, too, so what takes seconds to import is imported here.
    """
    from pipelines.door import cli
    from pipelines.experiments import reproduce, simulate
    from pipelines.nightly.progress import Clock

    def simulated(parsed: argparse.Namespace, rest: list[str]) -> int:
        from pipelines.experiments import experiment

        experiment.run_here(_build, rest, workers, folder)
        return 0

    def reproduced(parsed: argparse.Namespace) -> int:
        return len(list(reproduce._parts(work, [1, 2], workers, Clock(sys.stderr))))

    simulate.run, reproduce.run = simulated, reproduced  # type: ignore[assignment]
    words = {"simulate": ["simulate"], "reproduce": ["reproduce", "busa-fekete-3"]}[command]
    return cli.main([*words, f"--output={folder}"])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], int(sys.argv[2]), sys.argv[3]))
