"""Visits that say nothing of changes, though they seem to: what becomes of their pages, in one night.

Each host has one kind of page. Fast pages of an ordinary host show what an unmoved prior is.
"""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np
import pytest

from tests.pipelines.jobs import Night, at, nightly, seen

DAYS, PAGES = 30, 8
RNG = np.random.default_rng(1)


def _md5(text: str) -> str:
    return hashlib.md5(text.encode(), usedforsecurity=False).hexdigest()


def _sha(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def _row(host: str, page: int, day: int, digest: str = "", **more: Any) -> dict[str, Any]:
    moment = at(day, 0, 60 * int(RNG.integers(5, 140)))
    return seen(f"https://{host}.test/{page}", moment, digest, 200, **more)


def _clock(host: str, page: int, day: int) -> dict[str, Any]:
    row = _row(host, page, day)
    return row | {"last_modified": row["fetched_at"]}


VALIDATORS = ('"{}"', 'W/"{}"', '"{}-gzip"')
MAKERS = {
    "steady": lambda h, p, d: _row(h, p, d, _sha(f"{p} {(d + p) // 4}")),
    "clock": _clock,
    "midnight": lambda h, p, d: _row(h, p, d, last_modified=at(d)),
    "moved": lambda h, p, d: _row(h, p, d, last_modified=at(-90, 0, int(RNG.integers(2)))),
    "algorithm": lambda h, p, d: _row(h, p, d, (_md5 if d < 20 else _sha)(f"{p} {(d + p) // 4}")),
    "weak": lambda h, p, d: _row(h, p, d, VALIDATORS[d % 3].format(_md5(f"{p} {(d + p) // 4}"))),
    "servers": lambda h, p, d: _row(h, p, d, "ab"[RNG.integers(2)]),
    "empty": lambda h, p, d: _row(h, p, d, [_sha(f"{p}"), _sha(""), '""', f"md5:{_md5('')}"][d % 4]),
}


@pytest.fixture(scope="module")
def night(tmp_path_factory: pytest.TempPathFactory) -> Night:
    rows = [make(h, p, d) for h, make in MAKERS.items() for d in range(DAYS) for p in range(PAGES)]
    found = nightly(tmp_path_factory.mktemp("blind"), observations=rows, budget=len(MAKERS) * PAGES / 4)
    assert found.code == 0, found.printed
    return found


def _column(night: Night, host: str, name: str) -> list[Any]:
    rows = sorted((r for r in night.rows("pages") if r["host"] == f"{host}.test"), key=lambda r: r["url"])
    return [r[name] for r in rows]


def _rates(night: Night, host: str) -> np.ndarray:
    return np.array(_column(night, host, "change_rate_per_day"))


def test_the_clock_is_no_evidence_and_said(night: Night) -> None:
    assert set(_column(night, "clock", "n_intervals")) == {0}
    assert night.counters["last_modified_clock"] == PAGES * (DAYS - 1)
    (text,) = [w for w in night.manifest["warnings"] if "clock of the server" in w]
    assert text.startswith(f"{PAGES * (DAYS - 1):,} of {len(MAKERS) * PAGES * DAYS:,} fetches")
    assert min(_column(night, "clock", "crawl_rate_per_day")) > 0


def test_a_nightly_build_is_one_change_a_day(night: Night) -> None:
    assert 0.6 < np.median(_rates(night, "midnight")) < 1.4
    assert max(_column(night, "midnight", "crawl_rate_per_day")) > 0


def test_a_date_that_moves_by_a_second_is_no_change(night: Night) -> None:
    assert set(_column(night, "moved", "n_changes")) == {0}


def test_another_algorithm_is_no_change_and_said(night: Night) -> None:
    steady, algorithm = (np.array(_column(night, h, "n_changes")) for h in ("steady", "algorithm"))
    assert (steady - algorithm <= 1).all() and (algorithm <= steady).all()
    assert set(_column(night, "algorithm", "n_intervals")) == {DAYS - 2}
    np.testing.assert_allclose(_rates(night, "algorithm"), _rates(night, "steady"), rtol=0.25)
    (text,) = [w for w in night.manifest["warnings"] if "another form" in w]
    assert text.startswith(f"{PAGES} of ")
    assert f"WARNING: {text}" in night.printed


def test_validators_of_one_version(night: Night) -> None:
    assert _column(night, "weak", "n_changes") == _column(night, "steady", "n_changes")


def test_servers_that_disagree_have_their_share_and_are_flagged(night: Night) -> None:
    assert all(_column(night, "servers", "alternating"))
    assert night.counters["pages_alternating"] == PAGES
    assert f"{PAGES} back and forth between contents (alternating)" in night.printed
    share = night.manifest["budget_per_day"] / (len(MAKERS) * PAGES)
    assert np.mean(_column(night, "servers", "crawl_rate_per_day")) < 1.25 * share


def test_empty_bodies_say_nothing(night: Night) -> None:
    assert set(_column(night, "empty", "n_changes")) == {0}
    assert set(_column(night, "empty", "n_intervals")) == {(DAYS - 1) // 4}
