"""Two nights side by side, some shards at a time: sums by cause, hosts and pages that moved most."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from policies.numerics.typing_ import BoolArray, FloatArray, IntArray
from policies.optimum import attribution
from policies.optimum.attribution import RateInputs, SignalQuality
from policies.sequencing.sequencing import REASONS
from transforms.finished import nights
from transforms.finished.nights import Night, NightError
from transforms.finished.pairing import Part, share
from transforms.finished.ratios import Ratios

RULES: Final = ("volatile", "silent")
"""Limits of a page that are rules of recrawl, not of whom the page belongs to."""
CAUSES: Final = (
    *("change_observed", "change_learned", *attribution.CAUSES[1:]),
    *(*RULES, "clock", "new_page", "lost_page"),
)
"""As in `policies.optimum.attribution`, but for the change rate: "observed" where the page has other evidence
than on the first night, "learned" where only the prior or the age of the evidence moved it; and but for the
limits of pages that a rule holds on one of the nights. "clock" is what the speed of the page's clock moved,
and all of a page whose clock changes with its age: its crawls are planned one by one."""
OBSERVED, LEARNED = 0, 1
CLOCK, NEW, LOST = range(len(CAUSES) - 3, len(CAUSES))

LIMITS: Final = ("none", "floor", "cap", "host", "starved", "new", *RULES)
KEPT = 50  # hosts and pages of a list


@dataclass(frozen=True)
class HostRow:
    """A host on both nights: pairs are (before, after); `parts` are crawls per day by `CAUSES`.

    `slots` has the counts of both nights by `policies.sequencing.sequencing.REASONS`. `price` is the marginal
    value of a crawl at the host's limit, 0 where it does not bind.
    """

    host: str
    pages: tuple[int, int]
    rate: tuple[float, float]
    slots: tuple[tuple[int, ...], tuple[int, ...]]
    price: tuple[float, float]
    parts: tuple[float, ...]

    def merge(self, other: HostRow) -> HostRow:
        """The host with other pages of it."""

        def add(one: Iterable[Any], two: Iterable[Any]) -> Any:
            return tuple(a + b for a, b in zip(one, two, strict=True))

        return HostRow(
            self.host,
            add(self.pages, other.pages),
            add(self.rate, other.rate),
            (add(self.slots[0], other.slots[0]), add(self.slots[1], other.slots[1])),
            (max(self.price[0], other.price[0]), max(self.price[1], other.price[1])),
            add(self.parts, other.parts),
        )


@dataclass(frozen=True)
class PageRow:
    """A page on both nights: what pages/ has of it (None where it is not), and crawls per day by `CAUSES`."""

    url: str
    host: str
    before: dict[str, Any] | None
    after: dict[str, Any] | None
    parts: tuple[float, ...]

    @property
    def moved(self) -> float:
        """Crawls per day, after less before."""
        return sum(
            sign * (row["crawl_rate_per_day"] or 0.0)
            for sign, row in ((-1, self.before), (1, self.after))
            if row is not None
        )


@dataclass
class Comparison:
    """What moved, added up over the pages compared so far. Pairs and rows of two are (before, after)."""

    same: int = 0
    new: int = 0
    lost: int = 0
    rate: FloatArray = field(default_factory=lambda: np.zeros(2))
    weight: FloatArray = field(default_factory=lambda: np.zeros(2))
    slots: IntArray = field(default_factory=lambda: np.zeros((2, len(REASONS)), np.int64))
    moved: float = 0.0
    up: FloatArray = field(default_factory=lambda: np.zeros(len(CAUSES)))
    down: FloatArray = field(default_factory=lambda: np.zeros(len(CAUSES)))
    ratios: dict[str, Ratios] = field(
        default_factory=lambda: {n: Ratios() for n in ("crawl_rate", "change_rate", "weight")}
    )
    limits: IntArray = field(default_factory=lambda: np.zeros((len(LIMITS), len(LIMITS)), np.int64))
    hosts: IntArray = field(default_factory=lambda: np.zeros(3, np.int64))  # same, new, lost
    at_limit: IntArray = field(default_factory=lambda: np.zeros((2, 2), np.int64))  # [before, after]
    by_slots: list[HostRow] = field(default_factory=list)
    to_limit: list[HostRow] = field(default_factory=list)
    off_limit: list[HostRow] = field(default_factory=list)
    by_rate: list[PageRow] = field(default_factory=list)
    absent: set[str] = field(default_factory=set)

    @property
    def net(self) -> FloatArray:
        """Crawls per day by cause."""
        return self.up + self.down

    def merge(self, other: Comparison) -> None:
        """Add the pages of other hosts."""
        sums = "same new lost rate weight slots moved up down limits hosts at_limit"
        for name in sums.split():
            setattr(self, name, getattr(self, name) + getattr(other, name))
        for name, ratios in other.ratios.items():
            self.ratios[name].merge(ratios)
        self.by_slots = sorted(_by_name(self.by_slots + other.by_slots), key=_by_slots)[:KEPT]
        self.to_limit = sorted(_by_name(self.to_limit + other.to_limit), key=_by_host_rate)[:KEPT]
        self.off_limit = sorted(_by_name(self.off_limit + other.off_limit), key=_by_host_rate)[:KEPT]
        self.by_rate = sorted(self.by_rate + other.by_rate, key=lambda r: (-abs(r.moved), r.url))[:KEPT]
        self.absent |= other.absent


def _by_name(rows: list[HostRow]) -> list[HostRow]:
    """Each host once: rows of one host are of shares of its pages."""
    found: dict[str, HostRow] = {}
    for row in rows:
        found[row.host] = found[row.host].merge(row) if row.host in found else row
    return list(found.values())


def _by_slots(row: HostRow) -> tuple[int, float, str]:
    return (
        -abs(sum(row.slots[1]) - sum(row.slots[0])),
        -abs(row.rate[1] - row.rate[0]),
        row.host,
    )


def _by_host_rate(row: HostRow) -> tuple[float, str]:
    return -abs(row.rate[1] - row.rate[0]), row.host


def compare(
    before: Night, after: Night, part: Part, host: str | None = None, url: str | None = None
) -> Comparison:
    """Compare the pages of a part of two nights; of one host, or with one URL, if given.

    Raises
    ------
    NightError
        Files missing or damaged, or without a column that the comparison cannot do without.
    """
    return _Pair(before, after, part, host).compare(url)


def _one(column: pa.ChunkedArray) -> pa.Array:
    """A column as one array."""
    found = column.combine_chunks()
    if isinstance(found, pa.ChunkedArray):
        return found.chunk(0) if found.num_chunks == 1 else pa.concat_arrays(found.chunks)
    return found


class _Side:
    """One night's rows of a part."""

    def __init__(self, night: Night, shards: tuple[int, ...], part: Part, host: str | None) -> None:
        self.night = night
        wanted = nights.DETAILS if host is not None else nights.pages_columns(night)
        table = night.read("pages", shards, wanted)
        if "weight" not in table.schema.names:
            table = night.read("pages", shards, nights.DETAILS)
        table = share(table, part)
        self.absent = set(wanted.names) - set(table.schema.names) - nights.MAY_LACK
        needed = {"url", "host", "change_rate_per_day", "crawl_rate_per_day"} & self.absent
        if needed and table.num_rows:
            raise NightError(
                f"{night.folder}: pages/ has no {', '.join(sorted(needed))}, without which rates cannot be "
                "compared; run that night again with this version of recrawl"
            )
        self.table = table
        # Slots of single pages are counted for one host only.
        slots = nights.SCHEDULE if part.host_hash is not None else nights.SCHEDULE.remove(0)
        self.schedule = share(night.read("schedule", shards, slots), part)
        self.url, self.host = _one(table.column("url")), _one(table.column("host"))
        self.change = self._numbers("change_rate_per_day")
        self.rate = self._numbers("crawl_rate_per_day")
        self.weight = self._weight()
        self.signals = self._signals()
        self.speed, self.aging, gain = self._clock()
        # As the night's plan took it; hours of a clock move rates as its speed does.
        self.planned, self.speed = self.change / gain, self.speed / gain
        self.held = np.zeros(len(self.url), np.bool_)
        self.limit = np.zeros(len(self.url), np.int64)
        if "limit" not in self.absent:
            code = pc.fill_null(pc.index_in(table.column("limit"), pa.array(LIMITS)), 0)
            self.limit = _one(code).to_numpy().astype(np.int64)
            self.held = self.limit == LIMITS.index("host")

    def _numbers(self, name: str) -> FloatArray:
        column = pc.fill_null(self.table.column(name).cast(pa.float64()), 0.0)
        found: FloatArray = np.ascontiguousarray(column.to_numpy())
        return found

    def _weight(self) -> FloatArray:
        stands_in = {"clicks": "request_rate_per_day", "impressions": "impression_rate_per_day"}
        for name in ("weight", stands_in.get(self.night.weight_by)):
            if name in self.table.schema.names:
                return self._numbers(name)
        if self.night.weight_by == "equal" or not self.table.num_rows:
            return np.ones(self.table.num_rows)
        raise NightError(
            f"{self.night.folder}: pages/ has no weight, which --weight_by={self.night.weight_by} needs; run "
            "that night again with this version of recrawl"
        )

    def _signals(self) -> SignalQuality | None:
        """How good signals are, 0 where a page has none that count; None where the night follows none."""
        names, columns = ("signal_precision", "signal_recall"), self.table.schema.names
        if not self.night.objective.uses_signals or not all(name in columns for name in names):
            return None
        quality = SignalQuality(*(np.clip(self._numbers(name), 0.0, 1.0) for name in names))
        return quality if quality.counts.any() else None

    def _clock(self) -> tuple[FloatArray, BoolArray, FloatArray]:
        """Speeds of the pages' clocks, which of them change with age, and what hours gain; older nights have
        none.
        """
        n, names = len(self.url), self.table.schema.names
        speed, gain = (
            np.maximum(_one(pc.fill_null(self.table.column(name).cast(pa.float64()), 1.0)).to_numpy(), 1e-300)
            if name in names
            else np.ones(n)
            for name in ("clock_speed", "clock_gain")
        )
        if "clock" not in names:
            return speed, np.zeros(n, np.bool_), gain
        aging = pc.fill_null(pc.is_in(self.table.column("clock"), pa.array(["age", "hour and age"])), False)
        return speed, _one(aging).to_numpy(zero_copy_only=False), gain

    def code(self, names: pa.Array) -> None:
        """Number the hosts of all rows by `names`, and find the prices of those at their limit."""
        self.host_code = pc.index_in(self.host, names).to_numpy().astype(np.int64)
        self.n_hosts = len(names)
        self.price = attribution.host_prices(
            self.night.objective,
            self.planned,
            self.weight,
            self.rate,
            self.host_code,
            self.held,
            self.n_hosts,
            self.signals,
        )
        self.pages = np.bincount(self.host_code, minlength=self.n_hosts)
        self.host_rate = np.bincount(self.host_code, self.rate, self.n_hosts)
        # Slots of a page that is in no pages/ file are impossible: hosts of the schedule are hosts of pages.
        at = _one(pc.fill_null(pc.index_in(self.schedule.column("host"), names), self.n_hosts))
        reason = _one(pc.fill_null(pc.index_in(self.schedule.column("reason"), pa.array(REASONS)), 0))
        flat = at.to_numpy().astype(np.int64) * len(REASONS) + reason.to_numpy()
        size = (self.n_hosts + 1) * len(REASONS)
        self.slots = np.bincount(flat, minlength=size).reshape(-1, len(REASONS))[: self.n_hosts]

    def slots_of(self, url: str) -> int:
        """Slots of one page."""
        return int(pc.sum(pc.equal(self.schedule.column("url"), url)).as_py() or 0)

    def inputs(self, rows: IntArray) -> RateInputs:
        return RateInputs(
            self.night.objective,
            self.night.price,
            self.planned[rows],
            self.weight[rows],
            self.rate[rows],
            self.price[self.host_code[rows]],
            None if self.signals is None else self.signals[rows],
        )

    def row(self, at: int) -> dict[str, Any] | None:
        if at < 0:
            return None
        found: dict[str, Any] = self.table.slice(at, 1).to_pylist()[0]
        found["host_price"] = float(self.price[self.host_code[at]])
        return found


class _Pair:
    """Both nights' rows of a part, joined by URL."""

    def __init__(self, before: Night, after: Night, part: Part, host: str | None) -> None:
        self._part = part
        self._before = _Side(before, part.before, part, host)
        self._after = _Side(after, part.after, part, host)
        self._names = pa.concat_arrays([self._before.host, self._after.host]).unique()
        for side in (self._before, self._after):
            side.code(self._names)
        self._join()
        self._attribute()

    def _join(self) -> None:
        """Rows of both nights: pages of both first, then new ones, then lost ones; -1 where there is none."""
        one, two = self._before, self._after
        n = len(one.url)
        if one.url.equals(two.url):
            at = np.arange(n)
        else:
            at = pc.fill_null(pc.index_in(two.url, one.url), -1).to_numpy().astype(np.int64)
        known = np.flatnonzero(at >= 0)
        new = np.flatnonzero(at < 0)
        gone = np.ones(n, np.bool_)
        gone[at[known]] = False
        lost = np.flatnonzero(gone)
        self._same = known.size
        self._new = slice(known.size, known.size + new.size)
        self._lost = slice(known.size + new.size, None)
        self._rows = (
            np.concatenate([at[known], np.full(new.size, -1), lost]).astype(np.int64),
            np.concatenate([known, new, np.full(lost.size, -1)]).astype(np.int64),
        )

    def _attribute(self) -> None:
        one, two = self._before, self._after
        first, second = (rows[: self._same] for rows in self._rows)
        same_units = one.night.weight_by == two.night.weight_by
        found = attribution.attribute(one.inputs(first), two.inputs(second), same_units)
        observed = self._observed(first, second)
        self._parts = np.zeros((len(CAUSES), len(self._rows[0])))
        known = self._parts[:, : self._same]
        known[OBSERVED] = np.where(observed, found[0], 0.0)
        known[LEARNED] = np.where(observed, 0.0, found[0])
        known[LEARNED + 1 :][: len(found) - 1] = found[1:]
        page_limit = known[CAUSES.index("page_limit")]
        for name in RULES:
            code = LIMITS.index(name)
            held = (one.limit[first] == code) | (two.limit[second] == code)
            known[CAUSES.index(name), held], page_limit[held] = page_limit[held], 0.0
        aging = one.aging[first] | two.aging[second]
        known[CLOCK, aging], known[:CLOCK, aging] = known[:CLOCK, aging].sum(axis=0), 0.0
        self._by_speed(known, one.speed[first], two.speed[second], one.planned[first], two.planned[second])
        self._parts[NEW, self._new] = two.rate[self._rows[1][self._new]]
        self._parts[LOST, self._lost] = -one.rate[self._rows[0][self._lost]]
        host = self._pick("host_code")
        self._host_code = np.where(self._rows[1] >= 0, host[1], host[0]).astype(np.int64)
        self._host_parts = np.stack([np.bincount(self._host_code, p, one.n_hosts) for p in self._parts])

    def _by_speed(
        self, parts: FloatArray, speed: FloatArray, now: FloatArray, rate: FloatArray, new: FloatArray
    ) -> None:
        """Of what the change rate moved, what the clock's speed did, as far as both moved it one way."""
        rows = np.flatnonzero((speed != now) & (np.minimum(rate, new) > 0.0))
        by_clock, whole = np.log(now[rows] / speed[rows]), np.log(new[rows] / rate[rows])
        with np.errstate(divide="ignore", invalid="ignore"):
            share = np.clip(np.where(whole != 0.0, by_clock / whole, 0.0), 0.0, 1.0)
        for part in (OBSERVED, LEARNED):
            parts[CLOCK, rows] += share * parts[part, rows]
            parts[part, rows] *= 1.0 - share

    def _observed(self, first: IntArray, second: IntArray) -> BoolArray:
        """Pages whose evidence differs."""
        differs = np.zeros(first.size, np.bool_)
        for name in ("n_intervals", "n_changes"):
            if name not in self._before.absent | self._after.absent:
                differs |= self._before._numbers(name)[first] != self._after._numbers(name)[second]
        return differs

    def _pick(self, name: str) -> tuple[FloatArray, FloatArray]:
        """A column of both nights by joined rows, 0 where the page is not there."""
        sides = zip((self._before, self._after), self._rows, strict=True)
        one, two = (np.append(getattr(side, name), 0)[rows] for side, rows in sides)
        return one, two

    def compare(self, url: str | None) -> Comparison:
        """All sums, or just the row of a URL."""
        out = Comparison()
        one, two = self._before, self._after
        out.absent = {f"{s.night.folder}: {n}" for s in (one, two) for n in s.absent if s.table.num_rows}
        if url is not None:
            at = pc.index(one.url, url).as_py(), pc.index(two.url, url).as_py()
            hit = np.flatnonzero((self._rows[0] == at[0]) & (self._rows[1] == at[1]))
            out.by_rate = [self._page(int(i)) for i in hit]
            for row in out.by_rate:
                for side, found in ((one, row.before), (two, row.after)):
                    if found is not None:
                        found["slots"] = side.slots_of(url)
            if hit.size:
                out.by_slots = [self._host(int(self._host_code[hit[0]]))]
            return out
        before, after = self._pick("rate")
        out.same, out.new = self._same, self._new.stop - self._new.start
        out.lost = len(before) - out.same - out.new
        out.rate = np.array([one.rate.sum(), two.rate.sum()])
        out.weight = np.array([one.weight.sum(), two.weight.sum()])
        out.slots = np.stack([one.slots.sum(axis=0), two.slots.sum(axis=0)])
        step = after - before
        out.moved = 0.5 * float(np.abs(step).sum())
        out.up = np.maximum(self._parts, 0.0).sum(axis=1)
        out.down = np.minimum(self._parts, 0.0).sum(axis=1)
        for name, column in (("crawl_rate", "rate"), ("change_rate", "change"), ("weight", "weight")):
            pair = self._pick(column)
            out.ratios[name].add(pair[0][: self._same], pair[1][: self._same])
        limit = self._pick("limit")
        flat = (limit[0] * len(LIMITS) + limit[1])[: self._same].astype(np.int64)
        out.limits = np.bincount(flat, minlength=len(LIMITS) ** 2).reshape(len(LIMITS), -1)
        top = _largest(np.abs(step), KEPT)
        out.by_rate = [self._page(int(i)) for i in top if step[i]]
        self._add_hosts(out)
        empty = Comparison()
        empty.merge(out)  # puts the lists in order
        return empty

    def _add_hosts(self, out: Comparison) -> None:
        one, two, part = self._before, self._after, self._part
        there = one.pages > 0, two.pages > 0
        # A host of which this is not the first share of pages has been counted.
        first = int(part.at == 0 or part.host_hash is None)
        out.hosts = first * np.array([(there[0] & there[1]).sum(), (~there[0]).sum(), (~there[1]).sum()])
        held = [np.bincount(s.host_code[s.held], minlength=s.n_hosts) > 0 for s in (one, two)]
        out.at_limit = first * np.bincount(held[0] * 2 + held[1], minlength=4).reshape(2, 2)
        moved = np.abs(two.host_rate - one.host_rate)
        slots = np.abs(two.slots.sum(axis=1) - one.slots.sum(axis=1))
        top = np.lexsort((-moved, -slots))[:KEPT]
        out.by_slots = [self._host(int(j)) for j in top if slots[j] or moved[j]]
        for name, chosen in (("to_limit", ~held[0] & held[1]), ("off_limit", held[0] & ~held[1])):
            some = np.flatnonzero(chosen)
            setattr(out, name, [self._host(int(j)) for j in some[_largest(moved[some], KEPT)]])

    def _host(self, code: int) -> HostRow:
        one, two = self._before, self._after
        return HostRow(
            self._names[code].as_py(),
            (int(one.pages[code]), int(two.pages[code])),
            (float(one.host_rate[code]), float(two.host_rate[code])),
            (tuple(one.slots[code].tolist()), tuple(two.slots[code].tolist())),
            (float(one.price[code]), float(two.price[code])),
            tuple(self._host_parts[:, code].tolist()),
        )

    def _page(self, at: int) -> PageRow:
        before, after = (
            s.row(int(r[at])) for s, r in zip((self._before, self._after), self._rows, strict=True)
        )
        known = after or before or {}
        return PageRow(known["url"], known["host"], before, after, tuple(self._parts[:, at].tolist()))


def _largest(values: FloatArray, count: int) -> IntArray:
    """Where the largest values are, largest first."""
    if values.size > count:
        some = np.argpartition(-values, count - 1)[:count]
    else:
        some = np.arange(values.size)
    order: IntArray = some[np.lexsort((some, -values[some]))]
    return order
