"""What a night expects of pages with signals, kept with their slots for the night after."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa

from policies.numerics.lookup import rows_of
from policies.numerics.typing_ import BoolArray, FloatArray, IntArray
from policies.signals.estimation import PageFit
from policies.signals.forecast import SignalForecast
from transforms.kept.state import list_column, list_start

_SMALLEST_RATE = 1e-30  # what single precision has rounded to 0
FIELDS = (
    pa.field("unsignalled_rate_per_day", pa.float32()),
    pa.field("unsignalled_information", pa.float32()),
    pa.field("signal_source", pa.list_(pa.string())),
    pa.field("signal_weight", pa.list_(pa.float32())),
    pa.field("signal_information", pa.list_(pa.float32())),
)
"""What slots/pages has of pages whose signals count, see `policies.signals.forecast`; null elsewhere."""

FORECASTS_TABLE = pa.schema([pa.field("row", pa.int64()), *FIELDS], metadata={"recrawl": "forecasts_table"})
"""Pages whose signals count: rows of the "pages" table, ascending, and `FIELDS`."""


def forecasts_batch(
    row: IntArray, sources: Sequence[str], heard_of: BoolArray, unsignalled: FloatArray, fit: PageFit
) -> pa.RecordBatch:
    """`FORECASTS_TABLE` of r pages and S sources.

    Parameters
    ----------
    row : (r,) int64, ascending
    sources : sequence of S str
    heard_of : (r, S) bool
        Sources that the page's host is known to have. Not all of the shard: what a night expects must not
        depend on which hosts share one.
    unsignalled : (r,) float64, per day
        What comes unsignalled, with the sources that have stopped.
    fit : PageFit of r pages
    """
    start = np.zeros(len(row) + 1, np.int64)
    np.cumsum(heard_of.sum(axis=1), out=start[1:])
    information = 1.0 / np.maximum(np.diagonal(fit.covariance, axis1=1, axis2=2), 1e-12)
    names = pa.array(list(sources), pa.string()).take(pa.array(np.nonzero(heard_of)[1]))
    columns = (
        pa.array(row),
        pa.array(unsignalled, pa.float32()),
        pa.array(information[:, 0], pa.float32()),
        list_column(start, names),
        list_column(start, fit.signal_weight[heard_of].astype(np.float32)),
        list_column(start, information[:, 1:][heard_of].astype(np.float32)),
    )
    return pa.RecordBatch.from_arrays(list(columns), schema=FORECASTS_TABLE)


def slots_columns(forecasts: pa.RecordBatch | None, rows: IntArray) -> dict[str, pa.Array]:
    """The columns `FIELDS` for some rows of the "pages" table."""
    if forecasts is None or not forecasts.num_rows:
        return {field.name: pa.nulls(len(rows), field.type) for field in FIELDS}
    known = forecasts.column("row").to_numpy()
    place = rows_of(known, rows)
    take = pa.array(place, mask=place < 0)
    return {field.name: forecasts.column(field.name).take(take) for field in FIELDS}


def signal_forecast_of(
    slots: pa.Table | None, code: IntArray | None, n_pages: int, source_code: Mapping[str, int]
) -> SignalForecast:
    """The forecast of pages with signals in a shard's `slots/pages`.

    Parameters
    ----------
    slots : Table or None
    code : (m,) int64 or None
        Page of each row, -1 where the shard has no such page.
    n_pages : int
    source_code : dict of str to int
        Codes of tonight's sources. Several sources that tonight are told apart no more are not known.
    """
    if slots is None or code is None:
        return SignalForecast.empty(n_pages)
    batch = slots.combine_chunks().to_batches()[0]
    known = batch.column("unsignalled_rate_per_day").is_valid().to_numpy(zero_copy_only=False)
    use = np.flatnonzero((code >= 0) & known)
    if not len(use):
        return SignalForecast.empty(n_pages)
    row = np.full(n_pages, -1, np.int32)
    row[code[use]] = np.arange(len(use))
    batch = batch.take(pa.array(use))

    def rates(name: str) -> FloatArray:
        values: FloatArray = batch.column(name).to_numpy().astype(np.float64)
        return np.maximum(values, _SMALLEST_RATE)

    named = batch.column("signal_source").flatten().dictionary_encode()
    names = named.dictionary.to_pylist()
    sources = np.array([source_code.get(name, -1) for name in names], np.int64)
    of_entry = sources[named.indices.to_numpy()] if len(names) else np.zeros(0, np.int64)
    start = list_start(batch.column("signal_source"))
    of_page = np.repeat(np.arange(len(use)), np.diff(start))
    n_sources = max(source_code.values(), default=-1) + 1
    heard = np.flatnonzero(of_entry >= 0)
    place = of_page[heard] * n_sources + of_entry[heard]
    once = np.bincount(place, minlength=len(use) * n_sources) == 1

    def by_source(name: str) -> FloatArray:
        dense = np.full(len(use) * n_sources, np.nan)
        dense[place] = batch.column(name).flatten().to_numpy()[heard]
        dense[~once] = np.nan
        return dense.reshape(len(use), n_sources)

    return SignalForecast(
        row,
        rates("change_rate_per_day"),
        rates("unsignalled_rate_per_day"),
        rates("unsignalled_information"),
        by_source("signal_weight"),
        by_source("signal_information"),
    )
