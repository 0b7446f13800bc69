"""The rows of hosts/, and the sums over shards that the manifest has."""

import itertools

import numpy as np
import pyarrow as pa
import pytest

from policies.history.page_state import NO_TIME
from transforms.batches import schemas
from transforms.night.trust_report import (
    MAX_NAMED,
    TrustSums,
    flood_warnings,
    hosts_batch,
    silent_warnings,
    trust_sums,
)
from transforms.night.trusting import TRUST_TABLE

DAY_US = 86_400_000_000


def _hosts(names, limits=None):
    h = len(names)
    return pa.RecordBatch.from_pydict(
        {
            "host": names,
            "host_hash": pa.array(np.arange(h), pa.uint64()),
            "n_pages": pa.array(np.arange(10, 10 + h), pa.int32()),
            "limit_per_day": np.full(h, np.inf) if limits is None else np.asarray(limits, np.float64),
            "gap_us": np.full(h, 1_500_000),
        }
    )


def _trust(rows, error=0.1):
    """(host_code, source, rate, precision) and what follows from them."""
    table = [
        {
            "host_code": code,
            "source": source,
            "pages": 3,
            "signals": 40.0 * rate,
            "signals_since_crawl": 2,
            "signal_rate_per_day": rate,
            "signal_precision": precision,
            "signal_precision_stderr": error,
            "signal_recall": precision / 2,
            "signal_recall_stderr": 0.05,
            "last_signal_us": 7 * DAY_US if rate else NO_TIME,
            "silent": rate > 8,
        }
        for code, source, rate, precision in rows
    ]
    return pa.RecordBatch.from_pylist(table, schema=TRUST_TABLE)


def test_a_host_has_a_row_for_each_source_or_one():
    hosts = _hosts(["a.test", "b.test", "c.test"], [np.inf, 5.0, np.inf])
    trust = _trust([(1, "ping", 9.0, 0.1), (1, "sitemap", 2.0, 0.8), (2, "ping", 1.0, 0.5)])
    batch = hosts_batch(hosts, np.array([1.0, 2.0, 3.0]), np.array([4, 5, 6]), trust, {})
    batch.validate(full=True)
    assert batch.schema.equals(schemas.HOSTS_OUT)
    rows = batch.to_pylist()
    assert [(r["host"], r["source"]) for r in rows] == [
        ("a.test", None),
        ("b.test", "ping"),
        ("b.test", "sitemap"),
        ("c.test", "ping"),
    ]
    assert [r["slots"] for r in rows] == [4, 5, 5, 6] and [r["pages"] for r in rows] == [10, 11, 11, 12]
    assert [r["limit_per_day"] for r in rows] == [None, 5.0, 5.0, None]
    assert rows[0]["min_gap_seconds"] == 1.5
    assert rows[0]["signal_precision"] is None and rows[0]["silent"] is None
    assert rows[1]["silent"] and not rows[2]["silent"]
    assert rows[2]["signal_precision"] == 0.8 and rows[2]["signal_precision_stderr"] == 0.1
    assert rows[2]["signal_recall"] == 0.4 and rows[2]["signalling_pages"] == 3
    assert rows[2]["last_signal_at"].timestamp() == 7 * 86_400


def test_without_signals_hosts_have_their_rates_alone():
    batch = hosts_batch(_hosts(["a.test", "b.test"]), np.array([1.0, 2.0]), np.array([4, 5]), None, {})
    assert batch.schema.equals(schemas.HOSTS_OUT) and batch.num_rows == 2
    assert batch.column("source").null_count == 2 and batch.column("crawl_rate_per_day")[1].as_py() == 2.0


def test_a_shard_without_hosts_has_no_rows():
    assert hosts_batch(_hosts([]), np.zeros(0), np.zeros(0, np.int64), None, {}).num_rows == 0
    assert trust_sums(_hosts([]), None) == TrustSums()


def _parts():
    rng = np.random.default_rng(4)
    for shard in range(3):
        names = [f"h{shard}-{i}.test" for i in range(12)]
        rows = [(i, s, rng.gamma(1.0) * 3, rng.random()) for i in range(12) for s in ("ping", "sitemap")]
        yield trust_sums(_hosts(names), _trust(rows)), rows


def test_sums_of_shards_do_not_depend_on_their_order():
    sums, rows = zip(*_parts(), strict=True)
    accounts = []
    for order in itertools.permutations(range(3)):
        total = TrustSums()
        for i in order:
            total = total.merge(sums[i])
        accounts.append(total.account())
        assert sums[order[0]].merge(sums[order[1]].merge(sums[order[2]])).account() == accounts[-1]
    assert all(a == accounts[0] for a in accounts)
    every = [r for part in rows for r in part]
    for entry in accounts[0]["sources"]:
        mine = [(rate, p) for _, s, rate, p in every if s == entry["source"]]
        rate = sum(r for r, _ in mine)
        assert entry["hosts"] == 36 and entry["pages"] == 108 and entry["signals_since_crawl"] == 72
        assert entry["hosts_silent"] == sum(r > 8 for r, _ in mine)
        assert entry["signal_rate_per_day"] == pytest.approx(rate, abs=1e-4)
        assert entry["signal_precision"] == pytest.approx(sum(r * p for r, p in mine) / rate, abs=1e-4)
        # In `_trust` every host has a recall of half its precision: changes are twice the signals.
        assert entry["signal_recall"] == pytest.approx(entry["signal_precision"] / 2, abs=1e-4)
    named = accounts[0]["hosts"]
    top = sorted(every, key=lambda r: -r[2])[:MAX_NAMED]
    assert [n["signal_rate_per_day"] for n in named] == [r[2] for r in top]
    assert set(named[0]) >= {"host", "source", "signal_precision", "signal_recall", "signal_recall_stderr"}


def test_a_split_host_is_one_host():
    """It would fill the list of hosts with its parts, and one broken feed of one host would be many."""
    hosts = _hosts(["big.test", "a.test"])
    rows = [[(0, "ping", 9.0 + i, 0.5), (1, "ping", 1.0, 0.25)] for i in range(5)]
    parts = [trust_sums(hosts, _trust(r), {0}) for r in rows]
    for order in ([0, 1, 2, 3, 4], [4, 2, 0, 3, 1]):
        total = TrustSums()
        for i in order:
            total = total.merge(parts[i])
        account = total.account()
        (ping,) = account["sources"]
        assert (ping["hosts"], ping["hosts_silent"], ping["pages"]) == (6, 1, 30)
        assert ping["signal_rate_per_day"] == pytest.approx(60.0)
        big = account["hosts"][0]
        assert [r["host"] for r in account["hosts"]] == ["big.test"] + ["a.test"] * 5
        assert set(big) == set(account["hosts"][1])
        assert (big["pages"], big["signals"], big["signal_rate_per_day"]) == (15, 2200.0, 55.0)
        assert big["silent"]
        assert (big["signal_precision"], big["signal_recall"]) == (0.5, 0.25)
        assert big["signal_precision_stderr"] == pytest.approx(0.1, abs=1e-6)
    awake = parts[0].merge(trust_sums(hosts, _trust([(0, "ping", 2.0, 0.5)]), {0}))
    assert awake.account()["sources"][0]["hosts_silent"] == 0


def test_a_source_that_only_was_has_no_precision():
    """All its signals are forgotten: there is no rate to weigh with, and no division by 0."""
    total = trust_sums(_hosts(["a.test"]), _trust([(0, "ping", 0.0, 0.4)])).account()
    assert total["sources"][0]["signal_precision"] is None and total["sources"][0]["hosts"] == 1
    assert total["sources"][0]["signal_recall"] is None


@pytest.mark.parametrize(
    ("silent", "hosts", "warned"), [(2, 2, False), (3, 3, True), (3, 12, False), (4, 12, True), (0, 0, False)]
)
def test_a_source_that_is_silent_on_many_hosts_is_a_warning(silent, hosts, warned):
    said = [f"source ping is silent on {silent} of {hosts} hosts: is the feed down?"]
    sources = [{"source": "ping", "hosts_silent": silent, "hosts": hosts}]
    sources.append({"source": "cdn", "hosts_silent": 0, "hosts": 50})
    assert silent_warnings({"sources": sources}) == (said if warned else [])
    assert silent_warnings(None) == []


def _flooded(rate=12_000.0, precision=0.01, recall=0.05, code=0):
    """A row of a host that floods, which is not silent; and good hosts beside it."""
    rows = _trust([(code, "ping", rate, precision), (1, "ping", 5.0, 0.98), (2, "ping", 3.0, 0.98)])
    names = rows.schema.names
    columns = {n: rows.column(n) for n in names} | {"silent": pa.array([False] * 3)}
    columns["signal_recall"] = pa.array([recall, 0.9, 0.9])
    return pa.RecordBatch.from_pydict(columns, schema=TRUST_TABLE)


@pytest.mark.parametrize("split", [(), (0,)])
def test_a_host_that_floods_is_named_beside_the_others(split):
    """Also one that is split, whose parts together flood."""
    hosts = _hosts(["flood.test", "a.test", "b.test"])
    if split:
        shards = [
            trust_sums(hosts, _flooded(4_000.0), split),
            *(trust_sums(hosts, _flooded(4_000.0).slice(0, 1), split) for _ in range(2)),
        ]
    else:
        shards = [trust_sums(hosts, _flooded(), split)]
    total = TrustSums()
    for sums in shards:
        total = sums.merge(total)
    account = total.account()
    (ping,) = account["sources"]
    assert ping["signal_precision"] < 0.011 and ping["signal_precision_of_others"] == pytest.approx(0.98)
    assert ping["hosts"] == 3 and ping["hosts_flooding"] == 1
    assert [row["host"] for row in ping["most_false"]] == ["flood.test", "a.test", "b.test"]
    (text,) = flood_warnings(account)
    assert text.startswith(
        "host flood.test sends 12,000 signals of source ping a day, 1% of them true, while"
    )
    assert "its pages change 2,400 times: they move nothing by now. Tell the site" in text


@pytest.mark.parametrize(
    ("rate", "precision", "recall", "warned"),
    [
        (300.0, 0.09, 0.5, True),
        (299.0, 0.09, 0.5, False),  # few
        (9_000.0, 0.1, 0.5, False),  # still trusted
        (9_000.0, 0.05, 0.2, True),  # 2,250 changes a day
        (9_000.0, 0.05, 0.14, False),  # 3,214: the site is large and changes
        (9_000.0, 0.0, 0.0, True),
    ],
)
def test_what_is_a_flood(rate, precision, recall, warned):
    hosts = _hosts(["flood.test", "a.test", "b.test"])
    account = trust_sums(hosts, _flooded(rate, precision, recall)).account()
    assert bool(flood_warnings(account)) == warned == bool(account["sources"][0]["hosts_flooding"])
    assert not any("nothing by now" in text for text in flood_warnings(account)) or precision < 0.05


def test_very_many_floods_are_counted():
    hosts = _hosts([f"h{i}.test" for i in range(7)])
    rows = [_flooded(9_000.0 + i, code=i).slice(0, 1) for i in range(7)]
    account = trust_sums(hosts, pa.Table.from_batches(rows).combine_chunks().to_batches()[0]).account()
    *named, rest = flood_warnings(account)
    assert [text.split()[1] for text in named] == ["h6.test", "h5.test", "h4.test"]
    assert rest == "4 more hosts flood source ping like that: see hosts/"
    assert flood_warnings(None) == []


def test_a_source_that_is_alone_has_no_others():
    account = trust_sums(_hosts(["flood.test"]), _flooded().slice(0, 1)).account()
    assert account["sources"][0]["signal_precision_of_others"] is None


@pytest.mark.parametrize(
    ("learned", "unknown", "whole"),
    [
        ([], [5.0, 5.0], False),
        ([5.0], [5.0, 5.0], False),
        ([90.0], [5.0, 5.0], True),  # most signals are of the host that is known
        ([5.0, 5.0], [90.0], True),
        ([5.0], [], True),
    ],
)
@pytest.mark.parametrize("split", [False, True])
def test_a_source_is_learned_when_most_of_it_is(learned, unknown, whole, split):
    hosts = _hosts([f"h{i}.test" for i in range(len(learned) + len(unknown))])
    total = TrustSums()
    for first, rates, error in ((0, learned, 0.1), (len(learned), unknown, 0.2)):
        rows = [(first + i, "ping", rate, 0.25) for i, rate in enumerate(rates)]
        if rows:
            total = total.merge(trust_sums(hosts, _trust(rows, error), set(range(split * 9))))
    (ping,) = total.account()["sources"]
    assert ping["learned"] == whole and ping["hosts_not_learned"] == len(unknown)
    assert [row["learned"] for row in ping["most_false"]].count(False) == min(len(unknown), 3)
