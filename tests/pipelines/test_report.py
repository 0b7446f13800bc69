"""The summary's words, and on which stream warnings stand: once where both lead to one place."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Any

import pytest

from pipelines.report import summary

PROGRAM = """
from pipelines.report import also_on_stderr
print("WARNING: look here", flush=True)
also_on_stderr("night", ["look here"])
"""


def _run(stdout: int, stderr: int) -> None:
    subprocess.run([sys.executable, "-c", PROGRAM], stdout=stdout, stderr=stderr, check=True, timeout=60)


@pytest.mark.parametrize("opened_twice", [False, True])
def test_a_file_that_takes_both_has_a_warning_once(tmp_path, opened_twice):
    log = tmp_path / "night.log"
    with log.open("ab") as out, log.open("ab") as err:
        _run(out.fileno(), err.fileno() if opened_twice else subprocess.STDOUT)
    assert log.read_text() == "WARNING: look here\n"


def test_cron_mails_what_the_log_has_too(tmp_path):
    log, mail = tmp_path / "night.log", tmp_path / "mail"
    with log.open("ab") as out, mail.open("ab") as err:
        _run(out.fileno(), err.fileno())
    assert log.read_text() == "WARNING: look here\n"
    assert mail.read_text() == "recrawl night: WARNING: look here\n"


@pytest.mark.parametrize(("both", "times"), [(True, 1), (False, 2)])
def test_a_pipe(both, times):
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT if both else subprocess.PIPE,
        check=True,
        timeout=60,
    )
    assert (done.stdout + (done.stderr or b"")).count(b"look here") == times


def test_a_terminal_shows_it_once_though_it_is_opened_by_another_name():
    reader, terminal = os.openpty()
    again = os.open(os.ttyname(terminal), os.O_RDWR | os.O_NOCTTY)
    try:
        _run(terminal, again)
        assert os.read(reader, 4096).count(b"look here") == 1
    finally:
        for one in (reader, terminal, again):
            os.close(one)


def test_a_stream_without_a_file_is_another_place(capsys):
    from pipelines.report import also_on_stderr

    also_on_stderr("nightly", ["look here"])
    assert capsys.readouterr() == ("", "recrawl nightly: WARNING: look here\n")


def _lines(weight_by: str, pages: str | None = None, **more: Any) -> dict[str, str]:
    """The lines of a summary by their names, of as much of a manifest as it reads."""
    manifest = {
        "status": "ok",
        "options": {"as_of": "2026-07-01T00:00:00Z", "host_max_per_day": 5, "pages": pages},
        "counters": {"observations_accepted": 9},
        "signals": None,
        "budget_per_day": 10.0,
        "allocated_per_day": 10.0,
        "unspent_per_day": 0.0,
        "multiplier": 0.228974,
        "weight_by": weight_by,
        "search": {"status": "converged", "rounds": 2},
        "expected_freshness": 0.86971,
        "expected_freshness_uniform": 0.8,
        "hosts_at_limit": [],
        "files": [],
        "warnings": [],
    }
    text = summary(manifest | more, "out", 1.0)
    return {line[2:22].strip(): line[22:] for line in text.splitlines() if line.startswith("  ")}


@pytest.mark.parametrize(
    ("weight_by", "gain", "weighted"),
    [
        ("equal", "keep 0.228974 more pages fresh", ""),
        ("clicks", "bring 0.228974 more clicks a day to a fresh page", ", weighted by clicks"),
        ("impressions", "bring 0.228974 more impressions a day to a fresh page", ", weighted by impressions"),
        ("importance", "add 0.228974 to the importance of fresh pages", ", weighted by importance"),
    ],
)
def test_the_summary_says_what_one_more_crawl_would_do(weight_by, gain, weighted):
    lines = _lines(weight_by, "pages.csv")
    assert lines["multiplier"] == f"one more crawl a day would {gain} (converged after 2 rounds)"
    assert lines["expected freshness"] == (
        f"0.8697 over all pages{weighted}; 0.8000 if all pages had one rate and no limits"
    )


def test_importance_that_nobody_has_given_is_not_spoken_of():
    for lines in (_lines("importance"), _lines("importance", "dump.jsonl", weights_alike=True)):
        assert "importance" not in lines["multiplier"] + lines["expected freshness"]


@pytest.mark.parametrize(
    ("newest", "said"),
    [
        (None, "9 read"),
        ("2026-07-01", "9 read; the newest of 2026-07-01"),
        ("2026-06-30", "9 read; the newest of 2026-06-30"),
        ("2025-07-01", "9 read; the newest of 2025-07-01, 365 days before --as_of"),
    ],
)
def test_the_summary_says_how_old_the_log_is(newest, said):
    assert _lines("equal", newest_log_day=newest)["observations"] == said
