"""Which files a night reads: those of its days that no night before has read to the end."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from pipelines.store import partitions
from tests.pipelines.jobs import Night, at, nightly, seen
from tests.pipelines.site import make_site
from tests.pipelines.stores import Job, Stored, job, midnight, set_clock

__all__ = ["job"]
DAY_1 = 20605  # 2026-06-01
ROW = [seen("https://a.test/", at(0))]


@pytest.fixture
def store(tmp_path: Path) -> Stored:
    return Stored(tmp_path)


def _ledger(store: Stored, day: int) -> dict[str, list]:
    (name,) = [n for n in store.committed() if n == f"202606{day + 1:02d}T000000Z"]
    found = json.loads((store.root / "nights" / name / "files.json").read_text())
    return {kind: [Path(row[0]).name for row in rows] for kind, rows in found["files"].items()}


def test_a_placeholder_is_one_day(tmp_path):
    assert partitions.on_day("a/{date}/x.csv", DAY_1) == "a/2026-06-01/x.csv"
    assert partitions.on_day("{year}/{month}/{day}/{date}", DAY_1 + 30) == "2026/07/01/2026-07-01"
    assert partitions.day_text(DAY_1) == "2026-06-01"
    assert list(partitions.days_in_words([1, 2, 3, 5, 9, 10])) == [
        "1970-01-02 to 1970-01-04",
        "1970-01-06",
        "1970-01-10 to 1970-01-11",
    ]


@pytest.mark.parametrize(
    "pattern",
    [
        "logs/{date}/*.jsonl",
        "logs/{date}",
        "logs/{date}/",
        "logs/{year}-{month}-{day}/**",
        "logs/{date}/part-{date}.jsonl",
        "l*s/{date}/part-[0-9]*.jsonl",
        "./logs/{date}/part-????-??-??.jsonl",
    ],
)
def test_the_days_that_are_there(pattern, tmp_path, monkeypatch):
    for day in (0, 1, 5):
        name = partitions.day_text(DAY_1 + day)
        Stored(tmp_path).log(f"logs/{name}/part-{name}.jsonl", ROW)
    for other in (
        "logs/2026-13-77/part-2026-13-77.jsonl",
        "logs/x2026-06-03/part-2026-06-03.jsonl",
        "logs/all.jsonl",
    ):
        Stored(tmp_path).log(other, ROW)
    monkeypatch.chdir(tmp_path)
    absolute = str(tmp_path / pattern.removeprefix("./"))
    for spelled in (pattern, absolute + ("/" if pattern.endswith("/") else "")):
        assert partitions.days_there(spelled) == [DAY_1, DAY_1 + 1, DAY_1 + 5], spelled


def test_a_date_is_the_same_wherever_a_pattern_has_it(tmp_path):
    for folder, name in (("2026-06-01", "2026-06-01"), ("2026-06-02", "2026-06-03")):
        Stored(tmp_path).log(f"{folder}/{name}.jsonl", ROW)
    assert partitions.days_there(f"{tmp_path}/{{date}}/{{date}}.jsonl") == [DAY_1]


def _dated(store: Stored, day: int, name: str = "a.jsonl", changed: float | None = None) -> None:
    date = partitions.day_text(DAY_1 + day)
    store.log(
        f"logs/{date}/{name}",
        [seen("https://a.test/", at(day, 12))],
        at(day + 1 if changed is None else changed),
    )


@pytest.fixture
def dated(store: Stored, job: Job) -> Stored:
    """A partition a day, all of whose rows are read by the night that is given it."""
    job.counters = {}
    for day in range(8):
        _dated(store, day, f"day-{day}.jsonl")
    store.options = {"observations": store.folder / "logs/{date}/*.jsonl"}
    return store


def test_a_first_night_reads_all_days_that_are_over(dated, job):
    dated.run(midnight(3))
    assert job.given() == ["day-0.jsonl", "day-1.jsonl", "day-2.jsonl"]
    dated.run(at(4.5)[:19] + "Z")  # the day that has begun is read as far as it is there
    assert job.given() == ["day-3.jsonl", "day-4.jsonl"]


def test_only_partitions_of_new_days_are_listed(dated, job, monkeypatch):
    dated.run(midnight(3))
    listed = []
    match = partitions.match_files
    monkeypatch.setattr(partitions, "match_files", lambda p, *a, **k: listed.append(p) or match(p, *a, **k))
    dated.run(midnight(5), late_days=1)
    assert [p.split("/")[-2][-2:] for p in listed] == ["03", "04", "05"]
    assert job.given() == ["day-3.jsonl", "day-4.jsonl"]


def test_late_files_of_earlier_days_come_in_once(dated, job):
    dated.run(midnight(3))
    _dated(dated, 2, "late-2.jsonl")
    _dated(dated, 1, "late-1.jsonl")
    _dated(dated, 0, "too-late.jsonl")
    dated.run(midnight(4))
    assert job.given() == ["late-1.jsonl", "late-2.jsonl", "day-3.jsonl"]
    dated.run(midnight(5))
    assert job.given() == ["day-4.jsonl"]
    dated.run(midnight(6), late_days=6)  # who looks back further finds it, and what the ledger has forgotten
    assert "too-late.jsonl" in job.given()


def test_the_ledger_holds_the_days_that_are_looked_at(dated, job):
    """Its bound: files of --late_days and the night before; without dates, files that match."""
    for day in range(1, 8):
        dated.run(midnight(day), late_days=2)
    assert _ledger(dated, 7)["observations"] == ["day-5.jsonl", "day-6.jsonl"]


def test_files_without_dates_are_forgotten_a_month_after_they_are_gone(store, job):
    job.counters = {}
    gone = store.log("logs/gone.jsonl", ROW)
    store.log("logs/stays.jsonl", ROW)
    store.run(midnight(1))
    gone.unlink()
    store.run(midnight(2))
    assert _ledger(store, 2)["observations"] == ["gone.jsonl", "stays.jsonl"] and job.given() == []
    store.run("2026-07-02T00:00:00Z")
    store.run("2026-07-05T00:00:00Z")
    last = json.loads((store.root / "nights" / "20260705T000000Z" / "files.json").read_text())
    assert [Path(row[0]).name for row in last["files"]["observations"]] == ["stays.jsonl"]


def test_a_file_that_has_changed_is_read_again(store, job):
    job.counters = {}
    path = store.log("logs/a.jsonl", ROW, at(0.5))
    store.log("logs/b.jsonl", ROW, at(0.5))
    store.run(midnight(1))
    store.log("logs/a.jsonl", ROW * 2, at(0.5))
    done = store.run(midnight(2))
    assert job.given() == ["a.jsonl"] and "1 new file, 1 of them again" in done.printed
    os.utime(path, (1, 1))
    store.run(midnight(3))
    assert job.given() == ["a.jsonl"]
    store.run(midnight(4))
    assert job.given() == []


@pytest.mark.parametrize(
    ("kind", "counter", "as_of", "again"),
    [
        ("observations", "after_as_of", midnight(2), ["after.jsonl", "just.jsonl"]),
        ("signals", "signals_after_as_of", midnight(2), ["after.jsonl", "just.jsonl"]),
        ("observations", "after_as_of", at(2.5)[:19] + "Z", ["after.jsonl"]),
        # A request row counts when its day is over.
        ("requests", "requests_after_as_of", at(2.5)[:19] + "Z", ["after.jsonl", "just.jsonl"]),
    ],
)
def test_files_with_rows_that_are_left_for_later_are_read_again(store, job, kind, counter, as_of, again):
    """Rows later than the night are left. They can only be in files that were written to after it."""
    store.log("logs/0.jsonl", ROW, at(0))
    folder = store.folder / "more"
    for name, changed in (("before", at(1.9)), ("just", at(2, 0, -60)), ("after", at(2.7))):
        store.log(f"more/{name}.jsonl", ROW, changed)
    job.counters = {}
    store.run(as_of, **{kind: f"{folder}/*.jsonl"})
    store.run(midnight(3), **{kind: f"{folder}/*.jsonl"})
    assert job.given(kind) == []
    other = Stored(store.folder, "other")
    job.counters = {counter: 1}
    other.run(as_of, **{kind: f"{folder}/*.jsonl"})
    other.run(midnight(3), **{kind: f"{folder}/*.jsonl"})
    assert job.given(kind) == again


def test_a_log_that_is_new_to_the_store_is_read_from_its_first_day(dated, job):
    dated.run(midnight(5))
    for day in range(6):
        dated.log(
            f"clicks/{partitions.day_text(DAY_1 + day)}.csv", [{"url": "x", "day": at(day)[:10], "clicks": 1}]
        )
    dated.run(midnight(6), requests=dated.folder / "clicks/{date}.csv")
    assert len(job.given("requests")) == 6 and job.given() == ["day-5.jsonl"]
    dated.run(midnight(7))  # not given for once
    assert job.calls[-1].requests is None
    dated.run(midnight(8), requests=dated.folder / "clicks/{date}.csv")
    assert job.given("requests") == []


def test_names_that_options_cannot_spell(store, job):
    """Options are lists with commas."""
    names = ["a,b.jsonl", "c[1].jsonl", " d.jsonl", "e.jsonl"]
    for name in names:
        store.log(f"odd, or/{name}", ROW, at(0.5))
    store.run(midnight(1), observations=f"{store.folder}/odd?*/*.jsonl")
    patterns = (job.calls[0].observations or "").split(",")
    assert len(patterns) == 4
    found = {f.path for p in patterns for f in partitions.match_files(p)}
    assert {Path(p).name for p in found} == set(names)
    store.run(midnight(2), observations=f"{store.folder}/odd?*/*.jsonl")
    assert len(job.given()) == 0 or job.counters


def test_a_job_that_outlived_its_launcher_commits_what_it_was_given(store, job):
    """Its manifest counts, not the list of files of the run that came after."""
    job.counters = {}
    store.log("logs/a.jsonl", ROW, at(0.5))
    store.run(midnight(1))
    store.log("logs/b.jsonl", ROW, at(0.5))
    path = store.root / "nights" / "20260602T000000Z" / "files.json"
    later = json.loads(path.read_text())
    row = later["files"]["observations"][0]
    later["files"]["observations"].append([str(store.folder / "logs/b.jsonl"), *row[1:]])
    path.write_text(json.dumps(later))
    store.run(midnight(2))
    assert job.given() == ["b.jsonl"]


def test_days_without_a_log_are_a_warning(dated, job):
    dated.run(midnight(3))
    for day in (4, 5):
        (dated.folder / "logs" / partitions.day_text(DAY_1 + day) / f"day-{day}.jsonl").unlink()
    done = dated.run(midnight(7))
    assert "WARNING: --observations: no file for 2026-06-05 to 2026-06-06" in done.printed
    noted = json.loads((done.folder / "files.json").read_text())["warnings"]
    assert noted == ["--observations: no file for 2026-06-05 to 2026-06-06"]
    assert not job.calls[-1].allow_shrink


def test_a_path_that_is_not_there(store, job):
    missing = store.folder / "logs" / "today.jsonl"
    first = store.run(midnight(1), observations=missing)
    assert first.code == 2 and "no file matches" in first.complaints and not job.calls
    store.log("logs/today.jsonl", ROW)
    store.run(midnight(1), observations=missing)
    missing.unlink()
    assert store.run(midnight(2), observations=missing).code == 0  # logs may be missing for a day


# With the job itself

SITE = make_site(n_pages=40, days=12)


def test_a_night_without_a_new_log_is_a_night(store):
    """Its schedule goes on from what is known; the manifest says what was missing."""
    store.log("logs/0.jsonl", SITE.between("observations", 0, 4), at(4))
    first = store.run(midnight(4))
    second = store.run(midnight(5))
    assert (first.code, second.code) == (0, 0), second.complaints
    assert second.digests("state") == first.digests("state")
    assert len(second.rows("schedule")) == 10
    assert any("the crawl log has no row tonight" in w for w in second.manifest["warnings"])
    assert "WARNING: --observations: no new file since the night of 2026-06-05" in second.printed
    followed = [seen(r["url"], r["due_at"].isoformat()) for r in second.rows("schedule")]
    store.log("logs/1.jsonl", [*SITE.between("observations", 4, 6), *followed], at(6))
    assert store.run(midnight(6)).code == 0
    assert not json.loads((store.root / "nights/20260607T000000Z/manifest.json").read_text())["warnings"]


def test_a_log_that_has_shrunk_stops_the_night(store):
    """The news of a night are compared with a usual day, whatever comes again beside them."""

    def crawled(day: float, n: int = 40) -> list[dict]:
        return [seen(f"https://h{i % 5}.test/{i}", at(day)) for i in range(n)]

    for day in range(10):
        store.log(f"logs/{day}.jsonl", crawled(day + 0.5), at(day + 1))
    store.log("logs/10.jsonl", crawled(10.5, 20), at(11))
    store.options["budget"] = 40
    assert store.run(midnight(10)).code == 0
    for day in range(7):  # packed, say
        store.log(f"logs/{day}.jsonl", crawled(day + 0.5), at(10.2))
    stopped = store.run(midnight(11))
    assert stopped.code == 5 and "20 crawl-log rows a day tonight, 40 last night" in stopped.complaints
    assert store.current() == "20260611T000000Z"
    store.log("logs/10.jsonl", crawled(10.5), at(11))
    done = store.run(midnight(11))
    assert done.code == 0, done.complaints
    # The seven, and the file that was written to at midnight.
    assert done.counters["late"] + done.counters["duplicate"] == 8 * 40


def _late_rows(kind: str, first: float, last: float, late: bool) -> list[dict]:
    """Rows of pages that one machine logs, or of all others."""
    rows = SITE.between(kind, first, last)
    return [r for r in rows if (hash_of(r["url"]) % 3 == 0) == late]


def hash_of(url: str) -> int:
    return sum(url.encode())


@pytest.mark.parametrize("layout", ["growing", "partitions"])
def test_three_nights_leave_the_state_of_one(layout, tmp_path):
    """Overlapping patterns, files that grow and that come late, rows past midnight, missed nights."""
    store = Stored(tmp_path, options={"budget": 25, "group_columns": "section"})
    for kind in ("pages", "hosts"):
        store.options[kind] = store.log(f"{kind}.jsonl", getattr(SITE, kind))
    kinds = ("observations", "requests", "signals")
    if layout == "growing":
        for kind in kinds:
            store.options[kind] = f"{tmp_path}/{kind}/*.jsonl,{tmp_path}/{kind}/a*.jsonl,{tmp_path}/{kind}"
        # Files are written past the night; the second one has grown when the third night comes.
        files = [[(0, 4.3)], [(4.3, 6.9)], [(11, 12), (4.3, 11)]]
        for as_of, written in zip((4, 6, 12), files, strict=True):
            for kind in kinds:
                for first, last in written:
                    store.log(f"{kind}/a{first}.jsonl", SITE.between(kind, first, last), at(last))
            done = store.run(midnight(as_of), "--allow_shrink")
            assert done.code == 0, done.complaints
            assert ("1 of them again" in done.printed) == (as_of > 4)
    else:
        for kind in kinds:
            store.options[kind] = f"{tmp_path}/{kind}/{{date}}"
        for as_of, late_from in ((4, 3), (6, 5), (12, 12)):
            for kind in kinds:
                for day in range(13):
                    date = partitions.day_text(DAY_1 + day)
                    if day < as_of:
                        store.log(
                            f"{kind}/{date}/a.jsonl", _late_rows(kind, day, day + 1, False), at(day + 1)
                        )
                    if day < late_from:
                        store.log(f"{kind}/{date}/b.jsonl", _late_rows(kind, day, day + 1, True), at(day + 1))
            done = store.run(midnight(as_of), "--allow_shrink")
            assert done.code == 0, done.complaints
    one = nightly(
        tmp_path,
        "one",
        as_of=midnight(12),
        flags=["--allow_shrink"],
        **{kind: SITE.between(kind, 0, 12) for kind in kinds},
        **{k: v for k, v in store.options.items() if k not in kinds},
    )
    assert one.code == 0, one.complaints
    assert len(store.committed()) == 3
    expected, got = one.table("state"), done.table("state")
    for name in expected.column_names:
        assert got.column(name).equals(expected.column(name)), name
    assert done.digests("state") == one.digests("state")


def test_a_crawler_that_begins_to_follow_a_smaller_schedule(store):
    """Its old crawl made 40 rows a day, then it makes the 20 that are scheduled, then 10 of a cut budget."""
    pages = [f"https://h{i % 4}.test/{i}" for i in range(40)]
    old = [seen(url, at(day, i / 2), "AB"[day % 2]) for day in range(4) for i, url in enumerate(pages)]
    store.log("logs/0.jsonl", old, at(4))
    for day, budget in ((4, 20), (5, 10), (6, 10)):
        night = store.run(midnight(day), budget=budget)
        assert night.code == 0, night.complaints
        slots = night.rows("schedule")
        assert len(slots) == budget
        store.log(f"logs/{day}.jsonl", [seen(r["url"], r["due_at"].isoformat()) for r in slots], at(day + 1))
    store.log("logs/6.jsonl", [seen(r["url"], r["due_at"].isoformat()) for r in slots[:8]], at(7))
    lost = store.run(midnight(7))
    assert lost.code == 5
    assert "8 crawl-log rows a day tonight, 10 last night, of 10 that were scheduled" in lost.complaints


def test_nights_of_six_hours_leave_the_state_of_one(tmp_path, monkeypatch):
    """Partitions of a day grow from one to the next; a schedule is that of the six hours to come."""
    kinds = ("observations", "signals")
    store = Stored(tmp_path, options={"budget": 40, "every": "6h"})
    store.options |= {kind: f"{tmp_path}/{kind}/{{date}}" for kind in kinds}
    quarters = [q / 4 for q in range(21)]
    for day in quarters:
        for kind in kinds:
            date = partitions.day_text(DAY_1 + int(day - 0.25))
            rows = SITE.between(kind, day - 0.25, day)
            if rows:
                store.log(f"{kind}/{date}/{day}.jsonl", rows, at(day))
        if day >= 3.75:  # two in one day, four in the next
            set_clock(monkeypatch, at(day, 0.5))
            done = store.run(None, "--allow_shrink")
            assert done.code == 0, done.complaints
            assert "missed" not in done.printed
            assert store.run(None).printed.count("nothing to do") == 1
    assert store.committed()[-3:] == ["20260605T120000Z", "20260605T180000Z", "20260606T000000Z"]
    last = Night(0, "", "", store.root / "nights" / store.committed()[-1])
    due = [r["due_at"] for r in last.rows("schedule")]
    assert len(due) == 10 and (max(due) - min(due)).total_seconds() < 6 * 3600
    one = nightly(
        tmp_path,
        "one",
        as_of=midnight(5),
        flags=["--allow_shrink"],
        **{kind: SITE.between(kind, 0, 5) for kind in kinds},
    )
    expected, got = one.table("state"), last.table("state")
    for name in expected.column_names:
        assert got.column(name).equals(expected.column(name)), name


@pytest.mark.parametrize("every", ["5h", "0h", "day", "-6h"])
def test_nights_that_make_no_day_are_refused(every, tmp_path):
    done = Stored(tmp_path, options={"every": every}).run(midnight(3))
    assert done.code == 2 and f"--every={every}: expected one of 1h, 2h" in done.complaints
