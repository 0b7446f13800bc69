"""Nights in a row with a crawler that fetches what the schedule says, when it says: without Beam and files.

The truth is known: pages change by Poisson processes whose rates the test chooses, night by night.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from policies.history.page_state import Forgetting
from policies.objectives import objectives
from policies.optimum import search
from transforms.batches import schemas
from transforms.kept.carrying import Carry
from transforms.kept.fold_settings import FoldSettings, RequestClock
from transforms.kept.judging import account
from transforms.kept.predictions import ShardPredictions
from transforms.kept.silence import ShardSilence
from transforms.night.dividing import Night, ShardTotal, divide_slots
from transforms.night.folding import ShardFold
from transforms.night.learning import estimate_shard, learn, solver_block
from transforms.night.sampling import merge_overviews
from transforms.night.scheduling import ScheduledShard
from transforms.shards.catalogue import HostDefaults
from transforms.shards.sharding import Layout

DAY_US = 86_400_000_000
FIRST_DAY = 20_605


@dataclass
class Web:
    """Pages and what has happened to them.

    Attributes
    ----------
    rate : (n,) float64, changes per day
    host : (n,) int
    version : (n,) int
        Changes up to `until_us`.
    changed_us, until_us : (n,) int64
        Last change, and the time up to which the changes have been drawn.
    """

    rng: np.random.Generator
    rate: np.ndarray
    host: np.ndarray
    version: np.ndarray = field(init=False)
    changed_us: np.ndarray = field(init=False)
    until_us: np.ndarray = field(init=False)

    def __post_init__(self) -> None:
        n = len(self.rate)
        self.version = np.zeros(n, np.int64)
        self.changed_us = np.full(n, FIRST_DAY * DAY_US - 1)
        self.until_us = np.full(n, FIRST_DAY * DAY_US)
        self.urls = np.array([f"https://h{h}.test/{i}" for i, h in enumerate(self.host)], object)

    def advance(self, page: np.ndarray, at_us: np.ndarray) -> None:
        """Let the (distinct) pages live until `at_us`."""
        gap = at_us - self.until_us[page]
        changes = self.rng.poisson(self.rate[page] * gap / DAY_US)
        last = self.rng.random(len(page)) ** (1.0 / np.maximum(changes, 1))  # greatest of so many
        changed = self.until_us[page] + (last * gap).astype(np.int64)
        self.changed_us[page] = np.where(changes > 0, changed, self.changed_us[page])
        self.version[page] += changes
        self.until_us[page] = at_us

    def fetch(self, page: np.ndarray, at_us: np.ndarray, dated: np.ndarray) -> pa.RecordBatch:
        """The crawl log of some fetches, in any order of time; `dated` (n,) pages send Last-Modified."""
        rows: list[list[np.ndarray]] = []
        order = np.lexsort((at_us, page))
        page, at_us = page[order], at_us[order]
        new = np.diff(page, prepend=-1) != 0
        turn = np.arange(len(page)) - np.maximum.accumulate(np.where(new, np.arange(len(page)), 0))
        for k in range(int(turn.max(initial=-1)) + 1):
            at = turn == k
            self.advance(page[at], at_us[at])
            rows.append([page[at], at_us[at], self.version[page[at]], self.changed_us[page[at]]])
        page, at_us, version, changed = (np.concatenate(c) for c in zip(*rows, strict=True))
        digest = version.astype(np.uint64) + np.uint64(1)
        return pa.RecordBatch.from_arrays(
            [
                pa.array(self.urls[page], pa.string()),
                pa.array(at_us).cast(schemas.TIME),
                pa.array(np.full(len(page), 200, np.int16)),
                pa.array(digest),
                pa.nulls(len(page), pa.uint32()),
                pa.nulls(len(page), pa.bool_()),
                pa.nulls(len(page), pa.bool_()),
                pa.array(changed, mask=~dated[page]).cast(schemas.TIME),
            ],
            schema=schemas.OBSERVATIONS,
        )


@dataclass
class Crawler:
    """One site or many, crawled by the schedule.

    Attributes
    ----------
    web : Web
    budget : float, crawls per day
    warm_up_days : int
        Days of a log of crawls at random times before the first night.
    dated : (n,) bool
        Pages that send Last-Modified.
    """

    web: Web
    budget: float
    warm_up_days: int = 10
    dated: np.ndarray | None = None
    half_life_changes: int | None = 12
    manifest: dict[str, Any] = field(default_factory=dict)
    logged: Callable[[pa.RecordBatch], pa.RecordBatch] = lambda rows: rows
    """What the log has of the fetches."""

    def __post_init__(self) -> None:
        n = len(self.web.rate)
        if self.dated is None:
            self.dated = np.zeros(n, np.bool_)
        k = int(self.budget * self.warm_up_days)
        page = np.concatenate([np.arange(n), self.web.rng.integers(0, n, max(k - n, 0))])
        at_us = (FIRST_DAY + self.warm_up_days * self.web.rng.random(len(page))) * DAY_US
        self._log = self.logged(self.web.fetch(page, at_us.astype(np.int64), self.dated))
        self._carried: list[pa.RecordBatch] = []
        self._day = FIRST_DAY + self.warm_up_days
        self._carry = Carry()
        self._index = {url: i for i, url in enumerate(self.web.urls)}

    def replace_log(self, page: np.ndarray) -> None:
        """These pages were fetched at the end of the last day, in place of what was scheduled."""
        at_us = np.full(len(page), self._day * DAY_US - 1)
        self._log = self.web.fetch(page, at_us, self.dated)

    def take_too(self, urls: dict[str, int]) -> None:
        """Further URLs under which pages are scheduled."""
        self._index |= urls

    def night(self) -> dict[str, Any]:
        """Fold the log, judge, schedule, and crawl the day that follows; returns `judged` of the manifest."""
        as_of_us = self._day * DAY_US
        settings = FoldSettings(
            as_of_us,
            Forgetting(self.half_life_changes, None),
            RequestClock(self._day, 28.0),
            HostDefaults(None, 0.0, DAY_US),
            multiplier=self.manifest.get("multiplier"),
            night_before_us=self.manifest.get("options", {}).get("as_of_us"),
        )
        fold = ShardFold(settings, [self._log, *self._carried])
        tables = fold.tables(0, [])
        learned = learn(merge_overviews([fold.overview()]), settings.clock, "equal")
        judged = account(learned.sums[ShardPredictions], fold.counts.totals(), self.manifest, as_of_us)
        estimated = estimate_shard(tables, learned, None, settings.clock)
        block, objective = solver_block(estimated), objectives.get("periodic")
        state = search.begin(search.survey(block, objective, self.budget), objective, self.budget)
        for _ in range(search.ROUNDS):
            state = search.advance(state, search.demand(block, objective, state))
        result = search.finish(state)
        night = Night(as_of_us, DAY_US, "periodic", Layout(1, {}))
        totals = [ShardTotal(0, search.shard_total_per_day(block, objective, result))]
        plan = divide_slots(totals, night, self._carry)
        self._carry = plan.carry
        shard = ScheduledShard(night, estimated, result, plan, heard=learned.sums[ShardSilence])
        report = shard.report()
        self.manifest = {
            "counters": report.counts,
            "options": {"as_of_us": as_of_us},
            "multiplier": result.multiplier,
            "judged": judged,
            "silence": report.silence.account(),
            "expected_freshness": report.fresh_weight / report.weight,
            "expected_freshness_crawled": report.crawled_fresh_weight / report.crawled_weight,
        }
        self._carried = [fold.state(), shard.slots_pages(), shard.slots_hosts()]
        schedule = shard.schedule()
        page = np.array([self._index[u] for u in schedule.column("url").to_pylist()])
        due = schedule.column("due_at").cast(pa.int64()).to_numpy()
        self.scheduled, self.scheduled_urls = page, schedule.column("url").to_pylist()
        self._log = self.logged(self.web.fetch(page, due, self.dated))
        self._day += 1
        self.estimated, self.pages = estimated, shard.pages()
        return judged


def make_web(
    seed: int, pages: int, hosts: int, shape: float = 0.5, mean: float = 0.3, spread: float = 0.7
) -> Web:
    """Pages with gamma rates around log-normal means of their hosts."""
    rng = np.random.Generator(np.random.Philox(key=seed))
    host = np.sort(rng.integers(0, hosts, pages))
    of_host = mean * np.exp(spread * rng.standard_normal(hosts) - spread**2 / 2)
    return Web(rng, np.maximum(rng.gamma(shape, 1.0 / shape, pages) * of_host[host], 1e-4), host)
