"""Requests of pages, and since when each page could be asked for; see `policies.history.request_history`."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from policies.history import request_history
from policies.history.request_history import NO_DAY, RequestState
from policies.history.visits import Observations
from policies.numerics.typing_ import IntArray
from transforms.batches import schemas
from transforms.kept.protocol import ShardNight, Statistic
from transforms.kept.requested_hosts import AskedHosts, Urls, asked_hosts, least_urls
from transforms.kept.state import list_column, list_start
from transforms.shards.catalogue import DAY_US


@dataclass(frozen=True)
class RequestsByHour:
    """Tonight's requests that count and of which the hour is known, k rows, all int64.

    Attributes
    ----------
    page, day, hour : (k,) int64
        Codes of pages, days since 1970-01-01, hours of the day.
    count : (k,) int64, fixed point
        Clicks and impressions.
    """

    page: IntArray
    day: IntArray
    hour: IntArray
    count: IntArray


class ShardRequests(Statistic):
    """Counts by week, and the first day on which each page was seen in a log.

    Attributes
    ----------
    counted : RequestState
        With tonight's, once they are folded.
    timely : four (k,) int64
        Page, day, clicks and impressions of tonight's rows that count.
    oldest : int
        First week that is kept.
    by_hour : RequestsByHour
    """

    STATE = (
        pa.field("first_seen_day", pa.int32()),
        pa.field("request_week", pa.list_(pa.int32())),
        pa.field("request_clicks", pa.list_(pa.int64())),
        pa.field("request_impressions", pa.list_(pa.int64())),
        pa.field("first_request_day", pa.int32()),
        pa.field("last_request_day", pa.int32()),
    )
    LATER = False

    def __init__(self, night: ShardNight) -> None:
        n, state = len(night.pages), night.state
        self._pages, self._split_hosts = night.pages, night.settings.split_hosts
        self._unknown: Urls = ()
        self._first_seen = night.carried("first_seen_day", np.int32(NO_DAY))
        self.counted = RequestState.empty(n)
        self.by_hour = RequestsByHour(*np.zeros((4, 0), np.int64))
        if state is not None:
            before = RequestState(
                list_start(state.column("request_week")),
                *(state.column(f"request_{name}").flatten().to_numpy() for name in _CELLS),
                *(state.column(f"{name}_request_day").to_numpy() for name in ("first", "last")),
            )
            self.counted = before if len(night.code) == n else before.spread(night.code, n)

    def _see(self, page: IntArray, day: IntArray) -> None:
        """Note the first day on which a page was seen in a log."""
        never = np.iinfo(np.int32).max
        first = np.where(self._first_seen != NO_DAY, self._first_seen, never).astype(np.int64)
        np.minimum.at(first, page, day)
        self._first_seen = np.where(first == never, NO_DAY, first).astype(np.int32)

    def fold(self, night: ShardNight, rows: Observations) -> None:
        clock = night.settings.clock
        seen = rows.fetched_at_us > night.before.last_success_at_us[rows.page]  # late rows change nothing
        self._see(rows.page[seen], rows.fetched_at_us[seen] // DAY_US)
        self.oldest = request_history.oldest_week(clock.as_of_day, clock.half_life_days)
        self.timely = page, *counted = self._timely(night, self.oldest)
        self._see(page, counted[0])
        self.counted = request_history.fold_requests(self.counted, page, *counted, self.oldest)

    def _timely(self, night: ShardNight, oldest: int) -> tuple[IntArray, IntArray, IntArray, IntArray]:
        """Page, day, clicks and impressions of the rows that count."""
        table, counts = night.table("requests"), night.counts
        if table is None:
            none = np.zeros(0, np.int64)
            return none, none, none, none
        page = night.pages.code(table.column("url_hash").to_numpy())
        day = table.column("day").to_numpy().astype(np.int64)
        clicks, impressions = table.column("clicks").to_numpy(), table.column("impressions").to_numpy()
        # A day counts when it is over: else its rest would come after the night, as late as a repeat.
        # Whether a page is known by then is not decided before, so those rows have no other count.
        over = (day + 1) * DAY_US <= night.settings.as_of_us
        known = day >= night.known_from_day[page]
        early = known & over
        late = early.copy()
        late[early] = day[early] <= self.counted.last_day[page[early]]
        old = early & ~late & (day // 7 < oldest)
        for name, count in (("clicks", clicks), ("impressions", impressions)):
            # Whole ones, row by row: the same however pages are cut into shards.
            whole = np.rint(count * schemas.COUNT_UNIT).astype(np.int64)
            counts.add(f"requests_{name}", int(whole[over].sum()))
            counts.add(f"requests_{name}_joined", int(whole[early].sum()))
        unknown = over & (page < 0)
        self._unknown = least_urls(table, unknown)
        use = early & ~late & ~old
        for name, rows in (
            ("unmatched", unknown),
            ("before_known", over & ~known & (page >= 0)),
            ("after_as_of", ~over),
            ("late", late),
            ("too_old", old),
            ("folded", use),
        ):
            counts.add(f"requests_{name}", int(rows.sum()))
        if table.column("hour").null_count < table.num_rows:
            hour = table.column("hour").fill_null(-1).to_numpy().astype(np.int64)
            known = use & (hour >= 0)
            self.by_hour = RequestsByHour(page[known], day[known], hour[known], (clicks + impressions)[known])
        return page[use], day[use], clicks[use], impressions[use]

    def state(self) -> dict[str, pa.Array]:
        requests = self.counted
        return {
            "first_seen_day": pa.array(self._first_seen),
            **{f"request_{n}": list_column(requests.start, getattr(requests, n)) for n in _CELLS},
            "first_request_day": pa.array(requests.first_day),
            "last_request_day": pa.array(requests.last_day),
        }

    def columns(self, night: ShardNight) -> dict[str, pa.Array]:
        clock = night.settings.clock
        clicks, impressions = request_history.weighted_counts(
            self.counted, clock.as_of_day, clock.half_life_days, schemas.COUNT_UNIT
        )
        return {
            "first_seen_day": pa.array(self._first_seen),
            "clicks": pa.array(clicks),
            "impressions": pa.array(impressions),
        }

    def sums(self) -> AskedHosts:
        return asked_hosts(self._pages, self.counted, self._split_hosts, self._unknown)


_CELLS = ("week", "clicks", "impressions")
