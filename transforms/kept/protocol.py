"""What a statistic of pages is: what a night keeps, or says, of each page beside its change history."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa

from policies.history.evidence import Evidence
from policies.history.interval_sums import Intervals
from policies.history.page_state import PageState
from policies.history.visits import Observations
from policies.numerics.typing_ import BoolArray, IntArray
from transforms.batches.tally import Counts
from transforms.kept.fold_settings import FoldSettings
from transforms.kept.state import values_of
from transforms.shards.coding import ShardPages

Sums = dict[type["Statistic"], Any]


@dataclass
class ShardNight:
    """What a shard of n pages knows of tonight, for its statistics; filled in as the night goes on.

    Attributes
    ----------
    settings : FoldSettings
    counts : Counts
        For the manifest.
    inputs : dict of str to list of RecordBatch
        Rows by kind, but for observations.
    pages : ShardPages
    rows : Observations
        Tonight's log.
    listed : int64
        Pages that tonight's catalogue lists, -1 for none.
    known_from_day : (n + 1,) int64
        Since when each page is known: what was asked or said of it before met an unknown page. The last is
        of code -1.
    state : RecordBatch or None
        Yesterday's rows; `code`, (m,) int64 ascending, are their pages.
    slots : Table or None
        Yesterday's slots/pages; `slot_code` are their pages, -1 for none.
    last_slot_us : (n,) int64, microseconds
        `NO_TIME` for none.
    before, after : PageState
        Histories without and with tonight's log.
    evidence : Evidence
        What they say once all is folded, without pages that are `alternating`, (n,) bool.
    kept : dict of type to Statistic
        Those that are made so far.
    """

    settings: FoldSettings
    counts: Counts
    inputs: dict[str, list[pa.RecordBatch]]
    pages: ShardPages = field(init=False)
    rows: Observations = field(init=False)
    listed: IntArray = field(init=False)
    known_from_day: IntArray = field(init=False)
    state: pa.RecordBatch | None = None
    code: IntArray = field(init=False)
    slots: pa.Table | None = None
    slot_code: IntArray | None = None
    last_slot_us: IntArray = field(init=False)
    before: PageState = field(init=False)
    after: PageState = field(init=False)
    evidence: Evidence = field(init=False)
    alternating: BoolArray = field(init=False)
    kept: dict[type[Statistic], Any] = field(default_factory=dict)

    def table(self, kind: str) -> pa.Table | None:
        """Rows of an input; None without any."""
        batches = self.inputs.get(kind)
        if not batches:
            return None
        tables = [pa.Table.from_batches([b.replace_schema_metadata(None)]) for b in batches]
        return pa.concat_tables(tables, promote_options="default")

    def carried(self, name: str, fill: Any) -> np.ndarray:
        """A column of yesterday's state, (n,), times in microseconds; `fill` where it has none."""
        found = np.full(len(self.pages), fill)
        if self.state is not None:
            found[self.code] = values_of(self.state.column(name), fill)
        return found


class Statistic:
    """One statistic of the pages of a shard; what it has no use for it leaves out.

    A night makes one of every kind in `statistics.STATISTICS`, in order: it reads what the night before kept,
    watches and folds tonight's log, and gives its columns. Those of `SLOTS` and `PAGES` are what the table of
    the shard's pages has by their names, from `columns` or from later stages; null, or false, where it has
    none.

    Attributes
    ----------
    STATE, SLOTS, PAGES : tuple of Field
        Columns of state/; of slots/pages, which has pages with a slot; of pages/, which a person sees.
    FOLDERS : tuple of (str, Schema)
        Further folders of the night, with rows of their own kinds: pages or hosts by their hashes.
    LATER : bool
        Whether a version wrote nights without it: its columns are null there.
    SAID : tuple of (str, str)
        What the summary says of counters that are not 0.
    """

    STATE: ClassVar[tuple[pa.Field, ...]] = ()
    SLOTS: ClassVar[tuple[pa.Field, ...]] = ()
    PAGES: ClassVar[tuple[pa.Field, ...]] = ()
    FOLDERS: ClassVar[tuple[tuple[str, pa.Schema], ...]] = ()
    LATER: ClassVar[bool] = True
    SAID: ClassVar[tuple[tuple[str, str], ...]] = ()

    def __init__(self, night: ShardNight) -> None:
        """Read what the night before kept."""

    def watch(self, first_page: int, intervals: Intervals) -> None:
        """Tonight's intervals of the pages from `first_page` on; their codes count from there."""

    def fold(self, night: ShardNight, rows: Observations) -> None:
        """Take in the night, once the rows of its log are in the histories."""

    def state(self) -> dict[str, pa.Array]:
        """The columns of `STATE`, (n,) each."""
        return {}

    def files(self) -> Iterator[tuple[str, pa.RecordBatch]]:
        """Rows for `FOLDERS`."""
        yield from ()

    def columns(self, night: ShardNight) -> dict[str, pa.Array]:
        """Columns for later stages, (n,) each; those of `STATE` that pages/ shows."""
        shown = {f.name for f in self.PAGES}
        return {name: column for name, column in self.state().items() if name in shown}

    def tables(self, night: ShardNight) -> dict[str, pa.RecordBatch]:
        """Tables for later stages."""
        return {}

    def sums(self) -> Any:
        """What is added up over all shards, and then told to each: an object of a class that has an empty one
        and merges in any order, or None.
        """

    @classmethod
    def count(cls, pages: pa.RecordBatch) -> dict[str, int]:
        """Counters of the manifest, from the table of pages: how many have each flag of `PAGES`."""
        flags = [f.name for f in cls.PAGES if pa.types.is_boolean(f.type)]
        return {f"pages_{n}": pages.column(n).true_count if n in pages.schema.names else 0 for n in flags}


def merge_sums(parts: Iterable[Sums]) -> Sums:
    """`Statistic.sums` of several parts of the pages."""
    by_kind: dict[type[Statistic], list[Any]] = {}
    for part in parts:
        for kind, sums in part.items():
            by_kind.setdefault(kind, []).append(sums)
    return {k: functools.reduce(type(v[0]).merge, v, type(v[0])()) for k, v in by_kind.items()}
