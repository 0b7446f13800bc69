"""What the runners of one machine and of tests make of a night is what Beam's makes of it, to the byte."""

from __future__ import annotations

import os
import pickle
import re
import shutil
import tempfile
import threading
import weakref
from collections import deque
from pathlib import Path
from typing import Any

import apache_beam as beam
import pyarrow as pa
import pytest
from apache_beam import pvalue
from apache_beam.runners.portability.fn_api_runner.fn_runner import FnApiRunner
from apache_beam.typehints.native_type_compatibility import convert_to_beam_type

from pipelines.nightly import nightly as nightly_job
from pipelines.nightly import waiting
from pipelines.nightly.plain_runner import Held, PlainRunner, Steps
from pipelines.nightly.waiting import Room, Shelf, Waiting, batch_of, taken
from tests.pipelines.jobs import Night, at, crawls, nightly, write_rows
from tests.pipelines.plain_runner import CHOICE
from tests.pipelines.site import make_site
from transforms.batches import combining
from transforms.batches.combining import Combine
from transforms.batches.shard_tables import KEPT, SHUFFLED, ShardTables
from transforms.batches.steps import Given, each
from transforms.intake import layout

SITE = make_site(n_pages=40, days=12)
KINDS = ("observations", "requests", "signals", "pages", "hosts")
SITEMAP = "".join(f"<url><loc>{row['url']}</loc><lastmod>{{day}}</lastmod></url>" for row in SITE.pages[:20])
# By name: kinds of input, and options. Together they have every step that a night may have.
NIGHTS: dict[str, tuple[tuple[str, ...], dict[str, Any]]] = {
    "a log alone": (("observations",), {"num_shards": 1, "output_format": "jsonl"}),
    "all inputs, by crawl value": (
        KINDS,
        {
            "group_columns": "section",
            "num_shards": 3,
            "sitemaps": True,
            "sequencer": "greedy",
            "rows_per_batch": 7,
        },
    ),
    "hosts in parts": (
        KINDS,
        {"split_hosts_above": 8, "host_max_per_day": 6, "num_shards": 4, "flags": ["--host_groups"]},
    ),
}


def _run(folder: Path, name: str, day: float, state: Path | None, **options: Any) -> Night:
    kinds, more = NIGHTS[name]
    values = {k: SITE.between(k, day - 6, day) if k in KINDS[:3] else getattr(SITE, k) for k in kinds}
    values |= {k: v for k, v in more.items() if k != "flags"}
    if values.pop("sitemaps", False):
        path = folder / "map.xml"
        path.write_text(f"<urlset>{SITEMAP.format(day=at(day - 1)[:10])}</urlset>")
        values["sitemaps"] = path
    flags = ["--allow_shrink", *more.get("flags", ())]
    values = {"budget": 40, "state": state, "as_of": at(day)} | values | options
    return nightly(folder, flags=flags, **values)


@pytest.fixture
def by_beam(monkeypatch: pytest.MonkeyPatch) -> list[None]:
    """As many as Beam's runner has run."""
    done: list[None] = []
    run = FnApiRunner.run_via_runner_api

    def noted(*arguments: Any) -> Any:
        done.append(None)
        return run(*arguments)

    monkeypatch.setattr(FnApiRunner, "run_via_runner_api", noted)
    return done


@pytest.mark.parametrize("name", NIGHTS)
def test_the_same_bytes(name, by_beam, tmp_path, monkeypatch):
    """Of a night that goes on from another one. Combined in two steps, as from 64 shards on; by "files" what
    waits between stages is in files.
    """
    monkeypatch.setattr(combining, "MAX_BYTES", 1)
    monkeypatch.setenv(CHOICE, "plain")
    first = _run(tmp_path, name, 6.0, None, output=tmp_path / "first")
    assert first.code == 0, first.complaints
    made, rows = {}, layout.SMALL_ROWS
    for runner in ("plain", "own", "threads", "files", "beam"):
        by_threads = runner in ("threads", "files")
        monkeypatch.setenv(CHOICE, "own" if by_threads else runner)
        monkeypatch.setattr(layout, "SMALL_ROWS", 0 if by_threads else rows)
        monkeypatch.setattr(waiting, "IN_MEMORY_BYTES", 0 if runner == "files" else 1 << 30)
        night = _run(tmp_path, name, 12.0, first.folder / "state")
        assert night.code == 0 and "could not be written" not in night.complaints, night.complaints
        made[runner] = night.digests()
        shutil.rmtree(night.folder)
    assert "manifest.json" in made["beam"] and all(digests == made["beam"] for digests in made.values())
    assert len(by_beam) == 1


def test_what_has_no_room_on_disk_waits_in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """What was written stays as it is."""
    rows = pa.RecordBatch.from_pydict({"n": [1, 2, 3]}).replace_schema_metadata(KEPT)
    one, two = (ShardTables(i, {"pages": rows, "none": rows.slice(0, 0)}) for i in range(2))
    monkeypatch.setattr(waiting, "IN_MEMORY_BYTES", 0)
    shelf, others = Shelf(Room()), Shelf(Room())
    first, again, batch = shelf.tables(one), shelf.tables(two), others.batch(rows)
    for value, given in ((first, one), (again, two)):
        assert isinstance(value, Waiting)
        found = taken(value)
        assert found.shard == given.shard and list(found.tables) == ["pages", "none"]
        assert all(found.tables[name].equals(given.tables[name]) for name in found.tables)
    assert isinstance(batch, Waiting) and batch_of(batch).equals(rows)
    monkeypatch.setattr(shelf, "_sink", pa.OSFile("/dev/full", "wb"))
    assert shelf.tables(two) is two and shelf.tables(one) is one
    assert taken(first).tables["pages"].equals(rows)

    def none(**_: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(tempfile, "mkstemp", none)
    assert Shelf(Room()).tables(two) is two and isinstance(Shelf(Room()).batch(rows), bytes)


def test_a_night_that_fails_fails_as_with_beam(tmp_path, monkeypatch):
    """What is said, the code, and what is left behind."""
    write_rows(tmp_path / "log.jsonl", [*crawls("https://a.test/", "AB"), {"url": "ftp://b"}])
    found = []
    for runner in ("beam", "plain", "own"):
        monkeypatch.setenv(CHOICE, runner)
        night = nightly(tmp_path, observations=tmp_path / "log.jsonl", max_rejected_fraction=0)
        said = re.sub(r"^ +[0-9.]+ s ", "", night.complaints, flags=re.MULTILINE)
        found.append((night.code, said, night.digests()))
        shutil.rmtree(night.folder)
    assert found[0][0] == 4 and found[0] == found[1] == found[2]


@pytest.mark.parametrize(
    "flags, rows, threads",
    [
        ([], 10**6, 1),
        ([], 3, 3),  # more rows than a small night has
        (["--runner=DirectRunner"], 10**6, None),
        (["--direct_num_workers=2"], 10**6, None),
    ],
)
def test_a_night_runs_plainly_unless_a_runner_is_asked_for(
    flags, rows, threads, by_beam, tmp_path, monkeypatch
):
    chosen: list[int] = []
    monkeypatch.setattr(nightly_job, "PlainRunner", lambda n: chosen.append(n) or PlainRunner(n))
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1, 2}, raising=False)
    monkeypatch.setenv(CHOICE, "own")
    monkeypatch.setattr(layout, "SMALL_ROWS", rows)
    night = nightly(tmp_path, observations=crawls("https://a.test/", "ABC" * 200), as_of=at(700), flags=flags)
    assert night.code == 0, night.complaints
    assert (chosen, len(by_beam)) == (([threads], 0) if threads else ([], 1))
    assert "searching the multiplier" in night.complaints and "writing the manifest" in night.complaints


class _Thing:
    """Something that is still there or not."""

    def __init__(self, number: int) -> None:
        self.number = number


def test_what_nobody_reads_again_is_let_go():
    """An element goes through all steps before the next; what is grouped goes with its last reader."""
    seen: list[tuple[str, int]] = []
    alive: weakref.WeakSet[_Thing] = weakref.WeakSet()

    def make(number: int) -> tuple[int, _Thing]:
        thing = _Thing(number)
        alive.add(thing)
        seen.append(("made", number))
        return number, thing

    def read(pair: tuple[int, list[_Thing]], total: int) -> int:
        seen.append(("read", len(alive)))
        return total

    pipeline = beam.Pipeline(runner=PlainRunner())
    numbers = pipeline | Given(range(6))
    total = pvalue.AsSingleton(numbers | Combine(beam.CombineFn.from_callable(sum)))
    noted = numbers | "Note" >> each(lambda x: seen.append(("given", x)) or x)
    noted | "Make" >> each(make) | beam.GroupByKey() | "Read" >> each(read, total)
    pipeline.run()
    assert seen[:12] == [(word, number) for number in range(6) for word in ("given", "made")]
    assert [count for word, count in seen if word == "read"] == [6, 5, 4, 3, 2, 1]


def test_a_failure_ends_all_threads():
    """The error comes as it is; who has an element ends it, and nobody takes another."""
    both, none_left, done = threading.Barrier(2), threading.Event(), []

    class Queue(deque[Any]):
        def clear(self) -> None:
            super().clear()
            none_left.set()

    class Watched(Steps):
        def queues(self, elements: deque[Any]) -> Any:
            return super().queues(Queue(elements))

    def work(pair: tuple[int, list[int]]) -> None:
        both.wait(60)
        if pair[0] == 1:
            raise LookupError("one of six")
        none_left.wait(60)
        done.append(pair[0])

    pipeline, steps = beam.Pipeline(), Watched(threads=2)
    pipeline | Given(range(6)) | each(lambda x: (x, x)) | beam.GroupByKey() | "Work" >> each(work)
    pipeline.visit(steps)
    with pytest.raises(LookupError, match="one of six"):
        steps.run()
    assert done == [0]


@pytest.mark.parametrize("parts", ["one", "both known", "one known"])
def test_rows_that_wait_for_their_shard_are_bytes(parts: str):
    """Of a large job all are there at once; a small one does without. What a step gets is the same."""
    found: dict[int, list[Any]] = {}
    for threads in (1, 2):
        pipeline, steps = beam.Pipeline(), Steps(threads)
        rows = pa.RecordBatch.from_pydict({"url": ["https://a.test/"] * 1000}, metadata=SHUFFLED)
        pairs = pipeline | Given([(0, rows)] * (2 if parts == "one" else 1))
        pairs.element_type = convert_to_beam_type(tuple[int, pa.RecordBatch])
        if parts != "one":
            more = pipeline | "More" >> Given([(0, rows)])
            if parts == "both known":
                more.element_type = pairs.element_type
            pairs = (pairs, more) | beam.Flatten().with_output_types(tuple[int, pa.RecordBatch])
        grouped: list[Any] = []
        pairs | beam.GroupByKey() | "Take" >> each(lambda pair, into=grouped: into.append(pair[1]))
        pipeline.visit(steps)
        steps.run()
        assert isinstance(grouped[0], Held) is (threads == 2)
        found[threads] = list(grouped[0])
        if threads == 2:
            assert len(pickle.dumps(grouped[0])) < 0.3 * 2 * rows.nbytes
    assert found[1] == found[2] == [rows, rows]


def test_what_is_read_beside_elements_is_never_bytes():
    rows = pa.RecordBatch.from_pydict({"url": ["https://a.test/"]}, metadata=SHUFFLED)
    pipeline, steps, seen = beam.Pipeline(), Steps(threads=2), []
    pairs = pipeline | Given([(0, rows)])
    pairs.element_type = convert_to_beam_type(tuple[int, pa.RecordBatch])
    pairs | beam.GroupByKey()
    pipeline | "Once" >> Given([0]) | each(lambda _, all_of: seen.append(all_of), pvalue.AsList(pairs))
    pipeline.visit(steps)
    steps.run()
    assert seen == [[(0, rows)]]
