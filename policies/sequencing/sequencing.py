"""Tonight's crawls in order: which page each slot of a shard crawls, and when.

Low-discrepancy sequencing in the sense of Busa-Fekete et al., section 5 (crawl rates become a schedule in
which every page's crawls are spread evenly), continued from night to night: a page's windows run from its
last crawl. The rule within a night is earliest deadline first over unit windows, as for Tijdeman's chairman
assignment problem.

For page i with share p_i of the slots and debt m_i = min(1, crawl rate x time since its last crawl) there is
one theta with sum(m_i) = sum(min(1, p_i theta)). Then owed_i = m_i - min(1, p_i theta) adds up to 0, and with
windows [(k - 1 - owed_i) / p_i, (k - owed_i) / p_i) earliest deadline first fills every slot and meets every
deadline, so that after any T slots a page has been crawled p_i T + owed_i times, less than 1 more or less.
"""

from dataclasses import dataclass, field, replace

import numpy as np

from policies.history.page_state import US_PER_DAY
from policies.numerics.sums import sum_by
from policies.numerics.typing_ import BoolArray, ByteArray, FloatArray, Int32Array, IntArray
from policies.sequencing.deadlines import EMPTY, earliest_deadline_first, earliest_deadline_first_polite
from policies.sequencing.host_shares import BUSY_FRACTION, Division, HostLimits, divide, host_limits
from policies.sequencing.quotas import BIN_US
from policies.sequencing.shard_pages import ShardPages, check_night, priority_order
from policies.sequencing.spare_slots import fill_empty
from policies.sequencing.windows import Windows, jobs, repeated, solve_theta, windows

__all__ = ["REASONS", "Sequence", "ShardPages", "sequence"]

REASONS = ("empty", "due", "overdue", "new", "signal", "hour", "discover")
"""Names of the codes in `Sequence.reason`."""

_TIGHT = 1.05
_SIGNAL_SLOTS = 2.0  # for each page that is due for its signals
_SLOTS_EARLY = 8

REASON_EMPTY, REASON_DUE, REASON_OVERDUE, REASON_NEW, REASON_SIGNAL, REASON_HOUR, REASON_DISCOVER = range(7)

_FAR_SLOTS = 1e15  # later than any deadline of a known page


@dataclass(frozen=True, slots=True)
class Sequence:
    """A night of one shard: n pages, B slots.

    Attributes
    ----------
    page : (B,) int32
        Row crawled in each slot, -1 where nobody may use it.
    due_offset_us : (B,) int64
        When, in microseconds from the start of the night, not decreasing: the offset given for the slot, or
        later within the slot where a host's gap needs it. A host whose gaps fill the whole night is crawled
        as soon as it is free, up to 8 slots early but in the same ten minutes.
    owed : (n,) float64
        Crawls each page is ahead of (above 0) or behind its share tonight.
    expected : (n,) float64
        Share x B + owed: the number of crawls tonight is less than 1 away from it where no host limit binds,
        and less than 2 inside busy hosts. 0 for new pages.
    reason : (B,) uint8
        Code into `REASONS`. "overdue" is the first crawl tonight of a page that was due before the night,
        "signal" of one that would not have been without its signals.
    counters : dict of str to int
        slots, used, empty, due, overdue, new, new_waiting (new pages left for later), never (known pages with
        rate 0), busy_hosts (scheduled as a whole), cut_hosts (that get less than their rates ask for), waits
        (jobs that had to wait for their host), moved (slots not served at their offset), filled (slots
        filled ahead of time).
    """

    page: Int32Array
    due_offset_us: IntArray
    owed: FloatArray
    expected: FloatArray
    reason: ByteArray
    counters: dict[str, int] = field(default_factory=dict)


def sequence(pages: ShardPages, slot_offset_us: IntArray, horizon_us: int) -> Sequence:
    """Put the crawls of one shard in order for one night.

    Known pages share the slots in proportion to their crawl rates. New pages take at most half of the slots
    of the shard and of their host while known pages can use the rest. Hosts that use more than 5 % of their
    limit get slots as a whole, which their pages then share by the same rule. No host's limit or gap is ever
    broken. Slots that nobody may use stay empty.

    Parameters
    ----------
    pages : ShardPages
    slot_offset_us : (B,) int64
        When each slot is due, as given by `policies.sequencing.quotas.slot_offsets_us`; in [0, horizon_us),
        not decreasing.
    horizon_us : int
        Length of the night, in microseconds.

    Returns
    -------
    Sequence

    Raises
    ------
    ValueError
        If shapes disagree, a rate or a value is negative, infinite or NaN where it may not be, slots are not
        in order, or pages and slots are too many for one shard.
    """
    offsets = np.asarray(slot_offset_us, dtype=np.int64)
    check_night(pages, offsets, horizon_us)
    slots = offsets.size
    latest = np.append(offsets[1:] - 1, horizon_us - 1)[: offsets.size]
    np.maximum(latest, offsets, out=latest)
    rate = np.where(pages.is_new, 0.0, pages.crawl_rate_per_day)
    hosts = host_limits(pages, offsets, latest, horizon_us)
    priority = priority_order(pages.crawl_value, pages.tie)
    new_rows = np.flatnonzero(pages.is_new)
    new_rows = new_rows[np.argsort(priority[new_rows])]
    host_rate = sum_by(hosts.of_page, rate, hosts.limit.size)

    def come_due(factor: FloatArray) -> FloatArray:
        rows = np.flatnonzero(rate > 0.0)
        tonight = rate[rows] * factor[hosts.of_page[rows]]
        since = pages.days_since_last[rows] * (US_PER_DAY / horizon_us)
        with np.errstate(invalid="ignore", over="ignore"):
            debt = np.clip(np.nan_to_num(tonight * since, nan=0.0, posinf=1.0), 0.0, 1.0)
        return sum_by(hosts.of_page[rows], np.floor(debt + tonight), hosts.limit.size)

    division = divide(slots, host_rate, hosts.limit, new_rows, hosts.of_page[new_rows], come_due)

    with np.errstate(invalid="ignore", over="ignore"):
        debt = np.clip(np.nan_to_num(rate * pages.days_since_last, nan=0.0, posinf=1.0), 0.0, 1.0)
        scale = np.where(host_rate > 0.0, division.known / np.where(host_rate > 0.0, host_rate, 1.0), 0.0)
        share = rate * scale[hosts.of_page] / max(slots, 1)
    usable = np.flatnonzero((share > 0.0) & np.isfinite(1.0 / np.where(share > 0.0, share, 1.0)))
    night = _Night(
        pages, offsets, latest, horizon_us, hosts, priority, division, rate, host_rate, share, debt, usable
    )
    page, due, owed, busy, waits = night.run()
    page, due, filled = night.fill(page, due, owed)
    moved = int(np.count_nonzero(due != offsets))
    if moved:
        in_time = np.argsort(due, kind="stable")
        page, due = page[in_time], due[in_time]

    reason = reasons(page, pages, debt)
    counts = np.bincount(reason, minlength=len(REASONS))
    counters = {"slots": slots, "used": slots - int(counts[REASON_EMPTY])}
    counters |= {name: int(count) for name, count in zip(REASONS, counts, strict=True)}
    counters["new_waiting"] = new_rows.size - int(counts[REASON_NEW])
    counters["never"] = int(np.count_nonzero((rate == 0.0) & ~pages.is_new))
    counters["busy_hosts"] = busy
    counters["cut_hosts"] = int(np.count_nonzero(division.cut))
    counters["waits"] = waits
    counters["moved"] = moved
    counters["filled"] = filled
    return Sequence(page.astype(np.int32), due, owed, share * slots + owed, reason, counters)


def reasons(page: IntArray, pages: ShardPages, debt: FloatArray) -> ByteArray:
    """Code of each slot, (B,), from its page, -1 for none, and from the debts of all pages, (n,)."""
    slots, n = page.size, debt.size
    reason = np.full(slots, REASON_DUE, np.uint8)
    reason[page == EMPTY] = REASON_EMPTY
    used = np.flatnonzero(page != EMPTY)
    reason[used[pages.is_new[page[used]]]] = REASON_NEW
    first = np.full(n, slots, np.int64)
    first[page[used[::-1]]] = used[::-1]
    late = first[(debt >= 1.0) & (first < slots)]
    reason[late] = REASON_OVERDUE
    if pages.by_signal is not None:
        reason[late[pages.by_signal[page[late]]]] = REASON_SIGNAL
    return reason


@dataclass(frozen=True, slots=True)
class _Night:
    """What the steps of one night share."""

    pages: ShardPages
    offsets: IntArray
    latest: IntArray
    horizon_us: int
    hosts: HostLimits
    priority: IntArray
    division: Division
    rate: FloatArray
    host_rate: FloatArray
    share: FloatArray
    debt: FloatArray
    usable: IntArray

    def busy_hosts(self) -> BoolArray:
        """Hosts that expect more than 5 % of their limit, debts included, or are to be served as a whole."""
        expected = self.division.known + self.division.new
        whole = np.zeros(expected.size, np.bool_)
        if self.pages.host_whole is not None:
            whole = self.pages.host_whole & (expected > 0.0)
        if not self.hosts.binding.any():
            return whole
        rows = self.usable
        if rows.size:
            theta = solve_theta(self.share[rows], self.debt[rows], np.array([0, rows.size]))
            behind = np.maximum(0.0, self.debt[rows] - np.minimum(1.0, self.share[rows] * theta[0]))
            expected = expected + sum_by(self.hosts.of_page[rows], behind, expected.size)
        busy = self.hosts.binding & (expected > BUSY_FRACTION * self.hosts.limit)
        return (busy | whole) & (self.hosts.limit > 0)

    def run(self) -> tuple[IntArray, IntArray, FloatArray, int, int]:
        """Serve the windows of pages and busy hosts, then share the slots of busy hosts among their pages."""
        n, slots, hosts = self.rate.size, self.offsets.size, self.hosts
        owed = np.zeros(n)
        busy = self.busy_hosts()
        rows = self.usable[~busy[hosts.of_page[self.usable]]]
        new = self.division.chosen[~busy[hosts.of_page[self.division.chosen]]]
        slots_of_host = self.division.known + self.division.new
        both = np.flatnonzero(busy & (self.division.known > 0.0))
        fresh = np.flatnonzero(busy & (self.division.known == 0.0) & (self.division.new > 0))
        if slots == 0 or rows.size + new.size + both.size + fresh.size == 0:
            return np.full(slots, EMPTY, np.int64), self.offsets.copy(), owed, int(busy.sum()), 0

        host_share = slots_of_host / slots
        is_fixed, first, no_slack = self._fixed_windows(both, slots_of_host[both])
        fixed, both = both[is_fixed], both[~is_fixed]
        share = np.concatenate((self.share[rows], host_share[both]))
        debt = np.concatenate((self.debt[rows], self._host_debt()[both] if both.size else np.zeros(0)))
        pinned = repeated(first, host_share[fixed], float(slots))
        theta = np.zeros(1)
        if share.size:
            ahead = float((1.0 - host_share[fixed] * first).sum())
            theta = solve_theta(share, debt, np.array([0, share.size]), ahead)
        known = self._at_once(windows(share, debt, theta, float(slots)), rows, None)
        shard_owed = debt - np.minimum(1.0, share * theta[0])
        owed[rows] = shard_owed[: rows.size]
        host_owed = np.zeros(hosts.limit.size)
        host_owed[both] = shard_owed[rows.size :]
        host_owed[fixed] = 1.0 - host_share[fixed] * first
        step = np.full(new.size, slots / max(new.size, 1))
        pseudo = _new_windows(np.arange(1, new.size + 1) * step, step)
        alone = _repeating(1.0 / host_share[fresh], self.division.new[fresh])
        every = _joined(known, pinned, alone, pseudo)
        whole = np.concatenate((both, fixed, fresh))
        entity_host = np.concatenate((hosts.of_page[rows], whole, hosts.of_page[new]))
        entity_page = np.concatenate((rows, np.full(whole.size, EMPTY), new))
        ranks = self.priority[entity_page]
        if whole.size:
            best = np.full(hosts.limit.size, n, np.int64)
            np.minimum.at(best, hosts.of_page, self.priority)
            ranks[rows.size : rows.size + whole.size] = best[whole]
            most = np.where(busy[entity_host], hosts.limit[entity_host], every.count)
            every = Windows(every.first_deadline, every.interval, np.minimum(every.count, most))

        hurried = np.zeros(hosts.limit.size, np.bool_)
        hurried[fixed[no_slack]] = True
        entity, due, waits = self._serve(every, ranks, n, entity_host, hurried)
        page = np.where(entity >= 0, entity_page[entity], EMPTY)
        inside = np.flatnonzero((entity >= 0) & (page == EMPTY))
        if inside.size:
            page[inside] = self._inside(entity_host[entity[inside]], host_owed, owed)
        return page, due, owed, int(busy.sum()), waits

    def _at_once(self, known: Windows, rows: IntArray, group: IntArray | None) -> Windows:
        """Pages that are due for their signals come first, by crawl value, in at most every second slot.

        What is overdue has no order of its own, and of these copies it is known that they are stale. `rows`
        are the pages of the first windows; `group` tells whose slots they share.
        """
        if self.pages.by_signal is None:
            return known
        chosen = np.flatnonzero(self.pages.by_signal[rows] & (self.debt[rows] >= 1.0))
        if chosen.size == 0:
            return known
        of = np.zeros(chosen.size, np.int64) if group is None else group[chosen]
        order = np.lexsort((self.priority[rows[chosen]], of))
        chosen, of = chosen[order], of[order]
        first = np.flatnonzero(np.diff(of, prepend=-1))
        place = np.arange(chosen.size) - np.repeat(first, np.diff(np.append(first, chosen.size)))
        deadline = known.first_deadline.copy()
        deadline[chosen] = np.minimum(deadline[chosen], _SIGNAL_SLOTS * (place + 1.0))
        return replace(known, first_deadline=deadline)

    def _fixed_windows(self, host: IntArray, slots: FloatArray) -> tuple[BoolArray, FloatArray, BoolArray]:
        """Find hosts whose windows do not move with the debts of others, and their first deadlines, in slots.

        A host whose gaps fill the whole night cannot catch up: what it waits beyond its gap is lost. So its
        first window ends right after it is free, not one window later. A host that gets as many crawls as its
        limit allows has room for exactly so many windows from the start of the night.

        Returns which of the hosts are fixed, the deadlines of these, and which of these have no slack.
        """
        per_us = self.offsets.size / float(self.latest[-1] + 1)
        interval = self.offsets.size / slots
        gap = self.hosts.gap_us[host] * per_us
        hurried = (gap > 1.0) & (interval < _TIGHT * gap)
        full = slots > self.hosts.limit[host] - 0.01
        free = np.maximum(self.hosts.free_us[host], 0) * per_us
        first = np.where(hurried, free + np.maximum(2.0, (_TIGHT - 1.0) * interval), interval)
        fixed = hurried | full
        return fixed, first[fixed], hurried[fixed]

    def _host_debt(self) -> FloatArray:
        """Crawls each host as a whole is short of, from the last crawl of any of its known pages."""
        rows = self.usable
        last = np.full(self.hosts.limit.size, np.inf)
        np.minimum.at(last, self.hosts.of_page[rows], self.pages.days_since_last[rows])
        if self.pages.host_whole is not None and self.pages.host_days_since_last is not None:
            np.copyto(last, self.pages.host_days_since_last, where=self.pages.host_whole)
        with np.errstate(invalid="ignore"):
            debt: FloatArray = np.nan_to_num(self.host_rate * np.maximum(last, 0.0), nan=0.0, posinf=1.0)
        return np.minimum(debt, 1.0)

    def _serve(
        self, every: Windows, ranks: IntArray, ranks_below: int, entity_host: IntArray, hurried: BoolArray
    ) -> tuple[IntArray, IntArray, int]:
        """Choose the entity of each slot, with gaps and limits if any of them can matter."""
        slots, hosts = self.offsets.size, self.hosts
        group_slots = np.array([slots])
        wanted = sum_by(entity_host, every.count, hosts.limit.size)
        tight = (hosts.gap_us > 0) | (hosts.free_us > self.offsets[0])
        tight |= (wanted > hosts.limit) & (hosts.limit < slots)
        if not (tight & (wanted > 0)).any():
            todo = jobs(every, ranks, ranks_below, None, group_slots)
            return earliest_deadline_first(todo, group_slots), self.offsets.copy(), 0
        todo = jobs(every, ranks, ranks_below, None, group_slots, spare=slots // 4 + 1000)
        before = np.concatenate((np.full(_SLOTS_EARLY, self.offsets[0]), self.offsets))[:slots]
        sooner = np.maximum(before, self.offsets // BIN_US * BIN_US)
        return earliest_deadline_first_polite(
            todo,
            entity_host,
            self.offsets,
            int(self.latest[-1]) + 1,
            hosts.gap_us,
            hosts.free_us,
            hosts.limit,
            sooner,
            hurried,
        )

    def _inside(self, slot_host: IntArray, host_owed: FloatArray, owed: FloatArray) -> IntArray:
        """Share the slots that busy hosts got among their pages; adds what the pages owe to `owed`.

        Each host is a group of its own: its slots are a timeline on which its pages get windows as those of
        the shard do on the slots of the shard.
        """
        of_page, division = self.hosts.of_page, self.division
        got = np.bincount(slot_host, minlength=self.hosts.limit.size)
        known_part = np.minimum(np.ceil(division.known), got).astype(np.int64)
        fair = np.maximum(np.maximum(got // 2, got - known_part), 1)
        new_slots = np.minimum(division.new, np.where(division.known > 0.0, np.minimum(fair, got), got))
        group = np.flatnonzero(got)
        group_of_host = np.full(got.size, -1)
        group_of_host[group] = np.arange(group.size)

        rows = self.usable[(got > new_slots)[of_page[self.usable]]]
        row_host = of_page[rows]
        slots = got[row_host].astype(np.float64)
        share = self.rate[rows] / self.host_rate[row_host] * (1.0 - new_slots[row_host] / slots)
        sizes = np.bincount(row_host, minlength=got.size)
        with_rows = sizes[sizes > 0]
        known = Windows(np.zeros(0), np.zeros(0), np.zeros(0, np.int64))
        if rows.size:
            theta = np.repeat(
                solve_theta(share, self.debt[rows], np.concatenate(([0], np.cumsum(with_rows)))), with_rows
            )
            known = self._at_once(windows(share, self.debt[rows], theta, slots), rows, row_host)
            owed[rows] = self.debt[rows] - np.minimum(1.0, share * theta) + share * host_owed[row_host]

        chosen = division.chosen[group_of_host[of_page[division.chosen]] >= 0]
        chosen = chosen[np.argsort(of_page[chosen], kind="stable")]
        chosen_host = of_page[chosen]
        sizes = np.bincount(chosen_host, minlength=got.size)
        place = np.arange(chosen.size) - (np.cumsum(sizes) - sizes)[chosen_host]
        kept = place < new_slots[chosen_host]
        chosen, chosen_host, place = chosen[kept], chosen_host[kept], place[kept]
        step = got[chosen_host] / new_slots[chosen_host]
        every = _joined(known, _new_windows((place + 1) * step, step))

        entity_page = np.concatenate((rows, chosen))
        groups = group_of_host[np.concatenate((row_host, chosen_host))]
        todo = jobs(every, self.priority[entity_page], self.rate.size, groups, got[group])
        entity = earliest_deadline_first(todo, got[group])
        page: IntArray = np.full(slot_host.size, EMPTY, np.int64)
        page[np.argsort(slot_host, kind="stable")] = np.where(entity >= 0, entity_page[entity], EMPTY)
        return page

    def _again_slots(self) -> FloatArray:
        """How much later, in slots, new pages come again; never at a rate of one crawl a night or less."""
        rate = np.where(self.pages.is_new, np.nan_to_num(self.pages.crawl_rate_per_day, nan=0.0), 0.0)
        crawls = np.minimum(rate * (self.horizon_us / US_PER_DAY), 1e12)
        return np.where(crawls > 1.0, _FAR_SLOTS + self.offsets.size / np.maximum(crawls, 1.0), np.inf)

    def fill(self, page: IntArray, due: IntArray, owed: FloatArray) -> tuple[IntArray, IntArray, int]:
        """Give slots that stayed empty to pages that may use them after all."""
        empty = np.flatnonzero(page == EMPTY)
        if empty.size == 0:
            return page, due, 0
        hosts, pages = self.hosts, self.pages
        used = np.flatnonzero(page != EMPTY)
        used_host = hosts.of_page[page[used]]
        left = hosts.limit - np.bincount(used_host, minlength=hosts.limit.size)
        count = np.bincount(page[used], minlength=self.rate.size)
        known = self.usable[left[hosts.of_page[self.usable]] > 0]
        again = self._again_slots()
        new = np.flatnonzero(pages.is_new & ((count == 0) | np.isfinite(again)) & (left[hosts.of_page] > 0))
        if known.size + new.size == 0:
            return page, due, 0
        interval = 1.0 / self.share[known]
        rows = np.concatenate((known, new))
        # New pages come after known ones, their second crawls after all first ones.
        crawled = count[new] > 0
        next_new = np.full(new.size, _FAR_SLOTS)
        next_new[crawled] += count[new[crawled]] * again[new[crawled]]
        slot, row, moment = fill_empty(
            empty,
            self.offsets,
            self.latest,
            rows,
            np.concatenate(((count[known] + 1 - owed[known]) * interval, next_new)),
            np.concatenate((interval, again[new])),
            self.priority[rows],
            hosts.of_page[rows],
            hosts.gap_us,
            hosts.free_us,
            left,
            used_host,
            due[used],
        )
        page[slot] = row
        due[slot] = moment
        return page, due, slot.size


def _repeating(interval: FloatArray, count: IntArray) -> Windows:
    return Windows(interval, interval, count)


def _new_windows(deadline: FloatArray, interval: FloatArray) -> Windows:
    """Windows of pages that get one crawl each."""
    return Windows(deadline, interval, np.ones(deadline.size, np.int64))


def _joined(*parts: Windows) -> Windows:
    return Windows(
        np.concatenate([part.first_deadline for part in parts]),
        np.concatenate([part.interval for part in parts]),
        np.concatenate([part.count for part in parts]),
    )
