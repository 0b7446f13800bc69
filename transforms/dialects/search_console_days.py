"""The days of an export of Search Console: each page has one row for all, and its clicks are of all."""

from __future__ import annotations

import datetime
import re
from collections.abc import Collection, Iterator, Sequence

import numpy as np
import pyarrow as pa

from policies.history.request_history import spread_counts
from policies.numerics.typing_ import IntArray
from transforms.batches.errors import InputError
from transforms.batches.hashing import hash_texts
from transforms.batches.schemas import COUNT_UNIT
from transforms.files.blocks import RawBlock
from transforms.rows.normalise import Kind, normalise

MAX_DAYS = 1000
"""Of an export; Search Console keeps 16 months."""
BLOCK_ROWS = 1 << 16
DAY = re.compile(r"20\d\d-\d\d-\d\d")
_PER_COUNT = round(1 / COUNT_UNIT)


def days_of(path: str, tables: Collection[Sequence[Sequence[str]]]) -> list[str]:
    """The days that the chart of an export has a row of, in order; none where there is no chart.

    Parameters
    ----------
    path : str
    tables : collection of records, the first one the names of the columns
        The chart is the one in which most records begin with a day: a search may be for a day, too.

    Raises
    ------
    InputError
        If there are more than `MAX_DAYS`.
    """
    most: set[str] = set()
    for records in tables:
        first = [record[0].strip() for record in records[1:] if record]
        found = {text for text in first if _is_day(text)}
        if 2 * sum(text in found for text in first) > len(first) and len(found) > len(most):
            most = found
    if len(most) > MAX_DAYS:
        raise InputError(
            f"{path}: an export of {len(most)} days, at most {MAX_DAYS} are read. Export fewer days at a time"
        )
    return sorted(most)


def _is_day(text: str) -> bool:
    if not DAY.fullmatch(text):
        return False
    try:
        datetime.date.fromisoformat(text)
    except ValueError:
        return False
    return True


def spread(
    path: str, kind: Kind, batch: pa.RecordBatch, numbers: IntArray, days: Sequence[str]
) -> Iterator[RawBlock]:
    """Rows of pages as rows of pages and days.

    Every page has a row of every day, also where nothing is left for one: a later export of the same days
    then finds them counted.

    Parameters
    ----------
    path : str
    kind : Kind
        Requests.
    batch : pa.RecordBatch of n rows
        `url`, `day`, `clicks` and `impressions`, texts; `day` is any.
    numbers : int (n,)
        The line of each row.
    days : sequence of str
    """
    checked = normalise(kind, batch, path)
    good = np.ones(batch.num_rows, np.bool_) if checked.good is None else checked.good
    if not good.all():
        # Once, not once a day.
        bad = numbers[~good]
        yield RawBlock(batch.filter(pa.array(~good)), lambda: bad)
    url, lines = batch.column("url").filter(pa.array(good)), numbers[good]
    n, step = len(days), max(1, BLOCK_ROWS // len(days))
    start = (hash_texts(url) % np.uint64(n)).astype(np.int64)
    counts = {name: checked.rows.column(name).to_numpy() for name in ("clicks", "impressions")}
    for a in range(0, len(url), step):
        rows = slice(a, a + step)
        size = len(lines[rows])
        made = {
            "url": url.slice(a, step).take(pa.array(np.repeat(np.arange(size), n))),
            "day": pa.array(days, pa.string()).take(pa.array(np.tile(np.arange(n), size))),
        }
        for name, fixed in counts.items():
            whole = spread_counts(fixed[rows] // _PER_COUNT, start[rows], n).astype(np.float64)
            whole[np.arange(size), start[rows]] += (fixed[rows] % _PER_COUNT) * COUNT_UNIT
            made[name] = pa.array(whole.ravel())
        repeated = np.repeat(lines[rows], n)
        yield RawBlock(pa.RecordBatch.from_pydict(made), lambda repeated=repeated: repeated)  # type: ignore[misc]
