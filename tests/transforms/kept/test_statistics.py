"""A statistic is a file and a line: its columns, its reading, its folding and what is said of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.pipelines.jobs import Night, at, nightly, seen
from tests.transforms.kept.longest_quiet import LongestQuiet
from transforms.batches import schemas
from transforms.kept import statistics

FIRST = [
    *(seen("https://a.test/calm", at(d), "A") for d in (0, 1, 9, 10)),
    *(seen("https://a.test/busy", at(d), f"v{d}") for d in range(10)),
    *(seen("https://b.test/slow", at(d), "A" if d < 8 else "B") for d in (0, 3, 8)),
]
SECOND = [
    seen("https://a.test/calm", at(12), "A"),
    seen("https://b.test/slow", at(17), "B"),
    seen("https://c.test/new", at(14), "A"),
]
DAYS = {
    "https://a.test/calm": 8.0,
    "https://a.test/busy": 0.0,
    "https://b.test/slow": 9.0,
    "https://c.test/new": 0.0,
}


def _nights(folder: Path, **second: Any) -> tuple[Night, Night]:
    one = nightly(folder, "one", observations=FIRST, as_of=at(11))
    return one, _second(folder, one, **second)


def _second(folder: Path, one: Night, **options: Any) -> Night:
    state, flags = one.folder / "state", ["--allow_shrink"]
    two = nightly(folder, "two", flags=flags, observations=SECOND, state=state, as_of=at(18), **options)
    assert one.code == two.code == 0, one.complaints + two.complaints
    return two


@pytest.fixture
def with_quiet(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(statistics, "STATISTICS", (*statistics.STATISTICS, LongestQuiet))


def _column(night: Night, kind: str) -> dict[str, float]:
    return {row["url"]: row["longest_quiet_days"] for row in night.rows(kind)}


@pytest.mark.parametrize("num_shards", [2, 3])
def test_it_is_kept_shown_and_counted(tmp_path: Path, with_quiet: None, num_shards: int) -> None:
    one, two = _nights(tmp_path, num_shards=num_shards)
    assert (
        _column(one, "pages")
        == _column(one, "state")
        == {
            "https://a.test/calm": 8.0,
            "https://a.test/busy": 0.0,
            "https://b.test/slow": 3.0,
        }
    )
    assert _column(two, "pages") == _column(two, "state") == DAYS
    assert [n.counters["pages_quiet_for_a_week"] for n in (one, two)] == [1, 2]
    assert "2 once quiet for a week" in two.printed
    assert two.table("state").schema.names[-1] == two.table("pages").schema.names[-1] == "longest_quiet_days"


def test_a_state_of_before_knows_nothing_of_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one = nightly(tmp_path, "one", observations=FIRST, as_of=at(11))
    assert "longest_quiet_days" not in one.table("state").schema.names
    monkeypatch.setattr(statistics, "STATISTICS", (*statistics.STATISTICS, LongestQuiet))
    two = _second(tmp_path, one)
    assert _column(two, "state") == DAYS | {"https://a.test/calm": 2.0}


def test_other_columns_do_not_depend_on_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "with").mkdir()
    without = _nights(tmp_path)[1]
    monkeypatch.setattr(statistics, "STATISTICS", (*statistics.STATISTICS, LongestQuiet))
    having = _nights(tmp_path / "with")[1]
    for kind in ("state", "pages"):
        names = [n for n in having.table(kind).schema.names if n != "longest_quiet_days"]
        assert having.table(kind).select(names).equals(without.table(kind))
    assert having.digests("schedule", "slots") == without.digests("schedule", "slots")


def test_no_two_have_a_column_of_one_name() -> None:
    for schema in (*statistics.carried_folders().values(), statistics.pages_schema()):
        assert len(set(schema.names)) == len(schema.names)
    assert set(schemas.ADDED_LATER) < statistics.may_lack()
