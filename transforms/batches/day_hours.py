"""Hours of the day: of columns that say them, and of times."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from transforms.batches import columns
from transforms.batches.texts import Texts
from transforms.batches.times import parse_times

HOURS = 24
HOUR_US = 3_600_000_000

_DATE_BYTES, _DASH_AT, _DASH = 10, 4, 45

Mask = NDArray[np.bool_]


def read_hours(array: pa.Array) -> tuple[pa.Array, Mask]:
    """Numbers from 0 to 23, or times, as hours of the day (UTC).

    Returns
    -------
    pa.Array (n,) of int8
        Null where the value is null, empty or bad.
    bad : bool (n,)
    """
    kind = array.type.value_type if pa.types.is_dictionary(array.type) else array.type
    if pa.types.is_timestamp(kind):
        instants, late = parse_times(array)
        return hours_of(instants, array), np.zeros(len(array), np.bool_) if late is None else late
    if pa.types.is_date(kind):
        return pa.nulls(len(array), pa.int8()), np.zeros(len(array), np.bool_)
    values, unread = columns.numbers(array)
    number = values.fill_null(np.nan).to_numpy(zero_copy_only=False)
    null = np.isnan(number)
    whole = np.where(null, 0.0, number)
    bad = (whole < 0) | (whole >= HOURS) | (np.rint(whole) != whole)
    hour = np.where(bad, 0.0, whole).astype(np.int8)
    if unread is not None:
        bad |= unread
    return pa.array(hour, mask=null | bad), bad


def hours_of(instants: pa.Array, raw: pa.Array) -> pa.Array:
    """The hours of times, (n,) int8; null for null, and for dates.

    Parameters
    ----------
    instants : pa.Array (n,) of timestamp[us, UTC]
    raw : pa.Array (n,)
        What they were read from.
    """
    hour = instants.cast(pa.int64()).fill_null(0).to_numpy(zero_copy_only=False) // HOUR_US % HOURS
    dates = _dates(raw) | np.asarray(instants.is_null())
    return pa.array(hour.astype(np.int8), mask=dates if dates.any() else None)


def _dates(raw: pa.Array) -> Mask:
    kind = raw.type
    if pa.types.is_dictionary(kind):
        known = np.append(_dates(raw.dictionary), True)
        found: Mask = known[raw.indices.fill_null(len(known) - 1).to_numpy(zero_copy_only=False)]
        return found
    if not columns.is_text(kind):
        return np.full(len(raw), pa.types.is_date(kind))
    # 2026-01-31 is the only form of a date without a time.
    texts = Texts(raw)
    found = np.asarray(texts.size == _DATE_BYTES)
    rows = np.flatnonzero(found)
    found[rows] = texts.data[texts.start[rows] + _DASH_AT] == _DASH
    return found
