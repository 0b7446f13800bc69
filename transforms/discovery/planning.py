"""From sums of all shards to a price, and from the price to a schedule."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import apache_beam as beam
import numpy as np
import pyarrow as pa
from apache_beam.pvalue import AsList, AsSingleton

from policies.clocks.instants import keep_gaps
from policies.discovery import prior as priors
from policies.discovery.drawing import Drawn
from policies.discovery.hours import HOURS
from policies.discovery.lifetimes import CLASS_HOURS
from policies.discovery.names import DRAWN, IN_TURN, PHAM, POLICIES, SAMPLED
from policies.discovery.pricing import ROUNDS, Bracket, Chosen, Clock, Recrawling, Waiting, choose
from policies.discovery.regressed import Bandit, Regressed
from policies.discovery.sums import Sums
from policies.numerics.typing_ import FloatArray, IntArray, UIntArray
from transforms.batches import schemas
from transforms.batches.coders import ShardTables
from transforms.batches.counters import published
from transforms.batches.steps import Step, each, outputs
from transforms.batches.tally import Counts
from transforms.discovery import host_groups, tables
from transforms.discovery.host_groups import Shares
from transforms.discovery.learning import Learned, Part, in_order, learn_all, number_of, sums_of
from transforms.discovery.sources import listed_only
from transforms.rows.link_rows import page_texts
from transforms.shards.catalogue import DAY_US

HOUR_US = 3_600_000_000
LEAST_RECRAWLS = 0.1
"""Of a budget that recrawls share with refreshes at one price."""
ENOUGH = 100
"""The search ends where its bracket has no more than this part of the refreshes in it."""


@dataclass(frozen=True)
class Plan:
    """What is planned.

    Attributes
    ----------
    as_of_us, horizon_us : int
    refreshes : int
        In the horizon; with `recrawling` crawls of both kinds.
    least_hours : float
        Between two refreshes of a source.
    capacity : float
        How many times its even share of the refreshes any time may have.
    only_listed : bool
    recrawling : Recrawling, optional
        What else shares the budget.
    policy : str
        Of `policies.discovery.pricing.POLICIES`.
    bandit : Bandit
        Of the run before; Pham's alone.
    """

    as_of_us: int
    horizon_us: int
    refreshes: int
    least_hours: float
    capacity: float
    only_listed: bool
    recrawling: Recrawling | None = None
    policy: str = POLICIES[0]
    bandit: Bandit = field(default_factory=Bandit)

    def other(self, price: FloatArray | float) -> IntArray:
        """Crawls that are no refreshes, at prices: int64. A tenth of all is theirs in any case."""
        if self.recrawling is None:
            return np.zeros(np.shape(price), np.int64)
        asked = np.clip(self.recrawling.asked(price), LEAST_RECRAWLS * self.refreshes, self.refreshes)
        return np.ceil(asked).astype(np.int64)


def following(_: Any, plan: Plan, learned: Learned) -> Plan:
    """The part of a plan that follows predictions."""
    assert learned.regression is not None
    return replace(plan, refreshes=round(plan.refreshes * learned.regression.bandit.share))


def with_price(_: Any, learned: Learned, price: Price) -> Learned:
    """With the price of predictions, so that ages are searched next."""
    assert learned.regression is not None
    return replace(learned, regression=replace(learned.regression, price=price.bracket.high))


@dataclass(frozen=True)
class Ready:
    """The sources of a shard as they wait; arrays over them, and over hosts."""

    sums: Sums
    waiting: Waiting | Drawn
    mean_per_hour: FloatArray
    share: FloatArray
    host: IntArray
    host_start: IntArray
    most: IntArray


def ready(shard: ShardTables, plan: Plan, learned: Learned) -> Ready:
    """Sources of a shard, with what is known of all."""
    batch, hosts = shard.tables["sources"], shard.tables["hosts"]
    sums, clock = sums_of(shard), _clock(plan, learned)
    share = priors.shares(sums, learned.common)
    count = hosts.column("sources").to_numpy()
    host = np.repeat(np.arange(len(count)), count)
    early = priors.early_rates(
        hosts.column("new").to_numpy(), hosts.column("exposure").to_numpy(), learned.common
    )
    mean, thought = priors.rates(
        sums,
        priors.exposures(sums, share),
        learned.prior,
        early[host],
        batch.column("listed").to_numpy(zero_copy_only=False),
    )
    now, end = (np.array([us / HOUR_US]) for us in (plan.as_of_us, plan.as_of_us + plan.horizon_us))
    start = clock.reading(now)[0]
    odds = None
    if plan.policy == IN_TURN:
        thought = np.ones(len(sums))
    else:
        if plan.policy == SAMPLED:
            thought = priors.drawn(sums, learned.prior, mean, keys(shard), plan.as_of_us)
        elif plan.policy != POLICIES[0]:
            thought = mean
        usual, odds = priors.answering(sums, float(now[0] + end[0]) / 2.0)
        thought = thought * usual * odds
    planned = listed_only(batch, plan.only_listed)
    thought[~planned] = 0.0
    since = np.where(sums.seen_s >= 0, start - clock.reading(sums.seen_s / 3600.0), np.inf)
    away, waited = priors.unanswered_hours(sums, float(now[0]), plan.least_hours)
    waiting: Waiting | Drawn
    if plan.policy in DRAWN:
        at_least = np.where(planned, np.maximum(away - waited, plan.least_hours - since), np.inf)
        step_hours = max(1.0, plan.least_hours)
        steps = keys(shard), (float(now[0]), float(end[0])), step_hours, at_least
        if learned.regression is None:
            waiting = Drawn.of(tables.columns_to_yields(batch), *steps)
        else:
            at_s = np.full(len(sums), plan.as_of_us // 1_000_000)
            moments = tables.columns_to_recent(batch).moments(np.arange(len(sums)), at_s)
            last_s = np.maximum(sums.seen_s, sums.asked_s)
            ages = since, np.where(last_s >= 0, now[0] - last_s / 3600.0, np.inf)
            waiting = Regressed.predicted(moments, ages, learned.regression, *steps)
    else:
        span = float(clock.reading(end)[0] - start)
        waiting = Waiting(thought, share, since, away, waited, plan.least_hours, span, plan.policy, odds)
    starts = np.append(0, np.cumsum(count))
    return Ready(sums, waiting, mean, share, host, starts, hosts.column("most").to_numpy())


def _clock(plan: Plan, learned: Learned) -> Clock:
    """Hours of the clock of the day; of policies by step they are all alike."""
    return Clock(np.ones(HOURS) if plan.policy in DRAWN else learned.common.speed)


def keys(shard: ShardTables) -> UIntArray:
    """What tells sources from others, (n,) uint64."""
    return page_texts(shard.tables["sources"].column("url"))[1]


@dataclass(frozen=True)
class Search:
    """Where the search of the price stands.

    Attributes
    ----------
    bracket : Bracket
    ends : dict of int to (int, int)
        Refreshes at its low and its high end, by shard.
    done : bool
        Whether it is narrow enough.
    """

    bracket: Bracket = field(default_factory=Bracket)
    ends: dict[int, tuple[int, int]] = field(default_factory=dict)
    done: bool = False


def counts_part(shard: ShardTables, plan: Plan, learned: Learned, search: Search) -> Part:
    """Refreshes of a shard at the prices of a bracket."""
    if search.done:
        return shard.shard, None
    made = ready(shard, plan, learned)
    return shard.shard, made.waiting.totals(search.bracket.prices(), made.host_start, made.most)


def narrow(_: Any, parts: Sequence[Part], search: Search, plan: Plan) -> Search:
    if search.done:
        return search
    bracket, prices = search.bracket, search.bracket.prices()
    totals = np.sum(in_order(parts), axis=0) + plan.other(prices)
    low, high = bracket.around(totals, plan.refreshes)
    ends = {shard: (int(counts[low]), int(counts[high])) for shard, counts in sorted(parts, key=number_of)}
    done = (totals[low] - totals[high]) * ENOUGH <= plan.refreshes
    return Search(Bracket(float(prices[low]), float(prices[high])), ends, bool(done))


@dataclass(frozen=True)
class Price:
    """The price, and what is left at it for each shard.

    Attributes
    ----------
    bracket : Bracket
    refreshes : int
        At its high end.
    extra : dict of int to int
        Refreshes beyond those, by shard.
    """

    bracket: Bracket
    refreshes: int
    extra: dict[int, int]


def settle(search: Search, plan: Plan) -> Price:
    """Share out what the price leaves, to shards in turn."""
    total = sum(high for _, high in search.ends.values())
    left, extra = max(plan.refreshes - int(plan.other(search.bracket.high)) - total, 0), {}
    for shard, (low, high) in search.ends.items():
        extra[shard] = min(left, max(low - high, 0))
        left -= extra[shard]
    return Price(search.bracket, total + sum(extra.values()), extra)


def _first(_: bytes) -> Search:
    return Search()


def search(
    shards: beam.PCollection, plan: Any, learned: Any, start: beam.PCollection, name: str = ""
) -> beam.PCollection:
    """The price at which the refreshes of all shards are those of the budget: one `Price`."""
    state = start | f"First{name}" >> each(_first).with_output_types(Search)
    for n in range(ROUNDS):
        at = AsSingleton(state)
        parts = shards | f"Count{name}{n}" >> each(counts_part, plan, learned, at).with_output_types(Part)
        state = start | f"Narrow{name}{n}" >> each(narrow, AsList(parts), at, plan).with_output_types(Search)
    return state | f"Settle{name}" >> each(settle, plan).with_output_types(Price)


def asked_part(shard: ShardTables, plan: Plan, learned: Learned, price: Price) -> Part:
    """Hosts of a shard that are in groups, and what they ask for at a price."""
    made = ready(shard, plan, learned)
    asked = made.waiting.asked(np.full(len(made.sums), price.bracket.high))
    count = np.bincount(made.host, asked, len(made.most)).astype(np.int64)
    return shard.shard, host_groups.asking(shard.tables["hosts"], count)


def divide(_: Any, parts: Sequence[Part], plan: Plan) -> Shares:
    return host_groups.divide(in_order(parts), plan.as_of_us, plan.horizon_us, plan.refreshes)


class ScheduleSources(Step):
    """Sums of a shard to its schedule, its sources and the last slots of its hosts."""

    OUTPUTS: ClassVar = {"files": ShardTables, "counts": dict[str, int], "worth": Part}

    def __init__(self, plan: Plan) -> None:
        self._plan = plan

    def process(
        self, shard: ShardTables, learned: Learned, price: Price, shares: Shares | None
    ) -> Iterator[Any]:
        plan = self._plan
        made, key = ready(shard, plan, learned), keys(shard)
        extra = price.extra[shard.shard]
        chosen = choose(made.waiting, price.bracket, extra, key, made.host_start, made.most)
        refreshes = made.waiting.instants(chosen, key, plan.capacity)
        due_us = _due(refreshes.due, plan, learned)
        due_us = self._apart(refreshes.row, due_us, made, shard.tables["hosts"])
        if shares is not None:
            names = shard.tables["hosts"].column("host_hash").to_numpy()
            due_us = shares.place(names, made.host[refreshes.row], due_us, plan.as_of_us)
        order = np.lexsort((key[refreshes.row], due_us))
        row, due_us, worth = refreshes.row[order], due_us[order], refreshes.worth[order]
        files = {
            "schedule": _schedule(shard, row, due_us, made, worth),
            "sources": _sources(shard, made, chosen, plan),
            "slots": _slots(shard, row, due_us, made),
        }
        counts = Counts()
        counts.add("refreshes", len(row))
        counts.add("sources_refreshed", int((np.bincount(row, minlength=len(key)) > 0).sum()))
        of_host = np.bincount(made.host[row], minlength=len(made.most))
        counts.add("hosts_at_limit", int(((of_host >= made.most) & (made.most < plan.refreshes)).sum()))
        counts.add("sources_never_seen", int((made.sums.seen_s < 0).sum()))
        counts.add("sources_failing", int((made.sums.failures > 0).sum()))
        yield beam.pvalue.TaggedOutput("counts", published(counts.totals()))
        daily = 24.0 * made.mean_per_hour
        planned = listed_only(shard.tables["sources"], plan.only_listed)
        yield beam.pvalue.TaggedOutput("worth", (shard.shard, np.array([daily[planned].sum(), len(row)])))
        yield ShardTables(shard.shard, files)

    def _apart(self, row: IntArray, due_us: IntArray, made: Ready, hosts: pa.RecordBatch) -> IntArray:
        """Keep the gaps of hosts."""
        plan = self._plan
        gap, free = hosts.column("gap_us").to_numpy(), hosts.column("free_us").to_numpy()
        moment = due_us - plan.as_of_us
        moment = keep_gaps(made.host[row], moment, gap, free - plan.as_of_us, plan.horizon_us)
        return np.asarray(moment + plan.as_of_us, np.int64)


def _due(reading: FloatArray, plan: Plan, learned: Learned) -> IntArray:
    clock = _clock(plan, learned)
    start = clock.reading(np.array([plan.as_of_us / HOUR_US]))
    hours = clock.instants(start + reading)
    due = np.rint(hours * 3600.0).astype(np.int64) * 1_000_000
    return np.clip(due, plan.as_of_us, plan.as_of_us + plan.horizon_us - 1)


def _names(shard: ShardTables, host: IntArray) -> pa.Array:
    return shard.tables["hosts"].column("host").take(pa.array(host))


def _schedule(
    shard: ShardTables, row: IntArray, due_us: IntArray, made: Ready, worth: FloatArray
) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays(
        [
            shard.tables["sources"].column("url").take(pa.array(row)),
            _names(shard, made.host[row]),
            pa.array(due_us).cast(schemas.TIME),
            pa.array(["discover"]).take(pa.array(np.zeros(len(row), np.int64))),
            pa.array(worth),
        ],
        schema=tables.SCHEDULE,
    )


def _sources(shard: ShardTables, made: Ready, chosen: Chosen, plan: Plan) -> pa.RecordBatch:
    sums = made.sums
    host_count = np.bincount(made.host, chosen.count, len(made.most))
    at_limit = (host_count >= made.most)[made.host] & (made.most < plan.refreshes)[made.host]
    why = np.select(
        [
            ~listed_only(shard.tables["sources"], plan.only_listed),
            sums.failures > 0,
            at_limit & (chosen.count == 0),
            (chosen.count > 0) & (sums.seen_s < 0),
            (chosen.count > 0) & ~np.isfinite(sums.before_hours),
            at_limit,
            chosen.count > 0,
        ],
        [
            "not listed",
            "does not answer",
            "host at its limit",
            "never seen",
            "seen once",
            "host at its limit",
            "due",
        ],
        "not yet worth the price",
    )
    seen = pa.array(np.maximum(sums.seen_s, 0) * 1_000_000, mask=sums.seen_s < 0).cast(schemas.TIME)
    return pa.RecordBatch.from_arrays(
        [
            shard.tables["sources"].column("url"),
            _names(shard, made.host),
            pa.array(sums.links.astype(np.int64)),
            pa.array(24.0 * made.mean_per_hour),
            pa.array((made.share * CLASS_HOURS).sum(axis=1)),
            seen,
            pa.array(sums.failures.astype(np.int64)),
            pa.array(chosen.count * (DAY_US / plan.horizon_us)),
            pa.array(made.waiting.worth_now),
            pa.array(why.tolist(), pa.string()),
        ],
        schema=tables.SOURCES_OUT,
    )


def _slots(shard: ShardTables, row: IntArray, due_us: IntArray, made: Ready) -> pa.RecordBatch:
    """The last slots of hosts, of this schedule and of those before."""
    none = np.iinfo(np.int64).min
    hash_ = shard.tables["hosts"].column("host_hash").to_numpy()
    last = np.full(len(hash_), none)
    old = shard.tables["slots"]
    at = np.searchsorted(hash_, old.column("host_hash").to_numpy())
    last[at] = old.column("last_slot_at").cast(pa.int64()).to_numpy()
    np.maximum.at(last, made.host[row], due_us)
    some = last > none
    return pa.RecordBatch.from_arrays(
        [pa.array(hash_[some]), pa.array(last[some]).cast(schemas.TIME)], schema=tables.SLOTS
    )


def plan_all(
    shards: beam.PCollection, plan: Plan, start: beam.PCollection, groups: bool
) -> dict[str, beam.PCollection]:
    """The whole way from sums of shards: "files", "counts", "worth", and one "price" and "learned".

    `groups` says whether hosts may share limits.
    """
    learned = learn_all(shards, start, plan.bandit if plan.policy == PHAM else None)
    side = AsSingleton(learned)
    if plan.policy == PHAM:
        best = AsSingleton(start | "FollowPredictions" >> each(following, plan, side).with_output_types(Plan))
        price = AsSingleton(search(shards, best, side, start, "Best"))
        learned = start | "PricePredictions" >> each(with_price, side, price).with_output_types(Learned)
        side = AsSingleton(learned)
    shares = None
    if groups:
        alone = AsSingleton(search(shards, plan, side, start, "Alone"))
        asked = shards | "AskGroups" >> each(asked_part, plan, side, alone).with_output_types(Part)
        divided = start | "DivideGroups" >> each(divide, AsList(asked), plan).with_output_types(Shares)
        shares = AsSingleton(divided)
        limited = each(host_groups.limited, shares).with_output_types(ShardTables)
        shards = shards | "LimitHosts" >> limited
    price = search(shards, plan, side, start)
    made = outputs(shards, "ScheduleSources", ScheduleSources(plan), side, AsSingleton(price), shares)
    return {**made, "price": price, "learned": learned}


def total_worth(parts: Iterable[Part]) -> float:
    """New links a day of all sources, as far as is known."""
    return math.fsum(float(value[0]) for value in in_order(list(parts)))
