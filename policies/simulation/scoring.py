"""How fresh copies were in a synthetic world: exact over requests, or over requests that are drawn.

Given changes and crawls, a copy is fresh from its crawl until the page's next change. The exact accuracy
weighs that time by the request rates: it is the mean of the fraction of requests served fresh, over all
requests that could have come.
"""

import numpy as np

from policies.numerics.typing_ import FloatArray, Int32Array, IntArray
from policies.simulation.streams import Instance, Streams


def _after(streams: Streams, page: IntArray, time: FloatArray) -> IntArray:
    """Index of the first change after each time, of any page if that page has none."""
    span = 2.0 * streams.until
    keys = streams.change_page * span + streams.change_time
    index = np.searchsorted(keys, page * span + time, side="right")
    if keys.size == 0:
        return index
    # Keys are rounded; the times decide.
    while True:
        here = np.minimum(index, keys.size - 1)
        on = (index < keys.size) & (streams.change_page[here] == page) & (streams.change_time[here] <= time)
        before = np.maximum(index - 1, 0)
        back = (index > 0) & (streams.change_page[before] == page) & (streams.change_time[before] > time)
        if not (on | back).any():
            return index
        index = index + on - (back & ~on)


def fresh_intervals(
    streams: Streams, crawl_page: IntArray | Int32Array, crawl_time: FloatArray
) -> tuple[IntArray, FloatArray, FloatArray]:
    """From when to when copies are fresh.

    Parameters
    ----------
    streams : Streams
    crawl_page : (c,) int
        A page below 0 is no crawl.
    crawl_time : (c,) float64
        Rising for each page. A change at the instant of a crawl is in the copy.

    Returns
    -------
    page : (k,) int64
    begin, end : (k,) float64
        Sorted by page, then time; no two of a page overlap, all end by `streams.until`. Every page is fresh
        at time 0.
    """
    kept = crawl_page >= 0
    page: IntArray = np.concatenate((np.arange(streams.pages), crawl_page[kept])).astype(np.int64)
    begin = np.concatenate((np.zeros(streams.pages), crawl_time[kept]))
    order = np.argsort(page, kind="stable")
    page, begin = page[order], begin[order]
    end: FloatArray = np.full(page.size, streams.until)
    index = _after(streams, page, begin)
    if streams.change_page.size:
        here = np.minimum(index, streams.change_page.size - 1)
        changes = (index < streams.change_page.size) & (streams.change_page[here] == page)
        end = np.where(changes, streams.change_time[here], end)
    same = page[1:] == page[:-1]
    end[:-1] = np.where(same, np.minimum(end[:-1], begin[1:]), end[:-1])
    return page, begin, end


def accuracy(
    instance: Instance,
    streams: Streams,
    crawl_page: IntArray | Int32Array,
    crawl_time: FloatArray,
    edges: FloatArray,
) -> FloatArray:
    """Exact accuracy in each window: sum mu x fresh time / sum mu x time.

    Parameters
    ----------
    instance : Instance
    streams : Streams
    crawl_page, crawl_time : (c,)
        As in `fresh_intervals`.
    edges : (k + 1,) float64
        Rising, in [0, until]. ``(warm_up, until)`` for one number.

    Returns
    -------
    (k,) float64
        NaN if nobody requests anything.
    """
    page, begin, end = fresh_intervals(streams, crawl_page, crawl_time)
    weight = instance.request_rate[page]

    def passed(at: FloatArray) -> FloatArray:
        """Sum of weight x (x - at)+ for each x of edges."""
        order = np.argsort(at, kind="stable")
        number = np.searchsorted(at[order], edges, side="left")
        total = np.concatenate(([0.0], np.cumsum(weight[order])))[number]
        moment = np.concatenate(([0.0], np.cumsum(weight[order] * at[order])))[number]
        result: FloatArray = total * edges - moment
        return result

    fresh = np.diff(passed(begin) - passed(end))
    with np.errstate(invalid="ignore", divide="ignore"):
        share: FloatArray = fresh / (instance.request_rate.sum() * np.diff(edges))
    return share


def sampled_accuracy(
    streams: Streams,
    crawl_page: IntArray | Int32Array,
    crawl_time: FloatArray,
    request_page: IntArray | Int32Array,
    request_time: FloatArray,
    warm_up: float = 0.0,
) -> float:
    """Fraction of the requests after `warm_up` that find a fresh copy; NaN if there are none.

    A request is served after a crawl or a change at the same instant.
    """
    kept = request_time > warm_up
    page, time = request_page[kept].astype(np.int64), request_time[kept]
    if page.size == 0:
        return float("nan")
    of, begin, end = fresh_intervals(streams, crawl_page, crawl_time)
    span = 2.0 * streams.until
    index = np.searchsorted(of * span + begin, page * span + time, side="right") - 1
    return float(np.mean((of[index] == page) & (time < end[index])))
