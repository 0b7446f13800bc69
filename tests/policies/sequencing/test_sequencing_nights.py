"""Sixty nights in a row: nobody starves, nothing drifts, hosts are left in peace, freshness is what the rates
promise."""

from dataclasses import dataclass

import numpy as np
import pytest
from scipy.special import gammaincinv

from policies.sequencing.quotas import slot_offsets_us, total_slots
from policies.sequencing.sequencing import ShardPages, sequence

DAY_US = 86_400_000_000
NIGHTS = 60


@dataclass
class Corpus:
    change: np.ndarray
    request: np.ndarray
    rate: np.ndarray
    host: np.ndarray
    gap_us: np.ndarray
    most: np.ndarray
    saturated: np.ndarray


def corpus(n, hosts, per_day, saturated=0, by_gap=True, seed=1):
    """Random pages at their best rates; the largest hosts are cut to 70 % of what they would get."""
    rng = np.random.default_rng(seed)
    sizes = rng.multinomial(n - hosts, rng.dirichlet(np.full(hosts, 0.5))) + 1
    host = np.repeat(np.arange(hosts), sizes)
    change, request = rng.gamma(0.5, size=n) + 1e-3, rng.gamma(1.0, size=n)
    low, high = 1e-12, float((request / change).max())
    for _ in range(200):
        multiplier = np.sqrt(low * high)
        level = np.minimum(multiplier * change / request, 1 - 1e-9)
        rate = np.where(level < 1 - 1e-9, change / gammaincinv(2.0, level), 0.0)
        low, high = (multiplier, high) if rate.sum() > per_day else (low, multiplier)
    rate *= per_day / rate.sum()
    asked = np.bincount(host, rate)
    largest = np.argsort(-asked)[:saturated]
    most, gap_us = np.full(hosts, 10**9), np.zeros(hosts, np.int64)
    for j in largest:
        limit = max(1, int(0.7 * asked[j]))
        most[j] = 10**9 if by_gap else limit
        gap_us[j] = DAY_US // limit if by_gap else 0
        rate[host == j] *= limit / asked[j]
    return Corpus(change, request, rate, host, gap_us, most, largest)


@dataclass
class Record:
    slots: int = 0
    empty: int = 0
    crawls: np.ndarray | None = None
    per_host: np.ndarray | None = None
    off: float = 0.0
    freshness: float = 0.0


def simulate(pages, noise=0.0, new=0.0, seed=2):
    """Run the nights and check every limit, gap and total on the way."""
    rng = np.random.default_rng(seed)
    n, hosts = pages.rate.size, pages.gap_us.size
    limit = np.where(pages.gap_us > 0, DAY_US // np.maximum(pages.gap_us, 1), pages.most)
    start = np.searchsorted(pages.host, np.arange(hosts + 1))
    is_new = rng.random(n) < new
    with np.errstate(divide="ignore"):
        last = np.where(is_new, np.nan, -np.floor(rng.random(n) / np.maximum(pages.rate, 1e-6) * DAY_US))
    host_last = np.full(hosts, -(10**15))
    tie = rng.integers(0, 2**63, n).astype(np.uint64)
    record = Record(crawls=np.zeros(n, np.int64), per_host=np.zeros((NIGHTS, hosts), np.int64))
    fresh, begin, carried = np.zeros(n), last.copy(), 0.0
    for night in range(NIGHTS):
        now = night * DAY_US
        rate = pages.rate * np.exp(noise * rng.normal(size=n)) if noise else pages.rate
        asked = np.bincount(pages.host, rate)
        factor = np.where(asked > limit, limit / np.maximum(asked, 1e-300), 1.0)
        factor[pages.saturated] = limit[pages.saturated] / asked[pages.saturated]
        rate = rate * factor[pages.host]
        free = ~np.isin(pages.host, pages.saturated)
        rate[free] *= (pages.rate.sum() - rate[~free].sum()) / rate[free].sum()
        slots, carried = total_slots(pages.rate.sum(), 24.0, carried)
        offsets = slot_offsets_us([slots], 0, DAY_US)
        result = sequence(
            ShardPages(
                rate, (now - last) / DAY_US, is_new, pages.request, tie, start, pages.most, pages.gap_us,
                host_last + pages.gap_us - now,
            ),
            offsets,
            DAY_US,
        )  # fmt: skip
        used = np.flatnonzero(result.page >= 0)
        page, time = result.page[used].astype(np.int64), result.due_offset_us[used] + now
        record.slots += slots
        record.empty += slots - used.size
        by_host = np.lexsort((time, pages.host[page]))
        host, moment = pages.host[page][by_host], time[by_host]
        first = np.flatnonzero(np.diff(host, prepend=-1))
        before = np.concatenate(([0], moment[:-1]))
        before[first] = host_last[host[first]]
        assert np.all(moment - before >= pages.gap_us[host]), "a gap is broken"
        record.per_host[night] = np.bincount(host, minlength=hosts)
        assert np.all(record.per_host[night] <= limit), "a limit is broken"
        np.maximum.at(host_last, host, moment)
        counts = np.bincount(page, minlength=n)
        if not noise and night > 0:
            record.off = max(record.off, float(np.abs(counts - result.expected)[~is_new].max()))
        by_page = np.lexsort((time, page))
        page, moment = page[by_page], time[by_page].astype(np.float64)
        first = np.flatnonzero(np.diff(page, prepend=-1))
        before = np.concatenate(([0.0], moment[:-1]))
        before[first] = last[page[first]]
        days = (moment - before) / DAY_US
        gain = -np.expm1(-pages.change[page] * days) / pages.change[page]
        np.add.at(fresh, page[~np.isnan(gain)], gain[~np.isnan(gain)])
        begin = np.where(np.isnan(begin) & (counts > 0), now, begin)
        last[page] = moment
        record.crawls += counts
        is_new &= counts == 0
    seen = (record.crawls > 0) & (pages.rate > 0) & (last > begin)
    span = (last[seen] - begin[seen]) / DAY_US
    rate, change = pages.rate[seen], pages.change[seen]
    ideal = rate / change * -np.expm1(-change / rate)
    record.freshness = float(pages.request[seen] @ (fresh[seen] / span) / (pages.request[seen] @ ideal))
    assert not is_new.any(), "a new page was never crawled"
    return record


def assert_nobody_starves(pages, record):
    due = pages.rate * NIGHTS
    assert np.all(record.crawls[due > 2.0] > 0)
    assert np.all(record.crawls[pages.rate == 0.0] <= 1)


def test_without_limits():
    pages = corpus(4000, 50, 1500.0)
    record = simulate(pages)
    assert record.empty == 0 and abs(record.slots - 1500 * NIGHTS) <= 1
    assert record.crawls.sum() == record.slots
    assert record.off < 1 + 1e-6
    assert np.abs(record.crawls - pages.rate * NIGHTS).max() < 2
    assert_nobody_starves(pages, record)
    assert record.freshness == pytest.approx(1.0, abs=0.01)


@pytest.mark.parametrize("by_gap", [True, False], ids=["gap", "limit"])
def test_saturated_hosts(by_gap):
    pages = corpus(4000, 50, 3000.0, saturated=8, by_gap=by_gap)
    record = simulate(pages)
    limit = np.bincount(pages.host, pages.rate)[pages.saturated]
    used = record.per_host[1:, pages.saturated].mean(axis=0)
    assert record.empty == 0 and record.crawls.sum() == record.slots
    assert np.all(used >= 0.99 * limit)
    assert record.off < 2 + 1e-6
    assert_nobody_starves(pages, record)
    assert record.freshness == pytest.approx(1.0, abs=0.01)


@pytest.mark.parametrize("noise, loss", [(0.1, 0.01), (0.3, 0.02)])
def test_rates_that_change_every_night(noise, loss):
    pages = corpus(4000, 50, 3000.0, saturated=8)
    record = simulate(pages, noise=noise)
    limit = np.bincount(pages.host, pages.rate)[pages.saturated]
    assert record.empty == 0 and record.crawls.sum() == record.slots
    assert np.all(record.per_host[1:, pages.saturated].mean(axis=0) >= 0.99 * limit)
    assert_nobody_starves(pages, record)
    assert record.freshness > 1 - loss


def test_half_of_the_pages_new_and_a_gap_on_every_host():
    pages = corpus(3000, 40, 1500.0, saturated=4)
    rest = np.setdiff1d(np.arange(40), pages.saturated)
    room = np.floor(DAY_US / np.maximum(np.bincount(pages.host, pages.rate)[rest] * 1.3, 1.0))
    pages.gap_us[rest] = np.minimum(room, 600_000_000).astype(np.int64)
    record = simulate(pages, new=0.5)
    assert record.empty == 0 and record.crawls.sum() == record.slots
    assert record.off < 2 + 1e-6
    assert_nobody_starves(pages, record)


@pytest.mark.parametrize("known_rate", [0.4, 1.3, 2.1])
def test_new_pages_fill_the_limit_of_a_host_and_known_ones_keep_their_turns(known_rate):
    """What known pages use is no whole number: of its part they have a whole slot in turn."""
    most, sizes = 6, [8, 400, 100]  # known pages of the host, new ones of it, another host
    rate = np.concatenate([np.full(8, known_rate / 8), np.zeros(400), np.full(100, 0.3)])
    is_new = np.repeat([False, True, False], sizes)
    last = np.full(rate.size, np.nan)
    last[:8], last[408:] = -np.linspace(0.0, 8 / known_rate, 8), -np.linspace(0.0, 3.0, 100)
    crawls = np.zeros(rate.size)
    for now in range(NIGHTS):
        tie = np.arange(rate.size, dtype=np.uint64)
        result = sequence(
            ShardPages(
                rate, now - last, is_new, -rate, tie, np.array([0, 408, 508]), np.array([most, 10**9])
            ),
            slot_offsets_us([45], 0, DAY_US),
            DAY_US,
        )
        assert result.counters["empty"] == 0
        assert (result.page < 408).sum() == most, now
        last[result.page] = now + result.due_offset_us / DAY_US
        crawls += np.bincount(result.page, minlength=rate.size)
        is_new &= crawls == 0
    # Slots go to all known pages by their rates, those of the host among them.
    part = known_rate / rate.sum()
    assert crawls[:8].sum() == pytest.approx(NIGHTS * part * (45 - most) / (1.0 - part), rel=0.08)
    assert np.ptp(crawls[:8]) <= 2
