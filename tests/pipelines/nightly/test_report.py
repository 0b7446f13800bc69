"""The summary's words, and on which stream warnings stand: once where both lead to one place."""

from __future__ import annotations

import os
import subprocess
from typing import Any

import pytest

from pipelines.nightly.report import said_of_forecasts, summary
from policies.history.volatile import CAP_PER_DAY
from tests.pipelines.started import recrawl

PROGRAM = """
from pipelines.nightly.report import also_on_stderr
print("WARNING: look here", flush=True)
also_on_stderr("night", ["look here"])
"""


def _run(stdout: int, stderr: int) -> None:
    subprocess.run([*recrawl(), "-c", PROGRAM], stdout=stdout, stderr=stderr, check=True, timeout=60)


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
        [*recrawl(), "-c", PROGRAM],
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
    from pipelines.nightly.report import also_on_stderr

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
        f"0.8697 over all pages{weighted}; 0.8000 if all pages had one rate, as far as hosts allow"
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
        ("2026-06-29", "9 read; the newest of 2026-06-29, 1 day before --as_of"),
        ("2025-07-01", "9 read; the newest of 2025-07-01, 364 days before --as_of"),
    ],
)
def test_the_summary_says_how_old_the_log_is(newest, said):
    assert _lines("equal", newest_log_day=newest)["observations"] == said


def test_times_that_clocks_show_twice_or_never_are_told():
    counters = {"observations_accepted": 9, "baseline": 9, "observations_repeated_times": 3}
    counters |= {"requests_accepted": 7, "requests_repeated_times": 2, "requests_skipped_times": 1}
    lines = _lines("equal", counters=counters)
    assert lines["observations"] == "9 read: 9 baseline; 3 of an hour that clocks show twice"
    assert "2 of an hour that clocks show twice, 1 of an hour that clocks skip" in lines["requests rows"]


def test_rows_that_are_left_out_are_not_among_those_that_were_read():
    counters = {"observations_accepted": 1009, "unchanged": 1000, "baseline": 9}
    counters |= {"observations_left_out_not_a_page": 60, "observations_left_out_robots_txt": 2}
    counters |= {"requests_accepted": 7, "requests_left_out_bot": 1200}
    lines = _lines("equal", counters=counters)
    assert lines["observations"] == (
        "1,009 read: 1,000 unchanged, 9 baseline; 62 more left out (60 not a page, 2 robots txt)"
    )
    assert lines["requests rows"] == "7 read; 1,200 more left out (1,200 bot)"


def test_pages_are_shown_that_nobody_knows_and_what_is_wrong_by_how_many_join():
    url, plain = "https://a.test/?ref=1", "https://a.test/2"

    def said(urls: list[str], joined: int) -> str:
        counters = {"observations_accepted": 9, "requests_accepted": 9, "requests_clicks": 9}
        counters |= {"hosts_with_clicks": 1, "hosts_known": 1, "requests_clicks_joined": joined}
        lines = _lines("clicks", counters=counters, unknown_pages=urls)
        assert ("1 of 1 hosts have clicks" in lines["requests rows"]) == (joined > 0)
        assert ("none of 9 clicks are of known pages" in lines["requests rows"]) == (joined == 0)
        return lines["unknown pages"].removeprefix(f"such as {', '.join(urls)}")

    parameters = "; name parameters that are no part of a page with --tracking_parameters"
    assert said([plain, url], 5) == parameters and said([plain], 5) == ""
    assert said([plain, url], 0) == "; not one is a page: see scheme and host (--requests_site)"
    assert said([url], 0) == f"{parameters}, if scheme and host (--requests_site) are right"


def test_pages_that_are_volatile_are_hardly_crawled_and_one_row_is_no_rows():
    files = [{"path": "pages/0.parquet", "rows": 1}, *({"path": f"state/{i}", "rows": 900} for i in "12")]
    counters = {"observations_accepted": 9, "pages_volatile": 1}
    lines = _lines("equal", counters=counters, files=files)
    assert lines["pages"].endswith(", 1 volatile (new at every visit: at most a crawl in 30 days)")
    assert round(1 / CAP_PER_DAY) == 30
    assert (lines["pages/"], lines["state/"]) == ("1 row in 1 file", "1,800 rows in 2 files")


def _corrected(**told: float) -> dict[str, Any]:
    so_far = {"crawls": 5000.0, "log_loss_by_rates": 2000.0, "log_loss": 1900.0}
    tonight = {"crawls": 200, "log_loss_by_rates": 90.0, "log_loss": 80.0}
    hosts = {"hosts": 12, "hosts_by_cells": 10, "hosts_by_own": 11}
    return {"crawls": 210, "corrected": {**tonight, **hosts, "so_far": so_far} | told}


def test_a_night_says_whether_forecasts_are_corrected_and_what_it_gained():
    lost = "; log loss per 1,000 crawls 400.0, by rates alone 450.0; "
    lost += "in the last weeks 380.0, by rates alone 400.0"
    assert said_of_forecasts(_corrected()) == (
        "corrected by how long pages had been calm on 10 of 12 hosts crawled, by how far the host's had been "
        f"off on 11; where not, it had made them worse{lost}"
    )
    assert "worse" not in said_of_forecasts(_corrected(hosts_by_cells=12, hosts_by_own=12))
    off = said_of_forecasts(_corrected(hosts_by_cells=0, hosts_by_own=0))
    assert off == f"not corrected: what came of earlier ones made them worse on the 12 hosts crawled{lost}"
    first = _corrected(so_far={"crawls": 200, "log_loss_by_rates": 90.0, "log_loss": 90.0})
    assert said_of_forecasts(first).startswith("not corrected yet: these are the first that are judged")
    assert said_of_forecasts(_corrected(crawls=0)).startswith("no crawl of these tells")  # and no 0 / 0
    assert said_of_forecasts({"crawls": 0}) == said_of_forecasts({"crawls": 3}) == ""
