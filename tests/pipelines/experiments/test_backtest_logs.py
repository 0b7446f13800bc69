"""Logs that `recrawl backtest` is given: in formats of others, of little use, and what it says of them."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from pipelines.command import options_inputs
from tests.pipelines.jobs import at, command, seen, write_rows

DAYS = 24
RNG = np.random.Generator(np.random.Philox(key=3))


def _log(pages: int = 12, changing: int = 6) -> list[dict[str, object]]:
    """Pages crawled daily; the first ones change every third day in the mean."""
    rows = []
    for i in range(pages):
        version = np.cumsum(RNG.random(DAYS) < 1 / 3) if i < changing else np.zeros(DAYS, int)
        rows += [seen(f"https://a.test/{i}", at(day + 0.01 * i), f"v{v}") for day, v in enumerate(version)]
    return rows


def _run(
    what: str, folder: Path, *options: str, policies: tuple[str, ...] = ("recrawl", "uniform")
) -> tuple[int, str, str]:
    common = ["--workers=1", "--no_plots", f"--output={folder}/out", "--policies", *policies]
    return command(what, *options, *common)


def test_every_option_of_reading_is_taken(tmp_path):
    values = {f"--{name}": [] if name in options_inputs.FLAGS else ["x=y"] for name in options_inputs.names()}
    words = [word for name, value in values.items() for word in (name, *value)]
    for what, more in (("backtest", []), ("frontier", ["--target=0.9"])):
        code, _, complaints = _run(what, tmp_path, "--observations=x", *more, *words)
        assert code == 2 and "--observations_columns=x=y: expected OURS=YOURS" in complaints
        assert "--requests_format=x=y: expected one of" in complaints and "neither recrawl" not in complaints


@pytest.mark.parametrize(("what", "option"), [("backtest", "--budgets=0.3"), ("frontier", "--target=0.8")])
def test_a_web_server_log_and_columns_of_other_names(what, option, tmp_path):
    """Its lines name no site, and some are of the own crawler: those are no clicks."""
    names = {"fetched_at": "crawl_time", "digest": "sha"}
    write_rows(tmp_path / "log.jsonl", [{names.get(k, k): v for k, v in row.items()} for row in _log()])
    line = '192.0.2.{} - - [{:02}/Jun/2026:10:00:00 +0000] "GET /{}?ref=home HTTP/1.1" 200 9 "-" "{}"'
    people = [line.format(i, 1 + i % 20, i % 6, "Mozilla/5.0 (X11) Firefox/140.0") for i in range(100)]
    own = [line.format(9, 1 + i % 20, 7, "my-nutch/1.0") for i in range(50)]
    (tmp_path / "access.log").write_text("\n".join([*people, *own]) + "\n")
    options = [
        f"--observations={tmp_path}/log.jsonl",
        "--observations_columns=fetched_at=crawl_time,digest=sha",
        f"--requests={tmp_path}/access.log",
    ]
    # Two that learn nothing, of which one uses the clicks: a frontier tries many budgets.
    policies = ("uniform", "click-weighted")
    assert "--requests_site" in _run(what, tmp_path, option, *options, policies=policies)[2]
    more = ["--requests_site=https://a.test", "--own_user_agent=my-nutch", "--tracking_parameters=ref"]
    code, printed, complaints = _run(what, tmp_path, option, *options, *more, policies=policies)
    assert code == 0, complaints
    assert "clicks weights" in printed and "Rows of --requests: 50 left out" in printed
    about = json.loads((tmp_path / "out" / "results.json").read_text())
    assert about["rows"]["requests_accepted"] == 100
    formats = about["options"]["formats"]
    assert ["digest", "sha"] in formats["observations"]["columns"]
    assert ["requests_site", "https://a.test"] in formats["requests"]["options"]


def test_a_log_that_shows_no_change_is_refused(tmp_path):
    """A single dump, and pages that are always the same: no verdict can come of either."""
    dump = [seen(f"https://a.test/{i}", at(i % 12), f"v{i}") for i in range(60)]
    write_rows(tmp_path / "dump.csv", dump)
    code, printed, complaints = _run("backtest", tmp_path, f"--observations={tmp_path}/dump.csv")
    assert code == 2 and not printed
    assert "no page has two crawls that can be compared: give the logs, or dumps, of several" in complaints
    write_rows(tmp_path / "still.csv", _log(changing=0))
    for what, more in (("backtest", "--budgets=0.2"), ("frontier", "--target=0.9")):
        code, printed, complaints = _run(what, tmp_path, f"--observations={tmp_path}/still.csv", more)
        assert code == 2 and not printed and "no crawl in the window found a change" in complaints


def test_few_changes_and_pages_that_are_left_out(tmp_path):
    rows = _log(pages=6, changing=1)
    rows += [seen("https://a.test/gone", at(day), None, 404) for day in range(DAYS)]
    rows += [seen("https://a.test/late", at(DAYS - 1, 23))]
    write_rows(tmp_path / "log.csv", rows)
    options = ["--budgets=0.2", "--max_pages=7"]
    code, printed, complaints = _run("backtest", tmp_path, f"--observations={tmp_path}/log.csv", *options)
    assert code == 0, complaints
    facts = json.loads((tmp_path / "out" / "results.json").read_text())["facts"]
    assert facts["pages"] + sum(n for _, n in facts["left_out"]) == facts["pages_read"] == 8
    assert ["above --max_pages", 1] in facts["left_out"]
    assert "Pages left out: 1 " in printed and "1 above --max_pages" in printed
    found = round(facts["changes"] * (1 - facts["drawn"]))
    assert 0 < found < 24 and f"Only {found} change" in printed.replace("\n", " ")


def test_policies_that_are_alike_are_not_ranked(tmp_path):
    """Pages that never change, by a list that knows: all that is said is that nobody is ahead."""
    urls = [f"https://a.test/{i}" for i in range(4)]
    write_rows(tmp_path / "list.csv", [{"url": u, "changed_at": at(0), "kind": "first"} for u in urls])
    options = ["--start=2026-06-02", "--end=2026-06-12", "--budgets=0.5"]
    code, printed, complaints = _run("backtest", tmp_path, f"--changes={tmp_path}/list.csv", *options)
    assert code == 0, complaints
    assert "At 0.5: no policy is ahead, all keep 100.00 % fresh." in printed
    assert "No page changes in this time" in printed and "best is" not in printed


@pytest.mark.parametrize("appear", [False, True])
def test_what_spends_means_is_said_where_it_stands(appear, tmp_path):
    """Where pages appear every day policies spend the same, too."""
    rows = []
    for i in range(60):
        first = i / 60 * 9 if appear else 0.0
        changes = np.arange(first, 10, 0.5)
        rows += [{"url": f"https://a.test/{i}", "changed_at": at(float(first)), "kind": "first"}]
        rows += [
            {"url": f"https://a.test/{i}", "changed_at": at(float(c)), "kind": "change"} for c in changes[1:]
        ]
    write_rows(tmp_path / "list.csv", rows)
    options = ["--start=2026-06-01", "--end=2026-06-11", "--budgets=1", "--warm_up=0"]
    code, printed, complaints = _run("backtest", tmp_path, f"--changes={tmp_path}/list.csv", *options)
    assert code == 0, complaints
    table, _, rest = printed.partition("At 1: ")
    assert "(spends " not in table and "(spends X %): of the budget" not in rest
