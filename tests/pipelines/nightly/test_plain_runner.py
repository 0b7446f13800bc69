"""What the runners of small nights and of tests make of a night is what Beam's makes of it, to the byte."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import Any

import pytest
from apache_beam.runners.portability.fn_api_runner.fn_runner import FnApiRunner

from tests.pipelines.jobs import Night, at, crawls, nightly, write_rows
from tests.pipelines.plain_runner import CHOICE
from tests.pipelines.site import make_site
from transforms.batches import combining
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
    """Of a night that goes on from another one. Combined in two steps, as from 64 shards on."""
    monkeypatch.setattr(combining, "MAX_PARTS", 2)
    monkeypatch.setenv(CHOICE, "plain")
    first = _run(tmp_path, name, 6.0, None, output=tmp_path / "first")
    assert first.code == 0, first.complaints
    made = {}
    for runner in ("plain", "own", "beam"):
        monkeypatch.setenv(CHOICE, runner)
        night = _run(tmp_path, name, 12.0, first.folder / "state")
        assert night.code == 0 and "could not be written" not in night.complaints, night.complaints
        made[runner] = night.digests()
        shutil.rmtree(night.folder)
    assert made["plain"] == made["own"] == made["beam"] and "manifest.json" in made["beam"]
    assert len(by_beam) == 1


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
    "flags, rows, plain",
    [
        ([], 10**6, True),
        ([], 3, False),  # more rows than a small night has
        (["--runner=DirectRunner"], 10**6, False),
        (["--direct_num_workers=2"], 10**6, False),
    ],
)
def test_a_small_night_runs_plainly_unless_a_runner_is_asked_for(
    flags, rows, plain, by_beam, tmp_path, monkeypatch
):
    monkeypatch.setenv(CHOICE, "own")
    monkeypatch.setattr(layout, "SMALL_ROWS", rows)
    night = nightly(tmp_path, observations=crawls("https://a.test/", "ABC" * 200), as_of=at(700), flags=flags)
    assert night.code == 0, night.complaints
    assert bool(by_beam) is not plain
    assert "searching the multiplier" in night.complaints and "writing the manifest" in night.complaints
