"""`recrawl backtest-discovery` from files to tables."""

import csv
import gzip
import json
import math
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq
import pytest

from benchmarks.measuring.histories import shared_folder
from pipelines.door import cli

SHARED = shared_folder()
NEWS = SHARED / "data" / "discovery" / "news_de_sections"
FIRST = [
    "policy", "domain", "k", "seed", "coverage", "found_within_3h", "overhead", "htd_p90", "refreshes",
]  # fmt: skip
HOUR, START, HOURS = 3600, 1_767_052_800, 60  # 2025-12-30
FAST = ("--workers=1", "--no_plots", "--repetitions=2", "--warmup_hours=12")


def made(folder: Path, number: int = 0) -> tuple[Path, Path]:
    """Links and polls of six sources of two domains, as CSV."""
    rng = np.random.Generator(np.random.Philox(key=number))
    links, polls = [], []
    for s in range(6):
        source = f"https://www.{'ab'[s % 2]}.test/section{s}"
        polls += [(source, START + h * HOUR + 60 * s) for h in range(HOURS) if rng.random() < 0.95]
        for t in range(rng.poisson(HOURS * 0.2 * 3.0 ** (s % 3))):
            at = START + rng.uniform(0, HOURS * HOUR)
            gone = at + rng.exponential(6 * HOUR)
            end = "" if gone > START + HOURS * HOUR else f"{gone:.3f}"
            links.append((source, f"https://www.{'ab'[s % 2]}.test/{s}/{t}", f"{at:.3f}", end))
    return _write(folder / "links.csv", ("source", "target", "appeared_at", "gone_at"), links), _write(
        folder / "polls.csv", ("source", "seen_at"), polls
    )


def _write(path: Path, names: tuple[str, ...], rows: list[tuple[object, ...]]) -> Path:
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([names, *rows])
    return path


def run(*words: str | Path) -> int:
    return cli.main(["backtest-discovery", *(str(w) for w in words)])


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("discovery")
    links, polls = made(folder)
    options = ("--k", "1,2", *FAST, f"--output={folder / 'out'}")
    assert run(f"--links={links}", f"--snapshots={polls}", *options) == 0
    return folder


def test_a_row_for_each_policy_domain_budget_and_seed(results: Path) -> None:
    table = pq.read_table(results / "out" / "results.parquet")
    assert table.schema.names[:9] == FIRST
    rows = table.to_pylist()
    policies = {r["policy"] for r in rows}
    assert {"recrawl", "oracle", "thompson", "pham", "round-robin", "uniform", "elapsed"} < policies
    keys = {(r["policy"], r["domain"], r["k"], r["seed"]) for r in rows}
    wanted = {
        (p, d, k, s) for p in policies for d in ("a.test", "b.test", "all") for k in (1, 2) for s in (0, 1)
    }
    assert keys == wanted and len(rows) == len(keys)
    assert all(0.0 <= r["found_within_3h"] <= r["coverage"] <= 1.0 for r in rows)
    # 48 hours after the warm-up; the Oracle refreshes nothing that adds nothing.
    assert {r["refreshes"] for r in rows if r["policy"] != "oracle"} == {48, 96}
    assert all(math.isclose(r["regret"], 0.0) for r in rows if r["policy"] == "oracle")
    said = json.loads((results / "out" / "results.json").read_text())
    assert said["facts"]["domains"] == {"a.test": 3, "b.test": 3} and said["facts"]["steps"] == 60


def test_the_order_of_rows_and_the_format_change_no_byte(results: Path, tmp_path: Path) -> None:
    read = {name: pa_csv.read_csv(results / f"{name}.csv") for name in ("links", "polls")}
    shuffled = np.random.Generator(np.random.Philox(key=5))
    for name, table in read.items():
        pq.write_table(
            table.take(pa.array(shuffled.permutation(table.num_rows))), tmp_path / f"{name}.parquet"
        )
    inputs = f"--links={tmp_path}/links.parquet", f"--snapshots={tmp_path}/polls.parquet"
    assert run(*inputs, "--k", "2", "1", *FAST, f"--output={tmp_path / 'out'}") == 0
    for name in ("results.parquet", "over_time.parquet", "summary.parquet"):
        assert (tmp_path / "out" / name).read_bytes() == (results / "out" / name).read_bytes(), name


def small(folder: Path, links: list[str], polls: list[str], *options: str) -> dict[str, object]:
    """Facts of a run over lines of CSV, and what was rejected."""
    (folder / "l.csv").write_text("\n".join(["source,target,appeared_at,gone_at", *links]))
    (folder / "s.csv").write_text("\n".join(["source,seen_at,status", *polls]))
    words = ("--policies", "recrawl", "--warmup_hours=0", "--workers=1", "--no_plots", *options)
    inputs = f"--links={folder / 'l.csv'}", f"--snapshots={folder / 's.csv'}"
    assert run(*inputs, *words, f"--output={folder / 'o'}") == 0
    said = json.loads((folder / "o" / "results.json").read_text())
    return {**said["facts"], "rows": said["rows"]}


def lines(source: str, hours: int, status: str = "200") -> list[str]:
    return [f"{source},{START + h * HOUR + 60},{status}" for h in range(hours)]


def test_variants_of_a_url_are_one_target_and_one_source(tmp_path: Path) -> None:
    variants = [
        "https://a.test/1", "http://a.test/1", "a.test/1", "https://a.test/1?utm_source=x", "https://a.test/1#top",
        "https://a.test/1?fbclid=7#top",
    ]  # fmt: skip
    links = [f"https://a.test/,{v},{START + i * HOUR}," for i, v in enumerate(variants)]
    links.append(f"http://a.test,https://a.test/1?page=2,{START},")
    facts = small(tmp_path, links, lines("a.test", 10))
    assert facts["targets"] == 2 and facts["sources"] == 1
    assert facts["rows"]["links_accepted"] == 7


def test_rejected_rows_are_counted_by_reason(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    good = f"https://a.test/,https://a.test/1,{START},"
    bad = [
        f"ftp://a.test/,https://a.test/1,{START},",
        f"https://a.test/,mailto:me@a.test,{START},",
        f"https://a.test/,,{START},",
        "https://a.test/,https://a.test/1,yesterday,",
        f"https://a.test/,https://a.test/1,{START},never",
        f"https://a.test/,https://a.test/1,{START},{START - 1}",
    ]
    rows = small(tmp_path, [good, *bad], [*lines("https://a.test/", 5), f",{START},200"])["rows"]
    assert rows == {
        "links_accepted": 1,
        "links_rejected": 6,
        "links_rejected_bad_gone_at": 1,
        "links_rejected_bad_target": 2,
        "links_rejected_bad_timestamp": 1,
        "links_rejected_bad_url": 1,
        "links_rejected_gone_before_appeared": 1,
        "snapshots_accepted": 5,
        "snapshots_rejected": 1,
        "snapshots_rejected_no_url": 1,
    }
    assert "links: bad_target 2" in capsys.readouterr().out


def test_polls_that_fail_or_lead_elsewhere_are_none(tmp_path: Path) -> None:
    polls = [
        *lines("https://a.test/", 12),
        *lines("https://b.test/", 6, "503"),
        *lines("https://c.test/", 6, "301"),
    ]
    links = [f"https://{x}.test/,https://{x}.test/{i},{START + i * HOUR}," for x in "abc" for i in range(8)]
    facts = small(tmp_path, links, polls)
    assert (facts["polls"], facts["polls_failed"], facts["sources_without_polls"]) == (12, 12, 2)
    assert facts["sources"] == 1 and facts["presences"] == 8


def test_targets_off_the_site_count_for_the_site_of_the_source(tmp_path: Path) -> None:
    links = [f"https://m.a.co.uk/,https://elsewhere.test/{i},{START + i * HOUR}," for i in range(6)]
    links += [f"https://www.a.co.uk/x,https://elsewhere.test/{i},{START + i * HOUR}," for i in range(6)]
    polls = lines("https://m.a.co.uk/", 12) + lines("https://www.a.co.uk/x", 12)
    facts = small(tmp_path, links, polls)
    assert facts["domains"] == {"a.co.uk": 2} and facts["targets"] == 6


def test_without_polls_links_say_what_is_there(results: Path, tmp_path: Path) -> None:
    words = ("--policies", "round-robin", "--pooled", "--k", "6", *FAST, f"--output={tmp_path}")
    assert run(f"--links={results / 'links.csv'}", *words) == 0
    rows = pq.read_table(tmp_path / "results.parquet").to_pylist()
    assert {r["domain"] for r in rows} == {"all"}
    # All sources in each step: what stays to the end of an hour is found at once.
    assert all(r["coverage"] == r["found_within_1h"] == 1.0 for r in rows)


def test_a_column_may_say_the_domain_and_columns_may_have_other_names(tmp_path: Path) -> None:
    rows = [
        {
            "page": f"https://{s}.test/",
            "link": f"https://x.test/{s}{t}",
            "first": START + t * HOUR,
            "domain": "one",
        }
        for s in "abc"
        for t in range(30)
    ]
    with gzip.open(tmp_path / "l.jsonl.gz", "wt") as file:
        file.writelines(json.dumps(r) + "\n" for r in rows)
    words = (
        "--links_columns",
        "source=page,target=link,appeared_at=first",
        "--no_pooled",
        "--policies",
        "uniform",
    )
    assert run(f"--links={tmp_path / 'l.jsonl.gz'}", *words, *FAST, f"--output={tmp_path / 'o'}") == 0
    found = pq.read_table(tmp_path / "o" / "results.parquet").to_pylist()
    assert {r["domain"] for r in found} == {"one"}


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--k=0",), "--k=0: expected refreshes a step"),
        (("--policies=recral",), "did you mean recrawl?"),
        (("--pooled", "--no_pooled"), "give one of them"),
        (("--links_columns=sorce=a",), "OURS one of source, target, appeared_at, gone_at, domain"),
        (("--warmup_hours=1000",), "give links of a longer time, or a shorter --warmup_hours"),
        (
            ("--warmup_hours=1", "--step_hours=100", "--start=2025-12-30"),
            "or a shorter --warmup_hours or --step_hours",
        ),
        (("--start=2031-01-01", "--end=2031-02-01"), "no source shows a link in the window"),
    ],
    ids=lambda value: value[0] if isinstance(value, tuple) else "",
)
def test_what_cannot_be_is_said(
    words: tuple[str, ...], said: str, results: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    inputs = f"--links={results / 'links.csv'}", f"--snapshots={results / 'polls.csv'}"
    assert run(*inputs, "--workers=1", *words, f"--output={tmp_path / 'o'}") == 2
    assert said in capsys.readouterr().err


def test_inputs_that_leave_nothing_say_why(
    results: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    back = tmp_path / "back.csv"
    back.write_text(
        "source,target,appeared_at,gone_at\nhttps://a.test/,https://a.test/1,2026-01-02,2026-01-01\n"
    )
    assert run(f"--links={back}", "--workers=1", f"--output={tmp_path / 'o'}") == 2
    assert "Rejected rows: links: gone_before_appeared 1" in capsys.readouterr().err
    polls = tmp_path / "polls.csv"
    polls.write_text("source,seen_at\nhttps://other.test/,2026-01-01\nhttps://other.test/,2026-01-04\n")
    words = f"--links={results / 'links.csv'}", f"--snapshots={polls}", "--workers=1"
    assert run(*words, f"--output={tmp_path / 'o'}") == 2
    assert "no source of --snapshots has a link in --links" in capsys.readouterr().err
    polls.write_text("source,seen_at\n")  # is not to go without
    assert run(*words, f"--output={tmp_path / 'o'}") == 2
    assert "no usable row of --snapshots" in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.shared_data
@pytest.mark.skipif(
    not NEWS.exists(), reason=f"no {NEWS.name} in {SHARED}; set RECRAWL_SHARED to the folder that holds it"
)
def test_on_hourly_news_sections(tmp_path: Path) -> None:
    """What a trial of others found: the Oracle's and Thompson's levels; and ours above what it found."""
    words = (
        f"--links={NEWS / 'links.tsv.gz'}",
        "--links_columns=source=source_id,target=link_url,appeared_at=add_time,gone_at=remove_time",
        f"--snapshots={NEWS / 'snapshots.tsv.gz'}",
        "--snapshots_columns=source=source_id,seen_at=time",
    )
    chosen = ("--policies", "recrawl,oracle,thompson", "--repetitions=3", "--workers=1", "--no_plots")
    assert run(*words, *chosen, "--k", "1,2,5,20", f"--output={tmp_path}") == 0
    rows = pq.read_table(tmp_path / "summary.parquet").to_pylist()
    at = {(r["budget"], r["policy"], r["k"]): r for r in rows}
    for k, oracle, thompson, ours, soon in (
        (1, 0.938, 0.79, 0.90, 0.82),
        (2, 0.985, 0.91, 0.96, 0.93),
        (5, 1.0, 0.98, 0.995, 0.99),
    ):
        assert at["each", "oracle", k]["coverage"] == pytest.approx(oracle, abs=0.002)
        assert at["each", "thompson", k]["coverage"] == pytest.approx(thompson, abs=0.02)
        for name, asked in (("coverage", ours), ("found_within_3h", soon)):
            found = at["each", "recrawl", k]
            assert found[name] - found[f"{name}_standard_error"] >= asked, (k, name)
    for k, oracle, ours in ((5, 0.85, 0.77), (20, 0.996, 0.97)):
        assert at["all", "oracle", k]["coverage"] == pytest.approx(oracle, abs=0.003)
        found = at["all", "recrawl", k]
        assert found["coverage"] - found["coverage_standard_error"] >= ours
