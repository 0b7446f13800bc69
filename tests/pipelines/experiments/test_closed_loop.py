"""Nights in a closed loop: scoring against times counted by hand, and the loop against what theory says."""

import gzip
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from benchmarks.measuring.histories import US_PER_DAY, PolledWorld, read_world, shared_folder
from benchmarks.signals import replay_signals
from benchmarks.signals.replay_signals import freshness
from benchmarks.signals.signal_modes import CERTAIN, Blind, PingedFirst, with_parameters
from policies.judging.recalibration import NO_CELL
from policies.numerics.typing_ import FloatArray, IntArray
from policies.simulation.histories import ChangeHistory
from policies.simulation.metrics import zipf_weights
from transforms.batches.coders import ShardTables
from transforms.replay.closed_loop import ClosedLoop, Crawls, Planned, Run
from transforms.replay.job_nights import JobNights
from transforms.replay.night_modes import Mode, NightFactors
from transforms.replay.worlds import SignalLog, World, name_pages

START = 20_500 * US_PER_DAY
SHARED = shared_folder()


def world_of(
    n: int, days: int, changes: Sequence[tuple[int, float]], signals: Sequence[tuple[int, float]] = ()
) -> PolledWorld:
    """Pages of two hosts, half each; changes and signals as (page, day), every change to something new."""
    urls = pa.array([f"https://{'ab'[i >= n // 2]}.test/{i:05d}" for i in range(n)])
    page, day = np.array(sorted(changes)).reshape(-1, 2).T
    heard, at = np.array(sorted(signals)).reshape(-1, 2).T
    us = START + np.rint(day * US_PER_DAY).astype(np.int64)
    seen_us = START + np.rint(at * US_PER_DAY).astype(np.int64)
    first_us = np.full(n, START - US_PER_DAY)
    return PolledWorld(
        ChangeHistory.from_events(START, START + days * US_PER_DAY, first_us, page.astype(np.int64), us),
        urls,
        *name_pages(urls),
        signals=SignalLog.empty().add(heard.astype(np.int64), seen_us, "sitemap"),
        change_seen_us=us,
        poll_us=np.unique(us),
    )


def follow(world: PolledWorld, mode: Mode, crawls_per_page: float, weight: FloatArray) -> Run:
    """A run of the job."""
    return ClosedLoop(world, JobNights(world, mode, crawls_per_page, weight)).run()


def poisson(n: int, days: int, rate_per_day: float, seed: int) -> list[tuple[int, float]]:
    rng = np.random.Generator(np.random.Philox(key=seed))
    page = np.repeat(np.arange(n), rng.poisson(rate_per_day * days, n))
    return list(zip(page.tolist(), (rng.random(len(page)) * days).tolist(), strict=True))


def at(*days: float) -> IntArray:
    return START + np.array([round(d * US_PER_DAY) for d in days], np.int64)


def test_freshness_counted_by_hand() -> None:
    world = world_of(2, 3, [(0, 0.5), (0, 1.25), (1, 2.5)], signals=[(1, 2.5)])
    page = np.array([0, 0, 0, 1])
    crawls = Crawls(page, at(-0.5, 1.0, 2.25, 0.0), np.zeros(4, np.bool_), np.zeros(4))
    fresh, held = freshness(world, crawls, np.array([1.0, 10.0]))
    # Page 0 is fresh until 0.5, from 1 to 1.25, from 2.25 on; page 1, with signals, until 2.5.
    assert fresh == pytest.approx(np.array([[0.5, 10.0], [0.25, 10.0], [0.75, 5.0]]))
    assert held == pytest.approx(np.array([[1.0, 10.0]] * 3))


def test_versions_and_next_changes_against_a_loop() -> None:
    changes = poisson(6, 10, 0.7, seed=1)
    world = world_of(6, 10, changes)
    rng = np.random.Generator(np.random.Philox(key=2))
    page, when = rng.integers(0, 6, 300), START + (rng.random(300) * 12 * US_PER_DAY).astype(np.int64)
    for p, t, version, following in zip(
        page, when, world.history.version(page, when), world.history.next_change(page, when), strict=True
    ):
        mine = [i for i in range(len(world.history.change_page)) if world.history.change_page[i] == p]
        before = [int(world.history.change_version[i]) for i in mine if world.history.change_us[i] <= t]
        after = [int(world.history.change_us[i]) for i in mine if world.history.change_us[i] > t]
        assert version == (before[-1] if before else 0)
        assert following == (after[0] if after else np.iinfo(np.int64).max)
    none = world_of(2, 2, [])
    assert none.history.version(np.array([1]), at(1.0)).tolist() == [0]


def test_pages_alike_are_as_fresh_as_the_formula_says() -> None:
    """At equal rates and one crawl in two days: 1 - e^-x over x, x = rate times interval."""
    n, days, rate = 300, 45, 0.4
    world = world_of(n, days, poisson(n, days, rate, seed=3))
    run = follow(world, Mode(world), 0.5, np.ones(n))
    assert run.slots.sum() == n // 2 * days
    fresh, held = freshness(world, run.crawls, np.ones(n))
    x = rate * 2.0
    expected = -np.expm1(-x) / x
    daily = fresh[20:].sum(axis=1) / held[20:].sum(axis=1)
    # Rates are learned, which costs less than two per cent.
    assert expected - 0.02 < daily.mean() < expected + 4.0 * daily.std() / np.sqrt(len(daily) / 4)
    late = run.crawls.at_us > START + 24 * US_PER_DAY
    predicted, found = run.crawls.predicted[late], run.crawls.changed[late]
    error = np.sqrt((predicted * (1.0 - predicted)).sum()) / len(predicted)
    assert abs(found.mean() - predicted.mean()) < 4.0 * error


def test_what_a_crawl_finds_is_what_changed_since_the_one_before() -> None:
    world = world_of(40, 12, poisson(40, 12, 0.5, seed=4))
    crawls = follow(world, Mode(world), 1.0, zipf_weights(40, 1)).crawls
    for page in range(40):
        times = crawls.at_us[crawls.page == page]
        changes = world.history.change_us[world.history.change_page == page]
        counts = np.diff(np.searchsorted(changes, times, side="right"))
        assert not crawls.changed[crawls.page == page][0]
        assert (crawls.changed[crawls.page == page][1:] == (counts > 0)).all()
        assert (np.diff(times) > 0).all()
    assert np.isnan(crawls.predicted).sum() == 40  # the free crawls


def test_the_same_run_twice() -> None:
    world = world_of(30, 8, poisson(30, 8, 0.5, seed=5), signals=poisson(30, 8, 0.5, seed=6))
    one, other = (follow(world, PingedFirst(world), 0.5, zipf_weights(30, 2)) for _ in range(2))
    assert (one.crawls.at_us == other.crawls.at_us).all()
    assert np.array_equal(one.crawls.predicted, other.crawls.predicted, equal_nan=True)


def test_pinged_pages_come_first_and_the_least_valuable_give_way() -> None:
    planned = Planned(
        np.array([4, 2, 4, 7]), np.array([10, 20, 30, 40]), np.array([3.0, 1.0, 3.0, 2.0]), np.zeros(4)
    )
    world = world_of(2, 2, [])
    pinged = np.zeros(9, np.bool_)
    pinged[[7, 8]] = True
    chosen = PingedFirst(world).choose(planned, pinged)
    assert chosen.page.tolist() == [7, 8, 4, 4]
    assert chosen.due_us.tolist() == [10, 20, 30, 40]
    pinged[:] = True
    assert len(PingedFirst(world).choose(planned, pinged).page) == 4


def signals_of(world: World) -> ShardTables:
    """Two pages with signals of four."""
    pages = pa.record_batch(
        {"host_code": [0, 0, 1, 1], "change_rate_per_day": [0.5, 0.3, 0.2, 0.1], "information": [2.0] * 4}
    )
    signals = pa.record_batch(
        {
            "row": [0, 2],
            "unsignalled_rate_per_day": [0.1, 0.05],
            "signal_rate_per_day": [0.5, 0.2],
            "signal_weight": [1.6, 1.4],
            "clock_of_signals": [3.2, 0.0],
            "signals_since_crawl": [2, 0],
        }
    )
    hosts = pa.record_batch({"host": list(world.hosts)})
    return ShardTables(0, {"pages": pages, "signals": signals, "hosts": hosts})


def _no_factors(n: int) -> NightFactors:
    return NightFactors(np.full(n, NO_CELL, np.int16), np.ones(n), None)


def test_what_is_predicted_of_pages_with_signals() -> None:
    world = world_of(4, 4, [(0, 1.0)], signals=[(0, 1.0)])
    tables, row = signals_of(world), np.array([0, 0, 1, 2])
    since, ahead = np.array([2.0, 0.0, 2.0, 2.0]), np.array([0.5, 0.25, 0.5, 0.0])
    first = np.array([True, False, True, True])
    found = Blind(world).predict(tables, row, since, ahead, first, _no_factors(4))
    # Posteriors of shape 2: the first crawl has the signals that are pending, the next one of the night not.
    parts = np.array(
        [[0.1 * 2.0, 3.2, 0.5 * 0.5], [0.0, 0.0, 0.5 * 0.25], [0.3 * 2.5, 0, 0], [0.05 * 2.0, 0, 0]]
    )
    clock, shape = parts.sum(axis=1), 2.0 * parts.sum(axis=1) ** 2 / (parts**2).sum(axis=1)
    assert found == pytest.approx(1.0 - (1.0 + clock / shape) ** -shape)


def test_parameters_that_a_mode_puts_in() -> None:
    world = world_of(4, 4, [(0, 1.0)], signals=[(0, 1.0)])
    certain, heard = np.full(2, CERTAIN), np.array([CERTAIN, 0.0])
    tables = with_parameters(signals_of(world), np.array([0.1, 0.0]), np.array([0.4, 0.3]), certain, heard)
    assert tables.tables["pages"].column("change_rate_per_day").to_pylist() == [0.5, 0.3, 0.3, 0.1]
    predicted = Blind(world).predict(
        tables, np.array([0, 2]), np.ones(2), np.zeros(2), np.ones(2, bool), _no_factors(2)
    )
    assert predicted[0] > 0.99 and predicted[1] == 0.0


@pytest.mark.slow
def test_perfect_signals_put_first_are_worth_it() -> None:
    changes = poisson(200, 28, 0.3, seed=7)
    world = world_of(200, 28, changes, signals=changes)
    fresh = []
    for mode in (Mode(world), PingedFirst(world)):
        found, held = freshness(world, follow(world, mode, 0.5, np.ones(200)).crawls, np.ones(200))
        fresh.append(found[12:].sum() / held[12:].sum())
    # A signal of the day before is crawled within a day: fresh for all but about 0.3 x 0.8 days of 1.
    assert fresh[1] > fresh[0] + 0.05


def test_true_precision_and_recall() -> None:
    changes = [(0, 1.0), (0, 2.0), (1, 1.0), (1, 3.0)]
    world = world_of(4, 4, changes, signals=[(0, 1.0), (1, 1.0), (1, 2.0), (1, 3.0)])
    assert world.true_quality() == {"a.test": (pytest.approx(3 / 4), pytest.approx(3 / 4))}


def test_spread_changes_stay_between_their_polls() -> None:
    world = world_of(20, 10, [(p, float(d)) for p in range(20) for d in range(1, 10)])
    spread = world.spread(1, world.poll_us)
    back = world.history.change_us - spread.history.change_us
    # Nothing was looked at before the first poll.
    assert (
        (back >= 0).all()
        and (back < US_PER_DAY).all()
        and (back[world.history.change_us > world.poll_us[0]] > 0).all()
    )
    assert spread.true_quality() == world.true_quality()


def test_dates_tell_when_pages_changed() -> None:
    world = world_of(2, 6, [(0, 1.0), (0, 2.0), (0, 4.0), (1, 3.0)])
    dated = at(1.6, 3.9, 0.5)
    log = SignalLog.empty().add(np.array([0, 0, 1]), at(2.0, 4.0, 3.0), "sitemap", dated)
    moved = replace(world, signals=log).dated(1, at(0.0, 1.0, 2.0, 3.0, 4.0))
    # Page 0 at 2 and at 4: as dated. At 1 there was no signal, and page 1 has a date before its last poll.
    assert moved.history.change_us[[1, 2]].tolist() == at(1.6, 3.9).tolist()
    assert at(0.0)[0] < moved.history.change_us[0] < at(1.0)[0]
    assert at(2.0)[0] < moved.history.change_us[3] < at(3.0)[0]
    assert moved.signals.at_us.tolist() == at(1.6, 0.5, 3.9).tolist()
    assert moved.signals.between(at(2.5)[0], at(4.0)[0]).at_us.tolist() == at(0.5, 3.9).tolist()


def test_a_flood_names_no_page_that_changes() -> None:
    world = world_of(10, 8, poisson(10, 8, 0.5, seed=8))
    wet = world.flooded("a.test", 500, 4, "flood")
    flood = wet.signals.between(START + 3 * US_PER_DAY, START + 4 * US_PER_DAY)
    assert len(flood.page) == len(wet.signals.page) == 500
    assert (world.host[flood.page] == 0).all()
    moved = (world.history.change_us > START + 3 * US_PER_DAY) & (
        world.history.change_us <= START + 4 * US_PER_DAY
    )
    assert not set(flood.page.tolist()) & set(world.history.change_page[moved].tolist())
    with pytest.raises(ValueError, match=r"every page of a\.test changes"):
        world_of(2, 8, [(0, 3.5)]).flooded("a.test", 5, 4, "flood")


def test_a_history_on_disk(tmp_path: Path) -> None:
    day = START // 1_000_000
    files = {
        "events": [
            ("page_id", "event_time", "kind", "digest"),
            ("a.test/x", day, "first", "d0"),
            ("a.test/x", day + 86_400, "change", "d1"),
            ("a.test/x", day + 2 * 86_400, "change", "d0"),
            ("b.test/y", day + 86_400, "first", "e0"),
        ],
        "lastmod": [
            ("page_id", "seen_time", "lastmod", "lastmod_unix"),
            ("a.test/x", day, "2026-01-01", 0),
            ("a.test/x", day + 86_400, "2026-01-02", 0),
            ("b.test/y", day + 86_400, "", ""),
            ("b.test/y", day + 2 * 86_400, "2026-01-02", 0),
            ("c.test/z", day + 2 * 86_400, "2026-01-02", 0),
        ],
        "polls": [
            ("poll_time", "what"),
            *((day + i * 86_400, w) for i in range(3) for w in ("sitemap", "content")),
        ],
    }
    for name, rows in files.items():
        with gzip.open(tmp_path / f"{name}.tsv.gz", "wt") as file:
            file.writelines("\t".join(map(str, row)) + "\n" for row in rows)
    world = read_world(tmp_path, START, START + 4 * US_PER_DAY)
    assert world.url.to_pylist() == ["https://a.test/x", "https://b.test/y"]
    assert world.history.change_version.tolist() == [1, 0]  # back to what it was
    assert world.history.first_us.tolist() == [START, START + US_PER_DAY]
    # The first sight of a date is no signal.
    assert world.signals.page.tolist() == [0]
    assert world.signals.at_us.tolist() == [START + US_PER_DAY]
    assert len(world.poll_us) == 3
    assert world.of_hosts(["b.test"]).url.to_pylist() == ["https://b.test/y"]
    assert not len(world.of_hosts(["b.test"]).signals.page)
    with pytest.raises(ValueError, match=r"0\.5 days"):
        read_world(tmp_path, START, START + US_PER_DAY // 2)


def test_errors_of_blocks_hold() -> None:
    """The error of a ratio over independent days is what simulation gives."""
    rng = np.random.Generator(np.random.Philox(key=9))
    held = np.ones((60, 2)) * [1.0, 3.0]
    shares, errors = [], []
    for _ in range(300):
        fresh = held * rng.normal(0.5, 0.1, (60, 1))
        shares.append(replay_signals.share(fresh, held, "all", 10))
        errors.append(replay_signals.block_error(fresh, held, "all", 10, 5))
    assert np.mean(errors) == pytest.approx(np.std(shares), rel=0.15)


def test_without_the_history_it_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert replay_signals.main(["--data", str(tmp_path)]) == 0
    assert capsys.readouterr().out.startswith("skipped: no events.tsv.gz")


@pytest.mark.slow
@pytest.mark.shared_data
@pytest.mark.skipif(
    not (SHARED / "data" / "docs_sitemap").exists(),
    reason=f"no data/docs_sitemap in {SHARED}; set RECRAWL_SHARED to the folder that holds it",
)
def test_a_report_on_the_real_history(capsys: pytest.CaptureFixture[str]) -> None:
    options = ["--budgets", "0.5", "--draws", "1", "--end", "2026-01-19", "--flood", "1000"]
    assert replay_signals.main([*options, "--modes", "no signals", "pinged first"]) == 0
    text = capsys.readouterr().out
    assert "| Zipf (1) | 0.5 | with signals |" in text
    assert "1000 pings from indexnow for pages of code.claude.com" in text
    world = read_world(SHARED / "data" / "docs_sitemap", *(START + d * US_PER_DAY for d in (-50, 100)))
    ((host, (precision, recall)),) = world.true_quality().items()
    assert host == "code.claude.com"
    assert 0.85 < recall < precision < 1.0
