"""Which hosts are split: by a sample of the logs at first, then by the counts of the night before."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from transforms.batches.errors import InputError
from transforms.batches.urls import stable_hash
from transforms.intake import layout as module
from transforms.intake.layout import choose_layout, is_small
from transforms.intake.reading import Input
from transforms.kept.carrying import Previous, PreviousFile
from transforms.shards.sharding import Layout

GIANT = stable_hash("giant.test")


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Ten files of 40,000 rows, sorted by host within a file: 30 % are of one host."""
    folder = tmp_path_factory.mktemp("log")
    rng = np.random.Generator(np.random.Philox(key=1))
    for i in range(10):
        hosts = np.where(rng.random(40_000) < 0.3, "giant.test", "")
        small = np.char.add("h", rng.integers(0, 500, 40_000).astype(str))
        hosts = np.sort(np.where(hosts == "", np.char.add(small, ".test"), hosts))
        urls = [f"https://{h}/{j}" for j, h in enumerate(hosts)]
        times = pa.array(np.full(40_000, 1_780_000_000 + i))
        pq.write_table(pa.table({"url": urls, "fetched_at": times}), folder / f"{i}.parquet")
    return folder


def _choose(log: Path, num_shards: int = 16, above: int = 1_000) -> Layout:
    return choose_layout([Input("observations", str(log), True)], Previous(), num_shards, above)


def test_a_sample_finds_the_giant(log):
    assert _choose(log) == Layout(16, {GIANT: 16})
    assert _choose(log, 2) == Layout(2, {GIANT: 2})
    assert _choose(log, 1) == Layout(1, {})


def test_a_few_rows_of_a_file_are_enough(log, monkeypatch):
    monkeypatch.setattr(module, "SAMPLED_FILES", 3)
    monkeypatch.setattr(module, "SAMPLED_ROWS", 500)
    assert _choose(log) == Layout(16, {GIANT: 16})


def test_a_page_with_many_rows_is_one_page(tmp_path):
    hot = ["https://hot.test/1", "https://hot.test/2"] * 30_000
    urls = hot + [f"https://h{i % 900}.test/{i}" for i in range(30_000)]
    times = pa.array(np.full(len(urls), 1_780_000_000))
    pq.write_table(pa.table({"url": urls, "fetched_at": times}), tmp_path / "log.parquet")
    assert _choose(tmp_path, above=100) == Layout(16, {})


def test_a_dump_of_a_store_has_many_bytes_a_page(tmp_path):
    """2,000 pages, of which a catalogue of as many bytes would have ten times as many."""
    hosts = ["giant" if i % 3 else f"h{i}" for i in range(2000)]
    more = (
        '"status":"DISCOVERED","nextFetchDate":"2026-07-01T00:00:00Z","metadata":{"a":["' + "x" * 300 + '"]}}'
    )
    lines = [f'{{"url":"https://{host}.test/{i}",{more}\n' for i, host in enumerate(hosts)]
    (tmp_path / "status.jsonl").write_text("".join(lines))
    (tmp_path / "pages.csv").write_text(
        "url\n" + "".join(f"https://{h}.test/{i}\n" for i, h in enumerate(hosts))
    )

    def choose(name: str, above: int) -> Layout:
        return choose_layout([Input("pages", str(tmp_path / name), True)], Previous(), 4, above)

    assert choose("status.jsonl", 1000) == choose("pages.csv", 1000) == Layout(4, {GIANT: 4})
    assert choose("status.jsonl", 3000) == Layout(4, {})


def test_a_small_log_is_not_looked_at(log, monkeypatch):
    monkeypatch.setattr(module, "plan", None)  # would fail
    assert _choose(log, above=10**7) == Layout(16, {})


def _of_size(folder: Path, name: str, size: int) -> Path:
    """A file with holes: its size is all that is looked at."""
    with (folder / name).open("wb") as file:
        file.truncate(size)
    return folder / name


@pytest.mark.parametrize(
    "name, size, shards",
    [
        ("log.jsonl", 0, 1),
        ("log.jsonl", 128 << 18, 1),
        ("log.jsonl", (128 << 18) + 1, 2),
        ("log.jsonl.gz", 16 << 18, 1),
        ("log.PARQUET", 16 << 20, 4),
        ("log.parquet", 1 << 30, 16),
        ("log.parquet", 1 << 33, 16),  # about 16 million pages
        ("log.parquet", (1 << 33) + 1, 32),
    ],
)
def test_shards_of_a_first_night_follow_from_the_sizes_of_its_files(tmp_path, name, size, shards):
    log = Input("observations", str(_of_size(tmp_path, name, size)), True)
    assert choose_layout([log], Previous(), None, 10**15) == Layout(shards, {})
    assert choose_layout([log], Previous(), 3, 10**15) == Layout(3, {})


def test_requests_bring_no_pages_but_a_night_of_many_is_not_small(tmp_path):
    inputs = [Input("requests", str(_of_size(tmp_path, "clicks.jsonl", 1 << 30)), True)]
    assert choose_layout(inputs, Previous(), None, 10**15) == Layout(1, {})
    assert is_small([], 0) and not is_small(inputs, 0)


@pytest.mark.parametrize("known, shards", [(300, 16), (10**6, 16), (1 << 24, 16), ((1 << 24) + 1, 32)])
def test_what_there_is_keeps_its_number_of_shards_while_they_hold_its_pages(known, shards):
    files = tuple(PreviousFile("state", f"state/shard-{i:05d}-of-00016.parquet") for i in range(16))
    manifest = {"large_hosts": [], "counters": {"pages_known": known}}
    assert choose_layout([], Previous(files, manifest), None, 10**5) == Layout(shards, {})
    assert is_small([], Previous(files, manifest).pages_known) is (known == 300)
    assert choose_layout([], Previous(files, None), None, 10**5) == Layout(16, {})


def test_a_trial_that_becomes_a_site_is_cut_anew(tmp_path):
    files = (PreviousFile("state", "state/shard-00000-of-00001.parquet"),)
    before = Previous(files, {"large_hosts": [], "counters": {"pages_known": 300}})
    catalogue = Input("pages", str(_of_size(tmp_path, "pages.csv", 1 << 29)), True)
    assert choose_layout([catalogue], before, None, 10**15) == Layout(32, {})


def test_a_missing_log_is_an_error(tmp_path):
    with pytest.raises(InputError, match="no file matches"):
        choose_layout([Input("observations", str(tmp_path / "*.csv"), True)], Previous(), 4, 10)


def test_the_previous_night_decides():
    manifest = {
        "large_hosts": [{"host": "giant.test", "host_hash": f"{GIANT:016x}", "pages": 300_000}],
        "counters": {"pages_known": 1_000_000},
        "split_hosts": {f"{GIANT:016x}": 8},
    }
    files = tuple(("state", f"state/shard-{i:05d}-of-00016.parquet") for i in range(16))
    night = Previous(files, manifest)
    # 300,000 pages are 4.8 shards: 64 parts were wanted, 16 is all there are, and 8 are too few.
    assert choose_layout([], night, 16, 100_000) == Layout(16, {GIANT: 16})
    manifest["split_hosts"] = {f"{GIANT:016x}": 16}
    assert choose_layout([], night, 16, 100_000) == night.layout
    assert choose_layout([], night, 16, 10**6) == night.layout  # it was split, and is no dwarf
    assert choose_layout([], night, 16, 10**7) == Layout(16, {})
    # Other shards, other parts.
    assert choose_layout([], night, 4, 100_000) == Layout(4, {GIANT: 4})
    assert Previous(files, None).layout is None
    assert Previous((*files, ("state", "state/shard-00000-of-00002.parquet")), manifest).layout is None
