"""One shard's crawl log, or list of changes, to intervals of pages and what the catalogue says of these."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import apache_beam as beam
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from policies.dynamics.sums import LISTED, SITEMAP
from policies.history import history
from policies.history.interval_sums import Intervals
from policies.history.lastmods import INSTANT
from policies.history.page_state import NO_TIME, PageState
from policies.numerics.typing_ import IntArray
from transforms.batches import schemas
from transforms.batches.coders import ShardTables
from transforms.batches.counters import published
from transforms.batches.errors import InputError
from transforms.batches.shard_tables import KEPT
from transforms.batches.steps import Step
from transforms.batches.tally import Counts
from transforms.dynamics import tables
from transforms.intake.reading import all_batches, united
from transforms.kept.state import microseconds
from transforms.night.folding import observations_of
from transforms.shards.catalogue import META, join_catalogue
from transforms.shards.coding import ShardPages, code_pages

_MINUTE_US = 60_000_000
_NEVER_US = int(np.iinfo(np.int64).max)


@dataclass(frozen=True)
class Wanted:
    """Columns of the catalogue that are used.

    Attributes
    ----------
    by : tuple of str
        Columns by which pages are grouped; "host" is always there.
    zone, value : str
        Columns with the time zone of a page, and with a number to correlate; empty for none.
    """

    by: tuple[str, ...] = ()
    zone: str = ""
    value: str = ""

    def check(self, metadata: Sequence[str]) -> None:
        """Raise `InputError` for a column that no file of the catalogue has."""
        asked = (("by", [b for b in self.by if b != tables.HOST]), ("timezone_column", [self.zone]),
                 ("correlate", [self.value]))  # fmt: skip
        for option, names in asked:
            absent = [n for n in names if n and n not in metadata]
            if absent:
                raise InputError(
                    f"--{option}: --pages has no column {', '.join(absent)}. Its metadata columns are: "
                    f"{', '.join(metadata) or 'none'}"
                )


class FoldShard(Step):
    """Folds one shard. Holds its rows in memory, about 100 bytes each.

    Input: (shard, batches of the shard). Outputs: "tables" with "pages", "intervals" and "claims"; "counted",
    a RecordBatch of `tables.COUNTED`; "counts".
    """

    OUTPUTS: ClassVar = {
        "tables": ShardTables,
        "counted": tuple[int, pa.RecordBatch],
        "counts": dict[str, int],
    }

    def __init__(self, wanted: Wanted) -> None:
        self._wanted = wanted

    def process(
        self, element: tuple[int, Iterable[pa.RecordBatch]], metadata: list[list[str]]
    ) -> Iterator[Any]:
        self._wanted.check(united(metadata))
        shard, batches = element
        counts = Counts()
        found = fold(batches, self._wanted, counts)
        yield ShardTables(shard, {name: b.replace_schema_metadata(KEPT) for name, b in found.items()})
        yield beam.pvalue.TaggedOutput("counted", (0, counted(found, len(self._wanted.by))))
        yield beam.pvalue.TaggedOutput("counts", published(counts.totals()))


def fold(batches: Iterable[pa.RecordBatch], wanted: Wanted, counts: Counts) -> dict[str, pa.RecordBatch]:
    """The tables of a shard: pages with intervals, intervals by page and time, claims of dates."""
    kinds: dict[str, list[pa.RecordBatch]] = {}
    for batch in all_batches(batches):
        if batch.num_rows:
            kinds.setdefault(schemas.kind_of(batch), []).append(batch)
    seen, listed, catalogue = (kinds.get(kind, []) for kind in ("observations", "changes", "pages"))
    pages, _, code = code_pages(None, [*seen, *listed, *catalogue])
    of_seen, of_listed = np.split(code[: len(code) - sum(b.num_rows for b in catalogue)],
                                  [sum(b.num_rows for b in seen)])  # fmt: skip
    page, at = _listed_changes(of_listed, listed, counts)
    if seen:
        intervals = _of_log(of_seen, seen, len(pages), counts)
        claims = [(page, LISTED, at)]
    else:
        intervals = _of_list(page, at)
        again = np.diff(page, prepend=-1) == 0
        claims = [(page[again], LISTED, at[again])]
    claims.append((*_sitemap_dates(pages, kinds.get("sitemaps", []), counts),))
    table = pa.concat_tables([pa.Table.from_batches([b]) for b in catalogue], promote_options="default") \
        if catalogue else None  # fmt: skip
    some, number = np.unique(intervals["page"], return_inverse=True)
    intervals["page"] = number.astype(np.int32)
    place = np.full(len(pages), -1)
    place[some] = np.arange(len(some))
    counts.add("pages_watched", len(some))
    counts.add("pages_without_intervals", len(pages) - len(some))
    counts.add("intervals", len(number))
    counts.add("intervals_changed", int(intervals["changed"].sum()))
    told = [(place[p], np.full(len(p), who, np.int8), t) for p, who, t in claims]
    columns = [np.concatenate(c) for c in zip(*told, strict=True)]
    mine = columns[0] >= 0
    counts.add("dates_of_pages_without_intervals", int((~mine).sum()))
    return {
        "pages": _pages(pages, table, wanted, counts).take(pa.array(some)),
        "intervals": pa.RecordBatch.from_arrays(
            [pa.array(intervals[n]) for n in tables.INTERVALS.names], schema=tables.INTERVALS
        ),
        "claims": pa.RecordBatch.from_arrays(
            [pa.array(c[mine], t) for c, t in zip(columns, tables.CLAIMS.types, strict=True)],
            schema=tables.CLAIMS,
        ),
    }


def _of_log(code: IntArray, batches: list[pa.RecordBatch], n: int, counts: Counts) -> dict[str, np.ndarray]:
    parts: list[tuple[int, Intervals]] = []
    _, found = history.fold(
        PageState.empty(n),
        observations_of(code, batches),
        _NEVER_US,
        watch=lambda low, some: parts.append((low, some)),
    )
    for name, k in found.items():
        counts.add(name, k)

    def all_of(name: str) -> np.ndarray:
        return np.concatenate([getattr(some, name) for _, some in parts])

    page = np.concatenate([some.page + low for low, some in parts])
    at, gap, changed = (all_of(name) for name in ("at_us", "gap_us", "changed"))
    age = np.concatenate(
        [np.zeros(len(p.page), np.int64) if p.age_us is None else p.age_us for _, p in parts]
    )
    dated = np.where(age > 0, at - age, NO_TIME)
    return _with_last(page, at - gap, at, changed, dated)


def _of_list(page: IntArray, at: IntArray) -> dict[str, np.ndarray]:
    """As if each page had been crawled just before each change and at it, and at the end of the list."""
    k = len(page)
    again = np.flatnonzero(np.diff(page, prepend=-1) == 0)
    before = np.maximum(at[again] - _MINUTE_US, at[again - 1])
    until = np.append(page[1:] != page[:-1], True)[:k].nonzero()[0]
    rows = [
        (page[again], at[again - 1], before, np.zeros(len(again), np.bool_)),
        (page[again], before, at[again], np.ones(len(again), np.bool_)),
        (page[until], at[until], np.full(len(until), NO_TIME), np.zeros(len(until), np.bool_)),
    ]
    columns = [np.concatenate(c) for c in zip(*rows, strict=True)]
    order = np.lexsort((columns[1], columns[0]))
    order = order[columns[1][order] != columns[2][order]]
    of, begin, end, changed = (c[order] for c in columns)
    found = _with_last(of, begin, end, changed, np.where(changed, end, NO_TIME))
    return found | {"dated_us": np.full(len(of), NO_TIME)}


def _with_last(
    page: IntArray, begin: IntArray, end: IntArray, changed: np.ndarray, dated: IntArray
) -> dict[str, np.ndarray]:
    """With the interval of each page's last change before."""
    row = np.maximum.accumulate(np.where(changed, np.arange(len(page)), -1))
    row = np.append(-1, row)[: len(page)]
    known = (row >= 0) & (page[row] == page)
    low = np.where(dated[row] == NO_TIME, begin[row], dated[row])
    high = np.where(dated[row] == NO_TIME, end[row], dated[row])
    return {
        "page": page,
        "from_us": begin,
        "to_us": end,
        "changed": changed,
        "last_from_us": np.where(known, low, NO_TIME),
        "last_to_us": np.where(known, high, NO_TIME),
        "dated_us": dated,
    }


def _listed_changes(
    code: IntArray, batches: list[pa.RecordBatch], counts: Counts
) -> tuple[IntArray, IntArray]:
    """Pages and times of a list of changes, sorted; the first row of a page is where it begins."""
    if not batches:
        return np.zeros(0, np.int64), np.zeros(0, np.int64)
    at = np.concatenate([microseconds(b.column("changed_at")) for b in batches])
    digest = np.concatenate([pc.fill_null(b.column("digest_hash"), 0).to_numpy() for b in batches])
    order = np.lexsort((digest, at, code))
    page, at, digest = code[order], at[order], digest[order]
    same = (np.diff(page, prepend=-1) == 0) & (np.diff(at, prepend=0) < 2 * _MINUTE_US)
    same |= (np.diff(page, prepend=-1) == 0) & (digest != 0) & (digest == np.append(0, digest[:-1]))
    counts.add("changes_repeated", int(same.sum()))
    return page[~same], at[~same]


def _sitemap_dates(
    pages: ShardPages, batches: list[pa.RecordBatch], counts: Counts
) -> tuple[IntArray, int, IntArray]:
    """Pages and instants that sitemaps name, each once."""
    if not batches:
        return np.zeros(0, np.int64), SITEMAP, np.zeros(0, np.int64)
    rows = pa.concat_tables([pa.Table.from_batches([b]) for b in batches])
    exact = rows.column("precision").to_numpy() == INSTANT
    counts.add("sitemap_rows_without_instant", int((~exact).sum()))
    page = pages.code(rows.column("url_hash").to_numpy())
    counts.add("sitemap_rows_of_unknown_pages", int((exact & (page < 0)).sum()))
    exact &= page >= 0
    at = microseconds(rows.column("lastmod"))
    found = np.unique(np.stack([page[exact], at[exact]]), axis=1)
    return found[0], SITEMAP, found[1]


def _pages(pages: ShardPages, catalogue: pa.Table | None, wanted: Wanted, counts: Counts) -> pa.RecordBatch:
    """Hash, groups, zone and value of each page."""
    names = [n for n in dict.fromkeys((*wanted.by, wanted.zone, wanted.value)) if n and n != tables.HOST]
    listed, duplicates = join_catalogue(pages, catalogue, names, ())
    counts.add("catalogue_duplicates", duplicates)

    def text(name: str) -> pa.Array:
        if name == tables.HOST:
            return pages.host
        return pc.fill_null(listed[META + name], "") if name else pa.array([""]).take(pa.array(zeros))

    zeros = np.zeros(len(pages), np.int64)
    columns = {"url_hash": pa.array(pages.url_hash), "zone": text(wanted.zone)}
    value = np.full(len(pages), np.nan)
    if wanted.value:
        given = listed[META + wanted.value]
        value = np.array([_number(v) for v in given.dictionary_encode().dictionary.to_pylist()] + [np.nan])[
            pc.fill_null(given.dictionary_encode().indices, -1).to_numpy()
        ]
        bad = np.isnan(value) & given.is_valid().to_numpy(zero_copy_only=False)
        counts.add("pages_without_a_number", int(bad.sum()))
    columns["value"] = pa.array(value)
    for at, name in enumerate(wanted.by, 1):
        columns[f"by{at}"] = text(name)
    return pa.RecordBatch.from_pydict(columns)


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return float("nan")


def counted(found: dict[str, pa.RecordBatch], columns: int) -> pa.RecordBatch:
    """Changes and time of all pages and of each group, and the latest instant: rows of `tables.COUNTED`."""
    page, changed = (found["intervals"].column(n).to_numpy(zero_copy_only=False) for n in ("page", "changed"))
    begin, end = (found["intervals"].column(n).to_numpy() for n in ("from_us", "to_us"))
    n = found["pages"].num_rows
    changes = np.bincount(page[changed], minlength=n).astype(np.int64)
    watched = np.zeros(n, np.int64)
    np.add.at(watched, page, np.where(end == NO_TIME, 0, end - begin))
    last = int(np.maximum(begin, end).max(initial=NO_TIME))
    parts = []
    for by in range(columns + 1):
        keys = (
            found["pages"].column(f"by{by}") if by else pa.array([""]).take(pa.array(np.zeros(n, np.int64)))
        )
        encoded = keys.dictionary_encode()
        code, names = encoded.indices.to_numpy(), encoded.dictionary
        g = len(names)
        sums = [np.zeros(g, np.int64) for _ in range(2)]
        for total, values in zip(sums, (changes, watched), strict=True):
            np.add.at(total, code, values)
        arrays = [np.full(g, by, np.int32), names, *sums, np.full(g, last)]
        parts.append(pa.RecordBatch.from_arrays([pa.array(a) for a in arrays], schema=tables.COUNTED))
    return pa.concat_batches(parts)
