"""Which pages are crawled by their signals: those for which that pays although a night comes once a day."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from policies.signal_delay import periodic_rate, worth_waiting_for
from policies.signal_pages import SignalPages
from policies.typing_ import FloatArray


@dataclass(frozen=True)
class SignalUse:
    """What a night needs to know to use signals.

    Attributes
    ----------
    horizon_days : float
        Of a schedule: signals wait half of it, on average.
    multiplier : float or None
        Of the night before, requests per crawl; None on a first night, which takes all signals to be worth
        waiting for.
    """

    horizon_days: float
    multiplier: float | None = None

    def kept(
        self,
        signals: pa.RecordBatch,
        pages: dict[str, pa.Array],
        hosts: pa.RecordBatch,
        split: Collection[int],
    ) -> pa.RecordBatch:
        """The rows of pages that signals should move; the others are crawled evenly.

        Parameters
        ----------
        signals : RecordBatch of `transforms.trusting.SIGNALS_TABLE`
        pages : dict of str to Array
            Estimated columns of all pages of the shard.
        hosts : RecordBatch
        split : collection of int
            Hashes of hosts that have pages in other shards.

        Notes
        -----
        The multiplier prices a crawl where no limit binds. Pages at their cap, and those of hosts that all
        pages together would take to their limit, are crawled less: there signals are always worth it.
        """
        if not self.multiplier or not signals.num_rows:
            return signals

        def column(name: str) -> FloatArray:
            return pages[name].to_numpy(zero_copy_only=False)

        row = signals.column("row").to_numpy()
        weight, change, cap = column("weight"), column("change_rate_per_day"), column("cap_per_day")
        none = np.zeros(len(weight))
        everybody = SignalPages(weight, change, none, none)
        wanted = np.minimum(periodic_rate(everybody, self.multiplier), cap)
        host = column("host_code").astype(np.int64)
        limit = hosts.column("limit_per_day").to_numpy()
        if split:  # what their pages elsewhere ask for is not known here
            parted = np.isin(hosts.column("host_hash").to_numpy(), np.array(sorted(split), np.uint64))
            limit = np.where(parted & np.isfinite(limit), 0.0, limit)
        full = np.bincount(host, weights=wanted, minlength=len(limit)) > limit
        some = SignalPages(
            weight[row],
            *(
                signals.column(name).to_numpy()
                for name in ("unsignalled_rate_per_day", "signal_rate_per_day", "signal_weight")
            ),
        )
        useful = worth_waiting_for(some, self.multiplier, 0.5 * self.horizon_days)
        useful |= (wanted[row] >= cap[row]) | full[host[row]]
        return signals.filter(pa.array(useful))
