"""Dates that sitemaps give: compared with those of the night before, and carried to the next one."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from policies.history import lastmods
from policies.history.lastmods import Lastmods
from transforms.batches import schemas
from transforms.batches.tally import Counts
from transforms.kept.protocol import ShardNight, Statistic
from transforms.shards.coding import ShardPages

SOURCE = "sitemap"


def claims_of(pages: ShardPages, rows: pa.Table | None, begin: str) -> Lastmods:
    """The arrays of a table with url_hash, times and precision; pages that the shard does not know are -1."""
    if rows is None or not rows.num_rows:
        return Lastmods.empty()
    times = rows.column(begin).cast(pa.int64()).fill_null(0).to_numpy()
    return Lastmods(
        pages.code(rows.column("url_hash").to_numpy()), times, rows.column("precision").to_numpy()
    )


def compare_lastmods(
    pages: ShardPages, rows: pa.Table | None, carried: pa.Table | None, as_of_us: int, counts: Counts
) -> tuple[Lastmods, pa.RecordBatch | None]:
    """Compare tonight's sitemaps with those of the night before.

    Parameters
    ----------
    pages : ShardPages
    rows : Table of `schemas.SITEMAPS` with url_hash, or None
    carried : Table of `schemas.STATE_LASTMODS`, or None
    as_of_us : int, microseconds
    counts : Counts
        Gets those of `policies.history.lastmods.compare`, if there are rows.

    Returns
    -------
    Lastmods
        To be carried.
    RecordBatch or None
        Rows of `schemas.SIGNALS` with url_hash, source `SOURCE`.
    """
    before = claims_of(pages, carried, "lastmod")
    known = before.take(before.page >= 0)
    known = known.take(np.argsort(known.page, kind="stable"))
    if rows is None:
        return known, None
    found = lastmods.compare(known, claims_of(pages, rows, "lastmod"), as_of_us)
    for name, n in found.counts.items():
        counts.add(name, n)
    if not len(found.page):
        return found.carried, None
    signals = pa.RecordBatch.from_pydict(
        {
            "url": pages.url.take(pa.array(found.page)),
            "signalled_at": pa.array(found.signalled_at_us).cast(schemas.TIME),
            "source": pa.array([SOURCE]).take(pa.array(np.zeros(len(found.page), np.int64))),
            "url_hash": pa.array(pages.url_hash[found.page]),
        }
    )
    return found.carried, signals


class ShardLastmods(Statistic):
    """The newest date of each page so far; those that have moved are signals of tonight."""

    FOLDERS = (("state/lastmods", schemas.STATE_LASTMODS),)

    def __init__(self, night: ShardNight) -> None:
        rows, carried = night.table("sitemaps"), night.table("state_lastmods")
        self._pages, self._written = night.pages, night.settings.with_lastmods
        self._carried, moved = compare_lastmods(
            night.pages, rows, carried, night.settings.as_of_us, night.counts
        )
        if moved is not None:
            night.inputs.setdefault("signals", []).append(moved)

    def files(self) -> Iterator[tuple[str, pa.RecordBatch]]:
        if self._written:
            pages, carried = self._pages, self._carried
            columns = [
                pa.array(pages.url_hash[carried.page]),
                pa.array(pages.host_hash[carried.page]),
                pa.array(carried.begin_us).cast(schemas.TIME),
                pa.array(carried.precision),
            ]
            rows = pa.RecordBatch.from_arrays(columns, schema=schemas.STATE_LASTMODS)
            yield "state/lastmods", rows
