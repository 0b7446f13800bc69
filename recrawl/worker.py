"""Entry points of workers: of `recrawl-worker`, and of the workers that local jobs start.

A worker runs what was pickled by name. So it has to find the same layers as the process that started it.
"""

import sys

KINDS = ("boot", "local", "beam")


def main() -> int:
    """`recrawl-worker`, which a portable runner starts."""
    from pipelines.nightly import worker_boot

    return worker_boot.main()


def run(kind: str, arguments: list[str]) -> int:
    """Become a worker of this kind: started by a runner, by a job on this machine, or Beam's own.

    Raises
    ------
    ValueError
        For another kind.
    """
    if kind == "boot":
        from pipelines.nightly import worker_boot

        return worker_boot.main(arguments)
    if kind == "local":
        from pipelines.nightly import local_worker

        local_worker.main(int(arguments[0]))
        return 0
    if kind == "beam":
        from apache_beam.runners.worker import sdk_worker_main

        sdk_worker_main.main(arguments)
        return 0
    raise ValueError(f"no kind of worker: {kind}; there are {', '.join(KINDS)}")


if __name__ == "__main__":
    sys.exit(run(sys.argv[1], sys.argv[2:]))
