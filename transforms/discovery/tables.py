"""Columns between the stages of the discovery job, of its state and of its results."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from policies.discovery.drawing import HourlyYields
from policies.discovery.hours import HOURS
from policies.discovery.pham import FEATURES
from policies.discovery.regressed import Products, Recent
from policies.discovery.shared import Shared
from policies.discovery.sums import CLASSES, NEVER_S, Sums
from policies.numerics.typing_ import IntArray
from transforms.batches.schemas import TIME, named_schema

# A visit of a source: a fetch at an instant, in parts where several batches have rows of it; or how many
# targets it was the first to show. `partial`: some of its links may be missing, so none has come by it. The
# shard is that of the source's host.
VISITS = named_schema(
    "visits",
    [
        ("url", pa.string()),
        ("url_hash", pa.uint64()),
        ("host_hash", pa.uint64()),
        ("at_s", pa.int64()),
        ("ok", pa.bool_()),
        ("new", pa.int64()),
        ("partial", pa.bool_()),
        ("targets", pa.list_(pa.uint64())),
    ],
)
# Who showed a target first, of one batch. The shard is that of the target: `host_hash` is its hash.
FOUND = named_schema(
    "found",
    [
        ("url", pa.string()),
        ("host_hash", pa.uint64()),
        ("at_s", pa.int64()),
        ("source_hash", pa.uint64()),
        ("source_host_hash", pa.uint64()),
    ],
)
# Targets that are new, for the shard of who showed them, which has their URLs: `host_hash` is that of it.
NEW_TARGETS = named_schema(
    "new_targets",
    [
        ("url", pa.string()),
        ("target_hash", pa.uint64()),
        ("at_s", pa.int64()),
        ("source_hash", pa.uint64()),
        ("host_hash", pa.uint64()),
    ],
)
LISTED = named_schema("listed", [("url", pa.string()), ("url_hash", pa.uint64()), ("host_hash", pa.uint64())])

# The state. One row a source, sorted by the hashes of host and URL, which follow from the URL.
_VECTOR = pa.list_(pa.float32(), CLASSES)
STATE_SOURCES = named_schema(
    "state_sources",
    [
        ("url", pa.string()),
        ("listed", pa.bool_()),
        ("new", pa.float32()),
        ("before_minutes", pa.uint16()),
        ("asked", pa.float32()),
        ("unanswered", pa.float32()),
        ("failures", pa.int32()),
        ("seen_s", pa.uint32()),
        ("failed_s", pa.uint32()),
        ("asked_s", pa.uint32()),
        ("count", _VECTOR),
        ("exposure_hours", _VECTOR),
        # By hour of the day, of Thompson sampling alone; null of other policies.
        ("hour_new", pa.list_(pa.uint32())),
        ("hour_visits", pa.list_(pa.uint32())),
        # Visits of the last day, of Pham's crawler alone: hours of the clock from each to the next, the last
        # being the last visit. Gaps take a tenth of the bytes of instants.
        ("recent_gap_hours", pa.list_(pa.uint32())),
        ("recent_new", pa.list_(pa.uint32())),
    ],
)
# Links of each source at its last visit, sorted; `came`: not at the one before.
STATE_SHOWN = named_schema(
    "state_shown", [("source_hash", pa.uint64()), ("target_hash", pa.uint64()), ("came", pa.bool_())]
)
STATE_KNOWN = named_schema("state_known", [("target_hash", pa.uint64())])
STATE_SHARED = named_schema(
    "state_shared",
    [
        *((n, pa.list_(pa.int64())) for n in Shared.NAMES),
        # Of Pham's crawler alone: days, their sums of products, and new links and visits of the run.
        ("product_day", pa.list_(pa.int64())),
        ("product", pa.list_(pa.float64())),
        ("run_found", pa.list_(pa.int64())),
    ],
)
STATE_HOSTS = named_schema(
    "state_hosts", [("host_hash", pa.uint64()), ("new", pa.int64()), ("exposure", pa.int64())]
)
SLOTS = named_schema("slots", [("host_hash", pa.uint64()), ("last_slot_at", TIME)])
STATE = {
    "state/sources": STATE_SOURCES,
    "state/shown": STATE_SHOWN,
    "state/known": STATE_KNOWN,
    "state/shared": STATE_SHARED,
    "state/hosts": STATE_HOSTS,
    "slots": SLOTS,
}
OF_TARGETS = ("state/known",)

# Between the stages: hosts of a shard.
HOSTS = named_schema(
    "discovery_hosts",
    [
        ("host", pa.string()),
        ("host_hash", pa.uint64()),
        ("sources", pa.int64()),
        ("most", pa.int64()),
        ("gap_us", pa.int64()),
        ("free_us", pa.int64()),
        ("new", pa.int64()),
        ("exposure", pa.int64()),
        # Of the group whose limit and gap it shares, 0 where it has none.
        ("unit_hash", pa.uint64()),
    ],
)

SCHEDULE = named_schema(
    "discovery_schedule",
    [
        ("url", pa.string()),
        ("host", pa.string()),
        ("due_at", TIME),
        ("reason", pa.string()),
        ("worth", pa.float64()),
    ],
)
SOURCES_OUT = named_schema(
    "sources_out",
    [
        ("url", pa.string()),
        ("host", pa.string()),
        ("links", pa.int64()),
        ("new_links_per_day", pa.float64()),
        ("lifetime_hours", pa.float64()),
        ("last_seen_at", TIME),
        ("failures", pa.int64()),
        ("refreshes_per_day", pa.float64()),
        ("worth", pa.float64()),
        ("why", pa.string()),
    ],
)
# The nightly job reads these as --pages; to it a page appeared when it was found, but where the first look at
# a source has found it: then `published_at` is null.
TARGETS_OUT = named_schema(
    "targets_out",
    [
        ("url", pa.string()),
        ("host", pa.string()),
        ("found_by", pa.string()),
        ("found_at", TIME),
        ("published_at", TIME),
    ],
)


def gathered(batches: Iterable[pa.RecordBatch], schema: pa.Schema) -> pa.RecordBatch:
    """Batches as one, of none too."""
    found = [b.select(schema.names).replace_schema_metadata(None) for b in batches]
    bare = schema.remove_metadata()
    return pa.concat_batches([pa.RecordBatch.from_pylist([], bare), *found])


def sums_to_columns(sums: Sums) -> dict[str, pa.Array]:
    """Sums as the state has them, without URLs."""
    failing = sums.failures > 0
    some = sums.unanswered > 0
    once = ~np.isfinite(sums.before_hours)
    return {
        "new": pa.array(sums.new),
        "before_minutes": pa.array(
            np.rint(np.where(once, 0.0, sums.before_hours) * 60.0).astype(np.uint16), mask=once
        ),
        "asked": pa.array(sums.asked),
        "unanswered": pa.array(sums.unanswered, mask=~some),
        "failures": pa.array(sums.failures, mask=~failing),
        **{
            name: pa.array(
                np.maximum(getattr(sums, name), 0).astype(np.uint32), mask=getattr(sums, name) == NEVER_S
            )
            for name in ("seen_s", "failed_s", "asked_s")
        },
        **{
            name: pa.FixedSizeListArray.from_arrays(pa.array(getattr(sums, name).ravel()), CLASSES)
            for name in ("count", "exposure_hours")
        },
    }


def columns_to_sums(batch: pa.RecordBatch, links: np.ndarray, by_class: bool = True) -> Sums:
    """The inverse; `links` at the last visits are counted elsewhere."""
    sums = Sums(batch.num_rows, by_class)
    sums.links[:] = links
    minutes = batch.column("before_minutes").to_numpy(zero_copy_only=False).astype(np.float64)
    sums.before_hours[:] = np.where(np.isnan(minutes), np.inf, minutes / 60.0)
    for name in ("new", "asked", "unanswered", "failures"):
        getattr(sums, name)[:] = batch.column(name).fill_null(0).to_numpy(zero_copy_only=False)
    for name in ("seen_s", "failed_s", "asked_s"):
        column = batch.column(name).cast(pa.int64()).fill_null(NEVER_S)
        getattr(sums, name)[:] = column.to_numpy(zero_copy_only=False)
    for name in ("count", "exposure_hours"):
        getattr(sums, name)[:] = batch.column(name).flatten().to_numpy().reshape(-1, CLASSES)
    if not by_class:  # of a night of another policy
        sums.count[:] = 0.0
        sums.exposure_hours[:] = sums.exposure_hours.mean(axis=1, keepdims=True, dtype=np.float64)
    return sums


def yields_to_columns(yields: HourlyYields | None, n: int) -> dict[str, pa.Array]:
    """Yields of n sources as the state has them; nulls of none."""
    if yields is None:
        return {name: pa.nulls(n, STATE_SOURCES.field(name).type) for name in ("hour_new", "hour_visits")}
    offsets = pa.array(HOURS * np.arange(n + 1), pa.int32())
    return {
        name: pa.ListArray.from_arrays(offsets, pa.array(values.ravel().astype(np.uint32)))
        for name, values in (("hour_new", yields.new), ("hour_visits", yields.visits))
    }


def columns_to_yields(batch: pa.RecordBatch) -> HourlyYields:
    """The inverse, zeros of nulls."""
    yields = HourlyYields(batch.num_rows)
    some = batch.column("hour_new").is_valid().to_numpy(zero_copy_only=False)
    for name, values in (("hour_new", yields.new), ("hour_visits", yields.visits)):
        values[some] = batch.column(name).flatten().to_numpy().reshape(-1, HOURS)
    return yields


def without_other_policies(batch: pa.RecordBatch) -> pa.RecordBatch:
    """`STATE_SOURCES` without the columns of policies that are not the night's; they are read as null."""
    own = ("hour_new", "hour_visits", "recent_gap_hours", "recent_new")
    other = [name for name in own if batch.column(name).null_count == len(batch)]
    return batch.select([name for name in batch.schema.names if name not in other])


_RECENT = ("recent_gap_hours", "recent_new")


def recent_to_columns(recent: Recent | None, seen_s: IntArray) -> dict[str, pa.Array]:
    """Visits of a day of n sources, last seen at `seen_s`, as the state has them; nulls of none."""
    n = len(seen_s)
    if recent is None:
        return {name: pa.nulls(n, STATE_SOURCES.field(name).type) for name in _RECENT}
    offsets = pa.array(np.searchsorted(recent.source, np.arange(n + 1)), pa.int32())
    ago = seen_s[recent.source] // 3600 - recent.at_s // 3600
    ends = np.append(np.diff(recent.source) != 0, True)[: len(ago)]
    gap = ago - np.where(ends, 0, np.append(ago[1:], 0)[: len(ago)])
    return {
        name: pa.ListArray.from_arrays(offsets, pa.array(values.astype(np.uint32)))
        for name, values in zip(_RECENT, (gap, recent.new), strict=True)
    }


def columns_to_recent(batch: pa.RecordBatch) -> Recent:
    """The inverse, in whole hours before the last visit; none of a state that has instants, not gaps."""
    gaps = batch.column("recent_gap_hours")
    count = pc.fill_null(pc.list_value_length(gaps), 0).to_numpy(zero_copy_only=False)
    lists = gaps, batch.column("recent_new").filter(gaps.is_valid())
    gap, new = (column.flatten().to_numpy().astype(np.int64) for column in lists)
    source, total = np.repeat(np.arange(batch.num_rows), count), np.append(0, np.cumsum(gap))
    ago = total[np.cumsum(count)[source]] - total[: len(gap)]
    seen_s = batch.column("seen_s").cast(pa.int64()).fill_null(NEVER_S).to_numpy(zero_copy_only=False)
    return Recent(source, seen_s[source] - 3600 * ago, new)


def products_to_row(products: Products | None) -> dict[str, list[float] | list[int] | None]:
    """Cells of `STATE_SHARED`."""
    if products is None:
        return dict.fromkeys(("product_day", "product", "run_found"))
    run = [products.found, products.visits]
    return {
        "product_day": products.day.tolist(),
        "product": products.total.ravel().tolist(),
        "run_found": run,
    }


def batch_to_products(batch: pa.RecordBatch) -> Products:
    """The inverse, of one row or none."""
    row = batch.to_pylist()[0] if batch.num_rows else {}
    if not row.get("run_found"):
        return Products()
    day = np.array(row["product_day"], np.int64)
    total = np.array(row["product"], np.float64).reshape(len(day), FEATURES, FEATURES + 1)
    return Products(day, total, *row["run_found"])
