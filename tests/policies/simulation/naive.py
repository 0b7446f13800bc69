"""The slot simulator written down as it is defined: every page is evaluated in every slot."""

import numpy as np

from policies.crawl_values import CrawlValue
from policies.simulation.streams import Instance, Streams
from policies.typing_ import FloatArray, IntArray


def naive_picks(
    policy: CrawlValue, believed: Instance, streams: Streams, times: FloatArray, delay: float = 0.0
) -> IntArray:
    """Page of each slot: the first of those with the highest crawl value."""
    pages = policy.pages(believed)
    crawled, signals = np.zeros(len(believed)), np.zeros(len(believed))
    picks, k = [], 0
    for now in times:
        while k < streams.signal_time.size and streams.signal_time[k] <= now:
            page = streams.signal_page[k]
            if not policy.discards or streams.signal_time[k] > crawled[page] + delay:
                signals[page] += 1.0
            k += 1
        picks.append(int(np.argmax(policy.value(pages, now - crawled, signals))))
        crawled[picks[-1]], signals[picks[-1]] = now, 0.0
    return np.array(picks)
