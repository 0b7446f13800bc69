"""Stores of nights for tests, and a job that only writes a manifest for where the job is not the point."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from apache_beam.options.pipeline_options import PipelineOptions

from pipelines.command.instants import parse_instant
from pipelines.nightly import nightly
from pipelines.nightly.options import Settings
from pipelines.store import clock, metrics_and_page, night
from pipelines.store.store import night_id
from tests.pipelines.jobs import Night, Rows, at, command, write_rows
from tests.transforms.schedules import MANIFEST
from transforms.files.inputs import split_patterns
from transforms.files.sinks import write_json


@dataclass
class Stored:
    """A store below a folder; `logs` are beside it, so that their names do not depend on the store."""

    folder: Path
    name: str = "store"
    options: dict[str, Any] = field(default_factory=dict)

    @property
    def root(self) -> Path:
        return self.folder / self.name

    def log(self, path: str, rows: Rows, changed_at: str | None = None) -> Path:
        """Write a log file below the folder, with the time at which it was last changed."""
        found = write_rows(self.folder / path, rows)
        if changed_at is not None:
            seconds = parse_instant(changed_at) / 1e6
            os.utime(found, (seconds, seconds))
        return found

    def run(self, as_of: str | None, *flags: str, **more: Any) -> Night:
        """One `recrawl night`."""
        values: dict[str, Any] = {
            "store": self.root,
            "observations": self.folder / "logs" / "*.jsonl",
            "budget": 10,
            "num_shards": 2,
            "max_rejected_fraction": 1,
            "as_of": as_of,
            **self.options,
            **more,
        }
        arguments = [f"--{k}={v}" for k, v in values.items() if v is not None]
        code, out, err = command("night", *arguments, *flags)
        return Night(code, out, err, self.root / "nights" / (night_id(parse_instant(as_of)) if as_of else ""))

    def latest(self) -> dict[str, Any]:
        return json.loads((self.root / "latest.json").read_text())

    def current(self) -> str | None:
        """The night that `latest.json` and the link agree on."""
        link = self.root / "current"
        if not (self.root / "latest.json").exists():
            assert not link.is_symlink()
            return None
        found = self.latest()
        assert os.readlink(link) == found["folder"]
        assert (link / "manifest.json").exists()
        return str(found["night"])

    def committed(self) -> list[str]:
        return sorted(p.parent.name for p in self.root.glob("nights/*/manifest.json"))


@dataclass
class Job:
    """Stands in for `nightly.run`: notes what each night was given and commits it.

    By its counters it leaves rows that are later than the night.
    """

    calls: list[Settings] = field(default_factory=list)
    counters: dict[str, int] = field(default_factory=lambda: {"after_as_of": 1})
    warnings: list[str] = field(default_factory=list)
    before: Callable[[], None] = lambda: None

    def __call__(self, argv: Sequence[str], wait: bool = True) -> None:
        settings = Settings(PipelineOptions(list(argv)))
        settings.follow(None)
        self.before()
        nightly.prepare_output(settings.output)
        self.calls.append(settings)
        (Path(settings.output) / "state" / "shard-00000-of-00001.parquet").write_bytes(b"state")
        write_json(
            settings.output,
            "manifest.json",
            {
                **MANIFEST,
                "options": settings.published() | {"num_shards": settings.num_shards or 1},
                "counters": {"pages_known": 1, **self.counters},
                "warnings": self.warnings,
                "expected_freshness": 0.5,
            },
        )

    def given(self, kind: str = "observations", call: int = -1) -> list[str]:
        """Names of the files of a log that a night was given."""
        patterns = split_patterns(getattr(self.calls[call], kind) or "")
        return [Path(p).name for p in patterns if "no-new-file" not in p]


@pytest.fixture
def job(monkeypatch: pytest.MonkeyPatch) -> Job:
    """Nights that only write a manifest."""
    stub = Job()
    monkeypatch.setattr(nightly, "run", stub)
    monkeypatch.setattr(metrics_and_page, "local_path", lambda folder: None)  # no page, which takes time
    monkeypatch.setattr(night.report, "summary", lambda manifest, folder, seconds: f"done: {folder}")
    return stub


def set_clock(monkeypatch: pytest.MonkeyPatch, moment: str) -> None:
    """Make it a given time of day."""
    monkeypatch.setattr(clock, "now", lambda: parse_instant(moment) / 1e6)


def midnight(day: int) -> str:
    """The night that ends a day, counted from 2026-06-01."""
    return at(day)[:19] + "Z"
