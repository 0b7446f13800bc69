"""From rows of links and polls to histories that crawlers can be tried on, by domain and all together."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from policies.discovery.presences import NEVER, US_PER_HOUR, Presences
from policies.numerics.typing_ import IntArray
from transforms.batches import schemas
from transforms.batches.hashing import hash_texts
from transforms.batches.steps import Step
from transforms.replay.replaying import ReplayError

ALL = "all"
MAX_STEPS = 200_000  # 23 years of hours


@dataclass(frozen=True)
class LinkSettings:
    """What becomes a history.

    Attributes
    ----------
    start_us, end_us : int or None
        The window, UTC microseconds; None for what the polls cover.
    step_us : int
    warm_up_us : int
    pooled, by_domain : bool
        Whether one budget is tried for all sources, and one for each domain.
    given_polls : bool
        Whether there are files that say when sources were seen.
    """

    start_us: int | None
    end_us: int | None
    step_us: int
    warm_up_us: int
    by_domain: bool
    pooled: bool
    given_polls: bool = False


@dataclass(frozen=True)
class LinkHistory:
    """Histories and the facts behind them, or why there are none: see `replaying.Replayed`.

    Attributes
    ----------
    by_domain, pooled : Presences or None
        With a budget for each domain, and with one for all.
    domains : tuple of str
        Names of the domains of `by_domain`.
    sources_of : (d,) int64
        How many sources each has.
    presences, polls, failed : int
        Rows that were used; polls that failed are none.
    unpolled : int
        Sources that have links and no poll, and are left out.
    problem : str
    """

    by_domain: Presences | None
    pooled: Presences | None
    domains: tuple[str, ...] = ()
    sources_of: tuple[int, ...] = ()
    presences: int = 0
    polls: int = 0
    failed: int = 0
    unpolled: int = 0
    problem: str = ""

    @property
    def whole(self) -> Presences:
        """Either."""
        found = self.by_domain or self.pooled
        assert found is not None
        return found


class BuildLinkHistory(Step):
    """From all rows to one `LinkHistory`. Holds them in memory, about 50 bytes each."""

    def __init__(self, settings: LinkSettings) -> None:
        self._settings = settings

    def process(self, element: tuple[int, Iterable[pa.RecordBatch]]) -> Iterator[LinkHistory]:
        try:
            yield build(element[1], self._settings)
        except ReplayError as error:
            yield LinkHistory(None, None, problem=str(error))


def build(batches: Iterable[pa.RecordBatch], settings: LinkSettings) -> LinkHistory:
    """A history from batches as the readers make them; the order of rows does not matter.

    Raises
    ------
    ReplayError
        Where there is nothing to try crawlers on, or the window is too short.
    """
    kinds: dict[str, list[pa.Table]] = {}
    for batch in (b for b in batches if b.num_rows):
        kinds.setdefault(schemas.kind_of(batch), []).append(pa.Table.from_batches([batch]))
    if "links" not in kinds:
        raise ReplayError("no usable row of --links: see the columns in the help")
    links = pa.concat_tables(kinds["links"])
    polls = pa.concat_tables(kinds["snapshots"]) if "snapshots" in kinds else None
    names, domain = _sources(links, polls)
    source, appeared, gone = (
        _places(links, names),
        _us(links, "appeared_at"),
        _us(links, "gone_at"),
    )
    failed = 0
    if polls is None and settings.given_polls:
        raise ReplayError("no usable row of --snapshots: leave it out, or give others")
    if polls is None:
        start, steps = _window(settings, appeared, np.where(gone == NEVER, appeared, gone))
        poll_source, poll_us = _made_polls(source, appeared, len(names), start, settings.step_us, steps)
        polled = np.ones(len(names), np.bool_)
    else:
        ok = polls.column("ok").to_numpy(zero_copy_only=False).astype(np.bool_)
        failed = int((~ok).sum())
        poll_source, poll_us = _places(polls, names)[ok], _us(polls, "seen_at")[ok]
        if not len(poll_us):
            raise ReplayError("no usable row of --snapshots that did not fail: leave it out, or give others")
        start, steps = _window(settings, poll_us, poll_us)
        polled = np.bincount(poll_source, minlength=len(names)) > 0
    end = start + steps * settings.step_us
    inside = polled[source] & (appeared < end) & (gone > start)
    seen = (poll_us >= start) & (poll_us < end)
    linked = np.bincount(source, minlength=len(names)) > 0
    kept = np.flatnonzero(np.bincount(poll_source[seen], minlength=len(names)) > 0)
    if polls is not None and not (linked & polled).any():
        raise ReplayError(
            "no source of --snapshots has a link in --links: name sources alike in both, or leave out "
            "--snapshots"
        )
    if not inside.any() or not len(kept):
        raise ReplayError("no source shows a link in the window: give another --start or --end")
    made = _Rows(
        names.take(pa.array(kept)),
        domain.take(pa.array(kept)),
        _renumbered(kept, len(names), source[inside]),
        links.column("target_hash").to_numpy()[inside],
        appeared[inside],
        gone[inside],
        _renumbered(kept, len(names), poll_source[seen]),
        poll_us[seen],
    )
    distinct = sorted(set(made.domain.to_pylist()))
    place = pc.index_in(made.domain, pa.array(distinct)).to_numpy(zero_copy_only=False).astype(np.int64)
    of_window = (start, settings.step_us, steps)
    return LinkHistory(
        made.history(place, *of_window) if settings.by_domain else None,
        made.history(np.zeros_like(place), *of_window) if settings.pooled else None,
        tuple(distinct),
        tuple(np.bincount(place, minlength=len(distinct)).tolist()),
        int(inside.sum()),
        int(seen.sum()),
        failed,
        int((linked & ~polled).sum()),
    )


@dataclass(frozen=True)
class _Rows:
    """Rows of the window, sources by their place."""

    name: pa.Array
    domain: pa.Array
    source: IntArray
    target_hash: np.ndarray
    appeared_us: IntArray
    gone_us: IntArray
    poll_source: IntArray
    poll_us: IntArray

    def history(self, domain: IntArray, start_us: int, step_us: int, steps: int) -> Presences:
        """With the domain of each source by its place."""
        hashes = hash_texts(self.name)
        order = np.lexsort((hashes, domain))
        place = np.empty(len(order), np.int64)
        place[order] = np.arange(len(order))
        source, poll_source = place[self.source], place[self.poll_source]
        pairs = np.stack([domain[self.source].astype(np.uint64), self.target_hash])
        distinct, target = np.unique(pairs, axis=1, return_inverse=True)
        target = target.reshape(-1)
        source, target, appeared, gone = merged(source, target, self.appeared_us, self.gone_us)
        rows = np.lexsort((target, appeared, source))
        polls = np.unique(np.stack([poll_source, self.poll_us]), axis=1)
        return Presences(
            hashes[order],
            domain[order],
            distinct[0].astype(np.int64),
            source[rows],
            target[rows],
            appeared[rows],
            gone[rows],
            polls[0],
            polls[1],
            start_us,
            step_us,
            steps,
        )


def merged(
    source: IntArray, target: IntArray, appeared_us: IntArray, gone_us: IntArray
) -> tuple[IntArray, IntArray, IntArray, IntArray]:
    """Presences of one target on one source that touch, as one: of variants of its URL, or given twice."""
    order = np.lexsort((gone_us, appeared_us, target, source))
    source, target, appeared, gone = (x[order] for x in (source, target, appeared_us, gone_us))
    fresh = np.ones(len(order), np.bool_)
    fresh[1:] = (source[1:] != source[:-1]) | (target[1:] != target[:-1])
    times, rank = np.unique(gone, return_inverse=True)
    pair = np.cumsum(fresh) - 1
    # The latest end so far of the same pair: ranks, so that those of a later pair are above all of this one.
    latest = np.maximum.accumulate(pair * len(times) + rank) - pair * len(times)
    begins = fresh.copy()
    begins[1:] |= appeared[1:] > times[latest[:-1]]
    first = np.flatnonzero(begins)
    last = np.append(first[1:], len(order)) - 1
    return source[first], target[first], appeared[first], times[latest[last]]


def _sources(links: pa.Table, polls: pa.Table | None) -> tuple[pa.Array, pa.Array]:
    """Names of all sources, ascending, and their domains: the one that links give, or that of their host."""
    named = [links.select(["source", "domain", "given"])]
    if polls is not None:
        never = pa.array(np.zeros(polls.num_rows, np.bool_))
        named.append(polls.select(["source", "domain"]).append_column("given", never))
    rows = pa.concat_tables(named).group_by(["source", "domain", "given"]).aggregate([])
    keys = [("source", "ascending"), ("given", "descending"), ("domain", "ascending")]
    rows = rows.take(pc.sort_indices(rows, sort_keys=keys)).combine_chunks()
    names = rows.column("source").to_pylist()
    first = [i for i, name in enumerate(names) if i == 0 or name != names[i - 1]]
    picked = rows.take(pa.array(first, pa.int64())).combine_chunks()
    return _whole(picked.column("source")), _whole(picked.column("domain"))


def _whole(column: pa.ChunkedArray) -> pa.Array:
    return pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], column.type)


def _places(rows: pa.Table, names: pa.Array) -> IntArray:
    return np.asarray(pc.index_in(rows.column("source"), names).to_numpy(), np.int64)


def _us(rows: pa.Table, name: str) -> IntArray:
    return np.asarray(pc.fill_null(rows.column(name).cast(pa.int64()), NEVER).to_numpy(), np.int64)


def _renumbered(kept: IntArray, n: int, source: IntArray) -> IntArray:
    place = np.full(n, -1)
    place[kept] = np.arange(len(kept))
    return place[source]


def _window(settings: LinkSettings, first_us: IntArray, last_us: IntArray) -> tuple[int, int]:
    """The first instant, and how many steps."""
    step = settings.step_us
    start = settings.start_us if settings.start_us is not None else int(first_us.min()) // step * step
    end = settings.end_us if settings.end_us is not None else int(last_us.max()) + 1
    steps = -(-(end - start) // step)
    if steps <= -(-settings.warm_up_us // step):
        raise ReplayError(
            f"the window has {max(end - start, 0) / US_PER_HOUR:.1f} hours, and the warm-up "
            f"{settings.warm_up_us / US_PER_HOUR:g}, in steps of {step / US_PER_HOUR:g}: give links of a "
            "longer time, or a shorter --warmup_hours or --step_hours"
        )
    if steps > MAX_STEPS:
        raise ReplayError(
            f"the window has {steps:,} steps, above {MAX_STEPS:,}: if a row or two have a wrong date, "
            "give --start and --end; or give a longer --step_hours"
        )
    return start, steps


def _made_polls(
    source: IntArray, appeared_us: IntArray, n: int, start_us: int, step_us: int, steps: int
) -> tuple[IntArray, IntArray]:
    """Where nobody says when sources were seen: one poll at the end of each step from their first link on."""
    first = np.full(n, NEVER)
    np.minimum.at(first, source, appeared_us)
    ends = start_us + (np.arange(steps) + 1) * step_us - 1
    there = ends >= first[:, None]
    of, step = np.nonzero(there)
    return of, ends[step]
