"""Folders of robots.txt files as limits of hosts."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.transforms.dialects.reading import read
from transforms.dialects import detect

SLOW = "User-agent: *\nCrawl-delay: 120\n"
BOTH = "# ours\nUser-agent: OurBot\nCrawl-delay: 2.5\n\nUser-agent: *\nDisallow: /x\nCrawl-delay: 9 # s\n"


def folder(base: Path, **files: str | bytes) -> Path:
    for name, text in files.items():
        path = base / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return base


def test_hosts_by_the_names_of_files(tmp_path: Path):
    names = {
        "shop.test.txt": "shop.test",
        "www.shop.test/robots.txt": "www.shop.test",
        "other.test.robots.txt": "other.test",
        "third.test_robots.txt": "third.test",
        "B\u00fccher.test.txt": "xn--bcher-kva.test",
        "packed.test.txt.gz": "packed.test",
        "robots.test.txt": "robots.test",
    }
    files = {n: gzip.compress(SLOW.encode()) if n.endswith(".gz") else "\ufeff" + SLOW for n in names}
    found = read(folder(tmp_path, **files), "hosts")
    assert set(found.forms) == {"robots"} and not found.rejected
    assert sorted(found.seen("host", "max_per_day", "min_gap_seconds")) == sorted(
        (host, None, 120.0) for host in names.values()
    )


@pytest.mark.parametrize(
    ("own", "gap"),
    [("", 9.0), ("OurBot", 2.5), ("Mozilla/5.0 (OurBot/1.0)", 2.5), ("b, ourbot", 9.0), ("x", 9.0)],
)
def test_the_group_of_the_crawler_counts_and_the_longest_of_several(own: str, gap: float, tmp_path: Path):
    found = read(folder(tmp_path, **{"shop.test.txt": BOTH}), "hosts", own_user_agent=own)
    assert found.seen("host", "min_gap_seconds") == [("shop.test", gap)]


TWICE = {
    "User-agent: *\nCrawl-delay: 20\n\nUser-agent: *\nCrawl-delay: 1\n": 20.0,
    "User-agent: *\nCrawl-delay: 1\n\nUser-agent: *\nCrawl-delay: 20\n": 20.0,
    "User-agent: *\nCrawl-delay: 5\nCrawl-delay: 30\nDisallow: /x\nCrawl-delay: 2\n": 30.0,
    "User-agent: a\nUser-agent: *\nCrawl-delay: 7\n\nUser-agent: b\nCrawl-delay: 90\n\nUser-agent: *\nDisallow: /": 7.0,
    # Nobody waits for years: the other group counts.
    "User-agent: *\nCrawl-delay: 1e9\n\nUser-agent: *\nCrawl-delay: 3\n": 3.0,
    "User-agent: *\nCrawl-delay: 3\n\nUser-agent: *\nCrawl-delay: ten\n": 3.0,
    "User-agent: *\ncrawl delay: 9\rCrawl-delay 12\rCrawl-delay: 4": 12.0,
}


def test_of_two_groups_for_one_agent_the_stricter_counts(tmp_path: Path):
    files = {f"h{i}.test.txt": text for i, text in enumerate(TWICE)}
    found = read(folder(tmp_path, **files), "hosts")
    assert [gap for _, gap in sorted(found.seen("host", "min_gap_seconds"))] == list(TWICE.values())


WRONG = {
    "nan.test.txt": "User-agent: *\nCrawl-delay: NaN\n",
    "minus.test.txt": "User-agent: *\nCrawl-delay: -4\n",
    "huge.test.txt": "User-agent: *\nCrawl-delay: 1e9\n",
    "endless.test.txt": "User-agent: *\nCrawl-delay: inf\n",
    "words.test.txt": "User-agent: *\nCrawl-delay: ten\n",
    "over.test.txt": "User-agent: *\nCrawl-delay: 86401\n",
}


def test_delays_that_cannot_be_leave_the_other_hosts_their_own(tmp_path: Path):
    """One bad file must not stop a night, nor take the limits of others; without a delay there is no row."""
    sound = {"slow.test.txt": SLOW, "day.test.txt": "User-agent: *\nCrawl-delay: 86400"}
    none = {
        "free.test.txt": "User-agent: *\nDisallow: /\n",
        "zero.test.txt": "User-agent: *\nCrawl-delay: 0",
        "another.test.txt": "User-agent: Googlebot\nCrawl-delay: 7",
        "page.test/robots.txt": "<!doctype html><title>Not found</title>",
    }
    found = read(folder(tmp_path, **WRONG, **sound, **none), "hosts")
    assert found.seen("host", "min_gap_seconds") == [("day.test", 86400.0), ("slow.test", 120.0)]
    assert found.left_out == {"no_delay": len(none)}
    names = sorted(Path(row["source"]).name for row in found.rejected)
    assert names == sorted(WRONG) and {row["reason"] for row in found.rejected} == {"crawl_delay"}
    assert all(Path(row["source"]).name[:-4] in row["sample"] for row in found.rejected)


def test_a_name_that_is_no_host_is_rejected(tmp_path: Path):
    path = folder(tmp_path / "no host", **{"robots.txt": SLOW}) / "robots.txt"
    found = read(path, "hosts")
    assert found.reasons == [(1, "host")] and not found.rows


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("hosts.txt", b"host,max_per_day\nshop.test,3\n"),
        ("hosts.csv", b"host,min_gap_seconds\nshop.test,3\n"),
        ("shop.test.txt", b"host,min_gap_seconds\nshop.test,3\n"),
        ("hosts.jsonl", b'{"host":"shop.test"}\n'),
        ("limits.txt", b"User-agent: *\n"),
    ],
)
def test_lists_of_hosts_are_not_claimed(path: str, text: bytes):
    assert detect("hosts", path, text) is None


_LINES = st.sampled_from(
    ["User-agent: *", "user-agent a", "Crawl-delay: 3", "Crawl-delay: 1e400", "Crawl-delay:", ""]
)


@settings(deadline=None, max_examples=100, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(_LINES.map(str.encode) | st.binary(max_size=30), max_size=10).map(b"\n".join))
def test_any_file_is_one_host_or_none(tmp_path: Path, text: bytes):
    found = read(folder(tmp_path, **{"shop.test.robots.txt": text}), "hosts")
    assert found.lines == (1 if text else 0)
    assert all(0 < row["min_gap_seconds"] <= 86400 for row in found.rows)
