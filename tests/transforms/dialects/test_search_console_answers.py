"""Answers of Search Console's API, as scripts store them."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.transforms.dialects.reading import Read, read, write
from transforms.batches import schemas
from transforms.batches.errors import InputError
from transforms.batches.tally import Counts
from transforms.dialects import detect, search_console_answers
from transforms.files.blocks import How
from transforms.intake.sources import plan_files, read_split
from transforms.rows.normalise import KINDS

DAY = 20634  # 2026-06-30
PAGES = ["https://shop.test/p/1", 'https://shop.test/{a}?q="b"]&c=\\', "https://shop.test/é/中"]


def one(*keys: Any, clicks: Any = 3.0, impressions: Any = 40) -> dict[str, Any]:
    return {"keys": list(keys), "clicks": clicks, "impressions": impressions, "ctr": 0.1, "position": 2.2}


def answer(rows: list[dict[str, Any]]) -> dict[str, Any]:
    return {"rows": rows, "responseAggregationType": "byPage"}


def counts(found: Read) -> list[tuple[str, int, float, float]]:
    unit = schemas.COUNT_UNIT
    return [(r["url"], r["day"], r["clicks"] * unit, r["impressions"] * unit) for r in found.rows]


ROWS = [one("2026-06-30", page, clicks=i) for i, page in enumerate(PAGES)]
EXPECTED = [(page, DAY, i, 40) for i, page in enumerate(PAGES)]
WHOLE = json.dumps(answer(ROWS))
SHAPES = {
    "one line": WHOLE,
    "laid out": json.dumps(answer(ROWS), indent=2),
    "no ASCII": json.dumps(answer(ROWS), ensure_ascii=False),
    "rows": json.dumps(ROWS),
    "rows laid out": json.dumps(ROWS, indent="\t").replace("\n", "\r\n"),
    "a row a line": "".join(json.dumps(row) + "\n" for row in ROWS),
    "an answer a line": "".join(json.dumps(answer([row])) + "\n" for row in ROWS),
    "a list of answers": json.dumps([answer(ROWS[:1]), answer(ROWS[1:])], indent=1),
    "about": json.dumps({"metadata": {"firstIncompleteDate": "2026-06-29"}} | answer(ROWS)),
    "mark": "\ufeff" + WHOLE,
}


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("size", [7, 64, 1 << 20])
def test_all_shapes_have_the_same_rows(shape: str, packed: bool, size: int, tmp_path: Path, monkeypatch):
    """However the file is cut into pieces."""
    monkeypatch.setattr(search_console_answers, "CHUNK_BYTES", size)
    monkeypatch.setattr("transforms.dialects.search_console.stored", lambda path: _pieces(path, size))
    data = SHAPES[shape].encode()
    found = read(
        write(tmp_path, gzip.compress(data) if packed else data, "gsc.json" + ".gz" * packed), "requests"
    )
    assert found.forms == ["search_console"]
    assert (counts(found), found.rejected) == (EXPECTED, [])


def _pieces(path: str, size: int) -> Any:
    data = Path(path).read_bytes()
    return (data[i : i + size] for i in range(0, len(data), size))


@pytest.mark.parametrize(
    "keys",
    [
        ("https://shop.test/p/1", "2026-06-30"),
        ("shoes", "https://shop.test/p/1", "deu", "2026-06-30", "MOBILE"),
        ("2026-06-30", "https://shop.test/p/1", "shoes"),
    ],
)
def test_keys_are_told_by_what_they_hold(keys: tuple[str, ...], tmp_path: Path):
    """Whatever their order; a search for a URL or a day among others changes nothing."""
    rows = [one(*keys) for _ in range(3)]
    if "shoes" in keys:
        rows[1]["keys"][keys.index("shoes")] = "https://other.test/"
        rows[2]["keys"][keys.index("shoes")] = "2026-01-01"
    found = read(write(tmp_path, json.dumps(answer(rows))), "requests")
    assert counts(found) == [("https://shop.test/p/1", DAY, 3, 40)] * 3


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        (("2026-06-30",), "which key is the page"),
        (("2026-06-30", "shoes"), "which key is the page"),
        (("https://shop.test/", "https://other.test/"), "which key is the page"),
        (("https://shop.test/", "2026-06-30", "2026-06-29"), "which key is the date"),
        ((), "which key is the page"),
    ],
)
def test_what_keys_do_not_tell_is_refused(keys: tuple[str, ...], said: str, tmp_path: Path):
    with pytest.raises(InputError, match=f"{said}. Ask it for the dimensions date and page"):
        read(write(tmp_path, json.dumps(answer([one(*keys)]))), "requests")


def test_rows_without_a_date_count_on_the_day_that_is_told(tmp_path: Path):
    text = json.dumps(answer([one(page) for page in PAGES]))
    with pytest.raises(InputError, match="--requests_day 2026-06-30"):
        read(write(tmp_path, text, "pages.json"), "requests")
    told = read(write(tmp_path, text, "pages.json"), "requests", requests_day="2026-06-30")
    assert counts(told) == [(page, DAY, 3, 40) for page in PAGES]
    assert counts(read(write(tmp_path, text, "pages-2026-06-29.json"), "requests"))[0][1] == DAY - 1
    # Rows with dates have theirs.
    dated = read(write(tmp_path, WHOLE, "x-2026-06-29.json"), "requests", requests_day="2026-06-28")
    assert counts(dated) == EXPECTED


@pytest.mark.parametrize(
    "text", ['{"responseAggregationType":"byPage"}', '{\n "responseAggregationType": "byPage"\n}\n']
)
def test_a_day_without_rows_is_no_error(text: str, tmp_path: Path):
    found = read(write(tmp_path, text), "requests")
    assert (found.forms, found.lines) == (["search_console"], 0)


def test_what_is_wrong_is_rejected_where_it_stands(tmp_path: Path):
    rows = [
        one("2026-06-30", PAGES[0]),
        one("2026-06-30"),
        one("30 June", PAGES[0]),
        one("2026-06-30", "android-app://shop.test/"),
        one("2026-06-30", PAGES[0], clicks="many"),
        one("2026-06-30", PAGES[0], clicks=None, impressions=None),
        one("2026-06-30", None),
        {"keys": ["2026-06-30", PAGES[0]]},
        {"error": {"code": 403}},
        one("2026-06-30", PAGES[0], impressions=float("nan")),
    ]
    found = read(write(tmp_path, "".join(json.dumps(row) + "\n" for row in rows)), "requests")
    assert [r["url"] for r in found.rows] == [PAGES[0], PAGES[0]]
    assert found.reasons == [
        (2, "column_count"),
        (3, "bad_timestamp"),
        (4, "bad_url"),
        (5, "bad_clicks"),
        (7, "no_url"),
        (8, "bad_json"),
        (9, "bad_json"),
        (10, "bad_impressions"),
    ]


@pytest.mark.parametrize(
    ("text", "rows", "reasons"),
    [
        (WHOLE[:-1], 3, [(1, "truncated_file")]),
        (WHOLE[: WHOLE.rindex("https")], 2, [(1, "truncated_file")]),
        (WHOLE + "\n" + WHOLE[:70], 3, [(2, "truncated_file")]),
        # A string that is not closed ends with its line.
        (WHOLE.replace('"ctr"', '"ctr', 1) + "\n" + WHOLE, None, None),
        (WHOLE + "\n!\n" + WHOLE, 6, [(2, "bad_json")]),
        (WHOLE + "\n\xff\xff\n", 3, [(2, "bad_json")]),
        (WHOLE + '\n{"error": {"code": 403, "errors": [{"reason": "quota"}]}}', 3, [(2, "bad_json")]),
    ],
)
def test_damage_costs_no_more_than_its_line(text: str, rows: int | None, reasons: Any, tmp_path: Path):
    found = read(write(tmp_path, text.encode("latin-1", "replace")), "requests")
    if rows is not None:
        assert (len(found.rows), found.reasons) == (rows, reasons)
    else:
        assert (
            len(found.rows) >= 3 and {reason for _, reason in found.reasons} <= {"bad_json"} and found.reasons
        )


def test_what_is_longer_than_a_row_may_be_is_not_held(tmp_path: Path, monkeypatch):
    monkeypatch.setattr(search_console_answers, "MAX_ROW_BYTES", 1000)
    monkeypatch.setattr(search_console_answers, "CHUNK_BYTES", 100)
    monkeypatch.setattr("transforms.dialects.search_console.stored", lambda path: _pieces(path, 100))
    text = json.dumps(ROWS[0]) + "\n" + json.dumps(one("2026-06-30", "x" * 3000)) + "\n" + json.dumps(ROWS[1])
    found = read(write(tmp_path, text), "requests")
    assert counts(found) == EXPECTED[:2]
    assert (2, "line_too_long") in found.reasons and {line for line, _ in found.reasons} == {2}


@pytest.mark.parametrize(("rows", "cut"), [(999, 0), (1000, 1), (25_000, 1)])
def test_as_many_rows_as_an_answer_has_at_most_are_told(rows: int, cut: int, tmp_path: Path):
    path = write(
        tmp_path, json.dumps(answer([one("2026-06-30", f"https://shop.test/{i}") for i in range(rows)]))
    )
    notes = Counts()
    [split] = plan_files(str(path), "requests", how=How())
    assert sum(b.num_rows for _, b in read_split(split, KINDS["requests"], notes=notes)) == rows
    assert notes.totals().get("requests_gsc_truncated", 0) == cut


@pytest.mark.parametrize(
    "text",
    [
        '{"url":"https://shop.test/","day":"2026-06-30","clicks":1,"keys":"a"}',
        '{"rows":[{"url":"https://shop.test/","clicks":1}]}',
        '{"keys":["a"]}',
        "{" * 1000,
        '{"' * 1000,
        "[]",
    ],
)
def test_other_json_is_not_claimed(text: str):
    assert detect("requests", "a.json", text.encode()) is None


_PARTS = st.sampled_from(
    [
        *(json.dumps(row) for row in ROWS),
        WHOLE,
        "{",
        "}",
        "[",
        "]",
        '"',
        "\\",
        ",",
        ":",
        "\n",
        "1",
        "é",
        "{}",
        "null",
    ]
)


@settings(deadline=None, max_examples=80, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(_PARTS, max_size=30).map("".join), st.sampled_from([1, 7, 1000]))
def test_pieces_do_not_matter_and_rows_are_never_lost(tmp_path: Path, monkeypatch, text: str, size: int):
    """The same rows and reasons however a file is cut, and every whole row of its own line is there."""
    path = write(tmp_path, (json.dumps(ROWS[0]) + "\n" + text + "\n" + json.dumps(ROWS[1])).encode())
    seen = []
    for piece in (size, 1 << 20):
        monkeypatch.setattr(search_console_answers, "CHUNK_BYTES", piece)
        monkeypatch.setattr(
            "transforms.dialects.search_console.stored", lambda path, n=piece: _pieces(path, n)
        )
        found = read(path, "requests", "search_console")
        seen.append((counts(found), found.reasons))
    assert seen[0] == seen[1]
    rows, reasons = seen[0]
    assert rows[0] == EXPECTED[0]
    assert rows[-1] == EXPECTED[1] or reasons
