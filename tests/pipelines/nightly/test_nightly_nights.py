"""Many short nights against one long one, and what is carried from night to night."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from tests.pipelines.jobs import Night, at, crawls, nightly, seen
from tests.pipelines.site import make_site

SITE = make_site(n_pages=60, days=30)
N_NIGHTS, DAYS = 6, 5
LOGS = ("observations", "requests", "signals")
# With a clock, too: forgetting must not depend on the nights either.
OPTIONS: dict[str, Any] = {"budget": 25, "half_life_days": 20, "group_columns": "section"}


def _late(night: int) -> list[dict]:
    """Rows of a night that come again the night after: the last visits of some pages, and older ones."""
    rows = SITE.between("observations", (night - 1) * DAYS, night * DAYS)
    return rows[::3]


def _inputs(first_day: float, last_day: float) -> dict[str, list[dict]]:
    rows = {kind: SITE.between(kind, first_day, last_day) for kind in LOGS}
    return {**rows, "pages": SITE.pages, "hosts": SITE.hosts}


def _run(folder: Path, name: str, inputs: dict[str, list[dict]], last_day: float, **more: Any) -> Night:
    night = nightly(folder, name, **inputs, as_of=at(last_day), flags=["--allow_shrink"], **(OPTIONS | more))
    assert night.code == 0, night.complaints
    return night


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("nights")


@pytest.fixture(scope="module")
def nights(folder: Path) -> list[Night]:
    """Six nights of five days, each on the state of the one before."""
    done: list[Night] = []
    for i in range(N_NIGHTS):
        state = done[-1].folder / "state" if done else None
        inputs = _inputs(i * DAYS, (i + 1) * DAYS)
        # A last night's rows once more: a log that overlaps is the most usual of faults.
        if i:
            inputs["observations"] = inputs["observations"] + _late(i)
        done.append(_run(folder, f"night-{i}", inputs, (i + 1) * DAYS, state=state))
    return done


@pytest.fixture(scope="module")
def one(folder: Path) -> Night:
    """The same thirty days in one night."""
    return _run(folder, "one", _inputs(0, 30), 30)


def test_many_nights_leave_the_state_of_one(nights, one):
    """Bit for bit, with late and repeated rows on the way."""
    assert sum(n.counters["late"] for n in nights) > 30
    assert sum(n.counters["duplicate"] for n in nights) > 30
    assert one.counters["late"] == 0
    expected, got = one.table("state"), nights[-1].table("state")
    for name in expected.column_names:
        assert got.column(name).equals(expected.column(name)), name
    assert nights[-1].digests("state") == one.digests("state")


def test_many_nights_estimate_what_one_does(nights, one):
    """What is learned follows from the state alone."""
    names = [
        "url",
        "host",
        "change_rate_per_day",
        "change_rate_stderr",
        "request_rate_per_day",
        "impression_rate_per_day",
        "n_intervals",
        "n_changes",
        "last_crawl_at",
        "section",
        "owner",
        "boundary",
    ]
    assert nights[-1].table("pages").select(names).equals(one.table("pages").select(names))
    assert nights[-1].manifest["prior"] == one.manifest["prior"]


def test_dispositions_add_up_over_nights(nights, one):
    """Every visit is counted once, in some night, as what it is in one night."""
    for name in (
        "baseline",
        "unchanged",
        "changed_dated",
        "changed_undated",
        "no_change_evidence",
        "not_modified_without_baseline",
    ):
        assert sum(n.counters[name] for n in nights) == one.counters[name], name


def test_a_night_run_again_gives_the_same_bytes(nights, folder):
    i = N_NIGHTS - 1
    inputs = _inputs(i * DAYS, (i + 1) * DAYS)
    inputs["observations"] = inputs["observations"] + _late(i)
    again = _run(folder, "again", inputs, (i + 1) * DAYS, state=nights[i - 1].folder / "state")
    kinds = ("pages", "schedule", "state", "slots")
    assert again.digests(*kinds) == nights[i].digests(*kinds)
    assert again.counters == nights[i].counters and again.manifest["search"] == nights[i].manifest["search"]


def test_the_log_of_a_night_given_twice_changes_nothing(nights, folder):
    """All its rows are late or duplicates the second time."""
    i = N_NIGHTS - 1
    inputs = _inputs(i * DAYS, (i + 1) * DAYS) | {"requests": [], "signals": []}
    inputs = {k: rows for k, rows in inputs.items() if rows}
    again = _run(folder, "twice", inputs, (i + 1) * DAYS, state=nights[i].folder / "state")
    counters = again.counters
    # Failures are no visits, but their attempts are known by now, too.
    assert counters["late"] + counters["duplicate"] + counters["failed"] == counters["observations"] > 0
    assert again.digests("state") == nights[i].digests("state")


def test_a_small_site_has_one_shard_and_what_is_there_keeps_its_number(tmp_path):
    rows = crawls("https://a.test/", "AABBC") + crawls("https://b.test/", "AAAAA")
    first = nightly(tmp_path, "first", observations=rows, as_of=at(6), num_shards=None)
    assert [p.name for p in (first.folder / "state").glob("*.parquet")] == ["shard-00000-of-00001.parquet"]
    assert first.manifest["options"]["num_shards"] == 1
    three = nightly(tmp_path, "three", observations=rows, as_of=at(6), num_shards=3)
    options = {"observations": [seen("https://b.test/", at(6))], "as_of": at(7), "num_shards": None}
    one, kept = (
        nightly(
            tmp_path, f"after {n.folder.name}", state=n.folder / "state", flags=["--allow_shrink"], **options
        )
        for n in (first, three)
    )
    assert kept.manifest["options"]["num_shards"] == len(kept.manifest["carry"]["shards"]) == 3
    for kind, by, more in (("pages", "url", ["owed"]), ("state", "url_hash", [])):
        for a, b in ((first, three), (one, kept)):
            a_rows, b_rows = (n.table(kind).drop_columns(more).sort_by(by) for n in (a, b))
            assert a_rows.equals(b_rows), kind


def test_another_number_of_shards_takes_over(nights, folder):
    """Two shards last night, five tonight, two again: the state moves with its hosts."""
    i = N_NIGHTS - 2
    inputs = _inputs((i + 1) * DAYS, (i + 2) * DAYS)
    inputs["observations"] = inputs["observations"] + _late(i + 1)
    moved = _run(folder, "moved", inputs, (i + 2) * DAYS, state=nights[i].folder / "state", num_shards=5)
    by = [("host_hash", "ascending"), ("url_hash", "ascending")]
    for kind in ("state", "state/signals"):
        assert moved.table(kind).sort_by(by).equals(nights[-1].table(kind).sort_by(by)), kind
    back = nightly(
        folder,
        "back",
        observations=[seen("https://h0.test/x", at(30))],
        state=moved.folder / "state",
        as_of=at(30),
        flags=["--allow_shrink"],
        **{k: v for k, v in OPTIONS.items() if k == "half_life_days"},
    )
    assert back.code == 0, back.complaints
    assert len(back.table("state")) == len(nights[-1].table("state")) + 1


def test_state_of_other_half_lives_is_refused(nights, tmp_path):
    night = nightly(
        tmp_path,
        observations=[seen("https://h0.test/x", at(30))],
        state=nights[-1].folder / "state",
        as_of=at(30),
        half_life_days=7,
    )
    assert night.code in (1, 2) and not night.committed
    assert "half_life_days" in night.complaints and "Traceback" not in night.complaints


def test_late_rows_change_nothing_and_first_days_stay(tmp_path):
    """A backfill that is older than what is known: counted, and the page is as it was."""
    urls = [f"https://h{i}.test/" for i in range(6)]
    first = nightly(
        tmp_path, "first", observations=[r for u in urls for r in crawls(u, "AAB", 10)], as_of=at(20)
    )
    old = [r for u in urls for r in crawls(u, "XYZ", 2)]
    second = nightly(
        tmp_path,
        "second",
        observations=old,
        state=first.folder / "state",
        as_of=at(20),
        flags=["--allow_shrink"],
    )
    assert second.code == 0, second.complaints
    assert second.counters["late"] == len(old)
    assert second.digests("state") == first.digests("state")


def test_fractions_of_a_slot_are_carried_exactly(tmp_path):
    """10 crawls a day over nights of 7 hours: 2.9166... slots each; after 24 nights exactly 70."""
    urls = [f"https://h{i}.test/" for i in range(7)]
    total, state, done = 0, None, 0
    for i in range(6):
        night = nightly(
            tmp_path,
            f"night-{i}",
            observations=[seen(u, at(10 + i * 7 / 24)) for u in urls],
            state=state,
            as_of=at(10 + i * 7 / 24),
            budget=10,
            horizon_hours=7,
            num_shards=3,
        )
        assert night.code == 0, night.complaints
        total += len(night.rows("schedule"))
        done += 1
        exact = Fraction(10 * 7 * done, 24)
        assert total == exact.numerator // exact.denominator
        assert night.manifest["carry"]["total"] == pytest.approx(float(exact - total), abs=1e-9)
        state = night.folder / "state"
