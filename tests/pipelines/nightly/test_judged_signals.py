"""Night after night of pages that are crawled because of their signals: predictions still hold."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from policies.history.page_state import Forgetting
from policies.objectives import objectives
from policies.optimum import search
from transforms.batches import schemas
from transforms.batches.coders import ShardTables
from transforms.batches.urls import locate
from transforms.kept.carrying import Carry
from transforms.kept.fold_settings import FoldSettings, RequestClock
from transforms.kept.judging import account, drift_warnings
from transforms.kept.predictions import ShardPredictions
from transforms.kept.statistics import slots_schema
from transforms.night.dividing import Night, ShardTotal, divide_slots
from transforms.night.folding import ShardFold
from transforms.night.learning import estimate_shard, learn, solver_block
from transforms.night.sampling import merge_overviews
from transforms.night.scheduling import ScheduledShard
from transforms.shards.catalogue import DAY_US, HostDefaults
from transforms.shards.sharding import Layout

FIRST_DAY, WARM_UP_DAYS, NIGHTS, SEEDS = 20_605, 10, 10, 2
N_PAGES, N_HOSTS = 900, 18


@dataclass
class Feeds:
    """Pages of which two hosts in three announce changes, some of them well and some badly.

    Changes and signals of all days are drawn beforehand.
    """

    seed: int
    urls: list[str] = field(init=False)

    def __post_init__(self) -> None:
        rng = np.random.Generator(np.random.Philox(key=self.seed))
        host = np.sort(rng.integers(0, N_HOSTS, N_PAGES))
        self.urls = [f"https://h{h}.test/{i}" for i, h in enumerate(host)]
        rate = rng.gamma(0.7, 0.25 / 0.7, N_PAGES) * np.exp(0.5 * rng.standard_normal(N_HOSTS))[host] + 1e-3
        recall = np.where(np.arange(N_HOSTS) % 3 == 2, 0.0, rng.uniform(0.3, 0.95, N_HOSTS))[host]
        precision = rng.uniform(0.15, 0.95, N_HOSTS)[host]
        self.days = WARM_UP_DAYS + NIGHTS + 1
        self.changes: list[np.ndarray] = []
        self.signals: list[tuple[int, int]] = []
        for i in range(N_PAGES):
            changes = np.sort(rng.random(rng.poisson(rate[i] * self.days)) * self.days)
            told = changes[rng.random(len(changes)) < recall[i]]
            false = rate[i] * recall[i] * (1 / precision[i] - 1)
            wrong = rng.random(rng.poisson(false * self.days)) * self.days
            self.changes.append(self._us(changes))
            self.signals += [(i, int(t)) for t in self._us(np.concatenate([told, wrong]))]
        self.rng = rng

    @staticmethod
    def _us(days: np.ndarray) -> np.ndarray:
        return ((FIRST_DAY + days) * DAY_US).astype(np.int64)

    def rows(self, schema: pa.Schema, page: list[int], **columns: pa.Array) -> pa.RecordBatch:
        urls = pa.array([self.urls[i] for i in page], pa.string())
        columns |= {"url": urls, "url_hash": pa.array(locate(urls).url_hash)}
        fields = [*schema, pa.field("url_hash", pa.uint64())]
        arrays = [columns.get(f.name, pa.nulls(len(page), f.type)) for f in fields]
        return pa.RecordBatch.from_arrays(arrays, schema=pa.schema(fields, metadata=schema.metadata))


class Crawler:
    """Crawls the feeds by the schedule; keeps what the copies were really worth."""

    def __init__(self, feeds: Feeds) -> None:
        self.feeds = feeds
        rng = feeds.rng
        page = np.concatenate([np.arange(N_PAGES), rng.integers(0, N_PAGES, 4 * N_PAGES)])
        at_us = (FIRST_DAY + WARM_UP_DAYS * rng.random(len(page))) * DAY_US
        self._last = np.full(N_PAGES, -1, np.int64)
        self.fresh_us = self.held_us = 0
        self._scheduled = np.zeros(N_PAGES, np.bool_)
        self._log = self._fetch(page, at_us.astype(np.int64))
        self._carried: list[pa.RecordBatch] = []
        self._carry, self._day = Carry(), FIRST_DAY + WARM_UP_DAYS
        self._manifests: dict[str, dict[str, Any]] = {}

    def _fetch(self, page: np.ndarray, at_us: np.ndarray) -> pa.RecordBatch:
        order = np.argsort(at_us, kind="stable")
        version = []
        for i, t in zip(page[order].tolist(), at_us[order].tolist(), strict=True):
            changes = self.feeds.changes[i]
            version.append(int(np.searchsorted(changes, t, side="right")))
            if self._last[i] >= 0 and self._scheduled[i]:
                first = int(np.searchsorted(changes, self._last[i], side="right"))
                until = min(int(changes[first]), t) if first < len(changes) else t
                self.fresh_us += until - int(self._last[i])
                self.held_us += t - int(self._last[i])
            self._last[i] = t
        return self.feeds.rows(
            schemas.OBSERVATIONS,
            page[order].tolist(),
            fetched_at=pa.array(at_us[order]).cast(schemas.TIME),
            status=pa.array(np.full(len(page), 200, np.int16)),
            digest_hash=pa.array(np.array(version, np.uint64) + np.uint64(1)),
        )

    def _judged(self, fold: ShardFold, name: str) -> tuple[dict[str, Any], ShardTables]:
        """`judged` of a manifest, with the manifests of that name before it, and the fold's tables."""
        tables = fold.tables(0, [])
        self._learned = learn(merge_overviews([fold.overview()]), self.clock, "equal", True)
        as_of_us, counts = self._day * DAY_US, fold.counts.totals()
        judged = account(
            self._learned.sums[ShardPredictions], counts, self._manifests.get(name, {}), as_of_us
        )
        self._manifests[name] = {"options": {"as_of_us": as_of_us}, "judged": judged}
        return judged, tables

    def night(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """Fold the log, judge, schedule, crawl the day that follows.

        Returns `judged` of the manifest, and what it would be had the night before kept rates alone.
        """
        as_of_us = self._day * DAY_US
        begin_us = as_of_us - DAY_US if self._carried else 0
        news = [(i, t) for i, t in self.feeds.signals if begin_us < t <= as_of_us]
        signals = self.feeds.rows(
            schemas.SIGNALS,
            [i for i, _ in news],
            signalled_at=pa.array([t for _, t in news], pa.int64()).cast(schemas.TIME),
            source=pa.array(["feed"] * len(news), pa.string()),
        )
        self.clock = RequestClock(self._day, 28.0)
        settings = FoldSettings(as_of_us, Forgetting(12, None), self.clock, HostDefaults(None, 0.0, DAY_US))
        bare = [_rates_alone(batch) for batch in self._carried]
        without, _ = self._judged(ShardFold(settings, [self._log, signals, *bare]), "without")
        fold = ShardFold(settings, [self._log, signals, *self._carried])
        judged, tables = self._judged(fold, "with")
        estimated = estimate_shard(tables, self._learned, None, self.clock)
        objective, budget = objectives.get("signals"), N_PAGES / 5
        result, _ = search.solve(solver_block(estimated), objective, budget)
        night = Night(as_of_us, DAY_US, "signals", Layout(1, {}), budget)
        plan = divide_slots([ShardTotal(0, result.allocated_per_day)], night, self._carry)
        shard = ScheduledShard(night, estimated, result, plan)
        self._carry = plan.carry
        self._carried = [
            *(rows for _, rows in fold.files()),
            shard.slots_pages(),
            shard.slots_hosts(),
        ]
        schedule = shard.schedule()
        of_url = {u: i for i, u in enumerate(self.feeds.urls)}
        page = np.array([of_url[u] for u in schedule.column("url").to_pylist()])
        self._scheduled[:] = False
        self._scheduled[page] = True
        self._log = self._fetch(page, schedule.column("due_at").cast(pa.int64()).to_numpy())
        self._day += 1
        return judged, without


def _rates_alone(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Slots of nights that did not keep what they expected of signals."""
    if schemas.kind_of(batch) != "slots_pages":
        return batch
    nothing = [pa.nulls(batch.num_rows, f.type) for f in list(slots_schema())[6:]]
    return pa.RecordBatch.from_arrays([*batch.columns[:6], *nothing], schema=slots_schema())


class Sums:
    """What some nights said, added up."""

    def __init__(self) -> None:
        self.found = self.predicted = self.realised = self.thought = 0.0
        self.crawls = self.warnings = 0
        self.reliability = np.zeros((10, 3))

    def add(self, judged: dict[str, Any]) -> None:
        self.warnings += len(drift_warnings(judged))
        self.found += judged["changes_found"]
        self.predicted += judged["changes_predicted"]
        self.crawls += judged["crawls"]
        self.reliability += [[b["crawls"], b["predicted"], b["found"]] for b in judged["reliability"]]
        fresh = judged["freshness_of_time"]
        self.realised += judged["crawls"] * (fresh["realised"] or 0.0)
        self.thought += judged["crawls"] * (fresh["predicted"] or 0.0)

    def bins_off(self) -> int:
        """Bins that are further off than chance and the estimator's bias of a few percent explain."""
        crawls, predicted, found = self.reliability.T
        chance = predicted / np.maximum(crawls, 1)
        noise = np.sqrt(np.maximum(predicted * (1 - chance), 1.0))
        return int(np.count_nonzero(np.abs(found - predicted) >= 4 * noise + 0.12 * predicted))


def test_predictions_hold_on_pages_that_were_picked_for_their_signals():
    """And what copies were worth is what the account says, which rates alone do not tell."""
    with_signals, rates_alone = Sums(), Sums()
    fresh_us = held_us = 0
    for seed in range(SEEDS):
        crawler = Crawler(Feeds(seed))
        for _ in range(NIGHTS):
            # Crawls of the day before, which this night judges.
            fresh_us, held_us = fresh_us + crawler.fresh_us, held_us + crawler.held_us
            crawler.fresh_us = crawler.held_us = 0
            judged, without = crawler.night()
            with_signals.add(judged)
            rates_alone.add(without)
            assert judged["crawls"] == without["crawls"]  # every source is known here
    assert with_signals.crawls > 0.9 * SEEDS * (NIGHTS - 1) * N_PAGES / 5
    assert with_signals.found / with_signals.predicted == pytest.approx(1.0, abs=0.06)
    assert with_signals.warnings == 0
    assert with_signals.bins_off() == 0
    assert rates_alone.bins_off() >= 2
    truth = fresh_us / held_us
    assert with_signals.realised / with_signals.crawls == pytest.approx(truth, abs=0.015)
    assert with_signals.thought / with_signals.crawls == pytest.approx(truth, abs=0.04)
    assert rates_alone.realised / rates_alone.crawls < truth - 0.03
