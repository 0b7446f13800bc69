"""One night of one shard: the theorem on counts, golden schedules, faults seen elsewhere."""

from dataclasses import replace
from fractions import Fraction
from math import ceil

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from policies.sequencing.deadlines import earliest_deadline_first
from policies.sequencing.quotas import BIN_US, slot_offsets_us
from policies.sequencing.sequencing import REASONS, ShardPages, sequence
from policies.sequencing.windows import jobs, repeated, solve_theta
from tests.golden import load

DAY_US = 86_400_000_000
HOUR_US = 3_600_000_000
SECOND_US = 1_000_000


def make(rate, days=0.0, new=None, value=None, **hosts):
    rate = np.asarray(rate, np.float64)
    n = rate.size
    is_new = np.zeros(n, np.bool_) if new is None else np.asarray(new, np.bool_)
    days = np.where(is_new, np.nan, np.broadcast_to(np.asarray(days, np.float64), n))
    value = np.arange(n, 0, -1.0) if value is None else np.asarray(value, np.float64)
    tie = np.arange(n, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    for name in hosts:
        hosts[name] = np.asarray(hosts[name], np.int64)
    return ShardPages(rate, days, is_new, value, tie, **hosts)


def night(pages, slots, horizon_us=DAY_US):
    return sequence(pages, slot_offsets_us([slots], 0, horizon_us), horizon_us)


def max_discrepancy(schedule, share, owed=None):
    """Largest |count(T) - (share T + owed)| over pages and prefixes T >= 1."""
    schedule = np.asarray(schedule, np.int64)
    worst = 0.0
    for i, p in enumerate(share):
        count = np.cumsum(schedule == i)
        ideal = float(p) * np.arange(1, schedule.size + 1) + (0.0 if owed is None else owed[i])
        worst = max(worst, float(np.abs(count - ideal).max(initial=0.0)))
    return worst


GOLDEN = load("lds")["cases"]
CHECKED = [case for case in GOLDEN if case.get("kind") == "checker"]
SCHEDULES = [case for case in GOLDEN if "edf_schedule" in case]


@pytest.mark.parametrize("case", CHECKED, ids=lambda c: str(c["schedule"]))
def test_the_checker_itself(case):
    schedule = [-1 if i is None else i for i in case["schedule"]]
    share = [Fraction(p) for p in case["p"]]
    assert max_discrepancy(schedule, share) == pytest.approx(
        float(Fraction(case["max_discrepancy"])), abs=1e-12
    )


@pytest.mark.parametrize("case", SCHEDULES, ids=lambda c: ",".join(c["p"])[:40])
def test_golden_schedules(case):
    share = np.array([float(Fraction(p)) for p in case["p"]])
    rows = np.flatnonzero(share)
    slots = np.array([case["slots"]])
    want = [-1 if i is None else i for i in case["edf_schedule"]]
    if rows.size:
        laid_out = repeated(1.0 / share[rows], share[rows], float(case["slots"]))
        got = earliest_deadline_first(jobs(laid_out, np.arange(rows.size), rows.size, None, slots), slots)
        got = np.where(got >= 0, rows[got], -1)
        assert got.tolist() == want
        assert max_discrepancy(got, share) == pytest.approx(
            float(Fraction(case["max_discrepancy"])), abs=1e-9
        )
    if sum(Fraction(p) for p in case["p"]) == 1:
        result = night(make(share), case["slots"])
        assert result.page.tolist() == want
        assert np.all(result.owed == 0.0)


def exact_night(weight, debt, slots):
    """The rule in exact fractions, by brute force: owed, and the page of each slot."""
    total = sum(weight)
    share = [Fraction(w, total) for w in weight]
    ends = sorted({1 / p for p in share})
    debts = sum(debt)
    low = Fraction(0)
    for end in ends:
        if sum(min(1, p * end) for p in share) >= debts:
            break
        low = end
    fixed = sum(1 for p in share if p * low >= 1)
    free = sum(p for p in share if p * low < 1)
    theta = (debts - fixed) / free if free else low
    owed = [m - min(1, p * theta) for m, p in zip(debt, share, strict=True)]
    done = [0] * len(weight)
    schedule = []
    for slot in range(slots):
        due = [
            ((k + 1 - o) / p, i)
            for i, (k, o, p) in enumerate(zip(done, owed, share, strict=True))
            if ceil((k - o) / p) <= slot
        ]
        schedule.append(min(due)[1])
        done[schedule[-1]] += 1
    return share, owed, schedule


@settings(deadline=None, max_examples=150)
@given(
    st.lists(st.tuples(st.integers(1, 12), st.integers(0, 8)), min_size=1, max_size=9),
    st.integers(1, 40),
)
def test_same_schedule_as_exact_fractions(items, slots):
    weight = [w for w, _ in items]
    debt = [min(Fraction(1), Fraction(d, 6)) for _, d in items]
    share, owed, schedule = exact_night(weight, debt, slots)
    result = night(make(weight, [float(m) / w for m, w in zip(debt, weight, strict=True)]), slots)
    np.testing.assert_allclose(result.owed, [float(o) for o in owed], atol=1e-9)
    assert result.page.tolist() == schedule
    for i, p in enumerate(share):
        for end in range(1, slots + 1):
            assert abs(schedule[:end].count(i) - (p * end + owed[i])) < 1


@settings(deadline=None, max_examples=80)
@given(
    st.integers(0, 2**32), st.integers(1, 300), st.integers(1, 400), st.sampled_from([0.1, 1.0, 5.0, 12.0])
)
def test_counts_stay_within_one_at_every_prefix(seed, n, slots, spread):
    rng = np.random.default_rng(seed)
    rate = np.exp(spread * rng.normal(size=n))
    days = rng.choice([0.0, 1.0, 30.0]) * rng.exponential(size=n) / rate
    days[rng.random(n) < 0.1] = np.inf
    result = night(make(rate, days, value=rng.integers(0, 3, n)), slots)
    share = rate / rate.sum()
    assert (result.page >= 0).all() and result.page.size == slots
    assert abs(result.owed.sum()) < 1e-6 * n
    assert max_discrepancy(result.page, share, result.owed) < 1 + 1e-6
    np.testing.assert_allclose(result.expected, share * slots + result.owed, atol=1e-9)


@settings(deadline=None, max_examples=80)
@given(st.integers(0, 2**32), st.sampled_from([0.3, 3.0, 20.0, 300.0]))
def test_theta_solves_its_equation_in_every_group(seed, spread):
    rng = np.random.default_rng(seed)
    sizes = rng.integers(1, 60, rng.integers(1, 8))
    start = np.concatenate(([0], np.cumsum(sizes)))
    share = np.exp(-spread * rng.random(start[-1]))
    share /= np.repeat(np.add.reduceat(share, start[:-1]), sizes)
    debt = np.minimum(1.0, rng.exponential(size=share.size) * rng.choice([0.01, 1.0, 100.0]))
    theta = solve_theta(share, debt, start)
    for j, t in enumerate(theta):
        part = slice(start[j], start[j + 1])
        assert np.minimum(1.0, share[part] * t).sum() == pytest.approx(debt[part].sum(), rel=1e-9, abs=1e-9)


def test_overdue_pages_go_by_crawl_value_then_by_hash():
    value = np.array([1.0, 5.0, 3.0, 5.0, 0.0])
    result = night(make(np.ones(5), 100.0, value=value), 5)
    tie = make(np.ones(5)).tie
    first_two = sorted([1, 3], key=lambda i: int(tie[i]))
    assert result.page.tolist() == [*first_two, 2, 0, 4]
    assert [REASONS[r] for r in result.reason] == ["overdue"] * 5


def test_reasons():
    result = night(make([2.0, 1.0, 1.0, 9.0], [0.1, 5.0, 0.2, 0.0], new=[False, False, False, True]), 8)
    names = [REASONS[r] for r in result.reason]
    assert names[result.page.tolist().index(3)] == "new"
    first = result.page.tolist().index(1)
    assert names[first] == "overdue" and names.count("overdue") == 1
    assert result.counters["used"] == 8 and result.counters["new"] == 1


def test_page_due_every_ten_days_is_crawled_every_ten_days():
    rate = np.full(100, 0.1)
    days = np.arange(100) / 10.0
    crawls = np.zeros(100, int)
    for _ in range(30):
        result = night(make(rate, days), 10)
        times = np.full(100, np.nan)
        times[result.page] = result.due_offset_us / DAY_US
        crawls[result.page] += 1
        days = np.where(np.isnan(times), days + 1.0, 1.0 - times)
        assert days.max() < 11.1
    assert crawls.min() == crawls.max() == 3


def test_new_pages_take_at_most_half_and_go_by_value():
    new = np.arange(60) >= 20
    value = np.arange(60) % 17 + np.arange(60) / 100
    result = night(make(np.ones(60), 1.0, new=new, value=value), 30)
    chosen = result.page[new[result.page]]
    assert chosen.size == 15
    assert set(chosen) == set(sorted(np.flatnonzero(new), key=lambda i: -value[i])[:15])
    assert list(value[chosen]) == sorted(value[chosen], reverse=True)
    share = np.where(new, 0.0, 1 / 40)
    assert max_discrepancy(result.page, share[:20], result.owed) < 1 + 1e-6
    assert result.counters["new_waiting"] == 25
    halves = np.add.reduceat(new[result.page], [0, 10, 20])
    assert halves.max() <= 6


def test_new_pages_take_all_when_nobody_else_wants_them():
    assert night(make(np.zeros(20), new=np.ones(20)), 12).counters["new"] == 12
    mixed = night(make(np.zeros(20), 5.0, new=np.arange(20) < 15), 12)
    assert mixed.counters["new"] == 12 and mixed.counters["never"] == 5
    few = night(make(np.zeros(20), 5.0, new=np.arange(20) < 4), 12)
    assert few.counters["new"] == 4 and few.counters["empty"] == 8


def test_one_slot_a_night_starves_no_new_page():
    assert night(make([1.0, 1.0], [5.0, 0.0], new=[False, True]), 1).counters["new"] == 1


@pytest.mark.parametrize("slots", [0, 1, 7])
def test_no_pages_no_slots(slots):
    result = night(make([]), slots)
    assert result.page.tolist() == [-1] * slots and result.counters["empty"] == slots
    none = night(make([1.0, 2.0], 1.0), 0)
    assert none.page.size == 0 and none.owed.tolist() == [0.0, 0.0]


def test_rate_zero_is_never_crawled_and_one_page_takes_all():
    assert night(make([0.0, 0.0], np.inf), 4).counters["empty"] == 4
    assert night(make([0.0, 1e-300], np.inf), 4).page.tolist() == [1] * 4
    assert night(make([3.0], 0.0), 4).page.tolist() == [0] * 4


def test_extreme_rates_and_times():
    """Rates of 1e-9 and 1e9 a day, "never" as a large integer, crawls in the future: nothing wraps around."""
    rate = np.array([1e-9, 1e9, 1.0, 1.0, 1.0, 1 / 30])
    days = np.array([2147483647.0, 1.0, 0.0, -3.0, np.inf, -20.0])
    result = night(make(rate, days), 1000)
    assert (result.page >= 0).all() and np.isfinite(result.owed).all() and np.isfinite(result.expected).all()
    assert max_discrepancy(result.page, rate / rate.sum(), result.owed) < 1 + 1e-6
    due_later = night(make(rate[2:], days[2:]), 3)
    assert 3 not in due_later.page and 2 in due_later.page
    assert (due_later.reason == REASONS.index("overdue")).sum() == 1


def test_more_overdue_than_slots_fills_every_slot():
    result = night(make(np.full(134, 1.0), 23.0), 100)
    assert np.unique(result.page).size == 100 and result.counters["overdue"] == 100


def test_without_new_pages_known_ones_are_scheduled():
    assert night(make(np.full(10, 1.0), 1.0), 10).counters["used"] == 10


def test_all_due_at_once_makes_no_spike():
    n, gap = 600, 5 * SECOND_US
    pages = make(
        np.full(n, 4.0), 99.0, host_start=[0, 400, 600], host_max_slots=[600, 600], host_gap_us=[gap, gap]
    )
    result = night(pages, n, 6 * HOUR_US)
    bins = np.bincount(result.due_offset_us // BIN_US, minlength=36)
    assert bins.max() <= 1.2 * bins.mean() and result.counters["empty"] == 0
    assert np.unique(result.page).size == n
    for host in (result.page < 400, result.page >= 400):
        assert np.diff(np.sort(result.due_offset_us[host])).min() >= gap


@pytest.mark.parametrize("seed", range(4))
def test_gaps_move_a_day_by_one_crawl_and_any_stretch_by_nine(seed):
    """Of a week in one shard with hosts that their gaps fill: against the slots, so against the budget."""
    rng = np.random.Generator(np.random.Philox(key=seed))
    week, slots = 7 * DAY_US, 1500 + 4000 * seed
    hosts, gap = np.arange(0, 121, 20), np.array([600, 1200, 20, 7, 0, 0]) * SECOND_US
    rate = np.repeat([200.0, 8.0, 4.0, 2.0, 1.0, 0.5], 20) * rng.random(120)
    result = night(make(rate, 3.0 * rng.random(120), host_start=hosts, host_gap_us=gap), slots, week)
    assert result.counters["moved"] > 900 and result.counters["empty"] == 0
    offsets = slot_offsets_us([slots], 0, week)
    at = np.arange(0, week + 1, 10 * SECOND_US)
    ahead = np.searchsorted(result.due_offset_us, at) - np.searchsorted(offsets, at)
    whole = at % BIN_US == 0
    assert ahead[whole].min() == -1 and ahead[whole].max() == 0
    assert ahead.min() == -1 and ahead.max() <= 8


def test_budget_above_what_a_host_allows_stays_unspent():
    gap = 10 * SECOND_US
    result = night(make(np.full(50, 200.0), 1.0, host_start=[0, 50], host_gap_us=[gap]), 10_000, HOUR_US)
    assert result.counters["used"] == 360 and result.counters["empty"] == 9_640
    assert result.counters["cut_hosts"] == 1
    assert np.diff(result.due_offset_us[result.page >= 0]).min() >= gap


def test_slow_host_does_not_block_others():
    rate = np.full(300, 24.0)
    gap = np.array([120 * SECOND_US, 0, 0])
    result = night(make(rate, 1.0, host_start=[0, 100, 200, 300], host_gap_us=gap), 300, HOUR_US)
    slow = result.page < 100
    assert slow.sum() in (29, 30) and result.counters["empty"] == 0
    assert np.diff(result.due_offset_us[slow]).min() >= gap[0]
    counts = np.bincount(result.page, minlength=300)[100:]
    assert counts.min() >= 1 and counts.max() <= 2


def test_gap_longer_than_the_night_allows_one_crawl():
    hosts = {"host_start": [0, 2, 3], "host_gap_us": [3 * DAY_US, 0]}
    result = night(make([1.0, 1.0, 1.0], 9.0, **hosts), 6)
    assert (result.page < 2).sum() == 1 and result.counters["empty"] == 0
    later = night(make([1.0, 1.0, 1.0], 9.0, **hosts, host_free_at_us=[2 * DAY_US, 0]), 6)
    assert (later.page == 2).all()


def test_host_is_free_only_after_its_last_crawl_before_midnight():
    free = 7 * HOUR_US
    pages = make(np.ones(4), 5.0, host_start=[0, 2, 4], host_gap_us=[HOUR_US, 0], host_free_at_us=[free, 0])
    result = night(pages, 24)
    assert result.due_offset_us[result.page < 2].min() >= free
    assert result.counters["empty"] == 0


def test_input_is_left_alone_and_output_repeats():
    rng = np.random.default_rng(3)
    pages = make(
        rng.gamma(0.5, size=200),
        rng.exponential(size=200) * 5,
        new=rng.random(200) < 0.2,
        value=rng.integers(0, 4, 200),
        host_start=np.arange(0, 201, 20),
        host_gap_us=rng.integers(0, HOUR_US, 10),
        host_max_slots=rng.integers(0, 40, 10),
    )
    for name in pages.__slots__:
        if getattr(pages, name) is not None:
            getattr(pages, name).setflags(write=False)
    offsets = slot_offsets_us([150], 0, DAY_US)
    offsets.setflags(write=False)
    first, second = sequence(pages, offsets, DAY_US), sequence(pages, offsets, DAY_US)
    for name in ("page", "due_offset_us", "owed", "expected", "reason"):
        assert getattr(first, name).tobytes() == getattr(second, name).tobytes()
    assert first.counters == second.counters


@pytest.mark.parametrize(
    "change, message",
    [
        ({"crawl_rate_per_day": np.array([1.0, -1.0])}, "crawl_rate_per_day is -1.0 in row 1"),
        ({"crawl_rate_per_day": np.array([np.nan, 1.0])}, "crawl_rate_per_day is nan"),
        ({"crawl_rate_per_day": np.array([1.0, np.inf])}, "crawl_rate_per_day is inf"),
        ({"days_since_last": np.array([1.0, np.nan])}, "days_since_last is NaN in row 1"),
        ({"crawl_value": np.array([np.nan, 1.0])}, "crawl_value is NaN"),
        ({"tie": np.zeros(3, np.uint64)}, "tie has shape"),
        ({"host_start": np.array([0, 1])}, "host_start"),
        ({"host_start": np.array([0, 2]), "host_gap_us": np.array([1, 2])}, "host_gap_us has shape"),
    ],
)
def test_bad_pages(change, message):
    good = make([1.0, 1.0], 1.0)
    fields = {name: getattr(good, name) for name in good.__slots__} | change
    with pytest.raises(ValueError, match=message):
        night(ShardPages(**fields), 3)


def test_bad_slots():
    with pytest.raises(ValueError, match="slot_offset_us"):
        sequence(make([1.0]), np.array([5, 3]), 10)
    with pytest.raises(ValueError, match="slot_offset_us"):
        sequence(make([1.0]), np.array([5, 10]), 10)
    with pytest.raises(ValueError, match="horizon_us"):
        sequence(make([1.0]), np.array([], np.int64), 0)


@pytest.mark.parametrize(("rate_per_day", "crawls"), [(10.0, 10), (3.0, 10), (1.0, 1), (0.0, 1)])
def test_new_pages_alone_use_the_night(rate_per_day, crawls):
    """A new page comes again where its rate says so and nobody else may use the slot."""
    pages = ShardPages(
        crawl_rate_per_day=np.array([rate_per_day]),
        days_since_last=np.array([np.nan]),
        is_new=np.array([True]),
        crawl_value=np.array([1.0]),
        tie=np.array([7], np.uint64),
    )
    offsets = np.arange(10) * (86_400_000_000 // 10)
    found = sequence(pages, offsets, 86_400_000_000)
    assert int((found.page == 0).sum()) == crawls


def test_new_pages_alone_share_the_night():
    n = 6
    pages = ShardPages(
        crawl_rate_per_day=np.full(n, 5.0),
        days_since_last=np.full(n, np.nan),
        is_new=np.ones(n, np.bool_),
        crawl_value=np.arange(n, dtype=np.float64),
        tie=np.arange(n, dtype=np.uint64),
    )
    found = sequence(pages, np.arange(15) * 1_000_000, 15_000_000 * 5760)
    assert (np.bincount(found.page, minlength=n) >= 2).all()


def test_a_host_served_as_a_whole_gets_its_share_and_no_more():
    """All its pages claim to be due, for signals: together they are crawled as often as their rates say."""
    rng = np.random.default_rng(5)
    hosts, per_host, slots = 20, 30, 400
    n = hosts * per_host
    rate = rng.gamma(2.0, 0.3, n)
    since = rng.uniform(0.0, 0.9, n) / rate
    mine = np.arange(4 * per_host, 5 * per_host)
    since[mine] = 2.0 / rate[mine]
    signalled = np.zeros(n, np.bool_)
    signalled[mine] = True
    whole = np.zeros(hosts, np.bool_)
    whole[4] = True
    pages = ShardPages(
        crawl_rate_per_day=rate,
        days_since_last=since,
        is_new=np.zeros(n, np.bool_),
        crawl_value=rng.random(n),
        tie=rng.integers(0, 1 << 63, n).astype(np.uint64),
        host_start=np.arange(0, n + 1, per_host),
        by_signal=signalled,
        host_whole=whole,
        host_days_since_last=np.full(hosts, 0.05),
    )
    offsets = np.arange(slots) * (86_400_000_000 // slots)
    result = sequence(pages, offsets, 86_400_000_000)
    share = slots * rate[mine].sum() / rate.sum()
    assert abs(np.isin(result.page, mine).sum() - share) < 1.5
    free = sequence(replace(pages, host_whole=None, host_days_since_last=None), offsets, 86_400_000_000)
    assert np.isin(free.page, mine).sum() > share + 5
    assert (result.reason[np.isin(result.page, mine)] == REASONS.index("signal")).any()
