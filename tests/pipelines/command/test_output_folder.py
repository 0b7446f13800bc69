"""The folder of results: checked before the work, cleared of what an earlier run left."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from pipelines.command import output_folder
from pipelines.command.errors import OptionsError
from pipelines.door import cli
from pipelines.experiments import backtest, backtest_discovery, frontier, reproduce, simulate

TINY = ("--until=6", "--repetitions=1", "--policies=uniform", "--workers=1", "--bandwidth=5")


def _run(folder: Path, *options: str) -> int:
    return cli.main(["simulate", f"--output={folder}", *TINY, *options])


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("", "names nothing; give a folder"),
        ("file", "is a file; give a folder"),
        ("file/below", "Not a directory; make room, or give a folder"),
        ("night*", "give another name"),
        ("nowhere://there", "nowhere://there"),
    ],
)
def test_a_folder_that_cannot_be_one_is_refused(
    name: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("file").write_text("mine")
    with pytest.raises(OptionsError) as caught:
        output_folder.check(name)
    (problem,) = caught.value.problems
    assert problem.startswith(f"--output={name}: ") and said in problem
    assert Path("file").read_text() == "mine"


@pytest.mark.parametrize("command", ["simulate", "backtest", "backtest-discovery", "frontier", "reproduce"])
def test_the_folder_is_tried_before_the_work(
    command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A run that began to work would say so first."""
    taken, changes, links = tmp_path / "taken", tmp_path / "changes.csv", tmp_path / "links.csv"
    taken.write_text("mine")
    links.write_text("source,target,appeared_at\na.test/,a.test/1,2026-06-01T00:00:00Z\n")
    changes.write_text("url,changed_at\nhttps://a.test/,2026-06-01T00:00:00Z\n")
    words = {
        "simulate": TINY,
        "backtest": (f"--changes={changes}", "--workers=1"),
        "backtest-discovery": (f"--links={links}", "--workers=1"),
        "frontier": (f"--changes={changes}", "--workers=1", "--target=0.9"),
        "reproduce": ("busa-fekete-3", "--workers=1"),
    }[command]
    assert cli.main([command, f"--output={taken}", *words]) == 2
    assert capsys.readouterr().err == f"recrawl: --output={taken}: is a file; give a folder\n"


def test_trying_leaves_nothing(tmp_path: Path) -> None:
    output_folder.check(str(tmp_path / "new" / "folder"))
    assert [p.name for p in tmp_path.rglob("*")] == ["new", "folder"]


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_full_disk_names_the_folder_and_the_remedy(
    when: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    module, name = {"before": (output_folder, "write_file"), "after": (simulate, "write_table")}[when]
    monkeypatch.setattr(module, name, full)
    code = _run(tmp_path, "--pages=20")
    said = capsys.readouterr().err.splitlines()[-1]
    assert code == {"before": 2, "after": 1}[when]
    assert f"--output={tmp_path}: " in said and "No space left on device" in said and "make room" in said
    assert "manifest" not in said and "night" not in said


def test_pictures_of_an_earlier_run_go_and_nothing_else(tmp_path: Path) -> None:
    strangers = ["accuracy.png", "accuracy_over_time-mine.png", "notes.md", "accuracy_over_time.pdf"]
    for name in [*strangers, "accuracy_against_pages.png", "accuracy_against_budget.svg"]:
        (tmp_path / name).write_text("old")
    assert _run(tmp_path, "--pages=20", "--no_plots") == 0
    there = {p.name for p in tmp_path.iterdir()}
    assert there == {*strangers, "results.parquet", "over_time.parquet", "summary.parquet", "simulate.json"}
    assert all((tmp_path / name).read_text() == "old" for name in strangers)


def test_a_run_that_cannot_be_leaves_the_earlier_one_as_it_was(tmp_path: Path) -> None:
    (tmp_path / "accuracy_over_time.png").write_text("old")
    changes = tmp_path / "changes.csv"
    changes.write_text("url,changed_at\nhttps://a.test/,2026-06-01T00:00:00Z\n")
    (tmp_path / "report.html").write_text("old")
    assert cli.main(["backtest", f"--changes={changes}", f"--output={tmp_path}", "--workers=1"]) == 2
    assert (tmp_path / "report.html").read_text() == "old"


@pytest.mark.parametrize(
    ("own", "names"),
    [
        (lambda: simulate.OWN, {"results.parquet", "accuracy_over_time.svg"}),
        (lambda: backtest.OWN, {"results.parquet", "days.parquet", "report.html"}),
        (lambda: backtest_discovery.OWN, {"results.parquet", "over_time.parquet", "regret-all.png"}),
        (lambda: frontier.OWN, {"frontier.parquet"}),
        (reproduce.own, {"results.parquet", "report.md", "rates.parquet", "han-table-5.png"}),
    ],
    ids=["simulate", "backtest", "backtest-discovery", "frontier", "reproduce"],
)
def test_what_a_command_may_have_left(own: Callable[[], list[str]], names: set[str]) -> None:
    assert names <= set(own())
    assert not [n for n in own() if set(n) & set("*?[/")]
