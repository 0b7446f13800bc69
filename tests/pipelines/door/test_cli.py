"""The command line: help, options checked all at once, errors that a person can act on."""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
from pathlib import Path

import pytest

from pipelines.command.version import __version__
from pipelines.door import cli, explaining
from pipelines.nightly.options import NightlyOptions
from tests.pipelines.jobs import at, command, crawls, nightly, write_rows
from transforms.batches.errors import InputError

OPTIONS = Path(__file__).resolve().parents[3] / "docs" / "options.md"

GOOD = ("--observations=x", "--budget=1", "--as_of=2026-07-01", "--output=o")


def _problems(*arguments: str) -> list[str]:
    """Problems that `recrawl nightly` names before it does anything."""
    code, out, err = command("nightly", *arguments)
    assert code == 2 and not out, (code, out, err)
    assert "Traceback" not in err
    lines = err.splitlines()
    if len(lines) == 1:
        return [lines[0].removeprefix("recrawl: ")]
    assert lines[0] == f"recrawl: {len(lines) - 1} problems"
    return [line.strip() for line in lines[1:]]


def _options() -> list[argparse.Action]:
    parser = argparse.ArgumentParser(add_help=False)
    NightlyOptions._add_argparse_args(parser)
    return parser._actions


def test_help_lists_the_commands():
    code, out, _ = command("--help")
    assert code == 0
    assert re.search(r"^\s+nightly\s+\S", out, re.MULTILINE) and re.search(
        r"^\s+synthesize\s+\S", out, re.MULTILINE
    )
    codes = out[out.index("exit codes") :]
    documented = re.findall(r"^\| ((?:\d+(?:, )?)+) \|", OPTIONS.read_text(), re.MULTILINE)
    documented = {code for row in documented for code in row.split(", ")}
    assert {"0", "6", "143"} <= documented <= {*re.findall(r"\b\d+\b", codes)}


def test_help_of_nightly_names_every_option():
    code, out, _ = command("nightly", "--help")
    assert code == 0
    for option in _options():
        assert option.option_strings[0] in out


@pytest.mark.parametrize("option", _options(), ids=lambda o: o.dest)
def test_every_option_says_what_it_is(option):
    assert option.help and len(option.help) > 15
    assert not option.required  # it would stop other pipelines of the process


@pytest.mark.parametrize(
    "name, unit",
    [
        ("budget", "per day"),
        ("horizon_hours", "hours"),
        ("host_max_per_day", "per day"),
        ("host_min_gap_seconds", "seconds"),
        ("half_life_changes", "changes"),
        ("half_life_days", "days"),
        ("request_half_life_days", "days"),
        ("as_of", "UTC"),
        ("max_rejected_fraction", "share"),
        ("num_shards", "files"),
        ("rows_per_batch", "rows"),
    ],
)
def test_help_has_the_unit(name, unit):
    (option,) = [o for o in _options() if o.dest == name]
    assert unit in option.help


def test_version():
    code, out, _ = command("--version")
    assert code == 0 and __version__ in out


@pytest.mark.parametrize("words", [["--help"], ["--version"]])
def test_help_and_version_import_nothing_that_takes_time(words):
    """Beam, NumPy and Arrow take seconds."""
    program = (
        "import sys; from pipelines.door import cli\n"
        f"try: cli.main({words})\n"
        "finally: print({'apache_beam', 'numpy', 'pyarrow', 'scipy'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "set()"


def test_the_help_of_a_command_is_whole_whichever_way_it_is_made():
    """That of all parsers, which documents are checked with, and that which a user sees."""
    every = cli.parser()._subparsers._group_actions[0].choices
    assert list(every) == list(cli.COMMANDS)
    for name in ("diff", "synthesize"):
        alone = cli.parser(name)._subparsers._group_actions[0].choices[name]
        assert alone.format_help() == every[name].format_help()
        assert len(alone._actions) > 3


def test_no_command_or_an_unknown_one_is_a_usage_error():
    for arguments in ((), ("nihgtly",)):
        code, _, err = command(*arguments)
        assert code == 2 and "usage" in err and "Traceback" not in err


def test_all_problems_at_once():
    found = _problems(
        "--budget=lots",
        "--as_of=yesterday",
        "--num_shards=0",
        "--objective=best",
        "--horizon_hours=-3",
        "--half_life_changes=1.5",
        "--group_columns=section",
        "--nonsense=1",
        "--output_format=xml",
    )
    for name in (
        "observations",
        "output",
        "budget",
        "as_of",
        "num_shards",
        "objective",
        "horizon_hours",
        "half_life_changes",
        "group_columns",
        "nonsense",
        "output_format",
    ):
        assert sum(bool(re.match(f"--{name}\\b(?!_)", line)) for line in found) == 1, (name, found)


@pytest.mark.parametrize(
    "argument, said",
    [
        ("--budget=nan", "crawls per day"),
        ("--budget=-1", "crawls per day"),
        ("--budget=inf", "crawls per day"),
        ("--num_shards=2.5", "whole number"),
        ("--num_shards=1000000", "999999"),
        ("--horizon_hours=0", "from 0.001"),
        ("--max_rejected_fraction=2", "from 0 to 1"),
        ("--half_life_days=0", "(days)"),
        ("--as_of=2026-13-01", "ISO 8601"),
        ("--as_of=1751328000", "ISO 8601"),
        ("--weight_by=fame", "clicks"),
        ("--objective=periodical", "periodic"),
        ("--signal_delay_minutes=-1", "minutes"),
    ],
)
def test_a_bad_value_is_named_with_what_is_expected(argument, said):
    (line,) = _problems(*GOOD, argument)
    assert line.startswith(argument) and said in line


def test_missing_options_say_what_to_give():
    found = _problems("--output=o")
    assert [line.split(" ")[0] for line in sorted(found)] == ["--as_of", "--budget", "--observations"]
    assert all("give" in line for line in found)


def test_an_unknown_option_is_named_and_no_prefix_is_guessed():
    (line,) = _problems(*GOOD, "--host_max_per_dya=3")
    assert line.startswith("--host_max_per_dya=3: neither recrawl nor Beam knows this option")
    assert "--host_max_per_day" in line
    (line,) = _problems(*GOOD, "--horizon=3")
    assert "--horizon" in line
    (line,) = _problems(*GOOD, "stray")
    assert "stray" in line


def test_a_misspelled_option_is_one_problem():
    """Neither its value nor the option that is missing for it is another one."""
    found = _problems("--observation", "cdx", "--bugdet", "500", "--as_of=2026-07-01T00:00:00Z", "--output=o")
    assert found == [
        "--observation: neither recrawl nor Beam knows this option; did you mean --observations?",
        "--bugdet: neither recrawl nor Beam knows this option; did you mean --budget?",
    ]
    (line,) = _problems(*GOOD, "--frobnicate", "3")
    assert line.startswith("--frobnicate: ")
    # Commands that are no jobs, too.
    said = "recrawl: --kidn: recrawl inspect does not know this option; did you mean --kind?\n"
    assert command("inspect", __file__, "--kidn", "pages") == (2, "", said)
    # One that takes no value, one that has it, and what the shell has made of a pattern.
    words = ["--allow_shirnk", "a", "--host_max_per_dya=3", "b", "--signal", "c", "d"]
    *unknown, words = _problems(*GOOD, *words)
    assert [line.split(":")[0] for line in unknown] == ["--allow_shirnk", "--host_max_per_dya=3", "--signal"]
    assert words.startswith("a, b, d: no options; quote patterns")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["frontier", "--targt", "0.9", "--output=o"], ["--targt: neither", "--target?"]),
        (["simulate", "--outptu", "o"], ["--outptu: neither", "--output?"]),
        (["synthesize", "--otput=o"], ["--otput=o: recrawl synthesize does not", "--output?"]),
        (["diff", "a", "--wrokers=2"], ["--wrokers=2: recrawl diff does not", "--workers?", " is missing: "]),
        (["backtest", "--budgtes", "0.1"], ["--budgtes: neither", "--budgets?", "--output is missing: "]),
    ],
    ids=lambda value: value[0],
)
def test_a_misspelled_option_is_named_where_one_is_required(words, said):
    """Argparse only says what is missing, and that is no news of an option that was meant."""
    code, out, err = command(*words)
    assert (code, out) == (2, "") and "following arguments are required" not in err
    assert all(text in err for text in said)
    assert err.count(" is missing") == sum(" is missing" in text for text in said)


def test_required_options_without_a_misspelled_word_are_said_to_be_missing():
    code, _, err = command("simulate", "--pages=40")
    assert code == 2 and "the following arguments are required: --output" in err
    code, _, err = command("synthesize", "--output=o", "--pages=x,y")
    assert code == 2 and "is missing" not in err


@pytest.mark.parametrize(
    ("n", "named"), [(2, "f0, f1"), (5, "f0, f1, f2, f3, f4"), (165, "f0, f1, f2, f3, f4 and 160 more")]
)
def test_a_pattern_that_the_shell_has_expanded_is_one_problem(n, named):
    (line,) = _problems(*GOOD, "--sitemaps", "first", *(f"f{i}" for i in range(n)))
    assert line.startswith(f"{named}: no options; quote patterns")
    (line,) = _problems(*GOOD, "--sitemaps", "first", __file__)
    assert "quote patterns" in line


def test_state_inside_output_is_refused():
    """The night would delete what it reads."""
    (line,) = _problems(*GOOD, "--state=o/state")
    assert "--state=o/state" in line and "--output" in line


def _fails(folder: Path, **options: object) -> str:
    """What is said of a job that cannot run; checks that nothing is committed and no traceback shows."""
    night = nightly(folder, **options)
    assert night.code in (1, 2) and not night.committed
    assert "Traceback" not in night.complaints and night.printed == ""
    return night.complaints.splitlines()[-1]


def test_a_state_that_is_not_there(tmp_path):
    log = write_rows(tmp_path / "log.csv", crawls("https://a.test/", "AB"))
    said = _fails(tmp_path, observations=log, state=tmp_path / "nowhere" / "state")
    assert f"--state={tmp_path}/nowhere/state" in said and "first night" in said


def test_a_file_that_is_not_there(tmp_path):
    said = _fails(tmp_path, observations=tmp_path / "missing.csv")
    assert "--observations" in said and "no file matches" in said and "missing.csv" in said


@pytest.mark.parametrize("suffix", [".csv", ".jsonl", ".parquet"])
def test_a_missing_column_names_file_column_and_what_is_there(suffix, tmp_path):
    log = write_rows(tmp_path / f"log{suffix}", [{"url": "https://a.test/", "crawled": at(1), "code": 200}])
    said = _fails(tmp_path, observations=log)
    assert f"log{suffix}" in said and "fetched_at" in said and "crawled" in said and "code" in said


def test_a_column_of_a_useless_type(tmp_path):
    log = write_rows(tmp_path / "log.parquet", [{"url": "https://a.test/", "fetched_at": [1, 2]}])
    said = _fails(tmp_path, observations=log)
    assert "log.parquet" in said and "fetched_at" in said and "list" in said


def test_a_group_column_that_the_catalogue_does_not_have(tmp_path):
    log = write_rows(tmp_path / "log.csv", crawls("https://a.test/", "AB"))
    pages = [{"url": "https://a.test/", "section": "x"}]
    said = _fails(tmp_path, observations=log, pages=pages, group_columns="sectoin")
    assert "sectoin" in said and "section" in said and "--group_columns" in said


def test_the_summary_says_what_a_person_wants_to_know(tmp_path, beams_runner):
    rows = [r for i in range(30) for r in crawls(f"https://h{i % 3}.test/{i}", "AABBC", 20)]
    rows += [{"url": "nonsense", "fetched_at": at(3), "status": 200, "digest": "A"}]
    night = nightly(tmp_path, observations=rows, budget=60, host_max_per_day=15)
    assert night.code == 0
    for words in (
        "30 on 3 hosts",
        "150 read",
        "1 observations bad_url",
        "60 crawls a day",
        "one more crawl a day would keep 0 more pages fresh (",
        " over all pages (90% range ",
        "if all pages had one rate",
        "hosts at limit",
        "unspent",
        str(night.folder),
    ):
        assert words in night.printed, words
    # Progress on the other stream, in order.
    assert re.search(r"reading.*folding.*searching.*manifest", night.complaints, re.DOTALL)


def test_the_sentence_of_an_input_error_survives_a_runner():
    error = InputError("f.csv: no column url")
    try:
        try:
            raise error
        except InputError as e:
            raise RuntimeError("bundle failed") from e
    except RuntimeError as e:
        assert explaining.explain(e) == ("f.csv: no column url", cli.EXIT_USAGE)
    text = "Traceback ...\ntransforms.errors.InputError: f.csv: no column url [while running 'Read']\n\nmore"
    assert explaining.explain(RuntimeError(text)) == ("f.csv: no column url", cli.EXIT_USAGE)
    assert explaining.explain(RuntimeError("other")) is None


@pytest.mark.parametrize("name", ["output", "state"])
def test_a_folder_that_looks_like_a_pattern_is_refused(name, tmp_path):
    """Else its files would be matched together with those of other folders, and deleted with them."""
    folders = {"output": tmp_path / "out", name: tmp_path / "night*"}
    given = [f"--{option}={folder}" for option, folder in folders.items()]
    code, _, complaints = command(
        "nightly", "--observations=x.csv", "--budget=1", "--as_of=2026-07-01", *given
    )
    assert code == 2 and "night*" in complaints and "pattern" in complaints
