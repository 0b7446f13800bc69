"""Pages of one shard as sequencing wants them, and the checks on them."""

from dataclasses import dataclass, replace

import numpy as np

from policies.numerics.typing_ import BoolArray, FloatArray, IntArray, UIntArray


@dataclass(frozen=True, slots=True)
class ShardPages:
    """Pages of one shard, n rows, those of a host next to each other.

    Attributes
    ----------
    crawl_rate_per_day : (n,) float64
        0 means never. Ignored for new pages.
    days_since_last : (n,) float64
        Days from the last attempt, or the last slot that is already past, to the start of the night. NaN for
        new pages. Infinite is overdue; below 0 counts as 0.
    is_new : (n,) bool
        Pages never crawled.
    crawl_value : (n,) float64
        Decides among pages that are due together, and among new pages: higher first.
    tie : (n,) uint64
        Stable hash of the page; decides where values are equal.
    host_start : (h + 1,) int64 or None
        Rows ``host_start[j]:host_start[j + 1]`` are host j. None when no host has a limit or gap.
    host_max_slots : (h,) int64 or None
        Most crawls of each host tonight; a large number or None for no limit.
    host_gap_us : (h,) int64 or None
        Least time between two crawls of a host, in microseconds.
    host_free_at_us : (h,) int64 or None
        First moment, in microseconds from the start of the night, at which a host may be crawled: its last
        crawl plus its gap. May be negative.
    by_signal : (n,) bool or None
        Pages that are due for their signals: they come first among those that are overdue.
    host_whole : (h,) bool or None
        Hosts that get slots as a whole, which their pages then share, whether a limit binds or not.
    host_days_since_last : (h,) float64 or None
        Days since the last crawl of any page of such a host; the least of `days_since_last` of its pages if
        None.
    """

    crawl_rate_per_day: FloatArray
    days_since_last: FloatArray
    is_new: BoolArray
    crawl_value: FloatArray
    tie: UIntArray
    host_start: IntArray | None = None
    host_max_slots: IntArray | None = None
    host_gap_us: IntArray | None = None
    host_free_at_us: IntArray | None = None
    by_signal: BoolArray | None = None
    host_whole: BoolArray | None = None
    host_days_since_last: FloatArray | None = None

    def rows(self, rows: IntArray) -> "ShardPages":
        """Some pages, (m,) int64, without any limit of hosts."""
        return ShardPages(
            self.crawl_rate_per_day[rows],
            self.days_since_last[rows],
            self.is_new[rows],
            self.crawl_value[rows],
            self.tie[rows],
            by_signal=None if self.by_signal is None else self.by_signal[rows],
        )

    def of_hosts(self, chosen: BoolArray) -> "ShardPages":
        """The pages of the `chosen` hosts, (h,) bool, with the limits of these."""
        if self.host_start is None:
            raise ValueError("pages without host_start cannot be chosen by host")
        sizes = np.diff(self.host_start)
        some = self.rows(np.flatnonzero(np.repeat(chosen, sizes)))

        def of(values: IntArray | None) -> IntArray | None:
            return None if values is None else values[chosen]

        return replace(
            some,
            host_start=np.concatenate([[0], np.cumsum(sizes[chosen])]),
            host_max_slots=of(self.host_max_slots),
            host_gap_us=of(self.host_gap_us),
            host_free_at_us=of(self.host_free_at_us),
            host_whole=None if self.host_whole is None else self.host_whole[chosen],
            host_days_since_last=(
                None if self.host_days_since_last is None else self.host_days_since_last[chosen]
            ),
        )


def priority_order(crawl_value: FloatArray, tie: UIntArray) -> IntArray:
    """Place of each page by crawl value, higher first, then by stable hash, then by row: 0, 1, ..., n - 1."""
    order = np.argsort(-crawl_value)
    sorted_value = crawl_value[order]
    runs = np.concatenate(([0], np.cumsum(sorted_value[1:] != sorted_value[:-1])))[: order.size]
    if order.size and runs[-1] + 1 < order.size:
        high = tie[order] >> np.uint64(32)
        key = (runs.astype(np.uint64) << np.uint64(32)) | high
        again = np.argsort(key)
        ordered = key[again]
        order = order[again]
        if np.any(ordered[1:] == ordered[:-1]):
            order = np.lexsort((np.arange(tie.size), tie, -crawl_value))
    place: IntArray = np.empty(order.size, np.int64)
    place[order] = np.arange(order.size)
    return place


def check_night(pages: ShardPages, offsets: IntArray, horizon_us: int) -> None:
    """Raise ValueError, with value and row, for pages or slots that `sequencing` cannot use."""
    n = pages.crawl_rate_per_day.size
    for name in ("crawl_rate_per_day", "days_since_last", "is_new", "crawl_value", "tie"):
        shape = getattr(pages, name).shape
        if shape != (n,):
            raise ValueError(f"{name} has shape {shape}; crawl_rate_per_day has {n} pages")
    known = ~pages.is_new
    rate = pages.crawl_rate_per_day
    bad = np.flatnonzero(known & ~((rate >= 0.0) & (rate < np.inf)))
    if bad.size:
        value = rate[bad[0]]
        raise ValueError(f"crawl_rate_per_day is {value} in row {bad[0]}; it must be finite and at least 0")
    bad = np.flatnonzero(known & np.isnan(pages.days_since_last))
    if bad.size:
        raise ValueError(f"days_since_last is NaN in row {bad[0]}; mark pages without a crawl as new")
    bad = np.flatnonzero(np.isnan(pages.crawl_value))
    if bad.size:
        raise ValueError(f"crawl_value is NaN in row {bad[0]}; use 0 where it is not known")
    if horizon_us <= 0:
        raise ValueError(f"horizon_us is {horizon_us}; it must be above 0")
    if offsets.ndim != 1 or (
        offsets.size and (offsets[0] < 0 or offsets[-1] >= horizon_us or bool(np.any(np.diff(offsets) < 0)))
    ):
        raise ValueError(f"slot_offset_us must be in order and in [0, {horizon_us})")
    if pages.host_start is not None:
        start = pages.host_start
        if start.size < 1 or start[0] != 0 or start[-1] != n or bool(np.any(np.diff(start) < 0)):
            raise ValueError(f"host_start must rise from 0 to the number of pages, {n}")
        for name in ("host_max_slots", "host_gap_us", "host_free_at_us"):
            values = getattr(pages, name)
            if values is not None and values.shape != (start.size - 1,):
                raise ValueError(f"{name} has shape {values.shape}; host_start has {start.size - 1} hosts")
