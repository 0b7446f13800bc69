"""README and docs/: their commands are run, or parsed where that takes long, and print what is shown."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from pipelines.door import cli
from pipelines.door.unknown import unknown_options
from pipelines.experiments import figures
from pipelines.experiments.reproduce import LIST
from tests.pipelines import dumps
from tests.pipelines.jobs import at, command, seen, write_rows

ROOT = Path(__file__).resolve().parent.parent
README, DOCS = ROOT / "README.md", ROOT / "docs"
_FENCED = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_INDENTED = re.compile(r"^    (recrawl (?:.*\\\n)*.*)$", re.MULTILINE)


def steps(document: Path) -> Iterator[tuple[str, str]]:
    """Blocks of a document in order: "sh" with one command each, and "" with what is printed."""
    for language, block in _FENCED.findall(document.read_text(encoding="utf-8")):
        if language == "sh":
            for line in block.replace("\\\n", " ").splitlines():
                yield "sh", line
        elif not language:
            yield "", block


def commands(document: Path) -> list[list[str]]:
    """Arguments of all calls of recrawl in a document."""
    lines = [line for kind, line in steps(document) if kind == "sh"]
    lines += [line.replace("\\\n", " ") for line in _INDENTED.findall(document.read_text(encoding="utf-8"))]
    dated = [re.sub(r'"\$\(date .*?\)"', "2026-07-01T00:00:00Z", line) for line in lines]
    calls = [line.split(" > ")[0] for line in dated if re.match(r"recrawl [a-z]", line)]
    return [shlex.split(line, comments=True)[1:] for line in calls]


CALLS = [
    pytest.param(words, id=f"{document.stem}-{n}")
    for document in (README, *sorted(DOCS.glob("*.md")))
    for n, words in enumerate(commands(document))
]


def test_commands_are_found() -> None:
    named = {call.values[0][0] for call in CALLS}
    assert named >= cli.COMMANDS.keys() - {"show"}
    assert len(CALLS) > 70


@pytest.mark.parametrize("words", CALLS)
def test_the_command_line_takes_it(words: list[str]) -> None:
    parsed, rest = cli.parser(words[0]).parse_known_args(words)
    # Flink's job server, which the command line asks, has more.
    assert unknown_options(rest) == []
    if parsed.command == "reproduce":
        assert parsed.figure in (LIST, *figures.names())


@dataclass
class Ran:
    """A command of the tutorial, and all that was printed until the next one."""

    line: str
    code: int
    printed: str


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with what the tutorial uses of a checkout."""
    folder = tmp_path_factory.mktemp("checkout")
    (folder / "docs").mkdir()
    shutil.copy(DOCS / "shop.py", folder / "docs")
    return folder


@pytest.fixture(scope="module")
def tutorial(checkout: Path) -> list[Ran]:
    """All commands of the tutorial, in order."""
    found = []
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(checkout)
        for line in (text for kind, text in steps(DOCS / "tutorial.md") if kind == "sh"):
            words = shlex.split(line)
            if words[0] == "recrawl":
                code, out, err = command(*words[1:])
                found.append(Ran(line, code, out + err))
            elif words[0] == "python3":
                subprocess.run([sys.executable, *words[1:]], check=True, capture_output=True)
                found.append(Ran(line, 0, ""))
    return found


def test_the_tutorial_runs(tutorial: list[Ran]) -> None:
    # The last one is for the last midnight.
    assert [(ran.line, ran.code) for ran in tutorial if ran.code] == [], tutorial[-1].printed
    assert len(tutorial) > 12


@pytest.mark.parametrize("document", [README, DOCS / "tutorial.md"], ids=["README", "tutorial"])
def test_commands_print_what_the_document_shows(document: Path, tutorial: list[Ran]) -> None:
    """The README's night is the tutorial's."""
    printed, shown, last = {ran.line: ran.printed for ran in tutorial}, 0, ""
    for kind, text in steps(document):
        if kind == "sh":
            last = text
            assert text in printed or not text.startswith(("recrawl", "python3"))
        else:
            missing = [line for line in text.splitlines() if line not in printed[last].splitlines()]
            assert not missing, (last, printed[last])
            shown += 1
    assert shown >= 2


NOT_RUN = {
    "README": "the tutorial's, see above",
    "tutorial": "see above",
    "crawlers": "tests/pipelines/look/test_export_recipes.py",
    "cluster": "needs Prism or Flink: tests/cluster",
    "backtest": "seconds; tests/pipelines/experiments/test_backtest.py and test_backtest_logs.py",
    "on_request": "seconds; tests/pipelines/experiments/test_on_request.py",
    "discovery": "seconds; tests/pipelines/experiments/test_backtest_discovery.py",
    "dynamics": "seconds; tests/pipelines/dynamics/test_dynamics.py",
    "scaling": "18.5 million pages",
    "simulate": "minutes; smaller ones in tests/pipelines/experiments/test_simulate.py",
    "predictors": "minutes; tests/pipelines/experiments/test_han_2019.py",
    "reproduction": "minutes to hours; tests/pipelines/experiments/test_reproduce.py",
}
NOT_HERE = "postgresql://"
"""What there is no server for."""
FIRST = ("inputs", "discovery_job", "formats")
"""Pages whose nights those of other pages go on from."""
PLACES = {
    "/srv/recrawl/nights/20260701T000000Z": "recrawl-store/nights/20260615T000000Z",
    "/srv/recrawl/store": "recrawl-store",
    "/srv/recrawl": "recrawl-store",
    "/var/": "var/",
    "https://shop.example/offers/4611": "https://shop.example/offers/1",
}
DAYS = 10


def lay_out_inputs(folder: Path) -> None:
    """Files by all names that documents use, each of a few pages: June 22 to July 1."""
    pages = [{"url": f"https://a.test/{i}"} for i in range(8)]
    for day in range(21, 21 + DAYS):
        rows = []
        for i, page in enumerate(pages):
            row = seen(page["url"], at(day, 2 * i), f"{(day * (i + 1)) // 5:040x}")
            rows.append(row | {"crawl_time": row["fetched_at"], "body_sha1": row["digest"]})
        date = at(day)[:10]
        clicks = [{"url": page["url"], "day": date, "clicks": i + 1} for i, page in enumerate(pages)]
        links = [
            {
                "source": "https://a.test/",
                "target": f"https://a.test/{day}-{hour // 6}",
                "seen_at": at(day, hour),
            }
            for hour in range(24)
        ]
        for name in (f"{date}.jsonl", f"{date}/crawl.jsonl"):
            write_rows(folder / "logs" / name, rows)
            write_rows(folder / "links" / name, links)
        write_rows(folder / "clicks" / f"{date}.csv", clicks)
    write_rows(folder / "pages.parquet", pages)
    write_rows(folder / "clicks.csv", clicks)
    dumps.nutch(folder)
    dumps.heritrix(folder)
    shutil.copytree(folder / "dump", folder / "crawldb-dump")
    (folder / "crawldb-dump" / "part-r-00000").rename(folder / "crawldb-dump" / "part-00000")
    (folder / "logs/2026-07-01").mkdir(exist_ok=True)
    shutil.copy(folder / "jobs/shop/latest/logs/crawl.log", folder / "logs/2026-07-01")


def test_all_others_run(tutorial: list[Ran], checkout: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(checkout)
    lay_out_inputs(checkout)
    documents = sorted({p.stem for p in DOCS.glob("*.md")} - {*FIRST})
    assert NOT_RUN.keys() - {"README"} <= {*documents}
    (checkout / "recrawl.toml").unlink()
    links = "--links=links/2026-06-30.jsonl"
    assert command("discover", links, "--budget=9", f"--as_of={at(30)}", "--output=found-01")[0] == 0
    failed = []
    for document in (*FIRST, *documents):
        for words in [] if document in NOT_RUN else commands(DOCS / f"{document}.md"):
            if any(word.startswith(NOT_HERE) for word in words):
                continue
            for there, here in PLACES.items():
                words = [re.sub(rf"^{there}", here, word) for word in words]
            if "--output" in words:
                Path(words[words.index("--output") + 1]).parent.mkdir(parents=True, exist_ok=True)
            # Else a night that was run before is not run again.
            code, out, err = command(*words, *[f"--store=of-{document}"] * (words[0] == "night"))
            if code:
                failed.append((document, code, shlex.join(words), out[-2000:] + err))
    assert not failed, "\n".join(map(str, failed))
