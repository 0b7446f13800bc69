"""The prediction task: nothing of the future, nothing of oneself in a group, labels as they came."""

from dataclasses import replace

import numpy as np
import pytest

from policies.history.page_state import US_PER_DAY
from policies.predictors.hazard import Hazard
from policies.predictors.predictor import probability
from policies.predictors.scores import auc
from policies.simulation.histories import ChangeHistory
from policies.simulation.predicting import FULL, LEARN_DAYS, PARTIAL, Pages, make_task, refitted

DAYS, N = 90, 60
HOUR_US = US_PER_DAY // 24
START = 20_000 * US_PER_DAY


def drawn(rates, seed=0, days=DAYS):
    rng = np.random.Generator(np.random.Philox(key=seed))
    return ChangeHistory.poisson(START, START + days * US_PER_DAY, np.asarray(rates, float), rng)


def pages_of(history, groups=5):
    code = np.arange(len(history)) % groups
    return Pages("drawn", history, code, code, code, np.column_stack([code + 1, code // 2 + 1]))


RATES = np.geomspace(0.01, 2.0, N)


@pytest.fixture(scope="module")
def daily():
    pages = pages_of(drawn(RATES))
    return pages, {how: make_task(pages, 24, how, 3) for how in (FULL, PARTIAL)}


def test_a_quarter_is_never_trained_on_and_parts_are_an_interval_apart(daily):
    _, tasks = daily
    for task in tasks.values():
        unseen = np.flatnonzero(~task.seen)
        assert 8 <= len(unseen) <= 24
        assert not np.isin(task.train.rows.page, unseen).any()
        assert not np.isin(task.validation.rows.page, unseen).any()
        assert np.isin(unseen, task.test.rows.page).all()
        for early, late in ((task.train, task.validation), (task.validation, task.test)):
            assert early.at_us.max() + 2 * US_PER_DAY <= late.at_us.min() + US_PER_DAY


def test_labels_and_counts_are_those_of_the_history(daily):
    pages, tasks = daily
    truth = pages.history
    for task in tasks.values():
        rows, at = task.test.rows, task.test.at_us
        for i in range(0, len(rows), 97):
            mine = truth.change_us[truth.change_page == rows.page[i]]
            assert rows.changed[i] == bool(((mine > at[i]) & (mine <= at[i] + US_PER_DAY)).any())
            month = ((mine > at[i] - 30 * US_PER_DAY) & (mine <= at[i])).sum()
            assert rows.count[2, i] <= month
            assert rows.hour[i] == at[i] // HOUR_US % 24 and rows.day[i] == at[i] // US_PER_DAY
    counts = {how: task.test.rows.count[2].sum() for how, task in tasks.items()}
    assert counts[PARTIAL] < 0.8 * counts[FULL]


def test_nothing_of_the_future_is_in_the_figures(daily):
    pages, tasks = daily
    whole = pages.history
    cut = START + 50 * US_PER_DAY
    other = drawn(RATES[::-1], seed=9)
    early, late = whole.change_us < cut, other.change_us >= cut
    changed = ChangeHistory.from_events(
        whole.start_us,
        whole.end_us,
        whole.first_us,
        np.concatenate([whole.change_page[early], other.change_page[late]]),
        np.concatenate([whole.change_us[early], other.change_us[late]]),
    )
    for how, task in tasks.items():
        again = make_task(replace(pages, history=changed), 24, how, 3)
        before = task.train.at_us < cut - US_PER_DAY
        assert 200 < before.sum() < len(before)
        mine, its = task.train.take(before), again.train.take(before)
        assert np.array_equal(mine.at_us, its.at_us)
        assert np.array_equal(mine.offset, its.offset)
        for name in ("count", "since_days", "ever", "group_count", "group_since_days", "log_rate", "changed"):
            assert np.array_equal(getattr(mine.rows, name), getattr(its.rows, name)), name


def test_a_group_does_not_have_the_page_itself_in_it():
    """Two pages, one quiet: each is told of the other alone."""
    history = drawn([3.0, 1e-9], seed=1)
    one = np.zeros(2, np.int64)
    task = make_task(Pages("two", history, one, one, one, np.zeros((2, 0), np.int64)), 24, FULL, 0)
    rows = task.test.rows
    busy = rows.page == 0
    assert (rows.group_count[2][busy] == 0.0).all()
    assert (rows.group_count[2][~busy] > 60.0).all()
    # A page alone in its group is told of all others.
    alone = np.arange(2)
    task = make_task(Pages("two", history, alone, alone, alone, np.zeros((2, 0), np.int64)), 24, FULL, 0)
    assert (task.test.rows.group_count[2][task.test.rows.page == 0] == 0.0).all()


def test_the_estimator_is_fair_on_poisson_pages(daily):
    _, tasks = daily
    for task in tasks.values():
        p, changed = probability(task.test.offset, np.zeros(len(task.test.rows))), task.test.rows.changed
        assert p.mean() / changed.mean() == pytest.approx(1.0, abs=0.12)
        assert auc(p, changed) > 0.83


def test_hours_are_in_the_offset_of_short_horizons():
    days = np.arange(DAYS)
    rng = np.random.Generator(np.random.Philox(key=5))
    page = np.repeat(np.arange(N), DAYS)
    at = START + np.tile(days, N) * US_PER_DAY + 9 * HOUR_US + rng.integers(0, HOUR_US, N * DAYS)
    kept = rng.random(len(page)) < 0.3
    history = ChangeHistory.from_events(
        START, START + DAYS * US_PER_DAY, np.full(N, START), page[kept], at[kept]
    )
    task = make_task(pages_of(history), 6, PARTIAL, 0)
    assert (
        auc(task.test.offset, task.test.rows.changed) > 0.86
    )  # of .906 at most: a quarter of the day has all changes
    model = Hazard()
    model.fit(task.train.rows, task.train.offset)
    p = probability(task.test.offset, model.log_multiplier(task.test.rows))
    assert p.mean() / task.test.rows.changed.mean() == pytest.approx(1.0, abs=0.1)


def test_a_refit_knows_no_outcome_before_it_came(daily):
    _, tasks = daily
    task = tasks[PARTIAL]
    late = task.test.at_us >= task.test.at_us.min() + 14 * US_PER_DAY
    lie = replace(task.test, rows=replace(task.test.rows, changed=task.test.rows.changed ^ late))
    one, other = (refitted(t, Hazard()) for t in (task, replace(task, test=lie)))
    assert np.array_equal(one[~late], other[~late])
    assert not np.array_equal(one, other) and LEARN_DAYS > 14


def test_the_same_seed_is_the_same_task():
    pages = pages_of(drawn(RATES[:20], days=60))
    one, same, other = (make_task(pages, 24, PARTIAL, s) for s in (1, 1, 2))
    assert np.array_equal(one.test.offset, same.test.offset)
    assert not np.array_equal(one.seen, other.seen)
    with pytest.raises(ValueError, match="give full or partial"):
        make_task(pages, 24, "some", 0)
