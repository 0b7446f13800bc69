"""Rules of today's crawlers against the numbers that their own documentation, defaults and tests give."""

from collections.abc import Sequence

import numpy as np
import pytest

from policies.history.page_state import NO_TIME, US_PER_DAY
from policies.numerics.typing_ import IntArray
from policies.rules.crawler_rules import (
    ALWAYS,
    DAILY,
    FAR_US,
    HOURLY,
    MONTHLY,
    NEVER,
    NOT_SAID,
    RULES,
    WEEKLY,
    YEARLY,
    Fetches,
    Heritrix,
    NutchAdaptive,
    NutchDefault,
    Rule,
    RuleState,
    SitemapDriven,
    StormCrawlerAdaptive,
)

START = 20_000 * US_PER_DAY
HOUR, MINUTE, SECOND = US_PER_DAY // 24, 60_000_000, 1_000_000


def one(value: int | bool) -> IntArray:
    return np.array([value])


def fetch(
    rule: Rule, state: RuleState, at_us: int, changed: bool = False, status: int = 200, told_us: int = NO_TIME
) -> RuleState:
    return rule.after_fetch(state, Fetches(np.array([changed]), one(status), one(at_us), one(told_us)))


def waits(rule: Rule, changes: Sequence[bool], unit_us: int) -> list[float]:
    """Waits after the first fetch and one more for each of `changes`, every fetch made when due."""
    state, now = rule.first(1), START
    state = fetch(rule, state, now)
    out = [state.wait_us[0] / unit_us]
    for changed in changes:
        now += int(state.wait_us[0])
        state = fetch(rule, state, now, changed)
        out.append(state.wait_us[0] / unit_us)
    return out


@pytest.mark.parametrize("rule", RULES.values(), ids=lambda r: r.name)
def test_names_and_first_states(rule: Rule) -> None:
    assert RULES[rule.name] is rule
    assert rule.first(3).wait_us.tolist() == [0, 0, 0]


# Nutch: conf/nutch-default.xml says 30 days between fetches, at most 90.


def test_nutch_default_waits_thirty_days_whatever_it_finds() -> None:
    assert waits(NutchDefault(), [True, False, True], US_PER_DAY) == [30, 30, 30, 30]


def test_nutch_gone_pages_wait_half_as_long_again_up_to_nine_tenths_of_the_maximum() -> None:
    state, found = NutchDefault().first(1), []
    for _ in range(4):
        state = fetch(NutchDefault(), state, START, status=404)
        found.append(state.wait_us[0] / US_PER_DAY)
    assert found == [45, 67.5, 81, 81]


def test_nutch_retries_after_a_day_and_the_third_failure_makes_a_page_gone() -> None:
    rule = NutchDefault()
    state = fetch(rule, rule.first(1), START)
    found = []
    for status in (503, 0, 500, 200, 500):
        state = fetch(rule, state, START, status=status)
        found.append(state.wait_us[0] / US_PER_DAY)
    assert found == [1, 1, 45, 45, 1]


def test_nutch_interval_above_the_maximum_is_fetched_in_the_next_cycle() -> None:
    rule = NutchDefault(default_interval_s=100 * 86_400)
    state = fetch(rule, rule.first(1), START)
    assert state.wait_us[0] == US_PER_DAY
    assert state.interval[0] == 81 * 86_400
    assert not state.compared[0]


@pytest.mark.parametrize(
    ("changed", "compared", "expected"), [(True, False, 100), (True, True, 80), (False, True, 140)]
)
def test_nutch_adaptive_intervals_as_its_own_test_has_them(
    changed: bool, compared: bool, expected: int
) -> None:
    """TestAdaptiveFetchSchedule: from 100 s; unknown leaves it, a change takes 0.2, none adds 0.4."""
    rule = NutchAdaptive()
    state = RuleState(one(0), one(100), np.array([compared]), one(START), one(0))
    after = fetch(rule, state, START, changed)
    assert after.interval[0] == expected
    assert after.wait_us[0] == expected * SECOND


@pytest.mark.parametrize(
    ("largest", "modified_ago", "expected"),
    [(7, 30, 7), (2, 10, 2), (10, 180, 10)],
)
def test_nutch_adaptive_old_pages_are_not_due_at_once(largest: int, modified_ago: int, expected: int) -> None:
    """The three cases of TestAdaptiveFetchSchedule for NUTCH-1564: nothing is brought forward."""
    rule = NutchAdaptive(
        min_interval_s=86_400, max_interval_s=largest * 86_400, interval_max_s=largest * 86_400
    )
    state = RuleState(one(0), one(100), np.array([False]), one(NO_TIME), one(0))
    after = fetch(rule, state, START, told_us=START - modified_ago * US_PER_DAY)
    assert after.wait_us[0] == expected * US_PER_DAY


def test_nutch_adaptive_brings_forward_less_than_the_maximum_as_implemented() -> None:
    # Three tenths of 20 days are 6 days: below the maximum of 7, so the fetch is due after one day.
    rule = NutchAdaptive(max_interval_s=7 * 86_400, interval_max_s=7 * 86_400)
    state = RuleState(one(0), one(5 * 86_400), np.array([True]), one(START - 20 * US_PER_DAY), one(0))
    # 0.3 is single precision: a little more than three tenths.
    assert fetch(rule, state, START).wait_us[0] == pytest.approx(US_PER_DAY, abs=SECOND)


def test_nutch_adaptive_synchronises_with_the_time_of_change() -> None:
    # Unchanged since the first fetch: 30 * 1.4 = 42 less 0.3 * 30; then 63 days old, more than 58.8: 63 less
    # 0.3 * 63; then 107.1 less 0.3 * 107.1. 107.1 is above 90: the next goes on with 81 and knows nothing.
    found = waits(NutchAdaptive(), [False] * 5, US_PER_DAY)
    assert found == pytest.approx([30, 33, 44.1, 74.97, 81, 81 * 1.4 - 0.3 * 81], abs=1e-4)
    # A change counts as made when it is found: delta is 0, and 0.8 of the interval is waited for.
    assert waits(NutchAdaptive(), [True] * 3, US_PER_DAY) == pytest.approx([30, 24, 19.2, 15.36], abs=1e-4)


def test_nutch_adaptive_without_synchronisation_and_with_the_rates_of_the_class() -> None:
    rule = NutchAdaptive(inc_rate=0.2, sync_delta=False)
    assert waits(rule, [False, False, True], US_PER_DAY) == pytest.approx([30, 36, 43.2, 34.56], abs=1e-4)


def test_nutch_adaptive_waits_a_minute_at_least() -> None:
    assert waits(NutchAdaptive(), [True] * 60, SECOND)[-3:] == [60, 60, 60]


def test_nutch_adaptive_keeps_to_a_year_at_most() -> None:
    rule = NutchAdaptive(interval_max_s=10**9, sync_delta=False)
    assert waits(rule, [False] * 20, US_PER_DAY)[-1] == 365


# StormCrawler: a day at first; 1.5 times unchanged, up to two weeks; half-way to an hour when changed.


def test_stormcrawler_unchanged_pages_reach_two_weeks() -> None:
    found = waits(StormCrawlerAdaptive(), [False] * 8, MINUTE)
    assert found == [1440, 2160, 3240, 4860, 7290, 10_935, 16_402, 20_160, 20_160]


def test_stormcrawler_changed_pages_near_an_hour() -> None:
    found = waits(StormCrawlerAdaptive(), [True] * 11, MINUTE)
    assert found == [1440, 750, 405, 232, 146, 103, 81, 70, 65, 62, 61, 60]


def test_stormcrawler_takes_not_modified_as_unchanged_and_keeps_the_digest() -> None:
    rule = StormCrawlerAdaptive()
    state = fetch(rule, rule.first(1), START)
    state = fetch(rule, state, START, changed=True, status=304)
    assert state.wait_us[0] == 2160 * MINUTE
    assert state.compared[0]


@pytest.mark.parametrize(("status", "minutes"), [(500, 120), (0, 120), (404, 44_640), (301, 1440)])
def test_stormcrawler_forgets_with_other_answers(status: int, minutes: int) -> None:
    rule = StormCrawlerAdaptive()
    state = rule.first(1)
    for _ in range(3):
        state = fetch(rule, state, START)
    state = fetch(rule, state, START, status=status)
    assert state.wait_us[0] == minutes * MINUTE
    assert fetch(rule, state, START, changed=True).wait_us[0] == 1440 * MINUTE


# Heritrix: a day at first; times or divided by 1.5, from an hour to four weeks.


def test_heritrix_factors_and_limits() -> None:
    assert waits(Heritrix(), [False, False, True], HOUR) == pytest.approx([24, 36, 54, 36])
    assert waits(Heritrix(), [False] * 12, HOUR)[-2:] == [28 * 24, 28 * 24]
    found = waits(Heritrix(), [True] * 10, HOUR)
    assert found[:3] == pytest.approx([24, 16, 24 / 1.5 / 1.5], abs=1e-6)
    assert found[-2:] == [1, 1]


def test_heritrix_takes_any_answer_for_a_page_and_retries_without_one() -> None:
    rule = Heritrix()
    state = fetch(rule, rule.first(1), START, status=404)
    assert state.wait_us[0] == 24 * HOUR
    state = fetch(rule, state, START, changed=True, status=200)
    assert state.wait_us[0] == 16 * HOUR
    for _ in range(29):
        state = fetch(rule, state, START, status=0)
        assert state.wait_us[0] == 15 * MINUTE
    assert fetch(rule, state, START, status=0).wait_us[0] == FAR_US
    assert fetch(rule, state, START).wait_us[0] == 24 * HOUR


# Sitemaps: the table of Norconex's own test, all pages last fetched three days ago.


@pytest.mark.parametrize(
    ("support", "changefreq", "lastmod_days", "own", "expected"),
    [
        ("first", NOT_SAID, None, HOURLY, True),
        ("first", HOURLY, None, HOURLY, True),
        ("first", HOURLY, None, ALWAYS, True),
        ("first", HOURLY, None, NEVER, True),
        ("first", HOURLY, None, YEARLY, True),
        ("last", NOT_SAID, None, HOURLY, True),
        ("last", HOURLY, None, HOURLY, True),
        ("last", HOURLY, None, ALWAYS, True),
        ("last", HOURLY, None, NEVER, False),
        ("last", HOURLY, None, YEARLY, False),
        ("last", DAILY, None, None, True),
        ("last", MONTHLY, None, ALWAYS, True),
        ("first", DAILY, None, None, True),
        ("first", WEEKLY, None, None, False),
        ("first", MONTHLY, None, None, False),
        ("first", MONTHLY, 2, MONTHLY, True),
        ("first", DAILY, 4, ALWAYS, False),
        ("never", WEEKLY, 4, None, True),
        ("first", NEVER, None, None, False),
        ("first", ALWAYS, None, None, True),
    ],
)
def test_sitemap_decisions(
    support: str, changefreq: int, lastmod_days: int | None, own: int | None, expected: bool
) -> None:
    frequency = {
        ALWAYS: 0,
        HOURLY: HOUR,
        MONTHLY: 30 * US_PER_DAY,
        YEARLY: 365 * US_PER_DAY,
        NEVER: FAR_US,
        None: -1,
    }
    lastmod = NO_TIME if lastmod_days is None else START - lastmod_days * US_PER_DAY
    rule = SitemapDriven(support)
    crawled = START - 3 * US_PER_DAY
    found = rule.recrawlable(one(START), one(crawled), one(lastmod), one(changefreq), one(frequency[own]))
    assert found.tolist() == [expected]


def test_sitemap_pages_never_fetched_are_fetched() -> None:
    rule = SitemapDriven()
    assert rule.recrawlable(one(START), one(NO_TIME), one(NO_TIME), one(NEVER)).tolist() == [True]


def test_sitemap_parameters_are_checked() -> None:
    with pytest.raises(ValueError, match="'sometimes': give first, last or never"):
        SitemapDriven("sometimes")
    with pytest.raises(ValueError, match="0 us from run to run"):
        SitemapDriven(run_every_us=0)


@pytest.mark.parametrize("rule", RULES.values(), ids=lambda r: r.name)
def test_many_pages_at_once_are_as_one_by_one(rule: Rule) -> None:
    rng = np.random.Generator(np.random.Philox(key=1))
    n, states = 40, [rule.first(1) for _ in range(40)]
    together, now = rule.first(n), np.full(n, START)
    for _ in range(12):
        changed, status = rng.random(n) < 0.5, rng.choice([200, 200, 200, 301, 304, 404, 500, 0], n)
        told = np.where(rng.random(n) < 0.5, now - rng.integers(0, 40, n) * US_PER_DAY, NO_TIME)
        together = rule.after_fetch(together, Fetches(changed, status, now, told))
        for i, state in enumerate(states):
            states[i] = fetch(rule, state, int(now[i]), bool(changed[i]), int(status[i]), int(told[i]))
            for field in ("wait_us", "interval", "compared", "modified_us", "retries"):
                assert getattr(states[i], field)[0] == getattr(together, field)[i]
        now = now + np.minimum(together.wait_us, 400 * US_PER_DAY)


def test_states_of_some_pages() -> None:
    state = Heritrix().first(3)
    part = state.take(np.array([0, 2]))
    state.put(np.array([1]), fetch(Heritrix(), part.take(np.array([0])), START))
    assert state.wait_us.tolist() == [0, US_PER_DAY, 0]
    assert len(part) == 2
