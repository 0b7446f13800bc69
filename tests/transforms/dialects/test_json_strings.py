"""Objects read by their quotes: a JSON reader must find the same in each of them."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.transforms.dialects.reading import read, write
from transforms.dialects import cdxj
from transforms.dialects.json_captures import FIELDS
from transforms.dialects.json_strings import Plain, read_plain

RECORD = {
    "url": "https://a.test/x",
    "mime": "text/html",
    "status": "200",
    "digest": "A" * 32,
    "length": "512",
}
NAMES = {name for names in FIELDS.values() for name in names}


def line(record: object = RECORD, **style: object) -> str:
    return f"test,a)/x 20260101020304 {json.dumps(record, **style)}"


def plain(text: str | bytes) -> tuple[list[int], list[dict[str, str | None]]]:
    block = text if isinstance(text, bytes) else text.encode()
    data = np.frombuffer(block, np.uint8)
    end = np.flatnonzero(data == 10)
    if len(data) and data[-1] != 10:
        end = np.append(end, len(data))
    found = read_plain(block, end, FIELDS)
    assert [block[b : b + 2] for b in found.brace.tolist()] == [b'{"'] * len(found.index)
    rows = zip(*(found.columns[name].to_pylist() for name in FIELDS), strict=True)
    return found.index.tolist(), [dict(zip(FIELDS, row, strict=True)) for row in rows]


def test_wanted_fields_of_plain_objects_in_any_order_and_spacing():
    others = {"mime-detected": "text/html", "languages": "eng", "filename": "a.warc.gz", "a": ""}
    text = "\n".join(
        [
            line(),
            line(separators=(",", ":")),
            line(others | RECORD),
            'no object here, but "quotes"',
            line(dict(reversed(RECORD.items()))),
            line({"digest": "B"}),
            line({"charset": "UTF-8"}),
        ]
    )
    index, rows = plain(text)
    assert index == [0, 1, 2, 4, 5, 6]
    whole = {name: RECORD[name] for name in FIELDS}
    assert rows == [whole] * 4 + [dict.fromkeys(FIELDS) | {"digest": "B"}, dict.fromkeys(FIELDS)]


@pytest.mark.parametrize(
    "odd",
    [
        line(RECORD | {"status": 200}),
        line(RECORD | {"title": 'a "b"'}),
        line(RECORD | {"title": "caf\u00e9"}),
        line(RECORD | {"title": "caf\u00e9"}, ensure_ascii=False),
        line(RECORD | {"title": None}),
        line(RECORD | {"title": {"a": "b"}}),
        line(RECORD | {"title": ["a"]}),
        *[line(RECORD | {name: "x"}) for name in sorted(NAMES - set(FIELDS))],
        line()[:-1],
        line()[:-9],
        line() + " ",
        line() + "}",
        line() + line(),
        line().replace('"url"', '"url","status"'),
        line().replace(', "mime"', '  , "mime"'),
        line().replace(', "mime"', ',, "mime"'),
        line().replace(', "mime"', ': "mime"'),
        line().replace('"url":', '"url",'),
        line().replace('"url": ', '"url": x'),
        line().replace("{", "{ "),
        line().replace("text/html", "text\thtml"),
        line().replace('"mime": "text/html"', '"url": "https://b.test/"'),
        line().replace('"length": "512"', '"length": "512",'),
        line().replace('"length": "512"', '"length": "512", "x"'),
        'key"quoted" ' + line(),
        "{}",
        "",
    ],
)
def test_what_is_not_plain_is_left_alone_and_leaves_its_neighbours(odd):
    assert plain("\n".join([line(), odd, line()]))[0] == [0, 2]
    assert plain(odd)[0] == []


SIGNS = [
    '"',
    '"',
    '": "',
    '", "',
    '":"',
    '","',
    "{",
    "}",
    '{"',
    '"}',
    ":",
    ",",
    " ",
    "\\",
    "\\u0041",
    "\t",
    "\r",
]
WORDS = ["url", "mime", "status", "digest", "length", "s", "original", "sha", "offset", "o", "l", "1", "null"]
VALUES = ["https://a.test/", "200", "warc/revisit", "\u00e9", "x" * 40]
TOKENS = st.sampled_from([*SIGNS, *WORDS, *VALUES])
RECORDS = st.dictionaries(
    st.sampled_from([*sorted(NAMES), "length", "offset", "o", "l", "charset"]),
    st.sampled_from(
        ["https://a.test/x", "200", "-", "warc/revisit", "\u00e9", 'q"q', "", 200, None, 1.5, ["x"]]
    ),
    max_size=6,
)
OBJECTS = st.one_of(
    st.lists(TOKENS, max_size=14).map("".join),
    st.lists(TOKENS, max_size=8).map(lambda t: '{"url": "https://a.test/"' + "".join(t) + "}"),
    st.builds(json.dumps, RECORDS, separators=st.sampled_from([(", ", ": "), (",", ":"), (" , ", " : ")])),
)
KEYS = st.sampled_from(
    [
        "test,a)/x",
        "test,a)/x?{",
        "test,a)/x 20260101000000 {",
        'test,a)/"',
        "test,a)/?__wb_method=post",
        "",
        "!a",
    ]
)
LINES = st.builds("{} {} {}{}".format, KEYS, st.sampled_from(["20260101020304", "20260101020304123", "2026"]), OBJECTS, st.sampled_from(["", "", " ", "\r"]))  # fmt: skip


@settings(max_examples=80, deadline=None)
@given(st.lists(st.one_of(LINES, st.just(line())), min_size=1, max_size=6))
@example(
    [line({"url": "https://a.test/x", "status": "200"}), line({"url": "https://a.test/x", "status": 200})]
)
@example(["test,a)/?__wb_method=post 20260101020304 ", line()])
def test_a_json_reader_finds_the_same(tmp_path_factory, lines):
    folder = tmp_path_factory.mktemp("plain")
    path = write(
        folder, "\n".join(text.replace("\n", " ") for text in lines).encode("utf-8", "replace"), "a.cdxj"
    )
    quick = read(path, form="cdxj")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cdxj, "read_plain", _none)
        slow = read(path, form="cdxj")
    assert quick.rows == slow.rows
    assert quick.reasons == slow.reasons
    assert quick.left_out == slow.left_out


def _none(block, end, fields):
    found = read_plain(b"", np.empty(0, np.int64), fields)
    assert isinstance(found, Plain)
    return found
