"""From folded histories to rates: priors from a sample, then every page of a shard at once."""

from __future__ import annotations

import functools
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import apache_beam as beam
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from apache_beam.pvalue import AsList, AsSingleton
from apache_beam.typehints.decorators import no_annotations

from policies.clocks.pooled import HoursOfAll
from policies.estimation import estimators, group_means, prior, requests
from policies.estimation.estimators import bin_nodes
from policies.history import volatile
from policies.history.evidence import Evidence
from policies.numerics.typing_ import BoolArray, FloatArray
from policies.optimum import search
from transforms.batches.coders import ShardTables
from transforms.batches.combining import Combine, CombineShards
from transforms.batches.errors import InputError
from transforms.batches.shard_tables import KEPT
from transforms.batches.steps import Step, each
from transforms.kept.clocks import ShardClocks
from transforms.kept.fold_settings import RequestClock
from transforms.kept.protocol import Sums
from transforms.kept.requests import ShardRequests
from transforms.kept.silence import ShardSilence, silence_of
from transforms.night.group_tables import GroupTable, MergeGroups
from transforms.night.night_clocks import Tonight
from transforms.night.sampling import MergeOverviews, Overview, evidence_of, sampled_evidence, sampled_rates
from transforms.night.signal_sample import learn_trust
from transforms.night.solving import block_to_tables, table_to_signals
from transforms.night.trusting import LearnedTrust, estimate_signals
from transforms.night.volatile_pages import Ordinary, learn_ordinary, volatile_pages
from transforms.shards.catalogue import DAY_US


@dataclass(frozen=True)
class Learned:
    """What all pages together say, broadcast to every shard: a few numbers.

    Attributes
    ----------
    change : prior.Prior
    clicks, impressions : requests.RequestPrior or None
        None where no log has any.
    rows_by_day : dict of int to int
    weight : str
        What a page weighs: clicks, impressions, importance or equal.
    trust : LearnedTrust or None
        Of sources of signals; None where they are not to be used.
    ordinary : Ordinary or None
        None where no page may be volatile.
    sums : dict of type to object
        As in `Overview`; most for the manifest, like `rows_by_day`.
    hours_of_all : HoursOfAll
        For the next night.
    """

    change: prior.Prior
    clicks: requests.RequestPrior | None
    impressions: requests.RequestPrior | None
    rows_by_day: dict[int, int]
    weight: str
    trust: LearnedTrust | None = None
    ordinary: Ordinary | None = None
    sums: Sums = field(default_factory=dict)
    hours_of_all: HoursOfAll = field(default_factory=HoursOfAll)


def learn(overview: Overview, clock: RequestClock, weight_by: str, with_signals: bool = False) -> Learned:
    """Fit the priors to the sample; those of signals only where they are used."""
    sample = overview.whole_sample
    evidence, group = sampled_evidence(sample)
    clicks = impressions = None
    asked = overview.sums[ShardRequests]
    if asked.has("clicks") or asked.has("impressions"):
        days = clock.exposure_days(asked.days, sample.column("first_seen_day").to_numpy())
        if asked.has("clicks"):
            clicks = requests.fit_request_prior(sample.column("clicks").to_numpy(), days)
        if asked.has("impressions"):
            impressions = requests.fit_request_prior(sample.column("impressions").to_numpy(), days)
    for name, found in (("clicks", clicks), ("impressions", impressions)):
        if weight_by == name and found is None:
            raise InputError(
                f"--weight_by={name}: neither --requests nor the state has any {name} of a known page; give "
                "a log of them, or weigh by auto, importance or equal"
            )
    weight = weight_by
    if weight_by == "auto":
        weight = "clicks" if clicks else "impressions" if impressions else "importance"
    change = prior.fit_prior(evidence, group)
    trust = None
    if with_signals:
        giants = overview.giant_sample
        trust = learn_trust(sample, sampled_rates(sample, change), giants, sampled_rates(giants, change))
    return Learned(
        change,
        clicks,
        impressions,
        overview.rows_by_day,
        weight,
        trust,
        learn_ordinary(sample, overview.giant_sample, change) if overview.has_volatile else None,
        {kind: sums for kind, sums in overview.sums.items() if kind is not ShardClocks},
        overview.sums[ShardClocks].hours(),
    )


_EVIDENCE = ("group_hash", "exposure_days", "dated_changes", "n_bins")


def evidence_tables(folded: ShardTables) -> dict[str, pa.RecordBatch]:
    """What `sampling.evidence_of` needs of a folded shard: the tables "evidence" and "bins"."""
    return {"evidence": folded.tables["pages"].select(_EVIDENCE), "bins": folded.tables["bins"]}


def evidence_of_groups(folded: ShardTables, groups: Collection[int] | None) -> ShardTables:
    """What a round needs to know of the pages of some groups."""
    pages, bins = folded.tables["pages"].select(_EVIDENCE), folded.tables["bins"]
    if groups is not None:
        chosen = np.isin(pages.column("group_hash").to_numpy(), np.array(sorted(groups), np.uint64))
        bins = bins.filter(pa.array(np.repeat(chosen, pages.column("n_bins").to_numpy())))
        pages = pages.filter(pa.array(chosen))
    return ShardTables(folded.shard, {"pages": pages, "bins": bins})


def sum_groups(narrow: ShardTables, learned: Learned, table: GroupTable | None) -> GroupTable:
    """One round: rates where the means of groups are those of grid points, added up by group."""
    pages = narrow.tables["pages"]
    evidence = evidence_of(pages, narrow.tables["bins"])
    group_hash, code = np.unique(pages.column("group_hash").to_numpy(), return_inverse=True)
    if table is None or table.point is None:
        points = group_means.first_points(learned.change, len(group_hash))
    else:
        points = table.point[:, np.searchsorted(table.group_hash, group_hash)]
    nodes = bin_nodes(evidence)
    sums = tuple(group_means.sums_at(evidence, nodes, code, at, learned.change) for at in points)
    return GroupTable(group_hash, sums)


class _SumGroups(Step):
    """`sum_groups` of a shard; `told` are side inputs of `stand_of`."""

    def start_bundle(self) -> None:
        self._table: GroupTable | None = None

    @no_annotations
    def process(self, narrow: ShardTables, learned: Learned, *told: list[GroupTable]) -> Iterator[GroupTable]:
        self._table = self._table or stand_of(learned, *told)
        yield sum_groups(narrow, learned, self._table)


def end_round(table: GroupTable, learned: Learned, before: GroupTable | None, i: int) -> GroupTable:
    """Grid points for the round after round `i`, whose sums these are; after the last the means of groups."""
    change, sums = learned.change, list(table.sums)
    if before is None or before.point is None:
        point = group_means.first_points(change, len(table.group_hash))
    else:
        point = before.point
    if i + 1 == len(group_means.STRIDES):
        return GroupTable(table.group_hash, (), None, group_means.means_among(change, point, sums))
    return GroupTable(
        table.group_hash, (), group_means.next_points(change, point, sums, group_means.STRIDES[i + 1])
    )


def stand_of(learned: Learned, *told: list[GroupTable]) -> GroupTable | None:
    """What rounds have come to: of each its sums by shard, or of the last one what it has ended with."""
    table = None
    for i, tables in enumerate(told):
        whole = functools.reduce(GroupTable.merge, tables)
        table = end_round(whole, learned, table, i) if whole.sums else whole
    return table


class LearnGroupMeans(beam.PTransform):
    """Means of groups that reach over shards: three rounds over all shards, see
    `policies.estimation.group_means`.

    Parameters
    ----------
    learned : PCollection of one Learned
    groups : collection of int, optional
        Hashes of the groups to find the means of; all groups if None.

    Between rounds travel 36 bytes a group, shard and grid point; each reads about 60 bytes a page of these
    groups. What few groups have come to is told to all workers; of many it is added up in one place first.
    """

    def __init__(self, learned: beam.PCollection, groups: Collection[int] | None = None) -> None:
        super().__init__()
        self._learned, self._groups = AsSingleton(learned), groups

    def expand(self, folded: beam.PCollection) -> list[AsList]:
        told, table = list[Any](), None
        narrow = folded | "EvidenceOfGroups" >> each(evidence_of_groups, self._groups).with_output_types(
            ShardTables
        )
        for i in range(len(group_means.STRIDES)):
            asked = beam.ParDo(_SumGroups(), self._learned, *told).with_output_types(GroupTable)
            sums = narrow | f"SumGroups[{i}]" >> asked
            if self._groups is not None:
                told.append(AsList(sums))
                continue
            before = AsSingleton(table) if table is not None else None
            table = (
                sums
                | f"AddGroups[{i}]" >> Combine(MergeGroups())
                | f"EndRound[{i}]" >> each(end_round, self._learned, before, i).with_output_types(GroupTable)
            )
            told = [AsList(table)]
        return told


class LearnPriors(beam.PTransform):
    """One `Learned` from the overviews of all shards."""

    def __init__(
        self, clock: RequestClock, weight_by: str, num_shards: int, with_signals: bool = False
    ) -> None:
        super().__init__()
        self._clock, self._weight_by, self._num_shards = clock, weight_by, num_shards
        self._with_signals = with_signals

    def expand(self, overviews: beam.PCollection) -> beam.PCollection:
        return (
            overviews
            | "MergeOverviews" >> CombineShards(MergeOverviews(), self._num_shards)
            | "FitPriors"
            >> each(learn, self._clock, self._weight_by, self._with_signals).with_output_types(Learned)
        )


def _request_rate(counts: pa.Array, days: FloatArray, gamma: requests.RequestPrior | None) -> FloatArray:
    if gamma is None:
        return np.full(len(counts), np.nan)
    return requests.request_rate(gamma, counts.to_numpy(), days)[0]


def _weight(
    pages: pa.RecordBatch, learned: Learned, clicks: FloatArray, impressions: FloatArray
) -> FloatArray:
    if learned.weight == "clicks" and learned.clicks:
        return clicks
    if learned.weight == "impressions" and learned.impressions:
        return impressions
    if learned.weight == "importance":
        importance = pages.column("importance").to_numpy(zero_copy_only=False)
        return np.where(np.isnan(importance), 1.0, importance)
    return np.ones(pages.num_rows)


class EstimateParameters(Step):
    """Rates of a folded shard.

    Outputs
    -------
    "blocks" : ShardTables
        What the search needs to know, see `transforms.night.solving`: each of its rounds reads it.
    "estimated" : ShardTables
        As of `estimate_shard`, for `SequenceCrawls`.
    """

    OUTPUTS: ClassVar = {"blocks": ShardTables, "estimated": ShardTables}

    def __init__(self, clock: RequestClock, with_hosts: bool) -> None:
        self._clock, self._with_hosts = clock, with_hosts

    def start_bundle(self) -> None:
        self._groups: GroupTable | None = None

    @no_annotations
    def process(self, folded: ShardTables, learned: Learned, *told: list[GroupTable]) -> Iterator[Any]:
        self._groups = self._groups or stand_of(learned, *told)
        estimated = estimate_shard(folded, learned, self._groups, self._clock)
        yield solver_tables(estimated, self._with_hosts)
        yield beam.pvalue.TaggedOutput("estimated", estimated)


def is_new(pages: pa.RecordBatch) -> BoolArray:
    """Pages that were neither fetched nor scheduled so far, (n,)."""
    attempt, slot = (pages.column(f"last_{name}_at").is_valid() for name in ("attempt", "slot"))
    return pc.invert(pc.or_(attempt, slot)).to_numpy(zero_copy_only=False)


def solver_tables(estimated: ShardTables, with_hosts: bool) -> ShardTables:
    """The solver's view of an estimated shard; `with_hosts` with what giant hosts need."""
    hosts = estimated.tables["hosts"]
    more: dict[str, pa.Array] = {}
    if with_hosts:
        names = ("host_hash", "max_slots", "gap_us", "last_slot_at", "unit_hash")
        more = {n: hosts.column(n) for n in names if n in hosts.schema.names}
        new = is_new(estimated.tables["pages"])
        host = estimated.tables["pages"].column("host_code").to_numpy()
        more["n_new"] = pa.array(np.bincount(host[new], minlength=hosts.num_rows))
    made = block_to_tables(estimated.shard, solver_block(estimated), more)
    return replace(made, tables=made.tables | _refreshes(estimated))


def _refreshes(tables: ShardTables) -> dict[str, pa.RecordBatch]:
    """The table that says which crawls are decided, where there is one."""
    return {name: tables.tables[name] for name in ("refreshes",) if name in tables.tables}


def estimate_shard(
    folded: ShardTables, learned: Learned, groups: GroupTable | None, clock: RequestClock
) -> ShardTables:
    """Rates of a folded shard.

    Returns
    -------
    ShardTables
        "pages" with change_rate_per_day, information, request_rate_per_day, impression_rate_per_day and
        weight, volatile pages capped and, where there are any, marked in "volatile"; "bins" and "hosts" as
        they were. Where signals are used and the shard has any, "signals", "trust" and
        "forecasts", see `transforms.night.trusting`; change rates of pages with signals are then of their
        model.
    """
    pages, hosts = folded.tables["pages"], folded.tables["hosts"]
    evidence = evidence_of(pages, folded.tables["bins"])
    rate, information = _change_rates(pages, evidence, hosts, learned.change, groups)
    tonight = Tonight.of(folded.tables)
    speed = np.ones(pages.num_rows)
    more = _refreshes(folded)
    signalled = np.zeros(0, np.int64)
    if learned.trust is not None:
        found = estimate_signals(folded, rate, learned.trust, clock.as_of_day * DAY_US)
        if found is not None:
            signalled = found.row
            rate[found.row], information[found.row] = found.change_rate_per_day, found.information
            more |= {"signals": found.pages, "trust": found.trust, "forecasts": found.forecasts}
    by_clock = rate.copy()
    if tonight is not None:
        speed = pages.column("clock_speed").to_numpy().copy()
        speed[signalled] = 1.0  # what signals tell is counted in days
    clicks = impressions = np.full(pages.num_rows, np.nan)
    if learned.clicks or learned.impressions:
        days = clock.exposure_days(
            learned.sums[ShardRequests].days, pages.column("first_seen_day").to_numpy()
        )
        clicks = _request_rate(pages.column("clicks"), days, learned.clicks)
        impressions = _request_rate(pages.column("impressions"), days, learned.impressions)
    weight = _weight(pages, learned, clicks, impressions)
    if "weight_share" in pages.schema.names:
        weight = weight * pages.column("weight_share").to_numpy()
    columns = {n: pages.column(n) for n in pages.schema.names}
    if tonight is not None:
        rate = rate * speed
        columns["clock_speed"] = pa.array(speed)
    columns |= {
        "change_rate_per_day": pa.array(rate),
        "information": pa.array(information),
        "request_rate_per_day": pa.array(clicks),
        "impression_rate_per_day": pa.array(impressions),
        "weight": pa.array(weight),
    }
    if "volatile_weight" in pages.schema.names:
        flag = volatile_pages(folded, weight, evidence, rate, signalled, learned.change, learned.ordinary)
        cap, floor = (pages.column(f"{name}_per_day").to_numpy() for name in ("cap", "floor"))
        columns |= {"volatile": pa.array(flag), "cap_per_day": pa.array(volatile.capped(flag, cap, floor))}
    quiet = silence_of(pages, learned.sums[ShardSilence])
    if (quiet.wait_days > 0.0).any():
        floor, cap = (columns[f"{name}_per_day"].to_numpy(zero_copy_only=False) for name in ("floor", "cap"))
        floor, cap = quiet.limits(floor, cap)
        columns |= {"floor_per_day": pa.array(floor), "cap_per_day": pa.array(cap)}
        if "signals" in more:
            # Signals would call for a page that is not there.
            answers = quiet.wait_days[more["signals"].column("row").to_numpy()] <= 0.0
            more["signals"] = more["signals"].filter(pa.array(answers))
    if tonight is not None:
        cap = columns["cap_per_day"].to_numpy(zero_copy_only=False)
        columns |= tonight.columns(pages, by_clock, information, rate, weight, cap, signalled)
        more |= {name: folded.tables[name] for name in ("clocks", "request_hours") if name in folded.tables}
    made = pa.RecordBatch.from_pydict(columns, metadata=KEPT)
    return ShardTables(folded.shard, {"pages": made, "bins": folded.tables["bins"], "hosts": hosts, **more})


def _change_rates(
    pages: pa.RecordBatch,
    evidence: Evidence,
    hosts: pa.RecordBatch,
    change: prior.Prior,
    groups: GroupTable | None,
) -> tuple[FloatArray, FloatArray]:
    """Change rates and their information; pages of no group of `groups` borrow from their host.

    Of a host whose pages age, those whose age is not known are a group of their own.
    """
    rows = np.zeros(0, np.int64)
    if groups is not None and groups.mean_per_day is not None:
        rows, of_row = groups.find(pages.column("group_hash").to_numpy())
        mean = groups.mean_per_day[of_row]
        if len(rows) == len(evidence):
            return estimators.rate(evidence, change.shape, mean)
    code = pages.column("host_code").to_numpy().astype(np.int64)
    apart = pages.column("group_hash").to_numpy() != hosts.column("host_hash").to_numpy()[code]
    code[apart] += hosts.num_rows
    found = prior.estimate(evidence, code, 2 * hosts.num_rows if apart.any() else hosts.num_rows, change)
    rate, information = found.change_rate_per_day, found.information
    if len(rows):
        rate[rows], information[rows] = estimators.rate(evidence.take(rows), change.shape, mean)
    return rate, information


def solver_block(estimated: ShardTables) -> search.PageBlock:
    """The solver's view of an estimated shard: limits that limit nothing are left out."""
    pages, hosts = estimated.tables["pages"], estimated.tables["hosts"]

    def column(name: str) -> FloatArray:
        return pages.column(name).to_numpy(zero_copy_only=False)

    by_age = "by_age" in pages.schema.names
    floor, cap = column("floor_per_day"), column("plan_cap" if by_age else "cap_per_day")
    limit = hosts.column("limit_per_day").to_numpy()
    limited = bool(np.isfinite(limit).any())
    sizes = hosts.column("n_pages").to_numpy()
    return search.PageBlock(
        change_rate_per_day=column("plan_change" if by_age else "change_rate_per_day"),
        request_rate_per_day=column("plan_weight" if by_age else "weight"),
        floor_per_day=floor if (floor > 0).any() else None,
        cap_per_day=cap if np.isfinite(cap).any() else None,
        host_start=np.concatenate([[0], np.cumsum(sizes, dtype=np.int64)]) if limited else None,
        host_limit_per_day=limit if limited else None,
        signals=table_to_signals(estimated.tables.get("signals")),
    )
