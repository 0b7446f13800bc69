"""Nights that are damaged, old, or of another version: one sentence of what is wrong and what to do."""

from __future__ import annotations

import functools
import json
import re
import shutil
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from pipelines.nightly import report
from pipelines.store.night_metrics import of_night
from pipelines.webpage import sections, trends
from tests.pipelines.jobs import Night, command, crawls, nightly
from transforms.finished.figures import Figures
from transforms.finished.folders import NightError, check_manifest

PAGE = "https://a.test/Gr%C3%BC%C3%9Fe und mehr"
STATES = sorted((Path(__file__).parents[2] / "transforms" / "states").glob("*.zip"))
Edit = Callable[[dict[str, Any]], object]


@pytest.fixture(scope="module")
def night(tmp_path_factory: pytest.TempPathFactory) -> Night:
    rows = [*crawls(PAGE, "AABB"), *crawls("https://a.test/", "ABCD")]
    found = nightly(tmp_path_factory.mktemp("damaged"), observations=rows, num_shards=1)
    assert found.code == 0, found.complaints
    return found


def _commands(night: Path, whole: Path, folder: Path) -> list[tuple[str, ...]]:
    at, out = str(night), str(folder / "out")
    return [
        ("show", at),
        ("explain", at, PAGE),
        ("explain", at, "a.test"),
        ("report", at, "--output", f"{out}.html"),
        ("diff", at, str(whole)),
        ("diff", str(whole), at),
        ("export", at, "--to", "csv", "--output", out),
    ]


EDITS: dict[str, Edit] = {
    "multiplier": lambda m: m.pop("multiplier"),
    "counters": lambda m: m.update(counters=[]),
    "options": lambda m: m.update(options=None),
    "num_shards": lambda m: m["options"].pop("num_shards"),
    "objective": lambda m: m["options"].update(objective="quantum"),
    "files": lambda m: m.update(files=[{"path": "pages/shard-00000-of-00001.parquet"}]),
}


@pytest.mark.parametrize("what", EDITS)
def test_what_every_manifest_has_is_missed_by_its_name(what, night):
    manifest = json.loads(json.dumps(night.manifest))
    assert check_manifest(manifest, "m") is manifest
    EDITS[what](manifest)
    with pytest.raises(NightError, match=f"m: .*{what}"):
        check_manifest(manifest, "m")


BY_HAND: dict[str, tuple[Edit, str]] = {
    "text": (lambda m: m["counters"].update(pages_known="2"), "counters.pages_known is '2', expected a numb"),
    "negative": (lambda m: m["counters"].update(slots_used=-3), "counters.slots_used is -3, expected"),
    "null": (lambda m: m.update(budget_per_day=None), "budget_per_day is None, expected a number of 0 or"),
    "percent": (lambda m: m.update(expected_freshness=93.0), "expected_freshness is 93.0, expected a number"),
    "half": (lambda m: m.update(expected_freshness_uniform=None), "expected_freshness_uniform is null or"),
    "flag": (lambda m: m["search"].update(rounds=True), "search.rounds is True, expected a whole number"),
    "gone": (lambda m: m["search"].pop("status"), "search.status is missing"),
    "word": (lambda m: m.update(weight_by="visits"), "weight_by is 'visits', expected one of clicks"),
    "list": (lambda m: m.update(warnings="none"), "warnings is 'none', expected a list"),
    "object": (lambda m: m.update(starved=[]), r"starved is \[\], expected an object"),
    "time": (lambda m: m["options"].update(as_of="now"), "options.as_of is 'now', expected an instant"),
    "file": (lambda m: m["files"][0].update(path="../x"), r"files\[0\].path is '../x', expected a path"),
    "rows": (lambda m: m["files"][1].update(rows=1.5), r"files\[1\].rows is 1.5, expected a whole number"),
}


@pytest.mark.parametrize("what", BY_HAND)
def test_values_that_are_damaged_by_hand_are_named(what, night, tmp_path):
    edit, said = BY_HAND[what]
    manifest = json.loads(json.dumps(night.manifest))
    edit(manifest)
    (tmp_path / "manifest.json").write_text(json.dumps(manifest))
    code, printed, complaints = command("show", str(tmp_path))
    assert (code, printed, complaints.count("\n")) == (1, "", 1)
    assert re.search(rf"{tmp_path}/manifest.json: .*: {said}.*Restore it, run that night again", complaints)


def _paths(value: Any, path: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    if isinstance(value, list):
        value = dict(enumerate(value[:1]))
    for key, one in value.items() if isinstance(value, dict) else ():
        yield (*path, key)
        yield from _paths(one, (*path, key))


def test_no_damaged_value_gets_past_the_shape_and_is_told():
    """Each value of the manifests of all versions, once: errors of ours are not taken for damage."""
    nothing, numbers = pa.table({}), np.empty(0)
    figures = Figures(nothing, nothing, nothing, np.zeros(24, np.int64), {}, numbers, numbers, 0, nothing)
    seen, refused = set(), 0
    for path in reversed(STATES):
        with zipfile.ZipFile(path) as packed:
            manifest = json.loads(packed.read("manifest.json"))
        told = {name: value for name, value in manifest.items() if name not in ("carry", "recalibration")}
        for place in list(_paths(told)):
            if place in seen:
                continue
            seen.add(place)
            *way, last = place
            holder = functools.reduce(lambda value, key: value[key], way, manifest)
            kept = holder[last]
            for bad in (None, -1, "7", [None], True):
                holder[last] = bad
                try:
                    check_manifest(manifest, "m")
                except NightError:
                    refused += 1
                    continue
                report.summary(manifest, "night")
                sections.of_night(manifest, figures, None, "")
                trends.of_nights([manifest, manifest])
                of_night(manifest)
            holder[last] = kept
    assert refused > 500


@pytest.mark.parametrize("text", ["", "[1]", "{}", '{"status": "o', "\xff"])
def test_no_command_falls_over_a_damaged_manifest(text, night, tmp_path):
    broken = tmp_path / "broken"
    broken.mkdir()
    (broken / "manifest.json").write_bytes(text.encode("latin-1"))
    for words in _commands(broken, night.folder, tmp_path):
        code, printed, said = command(*words)
        assert (code, printed, said.count("\n")) == (1, "", 1), (words, said)
        assert f"{broken}/manifest.json: " in said and ("run that night again" in said or "Give the" in said)


@pytest.mark.parametrize("kind", ["pages", "hosts", "schedule"])
@pytest.mark.parametrize("fault", ["gone", "torn", "rotten"])
def test_a_file_that_is_missed_or_damaged_is_named(kind, fault, night, tmp_path):
    broken = tmp_path / "broken"
    shutil.copytree(night.folder, broken)
    (file,) = (broken / kind).iterdir()
    data = file.read_bytes()
    file.unlink()
    if fault == "torn":
        file.write_bytes(data[: len(data) // 2])
    elif fault == "rotten":
        file.write_bytes(data[:4] + b"\x5a" * 400 + data[404:])
    said_of = 0
    for words in _commands(broken, night.folder, tmp_path):
        code, printed, said = command(*words)
        if code:
            said_of += 1
            assert (code, printed, said.count("\n")) == (1, "", 1), (words, said)
            assert str(file) in said and said.endswith("Restore the file, or run that night again\n")
            assert ("it is not there" in said) == (fault == "gone") and ".." not in said
    assert said_of >= 2


@pytest.mark.parametrize("path", STATES, ids=lambda p: p.stem)
def test_the_manifest_of_every_version_is_shown(path):
    with zipfile.ZipFile(path) as packed:
        manifest = json.loads(packed.read("manifest.json"))
    assert "6 on 2 hosts" in report.summary(check_manifest(manifest, ""), "old")
    nothing, numbers = pa.table({}), np.empty(0)
    figures = Figures(nothing, nothing, nothing, np.zeros(24, np.int64), {}, numbers, numbers, 0, nothing)
    said = sections.of_night(manifest, figures, None, "")
    assert {s.key for s in said if s.says_something} >= {"now"}
    assert "recrawl_" in of_night(manifest)


def test_a_night_from_before_there_were_hosts_says_so(night, tmp_path):
    old = tmp_path / "old"
    shutil.copytree(night.folder, old)
    manifest = json.loads((old / "manifest.json").read_text())
    manifest["files"] = [file for file in manifest["files"] if not file["path"].startswith("hosts/")]
    (old / "manifest.json").write_text(json.dumps(manifest))
    code, printed, said = command("explain", str(old), "a.test")
    assert (code, printed) == (1, "") and "an older night, which says nothing of hosts" in said
    assert command("explain", str(old), PAGE)[0] == 0
    assert command("report", str(old), "--output", str(tmp_path / "old.html"))[0] == 0


def test_pages_that_nobody_counted_requests_of_are_spoken_of_as_pages(night):
    texts = [
        command(*words, str(night.folder), *more)[1]
        for words, more in ((("show",), ()), (("explain",), (PAGE,)))
    ]
    for text in texts:
        assert "more pages fresh" in text and "requests a day" not in text and "clicks" not in text
    assert "as any other page" in texts[1] and "of the time, as expected" in texts[1]


def test_a_store_stands_for_its_newest_night(night, tmp_path):
    folder = tmp_path / "store" / "nights" / "20260701T000000Z"
    shutil.copytree(night.folder, folder)
    latest = {"folder": "nights/20260701T000000Z"}
    (tmp_path / "store" / "latest.json").write_text(json.dumps(latest))
    for words in _commands(tmp_path / "store", night.folder, tmp_path):
        code, _, said = command(*words)
        assert (code, said) == (0, ""), words
