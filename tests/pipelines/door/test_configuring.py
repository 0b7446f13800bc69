"""`--config`: options of jobs in a TOML file, and both spellings of every option."""

from __future__ import annotations

from pathlib import Path

import pytest

from pipelines.door import cli
from tests.pipelines.jobs import at, command, crawls, seen, write_rows
from tests.pipelines.stores import Stored, job, midnight

__all__ = ["job"]


def file(folder: Path, text: str) -> Path:
    path = folder / "recrawl.toml"
    path.write_text(text)
    return path


def test_options_of_a_file_and_the_command_line_wins(tmp_path, job):
    store = Stored(tmp_path)
    for day in range(2):
        store.log(f"logs/{day}.jsonl", [seen("https://a.test/", at(day))], at(day, 23))
    path = file(
        tmp_path,
        f"budget = 1_000 # crawls\nhost-max-per-day = 2.5\nallow_shrink = true\noverwrite = false\n"
        f"observations = ['{tmp_path}/logs/0.jsonl', '{tmp_path}/logs/1.jsonl']\n"
        "[observations_columns]\ndigest = 'sha1'\nstatus = 'code'\n",
    )
    done = store.run(midnight(3), budget=None, observations=None, config=path)
    assert done.code == 0, done.complaints
    (settings,) = job.calls
    assert (settings.budget_per_day, settings.host_max_per_day) == (1000, 2.5)
    assert settings.allow_shrink and not settings.overwrite
    assert job.given() == ["0.jsonl", "1.jsonl"]
    assert dict(settings.how["observations"].columns) == {"digest": "sha1", "status": "code"}
    store.run(midnight(4), budget=9, observations=None, config=path)
    assert job.calls[-1].budget_per_day == 9


def test_a_moment_and_options_of_beam_are_keys_too(tmp_path):
    log = write_rows(tmp_path / "log.jsonl", crawls("https://a.test/", "ABAB"))
    path = file(
        tmp_path,
        f"observations = '{log}'\noutput = '{tmp_path}/out'\nbudget = 1\nas_of = 2026-06-05T02:00:00+02:00\n"
        "num_shards = 1\nmax_rejected_fraction = 1\nrunner = 'DirectRunner'\nexperiments = ['a', 'b']\n",
    )
    code, _, err = command("nightly", "--config", str(path))
    assert code == 0, err
    assert '"as_of": "2026-06-05T00:00:00Z"' in (tmp_path / "out" / "manifest.json").read_text()


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("\n\nbuget = 3\n", "line 3: buget: neither recrawl night nor Beam has an option of this name; did"),
        ("allow_shrink = 'yes'\n", "line 1: allow_shrink: 'yes' is not true or false"),
        ("# x\nbudget = true\n", "line 2: budget: True is not a text, a number or a list"),
        ("[budget]\na = 1\n", "line 1: budget: a table is for columns alone"),
        ("[store.a]\nb = 1\n", "line 1: store: a table is for columns alone"),
        ("budget = \n", "cannot be read: Invalid value (at line 1"),
        (None, "cannot be read: No such file or directory; recrawl init writes one"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_named_with_its_line(text, words, tmp_path):
    path = file(tmp_path, text) if text is not None else tmp_path / "none.toml"
    code, _, err = command("night", f"--config={path}", f"--store={tmp_path}/s")
    assert code == cli.EXIT_USAGE and f"--config={path}: " in err and words in err


def test_all_that_is_wrong_is_told_at_once(tmp_path):
    path = file(tmp_path, "buget = 3\noverwrite = 1\n")
    _, _, err = command("nightly", f"--config={path}")
    assert "2 problems" in err and "line 1: buget" in err and "line 2: overwrite" in err


@pytest.mark.parametrize("spelled", ["as-of", "as_of"])
def test_both_spellings_of_an_option(spelled):
    code, _, err = command("nightly", f"--{spelled}=tomorrow-or-so")
    assert code == 2 and "--as_of=tomorrow-or-so: expected ISO 8601" in err
