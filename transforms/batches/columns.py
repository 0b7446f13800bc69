"""Readers of single columns: whatever type a file has, to the type of `schemas`, with a mask of bad values.

Each takes an Arrow array of n values and returns `(values, bad)`: an Arrow array of n values, null where
there is none, and a bool (n,) mask of values that mean nothing, or None if there are none.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from transforms.batches.schemas import COUNT_UNIT
from transforms.batches.texts import Texts
from transforms.batches.urls import trim

Mask = NDArray[np.bool_]
Column = tuple[pa.Array, Mask | None]

NOTHING = pa.array(["", "-", "null", "none", "nan", "na", "n/a", "\\n"])
# A text "nan" is the number NaN, which a count must not be.
_NO_NUMBER = NOTHING.filter(pc.not_equal(NOTHING, "nan"))
MAX_COUNT = 2.0**40
MAX_AMOUNT = 1e30  # what the search takes

_TRUE = pa.array(["true", "1", "t", "yes", "y", "1.0"])
_FALSE = pa.array(["false", "0", "f", "no", "n", "0.0"])


_OF_WORDS = {
    "FETCHED": 200,
    "REDIRECTION": 301,
    "FETCH_ERROR": 599,
    "ERROR": 599,
    "DB_FETCHED": 200,
    "DB_GONE": 404,
    "DB_REDIR_TEMP": 302,
    "DB_REDIR_PERM": 301,
    "DB_NOTMODIFIED": 304,
    "DB_DUPLICATE": 200,
}
"""Words of StormCrawler and Nutch for what a fetch came to; no answer is a 599."""
_NO_FETCH = pa.array(["DISCOVERED", "DB_UNFETCHED", "DB_ORPHAN"])
_WORDS, _CODES = pa.array(list(_OF_WORDS)), pa.array(list(_OF_WORDS.values()), pa.float64())


def is_text(kind: pa.DataType) -> bool:
    """Whether values of this type are text, or bytes that may be."""
    t = pa.types
    return (
        t.is_string(kind)
        or t.is_large_string(kind)
        or t.is_string_view(kind)
        or t.is_binary(kind)
        or t.is_large_binary(kind)
    )


def is_scalar(kind: pa.DataType) -> bool:
    """Whether a column holds numbers, booleans or text: what a table on paper could hold."""
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    t = pa.types
    return (
        is_text(kind)
        or t.is_null(kind)
        or t.is_boolean(kind)
        or is_number(kind)
        or t.is_fixed_size_binary(kind)
    )


def is_fixed(kind: pa.DataType) -> bool:
    """Whether a column holds bytes of one length."""
    return bool(pa.types.is_fixed_size_binary(kind))


def is_number(kind: pa.DataType) -> bool:
    """Whether a column holds integers, floats or decimals."""
    return pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind)


def _some(mask: Mask) -> Mask | None:
    return mask if mask.any() else None


def plain(array: pa.Array) -> pa.Array:
    """Dictionaries decoded, every text as `string`, whether or not its bytes are UTF-8."""
    if pa.types.is_dictionary(array.type):
        array = array.cast(array.type.value_type)
    kind = array.type
    if pa.types.is_fixed_size_binary(kind):
        array, kind = array.cast(pa.binary()), pa.binary()
    if pa.types.is_binary(kind):
        return array.view(pa.string())
    if pa.types.is_large_binary(kind):
        return array.view(pa.large_string())
    return array.cast(pa.large_string()) if pa.types.is_string_view(kind) else array


def invalid_utf8(array: pa.Array) -> Mask | None:
    """Rows of a string array whose bytes are not UTF-8; one fast pass where all are."""
    if Texts(array).span().max(initial=0) < 128:
        return None
    try:
        array.validate(full=True)
        return None
    except pa.ArrowInvalid:
        pass
    bad = np.zeros(len(array), np.bool_)
    for a in range(0, len(array), 1024):
        part = array.slice(a, 1024)
        try:
            part.validate(full=True)
        except pa.ArrowInvalid:
            for i, raw in enumerate(part.cast(pa.large_binary()).to_pylist()):
                try:
                    (raw or b"").decode()
                except UnicodeDecodeError:
                    bad[a + i] = True
    return bad


def clean(array: pa.Array) -> tuple[pa.Array, Mask | None]:
    """Text with ill-formed bytes replaced, and where that was: for columns that pass through, and samples."""
    array = plain(array)
    bad = invalid_utf8(array)
    if bad is None:
        return array, None
    raw = array.cast(pa.large_binary()).to_pylist()
    return pa.array([None if r is None else r.decode("utf-8", "replace") for r in raw], pa.string()), bad


def text(array: pa.Array) -> Column:
    """Any scalar as a string."""
    array = plain(array)
    if pa.types.is_string(array.type):
        return array, invalid_utf8(array)
    if pa.types.is_large_string(array.type):
        bad = invalid_utf8(array)
        return array.view(pa.large_binary()).cast(pa.binary()).view(pa.string()), bad
    return array.cast(pa.string()), None


def numbers(array: pa.Array, groups: str = "", comma: bool = False) -> Column:
    """Integers, floats, decimals or their text as float64; text that says "nothing" is null.

    `groups` reads texts with thousands set apart: "counts" or "amounts", see `_groups`; `comma` says that
    a comma may begin a fraction, as in tables with semicolons.
    """
    array = plain(array)
    kind = array.type
    if pa.types.is_null(kind):
        return pa.nulls(len(array), pa.float64()), None
    if is_number(kind):
        return array.cast(pa.float64(), safe=False), None
    if pa.types.is_boolean(kind):
        return array.cast(pa.int8()).cast(pa.float64()), None
    if groups and _MARKS[Texts(array).span()].any():
        encoded = trim(array).dictionary_encode()
        values, bad = _spelled(encoded.dictionary, groups, comma)
        if bad is not None:
            bad = bad[encoded.indices.fill_null(0).to_numpy()] & np.asarray(array.is_valid())
        return values.take(encoded.indices), bad
    try:
        return array.cast(pa.float64()), None
    except (pa.ArrowInvalid, UnicodeDecodeError):
        return _spelled(trim(array))


def _spelled(array: pa.Array, groups: str = "", comma: bool = False) -> Column:
    """Texts of numbers, one by one."""
    array, broken = clean(array)
    form = r"^\+?(-?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?|-?(?i:inf|infinity|nan))$"
    good = _true(pc.match_substring_regex(array, form))
    # What is left of a text, and its mark of a fraction.
    readings = [(good, r"^\+", ".")]
    if groups:
        english, other, doubtful = _groups(array, groups == "counts", comma)
        readings += [(english, r"[^\d.-]", "."), (other, r"[^\d,-]", ",")]
        good = (good | english | other) & ~doubtful
    if broken is not None:
        good &= ~broken
    wrong = ~good & ~_true(pc.is_in(pc.utf8_lower(array), _NO_NUMBER)) & np.asarray(array.is_valid())
    values = np.zeros(len(array))
    for mask, drop, mark in readings:
        rows = np.flatnonzero(mask & good)
        # Not `if_else` on texts: on a slice it returns bytes of other rows (pyarrow 23).
        digits = pc.replace_substring_regex(array.take(pa.array(rows)), drop, "")
        digits = pc.replace_substring(digits, mark, ".")
        values[rows] = digits.cast(pa.float64()).to_numpy(zero_copy_only=False)
    return pa.array(values, mask=~good), _some(wrong)


# Bytes of marks of thousands and of fractions in UTF-8; of those beyond ASCII all.
_MARKS = np.zeros(256, np.bool_)
_MARKS[[ord(c) for c in ",.' "]] = True
_MARKS[128:] = True
_APART = r"[ '\x{a0}\x{2007}\x{2009}\x{202f}\x{2019}\x{66c}]"


def _form(group: str, fraction: str) -> str:
    """Numbers with groups of three behind a mark, and a fraction or none behind another."""
    return rf"^[+-]?[1-9]\d{{0,2}}(?:{group}\d{{3}})+(?:{fraction}\d+)?$"


def _groups(array: pa.Array, counts: bool, comma_begins: bool) -> tuple[Mask, Mask, Mask]:
    """Where thousands are set apart, with a point before a fraction, with a comma there; where nobody knows.

    `1,234` and `1.234` may have a group or a fraction: that is as in the other numbers of the column. If no
    other number tells, it is a group in counts, for a fraction of a click does not exist, and in doubt as an
    amount; it is in doubt, too, if they contradict each other. So is `12,34`, which may lack a digit, unless
    another number (`0,5`, `1.234,5`), or the table (`comma_begins`), says that a comma begins a fraction.
    """

    def matches(form: str) -> Mask:
        return _true(pc.match_substring_regex(array, form))

    def fraction(mask: Mask, mark: str) -> bool:
        return bool((mask & matches(rf"\{mark}\d+$")).any())

    one_comma, one_point = matches(r"^[+-]?[1-9]\d{0,2},\d{3}$"), matches(r"^[+-]?[1-9]\d{0,2}\.\d{3}$")
    indian = matches(r"^[+-]?[1-9]\d?(?:,\d\d)+,\d{3}(?:\.\d+)?$")
    commas = (matches(_form(",", r"\.")) | indian) & ~one_comma
    points = matches(_form(r"\.", ",")) & ~one_point
    apart, apart_comma = matches(_form(_APART, r"\.")), matches(_form(_APART, ","))
    # No groups, and a fraction.
    comma_only = matches(r"^[+-]?\d+,\d+$") & ~one_comma
    point_only = matches(r"^[+-]?\d*\.\d+$") & ~one_point
    after_comma = bool(matches(r"^[+-]?0,\d+$").any()) or fraction(points | apart_comma, ",")
    after_comma |= comma_begins and bool(comma_only.any())
    after_point = bool(point_only.any()) or fraction(commas | apart, ".")

    def group(own: bool, before: bool, other: bool, other_before: bool, rival: Mask) -> bool | None:
        """Whether one mark is of a group: by those of its groups, of its fractions, of the other mark."""
        if own + before + other + other_before == 0:
            return None if not counts or rival.any() else True
        if (own and (before or other)) or (before and other_before) or (other and not before):
            return None
        return own or not before

    comma, point, blank = (bool(mask.any()) for mask in (commas, points, apart | apart_comma))
    of_comma = group(comma, after_comma, point or blank, after_point, one_point)
    of_point = group(point, after_point, comma or blank, after_comma, one_comma)
    if comma_only.any() and not after_comma:
        of_comma = None
    doubtful = np.zeros(len(array), np.bool_)
    english, other = commas | apart, points | (apart_comma & ~apart)
    for mask, is_group, with_group in ((one_comma, of_comma, english), (one_point, of_point, other)):
        if is_group is None:
            doubtful |= mask
        elif is_group:
            with_group |= mask
    if of_comma is None:
        doubtful |= comma_only
    elif not of_comma:
        other |= one_comma
    return english, other | comma_only, doubtful


def _true(array: pa.Array) -> Mask:
    """Where an array of booleans is true; null counts as false."""
    return np.asarray(pc.fill_null(array, False))


def status(array: pa.Array) -> Column:
    """HTTP status as int16. "-" and its like are null; fractions and numbers beyond int16 are bad.

    Words of StormCrawler and Nutch are read as the status that they stand for.
    """
    if array.type == pa.int16():
        return array, None
    values, bad = numbers(array)
    if bad is not None and bad.any():
        at = pc.index_in(_in_capitals(array), _WORDS)
        values = pc.if_else(at.is_valid(), _CODES.take(at), values)
        bad &= np.asarray(at.is_null())
    # A float column with gaps (as pandas writes one) has NaN for nothing.
    number = values.fill_null(np.nan).to_numpy()
    null = np.isnan(number)
    whole = np.where(null, 0.0, number)
    wrong = (np.abs(whole) > 32767) | (np.rint(whole) != whole)
    out = np.where(wrong, 0.0, whole).astype(np.int16)
    if bad is not None:
        wrong |= bad
    return pa.array(out, mask=null | wrong), _some(wrong)


def no_fetch(array: pa.Array) -> Mask | None:
    """Where a status is a word of StormCrawler or Nutch for a page never fetched, (n,); None if nowhere."""
    array = plain(array)
    return _some(np.asarray(pc.is_in(_in_capitals(array), _NO_FETCH))) if is_text(array.type) else None


def _in_capitals(array: pa.Array) -> pa.Array:
    return pc.ascii_upper(clean(trim(plain(array)))[0].cast(pa.string()))


def flag(array: pa.Array) -> Column:
    """Booleans, 0 and 1, or words for them."""
    array = plain(array)
    if pa.types.is_boolean(array.type):
        return array, None
    if pa.types.is_null(array.type):
        return array.cast(pa.bool_()), None
    if is_number(array.type):
        number = array.cast(pa.float64(), safe=False).fill_null(np.nan).to_numpy()
        null = np.isnan(number)
        wrong = ~null & (number != 0) & (number != 1)
        return pa.array(number == 1, mask=null | wrong), _some(wrong)
    words, _ = clean(trim(array))
    words = pc.utf8_lower(words)
    yes = np.asarray(pc.is_in(words, _TRUE))
    nothing = np.asarray(pc.or_(pc.is_in(words, NOTHING), pc.is_null(words)))
    wrong = ~yes & ~nothing & ~np.asarray(pc.is_in(words, _FALSE))
    return pa.array(yes, mask=nothing | wrong), _some(wrong)


def count(array: pa.Array, comma: bool = False) -> Column:
    """A count of requests as fixed point (`schemas.COUNT_UNIT`); null is 0, negative or not finite is bad."""
    values, bad = numbers(array, "counts", comma)
    number = values.fill_null(0.0).to_numpy()
    wrong = ~((number >= 0) & (number <= MAX_COUNT))
    fixed = np.rint(np.where(wrong, 0.0, number) / COUNT_UNIT).astype(np.int64)
    if bad is not None:
        wrong |= bad
    return pa.array(fixed), _some(wrong)


def digits(array: pa.Array, rows: Mask) -> int:
    """About what counts that could not be read add up to, in `schemas.COUNT_UNIT`: by their digits alone."""
    bad = plain(array).filter(pa.array(rows))
    if not is_text(bad.type):
        return 0
    bad = clean(trim(bad))[0].drop_null()
    bad = bad.filter(pc.invert(pc.starts_with(bad, "-")))
    whole = pc.replace_substring_regex(pc.replace_substring_regex(bad, r"[.,]\d{1,2}$", ""), r"\D", "")
    whole = whole.filter(pc.match_substring_regex(whole, r"^\d{1,12}$"))
    return int(pc.sum(whole.cast(pa.int64())).as_py() or 0) * round(1 / COUNT_UNIT)


def amount(array: pa.Array, comma: bool = False) -> Column:
    """A non-negative number up to `MAX_AMOUNT`, null where there is none."""
    values, bad = numbers(array, "amounts", comma)
    number = values.fill_null(0.0).to_numpy()
    wrong = ~((number >= 0) & (number <= MAX_AMOUNT))
    if bad is not None:
        wrong |= bad
    return values, _some(wrong)
