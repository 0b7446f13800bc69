"""What a night expects of the pages that it schedules, and what became of that the night after."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import pyarrow as pa

from policies.estimation.forecast import Clocks, Forecast
from policies.history.interval_sums import Intervals
from policies.history.visits import Observations
from policies.judging.calibration import Judge
from policies.judging.host_factors import COLUMNS, Corrections, HostTrack
from policies.judging.recalibration import NO_CELL, CellSums, CellWatch, calm_days
from policies.numerics.lookup import rows_of
from policies.numerics.typing_ import FloatArray, Int16Array, IntArray
from transforms.kept.clocks import ShardClocks
from transforms.kept.judging import Judged, forecast_of, judged_of
from transforms.kept.protocol import ShardNight, Statistic
from transforms.kept.signal_forecasts import FIELDS, signal_forecast_of
from transforms.kept.signals import ShardNews
from transforms.shards.coding import ShardPages


class ShardFactors:
    """Clock factors of a shard's forecasts, of the night that made them, see
    `policies.judging.recalibration`.

    Parameters
    ----------
    slots : Table of `schemas.SLOTS_PAGES`, or None
    code : (m,) int64 or None
        Page of each of its rows, -1 where the shard has no such page.
    slots_hosts : Table of `schemas.SLOTS_HOSTS`, or None
    pages : ShardPages
    forecast : Forecast
        Of the rows of `slots`, by rates alone.
    factors : array or None
        From `policies.judging.recalibration.Track.factors`, of the night before.
    """

    def __init__(
        self,
        slots: pa.Table | None,
        code: IntArray | None,
        slots_hosts: pa.Table | None,
        pages: ShardPages,
        forecast: Forecast,
        factors: FloatArray | None,
    ) -> None:
        calm: Int16Array = np.zeros(0, np.int16)
        host: IntArray = np.zeros(0, np.int64)
        if slots is not None and code is not None:
            calm = slots.column("calm_cell").fill_null(NO_CELL).to_numpy()
            host = (
                np.where(code >= 0, pages.host_code[code], 0) if len(pages) else np.zeros(len(code), np.int64)
            )
        self._watch = CellWatch(forecast, calm, factors, host, _tracked(slots_hosts, pages))

    def of(self, first_page: int, intervals: Intervals, clocks: Clocks | None = None) -> FloatArray | None:
        """By how much the clock of each interval is corrected, (k,), see `CellWatch`; None if of none."""
        return self._watch.factor(first_page, intervals, clocks)

    def __call__(self, first_page: int, intervals: Intervals, clocks: Clocks | None = None) -> None:
        """Count intervals, as `CellWatch` does."""
        self._watch(first_page, intervals, clocks)

    @property
    def sums(self) -> CellSums:
        """Of all intervals so far."""
        return self._watch.sums

    def corrections(self, split: Mapping[int, str]) -> Corrections:
        """What factors did to all intervals so far, see `CellWatch.corrections`."""
        return self._watch.corrections(split)

    @property
    def hosts(self) -> HostTrack:
        """How forecasts of the shard's hosts have done up to tonight."""
        return self._watch.hosts


def _tracked(slots_hosts: pa.Table | None, pages: ShardPages) -> HostTrack:
    """What the night before left of the shard's hosts: of the parts of a host the least gains, and the mean
    of what came, since every part has the rows of all.
    """
    host_hash = pages.host_hash[pages.host_start[:-1]]
    found = np.zeros((len(COLUMNS), len(host_hash)))
    if slots_hosts is not None:
        at = rows_of(host_hash, slots_hosts.column("host_hash").to_numpy())
        known = at >= 0
        parts = np.maximum(np.bincount(at[known], minlength=len(host_hash)), 1)
        for name, values in zip(COLUMNS, found, strict=True):
            carried = slots_hosts.column(name).to_numpy().astype(np.float64)[known]  # null becomes NaN
            if name.endswith("gain"):
                values[:] = np.inf
                np.fmin.at(values, at[known], carried)
                values[np.isinf(values)] = 0.0
            else:  # whole numbers: the order of parts does not matter
                units = np.rint(np.nan_to_num(carried) * 2.0**16)
                values[:] = np.bincount(at[known], units, len(values)) * 2.0**-16 / parts
    return HostTrack(*found)


class ShardPredictions(Statistic):
    """Last night's predictions against tonight's log. Those on signals are null where none count; the cell is
    that of `policies.judging.recalibration.calm_cells`.
    """

    SLOTS = (
        pa.field("change_rate_per_day", pa.float32()),
        pa.field("information", pa.float32()),
        pa.field("weight", pa.float32()),
        *FIELDS,
        pa.field("calm_cell", pa.int16()),
    )

    def __init__(self, night: ShardNight) -> None:
        settings, slots = night.settings, (night.slots, night.slot_code)
        self._pages, self._news = night.pages, night.kept[ShardNews]
        self._split_hosts = settings.split_hosts
        forecast = forecast_of(*slots, night.before, settings.forgetting, settings.as_of_us)
        hosts = night.table("slots_hosts")
        self._factors = ShardFactors(*slots, hosts, night.pages, forecast, settings.clock_factors)
        self._judge = Judge(forecast, night.pages.host_code)
        of_signals = signal_forecast_of(*slots, len(night.pages), self._news.source_code)
        self._of_signals = of_signals.only(self._news.news.listens())

    def watch(self, first_page: int, intervals: Intervals) -> None:
        now = self._of_signals.others(first_page, intervals)
        self._factors(first_page, now)
        factor = self._factors.of(first_page, now)
        if factor is not None:
            now = replace(now, clock_us=np.maximum(np.rint(now.length_us * factor), 1.0).astype(np.int64))
        self._judge(first_page, now)

    def fold(self, night: ShardNight, rows: Observations) -> None:
        """Pages with signals: what was expected of them is known when the night's signals are counted."""
        for heard in self._news.news.heard:
            intervals, clocks = self._of_signals.clocks(heard)
            self._factors(0, intervals, clocks)
            factor = self._factors.of(0, intervals, clocks)
            if factor is not None:
                clocks = self._of_signals.clocks(heard, factor)[1]
            self._judge(0, intervals, clocks)

    def columns(self, night: ShardNight) -> dict[str, pa.Array]:
        return {"calm_days": pa.array(calm_days(night.after, night.kept[ShardClocks].now))}

    def sums(self) -> Judged:
        factors = self._factors
        return judged_of(self._judge, self._pages, self._split_hosts, factors.sums, factors.corrections)

    @property
    def hosts(self) -> HostTrack:
        """See `ShardFactors.hosts`."""
        return self._factors.hosts
