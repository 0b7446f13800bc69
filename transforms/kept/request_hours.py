"""At which hours each host is asked for, by requests of which the hour is known."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from policies.history.request_hours import HOURS, UNEVEN, faded, profiles
from policies.history.visits import Observations
from policies.numerics.lookup import rows_of
from policies.numerics.typing_ import FloatArray, IntArray
from transforms.batches import schemas
from transforms.kept.protocol import ShardNight, Statistic
from transforms.kept.requests import ShardRequests
from transforms.kept.state import matrix_column, matrix_of


class ShardRequestHours(Statistic):
    """Clicks and impressions by hour (UTC) of the hosts that have any.

    A host that is split over shards has none: its crawls are not moved within the night.
    """

    FOLDERS = (("state/request_hours", schemas.STATE_REQUEST_HOURS),)

    def __init__(self, night: ShardNight) -> None:
        pages, clock = night.pages, night.settings.clock
        self._host_hash = pages.host_hash[pages.host_start[:-1]]
        self._counts: IntArray = np.zeros((len(self._host_hash), HOURS), np.int64)
        self._as_of_day = clock.as_of_day
        carried = night.table("state_request_hours")
        if carried is None or not len(self._host_hash):
            return
        order = np.argsort(self._host_hash)
        known = carried.column("host_hash").to_numpy()
        at = rows_of(self._host_hash, known, order)
        some = at >= 0
        day, counts = carried.column("day").to_numpy(), matrix_of(carried.column("requests"), HOURS)
        np.add.at(
            self._counts, at[some], faded(counts[some], day[some], clock.as_of_day, clock.half_life_days)
        )

    def fold(self, night: ShardNight, rows: Observations) -> None:
        clock, asked = night.settings.clock, night.kept[ShardRequests].by_hour
        count = faded(asked.count, asked.day, clock.as_of_day, clock.half_life_days)
        np.add.at(self._counts, (night.pages.host_code[asked.page].astype(np.int64), asked.hour), count)
        split = np.array(sorted(night.settings.split_hosts), np.uint64)
        self._counts[np.isin(self._host_hash, split)] = 0

    def _hosts(self) -> IntArray:
        return np.flatnonzero(self._counts.any(axis=1))

    def uneven(self) -> tuple[IntArray, FloatArray]:
        """Hosts whose requests prefer hours, ascending, and their profiles, mean 1: (k,), (k, 24)."""
        hosts = self._hosts()
        hour = profiles(self._counts[hosts] * schemas.COUNT_UNIT)
        some = hour.max(axis=1) >= UNEVEN
        return hosts[some], hour[some]

    def files(self) -> Iterator[tuple[str, pa.RecordBatch]]:
        hosts = self._hosts()
        columns = [
            pa.array(self._host_hash[hosts]),
            pa.array(np.full(len(hosts), self._as_of_day, np.int32)),
            matrix_column(self._counts[hosts]),
        ]
        rows = pa.RecordBatch.from_arrays(columns, schema=schemas.STATE_REQUEST_HOURS)
        yield "state/request_hours", rows

    def tables(self, night: ShardNight) -> dict[str, pa.RecordBatch]:
        """The table "request_hours": profiles of hosts, mean 1."""
        hosts, hour = self.uneven()
        if not len(hosts):
            return {}
        columns = {"host_code": pa.array(hosts.astype(np.int32)), "hour": matrix_column(hour)}
        return {"request_hours": pa.RecordBatch.from_pydict(columns)}
