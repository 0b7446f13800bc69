"""Who is due tonight because of signals, and how far one host may go."""

import numpy as np
import pyarrow as pa
import pytest

from policies.optimum.signalled_policy import SignalPolicy
from policies.sequencing.windows import solve_theta
from policies.signalled.pages import SignalPages
from policies.signalled.value import crawl_value
from transforms.night.signal_slots import SignalClocks, dues
from transforms.night.trusting import SIGNALS_TABLE

NO_LIMIT = 1e9
DAY_US = 86_400_000_000


def _clocks(
    row,
    *,
    unsignalled=0.1,
    weight=1.0,
    threshold=1.0,
    signals=0,
    clock=None,
    last_signal_us=0,
    mu=1.0,
    signal_rate=0.2,
):
    row = np.asarray(row, np.int64)
    n = len(row)

    def full(value, dtype=np.float64):
        return np.broadcast_to(np.asarray(value, dtype), n).copy()

    signals, weight = full(signals, np.int64), full(weight)
    clock = signals * weight if clock is None else full(clock)
    pages = SignalPages(full(mu), full(unsignalled), full(signal_rate), weight)
    policy = SignalPolicy(row, full(threshold), np.zeros(n))
    return SignalClocks(row, pages, policy, clock, signals, full(last_signal_us, np.int64))


def _debts(clocks, since, last_us=0, observed_us=0):
    n = int(clocks.row.max()) + 1
    since = np.broadcast_to(np.asarray(since, np.float64), n)
    times = (np.broadcast_to(np.asarray(t, np.int64), n) for t in (last_us, observed_us))
    return clocks.debts(since, *times)


def test_a_debt_is_the_clock_over_its_threshold():
    clocks = _clocks([0, 2, 3], unsignalled=[0.1, 0.2, 0.5], threshold=2.0, signals=[0, 1, 3])
    owed, without = _debts(clocks, [4.0, 99.0, 3.0, 1.0])
    np.testing.assert_allclose(owed, [0.2, 0.8, 1.0])
    np.testing.assert_allclose(without, [0.2, 0.3, 0.25])


@pytest.mark.parametrize("threshold", [0.0, np.inf])
def test_the_ends_of_the_thresholds(threshold):
    """0: always due. inf, with a rate: due at a signal, whenever the last crawl was."""
    clocks = _clocks([0, 1], threshold=threshold, signals=[0, 1])
    owed, without = _debts(clocks, [0.0, 5.0])
    if threshold == 0.0:
        assert owed.tolist() == without.tolist() == [1.0, 1.0]
    else:
        assert owed.tolist() == [0.0, 1.0] and without.tolist() == [0.0, 0.0]


def test_a_signal_that_is_never_false_makes_its_page_due():
    clocks = _clocks([0, 1], weight=np.inf, clock=[0.0, np.inf], signals=[0, 1], threshold=[3.0, np.inf])
    owed, without = _debts(clocks, 1.0)
    assert owed.tolist() == [pytest.approx(0.1 / 3), 1.0]
    assert without.tolist() == [pytest.approx(0.1 / 3), 0.0]


def test_a_page_that_fails_is_not_due_every_night():
    """Five signals, then an attempt that failed: only what came after it counts, and as one signal."""
    attempt = 10 * DAY_US
    common = {"unsignalled": 0.05, "weight": 0.3, "threshold": 1.0, "signals": 5}
    for last_signal, wanted in ((9 * DAY_US, 0.05), (attempt, 0.05), (11 * DAY_US, 0.35)):
        clocks = _clocks([0], last_signal_us=last_signal, **common)
        owed, without = _debts(clocks, 1.0, last_us=attempt, observed_us=3 * DAY_US)
        assert owed[0] == pytest.approx(wanted) and without[0] == pytest.approx(0.05)
    # Had the attempt found the page, all five would be of later days.
    clocks = _clocks([0], last_signal_us=11 * DAY_US, **common)
    assert _debts(clocks, 1.0, last_us=attempt, observed_us=attempt)[0][0] == 1.0


def test_no_time_since_is_no_debt():
    clocks = _clocks([0, 1], signals=[0, 1], threshold=4.0)
    owed, without = _debts(clocks, np.nan)
    assert owed.tolist() == [0.0, 0.25] and without.tolist() == [0.0, 0.0]


def test_the_value_of_a_crawl_knows_the_signals():
    clocks = _clocks([1, 2], signals=[0, 2], weight=0.7, mu=[2.0, 3.0])
    age = np.array([50.0, 1.5, 2.5])
    value = clocks.crawl_value(age)
    wanted = crawl_value(clocks.pages, age[1:], np.array([0.0, 2.0]))
    np.testing.assert_allclose(value, wanted, rtol=1e-12)
    quiet = _clocks([1, 2], signals=0, weight=0.7, mu=[2.0, 3.0]).crawl_value(age)
    assert value[0] == quiet[0] and value[1] > quiet[1]
    # Pure noise moves nothing, and divides by nothing.
    noise = _clocks([0, 1], signals=3, weight=0.0, clock=0.0).crawl_value(np.array([1.0, np.inf]))
    assert np.isfinite(noise).all()


def test_clocks_are_read_from_the_table():
    values = {
        "row": [1, 3],
        "unsignalled_rate_per_day": [0.1, 0.2],
        "signal_rate_per_day": [0.3, 0.4],
        "signal_weight": [0.5, 0.6],
        "clock_of_signals": [0.7, 0.8],
        "signals_since_crawl": [2, 3],
        "last_signal_us": [20, 30],
    }
    table = pa.RecordBatch.from_pydict(values, schema=SIGNALS_TABLE)
    policy = SignalPolicy(np.array([1, 3]), np.ones(2), np.ones(2))
    clocks = SignalClocks.of(table, np.array([9.0, 8.0, 7.0, 6.0]), policy)
    assert clocks.pages.request_rate_per_day.tolist() == [8.0, 6.0]
    assert clocks.pages.signal_weight.tolist() == [0.5, 0.6] and clocks.signals.tolist() == [2, 3]
    assert clocks.clock_of_signals.tolist() == [0.7, 0.8] and clocks.last_signal_us.tolist() == [20, 30]


# ---- dues of a shard


HOSTS, PER_HOST, FLOODED = 40, 50, 7


def _night(signals: int, limit: float, threshold=1.0, apart=False, seed=0):
    """Every page of one host of forty has `signals` of weight 1."""
    rng = np.random.default_rng(seed)
    n = HOSTS * PER_HOST
    start = np.arange(0, n + 1, PER_HOST)
    rate = rng.gamma(0.7, 0.3, n) + 1e-3
    since = rng.uniform(0.0, 0.9, n) / rate
    mine = np.arange(start[FLOODED], start[FLOODED + 1])
    # Without a signal the threshold is reached after 1/rate, as with pages that have none.
    clocks = _clocks(mine, unsignalled=rate[mine] * threshold, threshold=threshold, signals=signals)
    special = np.zeros(n, np.bool_)
    special[mine] = apart
    zeros = np.zeros(n, np.int64)
    return rate, since, start, dues(clocks, rate, since, zeros, zeros, start, special, np.zeros(HOSTS), limit)


def _ahead(rate, since, start):
    debt = np.clip(np.nan_to_num(rate * since), 0.0, 1.0)
    share = rate / rate.sum()
    theta = solve_theta(share, debt, np.array([0, len(rate)]))[0]
    return np.add.reduceat(debt - np.minimum(1.0, share * theta), start[:-1])


def test_without_signals_the_days_are_what_they_were():
    _, since, _, found = _night(signals=0, limit=NO_LIMIT)
    np.testing.assert_allclose(found.since_days, since, rtol=1e-12)
    assert not found.by_signal.any() and not found.whole.any()


def test_signals_make_pages_due():
    rate, since, start, found = _night(signals=1, limit=NO_LIMIT)
    mine = slice(int(start[FLOODED]), int(start[FLOODED + 1]))
    np.testing.assert_allclose(found.since_days[mine] * rate[mine], 1.0)
    assert found.by_signal[mine].all() and found.by_signal.sum() == PER_HOST
    others = np.r_[0 : start[FLOODED], start[FLOODED + 1] : len(rate)]
    assert np.array_equal(found.since_days[others], since[others]) and not found.whole.any()


@pytest.mark.parametrize("limit", [1.0, 3.0, 10.0])
@pytest.mark.parametrize("signals", [1, 10_000])
def test_a_host_that_asks_for_too_much_is_served_as_a_whole(limit, signals):
    """Ten thousand signals do what one does."""
    rate, since, start, found = _night(signals, limit)
    assert _ahead(rate, found.since_days, start)[FLOODED] > 12.0
    assert found.whole[FLOODED] and found.whole.sum() == 1
    assert found.ahead_crawls[FLOODED] == limit and found.window_crawls[FLOODED] == 2.0
    others = np.r_[0 : start[FLOODED], start[FLOODED + 1] : len(rate)]
    assert np.array_equal(found.since_days[others], since[others])


def test_a_host_with_slots_of_its_own_takes_none_from_others():
    rate, _, start, found = _night(signals=1, limit=1.0, apart=True)
    mine = slice(int(start[FLOODED]), int(start[FLOODED + 1]))
    np.testing.assert_allclose(found.since_days[mine] * rate[mine], 1.0)
    assert not found.whole.any()


def test_pages_that_are_not_crawled_and_new_ones_stay_as_they_are():
    rate, since = np.array([0.0, 0.5, 0.5]), np.array([3.0, np.nan, 1.0])
    clocks = _clocks([0, 1, 2], signals=4)
    zeros = np.zeros(3, np.int64)
    found = dues(
        clocks, rate, since, zeros, zeros, np.array([0, 3]), np.zeros(3, np.bool_), np.zeros(1), NO_LIMIT
    )
    assert found.since_days[0] == 3.0 and np.isnan(found.since_days[1]) and found.since_days[2] == 2.0
