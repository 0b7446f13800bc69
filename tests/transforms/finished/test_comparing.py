"""Nights written without the job: sums hold however shards are cut, whatever the format, with old columns."""

from __future__ import annotations

import functools
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from policies.objectives import objectives
from policies.optimum import search
from policies.optimum.attribution import SignalQuality
from policies.sequencing.sequencing import REASONS
from tests.transforms.schedules import MANIFEST
from transforms.batches import schemas
from transforms.batches.hashing import stable_hash
from transforms.files import sinks
from transforms.files.shard_files import write_shard
from transforms.finished import comparing, nights, pairing
from transforms.finished.comparing import CAUSES, Comparison
from transforms.finished.nights import Night, NightError
from transforms.finished.ratios import Ratios

HOSTS = 30


def pages_of(seed: int, budget: float = 120.0, limit: float = 5.0, keep: slice = slice(None)) -> pa.Table:
    """Pages of `HOSTS` hosts with their optimal rates; the seed moves change rates and weights of some."""
    fixed = np.random.Generator(np.random.Philox(key=1))
    sizes = fixed.integers(1, 30, HOSTS)
    n = int(sizes.sum())
    change, weight = 10.0 ** fixed.uniform(-2, 1, n), 10.0 ** fixed.uniform(-2, 2, n)
    moving = np.random.Generator(np.random.Philox(key=seed + 2))
    seen = moving.random(n) < 0.3
    change = np.where(seen, change * 10.0 ** moving.uniform(-0.3, 0.3, n), change)
    weight = weight * 10.0 ** moving.uniform(-0.1, 0.1, n)
    start = np.concatenate([[0], np.cumsum(sizes)])
    limits = np.where(np.arange(HOSTS) % 3 == 0, limit, np.inf)
    block = search.PageBlock(change, weight, None, None, start, limits)
    _, (found,) = search.solve(block, objectives.get("periodic"), budget)
    host = [f"h{j}.test" for j in np.repeat(np.arange(HOSTS), sizes)]
    table = pa.table(
        {
            "url": [f"https://{h}/{i}" for i, h in enumerate(host)],
            "host": host,
            "change_rate_per_day": change,
            "request_rate_per_day": weight,
            "n_intervals": pa.array(np.where(seen, seed, 0), pa.int32()),
            "n_changes": pa.array(np.zeros(n), pa.int32()),
            "crawl_rate_per_day": found.crawl_rate_per_day,
            "limit": [search.LIMIT_NAMES[c] for c in found.limit],
            "weight": weight,
        }
    )
    return table.take(pa.array(np.arange(n)[keep]))


def night(
    folder: Path, pages: pa.Table, multiplier: float, shards: int = 4, form: str = "parquet", **options: Any
) -> Night:
    """Write what a night leaves, as far as it is compared. About half of the pages have a slot."""
    of = np.array([stable_hash(h) % shards for h in pages.column("host").to_pylist()])
    files = []
    reasons = ["signal" if "signal_precision" in pages.schema.names else "due"]
    for shard in range(shards):
        mine = pages.take(pa.array(np.flatnonzero(of == shard))).combine_chunks()
        lucky = [stable_hash(u) % 2 == 0 for u in mine.column("url").to_pylist()]
        slots = mine.filter(pa.array(lucky, pa.bool_()))
        schedule = pa.table(
            {"url": slots.column("url"), "host": slots.column("host"), "reason": reasons * slots.num_rows},
            schema=pa.schema([schemas.SCHEDULE.field(n) for n in ("url", "host", "reason")]),
        )
        for kind, table in (("pages", mine), ("schedule", schedule)):
            batch = pa.RecordBatch.from_arrays(
                [c.combine_chunks() if c.num_chunks != 1 else c.chunk(0) for c in table.columns],
                schema=table.schema,
            )
            files.append(write_shard(str(folder), kind, shard, shards, batch, form).as_dict())
    manifest = MANIFEST | {
        "multiplier": multiplier,
        "budget_per_day": 120.0,
        "options": MANIFEST["options"] | {"num_shards": shards, **options},
        "files": files,
    }
    sinks.write_json(str(folder), "manifest.json", manifest)
    return Night.open(str(folder))


def multiplier_of(pages: pa.Table) -> float:
    """Marginal value of the pages that nothing but the budget bounds."""
    columns = ("crawl_rate_per_day", "change_rate_per_day", "weight")
    rate, change, weight = (pages.column(n).to_numpy() for n in columns)
    free = np.array(pages.column("limit").to_pylist()) == "none"
    return float(np.median(objectives.get("periodic").marginal_value(rate, change, weight)[free]))


def compare(before: Night, after: Night, **options: Any) -> Comparison:
    total = Comparison()
    for part in pairing.parts_of(before, after, options.get("host")):
        total.merge(comparing.compare(before, after, part, **options))
    return total


@pytest.fixture
def pair(tmp_path: Path) -> tuple[Night, Night]:
    """Two nights; the second lacks ten pages of the first, and the first ten of the second."""
    one, two = pages_of(1, keep=slice(10, None)), pages_of(2, budget=80.0, limit=4.0, keep=slice(None, -10))
    return (
        night(tmp_path / "one", one, multiplier_of(one)),
        night(tmp_path / "two", two, multiplier_of(two)),
    )


def rates(of: Night) -> dict[str, float]:
    table = of.read("pages", range(of.num_shards), nights.PAGES)
    return dict(
        zip(table.column("url").to_pylist(), table.column("crawl_rate_per_day").to_pylist(), strict=True)
    )


def same(one: Comparison, two: Comparison) -> None:
    assert (one.same, one.new, one.lost) == (two.same, two.new, two.lost)
    for name in ("rate", "weight", "up", "down", "moved"):
        assert np.allclose(getattr(one, name), getattr(two, name), rtol=1e-12, atol=1e-12), name
    for name in ("slots", "limits", "hosts", "at_limit"):
        assert (getattr(one, name) == getattr(two, name)).all(), name
    for name in ("by_slots", "to_limit", "off_limit", "by_rate"):
        mine, its = getattr(one, name), getattr(two, name)
        assert [getattr(r, "url", r.host) for r in mine] == [getattr(r, "url", r.host) for r in its], name
        for a, b in zip(mine, its, strict=True):
            assert np.allclose(a.parts, b.parts, rtol=1e-9, atol=1e-12)


def test_sums_are_those_of_the_pages(pair):
    before, after = map(rates, pair)
    found = compare(*pair)
    assert found.same == len(before.keys() & after.keys())
    assert found.new == found.lost == 10 == len(after.keys() - before.keys())
    step = {u: after.get(u, 0.0) - before.get(u, 0.0) for u in before | after}
    assert found.rate == pytest.approx([sum(before.values()), sum(after.values())], rel=1e-12)
    assert found.net.sum() == pytest.approx(sum(step.values()), rel=1e-12)
    assert found.moved == pytest.approx(sum(map(abs, step.values())) / 2, rel=1e-12)
    new, lost = CAUSES.index("new_page"), CAUSES.index("lost_page")
    assert found.net[new] == pytest.approx(sum(after[u] for u in after.keys() - before.keys()))
    assert found.net[lost] == pytest.approx(-sum(before[u] for u in before.keys() - after.keys()))
    assert found.limits.sum() == found.same
    assert found.ratios["crawl_rate"].doubled == sum(after[u] > 2 * before[u] for u in before.keys() & after)


def test_lists_have_the_largest(pair):
    before, after = map(rates, pair)
    step = {u: after.get(u, 0.0) - before.get(u, 0.0) for u in before | after}
    expected = sorted(step, key=lambda u: (-abs(step[u]), u))[: comparing.KEPT]
    found = compare(*pair)
    assert [row.url for row in found.by_rate] == expected
    for row in found.by_rate:
        assert sum(row.parts) == pytest.approx(step[row.url], rel=1e-9) == pytest.approx(row.moved)
    for row in found.by_slots:
        assert sum(row.parts) == pytest.approx(row.rate[1] - row.rate[0], rel=1e-9, abs=1e-12)
    assert sum(sum(row.slots[0]) for row in found.by_slots) == found.slots[0].sum()


def test_short_lists_are_the_heads_of_long_ones(pair, tmp_path, monkeypatch):
    loose, tight = pages_of(1, limit=np.inf), pages_of(1, limit=5.0)
    limits = [night(tmp_path / str(i), t, multiplier_of(t)) for i, t in enumerate((loose, tight))]
    long = compare(*pair), compare(*limits), compare(*reversed(limits))
    monkeypatch.setattr(comparing, "KEPT", 2)
    short = compare(*pair), compare(*limits), compare(*reversed(limits))
    for some, whole in zip(short, long, strict=True):
        for name in ("by_slots", "by_rate", "to_limit", "off_limit"):
            assert getattr(some, name) == getattr(whole, name)[:2], name
    steps = [abs(sum(row.slots[1]) - sum(row.slots[0])) for row in long[0].by_slots]
    assert steps == sorted(steps, reverse=True)
    moves = [abs(row.rate[1] - row.rate[0]) for row in long[1].to_limit]
    assert moves == sorted(moves, reverse=True) and len(moves) > 2


def test_swapped_nights_negate(pair):
    there, back = compare(*pair), compare(*reversed(pair))
    mirrored = there.net[[*range(len(CAUSES) - 2), -1, -2]]
    assert np.allclose(mirrored, -back.net, rtol=1e-12, atol=1e-12)
    assert (there.at_limit == back.at_limit.T).all() and there.moved == pytest.approx(back.moved)


def test_a_night_does_not_differ_from_itself(pair):
    found = compare(pair[0], pair[0])
    assert not found.up.any() and not found.down.any() and found.moved == 0.0
    assert not (found.by_rate or found.by_slots or found.to_limit or found.off_limit)
    assert found.ratios["weight"].quantile(0.05) == found.ratios["weight"].quantile(0.95) == 1.0


@pytest.mark.parametrize(("first", "second"), [(4, 8), (6, 4), (3, 4), (1, 5)])
def test_any_two_numbers_of_shards(first, second, pair, tmp_path):
    one, two = (n.read("pages", range(4), nights.PAGES) for n in pair)
    cut = (
        night(tmp_path / "a", one, pair[0].price, first),
        night(tmp_path / "b", two, pair[1].price, second),
    )
    same(compare(*cut), compare(*pair))


def test_large_parts_are_read_a_share_at_a_time(pair, monkeypatch):
    whole = compare(*pair)
    monkeypatch.setattr(pairing, "MAX_ROWS", 55)
    parts = list(pairing.parts_of(*pair))
    assert len(parts) > pair[0].num_shards and any(part.of == 2 for part in parts)
    for part in parts:
        rows = pair[0].rows("pages", part.before)
        assert comparing.compare(*pair, part).same < rows or part.of == 1, "a share has the whole shard"
    same(compare(*pair), whole)


@pytest.mark.parametrize("form", ["avro", "jsonl"])
def test_any_format(form, pair, tmp_path):
    one = pair[0].read("pages", range(4), nights.PAGES)
    other = night(tmp_path / "other", one, pair[0].price, form=form)
    same(compare(other, pair[1]), compare(*pair))


@pytest.mark.parametrize("form", ["parquet", "avro", "jsonl"])
def test_a_file_system_elsewhere(form, pair, tmp_path, monkeypatch):
    """Files come through Beam's file objects."""
    one = pair[0].read("pages", range(4), nights.PAGES)
    other = night(tmp_path / "other", one, pair[0].price, form=form)
    expected = compare(*pair)
    monkeypatch.setattr(nights, "local_path", lambda path: None)
    same(compare(other, pair[1]), expected)


def test_csv(pair, tmp_path):
    import pyarrow.csv

    night(tmp_path / "csv", pair[0].read("pages", range(4), nights.PAGES), pair[0].price)
    manifest = sinks.read_json(str(tmp_path / "csv" / "manifest.json"))
    for file in manifest["files"]:
        path = tmp_path / "csv" / file["path"]
        pyarrow.csv.write_csv(pa.parquet.read_table(path), path.with_suffix(".csv"))
        file["path"] = file["path"].replace(".parquet", ".csv")
    same(compare(Night(str(tmp_path / "csv"), manifest), pair[1]), compare(*pair))


def test_one_host(pair):
    all_hosts = {row.host: row for row in compare(*pair).by_slots}
    name = next(iter(all_hosts))
    found = compare(*pair, host=name)
    assert [row.host for row in found.by_slots] == [name]
    assert found.by_slots[0] == all_hosts[name]
    assert found.net == pytest.approx(all_hosts[name].parts)


def test_a_host_of_one_night_only(pair):
    table = pair[0].read("pages", range(4), nights.PAGES)
    (mine, other) = (f"h{HOSTS - 1}.test", "h0.test")
    assert mine in table.column("host").to_pylist()
    found = compare(pair[0], replace(pair[1], manifest=pair[1].manifest | {"files": []}), host=mine)
    assert (found.same, found.new) == (0, 0) and found.lost == found.by_slots[0].pages[0]
    assert found.hosts.tolist() == [0, 0, 1] and other not in [row.host for row in found.by_rate]


def test_hosts_at_their_limit(tmp_path):
    loose, tight = pages_of(1, limit=np.inf), pages_of(1, limit=5.0)
    one = night(tmp_path / "loose", loose, multiplier_of(loose))
    two = night(tmp_path / "tight", tight, multiplier_of(tight))
    found = compare(one, two)
    assert found.at_limit[1].sum() == 0 and found.at_limit[0, 1] == len(found.to_limit) > 3
    for row in found.to_limit:
        assert row.rate[1] == pytest.approx(5.0) and row.price[1] > two.price
        assert min(row.parts) == row.parts[CAUSES.index("host_limit")] < 0
    back = compare(two, one)
    assert [r.host for r in back.off_limit] == [r.host for r in found.to_limit] and not back.to_limit


def test_evidence_tells_observed_from_learned(pair):
    observed, learned = (CAUSES.index(f"change_{name}") for name in ("observed", "learned"))
    known = [row for row in compare(*pair).by_rate if row.before and row.after]
    moved = [row for row in known if row.before["n_intervals"] != row.after["n_intervals"]]
    assert 0 < len(moved) < len(known)
    for row in known:
        assert row.parts[learned if row in moved else observed] == 0.0
    assert all(row.parts[observed] for row in moved)


class TestOldNights:
    """Nights that lack columns."""

    @pytest.mark.parametrize("dropped", [["n_intervals", "n_changes"], ["limit"], ["weight"], ["impression"]])
    def test_without_columns_that_help(self, dropped, pair, tmp_path):
        table = pair[0].read("pages", range(4), nights.DETAILS)
        table = table.drop_columns([n for n in dropped if n in table.schema.names])
        old = night(tmp_path / "old", table, pair[0].price)
        found, whole = compare(old, pair[1]), compare(*pair)
        assert found.net.sum() == pytest.approx(whole.net.sum(), rel=1e-9)
        assert all(any(name in said for said in found.absent) for name in dropped if name != "impression")

    @pytest.mark.parametrize("name", ["crawl_rate_per_day", "change_rate_per_day"])
    def test_without_a_column_that_must_be(self, name, pair, tmp_path):
        table = pair[0].read("pages", range(4), nights.PAGES).drop_columns([name])
        old = night(tmp_path / "old", table, pair[0].price)
        with pytest.raises(NightError, match=f"old: pages/ has no {name}.*run that night again"):
            compare(old, pair[1])


class TestSignals:
    @staticmethod
    @functools.cache
    def pages(seed: int, share: float = 0.5, limit: float = 5.0) -> tuple[pa.Table, search.Allocation, float]:
        """Half of the pages with signals, whose quality the seed moves; the answer and its multiplier."""
        table = pages_of(1, limit=limit)
        n = table.num_rows
        rng = np.random.Generator(np.random.Philox(key=seed + 50))
        change, weight = (table.column(c).to_numpy() for c in ("change_rate_per_day", "weight"))
        row = np.flatnonzero(np.random.Generator(np.random.Philox(key=9)).random(n) < share)
        precision, recall = np.zeros(n), np.zeros(n)
        precision[row], recall[row] = rng.uniform(0.1, 0.95, row.size), rng.uniform(0.2, 0.95, row.size)
        quality = SignalQuality(precision, recall)
        found = quality[row].pages(change[row], weight[row])
        signals = search.SignalBlock(
            row, found.unsignalled_rate_per_day, found.signal_rate_per_day, found.signal_weight
        )
        sizes = np.random.Generator(np.random.Philox(key=1)).integers(1, 30, HOSTS)
        limits = np.where(np.arange(HOSTS) % 3 == 0, limit, np.inf)
        start = np.concatenate([[0], np.cumsum(sizes)])
        block = search.PageBlock(change, weight, None, None, start, limits, signals)
        result, (answer,) = search.solve(block, objectives.get("signals"), 120.0)
        none = precision == 0.0
        columns = {
            "crawl_rate_per_day": pa.array(answer.crawl_rate_per_day),
            "limit": pa.array([search.LIMIT_NAMES[c] for c in answer.limit]),
            "signal_precision": pa.array(precision, mask=none),
            "signal_recall": pa.array(recall, mask=none),
            "signal_rate_per_day": pa.array(recall / np.where(none, 1.0, precision) * change, mask=none),
            "signals_since_crawl": pa.array(np.ones(n, np.int64), mask=none),
        }
        for name, column in columns.items():
            at = table.schema.get_field_index(name)
            table = table.append_column(name, column) if at < 0 else table.set_column(at, name, column)
        return table, answer, result.multiplier

    @pytest.fixture(scope="class")
    @classmethod
    def nights(cls, tmp_path_factory: pytest.TempPathFactory) -> tuple[Night, Night]:
        made, folder = [], tmp_path_factory.mktemp("signals")
        for seed in (1, 2):
            table, _, multiplier = cls.pages(seed)
            made.append(night(folder / f"signals{seed}", table, multiplier, objective="signals"))
        return made[0], made[1]

    def test_trust_is_the_cause(self, nights):
        """Nothing but precisions and recalls differs; what they free goes elsewhere at another price."""
        found = compare(*nights)
        before, after = map(rates, nights)
        assert found.net.sum() == pytest.approx(sum(after.values()) - sum(before.values()), abs=1e-9)
        size = dict(zip(CAUSES, found.up - found.down, strict=True))
        rest = {"multiplier", "host_limit", "signals"}
        assert size["signals"] > 1.0 and max(v for n, v in size.items() if n not in rest) <= 1e-6
        back = compare(*reversed(nights))
        assert np.allclose(found.net[:-2], -back.net[:-2], rtol=1e-9, atol=1e-12)
        assert not compare(nights[0], nights[0]).up.any()

    def test_prices_are_those_of_the_search(self, tmp_path):
        table, answer, multiplier = self.pages(1)
        one = night(tmp_path / "one", table, multiplier, objective="signals")
        loose, _, other = self.pages(1, limit=np.inf)
        found = compare(night(tmp_path / "loose", loose, other, objective="signals"), one)
        assert len(found.to_limit) >= 3
        for row in found.to_limit:
            host = int(row.host.removeprefix("h").removesuffix(".test"))
            assert row.price[1] == pytest.approx(multiplier + answer.host_multiplier[host], rel=1e-5)
            assert min(row.parts) == row.parts[CAUSES.index("host_limit")] < 0

    @pytest.mark.parametrize("form", ["avro", "jsonl"])
    def test_any_format_and_number_of_shards(self, form, nights, tmp_path):
        table, _, multiplier = self.pages(1)
        options = {"shards": 30, "form": form, "objective": "signals"}  # some without signals
        same(compare(night(tmp_path / form, table, multiplier, **options), nights[1]), compare(*nights))

    def test_slots_by_signal_are_counted(self, nights):
        found = compare(*nights)
        assert found.slots[:, REASONS.index("signal")].tolist() == found.slots.sum(axis=1).tolist() != [0, 0]

    @pytest.mark.parametrize("objective", ["periodic", "memoryless"])
    def test_a_night_before_signals(self, objective, nights, tmp_path):
        """It has no such columns, and nobody misses them; signals explain what following them moved."""
        table = pages_of(1)
        old = night(tmp_path / "old", table, multiplier_of(table), objective=objective)
        found = compare(old, nights[1])
        assert found.absent == set()
        assert found.net.sum() == pytest.approx(found.rate[1] - found.rate[0], abs=1e-9)
        size = dict(zip(CAUSES, found.up - found.down, strict=True))
        if objective == "periodic":
            assert size["signals"] > 10.0 and size["aim"] == 0.0 and size["change_observed"] == 0.0
            assert size["page_limit"] <= 1e-6
        else:
            assert size["aim"] > 5.0 and size["signals"] == size["weight"] == size["multiplier"] == 0.0

    def test_columns_of_a_night_that_follows_no_signals_do_not_count(self, nights, tmp_path):
        table = pages_of(1)
        plain = night(tmp_path / "plain", table, multiplier_of(table))
        for name in ("signal_precision", "signal_recall"):
            table = table.append_column(name, pa.array(np.full(table.num_rows, 0.5)))
        odd = night(tmp_path / "odd", table, multiplier_of(pages_of(1)))
        assert compare(plain, odd).moved == 0.0 and not compare(plain, odd).up.any()


class TestBroken:
    def test_no_manifest(self, tmp_path):
        with pytest.raises(NightError, match=r"no manifest\.json there and no store"):
            Night.open(str(tmp_path))

    @pytest.mark.parametrize("form", ["parquet", "avro", "jsonl"])
    @pytest.mark.parametrize("damage", ["gone", "cut"])
    def test_a_shard(self, damage, form, pair, tmp_path):
        table = pair[0].read("pages", range(4), nights.PAGES)
        broken = night(tmp_path / "broken", table, pair[0].price, form=form)
        path = tmp_path / "broken" / "pages" / f"shard-00002-of-00004.{form}"
        if damage == "gone":
            path.unlink()
        else:
            path.write_bytes(path.read_bytes()[:-40])
        with pytest.raises(
            NightError, match=r"shard-00002.*the manifest lists it, but it (cannot be read|is not there)"
        ):
            compare(broken, pair[1])


def test_an_empty_night(pair, tmp_path):
    none = night(tmp_path / "none", pages_of(1).slice(0, 0), 0.0)
    found = compare(none, pair[1])
    assert found.same == 0 and found.new == len(rates(pair[1]))
    assert found.net.sum() == found.net[CAUSES.index("new_page")] == pytest.approx(found.rate[1])
    assert compare(none, none).moved == 0.0


def test_nothing_to_decide_has_no_price(pair):
    for change in ({"search": {"status": "all at floor"}}, {"budget_per_day": 0}, {"multiplier": None}):
        changed = replace(pair[0], manifest=pair[0].manifest | change)
        assert changed.price == np.inf


def test_quantiles_of_ratios():
    rng = np.random.Generator(np.random.Philox(key=3))
    before, after = 10.0 ** rng.uniform(-3, 3, 10_001), 10.0 ** rng.uniform(-3, 3, 10_001)
    whole, parts = Ratios(), [Ratios(), Ratios()]
    whole.add(before, after)
    parts[0].add(before[:4000], after[:4000])
    parts[1].add(before[4000:], after[4000:])
    parts[0].merge(parts[1])
    assert (whole.bins == parts[0].bins).all() and whole.halved == parts[0].halved
    for share in (0.05, 0.25, 0.5, 0.75, 0.95):
        assert whole.quantile(share) == pytest.approx(np.quantile(after / before, share), rel=0.02)
    assert whole.doubled == (after > 2 * before).sum()
    zeros = Ratios()
    zeros.add(np.array([0.0, 1.0, 0.0]), np.array([1.0, 0.0, 0.0]))
    assert (zeros.from_zero, zeros.to_zero, zeros.doubled, zeros.halved) == (1, 1, 1, 1)
    assert np.isnan(zeros.quantile(0.5))
