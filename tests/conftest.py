"""What holds for all tests."""

import signal

import pytest

# A shell's background job, such as one of a build server, ignores Ctrl-C, and so would all that it starts.
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(trylast=True)  # within the order that fixtures want
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Slow tests run last, so that most failures show early.

    Parallel workers take whole files: those without a slow test are to be had first.
    """
    slow = {item.path for item in items if item.get_closest_marker("slow")}
    items.sort(key=lambda item: (item.path in slow, bool(item.get_closest_marker("slow"))))
