"""Folding a shard: what was asked of a page before it was known does not depend on how the log is cut."""

import pyarrow as pa
import pytest

from policies.history.page_state import Forgetting
from tests.transforms.signal_shards import signals_of
from transforms.batches import schemas
from transforms.batches.urls import locate
from transforms.kept.fold_settings import FoldSettings, RequestClock
from transforms.night.folding import ShardFold
from transforms.shards.catalogue import DAY_US, HostDefaults

FIRST_DAY = 20_000
URL = "https://a.test/1"


def _batch(schema, rows):
    batch = pa.RecordBatch.from_pylist(rows, schema)
    hashes = locate(batch.column("url")).url_hash
    return batch.append_column("url_hash", pa.array(hashes)).replace_schema_metadata(schema.metadata)


def _crawl(day, digest=1):
    return {"url": URL, "fetched_at": day * DAY_US + 3600_000_000, "status": 200, "digest_hash": digest}


def _asked(day):
    return {"url": URL, "day": day, "hour": day % 24, "clicks": 1 << 20, "impressions": 0}


def _signal(day):
    return {"url": URL, "signalled_at": day * DAY_US + 7200_000_000, "source": "sitemap"}


def hours_of(fold):
    """What the night carries of the hours of requests."""
    return dict(fold.files())["state/request_hours"]


def _fold(days, rows, state=()):
    """One night that ends after the last of `days`, with the rows of these days."""
    end = (max(days) + 1) * DAY_US
    settings = FoldSettings(
        end, Forgetting(12, None), RequestClock(end // DAY_US, 28.0), HostDefaults(None, 0.0, DAY_US)
    )
    batches = [
        _batch(schema, [make(day) for day in rows[name] if day in days])
        for name, schema, make in (
            ("crawled", schemas.OBSERVATIONS, _crawl),
            ("asked", schemas.REQUESTS, _asked),
            ("signalled", schemas.SIGNALS, _signal),
        )
    ]
    fold = ShardFold(settings, [*batches, *state])
    fold.tables(0, [])
    return fold


@pytest.mark.parametrize("first_crawl", range(5))
def test_nights_are_one_night_also_before_a_page_is_known(first_crawl):
    days = range(FIRST_DAY, FIRST_DAY + 6)
    rows = {"crawled": [d for d in days if d >= FIRST_DAY + first_crawl], "asked": days, "signalled": days}
    whole = _fold(days, rows)
    state = ()
    for day in days:
        fold = _fold([day], rows, state)
        state = (fold.state(), signals_of(fold), hours_of(fold))
    assert state[0].equals(whole.state())
    assert state[2].equals(hours_of(whole)) and sum(state[2].column("requests")[0].as_py()) > 0
    assert state[1].equals(signals_of(whole))
    counts = whole.counts.totals()
    assert counts["requests_before_known"] == counts["signals_before_known"] == first_crawl
    assert not counts.get("requests_unmatched") and not counts.get("signals_unmatched")
    assert whole.state().column("request_clicks").to_pylist()[0][-1] > 0
