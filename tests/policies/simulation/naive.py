"""The slot simulator written down as it is defined: every page is evaluated in every slot."""

import numpy as np

from policies.greedy.crawl_values import CrawlValue
from policies.numerics.typing_ import FloatArray, IntArray
from policies.simulation.streams import Instance, Streams


def best_pages(
    policy: CrawlValue,
    believed: Instance,
    streams: Streams,
    times: FloatArray,
    picks: IntArray,
    delay: float = 0.0,
) -> IntArray:
    """Page of each slot with the highest crawl value, the first of several, after the picks before it.

    Picks that equal it in every slot are those of the naive simulator, by induction; all slots are evaluated
    in one call.
    """
    m = len(believed)
    elapsed, signals = np.zeros((times.size, m)), np.zeros((times.size, m))
    crawled, count, k = np.zeros(m), np.zeros(m), 0
    for slot, (now, pick) in enumerate(zip(times, picks, strict=True)):
        while k < streams.signal_time.size and streams.signal_time[k] <= now:
            page = streams.signal_page[k]
            if not policy.discards or streams.signal_time[k] > crawled[page] + delay:
                count[page] += 1.0
            k += 1
        elapsed[slot], signals[slot] = now - crawled, count
        crawled[pick], count[pick] = now, 0.0
    pages = policy.pages(believed).take(np.tile(np.arange(m), times.size))
    values = policy.value(pages, elapsed.ravel(), signals.ravel())
    return values.reshape(times.size, m).argmax(axis=1)
