"""However the input is cut, spread and run, the output is the same."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from apache_beam.portability import python_urns
from apache_beam.runners.portability.local_job_service import LocalJobServicer

from tests.pipelines.jobs import Night, nightly, write_rows
from tests.pipelines.plain_runner import CHOICE
from tests.pipelines.site import make_site

ROOT = Path(__file__).parents[3]
SITE = make_site(n_pages=90)
LOGS = {kind: SITE.between(kind, 0, 30) for kind in ("observations", "requests", "signals")}
LOGS |= {"pages": SITE.pages, "hosts": SITE.hosts}
BAD = [{"url": "ftp://a.test/", "fetched_at": "never"}, {"url": None, "fetched_at": "2026-06-01"}]


def _one_file(folder: Path) -> dict[str, Path]:
    """Every input in one file."""
    found = {kind: write_rows(folder / f"{kind}.parquet", rows) for kind, rows in LOGS.items()}
    write_rows(folder / "bad.jsonl", BAD)
    return found


def _seven_files(folder: Path) -> dict[str, Path]:
    """Seven files a kind in several formats; rows scattered over them against the order of time."""
    kinds = [".parquet", ".jsonl.gz", ".csv", ".jsonl", ".csv.gz", ".parquet", ".csv"]
    for kind, rows in LOGS.items():
        for i, suffix in enumerate(kinds):
            part = rows[::-1][i::7]
            # An empty file of this kind would have no columns.
            write_rows(folder / kind / f"{6 - i}{suffix}", part)
    write_rows(folder / "bad.jsonl", BAD)
    return {kind: folder / kind for kind in LOGS}


def _row_groups(folder: Path) -> dict[str, Path]:
    """One file, of row groups of 3 rows."""
    found = {
        kind: write_rows(folder / f"{kind}.parquet", rows, row_group_size=3) for kind, rows in LOGS.items()
    }
    write_rows(folder / "bad.jsonl", BAD)
    return found


CUTS = {"one file": _one_file, "seven files": _seven_files, "row groups of 3": _row_groups}
# The group means of metadata groups reach over shards: the hardest case for determinism.
OPTIONS = {"budget": 70, "horizon_hours": 30, "group_columns": "section", "host_min_gap_seconds": 5}


@pytest.fixture(scope="module")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Path]]:
    return {name: cut(tmp_path_factory.mktemp(name.replace(" ", "-"))) for name, cut in CUTS.items()}


def _run(
    inputs: dict[str, Path], folder: Path, num_shards: int, name: str = "night", **more: object
) -> Night:
    paths = {k: str(v) for k, v in inputs.items()}
    paths["observations"] += f",{paths['observations'].rpartition('/')[0]}/bad.jsonl"
    night = nightly(folder, name, **paths, num_shards=num_shards, **OPTIONS, **more)
    assert night.code == 0, night.complaints
    return night


@pytest.fixture(scope="module")
def plain(inputs: dict[str, dict[str, Path]], tmp_path_factory: pytest.TempPathFactory) -> dict[int, Night]:
    """One file, in this process, by number of shards; of the night that others are compared with, by Beam."""
    folder, found = tmp_path_factory.mktemp("plain"), {}
    for n in (1, 3, 16):
        with pytest.MonkeyPatch.context() as patch:
            if n == 3:
                patch.setenv(CHOICE, "beam")
            found[n] = _run(inputs["one file"], folder, n, f"shards-{n}")
    return found


def _content(night: Night) -> dict[str, object]:
    """All that is written but the names of the input files."""
    files = night.digests("pages", "schedule", "state", "slots")
    manifest = dict(night.manifest)
    del manifest["sha256"]  # of the manifest itself
    manifest["options"] = {k: v for k, v in manifest["options"].items() if k not in LOGS}
    manifest["counters"] = {k: n for k, n in manifest["counters"].items() if not k.endswith("_files")}
    manifest["files"] = [f for f in manifest["files"] if not f["path"].startswith("rejected/")]
    rejected = sorted((r["row"], r["reason"], r["sample"]) for r in night.rejected())
    return {"files": files, "manifest": manifest, "rejected": rejected}


def test_the_site_has_every_kind_of_row(plain):
    counters = plain[3].counters
    for name in (
        "duplicate",
        "failed",
        "baseline",
        "unchanged",
        "changed_dated",
        "changed_undated",
        "pages_new",
        "no_change_evidence",
        "signals_unmatched",
        "requests_unmatched",
        "signals_counted",
        "hosts_at_limit",
        "pages_limit_floor",
        "pages_limit_cap",
        "pages_limit_host",
        "slots_new",
        "slots_overdue",
        "observations_rejected",
    ):
        assert counters[name] > 0, name


@pytest.mark.parametrize(
    ("cut", "num_shards"), [("seven files", 1), ("row groups of 3", 3), ("seven files", 16)]
)
def test_cuts_of_the_input(cut, num_shards, inputs, plain, tmp_path):
    assert _content(_run(inputs[cut], tmp_path, num_shards)) == _content(plain[num_shards])


def test_small_batches(inputs, plain, tmp_path):
    """`--rows_per_batch` changes no byte."""
    night = _run(inputs["one file"], tmp_path, 3, rows_per_batch=7)
    assert night.digests() == plain[3].digests()


RUNNERS = {
    "threads": ["--direct_running_mode=multi_threading", "--direct_num_workers=2"],
    "processes": ["--direct_running_mode=multi_processing", "--direct_num_workers=2"],
}


@pytest.mark.parametrize("mode", RUNNERS)
def test_workers_of_the_direct_runner(mode, inputs, plain, tmp_path, monkeypatch):
    monkeypatch.chdir(ROOT)  # where the workers find the package
    night = _run(inputs["one file"], tmp_path, 3, flags=RUNNERS[mode])
    assert night.digests() == plain[3].digests()


def test_portable_runner(inputs, plain, tmp_path):
    """Through Beam's job service, as a cluster would get it."""
    service = LocalJobServicer()
    port = service.start_grpc_server()
    try:
        flags = [
            "--runner=PortableRunner",
            f"--job_endpoint=localhost:{port}",
            f"--environment_type={python_urns.EMBEDDED_PYTHON}",
        ]
        night = _run(inputs["one file"], tmp_path, 3, flags=flags)
    finally:
        service.stop()
    assert night.digests() == plain[3].digests()


def test_time_zone_and_hash_seed(inputs, plain, tmp_path):
    """Another process, in another zone, with other hashes of `str`: the same bytes."""
    log = inputs["one file"]
    paths = {k: str(v) for k, v in log.items()}
    paths["observations"] += f",{log['observations'].parent}/bad.jsonl"
    options = {
        **paths,
        **OPTIONS,
        "num_shards": 3,
        "max_rejected_fraction": 1,
        "as_of": "2026-07-01",
        "output": tmp_path / "night",
    }
    environment = os.environ | {"TZ": "America/Los_Angeles", "PYTHONHASHSEED": "77"}
    done = subprocess.run(
        [sys.executable, "-m", "recrawl", "nightly", *(f"--{k}={v}" for k, v in options.items())],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert Night(0, "", "", tmp_path / "night").digests() == plain[3].digests()


def _by_url(night: Night) -> dict[str, list[object]]:
    table = night.table("pages").sort_by("url")
    return table.to_pydict()


@pytest.mark.parametrize("num_shards", [3, 16])
def test_number_of_shards_changes_only_owed(num_shards, plain):
    one, many = plain[1], plain[num_shards]
    for name in ("low", "high", "multiplier", "share_low", "allocated_per_day"):
        assert one.manifest["search"][name] == many.manifest["search"][name], name
    assert one.manifest["prior"] == many.manifest["prior"]
    expected, got = _by_url(one), _by_url(many)
    assert expected.keys() == got.keys()
    for name, values in expected.items():
        if name in ("owed", "n_slots"):  # who gets a slot tonight depends on who shares the shard
            continue
        if isinstance(values[0], float):
            np.testing.assert_allclose(
                np.array(got[name], float), np.array(values, float), rtol=1e-9, err_msg=name
            )
        else:
            assert got[name] == values, name
    keys = [("host_hash", "ascending"), ("url_hash", "ascending")]
    for kind in ("state", "state/signals"):
        assert many.table(kind).sort_by(keys).equals(one.table(kind).sort_by(keys)), kind
    for kind in ("slots/pages", "state/signals"):
        assert many.table(kind).num_rows > 0


@pytest.mark.parametrize("num_shards", [3, 16])
def test_number_of_shards_keeps_totals(num_shards, plain):
    one, many = plain[1], plain[num_shards]
    assert many.manifest["slots"] == one.manifest["slots"]
    for name in ("expected_freshness", "expected_freshness_uniform"):
        assert many.manifest[name] == pytest.approx(one.manifest[name], rel=1e-12)
    # How far signals may move a host depends on who shares the shard, as slots do.
    depend = ("hosts_at", "hosts_bursting")
    same = [k for k in one.counters if not k.startswith(("slots_", *depend))]
    assert {k: many.counters[k] for k in same} == {k: one.counters[k] for k in same}
