"""Rules and sitemaps on histories: against plain loops, laws of scaling, what may be seen."""

from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from scipy import stats

from policies.history.page_state import US_PER_DAY
from policies.numerics.typing_ import IntArray
from policies.rules.crawler_rules import (
    NOT_SAID,
    RULES,
    WEEKLY,
    Fetches,
    Heritrix,
    NutchDefault,
    Rule,
    SitemapDriven,
)
from policies.simulation import intervals
from policies.simulation.histories import ChangeHistory
from policies.simulation.intervals import CrawlTimes, Sitemap

START = 20_000 * US_PER_DAY


def rng(key: int) -> np.random.Generator:
    return np.random.Generator(np.random.Philox(key=key))


def scored_from(history: ChangeHistory) -> int:
    return history.start_us + 2 * (history.end_us - history.start_us) // 5


@cache
def world(n: int = 200, days: int = 200) -> ChangeHistory:
    """Pages of very different rates, some of them new; half of the changes go back to an old content."""
    draw = rng(1)
    first = np.where(
        np.arange(n) % 4 == 0, START + draw.integers(0, days // 2, n) * US_PER_DAY, START - US_PER_DAY
    )
    history = ChangeHistory.poisson(
        START, START + days * US_PER_DAY, draw.lognormal(np.log(0.05), 1.5, n), draw, first
    )
    return replace(history, change_version=draw.integers(0, 2, len(history.change_us)))


def by_hand(
    history: ChangeHistory, rule: Rule, scale: float, page: int, free_us: int, phase: float
) -> list[int]:
    """One page alone, with times as a rule's configuration has them, and Python's own look-ups."""
    mine = history.change_page == page
    changes = list(zip(history.change_us[mine].tolist(), history.change_version[mine].tolist(), strict=True))
    state, now, seen, out = rule.first(1), free_us, None, []
    while now < history.end_us:
        version = next((v for at, v in reversed(changes) if at <= now), 0)
        state = rule.after_fetch(
            state,
            Fetches(
                np.array([version != seen]),
                np.array([200]),
                np.array([2**60 + int((now - START) / scale)]),
            ),
        )
        out.append(now)
        wait = float(state.wait_us[0]) * scale
        now, seen = now + int(max(wait, 1e6) * (phase if len(out) == 1 else 1.0)), version
    return out


@pytest.mark.parametrize("rule", RULES.values(), ids=lambda r: r.name)
@pytest.mark.parametrize("scale", [0.2, 1.0])
def test_pages_in_lock_step_are_as_one_by_one(rule: Rule, scale: float) -> None:
    history = world()
    free, phase = intervals.free_crawls(history, 3), intervals.first_phases(history, 3)
    crawls = intervals.follow_rule(history, rule, scale, free, phase)
    for page in range(0, len(history), 9):
        mine = crawls.at_us[crawls.page == page]
        alone = by_hand(history, rule, scale, page, int(free[page]), float(phase[page]))
        # The rule's clock is cut to whole units at other places: intervals in minutes may differ by one.
        assert len(mine) == len(alone)
        assert np.abs(mine - np.array(alone)).max() < 0.01 * US_PER_DAY * max(scale, 1) * len(alone)
    assert crawls.free.sum() == len(history)


def test_pages_that_appear_wait_the_whole_of_their_first_wait() -> None:
    """Only pages that are there at the start are found in the middle of a wait."""
    history = world()
    free, phase = intervals.free_crawls(history, 1), intervals.first_phases(history, 1)
    new = history.first_us > history.start_us
    assert 0 < new.sum() < len(history)
    assert (phase[new] == 1.0).all() and (phase[~new] < 1.0).all() and 0.4 < phase[~new].mean() < 0.6
    crawls = intervals.follow_rule(history, NutchDefault(default_interval_s=864_000), 1.0, free, phase)
    second = np.array([crawls.at_us[(crawls.page == i) & ~crawls.free][0] for i in np.flatnonzero(new)])
    assert np.abs(second - free[new] - 10 * US_PER_DAY).max() < 1_000_000


def test_a_budget_pays_for_a_page_from_the_first_night_that_knows_it() -> None:
    first = START + np.array([-3.0, 0.0, 0.25, 1.0, 4.75, 9.5]) * US_PER_DAY
    history = ChangeHistory.poisson(
        START, START + 10 * US_PER_DAY, np.ones(6), rng(2), first.astype(np.int64)
    )
    assert history.paid_days(START, history.end_us) == 10 + 10 + 9 + 9 + 5 + 0
    assert history.paid_days(START + 6 * US_PER_DAY, history.end_us) == 4 * 5
    assert history.held_days(START, history.end_us).sum() == 10 + 10 + 9.75 + 9 + 5.25 + 0.5


def test_a_scale_multiplies_the_configuration() -> None:
    history = world()
    free, phase = intervals.free_crawls(history, 1), intervals.first_phases(history, 1)
    scaled = intervals.follow_rule(history, Heritrix(), 4.0, free, phase)
    slower = Heritrix(initial_s=4 * 86_400, min_s=4 * 3600, max_s=4 * 2_419_200)
    plain = intervals.follow_rule(history, slower, 1.0, free, phase)
    assert np.array_equal(scaled.page, plain.page)
    # Intervals are cut to milliseconds, then multiplied again and again.
    assert np.abs(scaled.at_us - plain.at_us).max() < 1e7


@pytest.mark.parametrize("rule", RULES.values(), ids=lambda r: r.name)
def test_crawlers_know_nothing_of_the_future(rule: Rule) -> None:
    history = world()
    cut = START + 80 * US_PER_DAY
    kept = history.change_us <= cut
    other = ChangeHistory.from_events(
        history.start_us,
        history.end_us,
        history.first_us,
        history.change_page[kept],
        history.change_us[kept],
        history.change_version[kept],
    )
    free, phase = intervals.free_crawls(history, 1), intervals.first_phases(history, 1)
    one, two = (intervals.follow_rule(h, rule, 0.3, free, phase) for h in (history, other))
    before = [c.at_us[c.at_us <= cut] for c in (one, two)]
    assert np.array_equal(*before)
    assert len(before[0]) > 2 * len(history)
    assert len(one) != len(two) or rule.name == "nutch-default"


def test_crawlers_see_the_contents_of_their_crawls_only() -> None:
    history = world()
    free, phase = intervals.free_crawls(history, 1), intervals.first_phases(history, 1)
    crawls = intervals.follow_rule(history, Heritrix(), 1.0, free, phase)
    # Two changes back and forth between two crawls of every page leave no trace.
    gap = np.flatnonzero((np.diff(crawls.page) == 0) & (np.diff(crawls.at_us) > 10))[::5]
    page, at = crawls.page[gap], crawls.at_us[gap] + 3
    more = ChangeHistory.from_events(
        history.start_us,
        history.end_us,
        history.first_us,
        np.concatenate([history.change_page, page, page]),
        np.concatenate([history.change_us, at, at + 2]),
        np.concatenate([history.change_version, np.full(len(page), 9), history.version(page, at - 1)]),
    )
    again = intervals.follow_rule(more, Heritrix(), 1.0, free, phase)
    assert np.array_equal(crawls.at_us, again.at_us)


@pytest.mark.parametrize("rule", RULES.values(), ids=lambda r: r.name)
@pytest.mark.parametrize("budget", [0.02, 0.3])
def test_budgets_are_met_within_a_hundredth(rule: Rule, budget: float) -> None:
    history = world()
    begin = scored_from(history)
    found = intervals.rule_at_budget(history, rule, budget, begin)
    assert abs(found.off) < 0.01
    scored = ~found.crawls.free & (found.crawls.at_us > begin)
    days = sum(max(history.end_us - max(int(first), begin), 0) / US_PER_DAY for first in history.first_us)
    assert np.count_nonzero(scored) == pytest.approx(budget * days, rel=0.01)


@pytest.mark.parametrize("rule", RULES.values(), ids=lambda r: r.name)
def test_adaptive_rules_crawl_more_what_changes_more(rule: Rule) -> None:
    history = world(400)
    begin = scored_from(history)
    crawls = intervals.rule_at_budget(history, rule, 0.1, begin).crawls
    held = history.held_days(START, history.end_us)
    changes = history.changes_between(START, history.end_us) / held
    spent = counts(crawls, len(history)) / held
    correlation = float(stats.spearmanr(changes, spent).statistic)
    # Of unrelated ranks it would be 0 with an error of 1 / sqrt(n) = 0.05.
    assert (correlation > 0.5) == (rule.name != "nutch-default")


def counts(crawls: CrawlTimes, n: int) -> IntArray:
    return np.bincount(crawls.page[~crawls.free], minlength=n)


# Sitemaps


def sitemap_world() -> tuple[ChangeHistory, Sitemap]:
    none = np.zeros(0, np.int64)
    history = ChangeHistory.from_events(
        START, START + 30 * US_PER_DAY, np.full(4, START - US_PER_DAY), none, none
    )
    day = START + np.array([5, 20, 20]) * US_PER_DAY
    return history, Sitemap(
        page=np.array([0, 0, 1]),
        seen_us=day,
        lastmod_us=np.array(
            [day[0] - 1000, day[1] - 1000, START - 9 * US_PER_DAY]
        ),  # the last is an old date
        listed=np.array([True, True, False, False]),
        changefreq=np.array([NOT_SAID, NOT_SAID, WEEKLY, NOT_SAID]),
    )


def test_sitemaps_by_hand() -> None:
    history, sitemap = sitemap_world()
    free, phase = np.full(4, START - US_PER_DAY // 2), np.array([0.5, 0.5, 0.5, 0.5])
    crawls = intervals.follow_sitemap(history, SitemapDriven(), 2.0, sitemap, free, phase)
    days = [
        ((crawls.at_us[(crawls.page == p) & ~crawls.free] - START) / US_PER_DAY).tolist() for p in range(4)
    ]
    # Runs on days 1, 3, 5, ...: page 0 when its date moved, 1 never, 2 a week after a crawl, 3 in each.
    assert days[0] == [5, 21]
    assert days[1] == []
    assert days[2] == [7, 15, 23]
    assert days[3] == list(range(1, 30, 2))


def test_sitemaps_meet_budgets_by_the_pages_without_dates() -> None:
    history, sitemap = sitemap_world()
    begin = scored_from(history)
    found = intervals.sitemap_at_budget(history, SitemapDriven(), sitemap, 1.0, begin, seed=2)
    assert abs(found.off) < 0.03  # four pages only
    quiet = replace(sitemap, listed=np.ones(4, np.bool_))
    short = intervals.sitemap_at_budget(history, SitemapDriven(), quiet, 1.0, begin, seed=2)
    assert short.spent == 1
    assert short.off < -0.9


def test_free_crawls_are_in_the_day_before_or_when_pages_appear() -> None:
    history = world()
    free = intervals.free_crawls(history, 5)
    late = history.first_us > START
    assert np.array_equal(free[late], history.first_us[late])
    assert ((free[~late] > START - US_PER_DAY) & (free[~late] <= START)).all()
    assert not np.array_equal(free, intervals.free_crawls(history, 6))


def test_crawls_stop_when_there_are_too_many() -> None:
    history = world()
    free, phase = intervals.free_crawls(history, 1), intervals.first_phases(history, 1)
    crawls = intervals.follow_rule(history, Heritrix(), 0.01, free, phase, most=1000)
    assert 1000 < len(crawls) <= 1000 + 2 * len(history)


def test_what_cannot_be_is_refused() -> None:
    history = world()
    free, phase = intervals.free_crawls(history, 1), intervals.first_phases(history, 1)
    with pytest.raises(ValueError, match="a scale of 0"):
        intervals.follow_rule(history, Heritrix(), 0.0, free, phase)
    with pytest.raises(ValueError, match="raise the budget"):
        intervals.rule_at_budget(history, Heritrix(), 1e-9, scored_from(history))
