"""Clocks of a shard's hosts: carried, and learned from the night's intervals."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from policies.clocks import exploring
from policies.clocks.kept import US_PER_MINUTE, Kept, joined, teaches
from policies.clocks.learning import CERTAIN
from policies.clocks.moving import LOOKED_FOR_US, moves
from policies.clocks.pooled import Pooled, agreeing, borrowers
from policies.clocks.profile import AGES, NO_TIME, US_PER_DAY, WEEK_HOURS, Profiles
from policies.history.clock_time import in_other_time, rough_rates
from policies.history.interval_sums import Intervals
from policies.history.page_state import PageState
from policies.history.visits import Observations
from policies.history.volatile import NOT_VOLATILE
from policies.numerics.lookup import rows_of
from policies.numerics.typing_ import BoolArray, FloatArray, IntArray, UIntArray
from transforms.batches import schemas
from transforms.batches.zones import summer_time
from transforms.kept.protocol import ShardNight, Statistic
from transforms.kept.request_hours import ShardRequestHours
from transforms.kept.state import matrix_column, matrix_of, microseconds, times
from transforms.shards.coding import ShardPages

_NEVER = np.iinfo(np.int64).max

SETTLING_US = 2 * US_PER_DAY
"""A page that is first seen so soon after its host is of unknown age."""

WATCHED_US = 14 * US_PER_DAY
"""A host that was watched for so long and shows no hours has none, or none that its crawls tell."""

NEW_HOST_US, FIRST_WEEK_US = 32 * US_PER_DAY, 8 * US_PER_DAY

_KEPT_PER_PAGE, _KEPT_AT_LEAST, _KEPT_AT_MOST = 2, 128, 1024
# Of a page at most: most hosts are small, and too few intervals to learn from are not worth their bytes.
_KEPT_OF_A_PAGE = 8

TURNS = 4
"""Nights from one look at a host's clock to the next; half in its first week, when each night's intervals are
many of those it has, and twice as many where a month showed none."""

EXPLORED_KINDS = "explored", "explored_young", "explored_again"
"""Columns of hosts: shares of pages that teach hours, and of young ones that were seen once and twice."""

_OF_UNKNOWN_AGE, _STEADY = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xD1B54A32D192ED03)


class ShardClocks(Statistic):
    """When the pages of a shard's hosts change: intervals that are kept, and the clocks learned from them."""

    STATE = (
        pa.field("first_seen_at", schemas.TIME),
        pa.field("published_at", schemas.TIME),
        pa.field("steady", pa.int8()),
    )
    PAGES = (
        pa.field("clock", pa.string()),
        pa.field("clock_speed", pa.float64()),
        pa.field("clock_gain", pa.float64()),
    )
    FOLDERS = (("state/clocks", schemas.STATE_CLOCKS), ("state/clock_profiles", schemas.STATE_CLOCK_PROFILES))

    def __init__(self, night: ShardNight) -> None:
        pages = self._pages = night.pages
        self._group = pages.host_code.astype(np.int64)
        self._groups = len(pages.host_start) - 1
        size = np.diff(pages.host_start)
        least = np.minimum(_KEPT_AT_LEAST, _KEPT_OF_A_PAGE * size)
        self._most: IntArray = np.clip(_KEPT_PER_PAGE * size, least, _KEPT_AT_MOST)
        self._before = _read(night.table("state_clocks"), pages)
        self._kept, self._tonight = [self._before], list[Kept]()
        self._as_of_us, self._of_all = night.settings.as_of_us, night.settings.hours_of_all
        self._hours_moved = summer_time(self._as_of_us, LOOKED_FOR_US)
        self._first_us = self._first_seen(night)
        # What is seen first when its host is, was there before.
        first = np.where(self._first_us == NO_TIME, _NEVER, self._first_us)
        of_host = np.full(self._groups, _NEVER)
        np.minimum.at(of_host, self._group, first)
        appeared = (self._first_us != NO_TIME) & (self._first_us - of_host[self._group] > SETTLING_US)
        self._published_us = self._published(night)
        # A date after the first fetch is not that of the page, tonight and in later nights.
        np.minimum.at(first, night.rows.page, night.rows.fetched_at_us)
        late = self._published_us > first
        np.minimum.at(of_host, self._group, first)
        self._published_us[late] = NO_TIME
        self._first_us[late] = of_host[self._group[late]]
        born = np.where(appeared & ~late, self._first_us, NO_TIME)
        self._born_us: IntArray = np.where(self._published_us != NO_TIME, self._published_us, born)
        giants = np.array(sorted(night.settings.split_hosts), np.uint64)
        self._split = np.flatnonzero(np.isin(self._host_hash(), giants))
        self._was, self._gain = _read_profiles(night.table("state_clock_profiles"), self._host_hash())
        # Of a long log all at once. From then on clocks change slowly, and to learn them takes time.
        nights = night.settings.as_of_us // night.settings.hosts.horizon_us
        # The bits that say which shard a host is in: many hosts at once cost less than some in every shard.
        turn = (self._host_hash() + np.uint64(nights)) % np.uint64(2 * TURNS)
        since = night.settings.as_of_us - of_host
        turns = np.select([since < FIRST_WEEK_US, since < NEW_HOST_US], [TURNS // 2, TURNS], 2 * TURNS)
        shown = np.union1d(self._was.group, np.flatnonzero(exploring.promising(self._gain)))
        turns[shown] = np.minimum(turns[shown], TURNS)
        self._due: BoolArray = (turn % turns.astype(np.uint64) == 0) | (night.state is None)
        # A page that was there when its host was first seen is at least as old as that.
        self._since_us = np.where(of_host == _NEVER, NO_TIME, of_host)[self._group]
        self._since_us = np.where(self._born_us == NO_TIME, self._since_us, self._born_us)
        # Nights of versions without this column took pages of unknown age for steady ones.
        steady = night.carried("steady", -1)
        self._steady: BoolArray = np.where(steady < 0, self._born_us == NO_TIME, steady > 0)
        self.before = self._was.clocks(self._group, self._aging_us())

    def _host_hash(self) -> UIntArray:
        return self._pages.host_hash[self._pages.host_start[:-1]]

    def _first_seen(self, night: ShardNight) -> IntArray:
        """When each page was first fetched, or else listed; what a first night lists may be old."""
        first = np.full(len(self._pages), _NEVER)
        if night.state is not None:
            first[night.listed] = night.settings.as_of_us
        np.minimum.at(first, night.rows.page, night.rows.fetched_at_us)
        if night.state is None:
            first[night.listed] = NO_TIME
        first[first == _NEVER] = NO_TIME
        first[self._undated(night)] = NO_TIME
        if night.state is not None:
            first[night.code] = night.carried("first_seen_at", NO_TIME)[night.code]
        return first

    def _undated(self, night: ShardNight) -> IntArray:
        """Pages of any age that the first look at a source has found, as `recrawl discover` says."""
        listed = night.table("pages")
        if listed is None or "found_at" not in listed.column_names:
            return np.zeros(0, np.int64)
        undated = pc.and_(listed.column("found_at").is_valid(), listed.column("published_at").is_null())
        code = self._pages.code(listed.column("url_hash").filter(undated).to_numpy())
        return code[code >= 0]

    def _published(self, night: ShardNight) -> IntArray:
        """When each page came by the catalogue, tonight's or an earlier one, `NO_TIME` if it does not say."""
        found = night.carried("published_at", NO_TIME)
        listed = night.table("pages")
        if listed is not None and listed.column("published_at").null_count < listed.num_rows:
            code = self._pages.code(listed.column("url_hash").to_numpy())
            at = microseconds(listed.column("published_at"))
            use = (code >= 0) & (at != NO_TIME)
            # Of a page that is listed twice the earlier date, whatever the order of files.
            found[code[use]] = _NEVER
            np.minimum.at(found, code[use], at[use])
        return found

    def _aging_us(self) -> IntArray:
        """Since when pages age at the latest, `NO_TIME` of those that do not."""
        return np.where(self._steady, NO_TIME, self._since_us)

    def watch(self, first_page: int, intervals: Intervals) -> None:
        begin, page = intervals.at_us - intervals.gap_us, intervals.page + first_page
        rows = np.flatnonzero(teaches(begin, intervals.at_us, self._born_us[page]))
        page, hashes = page[rows], self._pages.url_hash
        group, end = self._group[page], intervals.at_us[rows]
        new = Kept.of(group, page, hashes[page], begin[rows], end, intervals.changed[rows])
        self._kept.append(new.best(self._most, self._born_us))
        if self._hours_moved:
            self._tonight.append(new.take(np.isin(new.group, self._was.group)))

    def fold(self, night: ShardNight, rows: Observations) -> None:
        night.after = self.learn(night.after)

    def learn(self, history: PageState) -> PageState:
        """Learn from the night's intervals.

        Returns the state in the clock time of tonight: where a clock of age is not what it was, sums of its
        host's pages are brought from one to the other.
        """
        kept = joined(self._kept).best(self._most, self._born_us)
        self._short = kept.short(self._groups)
        rates = rough_rates(history, self._group, self._groups)
        if self._hours_moved:
            seen = joined([self._before, *self._tonight])
            whole = self._was.take(~np.isin(self._was.group, self._split))
            found = moves(seen, whole, self._born_us, rates, self._as_of_us, self._hours_moved)
            self._was, kept = found.of_profiles(self._was), found.of_kept(kept)
        self._kept = [kept]
        mine = kept.take(self._due[kept.group])
        learned, gain = mine.profiles(self._groups, self._born_us, rates, self._was)
        self._profiles = self._was.take(~self._due[self._was.group]).joined(learned)
        self._gain = np.where(self._due, gain, self._gain)
        # The parts of a split host would not age alike, and its pages may come to another part.
        self._profiles.age[np.isin(self._profiles.group, self._split)] = 1.0
        self._borrow(kept, rates)
        steady = self._steady.copy()
        self._look_for_steady(kept)
        self.now = self._profiles.clocks(self._group, self._aging_us())
        group = np.union1d(self._was.group, self._profiles.group)
        group = group[(self._was.ages(group) != self._profiles.ages(group)).any(axis=1)]
        moved = np.isin(self._group, group) | (self._steady != steady)
        return in_other_time(history, np.flatnonzero(moved), self.before, self.now)

    def _look_for_steady(self, kept: Kept) -> None:
        """Which pages do not age as others of their host do, of hosts that are looked at tonight."""
        aging = self._profiles.take(self._profiles.by_age & self._due[self._profiles.group])
        if not len(aging):
            return
        mine = kept.take(np.isin(kept.group, aging.group))
        never = np.full(len(self._pages), NO_TIME)
        clocks, plain = (self._profiles.clocks(self._group, since) for since in (self._since_us, never))
        looked_at = np.isin(self._group, aging.group)
        self._steady[looked_at] = mine.steady(clocks, plain, self._groups)[looked_at]

    def _borrow(self, kept: Kept, rates: FloatArray) -> None:
        """Which hosts go by the hours of all, and what of their intervals says what these are."""
        own = np.zeros(self._groups, np.bool_)
        own[self._profiles.group] = own[self._split] = True
        few = borrowers(kept, self._groups, own)
        mine = kept.take(few[kept.group])
        speed = self._of_all.speed
        self._sample = Pooled.of(mine, self._host_hash(), rates, speed is not None)
        self._lent = Profiles.flat()
        if speed is not None:
            few &= agreeing(mine, self._groups, rates, speed)
            self._lent = Profiles.flat(np.flatnonzero(few))
            self._lent.hour[:] = speed[np.arange(WEEK_HOURS) % len(speed)]

    def sums(self) -> Pooled:
        return self._sample

    def grouped(self, group_hash: pa.Array) -> pa.Array:
        """Groups of pages that borrow from each other: not those of unknown age from those that came since,
        nor from either those that do not age.
        """
        aging = np.append(self._profiles.by_age, False)[self._profiles.rows(self._group)]
        apart = aging & (self._steady | (self._born_us == NO_TIME))
        if not apart.any():
            return group_hash
        found = group_hash.to_numpy().copy()
        found[apart] ^= np.where(self._steady, _STEADY, _OF_UNKNOWN_AGE)[apart]
        return pa.array(found)

    def state(self) -> dict[str, pa.Array]:
        dates = {"first_seen_at": times(self._first_us), "published_at": times(self._published_us)}
        return dates | {"steady": pa.array(self._steady.astype(np.int8))}

    def files(self) -> Iterator[tuple[str, pa.RecordBatch]]:
        (kept,) = self._kept

        def minutes(us: IntArray) -> pa.Array:
            return pa.array((us // US_PER_MINUTE).astype(np.int32))

        columns = [
            pa.array(self._pages.url_hash[kept.page]),
            pa.array(self._pages.host_hash[kept.page]),
            minutes(kept.to_us),
            minutes(kept.to_us - kept.from_us),
            pa.array(kept.changed),
        ]
        yield "state/clocks", pa.RecordBatch.from_arrays(columns, schema=schemas.STATE_CLOCKS)
        found = self._profiles.joined(
            Profiles.flat(np.setdiff1d(np.flatnonzero(exploring.promising(self._gain)), self._profiles.group))
        )
        gain = pa.array(self._gain[found.group])
        columns = [
            pa.array(self._host_hash()[found.group]),
            matrix_column(found.hour),
            matrix_column(found.age),
            gain,
        ]
        rows = pa.RecordBatch.from_arrays(columns, schema=schemas.STATE_CLOCK_PROFILES)
        yield "state/clock_profiles", rows

    def explored(self) -> FloatArray:
        """See `exploring.shares`, (g,); small hosts are known together."""
        share = exploring.shares(self._gain, self._short, self._most)
        of_all = exploring.EXPLORED if self._of_all.wanting else 0.0
        return np.where(self._most >= _KEPT_AT_LEAST, share, of_all)

    def explored_young(self) -> tuple[FloatArray, FloatArray]:
        """The same of young pages that were seen once and twice, see `exploring.shares_of_young`."""
        (kept,) = self._kept
        found = exploring.shares_of_young(kept, self._born_us, self._groups)
        none = self._most < _KEPT_AT_LEAST
        none[self._split] = True
        for share in found:
            share[none] = 0.0
        return found

    def limit_volatile(self, night: ShardNight, weight_limit: FloatArray) -> None:
        """Correct what `policies.history.volatile.weight_limit` says by days of the clock; in place.

        Who changes at every visit because it is young is planned crawl by crawl, and is no candidate.
        """
        as_of_us, horizon_us = night.settings.as_of_us, night.settings.hosts.horizon_us
        rows = np.flatnonzero((weight_limit >= 0.0) & (self._profiles.rows(self._group) >= 0))
        if rows.size:
            begin = np.full(rows.size, as_of_us)
            days = self.now.days(rows, begin, begin + horizon_us)
            young = self.now.settles(rows, night.after.last_attempt_at_us[rows])
            weight_limit[rows] = np.where(
                young, NOT_VOLATILE, weight_limit[rows] * days / (horizon_us / US_PER_DAY)
            )

    def columns(self, night: ShardNight) -> dict[str, pa.Array]:
        """Of pages, whether they are young; and where a host follows a clock, tonight's speed, and
        clock days since the last try.
        """
        as_of_us, horizon_us = night.settings.as_of_us, night.settings.hosts.horizon_us
        young = self._born_us > as_of_us - exploring.YOUNG_US
        found = {"young": pa.array(young)} if young.any() else {}
        moved = self._moved(night)
        if not len(moved):
            return found
        clocks = moved.clocks(self._group, self._aging_us())
        tried_us = np.maximum(night.after.last_attempt_at_us, night.last_slot_us)
        page = np.arange(len(self._pages))
        whole = np.full(len(page), as_of_us)
        speed = clocks.days(page, whole, whole + horizon_us) / (horizon_us / US_PER_DAY)
        known = tried_us != NO_TIME
        since = np.zeros(len(page))
        rows = np.flatnonzero(known)
        since[rows] = clocks.days(rows, np.minimum(tried_us[rows], as_of_us), whole[rows])
        return found | {
            "born_at": times(self._aging_us()),
            "clock_speed": pa.array(speed),
            "clock_since": pa.array(since),
        }

    def _moved(self, night: ShardNight) -> Profiles:
        """Clocks of hosts whose crawls have hours: flat for those that are asked for at some hours.

        Crawls at the same hours every day teach no clock, so first it must be known that there is none.
        """
        asked, _ = night.kept[ShardRequestHours].uneven()
        (kept,) = self._kept
        oldest = np.full(self._groups, _NEVER)
        np.minimum.at(oldest, kept.group, kept.to_us)
        known = (oldest < night.settings.as_of_us - WATCHED_US) & (self._gain <= 0.5 * CERTAIN)
        found = self._profiles.joined(self._lent)
        return found.joined(Profiles.flat(np.setdiff1d(asked[known[asked]], found.group)))

    def tables(self, night: ShardNight) -> dict[str, pa.RecordBatch]:
        """The table "clocks": hosts that follow one, or whose crawls go by the hours of requests."""
        found = self._moved(night)
        if not len(found):
            return {}
        as_of_us, horizon_us = night.settings.as_of_us, night.settings.hosts.horizon_us
        clocks = pa.RecordBatch.from_pydict(
            {
                "host_code": pa.array(found.group.astype(np.int32)),
                "hour": matrix_column(found.hour),
                "age": matrix_column(found.age),
                "as_of_us": pa.array(np.full(len(found), as_of_us)),
                "horizon_us": pa.array(np.full(len(found), horizon_us)),
            }
        )
        return {"clocks": clocks}


def _read_profiles(carried: pa.Table | None, host_hash: UIntArray) -> tuple[Profiles, FloatArray]:
    """The rows of `schemas.STATE_CLOCK_PROFILES` of hosts that are there, and their gains, (g,).

    Each part of a split host has a row: what counts is the mean.
    """
    gain = np.zeros(len(host_hash))
    if carried is None or not len(host_hash):
        return Profiles.flat(), gain
    order = np.argsort(host_hash)
    known = carried.column("host_hash").to_numpy()
    at = rows_of(host_hash, known, order)
    some = at >= 0
    host, number = np.unique(at[some], return_inverse=True)
    found = []
    for column, width in (("hour", WEEK_HOURS), ("age", AGES), ("gain", 1)):
        rows = matrix_of(carried.column(column), width)[some]
        values = np.zeros((len(host), width))
        # By their numbers, so that no order of files matters.
        rank = np.lexsort((*rows.T, number))
        np.add.at(values, number[rank], rows[rank])
        found.append(values / np.bincount(number, minlength=len(host))[:, None])
    gain[host] = found[2][:, 0]
    profiles = Profiles(host, *found[:2])
    return profiles.take(profiles.by_hour | profiles.by_age), gain


def _read(carried: pa.Table | None, pages: ShardPages) -> Kept:
    """The rows of `schemas.STATE_CLOCKS` of pages that are there."""
    rows = schemas.STATE_CLOCKS.empty_table() if carried is None else carried
    page = pages.code(rows.column("url_hash").to_numpy())
    some = page >= 0
    page, changed = page[some], rows.column("changed").to_numpy()[some]
    end, length = (
        rows.column(name).to_numpy()[some].astype(np.int64) * US_PER_MINUTE
        for name in ("to_minute", "minutes")
    )
    group = pages.host_code[page].astype(np.int64)
    return Kept.of(group, page, pages.url_hash[page], end - length, end, changed).in_order()
