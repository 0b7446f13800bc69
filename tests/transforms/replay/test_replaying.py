"""Worlds made of logs: changes where they can have been, pages from when they were known."""

import numpy as np
import pyarrow as pa
import pytest

from benchmarks.replay.backtest_logs import crawled, one_a_gap
from policies.history.page_state import US_PER_DAY
from policies.numerics.typing_ import FloatArray
from policies.simulation import metrics
from tests.transforms.replayed_worlds import poisson_world
from transforms.batches import schemas
from transforms.batches.hashing import hash_texts
from transforms.replay import replaying
from transforms.replay.replaying import ReplayError, ReplaySettings, build_world
from transforms.replay.worlds import World
from transforms.rows.normalise import CHANGES, KINDS, normalise

DAY = 20_600
HOUR_US = 3_600_000_000


def at(*days: float) -> list[int]:
    return [round((DAY + d) * US_PER_DAY) for d in days]


def times(values: list[int | None]) -> pa.Array:
    return pa.array(values, pa.int64()).cast(schemas.TIME)


def batch(kind: str, columns: dict[str, object]) -> pa.RecordBatch:
    """Rows as the readers hand them over."""
    of = CHANGES if kind == "changes" else KINDS[kind]
    done = normalise(of, pa.RecordBatch.from_pydict(columns), "test")
    assert not done.rejected.num_rows
    return done.rows


def log(rows: list[tuple[str, float, str, float | None]]) -> pa.RecordBatch:
    """Crawls: page, day, digest, day of the Last-Modified."""
    url, day, digest, modified = zip(*rows, strict=True)
    return batch(
        "observations",
        {
            "url": [f"https://{u}" for u in url],
            "fetched_at": times(at(*day)),
            "status": pa.array([200] * len(rows), pa.int16()),
            "digest": list(digest),
            "last_modified": times([None if m is None else at(m)[0] for m in modified]),
        },
    )


ROWS = [
    ("a.test/1", 0.2, "x", None),
    ("a.test/1", 3.0, "y", 2.5),
    ("a.test/1", 5.0, "y", None),
    ("a.test/1", 9.5, "z", None),
    ("b.test/2", 4.0, "u", None),
    ("b.test/2", 8.0, "v", None),
]


def test_changes_of_a_crawl_log_lie_between_its_crawls() -> None:
    found = build_world([log(ROWS)], ReplaySettings())
    world, past = found.world, found.world.history
    assert world.url.to_pylist() == ["https://a.test/1", "https://b.test/2"]
    assert past.first_us.tolist() == at(0.2, 4.0)
    assert (past.start_us, past.end_us) == (at(1.0)[0], at(9.0)[0])
    # That of 2.5 is dated; those of page 1 in (5, 9.5] may be after the window.
    of_first = past.change_us[past.change_page == 0]
    assert (of_first[of_first <= at(5.0)[0]] > at(0.2)[0]).all()
    assert of_first[of_first <= at(5.0)[0]].max() == at(2.5)[0]
    of_second = past.change_us[past.change_page == 1]
    assert len(of_second) and at(4.0)[0] < of_second.min() and of_second.max() <= at(8.0)[0]
    assert found.facts.crawls_per_page_day == pytest.approx(4 / 13)  # 8 and 5 days in the window
    assert found.facts.found == pytest.approx(3 / 4)
    assert (found.facts.pages, found.facts.nights) == (2, 8)


def test_the_order_of_rows_and_batches_does_not_matter() -> None:
    rng = np.random.Generator(np.random.Philox(key=1))
    whole = build_world([log(ROWS)], ReplaySettings()).world
    for _ in range(5):
        order = rng.permutation(len(ROWS))
        parts = [log([ROWS[i] for i in half]) for half in np.array_split(order, 2)]
        other = build_world(parts, ReplaySettings()).world
        assert other.url.equals(whole.url)
        assert (other.history.change_us == whole.history.change_us).all()
        assert (other.history.first_us == whole.history.first_us).all()


def test_undated_changes_are_spread_over_their_gaps() -> None:
    rows = [(f"a.test/{i}", 0.0, "x", None) for i in range(2000)]
    rows += [(f"a.test/{i}", 8.0, "y", None) for i in range(2000)]
    found = build_world([log(rows)], ReplaySettings(end_us=at(8.0)[0]))
    days = found.world.history.change_us / US_PER_DAY - DAY
    assert abs(days.mean() - 4.0) < 4 * 8 / np.sqrt(12 * len(days))
    assert found.facts.dated == 0.0 and found.facts.found == 1.0
    assert found.facts.changes == len(days) > 2000
    assert found.facts.drawn == pytest.approx(1 - 2000 / len(days))
    other = build_world([log(rows)], ReplaySettings(end_us=at(8.0)[0], seed=1)).world.history.change_us
    assert not np.isin(other, found.world.history.change_us).any()


def test_other_pages_move_no_draws_but_through_the_prior(monkeypatch: pytest.MonkeyPatch) -> None:
    """A page's changes are its own: keyed by its hash, not by its place."""
    monkeypatch.setattr(replaying, "_change_rates", lambda state, *_: np.full(len(state), 0.4))
    rows = [(f"a.test/{i:02d}", day, f"{day}", None) for i in range(40) for day in (0.0, 3.0, 6.0, 9.0)]
    whole = build_world([log(rows)], ReplaySettings()).world
    part = build_world([log(rows[100:])], ReplaySettings()).world
    for page, url in enumerate(part.url.to_pylist()):
        mine = part.history.change_us[part.history.change_page == page]
        same = whole.history.change_page == whole.url.to_pylist().index(url)
        assert mine.tolist() == whole.history.change_us[same].tolist()


def fresh_shares(world: World, budget: float) -> FloatArray:
    """Of each page, (n,), crawled at equal distances; scored from day 20 to five days before the end."""
    past, n = world.history, len(world)
    phase = np.linspace(0.0, 1.0, n)[:, None]
    day = (np.arange(round((past.end_us - past.start_us) / US_PER_DAY * budget)) + phase) / budget
    at_us = past.start_us + (day * US_PER_DAY).astype(np.int64)
    inside = at_us < past.end_us
    page = np.broadcast_to(np.arange(n)[:, None], at_us.shape)[inside]
    low, high = past.start_us + 20 * US_PER_DAY, past.end_us - 5 * US_PER_DAY
    return metrics.fresh_days(past, page, at_us[inside], low, high) / ((high - low) / US_PER_DAY)


def test_freshness_by_a_log_of_rare_crawls_is_that_of_the_truth(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rates differ a thousandfold; crawled every five days, half of the crawls find a change."""
    rng = np.random.Generator(np.random.Philox(key=8))
    true = poisson_world(rng.gamma(0.5, 0.6, 1000), 120, seed=3)
    window = ReplaySettings(true.start_us, true.end_us)
    told = build_world([crawled(true, 5.0)], window)
    monkeypatch.setattr(replaying.imputation, "changes", one_a_gap)
    before = build_world([crawled(true, 5.0)], window)
    for budget in (0.05, 0.1, 0.2):
        truth = fresh_shares(true, budget)
        off = fresh_shares(told.world, budget) - truth
        error = off.std(ddof=1) / np.sqrt(len(off))
        assert error < 0.004 and abs(off.mean()) < 3 * error
        # With one change to a gap it is 3, 6 and 10 points off.
        assert (fresh_shares(before.world, budget) - truth).mean() > 0.03


def test_a_list_of_changes_with_first_appearances_and_contents() -> None:
    rows = {
        "url": ["https://a.test/1"] * 4 + ["https://a.test/2"] * 2,
        "changed_at": times(at(1.0, 2.0, 3.0, 4.0, 0.5, 9.0)),
        "digest": ["x", "y", "x", "x", "u", "v"],
        "kind": ["first", "change", "change", "change", "change", "change"],
    }
    found = build_world([batch("changes", rows)], ReplaySettings())
    past = found.world.history
    assert past.first_us[0] == at(1.0)[0] and past.first_us[1] < at(0.0)[0]
    # That of 4.0 leads nowhere, and the last is after the window.
    assert past.change_us.tolist() == at(2.0, 3.0, 0.5)
    version = past.change_version.tolist()
    assert version[0] != version[1] == 0  # what it appeared with
    assert np.isnan(found.facts.crawls_per_page_day)


def test_what_logs_say_of_pages() -> None:
    signals = {
        "url": ["https://a.test/1", "https://c.test/9", "https://b.test/2"],
        "signalled_at": times(at(2.0, 2.0, 1.5)),
        "source": ["ping", "ping", "sitemap"],
    }
    pages = {"url": ["https://b.test/2"], "importance": [3.0], "lang": ["en"]}
    asked = {"url": ["https://a.test/1"] * 2, "day": ["2026-05-28", "2026-05-29"], "clicks": [40, 60]}
    batches = [log(ROWS), batch("signals", signals), batch("pages", pages), batch("requests", asked)]
    world = build_world(batches, ReplaySettings()).world
    assert world.signals.sources == ("ping", "sitemap")
    assert world.signals.page.tolist() == [1, 0] and world.signals.seen_us.tolist() == at(1.5, 2.0)
    assert world.weights["importance"].tolist() == [1.0, 3.0]
    assert world.metadata["lang"].to_pylist() == ["", "en"]
    clicks = world.weights["clicks"]
    assert clicks[0] == pytest.approx(50.0, rel=0.1) and 0 < clicks[1] < 10


def test_of_many_pages_some_are_taken_by_hash() -> None:
    rows = [(f"a.test/{i}", day, "x", None) for i in range(200) for day in (0.0, 8.0)]
    found = build_world([log(rows)], ReplaySettings(max_pages=20))
    assert (found.facts.pages_read, found.facts.pages) == (200, 20)
    hashes = hash_texts(pa.array([f"https://a.test/{i}" for i in range(200)]))
    assert sorted(found.world.url_hash.tolist()) == sorted(hashes.tolist())[:20]


def test_what_cannot_be_replayed() -> None:
    with pytest.raises(ReplayError, match="no usable row"):
        build_world([], ReplaySettings())
    with pytest.raises(ReplayError, match=r"the window has 2\.0 days: a replay needs 5"):
        build_world([log(ROWS)], ReplaySettings(at(1.0)[0], at(3.0)[0]))
    with pytest.raises(ReplayError, match="no page is there"):
        build_world([log(ROWS)], ReplaySettings(at(-9.0)[0], at(-1.0)[0]))


def changes(rows: list[tuple[float, str | None, str]]) -> pa.RecordBatch:
    """Rows of a page: day, digest, kind."""
    day, digest, kind = zip(*rows, strict=True)
    columns = {"changed_at": times(at(*day)), "digest": list(digest), "kind": list(kind)}
    return batch("changes", {"url": ["https://a.test/1"] * len(rows), **columns})


def test_listed_pages_that_never_change_are_replayed() -> None:
    """They are in no list of changes, and make a site look staler than it is."""
    listed = batch("pages", {"url": ["https://a.test/1", "https://a.test/still", "https://c.test/"]})
    rows = changes([(1.0, "a", "change"), (6.0, "b", "change")])
    alone, both = (build_world(b, ReplaySettings()).world for b in ([rows], [rows, listed]))
    assert len(alone) == 1 and len(both) == 3
    past = both.history
    assert len(past.change_us) == len(alone.history.change_us)
    assert (past.first_us <= past.start_us).all()


def test_rows_that_lead_nowhere_or_are_there_twice_are_no_changes() -> None:
    rows = [(0.0, "x", "first"), (1.0, "x", "change"), (2.0, "y", "change"), (3.0, "y", "change")]
    rows += [(4.0, "x", "change"), (9.0, "z", "change")]
    window = ReplaySettings(*at(0.5, 10.5))
    for batches in ([changes(rows)], [changes(rows[::-1]), changes(rows)]):
        past = build_world(batches, window).world.history
        assert past.change_us.tolist() == at(2.0, 4.0, 9.0)
        # It returns to what it appeared with.
        assert past.change_version[1] == 0 and past.change_version[0] != past.change_version[2] != 0
    plain = [(0.0, None, "first"), (1.0, None, "change"), (2.0, None, "change")]
    past = build_world([changes(plain + plain[1:])], window).world.history
    assert past.change_us.tolist() == at(1.0, 2.0)


def test_a_window_has_whole_days_and_no_centuries() -> None:
    rows = [(0.0, "x", "first"), (1.0, "y", "change"), (9.0, "z", "change")]
    past = build_world([changes(rows)], ReplaySettings(*at(0.25, 9.5))).world.history
    assert (past.start_us, past.end_us) == tuple(at(0.25, 9.25))
    wrong = changes([*rows, (-9000.0, "w", "change")])
    with pytest.raises(ReplayError, match=r"rows from 2001-\S+ to 2026-\S+ make 9,009 nights: .* --start"):
        build_world([wrong], ReplaySettings())
    assert len(build_world([wrong], ReplaySettings(*at(0.0, 9.0))).world) == 1
