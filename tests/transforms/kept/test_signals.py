"""Signals of a shard in files and tables: what is read back, what other shards and versions make of it."""

from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from policies.history.history import Observations, fold
from policies.history.page_state import NO_TIME, Forgetting, PageState
from policies.signals.counts import Signals
from policies.signals.evidence import SignalEvidence
from policies.signals.fold import SignalFold
from policies.signals.state import DATED, MAX_SOURCES, SignalState, bring_to_present, counts_of
from tests.transforms.signal_shards import signals_of
from transforms.batches import schemas
from transforms.batches.coders import ShardTables, ShardTablesCoder
from transforms.batches.urls import locate
from transforms.kept.carrying import read_previous_file
from transforms.kept.errors import StateError
from transforms.kept.fold_settings import FoldSettings, RequestClock
from transforms.kept.old_states import of_last_version
from transforms.kept.signals import read_signals, signal_evidence_of, signal_tables, signals_batch
from transforms.night.folding import ShardFold
from transforms.shards.catalogue import DAY_US, HostDefaults
from transforms.shards.coding import code_pages

FIRST_DAY = 20_000
HOUR_US = 3_600_000_000
NAMES = ["ping", "rss", "sitemap"]


def _pages(urls):
    return code_pages(None, [pa.RecordBatch.from_pydict({"url": pa.array(urls, pa.string())})])[0]


def _filled(n_hosts=4, per_host=5, seed=0, names=NAMES):
    """Pages, their history and their signals after a month; the last host never signals."""
    pages = _pages([f"https://h{i // per_host}.test/{i}" for i in range(n_hosts * per_host)])
    n, k = len(pages), 15 * len(pages)
    rng = np.random.default_rng(seed)
    quiet = pages.host_code == n_hosts - 1
    page = rng.choice(np.flatnonzero(~quiet), k)
    at = (FIRST_DAY * DAY_US + rng.integers(0, 30 * DAY_US, k)).astype(np.int64)
    signals = Signals(page, at, rng.integers(0, len(names), k).astype(np.int32))
    crawled = np.sort((FIRST_DAY * DAY_US + rng.integers(0, 30 * DAY_US, k)).astype(np.int64))
    rows = Observations(
        rng.integers(0, n, k),
        crawled,
        digest=rng.integers(1, 4, k).astype(np.uint64),
        last_modified_us=np.where(
            rng.random(k) < 0.3, crawled - rng.integers(HOUR_US, 9 * HOUR_US, k), NO_TIME
        ),
    )
    before = PageState.empty(n)
    news = SignalFold(SignalState.empty(), signals, before, pages.host_code, 2**60)
    history, _ = fold(before, rows, 2**60, half_life_changes=5, watch=news)
    return pages, history, news.finish(history, Forgetting(5))[0]


def test_what_is_written_is_read_back_to_the_bit():
    pages, _, state = _filled()
    assert len(state) == 15 and len(state.bin_id) > 60 and (state.bin_id & DATED).any()
    batch = signals_batch(pages, state, NAMES)
    batch.validate(full=True)
    assert batch.schema.equals(schemas.STATE_SIGNALS, check_metadata=True)
    again, sources, code = read_signals(pa.Table.from_batches([batch]), pages, ["rss"])
    assert again.equals(state)
    assert sources == NAMES and code == {"ping": 0, "rss": 1, "sitemap": 2}
    assert signals_batch(pages, again, sources).equals(batch)


def test_rows_of_other_shards_in_any_order_are_sorted():
    pages, _, state = _filled()
    batch = signals_batch(pages, state, NAMES)
    order = np.random.default_rng(3).permutation(batch.num_rows)
    mixed = pa.Table.from_batches([batch.take(pa.array(order[:6])), batch.take(pa.array(order[6:]))])
    again, sources, _ = read_signals(mixed, pages, [])
    assert again.equals(state) and sources == NAMES


def test_a_new_source_changes_codes_and_nothing_that_is_written():
    pages, _, state = _filled()
    batch = signals_batch(pages, state, NAMES)
    again, sources, code = read_signals(pa.Table.from_batches([batch]), pages, ["about", "rss", "news"])
    assert sources == ["about", "news", *NAMES] and code["rss"] == 3
    assert again.source.min() == 1 + sources.index("news")
    assert signals_batch(pages, again, sources).equals(batch)


def test_sources_of_several_shards_beyond_what_fits_become_one():
    """Two shards with six sources each: the merged one has eight, and no signal is lost."""
    many = [f"s{i}" for i in range(6)]
    pages, _, state = _filled(names=many)
    rows = signals_batch(pages, state, many)
    half = rows.num_rows // 2
    renamed = [[f"t{name[1:]}" for name in row] for row in rows.column("source").to_pylist()[half:]]
    columns = {n: rows.column(n).slice(half) for n in rows.schema.names}
    columns["source"] = pa.array(renamed, pa.list_(pa.string()))
    other = pa.RecordBatch.from_pydict(columns, schema=rows.schema)
    merged, sources, code = read_signals(pa.Table.from_batches([rows.slice(0, half), other]), pages, [])
    assert len(sources) == MAX_SOURCES and sources == sorted([*many, "other", "t0"])
    assert {n for n, c in code.items() if sources[c] == "other"} == {f"t{i}" for i in range(1, 6)}
    assert merged.pending.sum() == state.pending.sum()
    np.testing.assert_allclose(merged.total.sum(), state.total.sum(), rtol=1e-12)
    np.testing.assert_allclose(merged.bin_days.sum(), state.bin_days.sum(), rtol=1e-12)
    again, names, _ = read_signals(pa.Table.from_batches([signals_batch(pages, merged, sources)]), pages, [])
    assert again.equals(merged) and names == sources


# ---- tables


def test_tables_hold_the_evidence_page_by_page():
    _, history, state = _filled()
    now = (FIRST_DAY + 33) * DAY_US
    sums, running_days = bring_to_present(state, history, Forgetting(5), now, HOUR_US)
    coder = ShardTablesCoder()
    tables = coder.decode(coder.encode(ShardTables(3, signal_tables(sums, running_days, NAMES))))
    assert list(tables.tables) == ["signal_pages", "signal_sources", "signal_bins", "signal_pairs", "sources"]
    got = signal_evidence_of(tables)
    got.evidence.check()
    assert got.sources == NAMES and got.row.tolist() == state.page.tolist() and len(got) == 15
    assert isinstance(got.evidence, SignalEvidence) and got.evidence.n_sources == 3
    for i in range(len(got)):
        mine = slice(state.source_start[i], state.source_start[i + 1])
        source = state.source[mine]
        others = np.setdiff1d(np.arange(3), source)
        np.testing.assert_array_equal(got.pending[i, source], state.pending[mine])
        np.testing.assert_array_equal(got.last_at_us[i, source], state.last_at_us[mine])
        np.testing.assert_array_equal(got.evidence.unchanged_signals[i, source], sums.unchanged[mine])
        heard = state.pending[mine] * (running_days[i] > 0)
        np.testing.assert_array_equal(got.heard.ended[i, source], sums.total[mine])
        np.testing.assert_array_equal(got.heard.running[i, source], heard)
        assert (got.last_at_us[i, others] == NO_TIME).all() and not got.heard.ended[i, others].any()
        rows = got.evidence.row_page == i
        bins = sums.bin_row() == i
        for s in range(3):
            np.testing.assert_array_equal(
                got.evidence.row_signals[rows, s], counts_of(sums.signature[bins], s)
            )
        np.testing.assert_array_equal(got.evidence.row_weight[rows], sums.bin_weight[bins])
    np.testing.assert_array_equal(got.heard.ended_days, sums.watched_days)
    np.testing.assert_array_equal(got.heard.running_days, running_days)
    # Every changed interval of the era is a row or a dated change without signals; every gap was heard.
    assert np.median(got.heard.ended_days + got.heard.running_days) > 5


def test_a_shard_without_signals_has_no_tables():
    now = bring_to_present(SignalState.empty(), PageState.empty(4), Forgetting(5), 0)
    assert signal_tables(*now, []) == {}
    assert signal_evidence_of(ShardTables(0, {})) is None


# ---- nights of a shard


def _batch(schema, rows):
    batch = pa.RecordBatch.from_pylist(rows, schema)
    located = locate(batch.column("url"))
    batch = batch.append_column("url_hash", pa.array(located.url_hash))
    batch = batch.append_column("host_hash", pa.array(located.host_hash))
    return batch.replace_schema_metadata(schema.metadata)


def _settings(as_of_us, **more):
    clock = RequestClock(as_of_us // DAY_US, 28.0)
    return FoldSettings(as_of_us, Forgetting(12, 40.0), clock, HostDefaults(None, 0.0, DAY_US), **more)


def _logs(seed=0, n=12, days=20):
    rng = np.random.default_rng(seed)
    start = FIRST_DAY * DAY_US
    crawled = [
        {
            "url": f"https://h{i % 3}.test/{i}",
            "fetched_at": start + int(at),
            "status": 200,
            "digest_hash": int(rng.integers(1, 4)),
        }
        for i in range(n)
        for at in np.sort(rng.integers(0, days * DAY_US, 20))
    ]
    heard = [
        {
            "url": f"https://h{i % 2}.test/{i}",
            "signalled_at": start + int(rng.integers(0, days * DAY_US)),
            "source": NAMES[int(rng.integers(3))],
        }
        for i in (i for i in range(n) if i % 3 < 2 and i % 2 == i % 3)
        for _ in range(40)
    ]
    return crawled, heard


def _night(crawled, heard, low_us, high_us, state=(), shuffle=None, **more):
    crawled = [r for r in crawled if low_us < r["fetched_at"] <= high_us]
    heard = [r for r in heard if low_us < r["signalled_at"] <= high_us]
    if shuffle is not None:
        shuffle.shuffle(crawled)
        shuffle.shuffle(heard)
    batches = [
        _batch(s, rows) for s, rows in ((schemas.OBSERVATIONS, crawled), (schemas.SIGNALS, heard)) if rows
    ]
    return ShardFold(_settings(high_us, **more), [*batches, *state])


@pytest.mark.parametrize("delay_us", [0, 6 * HOUR_US])
@pytest.mark.parametrize("seed", range(4))
def test_nights_are_one_night(seed, delay_us):
    crawled, heard = _logs(seed)
    end = (FIRST_DAY + 20) * DAY_US
    whole = _night(crawled, heard, 0, end, signal_delay_us=delay_us)
    rng = np.random.default_rng(seed)
    state, low = (), 0
    for high in [*np.sort(rng.integers(end - 20 * DAY_US, end, 7)).tolist(), end]:
        part = _night(crawled, heard, low, high, state, rng, signal_delay_us=delay_us)
        state, low = (part.state(), signals_of(part)), high
    assert state[0].equals(whole.state())
    assert state[1].num_rows > 0 and state[1].equals(signals_of(whole))
    tables, again = (f.tables(0, []).tables for f in (whole, part))
    for name in ("signal_pages", "signal_sources", "signal_bins", "signal_pairs", "sources"):
        assert tables[name].equals(again[name]), name
    delayed = whole.counts.totals()["signals_delayed"]
    assert (delayed > 10) == (delay_us > 0)


def test_shards_apart_are_one_shard():
    crawled, heard = _logs(5)
    end = (FIRST_DAY + 20) * DAY_US
    whole = signals_of(_night(crawled, heard, 0, end))
    parts = []
    for h in range(3):
        mine = [[r for r in rows if r["url"].startswith(f"https://h{h}.")] for rows in (crawled, heard)]
        parts.append(signals_of(_night(*mine, 0, end)))
    order = [("host_hash", "ascending"), ("url_hash", "ascending")]
    merged = pa.Table.from_batches(parts).sort_by(order)
    assert merged.equals(pa.Table.from_batches([whole]))
    # And read back by one shard that heard nothing more.
    again = ShardFold(_settings(end), [_night(crawled, [], 0, end).state(), *parts])
    assert signals_of(again).equals(whole)


# ---- the last version


def _old_rows():
    """Two hosts; page a heard two sources, b one."""
    located = locate(
        pa.array(["https://a.test/a", "https://a.test/a", "https://a.test/b", "https://b.test/"])
    )
    at = [FIRST_DAY * DAY_US + d * DAY_US for d in (3, 2, 5, 9)]
    return pa.RecordBatch.from_pydict(
        {
            "url_hash": pa.array(located.url_hash),
            "host_hash": pa.array(located.host_hash),
            "source": pa.array(["ping", "sitemap", "ping", "ping"]),
            "last_signal_at": pa.array(at).cast(schemas.TIME),
            "pending": pa.array([2, 0, 1, 0], pa.int32()),
            "in_unchanged": pa.array([3, 1, 0, 0], pa.int32()),
            "in_changed": pa.array([1, 0, 0, 4], pa.int32()),
        }
    )


def test_signals_of_the_last_version_go_on():
    pages = _pages(["https://a.test/a", "https://a.test/b", "https://b.test/"])
    batch = of_last_version(_old_rows())
    batch.validate(full=True)
    assert batch.schema.equals(schemas.STATE_SIGNALS, check_metadata=True)
    state, sources, _ = read_signals(pa.Table.from_batches([batch]), pages, [])
    assert sources == ["ping", "sitemap"]
    by_url = dict(zip(pages.url.to_pylist(), range(3), strict=True))
    row = {url: int(np.flatnonzero(state.page == p)[0]) for url, p in by_url.items()}
    since = {url: (state.since_us[r] - FIRST_DAY * DAY_US) / DAY_US for url, r in row.items()}
    assert since == {"https://a.test/a": 2.0, "https://a.test/b": 2.0, "https://b.test/": 9.0}
    pending = [
        state.pending[state.source_start[r] : state.source_start[r + 1]].tolist()
        for r in (row["https://a.test/a"], row["https://a.test/b"], row["https://b.test/"])
    ]
    assert pending == [[2, 0], [1], [0]]
    assert not state.total.any() and not len(state.bin_id)


def test_a_file_of_the_last_version_is_read(tmp_path):
    path = tmp_path / "shard-00000-of-00001.parquet"
    pq.write_table(pa.Table.from_batches([_old_rows()]), path)
    (batch,) = read_previous_file(("state/signals", str(path)))
    assert schemas.kind_of(batch) == "state_signals" and batch.equals(of_last_version(_old_rows()))
    # A page known from it goes on: what was pending ends with its next visit.
    url, day = "https://a.test/a", FIRST_DAY * DAY_US
    seen = [{"url": url, "fetched_at": day + 4 * DAY_US, "status": 200, "digest_hash": 1}]
    state = _night(seen, [], 0, day + 5 * DAY_US).state()
    seen[0] |= {"fetched_at": day + 6 * DAY_US, "digest_hash": 2}
    fold = ShardFold(_settings(day + 7 * DAY_US), [_batch(schemas.OBSERVATIONS, seen), state, batch])
    (row,) = (r for r in signals_of(fold).to_pylist() if r["source"] == ["ping", "sitemap"])
    assert row["pending"] == [0, 0] and row["total"][0] > 1.0 and row["bin_signals"] == [2, 0]
    other = tmp_path / "shard-00000-of-00002.parquet"
    pq.write_table(pa.Table.from_batches([_old_rows()]).drop_columns(["pending"]), other)
    with pytest.raises(StateError, match="pending"):
        list(read_previous_file(("state/signals", str(other))))


def test_a_file_without_pairs_has_none(tmp_path):
    """Nights of an older version did not look for them; all else is as it was."""
    pages, _, state = _filled()
    batch = signals_batch(pages, state, NAMES)
    assert len(state.pair) > 10 and state.recent.any()
    new = [n for n in batch.schema.names if n.startswith(("pair_", "near", "far", "recent"))]
    path = tmp_path / "shard-00000-of-00001.parquet"
    pq.write_table(pa.Table.from_batches([batch]).drop_columns(new), path)
    (read,) = read_previous_file(("state/signals", str(path)))
    again, _, _ = read_signals(pa.Table.from_batches([read]), pages, [])
    none = {n: getattr(state, n)[:0] for n in ("pair", "near_pending", "far_pending", "near", "far")}
    zero = {"pair_start": np.zeros_like(state.pair_start), "recent": np.zeros_like(state.recent)}
    assert again.equals(replace(state, **none, **zero))
    assert len(new) == 7 and read.schema.equals(batch.schema, check_metadata=True)


def test_bins_of_the_last_version_lose_their_signals():
    """It told bins of the change history apart by signals: 128 times their number."""
    crawled, _ = _logs(1)
    end = (FIRST_DAY + 20) * DAY_US
    state = _night(crawled, [], 0, end).state()
    bins = state.column("bin_id").to_pylist()
    i = next(i for i, b in enumerate(bins) if len(b) > 2)
    wanted = ShardFold(_settings(end), [state]).tables(0, []).tables

    def split(name, old):
        """The first bin as two: half without signals, half with one."""
        values = state.column(name).to_pylist()
        values[i] = old(values[i])
        return pa.array(values, state.column(name).type)

    columns = {n: state.column(n) for n in state.schema.names}
    columns["bin_id"] = split("bin_id", lambda b: [*b, b[0] + 128])
    for name in ("bin_weight", "bin_days", "bin_days_squared"):
        columns[name] = split(name, lambda v: [v[0] / 2, *v[1:], v[0] / 2])
    old = pa.RecordBatch.from_pydict(columns, schema=state.schema)
    fold = ShardFold(_settings(end), [old])
    assert fold.state().equals(state)
    assert fold.tables(0, []).tables["bins"].equals(wanted["bins"])
