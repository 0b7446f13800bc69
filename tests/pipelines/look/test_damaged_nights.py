"""Nights that are damaged, old, or of another version: one sentence of what is wrong and what to do."""

from __future__ import annotations

import json
import shutil
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from pipelines.nightly import report
from pipelines.store.night_metrics import of_night
from pipelines.webpage import sections
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
