"""CPU time of the slot simulator, and how much faster it is than evaluating every page in every slot.

It runs the five policies of Busa-Fekete et al., figure 6, with 10,000 pages and 100 slots a time unit. The
naive argmax picks the pages of the last few slots once more, from the state that the simulator left: its
time per slot does not depend on which slots they are, and its picks must be the same. Both run in the same
process, one after the other, on the same pages.
"""

import time

import numpy as np

from benchmarks.measuring.rows import Row
from policies.greedy.crawl_values import crawl_value_policy
from policies.numerics.typing_ import FloatArray, Int32Array
from policies.simulation.slots import Lanes, run_lanes, slot_times
from policies.simulation.streams import Instance, Streams, draw_streams, generator, uniform_instance

POLICIES = ("GREEDY", "GREEDY-CIS", "GREEDY-NCIS", "G-NCIS-APPROX-1", "G-NCIS-APPROX-2")
BANDWIDTH = 100.0
NAIVE_SLOTS = 12


def _naive_seconds(
    name: str, pages: Instance, streams: Streams, times: FloatArray, picks: Int32Array, slots: int
) -> float:
    """Seconds a slot of the full argmax over the last slots; fails if one of its picks is another."""
    policy = crawl_value_policy(name)
    believed = policy.pages(pages)
    first = times.size - slots
    crawled = np.zeros(len(pages))
    crawled[picks[:first]] = times[:first]  # the last of several writes stays
    counts = np.zeros(len(pages))
    after = streams.signal_time > crawled[streams.signal_page]
    seen = streams.signal_time <= times[first - 1]
    np.add.at(counts, streams.signal_page[after & seen], 1.0)
    k = int(np.count_nonzero(seen))
    spent = 0.0
    for slot in range(first, times.size):
        now = times[slot]
        while k < streams.signal_time.size and streams.signal_time[k] <= now:
            counts[streams.signal_page[k]] += 1.0
            k += 1
        begin = time.process_time()
        pick = int(np.argmax(policy.value(believed, now - crawled, counts)))
        spent += time.process_time() - begin
        assert pick == picks[slot], (name, slot, pick, int(picks[slot]))
        crawled[pick], counts[pick] = now, 0.0
    return spent / slots


def _lanes(names: tuple[str, ...], m: int, repetitions: int, until: float) -> tuple[list[Row], float]:
    instances = [
        uniform_instance(m, generator(0, r, "instance"), (0.25, 0.25), (0.1, 0.6)) for r in range(repetitions)
    ]
    streams = [draw_streams(pages, until, 0, r) for r, pages in enumerate(instances)]
    times = slot_times(BANDWIDTH, until)
    lanes = [Lanes(crawl_value_policy(name), instances) for name in names]
    begin = time.process_time()
    picks = run_lanes(lanes, streams, times)
    lazy = (time.process_time() - begin) / (len(names) * repetitions * times.size)
    label = f"{' '.join(names) if len(names) == 1 else 'figure 6'}, {m:,} pages"
    rows = [Row(f"{label}, {len(names) * repetitions} lanes", 1e6 * lazy, "us/slot", None)]
    naive = [
        _naive_seconds(name, instances[0], streams[0], times, picks[j, 0], NAIVE_SLOTS)
        for j, name in enumerate(names)
    ]
    rows.append(Row(f"{label}: the naive argmax takes", 1e6 * float(np.mean(naive)), "us/slot", None))
    return rows, float(np.mean(naive)) / lazy


def run(scale: float = 1.0) -> list[Row]:
    """Measure 10 repetitions of 10,000 pages over 200 time units times `scale`; each policy alone as well."""
    until = max(200.0 * scale, 1.0)
    rows, ratio = _lanes(POLICIES, 10_000, 10, until)
    rows.append(Row("figure 6, 10,000 pages: of the naive time", 100.0 / ratio, "%", 1.0))
    for name in POLICIES:
        alone, ratio = _lanes((name,), 10_000, 10, until)
        rows += [*alone, Row(f"{name}: of the naive time", 100.0 / ratio, "%", None)]
    return rows
