"""Many hosts on one server: together they are one host for politeness, and only for that."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from tests.pipelines.jobs import Night, at, crawls, nightly, seen, write_rows

HOSTS = [f"h{i}.test" for i in range(50)]
OTHERS = [f"o{i}.test" for i in range(10)]


def _rows(hosts: list[str], digests: str = "ABCD", first_day: float = 26) -> list[dict[str, Any]]:
    return [r for h in hosts for i in range(3) for r in crawls(f"https://{h}/{i}", digests, first_day)]


def _gaps(night: Night, hosts: list[str]) -> list[float]:
    due = sorted(r["due_at"] for r in night.rows("schedule") if r["host"] in hosts)
    return [(b - a).total_seconds() for a, b in pairwise(due)]


LISTED = [{"host": h, "group": "one server", "min_gap_seconds": 5} for h in HOSTS]
PINGS = [
    {"url": f"https://{h}/{i}", "signalled_at": at(26.5 + d), "source": "ping"}
    for h in [*HOSTS[::2], *OTHERS[::3]]
    for i in range(2)
    for d in range(3)
]
MODES: dict[str, dict[str, Any]] = {
    "one shard": {"num_shards": 1},
    "seven shards": {"num_shards": 7},
    "greedy": {"num_shards": 3, "sequencer": "greedy"},
    "split hosts, too": {"num_shards": 8, "split_hosts_above": 2},
    "signals": {"num_shards": 3, "signals": PINGS},
}


@pytest.fixture(scope="module", params=MODES)
def night(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Night:
    """50 hosts of one server with 5 seconds between crawls, ten others with the default of 1; 20 hours."""
    folder = tmp_path_factory.mktemp("groups")
    found = nightly(
        folder,
        observations=_rows(HOSTS + OTHERS),
        hosts=LISTED,
        budget=24 * 1500,
        horizon_hours=1,
        host_min_gap_seconds=1,
        flags=["--host_groups"],
        **MODES[request.param],
    )
    assert found.code == 0, found.complaints
    return found


def test_hosts_of_a_group_share_one_gap(night):
    """Each host keeps its own gap, and the server has fifty times as many crawls as it can bear."""
    gaps = _gaps(night, HOSTS)
    assert min(gaps) >= 5
    assert 0.9 * 720 <= len(gaps) + 1 <= 720
    assert {r["host"] for r in night.rows("schedule")} >= set(OTHERS)


def test_other_hosts_are_not_held_up(night):
    slots = [r for r in night.rows("schedule") if r["host"] in OTHERS]
    assert len(slots) >= 0.95 * (1500 - 720)
    for host in OTHERS:
        assert min(_gaps(night, [host])) >= 1


def test_rates_keep_to_the_limit_of_the_group(night):
    rates = {True: 0.0, False: 0.0}
    for row in night.rows("pages"):
        rates[row["host"] in HOSTS] += row["crawl_rate_per_day"]
    assert rates[True] == pytest.approx(86_400 / 5, rel=1e-6)
    assert rates[True] + rates[False] == pytest.approx(24 * 1500, rel=1e-6)
    # Pages alike have the same rate whatever host of the server they are on.
    same = [r["crawl_rate_per_day"] for r in night.rows("pages") if r["host"] in HOSTS[1::2]]
    assert max(same) == pytest.approx(min(same), rel=0.05)


def test_hosts_stay_hosts(night):
    assert {r["host"] for r in night.rows("pages")} == set(HOSTS + OTHERS)
    assert len({r["host"] for r in night.rows("hosts")}) == 60


def test_all_subdomains_of_a_domain(tmp_path: Path):
    """Thousands of subdomains, each polite to itself. One that has a row of its own is apart."""
    hosts = ["blog.test", "own.blog.test", "notblog.test", *(f"u{i}.blog.test" for i in range(40))]
    rows = [
        {"host": "*.BLOG.test.", "min_gap_seconds": 30},
        {"host": "own.blog.test", "max_per_day": 24},
    ]
    night = nightly(
        tmp_path,
        observations=_rows(hosts),
        hosts=rows,
        budget=24 * 400,
        horizon_hours=1,
        host_min_gap_seconds=2,
        flags=["--host_groups"],
    )
    assert night.code == 0, night.complaints
    inside = [h for h in hosts if h not in ("own.blog.test", "notblog.test")]
    gaps = _gaps(night, inside)
    assert min(gaps) >= 30 and len(gaps) + 1 >= 0.9 * 120
    assert len(_gaps(night, ["own.blog.test"])) + 1 == 1
    assert len(_gaps(night, ["notblog.test"])) > 100
    assert night.counters["hosts_unmatched"] == 0 and not night.manifest["warnings"]


def test_the_gap_holds_from_night_to_night(tmp_path: Path):
    """Also where other hosts of the group come last and first."""
    options = {"hosts": LISTED[:4], "budget": 200, "flags": ["--host_groups"], "num_shards": 3}
    options["hosts"] = write_rows(
        tmp_path / "hosts.csv", [{"host": h, "group": "s", "min_gap_seconds": 3600} for h in HOSTS[:4]]
    )
    log, state, due = _rows(HOSTS[:4]), None, []
    for day in (30, 31):
        night = nightly(tmp_path, f"n{day}", observations=log, state=state, as_of=at(day), **options)
        assert night.code == 0, night.complaints
        slots = night.rows("schedule")
        log = [seen(r["url"], r["due_at"].isoformat(), "E") for r in slots]
        due += [r["due_at"] for r in slots]
        state = night.folder / "state"
    due.sort()
    assert min((b - a).total_seconds() for a, b in pairwise(due)) >= 3600 and len(due) >= 2 * 22


@pytest.mark.parametrize(
    ("rows", "flags", "complaint"),
    [
        (LISTED[:1], [], "give --host_groups"),
        ([{"host": "*.blog.test", "max_per_day": 5}], [], "give --host_groups"),
        (
            [*LISTED[:1], {"host": HOSTS[0], "group": "other", "min_gap_seconds": 5}],
            ["--host_groups"],
            "h0.test is in the groups",
        ),
    ],
)
def test_groups_that_cannot_be_stop_the_job(rows, flags, complaint, tmp_path):
    night = nightly(tmp_path, observations=_rows(HOSTS[:2]), hosts=rows, flags=flags)
    assert night.code == 2 and not night.committed
    assert complaint in night.complaints and "Traceback" not in night.complaints
