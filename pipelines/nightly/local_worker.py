"""Beam's worker as a process of this machine that ends with the process that started it.

Beam's own command outlives its runner where that is killed, and answers Ctrl-C with a traceback.
"""

from __future__ import annotations

import os
import shlex
import sys
import time

from apache_beam.runners.worker import sdk_worker_main
from apache_beam.transforms.environments import SubprocessSDKEnvironment

from pipelines.command import stopping


def environment() -> SubprocessSDKEnvironment:
    """Where Beam's in-process runner runs its work: in workers of this kind.

    `exec` makes them children of this process, without a shell between, which would outlive it.
    """
    command = f"exec {shlex.quote(sys.executable)} -m recrawl.worker local {os.getpid()}"
    return SubprocessSDKEnvironment.from_command_string(f"trap '' INT; {command}")


def main(parent: int) -> None:
    """Become a worker of process `parent`.

    Beam prints tracebacks of what it hands to its runner as well, and of connections lost with the parent.
    """
    stopping.end_with(parent)
    stderr = sys.stderr
    with open(os.devnull, "w") as nowhere:
        sys.stderr = nowhere
        try:
            sdk_worker_main.main([])
        except BaseException:
            time.sleep(2 * stopping.POLL_SECONDS)  # of a parent that is gone nothing is said
            sys.stderr = stderr
            raise
