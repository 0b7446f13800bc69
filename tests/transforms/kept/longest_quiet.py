"""A statistic to try the protocol with: the longest time between two visits that found a page unchanged."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from policies.history.interval_sums import Intervals
from policies.history.page_state import US_PER_DAY
from transforms.kept.protocol import ShardNight, Statistic


class LongestQuiet(Statistic):
    STATE = (pa.field("longest_quiet_days", pa.float64()),)
    PAGES = STATE
    SAID = (("pages_quiet_for_a_week", "once quiet for a week"),)

    def __init__(self, night: ShardNight) -> None:
        self._days = night.carried("longest_quiet_days", 0.0)

    def watch(self, first_page: int, intervals: Intervals) -> None:
        quiet = ~intervals.changed
        page, days = first_page + intervals.page[quiet], intervals.gap_us[quiet] / US_PER_DAY
        np.maximum.at(self._days, page, days)

    def state(self) -> dict[str, pa.Array]:
        return {"longest_quiet_days": pa.array(self._days)}

    @classmethod
    def count(cls, pages: pa.RecordBatch) -> dict[str, int]:
        return {"pages_quiet_for_a_week": int((pages.column("longest_quiet_days").to_numpy() >= 7.0).sum())}
