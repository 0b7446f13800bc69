"""`recrawl dynamics`: from files to tables, whole."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from tests.pipelines.jobs import at, command, seen, write_rows
from tests.pipelines.webpage.reading import read

DAYS, PAGES = 40, 30
WHERE = ("Europe/Berlin", "America/New_York")


@pytest.fixture(scope="module")
def site(tmp_path_factory) -> Path:
    """Pages that change at 2:30 of their own clock, every third day in the mean, crawled at any time."""
    folder = tmp_path_factory.mktemp("site")
    rng = np.random.Generator(np.random.Philox(key=5))
    rows, listed, catalogue = [], [], []
    for i in range(PAGES):
        url, ahead = f"https://h{i % 3}.test/{i}", (2.0, -4.0)[i % 2]  # summer time
        every = np.flatnonzero(rng.random(DAYS) < 1 / 3)
        changed = np.sort(every + (2.5 - ahead + rng.normal(0, 0.1, len(every))) / 24.0)
        crawls = np.sort(rng.uniform(0, DAYS, 2 * DAYS))
        for t, v in zip(crawls, np.searchsorted(changed, crawls), strict=True):
            rows.append(seen(url, at(t), f"v{v}"))
        listed += [{"url": url, "changed_at": at(t), "digest": f"v{n}"} for n, t in enumerate(changed, 1)]
        catalogue.append({"url": url, "zone": WHERE[i % 2], "kind": "ab"[i % 2], "size": str(i % 3)})
    rows += [
        seen("https://h0.test/once", at(1.0)),
        seen("no url", at(1.0)),
        seen("https://h0.test/1", "never"),
    ]
    rows.append(seen("https://h0.test/0", at(39.99), None, 500))
    write_rows(folder / "log.jsonl", rows)
    write_rows(folder / "changes.jsonl", listed)
    write_rows(folder / "pages.jsonl", catalogue)
    return folder


def _run(site: Path, out: Path, *options: str, code: int = 0) -> tuple[dict[str, list[dict]], dict, str]:
    found, said, complaints = command("dynamics", *options, "--workers=1", "--no_plots", f"--output={out}")
    assert found == code, complaints
    if code:
        return {}, {}, complaints
    names = ("hours", "weekdays", "intervals", "groups")
    tables = {name: pq.read_table(out / f"{name}.parquet").to_pylist() for name in names}
    return tables, json.loads((out / "results.json").read_text()), said


def _shares(rows: list[dict], estimate: str, by: str = "all", group: str = "all") -> np.ndarray:
    mine = [r for r in rows if (r["estimate"], r["by"], r["group"]) == (estimate, by, group)]
    return np.array([r["share"] for r in mine])


def test_hours_are_those_of_each_pages_clock_and_nothing_is_lost(site, tmp_path):
    tables, about, said = _run(
        site, tmp_path / "out", f"--observations={site}/log.jsonl", f"--changes={site}/changes.jsonl",
        f"--pages={site}/pages.jsonl", "--timezone_column=zone", "--by", "kind", "host", "--correlate=size",
    )  # fmt: skip
    for estimate in ("corrected", "listed"):
        assert _shares(tables["hours"], estimate)[2] > 0.8, estimate
    assert _shares(tables["hours"], "found").max() < 0.2
    for rows in (tables["hours"], tables["weekdays"], tables["intervals"]):
        for key in {(r["estimate"], r["by"], r["group"]) for r in rows}:
            assert _shares(rows, *key).sum() == pytest.approx(1.0), key
    counts = about["counters"]
    assert counts["observations_accepted"] == 2 * DAYS * PAGES + 2 and counts["observations_rejected"] == 2
    used = counts["intervals"] + counts["failed"] + counts["duplicate"] + counts["baseline"]
    assert used == counts["observations_accepted"] and counts["pages_watched"] == PAGES
    assert counts["pages_without_intervals"] == 1 and "2 rejected" in said
    rejected = [
        row for path in about["rejected"] for row in pq.read_table(tmp_path / "out" / path).to_pylist()
    ]
    assert sorted(row["reason"] for row in rejected) == ["bad_timestamp", "bad_url"]
    whole, *groups = sorted(tables["groups"], key=lambda r: r["by"] != "all")
    for name in ("pages", "intervals", "changes_found"):
        for by in ("kind", "host"):
            assert sum(r[name] for r in groups if r["by"] == by) == whole[name]
    assert whole["rate_per_day"] == pytest.approx(1 / 3, abs=0.06)
    assert whole["rate_per_day"] > whole["found_per_day"]
    compared = {c["by"]: c for c in about["compared"]}
    assert compared["kind"]["groups"] == 2 and compared["host"]["correlation"] is None
    _check_page(tmp_path / "out" / "report.html", tables)


def _check_page(file: Path, tables: dict[str, list[dict]]) -> None:
    """Its tables have the figures of the files, to the tenth of a per cent."""
    shown = {t.all("caption")[0].text: t for t in read(file.read_text(encoding="utf-8")).all("table")}
    for column in ("hour", "weekday"):
        table = shown[f"Share of changes by {column}"]
        names = [cell.text.split(" (")[0] for cell in table.all("th") if "(" in cell.text]
        for i, name in enumerate(names):
            cells = [row.all("data")[2 * i].attributes["value"] for row in table.all("tbody")[0].all("tr")]
            assert np.array(cells, float) == pytest.approx(_shares(tables[f"{column}s"], name)), name
        assert {"corrected", "found", "listed"} <= set(names)
    rates = {r["group"]: r["rate_per_day"] for r in tables["groups"] if r["by"] == "kind"}
    rows = shown["Changes a page and day by kind"].all("tbody")[0].all("tr")
    assert {r.all("th")[0].text: float(r.all("data")[1].attributes["value"] or 0) for r in rows} == rates


def test_neither_shards_nor_the_order_of_rows_move_a_figure(site, tmp_path):
    lines = (site / "log.jsonl").read_text().splitlines()
    (tmp_path / "turned.jsonl").write_text("\n".join(reversed(lines)) + "\n")
    one = _run(site, tmp_path / "one", f"--observations={site}/log.jsonl", "--by=host", "--num_shards=1")
    two = _run(
        site, tmp_path / "two", f"--observations={tmp_path}/turned.jsonl", "--by=host", "--num_shards=5"
    )
    assert one[0]["hours"] == two[0]["hours"] and one[0]["intervals"] == two[0]["intervals"]
    for a, b in zip(one[0]["groups"], two[0]["groups"], strict=True):
        assert a == pytest.approx(b, nan_ok=True)


def test_a_list_of_changes_alone_is_a_perfect_log(site, tmp_path):
    tables, _, _ = _run(site, tmp_path / "out", f"--changes={site}/changes.jsonl", "--timezone=Europe/Berlin")
    hours = _shares(tables["hours"], "corrected")
    # Of New York 2:30 is 8:30 in Berlin; two of the pages' clocks, half of the changes each.
    assert hours[[2, 8]] == pytest.approx([0.5, 0.5], abs=0.12) and hours[[2, 8]].sum() > 0.95
    assert np.abs(hours - _shares(tables["hours"], "listed")).max() < 0.03
    peaks = [r for r in tables["intervals"] if r["peak"] and r["estimate"] == "corrected"]
    assert any(r["from_hours"] < 24 < r["to_hours"] for r in peaks)


def test_logs_that_say_nothing_give_empty_tables_and_one_page_has_no_error(tmp_path):
    write_rows(tmp_path / "once.jsonl", [seen("https://a.test/", at(1.0)), seen("https://b.test/", at(2.0))])
    tables, about, said = _run(
        tmp_path, tmp_path / "once", f"--observations={tmp_path}/once.jsonl", "--by=host"
    )
    assert not any(tables.values()) and said.count("too few changes") == 3
    assert about["counters"]["pages_without_intervals"] == 2
    changes = [{"url": "https://a.test/", "changed_at": at(day)} for day in (1, 3)]
    write_rows(tmp_path / "changes.jsonl", changes)
    tables, _, said = _run(tmp_path, tmp_path / "two", f"--changes={tmp_path}/changes.jsonl")
    (row,) = tables["groups"]
    assert row["rate_error"] is None and row["changes_found"] == 1 and "± ? changes" in said


@pytest.mark.parametrize(
    ("options", "said", "code"),
    [
        ([], "--observations is missing", 2),
        (["--observations=x", "--by=kind"], "--pages is missing: it has the columns kind", 2),
        (["--observations=x", "--timezone=Mars"], "--timezone=Mars: no such zone", 2),
        (["--observations={}/log.jsonl", "--pages={}/pages.jsonl", "--by=colour"], "has no column colour", 2),
        (["--observations={}/log.jsonl", "--max_rejected_fraction=0"], "--max_rejected_fraction", 4),
    ],
)
def test_what_cannot_work_is_said(site, tmp_path, options, said, code):
    given = [option.format(site) for option in options]
    assert said in _run(site, tmp_path / "out", *given, code=code)[2]
