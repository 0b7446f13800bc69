"""A host with a third of all pages is spread over shards and keeps one limit, one gap and one prior."""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from numpy.testing import assert_allclose

from tests.pipelines.jobs import Night, at, crawls, nightly, seen
from transforms.finished import nights as nights_module
from transforms.finished import pairing
from transforms.finished.comparing import Comparison, compare

GIANT, OTHER = "giant.test", "second.test"
SHARDS = 8
BUDGET = 900
LIMIT, GAP_SECONDS = 120, 300.0
NEVER = 10**9


@functools.cache
def _rows() -> list[dict[str, Any]]:
    rng = np.random.Generator(np.random.Philox(key=11))
    hosts = [GIANT] * 600 + [OTHER] * 250 + [f"h{i % 60}.test" for i in range(1150)]
    rows = []
    for i, host in enumerate(hosts):
        rate = rng.gamma(0.7) * (0.3 if host == GIANT else 0.1)
        changes = np.cumsum(rng.random(6) < 1 - np.exp(-rate * 3.3))
        digests = "".join(chr(65 + int(c)) for c in changes)
        rows += crawls(f"https://{host}/{i}", digests, first_day=9 + rng.random(), every_days=3.3)
    return rows


def _limits(giant: tuple[float | None, float | None], other: tuple[float | None, float | None]) -> Any:
    named = ((GIANT, giant), (OTHER, other))
    return [{"host": h, "max_per_day": most, "min_gap_seconds": gap} for h, (most, gap) in named]


GAP = (LIMIT, GAP_SECONDS)
LIMITS: dict[str, dict[str, Any]] = {
    "limit and gap": {"hosts": _limits(GAP, (40, None))},
    "above the budget, and rare": {"hosts": _limits((5000, None), (0.25, None))},
    "closed, and a gap": {"hosts": _limits((0, None), (None, 1000.0))},
    "no limits": {},
    "large budget": {"hosts": _limits(GAP, (40, None)), "objective": "harmonic", "budget": 20_000},
}


def _night(folder: Path, name: str, above: int = 100, **more: Any) -> Night:
    options: dict[str, Any] = {"budget": BUDGET, "num_shards": SHARDS, "split_hosts_above": above, **more}
    night = nightly(folder, name, **options)
    assert night.code == 0, night.complaints
    return night


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], tuple[Night, Night]]:
    """The same night, with and without splitting, by the name of its limits."""

    @functools.cache
    def make(case: str) -> tuple[Night, Night]:
        folder, more = tmp_path_factory.mktemp("giants"), LIMITS[case]
        split, whole = (_night(folder, str(a), a, observations=_rows(), **more) for a in (100, NEVER))
        return split, whole

    return make


@pytest.fixture(scope="module", params=LIMITS)
def pair(
    request: pytest.FixtureRequest, made: Callable[[str], tuple[Night, Night]]
) -> tuple[Night, Night, str]:
    return *made(request.param), request.param


def _by_url(night: Night, column: str) -> np.ndarray:
    pages = night.table("pages").sort_by("url")
    return pages.column(column).to_numpy()


def _sizes(night: Night) -> list[int]:
    files = [f for f in night.manifest["files"] if f["path"].startswith("pages/")]
    return sorted(f["rows"] for f in files)


def test_shards_are_even(pair):
    split, whole, _ = pair
    assert len(split.manifest["split_hosts"]) == 2 and not whole.manifest["split_hosts"]
    sizes = _sizes(split)
    assert max(sizes) <= 2 * np.median(sizes)
    assert max(_sizes(whole)) > 3 * np.median(_sizes(whole))


def test_state_has_the_same_rows(pair):
    split, whole, _ = pair
    states = [n.table("state").sort_by("url") for n in (split, whole)]
    assert states[0].equals(states[1])


def test_estimates_have_the_same_bits(pair):
    split, whole, _ = pair
    assert split.manifest["prior"] == whole.manifest["prior"]
    for column in ("url", "change_rate_per_day", "change_rate_stderr", "weight", "last_crawl_at"):
        assert (_by_url(split, column) == _by_url(whole, column)).all(), column


def test_the_optimum_is_the_same(pair):
    split, whole, _ = pair
    for name in ("multiplier", "expected_freshness", "allocated_per_day", "unspent_per_day"):
        assert_allclose(split.manifest[name], whole.manifest[name], rtol=1e-8, atol=1e-9, err_msg=name)
    value = [
        (_by_url(n, "expected_freshness") * _by_url(n, "weight"))[_by_url(n, "host") == GIANT].sum()
        for n in (split, whole)
    ]
    assert_allclose(*value, rtol=1e-8)
    rates = [_by_url(n, "crawl_rate_per_day") for n in (split, whole)]
    assert_allclose(*rates, rtol=1e-6, atol=1e-9 * BUDGET)
    assert (_by_url(split, "limit") == _by_url(whole, "limit")).mean() > 0.999


def test_a_host_is_counted_once(pair):
    split, whole, _ = pair
    for name in ("hosts_known", "hosts_at_limit", "hosts_unmatched", "pages_known", "pages_limit_host"):
        assert split.counters.get(name) == whole.counters.get(name), name
    named = [[h["host"] for h in n.manifest["hosts_at_limit"]] for n in (split, whole)]
    assert named[0] == named[1]
    large = [[(h["host"], h["pages"]) for h in n.manifest["large_hosts"]] for n in (split, whole)]
    assert large[0] == large[1] and large[0][0] == (GIANT, 600)


def test_one_limit_and_one_gap(pair):
    split, whole, case = pair
    limits = {h["host"]: h for h in LIMITS[case].get("hosts", [])}
    slots = split.rows("schedule")
    for host, limit in limits.items():
        due = sorted(r["due_at"] for r in slots if r["host"] == host)
        most, gap = limit["max_per_day"], limit["min_gap_seconds"] or 0.0
        assert most is None or len(due) <= (max(most, 1) if most else 0)
        assert all((b - a).total_seconds() >= gap for a, b in pairwise(due))
        rate = _by_url(split, "crawl_rate_per_day")[_by_url(split, "host") == host].sum()
        assert most == 0.25 or abs(len(due) - rate) <= 2, (host, len(due), rate)
    given = split.counters["slots_used"] + split.counters["slots_empty"]
    assert given == split.manifest["slots"] <= whole.manifest["slots"]


def test_slots_of_a_shard_are_numbered_by_time(pair):
    split, _, _ = pair
    for file in sorted((split.folder / "schedule").glob("*.parquet")):
        rows = pq.read_table(file)
        shard, slot, due = (rows[n].to_numpy() for n in ("shard", "slot", "due_at"))
        assert set(shard) == {int(file.name[6:11])}
        assert (np.diff(slot) > 0).all() and (np.diff(due) >= np.timedelta64(0)).all()


def test_pages_of_a_giant_take_turns_evenly(pair):
    split, _, case = pair
    if case != "large budget":
        pytest.skip("pages are crawled less than once a night")
    crawled = Counter(r["url"] for r in split.rows("schedule"))
    horizon = _by_url(split, "owed") + _by_url(split, "crawl_rate_per_day")
    off = [crawled[u] - e for u, e in zip(_by_url(split, "url"), horizon, strict=True)]
    assert np.abs(off).max() < 2.0


def _next_rows(night: Night, keep: int) -> list[dict[str, Any]]:
    return [
        seen(r["url"], r["due_at"].isoformat(), "X" if i % 3 else "Y")
        for i, r in enumerate(sorted(night.rows("schedule"), key=lambda r: (r["due_at"], r["url"])))
        if i % keep
    ]


def test_nights_follow_each_other_in_any_layout(made, tmp_path):
    hosts = LIMITS["limit and gap"]["hosts"]
    first, _ = made("limit and gap")
    rows = _next_rows(first, 7)
    more = {"observations": rows, "hosts": hosts, "as_of": at(31), "flags": ["--allow_shrink"]}
    more["state"] = first.folder / "state"
    same = _night(tmp_path, "same", **more)
    whole = _night(tmp_path, "whole", NEVER, **more)
    other = _night(tmp_path, "other", num_shards=3, **more)
    assert same.manifest["split_hosts"] == first.manifest["split_hosts"]
    assert not whole.manifest["split_hosts"]
    tables = [n.table("state").sort_by("url") for n in (same, whole, other)]
    assert tables[0].equals(tables[1]) and tables[0].equals(tables[2])
    for night in (same, whole, other):
        assert_allclose(night.manifest["multiplier"], same.manifest["multiplier"], rtol=1e-9)
        assert night.manifest["judged"] == same.manifest["judged"]  # a host is one host there, too
        due = sorted(r["due_at"] for n in (first, night) for r in n.rows("schedule") if r["host"] == GIANT)
        assert all((b - a).total_seconds() >= GAP_SECONDS for a, b in pairwise(due))
        assert len(due) <= 2 * LIMIT
    # What the parts are owed is kept: over both nights every part has its share of the host's slots.
    assert set(same.manifest["carry"]["giants"]) <= set(same.manifest["split_hosts"])


def test_new_pages_of_a_giant_take_at_most_half(tmp_path):
    known = [r for r in _rows() if GIANT not in r["url"]]
    urls = sorted({r["url"] for r in known}) + [f"https://{GIANT}/new-{i}" for i in range(900)]
    more = {"observations": known, "pages": [{"url": u} for u in urls], "budget": 300}
    more["hosts"] = _limits((250, None), (None, None))
    for above in (100, NEVER):
        night = _night(tmp_path, f"new-{above}", above, **more)
        new = sum(r["reason"] == "new" for r in night.rows("schedule"))
        assert 0 < new <= 151 and len(night.rows("schedule")) == 300, (above, new)


def test_floors_above_a_limit_are_scaled(tmp_path):
    rows = _rows()
    catalogue = [
        {"url": u, "min_rate_per_day": 0.5 if GIANT in u else 0.0} for u in sorted({r["url"] for r in rows})
    ]
    more = {"observations": rows, "pages": catalogue, "hosts": LIMITS["limit and gap"]["hosts"]}
    split, whole = (_night(tmp_path, str(a), a, **more) for a in (100, NEVER))
    rates = [_by_url(n, "crawl_rate_per_day") for n in (split, whole)]
    assert_allclose(*rates, rtol=1e-7, atol=1e-9)
    assert_allclose(rates[0][_by_url(split, "host") == GIANT].sum(), LIMIT, rtol=1e-9)


def test_nights_in_other_layouts_are_compared(made, monkeypatch):
    """No page moved, wherever it lies; a giant host is one host, also when it is read in shares."""
    split, whole = made("limit and gap")
    monkeypatch.setattr(pairing, "MAX_ROWS", 200)
    for nights in ((split, whole), (whole, split), (split, split)):
        one, two = (nights_module.Night.open(str(n.folder)) for n in nights)
        total = Comparison()
        for part in pairing.parts_of(one, two):
            total.merge(compare(one, two, part))
        assert (total.same, total.new, total.lost) == (2000, 0, 0)
        assert total.hosts.tolist() == [62, 0, 0] and total.at_limit.sum() == 62
        assert total.moved < 1e-6 * BUDGET
        assert total.at_limit[1, 1] == 2
        for row in total.by_slots:
            assert row.pages[0] == row.pages[1] == (600 if row.host == GIANT else row.pages[0])
        alone = Comparison()
        for part in pairing.parts_of(one, two, GIANT):
            alone.merge(compare(one, two, part, host=GIANT))
        assert alone.same == 600
