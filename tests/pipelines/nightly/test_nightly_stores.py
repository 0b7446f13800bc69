"""Nights over dumps of stores: most pages of one were last answered by a 304, from the first dump on."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from tests.pipelines.jobs import nightly

AS_OF = datetime(2026, 7, 1, tzinfo=UTC)
# Of a page at three dumps, a day apart: what its last fetch found, and the signature that the store has.
PAGES = {
    "calm": [("same", "a"), ("same", "a"), ("same", "a")],
    "moved": [("same", "a"), ("same", "a"), ("new", "b")],
    "twice": [("same", "a"), ("same", "b"), ("same", "b")],  # fetched twice between the dumps
    "gone": [("new", "a"), ("gone", "a"), ("gone", "a")],
    "back": [("gone", "a"), ("same", "a"), ("same", "a")],
}
LEARNED = {"calm": (2, 0), "moved": (2, 1), "twice": (2, 1), "gone": (2, 1), "back": (2, 1)}


def nutch(name: str, found: str, signature: str, at: datetime) -> str:
    code = {"same": 6, "new": 2, "gone": 3}[found]
    due, modified = ((at + timedelta(days=d)).strftime("%a %b %d %H:%M:%S UTC %Y") for d in (1, -9))
    return json.dumps(
        {
            "url": f"https://a.test/{name}",
            "statusCode": code,
            "fetchTime": due,
            "modifiedTime": modified,
            "retryIntervalSeconds": 86400,
            "signature": signature,
        }
    )


def stormcrawler(name: str, found: str, signature: str, at: datetime) -> str:
    code = {"same": "304", "new": "200", "gone": "404", "failed": "503"}[found]
    metadata = {
        "fetch%2EstatusCode": [code],
        "signature": [signature],
        "signatureOld": ["of old"],
        "lastProcessedDate": [at.isoformat().replace("+00:00", "Z")],
    }
    status = "FETCH_ERROR" if found == "failed" else "FETCHED"
    return json.dumps({"url": f"https://a.test/{name}", "status": status, "metadata": metadata})


@pytest.mark.parametrize("store", [nutch, stormcrawler])
def test_dumps_tell_what_changed_between_them(tmp_path: Path, store):
    state = None
    for day in range(3):
        at, as_of = AS_OF + timedelta(days=day, hours=-2), AS_OF + timedelta(days=day)
        dump = tmp_path / f"dump{day}"
        dump.write_text("".join(store(n, *steps[day], at) + "\n" for n, steps in PAGES.items()))
        night = nightly(
            tmp_path, f"night{day}", observations=dump, state=state, as_of=as_of.isoformat(), budget=5
        )
        assert night.code == 0, night.complaints
        state = night.folder / "state"
    pages = {n: night.page(f"https://a.test/{n}") for n in PAGES}
    assert {n: (p["n_intervals"], p["n_changes"]) for n, p in pages.items()} == LEARNED


def test_a_failure_that_a_dump_still_shows_is_counted_once(tmp_path: Path):
    """Six pages failed before the first dump, which the second still shows, and one more before that."""
    state = None
    for day, failed in ((0, 6), (1, 1)):
        rows = [stormcrawler(f"ok{i}", "new", "a", AS_OF + timedelta(days=day, hours=-2)) for i in range(9)]
        rows += [stormcrawler(f"bad{i}", "failed", "a", AS_OF - timedelta(hours=2)) for i in range(6)]
        if day:
            rows.append(stormcrawler("worse", "failed", "a", AS_OF + timedelta(hours=22)))
        dump = tmp_path / f"dump{day}.jsonl"
        dump.write_text("\n".join(rows) + "\n")
        as_of = (AS_OF + timedelta(days=day)).isoformat()
        options = {"observations": dump, "as_of": as_of, "budget": 5}
        night = nightly(tmp_path, f"night{day}", state=state, **options)
        assert night.code == 0, night.complaints
        assert night.counters["failed"] == failed
        state = night.folder / "state"
    assert night.counters["duplicate"] == 6 and night.counters["unchanged"] == 9
    assert "6 duplicate" in night.printed and " 1 failed" in night.printed
    again = nightly(tmp_path, "again", state=tmp_path / "night0" / "state", rows_per_batch=2, **options)
    assert again.counters == night.counters and again.digests("state") == night.digests("state")
