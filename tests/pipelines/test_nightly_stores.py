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
    metadata = {
        "fetch%2EstatusCode": [{"same": "304", "new": "200", "gone": "404"}[found]],
        "signature": [signature],
        "signatureOld": ["of old"],
        "lastProcessedDate": [at.isoformat().replace("+00:00", "Z")],
    }
    return json.dumps({"url": f"https://a.test/{name}", "status": "FETCHED", "metadata": metadata})


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
