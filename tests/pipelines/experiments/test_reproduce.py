"""`recrawl reproduce`: files, what is said, and that nothing depends on the number of workers."""

import numpy as np
import pyarrow.parquet as pq
import pytest

from pipelines.door import cli
from pipelines.experiments import figures, reproduce, reproduced
from pipelines.experiments.figures.records import Claim, Made, Table

PAPER = [f"busa-fekete-{n}" for n in (3, 4, 5, 6, 7, 8, 10, 11, 12, 13, 14)]
HAN = ["han-table-5", "han-table-6", "han-figure-4", "han-figure-5", "han-figure-6"]
HAN_2019 = [f"han-2019-{name}" for name in ("table-2", "table-3", "figure-10", "figure-11")]
SCHULAM = ["schulam-2", "schulam-3", "schulam-4"]
SMALL = ("--pages", "25,40", "--repetitions", "2", "--until", "4", "--workers", "1")


def test_list_names_every_figure(capsys):
    assert cli.main(["reproduce", "list"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines[1:]] == PAPER + HAN_2019 + HAN + SCHULAM
    assert "100,200,500,750,1000,10000" in next(line for line in lines if line.startswith("busa-fekete-6 "))


@pytest.fixture(scope="module")
def six(tmp_path_factory):
    folder = tmp_path_factory.mktemp("six")
    argv = ["reproduce", "busa-fekete-6", *SMALL, "--output", str(folder)]
    assert cli.main(argv) == 0
    return folder, argv


def test_results_have_a_row_for_each_policy_size_and_repetition(six):
    table = pq.read_table(six[0] / "results.parquet")
    assert [str(table.schema.field(n).type) for n in ("policy", "pages", "repetition", "accuracy")] == [
        "string", "int64", "int32", "double"
    ]  # fmt: skip
    rows = table.to_pylist()
    policies = {"GREEDY", "GREEDY-CIS", "GREEDY-NCIS", "G-NCIS-APPROX-1", "G-NCIS-APPROX-2", "BASELINE"}
    keys = {(row["policy"], row["pages"], row["repetition"]) for row in rows}
    assert keys == {(p, m, r) for p in policies for m in (25, 40) for r in (0, 1)}
    assert len(rows) == len(keys)
    assert all(0.0 < row["accuracy"] <= 1.0 and row["bandwidth"] == 100.0 for row in rows)
    sampled = [row["accuracy_sampled"] for row in rows if row["policy"] != "BASELINE"]
    assert np.isfinite(sampled).all()


def test_signals_pay_in_the_smallest_experiment(six):
    rows = pq.read_table(six[0] / "results.parquet").to_pylist()
    by = {(row["policy"], row["pages"], row["repetition"]): row["accuracy"] for row in rows}
    for pages in (25, 40):
        for repetition in (0, 1):
            assert by["GREEDY-NCIS", pages, repetition] > by["GREEDY", pages, repetition]


def test_report_has_the_command_the_claims_and_the_pictures(six):
    report = " ".join((six[0] / "report.md").read_text(encoding="utf-8").split())
    assert "recrawl reproduce busa-fekete-6 --pages 25,40 --repetitions 2 --until 4 --output DIR" in report
    assert "Beta(0.25, 0.25)" in report and "±" in report
    assert "| holds | claim | ours | the paper |" in report
    if (six[0] / "busa-fekete-6.png").exists():
        assert "](busa-fekete-6.png)" in report
        assert (six[0] / "busa-fekete-6.svg").exists()


def test_a_document_keeps_one_report_a_figure(tmp_path):
    document = tmp_path / "docs" / "reproduction.md"
    document.parent.mkdir()
    document.write_text("# All of them\n\nBefore.\n", encoding="utf-8")
    argv = ["reproduce", "busa-fekete-13", "--pages", "20", "--repetitions", "1", "--until", "1000"]
    argv += ["--workers", "1", "--output", str(tmp_path), "--document", str(document)]
    assert cli.main(argv) == 0
    first = document.read_text(encoding="utf-8")
    assert first.startswith("# All of them\n\nBefore.\n")
    assert first.count("## busa-fekete-13: ") == 1
    if (tmp_path / "busa-fekete-13.png").exists():
        assert "](pictures/busa-fekete-13.png)" in first
        assert (document.parent / "pictures" / "busa-fekete-13.png").exists()
    document.write_text(first + "\nAfter.\n", encoding="utf-8")
    assert cli.main([*argv, "--no_plots"]) == 0
    again = document.read_text(encoding="utf-8")
    assert again.endswith("\nAfter.\n") and again.count("## busa-fekete-13: ") == 1


def test_a_document_has_the_papers_order(tmp_path):
    path = str(tmp_path / "all.md")
    nothing = Made({}, [], [], [])
    for name in ("busa-fekete-6", "busa-fekete-14", "busa-fekete-3", "busa-fekete-5", "busa-fekete-6"):
        reproduced.put(path, figures.get(name), nothing, "command", {}, figures.names())
    heads = [line.split()[1] for line in (tmp_path / "all.md").read_text().splitlines() if line[:3] == "## "]
    assert heads == ["busa-fekete-3:", "busa-fekete-5:", "busa-fekete-6:", "busa-fekete-14:"]


def test_workers_do_not_change_a_byte(six, tmp_path, forked_workers):
    folder, argv = six
    again = [*argv[: argv.index("--workers")], "--workers", "2", "--output", str(tmp_path)]
    assert cli.main(again) == 0
    for name in sorted(p.name for p in tmp_path.iterdir()):
        assert (tmp_path / name).read_bytes() == (folder / name).read_bytes(), name


def test_ours_is_printed_beside_the_papers_claim(six, tmp_path, capsys):
    _, argv = six
    short = [*argv[: argv.index("--pages")], "--pages", "20", "--repetitions", "1", "--until", "4"]
    assert cli.main([*short, "--workers", "1", "--no_plots", "--output", str(tmp_path)]) == 0
    said = capsys.readouterr().out
    assert "claims hold" in said and "ours:" in said and "paper: superior in almost every case" in said
    assert not list(tmp_path.glob("*.png"))


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["busa-fekete-9"], "did you mean busa-fekete-"),
        (["busa-fekete-6"], "--output is missing"),
        (["busa-fekete-6", "--pages", "10"], "10 is not within 20 and 200000"),
        (["busa-fekete-6", "--pages", "many"], "give whole numbers"),
        (["busa-fekete-6", "--repetitions", "0"], "--repetitions=0: give a number from 1"),
        (["busa-fekete-6", "--workers", "0"], "--workers=0"),
        (["busa-fekete-6", "--seed", "-1"], "--seed=-1"),
        (["busa-fekete-6", "--until", "1"], "give 4 to 100000 time units"),
        (["busa-fekete-6", "--until", "nan"], "--until=nan"),
        (["han-table-5", "--until", "50"], "has a fixed number of days"),
        (["busa-fekete-13", "--pages", "5000"], "not within 20 and 2000"),
        (["busa-fekete-6", "--colour"], "--colour"),
        (["busa-fekete-6", "--document", "nowhere/all.md"], "there is no folder nowhere: make it"),
        (["busa-fekete-6", "--document", "."], "--document=.: is a folder; give a Markdown file"),
        (["busa"], "no figure 'busa': `recrawl reproduce list` names them"),
    ],
)
def test_options_that_cannot_work(words, said, capsys):
    assert cli.main(["reproduce", *words]) == cli.EXIT_USAGE
    assert said in capsys.readouterr().err


def test_without_matplotlib_the_numbers_are_there(monkeypatch, tmp_path, capsys):
    def missing(_):
        raise reproduce.plots.NoPlotsError("no pictures: pip install '.[plots]'")

    monkeypatch.setattr(reproduce.plots, "draw", missing)
    argv = ["reproduce", "busa-fekete-3", "--pages", "20", "--repetitions", "1", "--until", "4"]
    assert cli.main([*argv, "--workers", "1", "--output", str(tmp_path)]) == 0
    assert ".[plots]" in capsys.readouterr().err
    assert (tmp_path / "results.parquet").exists() and "png" not in (tmp_path / "report.md").read_text()


def test_the_command_names_only_what_differs_from_the_figures_defaults():
    figure = figures.get("busa-fekete-12")
    assert (
        reproduced.command(figure, [1000], 100, 400.0, 0) == "recrawl reproduce busa-fekete-12 --output DIR"
    )
    assert reproduced.command(figure, [50], 3, 40.0, 7) == (
        "recrawl reproduce busa-fekete-12 --pages 50 --repetitions 3 --until 40 --seed 7 --output DIR"
    )


def test_tables_hold_what_text_may_hold():
    assert "a\\|b" in reproduced._markdown(Table("", ["h"], [["a|b"]]))
    assert reproduced.verdict([Claim("x", True, "", ""), Claim("y", False, "", "")]) == "1 of 2 claims hold"


def test_han_tables_run_through_the_same_command(tmp_path, capsys, monkeypatch):
    from pipelines.experiments.figures import han, han_figures, han_runs

    figure = figures.get("han-figure-5")
    monkeypatch.setattr(han_figures.han, "run", None)
    parts = [han_runs.run(task, (8, 3, 3)) for task in figure.tasks([60], 2, 0.0, 0, 1)]
    made = figure.make(parts)
    assert {"policy", "pages", "repetition", "accuracy"} <= set(made.columns)
    assert set(made.more) == {"summary", "arms"}
    table = reproduce.table_of(made.more["arms"])
    assert table.num_rows == len(made.more["arms"]["step"]) > 0
    panels = made.pictures[0].panels
    assert len(panels) == 4 and all(len(panel.series) == 5 for panel in panels)
    assert isinstance(han.TITLES["han-figure-5"], str)
