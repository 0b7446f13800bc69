"""What holds for all tests."""

import gc
import os
import signal
from collections import Counter
from pathlib import Path

import pytest

# Before NumPy is imported. Threads of BLAS wait by spinning: where each core has a worker of the tests,
# products of matrices took four times the processor.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

# A shell's background job, such as one of a build server, ignores Ctrl-C, and so would all that it starts.
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


gc.disable()


def pytest_collection_finish() -> None:
    """What is imported and collected by now stays: to look for cycles in it again and again takes time."""
    gc.freeze()
    gc.set_threshold(20_000)
    gc.enable()


@pytest.hookimpl(trylast=True)  # within the order that fixtures want
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Files with slow tests come last, and in them the slow ones, so that most failures show early.

    A file stays together: parallel workers take whole files, and what its tests share is made once. Of the
    slow files those with most slow tests come first: the last ones are short, and workers end together.
    """
    slow = Counter(item.path for item in items if item.get_closest_marker("slow"))
    place: dict[Path, int] = {}
    for item in items:
        place.setdefault(item.path, len(place))
    items.sort(
        key=lambda i: (i.path in slow, -slow[i.path], place[i.path], bool(i.get_closest_marker("slow")))
    )
