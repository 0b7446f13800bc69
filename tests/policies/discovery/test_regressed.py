"""Pham's crawler on state: against the one that decides hourly, and against one source at a time."""

import numpy as np
import pyarrow as pa
import pytest

from policies.discovery.pham import FEATURES, SHARES, Pham
from policies.discovery.regressed import STALEST_HOURS, Bandit, Products, Recent, Regressed, Regression
from policies.discovery.replay import replay
from policies.discovery.sums import NEVER_S, Visits
from tests.policies.discovery.histories import history
from transforms.discovery.tables import columns_to_recent, recent_to_columns

HOUR = 3600
BEGIN = 490_000


def visits(number: int = 3) -> Visits:
    """Of three sources within two days, one an hour at most, some failed."""
    rng = np.random.Generator(np.random.Philox(key=number))
    at = np.concatenate([np.sort(rng.choice(48, 30, replace=False)) for _ in range(3)]) * HOUR
    at += rng.integers(0, HOUR, 90)
    nothing, ok = np.zeros(90, np.int64), rng.random(90) < 0.8
    return Visits(
        np.repeat([0, 2, 3], 30), BEGIN * HOUR + at, ok, nothing, rng.poisson(4.0, 90), nothing, nothing
    )


def some(of: Visits, keep: np.ndarray) -> Visits:
    return Visits(*(getattr(of, name)[keep] for name in Visits.__dataclass_fields__))


def test_mean_and_spread_are_those_of_the_day_before() -> None:
    all_ = visits()
    recent = Recent(all_.source, all_.at_s, all_.new)
    source, at = np.array([0, 1, 3, 3]), BEGIN * HOUR + HOUR * np.array([30, 30, 47, 0])
    mean, spread = recent.moments(source, at)
    for i in range(4):
        before = (all_.source == source[i]) & (all_.at_s < at[i]) & (all_.at_s > at[i] - 24 * HOUR)
        new = all_.new[before]
        assert mean[i] == pytest.approx(new.mean() if len(new) else 0.0)
        assert spread[i] == pytest.approx(new.std() if len(new) else 0.0)


def test_a_log_in_two_runs_leaves_what_it_leaves_in_one() -> None:
    all_, never, as_of = visits(), np.full(4, NEVER_S), (BEGIN + 48) * HOUR
    whole, last = Products().learn(Recent.none(), all_, never, as_of)
    early = all_.at_s < as_of - 20 * HOUR
    first, recent = Products().learn(Recent.none(), some(all_, early), never, as_of - 20 * HOUR)
    seen = never.copy()
    np.maximum.at(seen, all_.source[early & all_.ok], all_.at_s[early & all_.ok])
    second, kept = first.learn(recent, some(all_, ~early), seen, as_of)
    assert second.day.tolist() == whole.day.tolist() and second.total == pytest.approx(whole.total)
    assert all(np.array_equal(getattr(kept, n), getattr(last, n)) for n in ("source", "at_s", "new"))
    assert first.visits + second.visits == whole.visits == all_.ok.sum()
    later, none = whole.learn(last, some(all_, np.zeros(90, np.bool_)), seen, as_of + 10 * 24 * HOUR)
    assert not len(later.day) and not len(none.at_s)


def test_what_is_kept_of_a_day_is_one_visit_an_hour() -> None:
    """So the bytes of a state are bounded, however often sources are visited."""
    rng = np.random.Generator(np.random.Philox(key=1))
    at = np.sort(BEGIN * HOUR + rng.integers(0, 48 * HOUR, (2, 400)), axis=1)
    source, new = np.repeat([0, 3], 400), rng.poisson(4.0, 800)
    kept = Recent(source, at.ravel(), new).last_of_hours((BEGIN + 24) * HOUR)
    assert len(kept.at_s) <= 2 * 25
    for row, i in enumerate((0, 3)):
        mine = [int(at[row][at[row] // HOUR == BEGIN + h].max()) for h in range(24, 48)]
        assert kept.at_s[kept.source == i].tolist() == mine
    seen_s = np.array([at[0].max(), NEVER_S, 5, at[1].max()])
    columns = recent_to_columns(kept, seen_s)
    again = columns_to_recent(pa.RecordBatch.from_pydict(columns | {"seen_s": pa.array(seen_s)}))
    assert np.array_equal(again.source, kept.source) and np.array_equal(again.new, kept.new)
    assert np.array_equal(again.at_s // HOUR, kept.at_s // HOUR) and (again.at_s != kept.at_s).any()
    # An older state has instants, in another column.
    gaps = pa.nulls(4, columns["recent_gap_hours"].type)
    older = columns | {"recent_gap_hours": gaps, "seen_s": pa.array(seen_s)}
    assert not len(columns_to_recent(pa.RecordBatch.from_pydict(older)).at_s)


def test_sums_are_those_of_the_crawler_that_decides_hourly() -> None:
    rows = [(s, 100 * s + t, 0.37 * (1 + s) * t, None) for s in range(2) for t in range(100)]
    told = history(rows, 40, (0, 0))
    crawler = Pham(told.items(np.array([2]), np.zeros(1, np.uint64)))
    replay(told, crawler, 1)
    source, at = told.poll_source, told.poll_us // 1_000_000
    nothing = np.zeros(len(at), np.int64)
    there = np.array(
        [[sum(r[0] == s and r[2] <= t - 0.5 for r in rows) for t in range(41)] for s in range(2)]
    )
    new = np.diff(there).ravel()
    ours, _ = Products().learn(
        Recent.none(), Visits(source, at, np.ones(len(at), np.bool_), nothing, new, nothing, nothing),
        np.full(2, NEVER_S), int(at.max()) + 1,
    )  # fmt: skip
    # But for ages, which a crawler of steps takes from their ends.
    columns = np.r_[0, 1, 4:FEATURES]
    theirs = crawler._blocks.sum(axis=0)[0]
    total = ours.total.sum(axis=0)
    assert total[np.ix_(columns, columns)] == pytest.approx(theirs[np.ix_(columns, columns)])
    assert total[columns, FEATURES] == pytest.approx(theirs[columns, FEATURES])


def test_each_share_is_tried_and_then_the_one_that_finds_most() -> None:
    bandit, found = Bandit().after(0, 0), [2, 2, 9, 2, 2]
    shares = [bandit.share]
    for _ in range(100):
        bandit = bandit.after(found[bandit.arm], 1)
        shares.append(bandit.share)
    assert shares[:5] == SHARES.tolist() and shares.count(0.8) > 80
    assert bandit.after(5, 0) == bandit  # nothing was visited: nothing is told


def regressed(n: int, price: float | None, slope: float = 0.1) -> Regressed:
    rng = np.random.Generator(np.random.Philox(key=n))
    regression = Regression(
        np.concatenate([[0.5, 0.1, slope, 0.0], rng.normal(0.0, 0.5, FEATURES - 4)]), Bandit(), price
    )
    ages = rng.exponential(20.0, n), rng.exponential(10.0, n)
    ages[0][:3] = ages[1][:3] = np.inf
    key = rng.integers(1, 2**63, n).astype(np.uint64)
    moments = rng.exponential(1.0, n), rng.exponential(1.0, n)
    at_least = np.where(rng.random(n) < 0.1, 30.0, -1.0)
    return Regressed.predicted(moments, ages, regression, key, (BEGIN + 0.5, BEGIN + 24.5), 1.0, at_least)


@pytest.mark.parametrize("price", [None, 1.5])
def test_refreshes_are_where_a_source_alone_would_be(price: float | None) -> None:
    made = regressed(40, price)
    at = np.full(40, 2.0 if price is None else 12.0)
    planned, found = made._planned(at)
    for row in range(40):
        seen, asked = made.seen_hours[row], made.asked_hours[row]
        for step in range(made.score.shape[1]):
            after = made.due[row] + step
            links = made.score[row, step] + made.slope[row] * min(seen + after, 168.0)
            due = links >= (price or 2.0) or (price is not None and asked + after >= 12.0)
            due &= made.score[row, step] > -np.inf
            assert planned[row, step] == due
            if due:
                assert found[row, step] == pytest.approx(links) or links <= 0.0
                seen = asked = -after
    assert (0 < planned.sum()) and not planned[made.score == -np.inf].any()


@pytest.mark.parametrize("price", [None, 1.5, 1e-10])
def test_less_is_asked_for_at_more_and_in_the_end_nothing(price: float | None) -> None:
    """Where age tells for a refresh. Where it tells against one, a later one may fall into a better hour."""
    made = regressed(200, price)
    prices = np.geomspace(1e-10 if price is None else 1.0, 1e7, 60)
    count = np.array([made.asked(np.full(200, p)) for p in prices]).sum(axis=1)
    assert (np.diff(count) <= 0).all() and count[0] > 2000 and count[-1] == 0
    if price is not None:  # what was never asked is stalest, and by predictions alone there is some, too
        by_age = made.asked(np.full(200, 0.9 * STALEST_HOURS))
        assert (by_age[:3] >= 1).sum() >= 2 and by_age[3:].sum() > 0
