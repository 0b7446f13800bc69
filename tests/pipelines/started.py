"""`recrawl` in a process of its own that need not import it: most of two seconds, at each start.

A process that has imported recrawl, and has done nothing else, forks for each start. What stands for the new
process where it was started is a small client: it hands over its streams, folder and environment, passes on
signals, and ends as the process has ended. How recrawl starts by itself is for other tests.
"""

from __future__ import annotations

import array
import atexit
import contextlib
import functools
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
import uuid
from pathlib import Path
from typing import Any, NoReturn

ROOT = Path(__file__).resolve().parents[2]
SECONDS = 60.0


@functools.cache
def recrawl() -> list[str]:
    """The words that start recrawl: its arguments follow, or `-c`, a program and what that is given."""
    folder = tempfile.mkdtemp(prefix="recrawl-started-")
    path = os.path.join(folder, "socket")
    command = [sys.executable, "-m", "tests.pipelines.started", path]
    server = subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE)
    atexit.register(server.kill)
    end = time.monotonic() + SECONDS
    while not os.path.exists(path):
        assert server.poll() is None and time.monotonic() < end, "the process that forks has not come up"
        time.sleep(0.02)
    return [sys.executable, "-S", "-E", os.path.abspath(__file__), "--client", path]


class Started(subprocess.Popen[str]):
    """`recrawl` with arguments, as `Popen`: signals reach the process itself, and at once."""

    def __init__(self, *arguments: str, **options: Any) -> None:
        # A name that is not used again, as numbers of processes are.
        self._note = Path(recrawl()[-1]).with_name(uuid.uuid4().hex)
        super().__init__([*recrawl(), "--note", str(self._note), *arguments], text=True, **options)

    @property
    def process(self) -> int:
        """The number of the process itself; `pid` is that of its client."""
        while not self._note.exists():
            assert self.poll() is None
            time.sleep(0.01)
        return int(self._note.read_text())

    def send_signal(self, sig: int) -> None:
        if self.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.process, sig)


def client(path: str, arguments: list[str]) -> NoReturn:
    """Stand for a process until it has ended."""
    passed_on = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    signal.pthread_sigmask(signal.SIG_BLOCK, passed_on)  # until there is somebody to pass them on to
    with socket.socket(socket.AF_UNIX) as server:
        server.connect(path)
        asked = {"arguments": arguments, "folder": os.getcwd(), "environment": dict(os.environ)}
        note = ""
        if arguments[:1] == ["--note"]:
            _, note, *asked["arguments"] = arguments
        server.sendmsg([b"?"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [0, 1, 2]))])
        server.sendall(json.dumps(asked).encode() + b"\n")
        answers = server.makefile("r")
        process = int(answers.readline())
        if note:
            with open(f"{note}-", "w") as file:
                file.write(str(process))
            os.rename(f"{note}-", note)
        for number in passed_on:
            signal.signal(number, lambda number, _: os.kill(process, number))
        signal.pthread_sigmask(signal.SIG_UNBLOCK, passed_on)
        code = int(answers.readline())
    if code < 0:
        if -code != signal.SIGKILL:
            signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    os._exit(code)


def serve(path: str) -> None:
    """Fork for each client until standard input ends."""
    import gc
    import select

    from pipelines.door import cli, dispatch  # noqa: F401
    from pipelines.look import export  # noqa: F401
    from pipelines.nightly import nightly, report  # noqa: F401
    from pipelines.store import night  # noqa: F401
    from tests.pipelines import plain_runner  # noqa: F401

    gc.freeze()
    woken, wake = os.pipe()
    os.set_blocking(wake, False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # of a terminal: clients pass theirs on
    signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
    listening = socket.socket(socket.AF_UNIX)
    listening.bind(f"{path}-")
    listening.listen()
    os.rename(f"{path}-", path)
    running: dict[int, socket.socket] = {}
    while True:
        ready, _, _ = select.select([0, woken, listening, *running.values()], [], [])
        if 0 in ready:
            return
        if listening in ready:
            connection, _ = listening.accept()
            _, streams, _, _ = socket.recv_fds(connection, 1, 3)
            asked = json.loads(connection.makefile("r").readline())
            process = os.fork()
            if process == 0:
                signal.set_wakeup_fd(-1)
                for open_ in (listening, connection, *running.values()):
                    open_.close()
                os.close(woken)
                os.close(wake)
                return _become(asked, streams)
            for stream in streams:
                os.close(stream)
            connection.sendall(b"%d\n" % process)
            running[process] = connection
        if woken in ready:
            os.read(woken, 1000)
            while running:
                process, status = os.waitpid(-1, os.WNOHANG)
                if process == 0:
                    break
                with running.pop(process) as connection:
                    connection.sendall(b"%d\n" % os.waitstatus_to_exitcode(status))
        for process, connection in running.items():
            if connection in ready:  # its client was killed
                os.kill(process, signal.SIGKILL)


def _become(asked: dict[str, Any], streams: list[int]) -> None:
    """Go on as the process that was asked for."""
    for number in (signal.SIGCHLD, signal.SIGTERM):
        signal.signal(number, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    os.chdir(asked["folder"])
    os.environ.clear()
    os.environ.update(asked["environment"])
    time.tzset()
    sys.stdin, sys.stdout = open(0), open(1, "w")
    sys.stderr = open(2, "w", buffering=1, errors="backslashreplace")
    sys.__stdin__, sys.__stdout__, sys.__stderr__ = sys.stdin, sys.stdout, sys.stderr
    if asked["arguments"][:1] == ["-c"]:
        _, program, *arguments = asked["arguments"]
        sys.argv = ["-c", *arguments]
        exec(compile(program, "<string>", "exec"), {"__name__": "__main__"})
        return
    from recrawl.__main__ import main
    from tests.pipelines import plain_runner

    # A process chooses its runner by itself, unless one is asked for.
    with plain_runner.chosen() if os.environ.get(plain_runner.CHOICE) else contextlib.nullcontext():
        sys.exit(main(asked["arguments"]))


if __name__ == "__main__":
    if sys.argv[1] == "--client":
        client(sys.argv[2], sys.argv[3:])
    serve(sys.argv[1])
