"""`recrawl discover` from files to files."""

import gzip
import itertools
import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq
import pytest

from pipelines.door import cli
from policies.discovery import drawn
from tests.pipelines.discovery.logs import (
    HOUR,
    START,
    Row,
    contents,
    discover,
    iso,
    manifest,
    read,
    rows_of,
    write_csv,
)
from tests.pipelines.plain_runner import chosen

ALL = ("schedule", "sources", "targets", "state", "slots")


@pytest.fixture(scope="module")
def log() -> pa.Table:
    """Three days of 12 sources, fetched hourly."""
    history = drawn.draw(3, 0, 12, 72)
    return rows_of(history, np.arange(len(history.poll_us)))


def end_of(log: pa.Table) -> int:
    return int(np.asarray(log["seen_at"].cast(pa.int64())).max()) // 1_000_000 + 1


OPTIONS = ("--budget=40", "--num_shards=3", "--host_max_per_day=7", "--host_min_gap_seconds=60")


@pytest.fixture(scope="module")
def night(log: pa.Table, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("discover")
    pq.write_table(log, folder / "links.parquet")
    assert (
        discover(folder / "out", f"--links={folder}/links.parquet", f"--as_of={iso(end_of(log))}", *OPTIONS)
        == 0
    )
    return folder / "out"


def test_a_target_is_found_once_by_who_showed_it_first(log: pa.Table, night: Path) -> None:
    first: dict[str, tuple[int, str]] = {}
    for source, target, seen in zip(
        log["source"].to_pylist(),
        log["target"].to_pylist(),
        log["seen_at"].cast(pa.int64()).to_pylist(),
        strict=True,
    ):
        first[target] = min(first.get(target, (seen // 1_000_000, source)), (seen // 1_000_000, source))
    found = {r["url"]: (int(r["found_at"].timestamp()), r["found_by"]) for r in read(night, "targets")}
    assert {url: at for url, (at, _) in found.items()} == {url: at for url, (at, _) in first.items()}
    assert len(read(night, "targets")) == len(first) == manifest(night)["counters"]["targets_new"]
    known = np.concatenate(
        [pq.read_table(p)["target_hash"].to_numpy() for p in (night / "state/known").iterdir()]
    )
    assert len(np.unique(known)) == len(known) == len(first)


def test_the_order_of_rows_and_files_and_the_runner_change_no_byte(
    log: pa.Table, night: Path, tmp_path: Path
) -> None:
    mixed = np.random.Generator(np.random.Philox(key=4)).permutation(log.num_rows)
    shuffled = log.take(pa.array(mixed))
    for number, begin in enumerate(range(0, log.num_rows, 5000)):
        pa_csv.write_csv(shuffled.slice(begin, 5000), tmp_path / f"l{number}.csv")
    words = [f"--links={tmp_path}/l*.csv", f"--as_of={iso(end_of(log))}", *OPTIONS, "--rows_per_batch=700"]
    assert discover(tmp_path / "out", *words) == 0
    assert contents(tmp_path / "out", *ALL) == contents(night, *ALL)
    for name, more in (("beam", ["--runner=FnApiRunner"]), ("own", [])):  # of a small log a plain one
        assert cli.main(["discover", *words, *more, f"--output={tmp_path / name}"]) == 0
        assert contents(tmp_path / name, *ALL) == contents(night, *ALL)


@pytest.mark.parametrize("at_hours", [7, 40.5])
def test_two_nights_leave_the_state_of_one(
    log: pa.Table, night: Path, tmp_path: Path, at_hours: float
) -> None:
    """The second one is given the whole log again: what is known already counts once."""
    pq.write_table(log, tmp_path / "links.parquet")
    links, end = f"--links={tmp_path}/links.parquet", end_of(log)
    middle = end - 72 * HOUR + round(at_hours * HOUR)
    assert discover(tmp_path / "one", links, f"--as_of={iso(middle)}", *OPTIONS) == 0
    assert discover(tmp_path / "two", links, f"--as_of={iso(end)}", f"--state={tmp_path}/one", *OPTIONS) == 0
    assert contents(tmp_path / "two", "state", "sources") == contents(night, "state", "sources")
    both = read(tmp_path / "one", "targets") + read(tmp_path / "two", "targets")
    assert sorted(r["url"] for r in both) == sorted(r["url"] for r in read(night, "targets"))


def test_the_budget_limits_and_gaps_of_hosts_hold(log: pa.Table, night: Path) -> None:
    schedule = read(night, "schedule", ("host", "due_at"))
    counters = manifest(night)["counters"]
    assert len(schedule) == counters["refreshes"] == 40
    by_host: dict[str, list[float]] = {}
    for row in schedule:
        by_host.setdefault(row["host"], []).append(row["due_at"].timestamp())
    assert max(map(len, by_host.values())) == 7  # it binds
    end = end_of(log)
    for times in by_host.values():
        assert all(b - a >= 60 for a, b in itertools.pairwise(times))
        assert end <= times[0] and times[-1] < end + 24 * HOUR
    assert {r["reason"] for r in schedule} == {"discover"}
    planned = sum(r["refreshes_per_day"] for r in read(night, "sources"))
    assert planned == pytest.approx(40)


def test_hosts_of_a_group_share_one_limit_and_one_gap_wherever_they_lie(
    log: pa.Table, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pq.write_table(log, tmp_path / "links.parquet")
    gap, few, apart = 5000, [f"www.site{i}.test" for i in range(3)], [f"www.site{i}.test" for i in (3, 4)]
    rows = [{"host": h, "group": "few", "max_per_day": 9} for h in few]
    rows += [{"host": f"*.{h[4:]}", "group": "apart", "min_gap_seconds": gap} for h in apart]
    (tmp_path / "hosts.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    links, end = f"--links={tmp_path}/links.parquet", end_of(log)
    words = (links, f"--hosts={tmp_path}/hosts.jsonl", "--budget=90", "--num_shards=5")
    assert discover(tmp_path / "out", *words, f"--as_of={iso(end)}", "--host_groups") == 0
    later = f"--as_of={iso(end + 24 * HOUR)}"
    assert discover(tmp_path / "two", *words[1:], later, "--host_groups", f"--state={tmp_path}/out") == 0
    one, two = (read(tmp_path / name, "schedule") for name in ("out", "two"))
    for rows in (one, two):
        assert sum(r["host"] in few for r in rows) == 9 and len({r["host"] for r in rows} & {*few}) > 1
        assert len(rows) == 90
    times = sorted(r["due_at"].timestamp() for r in one + two if r["host"] in apart)
    assert len(times) > 20 and min(np.diff(times)) >= gap
    assert {r["host"] for r in one} >= {*apart}
    assert discover(tmp_path / "not", *words, f"--as_of={iso(end)}") == 2
    assert "give --host_groups, too" in capsys.readouterr().err


def test_the_next_schedule_keeps_the_gap_to_the_last_one(log: pa.Table, tmp_path: Path) -> None:
    pq.write_table(log, tmp_path / "links.parquet")
    links, end = f"--links={tmp_path}/links.parquet", end_of(log)
    gap = 3 * HOUR + 1
    words = ("--budget=1000", "--num_shards=2", f"--host_min_gap_seconds={gap}")
    assert discover(tmp_path / "one", links, f"--as_of={iso(end)}", *words) == 0
    later = end + 24 * HOUR
    assert discover(tmp_path / "two", f"--as_of={iso(later)}", f"--state={tmp_path}/one", *words) == 0
    both = read(tmp_path / "one", "schedule") + read(tmp_path / "two", "schedule")
    for host in {r["host"] for r in both}:
        times = sorted(r["due_at"].timestamp() for r in both if r["host"] == host)
        assert len(times) > 10 and min(np.diff(times)) >= gap


def at(hours: float) -> int:
    return START + round(hours * HOUR)


def small(folder: Path, rows: list[Row], *words: str, name: str = "out", end: float = 48) -> Path:
    """A run over some rows."""
    links = write_csv(folder / f"{name}.csv", rows)
    options = (f"--links={links}", f"--as_of={iso(at(end))}", "--budget=24", "--num_shards=2", *words)
    assert discover(folder / name, *options) == 0
    return folder / name


def steady(source: str, hours: range, new: int = 2, stays: int = 5) -> list[Row]:
    """A source that gains some links each hour, which stay for some hours."""
    base = source.rstrip("/")
    return [
        (source, f"{base}/{h - age}-{i}", at(h), 200)
        for h in hours
        for age in range(stays)
        for i in range(new)
    ]


def test_a_failed_refresh_is_no_evidence(tmp_path: Path) -> None:
    rows = steady("https://a.test/", range(0, 40, 2)) + steady("https://b.test/", range(0, 40, 2))
    failures: list[Row] = [("https://b.test/", "", at(h), 503) for h in range(1, 40, 2)]
    failures += [("https://b.test/", "https://b.test/login", at(h), 302) for h in range(1, 40, 4)]
    plain, failed = small(tmp_path, rows), small(tmp_path, rows + failures, name="failed")
    sums = [read(folder, "state/sources", ("url",)) for folder in (plain, failed)]
    for one, other in zip(*sums, strict=True):
        for name in ("new", "before_minutes", "count", "exposure_hours", "seen_s"):
            assert one[name] == other[name], name
    assert sums[1][1]["unanswered"] > 0 and sums[0][1]["unanswered"] is None
    assert contents(plain, "state/known", "state/shown", "state/shared") == contents(
        failed, "state/known", "state/shown", "state/shared"
    )


def test_what_does_not_answer_is_asked_less_and_less(tmp_path: Path) -> None:
    rows = steady("https://a.test/", range(24)) + steady("https://b.test/", range(24))
    gone: list[Row] = [("https://b.test/", "", at(h), 404) for h in range(24, 47)]
    night = small(tmp_path, rows + steady("https://a.test/", range(24, 47)) + gone)
    by_url = {r["url"]: r for r in read(night, "sources")}
    assert (
        by_url["https://b.test/"]["failures"] == 23 and by_url["https://b.test/"]["why"] == "does not answer"
    )
    # Away for 22 hours and worth an hourly refresh: asked about every sqrt(22) hours.
    asked = {name: by_url[f"https://{name}.test/"]["refreshes_per_day"] for name in "ab"}
    assert 1 <= asked["b"] <= 24 / 22**0.5 and asked["a"] > 15


@pytest.mark.parametrize(("failed_days_ago", "asked"), [((2, 1), 1), ((5, 3, 2, 1), 0), ((5, 4, 3), 1)])
def test_what_is_seldom_refreshed_and_fails_is_tried_again_at_growing_distances(
    tmp_path: Path, failed_days_ago: tuple[int, ...], asked: int
) -> None:
    """After the geometric mean of its absence and the day between its refreshes, less 19 hours."""
    days = 24
    rows = steady("https://a.test/", range(0, 24 * days, 3))
    for name in "bcd":
        base = f"https://{name}.test/"
        seen = range(0, days - 5, 3)
        rows += [(base, f"{base}{day}-{i}", at(24 * day + 5), 200) for day in seen for i in range(12)]
    rows += [("https://b.test/", "", at(24 * (days - ago) + 5), 503) for ago in failed_days_ago]
    night = small(tmp_path, rows, "--budget=9", end=24 * days)
    by_url = {r["url"]: r for r in read(night, "sources")}
    assert by_url["https://b.test/"]["refreshes_per_day"] == asked
    assert min(by_url[f"https://{name}.test/"]["refreshes_per_day"] for name in "cd") >= 1
    # It is known that it may not answer.
    assert by_url["https://b.test/"]["worth"] < by_url["https://c.test/"]["worth"]


def test_variants_of_a_url_are_one_and_other_sites_are_no_targets(tmp_path: Path) -> None:
    variants = [
        "http://a.test/1",
        "a.test/1",
        "https://a.test/1",
        "https://a.test/1?utm_source=x",
        "https://a.test/1#top",
    ]
    rows: list[Row] = [("http://a.test", v, at(i), 200) for i, v in enumerate(variants)]
    rows += [
        ("https://a.test/", "https://other.test/2", at(5), 200),
        ("https://a.test/", "mailto:x@a.test", at(5), 200),
    ]
    night = small(tmp_path, rows)
    assert [(r["url"], r["found_at"].timestamp()) for r in read(night, "targets")] == [
        ("http://a.test/1", at(0))
    ]
    assert [r["url"] for r in read(night, "sources")] == ["https://a.test/"]
    counters = manifest(night)["counters"]
    assert counters["links_off_site"] == 1 and counters["links_seen_accepted"] == 7
    both = small(tmp_path, rows, "--off_site", name="both")
    assert {r["url"] for r in read(both, "targets")} == {"http://a.test/1", "https://other.test/2"}


def test_calendars_without_end_do_not_take_the_budget(tmp_path: Path) -> None:
    """Each of their pages brings a link to the next one, and nothing at a second look."""

    def month(number: int, hours: float) -> list[Row]:
        page = "https://a.test/calendar?month={}"
        shown = [f"https://a.test/{x}" for x in ("", "news", "contact")] + [page.format(number + 1)]
        return [(page.format(number), target, at(hours), 200) for target in shown]

    rows = steady("https://a.test/news", range(48))
    for number in range(400):
        rows += month(number, number / 10)
        rows += month(number, number / 10 + 6.0) if number % 20 == 0 else []
    one = small(tmp_path, rows)
    assert manifest(one)["counters"]["sources_known"] > 390
    schedule = [(r["url"], (r["due_at"].timestamp() - START) / HOUR) for r in read(one, "schedule")]
    more = steady("https://a.test/news", range(48, 72))
    for url, hours in schedule:
        more += month(int(url.partition("=")[2]), hours) if "calendar" in url else []
    two = small(tmp_path, more, f"--state={one}", name="two", end=72)
    asked = [[r["url"] for r in read(night, "schedule")] for night in (one, two)]
    share = [sum("calendar" in url for url in urls) / len(urls) for urls in asked]
    # Some are looked at, and then it is known what they are worth.
    assert share[0] < 0.7 and share[1] < 0.2


def test_listed_sources_are_planned_before_they_were_seen_and_others_are_not(tmp_path: Path) -> None:
    (tmp_path / "sources.txt").write_text("https://a.test/\nhttps://c.test/new\n")
    rows = steady("https://a.test/", range(24)) + steady("https://b.test/", range(24))
    night = small(tmp_path, rows, f"--sources={tmp_path}/sources.txt")
    by_url = {r["url"]: r for r in read(night, "sources")}
    assert set(by_url) == {"https://a.test/", "https://c.test/new"}
    assert by_url["https://c.test/new"]["why"] == "never seen"
    assert by_url["https://c.test/new"]["refreshes_per_day"] > 0
    # Links of b are targets all the same.
    assert any(r["url"].startswith("https://b.test/") for r in read(night, "targets"))


def test_an_empty_row_is_a_visit_that_showed_nothing_and_what_is_not_modified_is_none(tmp_path: Path) -> None:
    rows = steady("https://a.test/", range(0, 24, 2))
    empty: list[Row] = [("https://a.test/", "", at(h), 200) for h in range(24, 47)]
    same: list[Row] = [("https://a.test/", "", at(h), 304) for h in range(24, 47)]
    less = {r["url"]: r for r in read(small(tmp_path, rows + empty), "sources")}["https://a.test/"]
    night = small(tmp_path, rows + same, name="more")
    more = {r["url"]: r for r in read(night, "sources")}["https://a.test/"]
    assert less["links"] == 0 and less["new_links_per_day"] < 0.7 * more["new_links_per_day"]
    assert more["failures"] == 0 and more["last_seen_at"].timestamp() == at(22)
    assert manifest(night)["counters"]["links_not_modified"] == len(same)


def test_targets_are_pages_for_the_nightly_job(night: Path, log: pa.Table, tmp_path: Path) -> None:
    words = ["nightly", f"--pages={night}/targets", f"--as_of={iso(end_of(log))}", "--budget=100"]
    words += [f"--output={tmp_path / 'night'}", "--num_shards=2"]
    with chosen():
        assert cli.main(words) == 0
    assert manifest(tmp_path / "night")["counters"]["pages_known"] == len(read(night, "targets"))
    known = {r["url"]: r["published_at"] for r in read(tmp_path / "night", "state")}
    # What the first look at a source shows may have been there for long.
    looks: dict[str, Any] = {}
    for source, seen in zip(log["source"].to_pylist(), log["seen_at"].to_pylist(), strict=True):
        looks[source] = min(seen, looks.get(source, seen))
    first = {source: seen.replace(microsecond=0) for source, seen in looks.items()}
    targets = read(night, "targets")
    dated = {r["url"]: r["found_at"] if r["found_at"] > first[r["found_by"]] else None for r in targets}
    assert known == dated and 0 < len(set(filter(None, dated.values()))) and None in dated.values()


def test_bad_rows_are_rejected_with_reasons(tmp_path: Path) -> None:
    rows = steady("https://a.test/", range(24))
    bad: list[Row] = [("", "https://a.test/x", at(1), 200), ("https://a.test/", "http://", at(1), 200)]
    night = small(tmp_path, rows + bad, "--max_rejected_fraction=0.5")
    counters = manifest(night)["counters"]
    assert counters["links_seen_rejected"] == 2 and counters["links_seen_accepted"] == len(rows)
    assert sorted(r["reason"] for r in read(night, "rejected")) == ["bad_target", "no_url"]
    words = (
        f"--links={tmp_path}/out.csv",
        f"--as_of={iso(at(48))}",
        "--budget=1",
        "--max_rejected_fraction=0",
    )
    assert discover(tmp_path / "not", *words) == 4
    assert not (tmp_path / "not" / "manifest.json").exists()


def test_inputs_that_leave_no_source_say_why(tmp_path: Path) -> None:
    rows = write_csv(tmp_path / "links.csv", steady("https://a.test/", range(24))).read_bytes()
    (tmp_path / "cut.csv.gz").write_bytes(gzip.compress(rows)[:200])
    words = (f"--links={tmp_path}/cut.csv.gz", "--budget=9", "--num_shards=1")
    assert discover(tmp_path / "later", *words, f"--as_of={iso(START - HOUR)}") == 3
    said = manifest(tmp_path / "later")
    assert said["status"] == "no_input" and "of --links are later than --as_of" in said["status_reason"]
    assert said["warnings"] == ["1 file of --links damaged, and read up to there: see rejected/"]
    (tmp_path / "none.csv").write_text("url\n")
    listed = f"--sources={tmp_path}/none.csv"
    assert discover(tmp_path / "none", *words, f"--as_of={iso(at(48))}", listed) == 3
    assert "--sources has no usable row" in manifest(tmp_path / "none")["status_reason"]


def test_a_state_of_another_job_or_a_damaged_one_is_refused(
    night: Path, log: pa.Table, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    when = f"--as_of={iso(end_of(log) + HOUR)}"
    assert discover(tmp_path / "a", f"--state={tmp_path}", when, "--budget=1") == 2
    assert "no manifest.json" in capsys.readouterr().err
    copy = tmp_path / "copy"
    for path in [p for p in night.rglob("*") if p.is_file()]:
        to = copy / path.relative_to(night)
        to.parent.mkdir(parents=True, exist_ok=True)
        to.write_bytes(path.read_bytes())
    damaged = next((copy / "state/sources").iterdir())
    damaged.write_bytes(damaged.read_bytes()[:-9] + b"\0" * 9)
    assert discover(tmp_path / "b", f"--state={copy}", when, "--budget=1") == 2
    assert "damaged" in capsys.readouterr().err
    assert discover(tmp_path / "c", f"--state={night}", when, "--budget=1", "--num_shards=5") == 2
    assert "the state has 3" in capsys.readouterr().err
