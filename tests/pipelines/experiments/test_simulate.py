"""`recrawl simulate` from options to tables and pictures."""

import hashlib
import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pipelines.door import cli
from pipelines.experiments.result_schemas import OVER_TIME, SIMULATION
from pipelines.pictures import plots
from pipelines.pictures.plots import Picture
from transforms.replay.backtesting import POLICIES
from transforms.replay.simulating import TOLD

SMALL = ("--pages=40", "--bandwidth=8", "--until=20", "--repetitions=2")


def run(*options: str | Path) -> int:
    return cli.main(["simulate", *(str(o) for o in options)])


def sums(folder: Path) -> dict[str, str]:
    return {
        f.name: hashlib.sha256(f.read_bytes()).hexdigest() for f in sorted(folder.iterdir()) if f.is_file()
    }


def test_tables_and_bytes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options = ["--pages", "40", "80", "--bandwidth", "8,16", "--until=20", "--repetitions=3", "--sampled"]
    policies = ["--policies", "uniform", "GREEDY", "heritrix,BASELINE", "--against=GREEDY"]
    assert run(*options, *policies, "--workers=1", "--no_plots", f"--output={tmp_path}/one") == 0
    text = capsys.readouterr().out
    results = pq.read_table(tmp_path / "one" / "results.parquet")
    assert results.schema.equals(SIMULATION)
    rows = results.to_pylist()
    assert [r["policy"] for r in rows[::3]] == ["uniform", "GREEDY", "heritrix", "BASELINE"] * 4
    assert [(r["pages"], r["bandwidth"]) for r in rows[::12]] == [(40, 8), (40, 16), (80, 8), (80, 16)]
    for row in rows:
        assert row["budget"] == row["bandwidth"] / row["pages"]
        assert 0 < row["accuracy"] < 1 and 0 < row["offer_freshness"] < 1
        assert (row["crawls"] is None) == (row["requests"] is None) == (row["policy"] == "BASELINE")
        if row["crawls"]:
            assert row["spent"] == pytest.approx(row["budget"], rel=0.03)
    over_time = pq.read_table(tmp_path / "one" / "over_time.parquet")
    assert over_time.schema.equals(OVER_TIME)
    assert len(over_time) == 20 * len(rows)
    scored = [r["accuracy"] for r in over_time.to_pylist()[:20] if r["begin"] >= 8]
    assert sum(scored) / len(scored) == pytest.approx(rows[0]["accuracy"])

    assert "40 pages, 16 crawls per day (0.4 per page), 3 repetitions" in text
    assert "* is told the true rates" in text
    for row in pq.read_table(tmp_path / "one" / "summary.parquet").to_pylist():
        mine = sorted(
            r["accuracy"]
            for r in rows
            if (r["policy"], r["pages"], r["bandwidth"]) == (row["policy"], row["pages"], row["bandwidth"])
        )
        assert row["median"] == mine[1] and row["mean"] == pytest.approx(sum(mine) / 3)
        assert f"{100 * row['median']:.2f}" in text
        if row["policy"] in ("uniform", "heritrix"):
            assert row["gain"] < 0 and row["wins"] == 0 and row["p_value"] == 0.25


def test_the_same_bytes_whoever_does_the_work(tmp_path: Path, forked_workers: None) -> None:
    options = ["--pages=20,40", "--bandwidth=8", "--until=10", "--repetitions=2", "--sampled", "--no_plots"]
    policies = ["--policies", "uniform", "GREEDY", "heritrix,BASELINE", "--against=GREEDY"]
    for workers in (1, 2):
        assert run(*options, *policies, f"--workers={workers}", f"--output={tmp_path}/{workers}") == 0
    assert sums(tmp_path / "1") == sums(tmp_path / "2")


def test_all_that_decides_is_written_down(tmp_path: Path) -> None:
    world = ["--world=gamma", "--shape=0.8", "--signals=true", "--recall=2,1", "--delay=0.5", "--seed=7"]
    options = ["--policies", "GREEDY-NCIS-D", "--no_plots", "--workers=1", f"--output={tmp_path}/out"]
    assert run(*SMALL, *world, *options) == 0
    published = json.loads((tmp_path / "out" / "simulate.json").read_text())["options"]
    assert published["plan"] == {
        "model": {
            "kind": "gamma",
            "requests": "zipf",
            "change_rate": 0.5,
            "shape": 0.8,
            "recall": [2.0, 1.0],
            "false_signals": [0.0, 0.0],
            "delay": 0.5,
        },
        "days": 20,
        "warm_up": 0.4,
        "seed": 7,
        "discard": 0.5,
        "requests": False,
    }
    assert published["against"] == "GREEDY-NCIS-D" and published["repetitions"] == 2
    assert not {"workers", "output"} & set(published)


def test_pictures(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn: list[Picture] = []

    def draw(picture: Picture) -> dict[str, bytes]:
        drawn.append(picture)
        return {f"{picture.name}.png": b"png"}

    monkeypatch.setattr(plots, "draw", draw)
    options = ["--pages=20,40", "--bandwidth=4,8", "--until=20", "--repetitions=2", "--workers=1"]
    options += ["--policies", "GREEDY", "BASELINE"]
    assert run(*options, f"--output={tmp_path}/out") == 0
    assert [p.name for p in drawn] == [
        "accuracy_against_pages",
        "accuracy_against_budget",
        "accuracy_over_time",
    ]
    assert [len(p.panels) for p in drawn] == [2, 2, 4]
    by_pages, _, over_time = (p.panels[0] for p in drawn)
    assert [s.label for s in by_pages.series] == ["GREEDY", "BASELINE"]
    assert by_pages.series[0].x.tolist() == [20, 40]
    assert [len(s.x) for s in over_time.series] == [20, 20]
    assert "accuracy_over_time.png" in capsys.readouterr().out
    assert (tmp_path / "out" / "accuracy_over_time.png").read_bytes() == b"png"

    def missing(picture: Picture) -> dict[str, bytes]:
        raise plots.NoPlotsError("no pictures (x): pip install '.[plots]'")

    monkeypatch.setattr(plots, "draw", missing)
    assert run(*options, f"--output={tmp_path}/bare") == 0
    told = capsys.readouterr()
    assert "no pictures (x): pip install" in told.err and "4 crawls per day" in told.out


def test_wrong_options_are_told_together(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options = ["--pages=0", "--bandwidth=x", "--until=1", "--warm_up=1", "--repetitions=0", "--seed=-1"]
    options += ["--world=unifrom", "--requests=clicks", "--recall=1", "--false_signals=3,1", "--delay=-1"]
    options += ["--policies", "greedy", "G-NCIS-APPROX-0", "recrwl", "--workers=0", f"--output={tmp_path}"]
    assert run(*options, "--budgets=3") == 2
    text = capsys.readouterr().err
    for told in (
        "--pages=0: expected pages, a whole number from 1 to 200000",
        "--bandwidth=x: expected crawls per day over all pages from 0.001 to 1e+07",
        "--until=1: expected days, a whole number from 2 to 100000",
        "--warm_up=1: expected share of the days from 0 to 0.9",
        "--repetitions=0: expected repetitions, a whole number from 1 to 100000",
        "--seed=-1: expected seed, a whole number from 0 to 2147483647",
        "--world=unifrom: choose from uniform, gamma, offers; did you mean uniform?",
        "--requests=clicks: the world unifrom has none: use --world=offers",
        "--recall=1: expected two numbers, as 0.25,0.25",
        "--false_signals=3,1: the first is above the second",
        "--delay=-1: expected days from 0 to 100000",
        "--policies: greedy: choose from GREEDY, GREEDY-CIS,",
        "; did you mean GREEDY?",
        "; did you mean recrawl?",
        "--policies: G-NCIS-APPROX-0: choose from",
        "--workers=0: expected processes, a whole number from 1 to 1024",
        "--budgets=3: neither recrawl nor Beam knows this option",
    ):
        assert told in text
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (
            ["--pages=100000", "--until=1000"],
            "--pages=100000 for --until=1000 days: more than 50,000,000 pages times days do not fit",
        ),
        (
            ["--bandwidth=1e6", "--until=30"],
            "--bandwidth=1e+06 for --until=30 days: more than 20,000,000 crawls: lower one of them",
        ),
        (
            ["--bandwidth=0.05", "--until=20"],
            "--bandwidth=0.05 in 12 scored days: less than one crawl: raise it or --until",
        ),
        (
            ["--world=offers", "--shape=1", "--policies", "BASELINE"],
            "--shape: the world offers has none",
        ),
        (["--world=offers", "--policies", "BASELINE"], "--policies: BASELINE: exact for changes at random"),
        (["--signals=none", "--recall=1,1"], "--recall: no use with --signals=none: use true or noisy"),
        (["--signals=none", "--policies", "sitemap"], "--policies: sitemap: there are none with --signals"),
        (
            ["--requests=equal", "--policies", "recrawl+equal"],
            "recrawl+equal: all pages weigh alike with --requests=equal: take others",
        ),
        (["--policies", "recrawl+groups"], "recrawl+groups: the world uniform has no metadata: use --world"),
        (["--policies", "LDS", "--against=LSD"], "--against=LSD: not among --policies; did you mean LDS?"),
        (["--policies", ","], "--policies: names nothing"),
    ],
)
def test_options_that_do_not_fit_together(
    options: list[str], told: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(*options, f"--output={tmp_path}/out") == 2
    assert told in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_a_world_that_cannot_be_is_told_in_a_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    world = ["--world=offers", "--pages=3", "--bandwidth=1", "--until=4", "--policies", "GREEDY"]
    assert run(*world, "--workers=1", f"--output={tmp_path}/out") == 2
    told = capsys.readouterr().err
    assert "recrawl: GREEDY, 3 pages, 1 crawls per day: 3 offers have no click in 4 days: take more" in told
    assert "Traceback" not in told and not list((tmp_path / "out").iterdir())


def test_help_names_all_policies(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        run("--help")
    text = capsys.readouterr().out
    assert all(f"  {name} " in text for name in (*TOLD, *POLICIES))


def test_default_policies_are_those_that_the_world_allows(tmp_path: Path) -> None:
    world = ["--world=offers", "--signals=none", "--pages=60", "--bandwidth=12", "--until=8"]
    assert run(*world, "--repetitions=1", "--no_plots", "--workers=1", f"--output={tmp_path}/out") == 0
    found = pa.compute.unique(pq.read_table(tmp_path / "out" / "results.parquet").column("policy"))
    assert "recrawl" in found.to_pylist() and "LDS" in found.to_pylist()
    assert not {"recrawl+signals", "BASELINE"} & set(found.to_pylist())
