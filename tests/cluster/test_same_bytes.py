"""The same inputs give the same files on every runner, however its workers are started."""

from __future__ import annotations

import json

from tests.cluster.engines import Engine
from tests.cluster.nights import end, second_options, start


def test_workers_as_processes(any_engine: Engine, first, corpus, clean, clean_second, tmp_path):
    """Two nights: files, manifest and all."""
    night = first(*any_engine.workers())
    assert night.code == 0, night.complaints
    assert night.digests() == clean.digests()
    folder = tmp_path / "second"
    later = end(start(*corpus, *second_options(clean, folder), *any_engine.workers()), folder)
    assert later.code == 0, later.complaints
    assert later.digests() == clean_second.digests()


def test_workers_in_the_process_that_sends_the_job(engine: Engine, first, clean):
    night = first(*engine.loopback())
    assert night.code == 0, night.complaints
    assert night.digests() == clean.digests()


def test_what_a_person_sees_comes_from_the_files(engine: Engine, first, clean):
    """The summary is the same as in one process, but for the time that it took and the folder."""
    night = first(*engine.workers())
    lines, expected = (
        [line for line in n.printed.splitlines()[1:] if line.split()[:1] != ["folder"]]
        for n in (night, clean)
    )
    assert lines == expected and len(lines) > 20
    shown = "folding histories" in night.complaints
    assert shown == any(option.startswith("--flink_rest") for option in engine.options)
    assert shown != ("it shows no stages here" in night.complaints)


def test_the_manifest_names_every_file_with_its_bytes(clean):
    """What the comparisons of this suite rest on."""
    found = clean.digests()
    manifest = json.loads((clean.folder / "manifest.json").read_text())
    named = {file["path"]: file["sha256"] for file in manifest["files"]}
    beside = ("manifest.json", "report.html", "metrics.prom")
    assert {k: v for k, v in found.items() if k not in beside} == named
    kinds = {path.split("/")[0] for path in named}
    assert kinds >= {"pages", "schedule", "state", "slots"}
