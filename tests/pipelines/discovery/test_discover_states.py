"""States and folders of `recrawl discover`: run again, replaced, of other layouts, of nothing."""

import hashlib
import json
import shutil
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.pipelines.discovery.logs import HOUR, START, contents, discover, iso, manifest, read, write_csv
from tests.pipelines.discovery.test_discover import ALL, steady

DAY = 24 * HOUR


@pytest.fixture(scope="module")
def one(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A night of two sources, with the log beside it."""
    folder = tmp_path_factory.mktemp("states")
    for number in (0, 1):
        hours = range(24 * number, 24 * number + 24)
        rows = steady("https://a.test/", hours) + steady("https://b.test/x", hours, new=1)
        write_csv(folder / f"links{number}.csv", rows)
    words = (f"--links={folder}/links0.csv", f"--as_of={iso(START + DAY)}", "--budget=20", "--num_shards=2")
    assert discover(folder / "out", *words) == 0
    return folder


def again(one: Path, output: Path, *words: str) -> int:
    return discover(
        output, f"--links={one}/links1.csv", f"--as_of={iso(START + 2 * DAY)}", "--budget=20", *words
    )


def test_a_folder_has_what_the_manifest_says_and_no_other(one: Path) -> None:
    listed = {f["path"] for f in manifest(one / "out")["files"]}
    there = {str(p.relative_to(one / "out")) for p in (one / "out").rglob("shard-*")}
    assert listed == there
    assert {p.name for p in (one / "out").iterdir() if p.is_dir()} == {*ALL}


def test_a_run_replaces_the_one_before_when_it_is_complete(one: Path, tmp_path: Path) -> None:
    copy = tmp_path / "out"
    shutil.copytree(one / "out", copy)
    before = contents(copy, *ALL)
    bad = write_csv(tmp_path / "bad.csv", [("", "", START, 200)] * 9)
    words = (f"--as_of={iso(START + 2 * DAY)}", "--budget=20")
    assert discover(copy, f"--links={bad}", f"--state={one}/out", *words) == 4
    assert contents(copy, *ALL) == before and manifest(copy) == manifest(one / "out")
    assert again(one, copy, f"--state={one}/out") == 0
    fresh = tmp_path / "fresh"
    assert again(one, fresh, f"--state={one}/out/state") == 0
    assert contents(copy, *ALL) == contents(fresh, *ALL) != before
    assert manifest(copy)["files"] == manifest(fresh)["files"]


def test_a_state_is_read_by_the_names_of_its_columns(one: Path, tmp_path: Path) -> None:
    """One of another version has some in another order, one that is not known, and one not yet written."""
    old = tmp_path / "old"
    shutil.copytree(one / "out", old)
    said = manifest(old)
    for file in said["files"]:
        if file["path"].startswith("state/sources"):
            table = pq.read_table(old / file["path"]).drop_columns(["unanswered", "failures"])
            table = table.select(table.schema.names[::-1]).append_column("more", pa.array(["?"] * len(table)))
            pq.write_table(table, old / file["path"])
            file["sha256"] = hashlib.sha256((old / file["path"]).read_bytes()).hexdigest()
    del said["sha256"]
    (old / "manifest.json").write_text(json.dumps(said))
    for policy in ("recrawl", "thompson", "pham"):
        two = [tmp_path / f"{policy}-{name}" for name in ("old", "new")]
        for output, state in zip(two, (old, one / "out"), strict=True):
            assert again(one, output, f"--state={state}", f"--policy={policy}") == 0
        assert contents(two[0], *ALL) == contents(two[1], *ALL)


def test_without_links_a_list_is_asked_once_each_and_nothing_is_an_empty_schedule(tmp_path: Path) -> None:
    listed = [f"https://site{i % 3}.test/{i}" for i in range(10)]
    (tmp_path / "sources.csv").write_text("\n".join(["url", *listed]))
    words = (f"--as_of={iso(START)}", "--num_shards=2", f"--sources={tmp_path}/sources.csv")
    assert discover(tmp_path / "some", *words, "--budget=10") == 0
    assert sorted(r["url"] for r in read(tmp_path / "some", "schedule")) == sorted(listed)
    assert discover(tmp_path / "none", *words, "--budget=0.4") == 3
    said = manifest(tmp_path / "none")
    assert said["status"] == "empty_schedule" and said["carry"] == pytest.approx(0.4)
    more = (f"--as_of={iso(START + DAY)}", f"--state={tmp_path}/none", f"--sources={tmp_path}/sources.csv")
    assert discover(tmp_path / "next", *more, "--budget=0.7") == 0
    assert len(read(tmp_path / "next", "schedule")) == 1


def test_options_are_checked_all_at_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = (
        "--budget=-1",
        "--as_of=yesterday",
        "--links_format=arc",
        "--links_columns=source",
        "--capacity=0",
    )
    assert discover(tmp_path / "x", *words) == 2
    said = capsys.readouterr().err
    for name in ("--budget", "--as_of", "--links is missing", "--links_format", "--capacity"):
        assert name in said, name
    assert discover(tmp_path / "x", "--budget=1", f"--as_of={iso(START)}", "--links=/no/such.csv") == 2
    assert "--links: no file matches" in capsys.readouterr().err


def test_sources_that_nobody_sees_are_forgotten_with_their_links_and_targets_are_not(
    one: Path, tmp_path: Path
) -> None:
    late = START + 40 * DAY
    rows = [("https://a.test/", "https://a.test/fresh", late - HOUR, 200)]
    write_csv(tmp_path / "links.csv", rows)
    words = (f"--links={tmp_path}/links.csv", f"--as_of={iso(late)}", "--budget=20", f"--state={one}/out")
    assert discover(tmp_path / "kept", *words) == 0
    assert discover(tmp_path / "out", *words, "--forget_days=30") == 0
    assert {r["url"] for r in read(tmp_path / "kept", "sources")} == {"https://a.test/", "https://b.test/x"}
    assert [r["url"] for r in read(tmp_path / "out", "sources")] == ["https://a.test/"]
    assert manifest(tmp_path / "out")["counters"]["sources_forgotten"] == 1
    for folder in ("state/shown", "state/hosts", "slots"):
        assert len(read(tmp_path / "out", folder)) < len(read(tmp_path / "kept", folder)), folder
    assert contents(tmp_path / "out", "state/known") == contents(tmp_path / "kept", "state/known")
    # It comes back as a page that was never seen, with no target that is known.
    back = steady("https://b.test/x", range(24), new=1)
    back = [(source, target, at + 40 * DAY, status) for source, target, at, status in back]
    write_csv(tmp_path / "back.csv", [*back, ("https://b.test/x", "https://b.test/new", late + HOUR, 200)])
    words = (f"--links={tmp_path}/back.csv", f"--as_of={iso(late + DAY)}", "--budget=20")
    assert discover(tmp_path / "back", *words, f"--state={tmp_path}/out") == 0
    assert [r["url"] for r in read(tmp_path / "back", "targets")] == ["https://b.test/new"]
    assert {r["url"] for r in read(tmp_path / "back", "sources")} == {"https://a.test/", "https://b.test/x"}


def test_a_list_keeps_its_sources_whenever_they_were_seen(one: Path, tmp_path: Path) -> None:
    (tmp_path / "sources.csv").write_text("url\nhttps://b.test/x\n")
    words = (f"--sources={tmp_path}/sources.csv", f"--as_of={iso(START + 400 * DAY)}", "--budget=20")
    assert discover(tmp_path / "out", *words, f"--state={one}/out") == 0
    (source,) = read(tmp_path / "out", "sources")
    assert source["url"] == "https://b.test/x" and source["links"] > 0
