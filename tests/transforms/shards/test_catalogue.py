"""Catalogue and host list joined to the pages of a shard."""

import itertools

import numpy as np
import pyarrow as pa
import pytest

from policies.history.page_state import NO_TIME
from transforms.batches import schemas
from transforms.batches.urls import locate
from transforms.shards.catalogue import DAY_US, UNLIMITED_SLOTS, HostDefaults, join_catalogue, join_hosts
from transforms.shards.coding import HashCollisionError, code_pages

URLS = ["https://a.test/1", "https://a.test/2", "https://b.test/x", "http://c.test/", "https://c.test:8443/y"]

AS_OF_US = 1_782_864_000_000_000  # 2026-07-01


def _sighting(urls, **columns):
    located = locate(pa.array(urls))
    return pa.RecordBatch.from_pydict({"url": urls, "url_hash": pa.array(located.url_hash), **columns})


def _pages(urls=URLS):
    return code_pages(None, [_sighting(urls)])[0]


def _hosts(rows, pages, horizon_us=DAY_US, default=None, gap=0.0, slots=None, attempts=None):
    limits = None
    if rows:
        hosts = [r[0] for r in rows]
        hashes = locate(pa.array([f"http://{h}/" for h in hosts])).host_hash
        limits = pa.table(
            {
                "host_hash": pa.array(hashes),
                "max_per_day": pa.array([r[1] for r in rows], pa.float64()),
                "min_gap_seconds": pa.array([r[2] for r in rows], pa.float64()),
            }
        )
    attempts = np.full(len(pages), NO_TIME) if attempts is None else attempts
    batch = join_hosts(
        pages, limits, slots, attempts, HostDefaults(default, gap, horizon_us), AS_OF_US, NO_TIME
    )
    return {row["host"]: row for row in batch.to_pylist()}


def test_pages_are_grouped_by_host_whatever_scheme_and_port():
    pages = _pages()
    assert len(pages) == 5
    starts = pages.host_start.tolist()
    hosts = [set(pages.host[a:b].to_pylist()) for a, b in itertools.pairwise(starts)]
    assert sorted(map(len, hosts)) == [1, 1, 1]
    assert sorted(np.diff(starts).tolist()) == [1, 2, 2]
    again = _pages(URLS[::-1] * 3)
    assert again.url.equals(pages.url)  # order and repeats do not matter
    codes = pages.code(locate(pa.array([*URLS, "https://nobody.test/"])).url_hash)
    assert [pages.url[int(c)].as_py() for c in codes[:-1]] == URLS and codes[-1] == -1


def test_a_known_page_keeps_its_url():
    sight = _sighting(URLS)
    pages, _, codes = code_pages(None, [sight])
    assert pages.url.take(pa.array(codes)).equals(sight.column("url"))
    state = pa.table(
        {"url": pages.url, "host": pages.host, "url_hash": pages.url_hash, "host_hash": pages.host_hash}
    )
    wider, old, _ = code_pages(state, [_sighting(["https://a.test/0", *URLS])])
    assert wider.url.take(pa.array(old)).equals(pages.url) and len(wider) == 6
    clash = state.set_column(0, "url", pa.array(["https://other.test/"] * 5))
    with pytest.raises(HashCollisionError, match="same 64-bit hash"):
        code_pages(clash, [sight])


@pytest.mark.parametrize(
    "row, horizon_hours, slots, gap_seconds, limit",
    [
        ((None, 10.0), 1, 360, 10, 8640),  # a gap of 10 s: 360 slots an hour
        ((None, 120.0), 1, 30, 120, 720),
        ((100.0, None), 24, 100, 0, 100),
        ((100.0, 3600.0), 24, 24, 3600, 24),
        ((0.0, None), 24, 0, 0, 0),
        ((0.5, None), 24, 1, 172_800, 0.5),  # every other day: one slot, two days apart
        ((2.5, None), 24, 2, 0, 2),
        ((2.5, None), 48, 5, 0, 2.5),
        ((None, None), 24, UNLIMITED_SLOTS, 0, np.inf),
    ],
)
def test_limits_become_slots(row, horizon_hours, slots, gap_seconds, limit):
    host = _hosts([("a.test", *row)], _pages(), round(horizon_hours * DAY_US / 24))["a.test"]
    assert (host["max_slots"], host["gap_us"]) == (slots, gap_seconds * 1_000_000)
    assert host["limit_per_day"] == pytest.approx(limit, rel=1e-12)


def test_defaults_apply_where_the_list_is_silent():
    hosts = _hosts([("a.test", None, 60.0), ("b.test", 7.0, None)], _pages(), default=50.0, gap=2.0)
    assert (hosts["a.test"]["max_slots"], hosts["a.test"]["gap_us"]) == (50, 60_000_000)
    assert (hosts["b.test"]["max_slots"], hosts["b.test"]["gap_us"]) == (7, 2_000_000)
    assert (hosts["c.test"]["max_slots"], hosts["c.test"]["gap_us"]) == (50, 2_000_000)


def test_of_two_limits_the_tighter_counts():
    rows = [("a.test", 10.0, 1.0), ("a.test", 5.0, 30.0), ("unknown.test", 1.0, 1.0)]
    for order in (rows, rows[::-1]):
        host = _hosts(order, _pages())["a.test"]
        assert (host["max_slots"], host["gap_us"]) == (5, 30_000_000)


def test_no_row_makes_a_gap_shorter_than_that_of_all_hosts():
    """A robots.txt with a Crawl-delay of 0 is another's: its owner wants the crawler polite."""
    for given, gap_us in ((0.0, 10_000_000), (3.0, 10_000_000), (None, 10_000_000), (30.0, 30_000_000)):
        hosts = _hosts([("a.test", 1e9, given)], _pages(), gap=10.0)
        assert hosts["a.test"]["gap_us"] == gap_us and hosts["b.test"]["gap_us"] == 10_000_000
        assert hosts["a.test"]["max_slots"] == DAY_US // gap_us


def test_last_time_of_a_host_is_its_last_attempt_or_slot():
    pages = _pages(["https://a.test/1", "https://a.test/2"])
    slots = pa.table(
        {
            "host_hash": pa.array(pages.host_hash[:1]),
            "last_slot_at": pa.array([500], schemas.TIME),
            "signal_window_crawls": pa.array([4.0], pa.float32()),
        }
    )
    for attempts, expected in (([400, NO_TIME], 500), ([400, 900], 900), ([NO_TIME, NO_TIME], 500)):
        host = _hosts([], pages, slots=slots, attempts=np.asarray(attempts))["a.test"]
        assert host["last_slot_at"].microsecond == expected and host["signal_window_crawls"] == 4.0
    assert _hosts([], pages)["a.test"]["last_slot_at"] is None


def test_catalogue_joins_by_page_and_repeats_do_not_depend_on_order():
    pages = _pages()
    rows = [
        {
            "url": URLS[0],
            "importance": 2.0,
            "min_rate_per_day": None,
            "max_rate_per_day": 5.0,
            "section": "x",
        },
        {
            "url": URLS[0],
            "importance": 1.0,
            "min_rate_per_day": 0.5,
            "max_rate_per_day": None,
            "section": "y",
        },
        {
            "url": URLS[3],
            "importance": None,
            "min_rate_per_day": 0.1,
            "max_rate_per_day": None,
            "section": None,
        },
    ]
    seen = []
    for order in (rows, rows[::-1]):
        sight = _sighting(
            [r["url"] for r in order],
            **{
                n: pa.array([r[n] for r in order], pa.string() if n == "section" else pa.float64())
                for n in ("importance", "min_rate_per_day", "max_rate_per_day", "section")
            },
        )
        columns, duplicates = join_catalogue(
            pages, pa.Table.from_batches([sight]), ["section", "brand"], ("section",)
        )
        assert duplicates == 1
        seen.append({k: v.to_pylist() for k, v in columns.items() if k != "importance"})
        by_url = dict(
            zip(
                pages.url.to_pylist(),
                zip(
                    *(
                        columns[n].to_pylist()
                        for n in ("importance", "floor_per_day", "cap_per_day", "meta.section", "meta.brand")
                    ),
                    strict=True,
                ),
                strict=True,
            )
        )
        assert by_url[URLS[0]] == (1.0, 0.5, np.inf, "y", None)
        assert by_url[URLS[3]][1:] == (0.1, np.inf, None, None)
        assert by_url[URLS[1]][1:] == (0.0, np.inf, None, None) and np.isnan(by_url[URLS[1]][0])
    assert seen[0] == seen[1]
    groups = seen[0]["group_hash"]
    assert len(set(groups)) == 2  # "y", and all pages without a section


def test_limits_of_all_pages_give_way_to_those_of_the_catalogue():
    pages = _pages()
    rates = {"min_rate_per_day": [3.0, None, 0.1], "max_rate_per_day": [None, 0.25, None]}
    sight = _sighting(URLS[:3], **{n: pa.array(v, pa.float64()) for n, v in rates.items()})
    columns, _ = join_catalogue(pages, pa.Table.from_batches([sight]), [], (), (0.5, 2.0))
    found = zip(*(columns[f"{name}_per_day"].to_pylist() for name in ("floor", "cap")), strict=True)
    by_url = dict(zip(pages.url.to_pylist(), found, strict=True))
    assert [by_url[url] for url in URLS[:4]] == [(3.0, 3.0), (0.25, 0.25), (0.1, 2.0), (0.5, 2.0)]


def test_without_group_columns_the_host_is_the_group():
    pages = _pages()
    columns, _ = join_catalogue(pages, None, [], ())
    assert columns["group_hash"].to_pylist() == pages.host_hash.tolist()


def test_state_in_another_order_is_sorted():
    """As after a change of the number of shards, with and without new pages."""
    pages = _pages()
    order = pa.array(np.arange(len(pages))[::-1])
    names = ("url", "host", "url_hash", "host_hash")
    state = pa.table({n: pa.array(getattr(pages, n)).take(order) for n in names})
    for sightings in ([], [_sighting(URLS)], [_sighting(["https://a.test/0"])]):
        again, old_code, _ = code_pages(state, sightings)
        assert locate(again.url).url_hash.tolist() == again.url_hash.tolist()
        assert again.url.take(pa.array(old_code)).equals(state.column("url").combine_chunks())
        assert locate(again.url).host_hash.tolist() == again.host_hash.tolist()
        assert [
            locate(pa.array([u])).table.host(h) for u, h in zip(again.url, again.host_hash, strict=True)
        ] == (again.host.to_pylist())
