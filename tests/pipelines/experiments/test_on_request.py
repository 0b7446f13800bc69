"""`recrawl backtest --on_request`: a log of requests, or drawn ones, replayed under rules that decide."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from pipelines.experiments.figures import trained
from policies.on_request.strategies import RULES
from policies.predictors.network import Network
from policies.predictors.rows import Rows
from tests.pipelines.jobs import at, command, write_rows

DAYS, PAGES = 12, 16


@pytest.fixture(scope="module")
def site(tmp_path_factory) -> Path:
    """Pages of which half change every other day; those that do not are asked for as often."""
    folder = tmp_path_factory.mktemp("site")
    rng = np.random.Generator(np.random.Philox(key=8))
    changes, clicks = [], []
    for i in range(PAGES):
        url = f"https://a.test/{i}"
        changes.append({"url": url, "changed_at": at(0.0), "digest": "v0", "kind": "first"})
        for n, t in enumerate(np.sort(rng.uniform(0.1, DAYS, rng.poisson(DAYS / 2 if i % 2 else 0))), 1):
            changes.append({"url": url, "changed_at": at(t), "digest": f"v{n}", "kind": "change"})
        for day in range(DAYS):
            hour = int(rng.integers(0, 24))
            clicks.append({"url": url, "at": at(day, hour), "clicks": int(1 + rng.integers(0, 4))})
    write_rows(folder / "changes.jsonl", changes)
    write_rows(folder / "clicks.jsonl", clicks)
    return folder


def _run(site: Path, out: Path, *options: str) -> tuple[int, str, str]:
    given = [
        "--on_request",
        "--workers=1",
        "--no_plots",
        f"--changes={site}/changes.jsonl",
        f"--output={out}",
        f"--start={at(0)}",
        f"--end={at(DAYS)}",
    ]
    return command("backtest", *given, *options)


def test_a_log_of_requests_is_replayed_whole(site, tmp_path):
    code, said, complaints = _run(
        site, tmp_path, f"--requests={site}/clicks.jsonl", "--policies", "value", "--warm_up=0.25"
    )
    assert code == 0, complaints
    rows = pq.read_table(tmp_path / "results.parquet").to_pylist()
    assert {r["policy"] for r in rows} == {"uniform", "value"}
    clicks = [json.loads(line) for line in (site / "clicks.jsonl").read_text().splitlines()]
    scored = sum(c["clicks"] for c in clicks if at(3) <= c["at"] < at(DAYS))
    for name in ("uniform", "value"):
        for level in RULES[name].levels:
            mine = [r for r in rows if r["policy"] == name and r["level"] == level]
            assert len(mine) == 10 and sum(r["requests"] for r in mine) == pytest.approx(scored, abs=5)
            assert all(0.0 <= r["resources"] <= 1.0 and 0.0 <= r["freshness"] <= 1.0 for r in mine)
    ends = {r["level"]: r["resources"] for r in rows if r["policy"] == "uniform"}
    assert ends[0.0] == 0.0 and ends[1.0] == 1.0
    saved = pq.read_table(tmp_path / "summary.parquet").to_pylist()
    assert {s["policy"] for s in saved} == {"value"}
    # Half of the requests are for pages that never change: they need no crawl.
    assert np.mean([s["saved"] for s in saved if s["policy"] == "value"]) > 0.3
    assert (
        "crawls saved" in said
        and json.loads((tmp_path / "results.json").read_text())["requests"] == "of --requests"
    )


def test_without_a_log_requests_are_drawn_the_same_each_time(site, tmp_path):
    options = ("--requests_per_page_day=0.5", "--policies", "value")
    for name, repetitions in (("one", 2), ("two", 1)):
        assert _run(site, tmp_path / name, *options, f"--repetitions={repetitions}")[0] == 0
    one, two = (pq.read_table(tmp_path / name / "results.parquet") for name in ("one", "two"))
    assert one.filter(pc.field("repetition") == 0).equals(two)
    draws = {
        r["repetition"]: r["requests"] for r in one.to_pylist() if r["level"] == 1.0 and r["period"] == 0
    }
    assert len(draws) == 2 and len(set(draws.values())) == 2
    assert json.loads((tmp_path / "one" / "results.json").read_text())["requests"] == "drawn"


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--budgets", "0.3"], "--budgets: the rules of --on_request have levels of their own"),
        (
            ["--policies", "nutch-default"],
            "choose from uniform, frequency, metadata, dnn-metadata, dnn, recrawl, value",
        ),
        (["--against", "uniform"], "--against: --on_request compares with uniform crawling"),
        (["--requests_per_page_day=-1"], "--requests_per_page_day=-1: expected requests from 0 to"),
    ],
)
def test_what_cannot_work_is_said(site, tmp_path, options, said):
    code, _, complaints = _run(site, tmp_path, *options)
    assert code == 2 and said in complaints


def _untrained(rows: Rows, frequencies: bool, seed: int) -> Network:
    """What Keras would leave, of weights that are the number of the seed."""
    assert rows.changed.any() and not rows.changed.all()
    numbers, values = rows.numbers(frequencies), rows.values()
    size = numbers.shape[1]
    tables = tuple(np.arange(n + 1.0)[:, None] for n in values.max(axis=0))
    layer = np.full((size + len(tables), 1), 0.1 + seed)
    return Network(np.zeros(size), np.ones(size), tables, ((layer, np.zeros(1)),))


def test_networks_are_played_where_they_can_be_trained(site, tmp_path, monkeypatch):
    options = (f"--requests={site}/clicks.jsonl", "--policies", "dnn", "--warm_up=0.5")
    monkeypatch.setattr(trained, "has_keras", lambda: False)
    code, _, complaints = _run(site, tmp_path, *options)
    assert code == 2 and "--policies: dnn needs Keras: pip install '.[keras]', or leave it out" in complaints
    monkeypatch.setattr(trained, "has_keras", lambda: True)
    monkeypatch.setattr(trained, "network", _untrained)
    code, _, complaints = _run(site, tmp_path, *options[:-1], "--warm_up=0.01")
    assert (
        code == 2
        and "dnn is trained on what is not scored, a day at least, and there are 0 days" in complaints
    )
    code, _, complaints = _run(site, tmp_path, *options)
    assert code == 0, complaints
    rows = pq.read_table(tmp_path / "results.parquet").to_pylist()
    spent = [r["resources"] for r in rows if r["policy"] == "dnn"]
    assert len(spent) == 10 * len(RULES["dnn"].levels) and min(spent) < 0.1 and max(spent) > 0.9
