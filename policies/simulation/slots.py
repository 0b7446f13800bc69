"""Discrete policies in a slot simulator: in every slot each lane crawls one page, that of the highest value.

A *lane* is a policy on the streams of a repetition. All lanes run together. The
argmax is exact and ties go to the page of the lowest index (see `policies.simulation.lazy_argmax`).

Conventions: every page is fresh and has just been crawled at time 0. A signal that arrives at the instant of
a slot or before is seen in it; the count of signals since a crawl starts after the instant of the crawl.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from policies.greedy.crawl_values import CrawlValue
from policies.numerics.typing_ import FloatArray, Int32Array
from policies.simulation.lazy_argmax import LazyArgmax
from policies.simulation.streams import Instance, Streams


@dataclass(frozen=True)
class Lanes:
    """One policy on all repetitions.

    Attributes
    ----------
    policy : CrawlValue
    believed : sequence of Instance
        The pages as the policy is told about them, one for each repetition.
    delay : float
        Time after a crawl in which signals do not count, if the policy discards any.
    """

    policy: CrawlValue
    believed: Sequence[Instance]
    delay: float = 0.0


def slot_times(bandwidth: float | Sequence[tuple[float, float]], until: float) -> FloatArray:
    """Instants of the slots, in (0, until]: (slots,) float64.

    Parameters
    ----------
    bandwidth : float or sequence of (start, bandwidth)
        Crawls per time unit; or steps, the first of which starts at 0. With a constant R slot j = 1, 2, ...
        is at j/R, and each step starts a count of its own.
    until : float

    Raises
    ------
    ValueError
        A bandwidth that is not above 0, or steps that do not start at 0 or are out of order.
    """
    steps = [(0.0, float(bandwidth))] if isinstance(bandwidth, int | float) else list(bandwidth)
    if not steps or steps[0][0] != 0.0:
        raise ValueError(f"the first step of the bandwidth must start at 0, got {steps[:1]!r}")
    ends = [start for start, _ in steps[1:]] + [until]
    parts = []
    for (start, rate), end in zip(steps, ends, strict=True):
        if not 0.0 < rate < np.inf:
            raise ValueError(f"a bandwidth must be above 0 and finite, got {rate!r}")
        if end < start:
            raise ValueError(f"steps of the bandwidth must be in order and end by {until!r}")
        count = int(np.floor((end - start) * rate * (1.0 + 1e-12) + 1e-9))
        parts.append(start + np.arange(1, count + 1) / rate)
    times: FloatArray = np.minimum(np.concatenate(parts), until)
    return times


def run_lanes(lanes: Sequence[Lanes], streams: Sequence[Streams], times: FloatArray) -> Int32Array:
    """Page that each policy crawls in each slot.

    Parameters
    ----------
    lanes : sequence of P Lanes
    streams : sequence of R Streams
        One for each repetition, of equal numbers of pages.
    times : (S,) float64
        Instants of the slots, rising.

    Returns
    -------
    (P, R, S) int32
        The same pages as evaluating every page in every slot and taking the first of the highest value.

    Raises
    ------
    ValueError
        Numbers of repetitions or of pages that do not agree, no page, or instants that do not rise.

    Notes
    -----
    Memory is about 200 bytes for each page of each lane and 100 MB for a block.
    """
    if not lanes or not streams:
        return np.zeros((len(lanes), len(streams), times.size), np.int32)
    m = streams[0].pages
    if m == 0:
        raise ValueError("there are no pages to crawl")
    for lane in lanes:
        if len(lane.believed) != len(streams):
            raise ValueError(f"{len(lane.believed)} instances for {len(streams)} repetitions")
        if any(len(instance) != m for instance in lane.believed):
            raise ValueError(f"all instances and streams must have the same number of pages, {m}")
    if any(stream.pages != m for stream in streams):
        raise ValueError(f"all instances and streams must have the same number of pages, {m}")
    if times.size and not (times[0] > 0.0 and np.all(np.diff(times) > 0.0)):
        raise ValueError("the instants of the slots must be above 0 and rise")
    pages = [lane.policy.pages(instance) for lane in lanes for instance in lane.believed]
    policies, delays = [lane.policy for lane in lanes], [lane.delay for lane in lanes]
    found = LazyArgmax(policies, delays, pages, list(streams), times).run()
    return found.reshape(len(lanes), len(streams), times.size)
