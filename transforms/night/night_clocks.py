"""Clocks of the pages of an estimated shard, for the night that is planned."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from policies.clocks.planned import plan
from policies.clocks.profile import AGES, NO_TIME, WEEK_HOURS, Clocks, Profiles
from policies.clocks.worth import HOURS, Ahead
from policies.numerics.typing_ import FloatArray, IntArray
from transforms.kept.state import matrix_of, microseconds


@dataclass(frozen=True)
class Tonight:
    """What the tables of a shard say of them.

    Attributes
    ----------
    profiles : Profiles
        Groups are hosts.
    clocks : Clocks
    asked : (g, 24) float64
        How many times the mean requests come in each hour of the day, by rows of `clocks`.
    as_of_us, horizon_us : int
    """

    profiles: Profiles
    clocks: Clocks
    asked: FloatArray
    as_of_us: int
    horizon_us: int

    @classmethod
    def of(cls, tables: dict[str, pa.RecordBatch]) -> Tonight | None:
        """From the tables of a shard; None where all clocks are flat."""
        clocks, pages = tables.get("clocks"), tables["pages"]
        if clocks is None or not clocks.num_rows:
            return None
        hour, age = (
            clocks.column(name).flatten().to_numpy().reshape(-1, width)
            for name, width in (("hour", WEEK_HOURS), ("age", AGES))
        )
        profiles = Profiles(clocks.column("host_code").to_numpy().astype(np.int64), hour, age)
        group = pages.column("host_code").to_numpy().astype(np.int64)
        born = microseconds(pages.column("born_at"))
        at, horizon = (clocks.column(n)[0].as_py() for n in ("as_of_us", "horizon_us"))
        asked = np.ones((len(profiles) + 1, HOURS))
        if (hours := tables.get("request_hours")) is not None:
            row = profiles.rows(hours.column("host_code").to_numpy().astype(np.int64))
            asked[row[row >= 0]] = matrix_of(hours.column("hour"), HOURS)[row >= 0]
        return cls(profiles, profiles.clocks(group, born), asked, at, horizon)

    def evenly(
        self, pages: pa.RecordBatch, row: IntArray, from_us: IntArray, to_us: IntArray
    ) -> tuple[FloatArray, FloatArray]:
        """Days before the night and from then on that at tonight's speed are as long, two (k,) float64.

        Parameters
        ----------
        pages : RecordBatch
        row, from_us, to_us : (k,) int64
            Rows of pages, and spans that end in the night.
        """
        night = np.full(len(row), self.as_of_us)
        speed = pages.column("clock_speed").to_numpy()[row]
        spans = ((np.minimum(from_us, night), night), (np.maximum(from_us, night), np.maximum(to_us, night)))
        before, ahead = (self.clocks.days(row, *span) / speed for span in spans)
        return before, ahead

    @property
    def ahead(self) -> Ahead:
        return Ahead.of(self.as_of_us, self.horizon_us)

    def columns(
        self,
        pages: pa.RecordBatch,
        rate: FloatArray,
        information: FloatArray,
        change_rate_per_day: FloatArray,
        weight: FloatArray,
        cap: FloatArray,
        signalled: IntArray,
    ) -> dict[str, pa.Array]:
        """What the search is told of pages: `policies.clocks.planned.plan` has the parameters."""
        last = np.maximum(*(microseconds(pages.column(f"last_{name}_at")) for name in ("attempt", "slot")))
        last[signalled] = NO_TIME
        found = plan(
            self.ahead,
            self.clocks,
            self.asked,
            rate,
            information,
            pages.column("clock_since").to_numpy(),
            last,
            change_rate_per_day,
            weight,
            cap,
            signalled,
        )
        return {
            "plan_change": pa.array(found.change_rate_per_day),
            "plan_weight": pa.array(found.weight),
            "plan_cap": pa.array(found.cap_per_day),
            "by_age": pa.array(found.by_age),
            "clock_gain": pa.array(found.gain),
        }
