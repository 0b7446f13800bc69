"""Times of any common spelling to UTC microseconds, a column at a time.

Every value is read by itself: no locale, no time zone of the machine, no default taken from today, no
guess from its neighbours. A time without zone is UTC, unless it is said whose clock it is of. Numbers tell
their unit by their size, because the ranges of seconds, milliseconds, microseconds, nanoseconds and of
written-out dates (20260102, 202601020304, 20260102030405, 20260102030405678) do not overlap for the years
1990 to 2100.
"""

from __future__ import annotations

import re
from functools import cache

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from transforms.batches import written_dates
from transforms.batches.texts import Texts
from transforms.batches.zones import LocalClock

TIME = pa.timestamp("us", tz="UTC")
# Years 1990 to 2100.
FIRST_US = 631_152_000_000_000
END_US = 4_133_980_800_000_000
DAY_US = 86_400_000_000

Micros = NDArray[np.int64]
Mask = NDArray[np.bool_]

_UNITS = {"s": (1_000_000, 1), "ms": (1000, 1), "us": (1, 1), "ns": (1, 1000)}
# Of a text that may be a time; names of zones in brackets are long.
MAX_BYTES = 128
_NUMBER = re.compile(r"[+]?\d{1,19}(?:\.\d*)?(?:[eE][+]?\d{1,2})?")

READ_AS = "2026-06-20T08:30:00Z, 20 Jun 2026 08:30:00 GMT or seconds since 1970"
"""Times that anybody can write."""


def supported(kind: pa.DataType) -> bool:
    """Whether a column of this type can hold times."""
    t = pa.types
    if t.is_dictionary(kind):
        kind = kind.value_type
    return (
        t.is_timestamp(kind)
        or t.is_date(kind)
        or t.is_integer(kind)
        or t.is_floating(kind)
        or t.is_decimal(kind)
        or t.is_string(kind)
        or t.is_large_string(kind)
        or t.is_string_view(kind)
        or t.is_binary(kind)
        or t.is_large_binary(kind)
        or t.is_null(kind)
    )


def parse_times(
    array: pa.Array, days: bool = False, clock: LocalClock | None = None
) -> tuple[pa.Array, Mask | None]:
    """Read a column of times.

    Parameters
    ----------
    array : pa.Array of n values
        Timestamps of any unit and zone, dates, integers, floats or texts.
    days : bool
        Whether small integers are days since 1970-01-01.
    clock : LocalClock, optional
        Whose times they are that name no zone (default: UTC).

    Returns
    -------
    times : pa.Array (n,) of timestamp[us, UTC]
        Null where the value is null, empty or bad.
    bad : bool (n,) or None
        Values that are no time of the years 1990 to 2100; None if there are none.
    """
    kind = array.type
    if pa.types.is_dictionary(kind) and clock is not None and clock.zone is not None:  # which counts rows
        array, kind = array.cast(kind.value_type), kind.value_type
    if pa.types.is_dictionary(kind):
        times, bad = parse_times(array.dictionary, days, clock)
        codes = array.indices.fill_null(0).to_numpy(zero_copy_only=False)
        if bad is not None and len(bad):
            bad = bad[codes] & np.asarray(array.indices.is_valid())
        return times.take(array.indices), bad
    if pa.types.is_null(kind):
        return pa.nulls(len(array), TIME), None
    if kind == TIME:
        ends = pc.min_max(array)
        low, high = ends["min"].value, ends["max"].value
        if low is None or (low >= FIRST_US and high < END_US):
            return array, None
    null = np.asarray(array.is_null())
    if pa.types.is_timestamp(kind) or pa.types.is_date(kind):
        us, good = _from_arrow(array)
        local = np.full(len(us), pa.types.is_date(kind) or kind.tz is None)
    elif pa.types.is_integer(kind):
        us, good, local = _from_integers(_integers(array), days)
    elif pa.types.is_floating(kind) or pa.types.is_decimal(kind):
        values = array.cast(pa.float64()).fill_null(np.nan).to_numpy()
        null = null | np.isnan(values)
        us, good, local = from_floats(values)
    else:
        texts = Texts(array)
        null = null | (texts.size == 0)
        us, good, local = read_texts(texts, days, clock)
    rows = np.flatnonzero(local & good & ~null) if clock is not None else []
    if clock is not None and len(rows):
        us[rows] = clock.to_utc(us[rows])
        good &= (us >= FIRST_US) & (us < END_US)
    return _result(us, good, null)


def _result(us: Micros, good: Mask, null: Mask) -> tuple[pa.Array, Mask | None]:
    absent = null | ~good
    bad = ~good & ~null
    ints = pa.array(us, mask=absent) if absent.any() else pa.array(us)
    return ints.cast(TIME), bad if bad.any() else None


def _integers(array: pa.Array) -> Micros:
    if pa.types.is_uint64(array.type):
        wide = array.fill_null(0).to_numpy(zero_copy_only=False)
        return np.where(wide > np.uint64(2**62), np.uint64(0), wide).astype(np.int64)
    return array.cast(pa.int64()).fill_null(0).to_numpy(zero_copy_only=False)


def _from_arrow(array: pa.Array) -> tuple[Micros, Mask]:
    """Timestamps and dates; the range is tested before the unit changes, so nothing wraps."""
    kind = array.type
    if pa.types.is_date32(kind):
        scale, divide = DAY_US, 1
        array = array.cast(pa.int32()).cast(pa.int64())
    else:
        scale, divide = _UNITS["ms" if pa.types.is_date64(kind) else kind.unit]
        array = array.cast(pa.int64())
    raw = array.fill_null(0).to_numpy(zero_copy_only=False)
    good = (raw >= FIRST_US * divide // scale) & (raw < END_US * divide // scale)
    return np.where(good, raw, 0) * scale // divide, good


def from_integers(values: Micros, days: bool = False) -> tuple[Micros, Mask]:
    """Epoch seconds, ms, us, ns, or dates written as one number, each by its size.

    Returns
    -------
    int64 (n,), bool (n,)
        Microseconds, and which values are times of 1990 to 2100.
    """
    return _from_integers(values, days)[:2]


def _from_integers(values: Micros, days: bool = False) -> tuple[Micros, Mask, Mask]:
    """As `from_integers`, and which values are of a local clock: those that are written out."""
    us = np.zeros(len(values), np.int64)
    good = np.zeros(len(values), np.bool_)
    local = np.zeros(len(values), np.bool_)
    scales = [(1_000_000, 1), (1000, 1), (1, 1), (1, 1000)]
    if days:
        scales.append((DAY_US, 1))
    for scale, divide in scales:
        fits = (values >= FIRST_US * divide // scale) & (values < END_US * divide // scale)
        if fits.all():
            return values * scale // divide, fits, local
        if fits.any():
            us[fits] = values[fits] * scale // divide
            good |= fits
    for below, unit in ((10**8, 1), (10**12, 10**4), (10**14, 10**6), (10**17, 10**9)):
        rows = np.flatnonzero((values >= below // 100 * 19) & (values < below // 100 * 22) & ~good)
        if len(rows):
            us[rows], good[rows] = _from_written(values[rows], unit)
            local[rows] = True
    return us, good, local


def _from_written(values: Micros, unit: int) -> tuple[Micros, Mask]:
    """Numbers of the form YYYYMMDD x unit: hours and minutes, seconds, milliseconds follow the date."""
    date, clock = np.divmod(values, unit)
    ms = np.zeros_like(values)
    if unit == 10**9:
        clock, ms = np.divmod(clock, 1000)
    elif unit == 10**4:
        clock = clock * 100
    elif unit == 1:
        clock = ms
    return _combine(
        date // 10000,
        date // 100 % 100,
        date % 100,
        clock // 10000,
        clock // 100 % 100,
        clock % 100,
        ms * 1000,
    )


def from_floats(values: NDArray[np.float64]) -> tuple[Micros, Mask, Mask]:
    """Like `read_texts`, for floats: fractions of a second are kept to the microsecond."""
    finite = np.isfinite(values) & (np.abs(values) < 2.0**62)
    whole = np.where(finite, values, 0.0)
    seconds = (whole >= FIRST_US / 1e6) & (whole < END_US / 1e6)
    millis = (whole >= FIRST_US / 1e3) & (whole < END_US / 1e3)
    us, good, local = _from_integers(whole.astype(np.int64))
    us[seconds] = np.rint(whole[seconds] * 1e6).astype(np.int64)
    us[millis] = np.rint(whole[millis] * 1e3).astype(np.int64)
    return us, good & finite, local


_DAYS_BEFORE = np.array([0, 0, 31, 59, 90, 120, 151, 181, 212, 243, 273, 304, 334], np.int64)
_DAYS_OF = np.array([0, 31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31], np.int64)


def _combine(
    year: Micros, month: Micros, day: Micros, hour: Micros, minute: Micros, second: Micros, us: Micros
) -> tuple[Micros, Mask]:
    """Microseconds since 1970 of a civil time, and which are real.

    A leap second is the first of the next minute.
    """
    m = np.clip(month, 0, 12)
    leap = (year % 4 == 0) & ((year % 100 != 0) | (year % 400 == 0))
    good = (month >= 1) & (month <= 12) & (day >= 1) & (day <= _DAYS_OF[m] + (leap & (m == 2)))
    good &= (hour < 24) & (minute < 60) & (second <= 60) & (year >= 1)
    before = year - 1
    days = before * 365 + before // 4 - before // 100 + before // 400 - 719162
    days += _DAYS_BEFORE[m] + (leap & (m > 2)) + day - 1
    total = ((days * 24 + hour) * 60 + minute) * 60_000_000 + second * 1_000_000 + us
    return total, good & (total >= FIRST_US) & (total < END_US)


@cache
def _templates() -> dict[int, list[str]]:
    """Fixed forms by length.

    Y M D h m s f: digits; o O: digits of the offset; S: its sign; T: T, t or space; Z: Z or z; w b: letters
    of a weekday and a month; G: one of GMT; u: one of UTC; the rest as it stands.
    """
    clocks = ["hh:mm", "hh:mm:ss", *("hh:mm:ss." + "f" * n for n in range(1, 10))]
    zones = ["", "Z", "Soo", "SooOO", "Soo:OO"]
    forms = ["YYYY-MM-DD", "YYYYMMDDThhmmss", "YYYYMMDDThhmmssZ", "www, DD bbb YYYY hh:mm:ss GGG"]
    forms += [f"YYYY-MM-DDT{clock}{zone}" for clock in clocks for zone in zones]
    forms += [f"YYYY-MM-DDThh:mm:ss {zone}" for zone in ("Soo:OO", "SooOO")]
    # As access logs and mails have it.
    forms += ["DD/bbb/YYYY:hh:mm:ss SooOO", "www, DD bbb YYYY hh:mm:ss SooOO"]
    # As spreadsheets of most of Europe have it: with points, the day is first everywhere.
    forms += ["DD.MM.YYYY", "DD.MM.YYYY hh:mm", "DD.MM.YYYY hh:mm:ss"]
    # As Ruby prints a time, and BigQuery exports one.
    forms += [f"YYYY-MM-DDT{clock} uuu" for clock in clocks[1:]]
    out: dict[int, list[str]] = {}
    for form in forms:
        out.setdefault(len(form), []).append(form)
    return out


_MONTHS = {
    int.from_bytes(name.encode(), "big"): i + 1
    for i, name in enumerate("jan feb mar apr may jun jul aug sep oct nov dec".split())
}
_WEEKDAY_KEYS = np.array(
    [int.from_bytes(name.encode(), "big") for name in "mon tue wed thu fri sat sun".split()], np.int64
)
_MONTH_KEYS = np.array(sorted(_MONTHS), np.int64)
_MONTH_VALUES = np.array([_MONTHS[k] for k in sorted(_MONTHS)], np.int64)


def read_texts(
    texts: Texts, days: bool = False, clock: LocalClock | None = None
) -> tuple[Micros, Mask, Mask]:
    """ISO 8601, dates and epochs in digits, dates with names of months.

    Returns
    -------
    int64 (n,), bool (n,), bool (n,)
        Microseconds, which values are times of 1990 to 2100, and which of them name no zone: their
        microseconds are of the clock that wrote them. `clock` only tells what abbreviations of zones mean.
    """
    n = len(texts)
    us = np.zeros(n, np.int64)
    good = np.zeros(n, np.bool_)
    local = np.zeros(n, np.bool_)
    for a, b in texts.chunks():
        size = texts.size[a:b]
        for length in np.unique(size).tolist():
            if not 1 <= length <= 40:
                continue
            whole = bool((size == length).all())
            rows = slice(a, b) if whole else a + np.flatnonzero(size == length)
            start = texts.start[rows]
            us[rows], good[rows], local[rows] = _from_fixed(texts.data, start, length, days)
    left = np.flatnonzero(~good & (texts.size > 0) & (texts.size <= MAX_BYTES))
    known: dict[bytes, tuple[int, bool] | None] = {}
    for row in left.tolist():
        raw = texts.data[texts.start[row] : texts.start[row] + texts.size[row]].tobytes()
        if raw not in known:
            if len(known) > 1 << 16:
                known.clear()
            known[raw] = parse_one(raw, days, clock)
        value = known[raw]
        if value is not None:
            (us[row], local[row]), good[row] = value, True
    return us, good, local


def _from_fixed(data: NDArray[np.uint8], start: Micros, length: int, days: bool) -> tuple[Micros, Mask, Mask]:
    """Rows of one length by the templates of that length."""
    columns = [data.take(start + j) for j in range(length)]
    digits = [c - np.uint8(48) for c in columns]
    us = np.zeros(len(start), np.int64)
    good = np.zeros(len(start), np.bool_)
    local = np.zeros(len(start), np.bool_)
    if length <= 19:
        all_digits = np.logical_and.reduce([d < 10 for d in digits])
        if all_digits.any():
            number = np.zeros(len(start), np.int64)
            for d in digits:
                number *= 10
                number += d
            us, good, local = _from_integers(number, days)
            good &= all_digits
    for form in _templates().get(length, ()):
        if good.all():
            break
        fits = _fits(form, columns, digits) & ~good
        if not fits.any():
            continue
        local[fits] = not any(mark in form for mark in "SZGu")
        if fits.all():
            return *_read_form(form, columns, digits), local
        us[fits], good[fits] = _read_form(form, [c[fits] for c in columns], [d[fits] for d in digits])
    return us, good, local


def _fits(form: str, columns: list[NDArray[np.uint8]], digits: list[NDArray[np.uint8]]) -> Mask:
    ok = np.ones(len(columns[0]), np.bool_)
    for j, c in enumerate(form):
        x = columns[j]
        if c in "YMDhmsfoO":
            ok &= digits[j] < 10
        elif c == "T":
            ok &= (x == 84) | (x == 116) | (x == 32)
        elif c == "Z":
            ok &= (x | 32) == 122
        elif c == "S":
            ok &= (x == 43) | (x == 45)
        elif c == ".":
            ok &= (x == 46) | ((x == 44) if "f" in form else False)
        elif c in "wb":
            ok &= ((x | 32) >= 97) & ((x | 32) <= 122)
        elif c == "G":
            ok &= x == b"GMT"[j - form.index("G")]
        elif c == "u":
            ok &= x == b"UTC"[j - form.index("u")]
        else:
            ok &= x == ord(c)
    return ok


def _letters(columns: list[NDArray[np.uint8]], at: int) -> Micros:
    """Three letters as a number, in lower case."""
    key = np.zeros(len(columns[0]), np.int64)
    for j in range(at, at + 3):
        key = key << 8 | (columns[j] | 32)
    return key


def _read_form(
    form: str, columns: list[NDArray[np.uint8]], digits: list[NDArray[np.uint8]]
) -> tuple[Micros, Mask]:
    n = len(columns[0])

    def number(letter: str) -> Micros:
        value = np.zeros(n, np.int64)
        for j, c in enumerate(form):
            if c == letter:
                value = value * 10 + digits[j]
        return value

    named = np.ones(n, np.bool_)
    if "w" in form:
        named = np.isin(_letters(columns, form.index("w")), _WEEKDAY_KEYS)
    if "b" in form:
        key = _letters(columns, form.index("b"))
        near = np.minimum(np.searchsorted(_MONTH_KEYS, key), 11)
        month = np.where(_MONTH_KEYS[near] == key, _MONTH_VALUES[near], 0)
    else:
        month = number("M")
    places = form.count("f")
    fraction = number("f")
    fraction = fraction * 10 ** (6 - places) if places <= 6 else fraction // 10 ** (places - 6)
    us, good = _combine(number("Y"), month, number("D"), number("h"), number("m"), number("s"), fraction)
    good &= named
    if "S" in form:
        hours, minutes = number("o"), number("O")
        good &= (hours < 24) & (minutes < 60)
        offset = (hours * 60 + minutes) * 60_000_000
        sign = columns[form.index("S")]
        us = np.where(sign == 45, us + offset, us - offset)
        good &= (us >= FIRST_US) & (us < END_US)
    return us, good


def parse_one(raw: bytes, days: bool = False, clock: LocalClock | None = None) -> tuple[int, bool] | None:
    """The slow path for one text: outer blanks, decimals, names of months. None if it is no time."""
    text = raw.decode("utf-8", "replace").strip()
    if not text:
        return None
    if text.encode() != raw:
        us, good, local = read_texts(Texts(pa.array([text])), days, clock)
        return (int(us[0]), bool(local[0])) if good[0] else None
    if _NUMBER.fullmatch(text):
        us, good, local = from_floats(np.array([float(text)]))
        return (int(us[0]), bool(local[0])) if good[0] else None
    found = written_dates.read(text, None if clock is None else clock.zone)
    return found if found is not None and FIRST_US <= found[0] < END_US else None
