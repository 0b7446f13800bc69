"""Single columns of any type."""

import decimal

import pyarrow as pa
import pytest

from transforms.batches import columns
from transforms.batches.schemas import COUNT_UNIT

NAN, INF = float("nan"), float("inf")


def _read(reader, values, kind=None):
    array = values if isinstance(values, pa.Array) else pa.array(values, kind)
    out, bad = reader(array)
    assert len(out) == len(array)
    bad = [False] * len(array) if bad is None else bad.tolist()
    return ["bad" if b else v for v, b in zip(out.to_pylist(), bad, strict=True)]


def test_status():
    assert _read(columns.status, [200, 404, None], pa.int16()) == [200, 404, None]
    assert _read(columns.status, [200, 70000, None, -2], pa.int64()) == [200, "bad", None, -2]
    assert _read(columns.status, [200.0, NAN, None, 1e9, 200.5, INF]) == [
        200,
        None,
        None,
        "bad",
        "bad",
        "bad",
    ]
    texts = ["200", " 404 ", "-", "", None, "200.0", "70000", "abc", "-1", "null", "200 OK", "+301", "NaN"]
    good = [200, 404, None, None, None, 200, "bad", "bad", -1, None, "bad", 301, None]
    assert _read(columns.status, texts) == good
    assert _read(columns.status, pa.array(texts).dictionary_encode()) == good
    assert _read(columns.status, [t and t.encode() for t in texts]) == good
    assert _read(columns.status, [b"200", b"\xff"], pa.binary()) == [200, "bad"]
    assert _read(columns.status, [decimal.Decimal("200")]) == [200]
    assert _read(columns.status, pa.nulls(2)) == [None, None]


def test_flag():
    assert _read(columns.flag, [True, False, None]) == [True, False, None]
    assert _read(columns.flag, [0, 1, 2, None]) == [False, True, "bad", None]
    assert _read(columns.flag, [0.0, 1.0, NAN, 0.5]) == [False, True, None, "bad"]
    words = ["true", "FALSE", " Yes", "n", "1", "0", "", "-", None, "maybe"]
    assert _read(columns.flag, words) == [True, False, True, False, True, False, None, None, None, "bad"]


def test_counts_are_fixed_point():
    one = round(1 / COUNT_UNIT)
    assert _read(columns.count, [0, 3, None]) == [0, 3 * one, 0]
    assert _read(columns.count, [1.5, NAN, INF, -INF, -1.0, -0.0]) == [
        one * 3 // 2,
        "bad",
        "bad",
        "bad",
        "bad",
        0,
    ]
    assert _read(columns.count, [2.0**40, 2.0**40 + 1]) == [one << 40, "bad"]
    texts = ["2", "0.25", "-1", "nan", "inf", "", None, "1,23", "1e3", "x"]
    assert _read(columns.count, texts) == [
        2 * one, one // 4, "bad", "bad", "bad", 0, 0, "bad", 1000 * one, "bad",
    ]  # fmt: skip
    assert _read(columns.count, [2**63 - 1]) == ["bad"]


GROUPED = [
    # Where the column does not say it otherwise, three digits behind one mark are a group.
    (["12,345", "7"], [12345, 7]),
    (["12.345", "7", None, ""], [12345, 7, 0, 0]),
    (["12\u202f345", "1 234", "1\u00a0234\u00a0567"], [12345, 1234, 1234567]),
    (["1'234", "1\u2019234,5"], [1234, 1234.5]),
    (["12,34,567", "1,23,456.5"], [1234567, 123456.5]),
    (["1.234,5", "12,5", "1.234", "1,234"], [1234.5, 12.5, 1234, 1.234]),
    (["12,345", "1,234,567", " +1,234.25 "], [12345, 1234567, 1234.25]),
    # It says that a point begins a fraction.
    (["12.345", "0.5"], [12.345, 0.5]),
    (["5.125", "0.125", "3.0"], [5.125, 0.125, 3]),
    # It says both.
    (["12,345", "12.345", "7"], ["bad", "bad", 7]),
    (["12,345", "0,5", "2.5", "1.234.567"], ["bad", "bad", 2.5, 1234567]),
    (["12,345", "1,234,567", "7,5"], ["bad", 1234567, "bad"]),
    # A fraction that no other number has, beside groups with the other mark.
    (["12.345", "1,234,567"], ["bad", 1234567]),
    (["12,345", "1.234.567"], ["bad", 1234567]),
    (["12,345", "1 234"], ["bad", 1234]),
    # A digit may be missing.
    (["12,34", "12,345", "7"], ["bad", "bad", 7]),
    (["12,34", "0,5", "1.234"], [12.34, 0.5, 1234]),
    (["1,2,3", "1,", ",5", "1,,234", "1, 234", "0,123,456", "-1,234", "1,234e3", "12,34,56"], ["bad"] * 9),
]  # fmt: skip


@pytest.mark.parametrize(("texts", "counts"), GROUPED)
def test_thousands_that_are_set_apart(texts, counts):
    one = round(1 / COUNT_UNIT)
    expected = [c if c == "bad" else round(c * one) for c in counts]
    assert _read(columns.count, texts) == expected
    assert _read(columns.count, pa.array(texts, pa.large_string())) == expected
    assert _read(columns.count, pa.array(texts * 3).slice(len(texts), len(texts))) == expected
    assert _read(columns.count, [t and t.encode() for t in texts]) == expected


def test_thousands_of_amounts_are_read_where_nothing_else_can_be_meant():
    assert _read(columns.amount, ["12,345", "1.250"]) == ["bad", "bad"]
    for text in ("1.250", "12,345", "12,34"):
        assert _read(columns.amount, [text, "7"]) == ["bad", 7]
    assert _read(columns.amount, ["1.250", "0.5", "12.34"]) == [1.25, 0.5, 12.34]
    assert _read(columns.amount, ["1,5", "0,5", "1,250"]) == [1.5, 0.5, 1.25]
    assert _read(columns.amount, ["1,234,567", "1,234", "2.5"]) == [1234567, 1234, 2.5]
    # A status is no number of people's.
    assert _read(columns.status, ["1,200", "200"]) == ["bad", 200]


def test_what_bad_counts_may_add_up_to():
    texts = pa.array(["12,345", "12.345", "1,234,56", "-5", "inf", "many", None, "7", "9" * 20])
    _, bad = columns.count(texts)
    assert columns.digits(texts, bad) * COUNT_UNIT == 2 * 12345 + 1234
    assert columns.digits(pa.array([1.0, NAN]), bad[:2]) == 0


def test_amounts():
    assert _read(columns.amount, [0.5, 0.0, None, NAN, -1.0, INF]) == [0.5, 0.0, None, "bad", "bad", "bad"]
    assert _read(columns.amount, ["1e-3", "", "NaN", "-0.1"]) == [1e-3, None, "bad", "bad"]


def test_invalid_utf8_is_found_row_by_row():
    good = pa.array(["ok", "é", None, ""])
    assert columns.invalid_utf8(good) is None
    mixed = pa.array([b"ok", b"\xff", None, "é".encode(), b"\xc3"] + [b"x"] * 3000, pa.binary()).view(
        pa.string()
    )
    assert columns.invalid_utf8(mixed).nonzero()[0].tolist() == [1, 4]
    assert columns.clean(mixed)[0].to_pylist()[:5] == ["ok", "\ufffd", None, "é", "\ufffd"]


@pytest.mark.parametrize("reader", [columns.status, columns.flag, columns.count, columns.amount])
def test_slices_do_not_show(reader):
    pool = [
        "200",
        "x",
        "",
        None,
        "1",
        "9" * 30,
        " 7 ",
        "nan",
        "https://a.test/",
        "d41d8cd98f00b204e9800998ecf8427e",
    ]
    array = pa.array((pool * 3)[:25])
    whole = _read(reader, array)
    for start in range(25):
        for length in (1, 3, 25):
            assert _read(reader, array.slice(start, length)) == whole[start : start + length]
