"""Processor time of a call."""

import gc
import time
from collections.abc import Callable


def best_ns(call: Callable[[], object], elements: int, repeats: int = 5) -> float:
    """Least processor time of a few runs, in nanoseconds per element.

    Wall time on a shared machine measures the neighbours.
    """
    times = []
    for _ in range(repeats):
        gc.collect()
        begin = time.process_time()
        call()
        times.append(time.process_time() - begin)
    return min(times) / elements * 1e9
