"""From a team's own logs, or a list of changes, to a world that can be replayed.

A crawl log shows whether a page changed between two crawls, and with a Last-Modified when it last did. How
often it changed there is drawn by `policies.simulation.imputation`, at the rate that the nightly job would
estimate from the whole log.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from policies.estimation import prior, requests
from policies.history import history, page_state
from policies.history.interval_sums import Intervals
from policies.history.page_state import NO_TIME, US_PER_DAY, PageState
from policies.numerics.typing_ import BoolArray, FloatArray, IntArray, UIntArray
from policies.simulation import imputation
from policies.simulation.histories import ChangeHistory
from transforms.batches import schemas
from transforms.batches.errors import InputError
from transforms.batches.steps import Step
from transforms.intake.reading import Input
from transforms.night.folding import observations_of
from transforms.replay.reading import ReadLog, splits
from transforms.replay.worlds import RequestLog, SignalLog, World, name_pages
from transforms.shards.catalogue import metadata_columns

MIN_NIGHTS = 5
MAX_NIGHTS = 3660  # of a window that nobody asked for: ten years
PRIOR_PAGES = 20_000  # by hash: more hardly move what is learned from all


class ReplayError(InputError):
    """Logs that no replay can be made of."""


@dataclass(frozen=True)
class ReplaySettings:
    """What becomes a world.

    Attributes
    ----------
    start_us, end_us : int or None
        The window, UTC microseconds; None for the whole days that the logs cover.
    max_pages : int
        Of more pages, those with the lowest hashes are taken.
    seed : int
        Of changes that a log cannot show, and of the instants of those that nothing dates.
    """

    start_us: int | None = None
    end_us: int | None = None
    max_pages: int = 5000
    seed: int = 0


@dataclass(frozen=True)
class Facts:
    """What a world is made of.

    Attributes
    ----------
    source : str
        "observations" or "changes".
    pages_read, pages : int
        Before and after taking some.
    nights : int
    changes : int
        In the window.
    dated : float
        Share of the changes seen that a Last-Modified dates; NaN for a list of changes.
    crawls_per_page_day : float
        The log's own rate; NaN for a list of changes.
    found : float
        Share of the log's crawls after the first of a page that found a change.
    drawn : float
        Share of the changes that the log does not show; NaN for a list of changes.
    left_out : tuple of (str, int)
        Why pages that were read are not replayed, and how many.
    """

    source: str
    pages_read: int
    pages: int
    nights: int
    changes: int
    dated: float = float("nan")
    crawls_per_page_day: float = float("nan")
    found: float = float("nan")
    drawn: float = float("nan")
    left_out: tuple[tuple[str, int], ...] = ()


@dataclass(frozen=True)
class Replayed:
    """A world and the facts behind it, or why there is none.

    A problem travels as data: what a worker raises, it prints at length, and a person needs the sentence.
    """

    world: World
    facts: Facts
    problem: str = ""


def read_world(inputs: Sequence[Input], settings: ReplaySettings) -> Replayed:
    """What `ReadLogs` and `BuildWorld` make of files, without a pipeline.

    Raises
    ------
    ReplayError
        As `build_world`.
    """
    reader = ReadLog(1.0)
    reader.setup()
    found = (item for i in inputs for _, split in splits(i) for item in reader.process(split))
    return build_world((item[1] for item in found if isinstance(item, tuple)), settings)


class BuildWorld(Step):
    """From all rows of the logs to one `Replayed`. Holds them in memory, about 100 bytes each.

    Parameters
    ----------
    settings : ReplaySettings
    check : function, optional
        Raises `ReplayError` where a world does not fit what is to be done with it.
    """

    def __init__(self, settings: ReplaySettings, check: Callable[[Replayed], None] | None = None) -> None:
        self._settings, self._check = settings, check

    def process(self, element: tuple[int, Iterable[pa.RecordBatch]]) -> Iterator[Replayed]:
        try:
            found = build_world(element[1], self._settings)
            if self._check is not None:
                self._check(found)
            yield found
        except ReplayError as error:
            yield Replayed(_nowhere(), Facts("", 0, 0, 0, 0), str(error))


def _nowhere() -> World:
    none = np.zeros(0, np.int64)
    return World(
        ChangeHistory(0, US_PER_DAY, none, none, none, none),
        pa.array([], pa.string()),
        none.astype(np.uint64),
        none.astype(np.uint64),
        none,
        (),
    )


def build_world(batches: Iterable[pa.RecordBatch], settings: ReplaySettings) -> Replayed:
    """A world from batches as the readers make them; the order of rows does not matter.

    Raises
    ------
    ReplayError
        Where there is no page to replay, or the window is too short.
    """
    kinds: dict[str, list[pa.RecordBatch]] = {}
    for batch in (b for b in batches if b.num_rows):
        kinds.setdefault(schemas.kind_of(batch), []).append(batch)
    kind = "changes" if "changes" in kinds else "observations"
    rows = _table(kinds, kind)
    if rows is None:
        raise ReplayError(
            "no usable row of --changes or --observations, so there is nothing to replay; the columns are in "
            "the help"
        )
    named = [rows.select(["url", "url_hash"])]
    listed = _table(kinds, "pages")
    if kind == "changes" and listed is not None:  # pages that never changed are in no list of changes
        named.append(listed.select(["url", "url_hash"]))
    url, read = _choose(pa.concat_tables(named), settings.max_pages)
    page = pc.index_in(rows.column("url"), url).to_numpy(zero_copy_only=False)
    keep = ~np.isnan(page)
    rows, page = rows.filter(pa.array(keep)), page[keep].astype(np.int64)
    made = _from_changes if kind == "changes" else _from_observations
    past, visits = made(rows, page, url, settings)
    start_us, end_us = _window(settings, visits)
    blank = past.first_us == NO_TIME
    inside = np.flatnonzero((past.first_us < end_us) & ~blank)
    left_out = (
        ("above --max_pages", read - len(url)),
        ("without a successful crawl to compare with", int(blank.sum())),
        ("first seen after the window", len(url) - int(blank.sum()) - len(inside)),
    )
    if not len(inside):
        raise ReplayError("no page is there before the window ends: give another --start or --end")
    mask = np.zeros(len(url), np.bool_)
    mask[inside] = True
    order = np.lexsort((past.at_us, past.page))
    order = order[past.at_us[order] < end_us]
    whole = ChangeHistory(
        start_us, end_us, past.first_us, past.page[order], past.at_us[order], past.version[order]
    )
    world = World(whole, url, *name_pages(url), signals=_signals(kinds, url)).of_pages(mask)
    world = _with_catalogue(world, kinds, start_us, end_us)
    scored = (whole.change_us >= start_us) & mask[whole.change_page]
    dated, seen = past.dated[order][scored], past.seen[order][scored]
    held = float(world.history.held_days(start_us, end_us).sum())
    crawls = float(np.count_nonzero((visits >= start_us) & (visits < end_us)))
    of_log = kind == "observations"
    facts = Facts(
        kind,
        read,
        len(world),
        len(world.nights()),
        int(scored.sum()),
        float(dated.sum() / seen.sum()) if of_log and seen.any() else float("nan"),
        crawls / held if of_log and held else float("nan"),
        float(past.found) if of_log else float("nan"),
        float(1.0 - seen.mean()) if of_log and len(seen) else float("nan"),
        tuple((why, n) for why, n in left_out if n),
    )
    return Replayed(world, facts)


@dataclass(frozen=True)
class _Past:
    """Changes in any order, and when pages appear."""

    first_us: IntArray
    page: IntArray
    at_us: IntArray
    version: IntArray
    seen: BoolArray
    dated: BoolArray
    found: float = float("nan")


def _table(kinds: dict[str, list[pa.RecordBatch]], kind: str) -> pa.Table | None:
    some = kinds.get(kind)
    return (
        None
        if not some
        else pa.concat_tables([pa.Table.from_batches([b]) for b in some], promote_options="default")
    )


def _choose(rows: pa.Table, max_pages: int) -> tuple[pa.Array, int]:
    """URLs of the pages to replay, ascending, and how many there are."""
    hashes, at = np.unique(rows.column("url_hash").to_numpy(), return_index=True)
    chosen = rows.column("url").take(pa.array(at[:max_pages]))
    url = chosen.combine_chunks() if isinstance(chosen, pa.ChunkedArray) else chosen
    return url.take(pc.sort_indices(url)), len(hashes)


def _window(settings: ReplaySettings, visits: IntArray) -> tuple[int, int]:
    first, last = int(visits.min()), int(visits.max())
    start = settings.start_us
    if start is None:
        start = -(-first // US_PER_DAY) * US_PER_DAY
    end = settings.end_us
    if end is None:
        end = start + (last - start) // US_PER_DAY * US_PER_DAY
    # Nights have whole days: what is left of the last one is not crawled.
    end = start + max(end - start, 0) // US_PER_DAY * US_PER_DAY
    if end - start > MAX_NIGHTS * US_PER_DAY and (settings.start_us is None or settings.end_us is None):
        raise ReplayError(
            f"rows from {_date(first)} to {_date(last)} make {(end - start) // US_PER_DAY:,} nights: if a "
            "row or two have a wrong date, give --start and --end"
        )
    if end - start < MIN_NIGHTS * US_PER_DAY:
        raise ReplayError(
            f"the window has {max(end - start, 0) / US_PER_DAY:.1f} days: a replay needs {MIN_NIGHTS}, and "
            "some weeks to tell policies apart; give logs of more days, or another --start and --end"
        )
    return start, end


def _date(us: int) -> str:
    return str(np.datetime64(us, "us"))[:10]


def _from_changes(
    rows: pa.Table, page: IntArray, url: pa.Array, settings: ReplaySettings
) -> tuple[_Past, IntArray]:
    n = len(url)
    at = rows.column("changed_at").cast(pa.int64()).to_numpy()
    digest = pc.fill_null(rows.column("digest_hash"), 0).to_numpy()
    opens = rows.column("first").to_numpy(zero_copy_only=False).astype(np.bool_)
    # A page without a first appearance has always been there.
    first = np.full(n, int(at.min()) - US_PER_DAY)
    appears = np.full(n, np.iinfo(np.int64).max)
    np.minimum.at(appears, page[opens], at[opens])
    first = np.where(appears < np.iinfo(np.int64).max, appears, first)
    change = at > first[page]
    # Equal digests of a page are equal contents; without one every change is to something new.
    order = np.lexsort((digest, at, page))
    change, page, at_of, digest = change[order], page[order], at[order], digest[order]
    key = np.where(digest == 0, np.arange(len(order), dtype=np.uint64), digest)
    _, version = np.unique(key, return_inverse=True)
    version += 1
    # What a page appears with is its version 0, to which it may return.
    opened = np.full(n, -1)
    began = np.flatnonzero(~change)
    opened[page[began]] = version[began]  # the last of each page stands
    version = np.where(version == opened[page], 0, version)
    # A row that leads nowhere, or is there twice, is no change.
    before = np.where(np.diff(page, prepend=-1) == 0, np.concatenate([[0], version[:-1]]), -1)
    twice = (np.diff(page, prepend=-1) == 0) & (np.diff(at_of, prepend=0) == 0) & (digest == 0)
    twice &= np.concatenate([[0], digest[:-1]]) == 0
    kept = change & (version != before) & ~twice
    all_seen = np.ones(int(kept.sum()), np.bool_)
    past = _Past(first, page[kept], at_of[kept], version[kept], all_seen, all_seen)
    return past, at


def _from_observations(
    rows: pa.Table, page: IntArray, url: pa.Array, settings: ReplaySettings
) -> tuple[_Past, IntArray]:
    log = observations_of(page, rows.combine_chunks().to_batches())
    parts: list[Intervals] = []

    def watch(low: int, some: Intervals) -> None:
        age = np.zeros(len(some.page), np.int64) if some.age_us is None else some.age_us
        parts.append(Intervals(some.page + low, some.at_us, some.gap_us, some.changed, age))

    state, _ = history.fold(PageState.empty(len(url)), log, int(np.iinfo(np.int64).max), watch=watch)
    of, at, gap, changed, age = (
        np.concatenate([getattr(p, name) for p in parts])
        for name in ("page", "at_us", "gap_us", "changed", "age_us")
    )
    first = state.baseline_at_us.copy()
    np.minimum.at(first, of, at - gap)
    url_hash, _, host, hosts = name_pages(url)
    rate = _change_rates(state, url_hash, host, len(hosts))
    of, at, gap, age = of[changed], at[changed], gap[changed], age[changed]
    row, when, seen = imputation.changes(url_hash[of], at, gap, age, rate[of], settings.seed)
    past = _Past(
        first,
        of[row],
        when,
        np.arange(1, len(row) + 1),
        seen,
        seen & (age > 0)[row],
        float(changed.mean()) if len(changed) else float("nan"),
    )
    return past, log.fetched_at_us


def _change_rates(state: PageState, url_hash: UIntArray, host: IntArray, n_hosts: int) -> FloatArray:
    """What the nightly job would think of pages after the whole log, forgetting nothing: (n,), per day."""
    known = page_state.evidence(state)
    some = np.sort(np.argsort(url_hash)[:PRIOR_PAGES])
    learned = prior.fit_prior(known.take(some), host[some])
    return prior.estimate(known, host, n_hosts, learned).change_rate_per_day


def _signals(kinds: dict[str, list[pa.RecordBatch]], url: pa.Array) -> SignalLog:
    rows = _table(kinds, "signals")
    log = SignalLog.empty()
    if rows is None:
        return log
    page = pc.index_in(rows.column("url"), url)
    known = pc.is_valid(page)
    rows, page = rows.filter(known), page.filter(known).to_numpy().astype(np.int64)
    at, source = rows.column("signalled_at").cast(pa.int64()).to_numpy(), rows.column("source")
    for name in sorted(source.unique().to_pylist()):
        mine = pc.equal(source, name).to_numpy(zero_copy_only=False)
        log = log.add(page[mine], at[mine], name)
    return log


def _with_catalogue(
    world: World, kinds: dict[str, list[pa.RecordBatch]], start_us: int, end_us: int
) -> World:
    """With what the catalogue and the requests say of the pages."""
    weights: dict[str, FloatArray] = {}
    metadata: dict[str, pa.Array] = {}
    log: RequestLog | None = None
    listed, asked = _table(kinds, "pages"), _table(kinds, "requests")
    if listed is not None:
        row = pc.index_in(world.url, listed.column("url").combine_chunks())
        names = sorted(metadata_columns(listed))
        metadata = {n: pc.fill_null(listed.column(n).take(row).combine_chunks(), "") for n in names}
        importance = listed.column("importance").take(row)
        if importance.null_count < len(world):
            filled = pc.fill_null(importance, 1.0).to_numpy()
            if filled.any():
                weights["importance"] = filled
    if asked is not None:
        page = pc.index_in(asked.column("url"), world.url)
        known = pc.is_valid(page)
        asked, of = asked.filter(known), page.filter(known).to_numpy().astype(np.int64)
        days = asked.column("day").to_numpy()
        log = _request_log(asked, of)
        for name in ("clicks", "impressions"):
            count = asked.column(name).to_numpy() * schemas.COUNT_UNIT
            total = np.bincount(of, count, len(world)) if len(of) else np.zeros(len(world))
            if total.any():
                exposed = np.full(len(world), float(days.max() - days.min() + 1))
                gamma = requests.fit_request_prior(total, exposed)
                weights[name] = requests.request_rate(gamma, total, exposed)[0]
    return World(
        world.history,
        world.url,
        world.url_hash,
        world.host_hash,
        world.host,
        world.hosts,
        world.signals,
        metadata,
        weights,
        log,
    )


def _request_log(asked: pa.Table, page: IntArray) -> RequestLog:
    """Requests by their hours, or days, in an order that depends on neither files nor shards."""
    hour = pc.fill_null(asked.column("hour"), -1).to_numpy().astype(np.int64)
    from_us = asked.column("day").to_numpy().astype(np.int64) * US_PER_DAY
    from_us += np.maximum(hour, 0) * (US_PER_DAY // 24)
    span_us = np.where(hour < 0, US_PER_DAY, US_PER_DAY // 24)
    clicks = asked.column("clicks").to_numpy() * schemas.COUNT_UNIT
    order = np.lexsort((clicks, span_us, from_us, page))
    return RequestLog(*(v[order] for v in (page, from_us, span_us, clicks)))
