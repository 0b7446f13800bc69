"""From which age of its copy on a request of a page is worth a crawl, at the multiplier of the night."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from policies.numerics.typing_ import BoolArray, FloatArray
from policies.on_request.value import worth_from_days
from policies.optimum import search
from transforms.night.request_share import HARMONIC

PER_REQUEST = ("clicks", "impressions")
"""What pages must weigh: the multiplier is then what a crawl gains in requests."""

_HOURS = 24.0


def request_crawls(
    weight_by: str,
    factor: float,
    result: search.SearchResult,
    allocation: search.Allocation,
    pages: pa.RecordBatch,
    weight: FloatArray,
    never: BoolArray,
) -> dict[str, pa.Array]:
    """The column `crawl_on_request` of pages/: hours, null where no request is worth a crawl.

    Pages of a host at its limit pay the host's price besides. A page without a copy is worth one at once.

    Parameters
    ----------
    weight_by : str
        What pages weigh.
    factor : float
        Of prices, see `policies.on_request.sharing.next_factor`.
    result, allocation
        Of the night's search.
    pages : RecordBatch of n pages
        With "information", "change_rate_per_day", "host_code" and "last_crawl_at".
    weight : (n,) float64
        Requests a day.
    never : (n,) bool
        Pages whose crawls tell nothing, or that signals speak for.
    """
    n = pages.num_rows
    if weight_by not in PER_REQUEST or result.objective == HARMONIC:
        return {"crawl_on_request": pa.nulls(n, pa.float64())}
    price = np.full(n, result.multiplier)
    if len(allocation.host_multiplier):
        price += allocation.host_multiplier[pages.column("host_code").to_numpy()]
    change, information = (pages.column(c).to_numpy() for c in ("change_rate_per_day", "information"))
    hours = _HOURS * worth_from_days(weight, change, information, factor * price)
    hours[pages.column("last_crawl_at").is_null().to_numpy(zero_copy_only=False) & (weight > 0.0)] = 0.0
    return {"crawl_on_request": pa.array(hours, mask=never | ~np.isfinite(hours))}
