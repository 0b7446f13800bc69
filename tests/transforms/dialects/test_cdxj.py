"""CDXJ files and JSON answers of CDX servers."""

from __future__ import annotations

import gzip
import json
import tempfile
from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from tests.transforms.dialects.indexes import A, B, accounted, capture, folded
from tests.transforms.dialects.reading import PACKED_OR_UTF_16, read, solid, write
from transforms.batches.hashing import stable_hash
from transforms.dialects import detect
from transforms.files import unpacking

AT = datetime(2026, 1, 1, 2, 3, 4, tzinfo=UTC)
RECORD = {"url": "https://a.test/x", "mime": "text/html", "status": "200", "digest": A, "length": "512"}


def line(at: object = 20260101020304, key: str = "test,a)/x", **values: object) -> str:
    record = {name: value for name, value in (RECORD | values).items() if value is not None}
    return f"{key} {at} {json.dumps(record)}"


def bare(at: object = 20260101020304, key: str = "test,a)/x", **values: object) -> str:
    return f"{key} {at} {json.dumps(values)}"


# --- CDXJ ----------------------------------------------------------------------------------------------


def test_a_line_is_a_capture(tmp_path):
    text = "\n".join([line(), line(20260101020304123, status=404, url="https://a.test/100%")])
    found = read(write(tmp_path, text))
    assert found.forms == ["cdxj"]
    assert found.seen("url", "fetched_at", "status", "digest_hash") == [
        ("https://a.test/x", AT, 200, stable_hash(A)),
        ("https://a.test/100%", AT.replace(microsecond=123000), 404, stable_hash(A)),
    ]
    accounted(found, text)


@pytest.mark.parametrize(
    ("at", "seconds"),
    [("202601010203", 0), ("202601010203041", 4.1), ("2026010102030412", 4.12), ("20260101020304123", 4.123)],
)
def test_times_of_12_to_17_digits(tmp_path, at, seconds):
    found = read(write(tmp_path, "\n".join([line(), line(at)])))
    (_, (seen,)) = found.seen("fetched_at")
    assert seen.second + seen.microsecond / 1e6 == seconds


def test_bad_times_cost_their_line(tmp_path):
    found = read(
        write(tmp_path, "\n".join([line(), line(2026), line("20261301020304"), line("2026010102030")]))
    )
    assert found.reasons == [(2, "bad_timestamp"), (3, "bad_timestamp"), (4, "bad_timestamp")]


def test_copies_of_one_record_with_14_and_17_digits_are_one_capture(tmp_path):
    text = "\n".join([line(20260101020304123), line(), line(20260102020304, digest=B)])
    assert folded(write(tmp_path, text)) == {"baseline": 1, "duplicate": 1, "changed_undated": 1}


SHORT = {"u": "https://a.test/x", "m": "text/html", "d": A}


@pytest.mark.parametrize(
    "values",
    [
        {"url": "https://a.test/x", "status": 200, "digest": A},
        {"original": "https://a.test/x", "statuscode": "200", "mimetype": "text/html", "digest": A},
        {**SHORT, "s": "200"},
        {**SHORT, "s": 200},
        {**SHORT, "s": "200", "l": "512", "o": "0", "f": "a.warc.gz"},
        {"original_uri": "https://a.test/x", "status_code": "200", "payload_digest": A},
        {"original_uri": "https://a.test/x", "status_code": "200", "locator": f"urn:ipfs/Qm0/{A}"},
    ],
)
def test_fields_by_any_of_their_names(tmp_path, values):
    # Two lines of one block may name them differently.
    for text in (bare(**values), "\n".join([line(), bare(**values)]), "\n".join([bare(**values), line()])):
        found = read(write(tmp_path, text))
        expected = ("https://a.test/x", 200, stable_hash(A))
        assert found.seen("url", "status", "digest_hash") == [expected] * len(text.splitlines())


def test_the_short_s_is_a_length_where_nothing_else_is(tmp_path):
    lines = [bare(**SHORT, s="504", o="0"), bare(**SHORT, s="504", o="0", l="9")]
    assert read(write(tmp_path, "\n".join(lines))).seen("status") == [(None,), (504,)]
    # Read one by one as in one call.
    mixed = "\n".join([*lines, line(status=200), line(status="200")])
    assert read(write(tmp_path, mixed)).seen("status") == [(None,), (504,), (200,), (200,)]


def test_numbers_as_text_and_not_in_one_file(tmp_path):
    found = read(write(tmp_path, "\n".join(line(status=s) for s in ("200", 404, "-", None, "=", 410))))
    assert found.seen("status") == [(200,), (404,), (None,), (None,), (None,), (410,)]
    assert found.rejected == []


def test_revisits_without_status_or_digest(tmp_path):
    lines = [
        line(20260101000000),
        line(20260102000000, mime="warc/revisit", status=None),
        line(20260103000000, mime="warc/revisit", status=None, digest=None),
        line(20260104000000, mime="warc/revisit", status="-1", digest=B),
    ]
    text = "\n".join(lines)
    assert folded(write(tmp_path, text)) == {"baseline": 1, "unchanged": 2, "changed_undated": 1}


def test_headers_and_blank_lines_are_no_rows(tmp_path):
    heads = [
        '!context ["http://a.test"]',
        '!meta {"created": "2026"}',
        '@id {"uri": "x"}',
        "# x",
        "",
        " CDXJ urlkey",
    ]
    text = "\n".join([*heads, line(), *heads, line()])
    found = read(write(tmp_path, text))
    assert (found.forms, len(found.rows), found.rejected) == (["cdxj"], 2, [])


def test_blanks_and_braces_in_the_key(tmp_path):
    keys = ["test,a)/x y z", "test,a)/{x} 12 {y", "test,a)/2026 {", "test,a)/x\ty"]
    found = read(write(tmp_path, "\n".join(line(key=key) for key in keys)))
    assert found.seen("url", "fetched_at") == [("https://a.test/x", AT)] * 4
    found = read(write(tmp_path, f"{line()}\n{line().replace(' {', chr(9) + '{')}\n{json.dumps(RECORD)}\n"))
    assert (len(found.rows), found.reasons) == (2, [(3, "not_cdxj")])


GARBAGE = [
    "<urlopen error [Errno -3] Temporary failure in name resolution>",
    'test,a)/x 20260101020304 {"url": "https://a.test/x", "status": "20',
    'test,a)/x 20260101020304 {"url"="https://a.test/x"}',
    f"{line()}, {line()}",
    "test,a)/x 20260101020304 {} {}",
    'test,a)/x 20260101020304 ["https://a.test/x"]',
    "test,a)/ 20260101020304\tpart-0\t0\t275\t1",
    'test,a)/x 2026-01-01 {"url": "https://a.test/x"}',
]


@pytest.mark.parametrize("garbage", GARBAGE)
def test_text_between_lines_is_rejected_alone(tmp_path, garbage):
    text = "\n".join([line()] * 300 + [garbage] + [line()] * 300)
    found = read(write(tmp_path, text))
    assert (len(found.rows), found.reasons) == (600, [(301, "not_cdxj")])
    assert found.rejected[0]["sample"] == garbage[:200].strip()


def test_keys_stand_for_urls_where_there_are_none(tmp_path):
    keys = {
        "test,a)/x?y=1": "http://a.test/x?y=1",
        "(test,a,www,)/": "http://www.a.test/",
        "test,a:8080)/x": "http://a.test:8080/x",
        "a.test/x": "http://a.test/x",
        "192.0.2.1)/": "http://192.0.2.1/",
    }
    found = read(write(tmp_path, "\n".join(bare(key=key, status_code="200") for key in keys)))
    assert [url for (url,) in found.seen("url")] == list(keys.values())


def test_a_time_alone_has_no_url(tmp_path):
    found = read(
        write(tmp_path, '!keys ["memento_datetime_YYYYMMDDhhmmss"]\n20260101020304 {"rel": "memento"}\n')
    )
    assert found.reasons == [(2, "no_url")]


def test_what_is_no_visit_of_a_page_is_left_out(tmp_path):
    lines = [
        line(),
        line(url="dns:a.test", mime="text/dns"),
        line(url="urn:pageinfo:https://a.test/", mime="application/json"),
        line(url="https://a.test/robots.txt", mime="text/plain"),
        line(key="test,a)/x?__wb_method=POST&b=1"),
        line(url="https://a.test/x "),
    ]
    found = read(write(tmp_path, "\n".join(lines)))
    assert found.left_out == {"not_a_page": 2, "robots_txt": 1, "not_get": 1}
    # A blank at the end of a URL makes no other page.
    assert found.seen("url") == [("https://a.test/x",)] * 2


def test_an_escaped_url(tmp_path):
    raw = r'test,a)/x 20260101020304 {"url": "https:\/\/a.test\/\u00fc\"", "status": "200"}'
    assert read(write(tmp_path, raw)).seen("url") == [('https://a.test/ü"',)]


def test_a_stray_00(tmp_path):
    text = "\n".join([line(20000800241623), line()])
    assert read(write(tmp_path, text)).reasons == [(1, "bad_timestamp")]
    found = read(write(tmp_path, text), repair_cdx00="True")
    assert found.seen("fetched_at") == [(datetime(2000, 8, 24, 16, 23, tzinfo=UTC),), (AT,)]


MIXED = [
    line(),
    "",
    GARBAGE[0],
    line(status=404),
    "!x",
    line(key="a b"),
    GARBAGE[1],
    line(202601010203),
    bare(),
]


@pytest.mark.parametrize("end", ["\n", "\r\n"])
@pytest.mark.parametrize("chunk", [1, 50, 300, 8 << 20])
def test_nothing_depends_on_where_a_block_begins(tmp_path, monkeypatch, chunk, end):
    monkeypatch.setattr(unpacking, "CHUNK_BYTES", chunk)
    for name, packed in (("a.cdxj", bytes), ("a.cdxj.gz", gzip.compress)):
        found = read(write(tmp_path, packed(end.join(MIXED).encode()), name))
        assert found.seen("status") == [(200,), (404,), (200,), (200,), (None,)]
        assert found.reasons == [(3, "not_cdxj"), (7, "not_cdxj")]


def test_gzip_members_whose_last_line_has_no_end(tmp_path):
    packed = b"".join(gzip.compress(f"{line()}\n{line(status=s)}".encode()) for s in (404, 410, 304))
    assert len(read(write(tmp_path, packed)).rows) == 6


PARTS = [
    line(),
    line(status=1),
    line(202601),
    "{",
    "}",
    " {",
    '{"url": 1}',
    "!x",
    "2026 {",
    "\n",
    "\r",
    "\0",
    "[]",
]
BYTES = st.lists(
    st.sampled_from(PARTS) | st.binary(max_size=9).map(lambda b: b.decode("latin-1")), max_size=20
)


@settings(max_examples=80, deadline=None)
@given(BYTES)
def test_any_bytes_are_rows_left_out_or_rejected(parts):
    raw = solid("".join(parts).encode("utf-8" if len(parts) % 2 else "latin-1", "replace"))
    assume(not raw.startswith(PACKED_OR_UTF_16))
    with tempfile.TemporaryDirectory() as folder:
        found = read(write(Path(folder), raw, "a.cdxj"), form="cdxj")
    lines = [x for x in raw.removeprefix(b"\xef\xbb\xbf").split(b"\n") if x.strip()]
    rows = [x for x in lines if not x.startswith((b"!", b"@", b"#"))]
    assert len(rows) <= found.lines <= len(lines)
    assert sum(len(r["sample"]) for r in found.rejected) <= 200 * len(found.rejected)


# --- Answers of CDX servers -----------------------------------------------------------------------------

NAMES = ["urlkey", "timestamp", "original", "mimetype", "statuscode", "digest", "length"]
ROW = ["test,a)/x", "20260101020304", "https://a.test/x", "text/html", "200", A, "512"]
GONE = [*ROW[:4], "404", *ROW[5:]]


def lists(*rows: list[str]) -> str:
    """As servers write it: a row a line."""
    return "[" + ",\n ".join(map(json.dumps, rows)) + "]\n"


@pytest.mark.parametrize("names", [NAMES, ["url" if n == "original" else n for n in NAMES]])
def test_a_list_of_lists(tmp_path, names):
    rows = [names, ROW, GONE]
    texts = [
        lists(*rows),
        json.dumps(rows),
        json.dumps(rows, indent=1).replace("\n  ", " ").replace("\n ]", "]"),
    ]
    for text in texts:
        found = read(write(tmp_path, text))
        assert found.forms == ["cdx_json"]
        assert found.seen("url", "fetched_at", "status", "digest_hash") == [
            ("https://a.test/x", AT, 200, stable_hash(A)),
            ("https://a.test/x", AT, 404, stable_hash(A)),
        ]
        assert found.rejected == []


def test_fields_in_any_order_and_several_answers_in_one_file(tmp_path):
    text = lists(NAMES, ROW) + lists(["statuscode", "original", "timestamp"], ["404", ROW[2], ROW[1]])
    assert read(write(tmp_path, text)).seen("status", "fetched_at") == [(200, AT), (404, AT)]


def test_a_resume_key_comes_last(tmp_path):
    found = read(write(tmp_path, lists(NAMES, ROW, [], ["test%2Ca%29%2F+20260101020305"])))
    assert (len(found.rows), found.rejected, found.left_out) == (1, [], {"resume_key": 1})


@pytest.mark.parametrize("text", ["[]", "[]\n", "[\n]\n", "[[]]"])
def test_an_empty_answer(tmp_path, text):
    found = read(write(tmp_path, text), form="cdx_json")
    assert found.lines == 0


def test_rows_that_do_not_fit_are_rejected(tmp_path):
    text = lists(NAMES, ROW, ROW[:5], GONE).replace("]\n", ',\n17,\n"x",\n["cut off')
    found = read(write(tmp_path, text))
    assert found.seen("status") == [(200,), (404,)]
    assert found.reasons == [(3, "column_count"), (5, "bad_json"), (6, "bad_json"), (7, "bad_json")]
    assert found.rejected[0]["sample"].startswith("5 columns, expected 7: ")


def test_lists_without_names_are_read_by_what_they_look_like(tmp_path):
    found = read(write(tmp_path, lists(ROW, GONE, ["x", "y", "z"])), form="cdx_json")
    assert found.seen("status") == [(200,), (404,)]
    assert found.reasons == [(3, "bad_json")]


PYWB = {"urlkey": "test,a)/x", "timestamp": "20260101020304", **RECORD}


def test_an_object_a_line(tmp_path):
    lines = [PYWB, PYWB | {"status": "-", "mime": "warc/revisit"}, {**PYWB, "timestamp": "20260101020304123"}]
    text = "\n".join(map(json.dumps, lines))
    found = read(write(tmp_path, text))
    assert found.forms == ["cdx_json"]
    assert found.seen("url", "status") == [("https://a.test/x", s) for s in (200, None, 200)]
    array = "[" + ",\n".join(map(json.dumps, lines)) + "]"
    assert read(write(tmp_path, array), form="cdx_json").rows == found.rows
    one_line = json.dumps(lines)
    assert read(write(tmp_path, one_line), form="cdx_json").rows == found.rows


def test_objects_that_are_none(tmp_path):
    posts = PYWB | {"urlkey": "test,a)/x?__wb_method=POST"}
    no_time = {k: v for k, v in PYWB.items() if k != "timestamp"}
    text = "\n".join([*map(json.dumps, [PYWB, posts, no_time]), "{", "text", json.dumps(PYWB)])
    found = read(write(tmp_path, text))
    assert len(found.rows) == 2
    assert found.left_out == {"not_get": 1}
    assert found.reasons == [(3, "bad_timestamp"), (4, "bad_json"), (5, "bad_json")]


@pytest.mark.parametrize("chunk", [1, 60, 400])
def test_answers_do_not_depend_on_blocks(tmp_path, monkeypatch, chunk):
    monkeypatch.setattr(unpacking, "CHUNK_BYTES", chunk)
    assert read(write(tmp_path, lists(NAMES, ROW, GONE))).seen("status") == [(200,), (404,)]
    text = "\n".join(json.dumps(PYWB | {"status": s}) for s in ("200", "404"))
    assert read(write(tmp_path, text)).seen("status") == [(200,), (404,)]


JSON_PARTS = [
    lists(NAMES, ROW),
    json.dumps(PYWB),
    json.dumps(ROW),
    "[[",
    "]]",
    "[",
    "{",
    "]",
    ",",
    "\n",
    '"',
    "17",
]


@settings(max_examples=80, deadline=None)
@given(st.lists(st.sampled_from(JSON_PARTS) | st.text(max_size=4), max_size=15))
def test_any_answer_is_rows_left_out_or_rejected(parts):
    raw = solid("".join(parts).encode("utf-8", "surrogatepass"))
    with tempfile.TemporaryDirectory() as folder:
        found = read(write(Path(folder), raw), form="cdx_json")
    assert found.lines <= raw.count(b"\n") + raw.count(b",") + raw.count(b"[") + 1


# --- Which is which --------------------------------------------------------------------------------------


def test_no_other_format_is_taken_for_an_index(tmp_path):
    others = {
        "canonical.jsonl": '{"url":"https://a.test/x","fetched_at":"2026-01-01","timestamp":"x","digest":"A"}\n',
        "canonical.csv": "url,fetched_at,status\nhttps://a.test/x,20260101020304,200\n",
        "blanks.csv": "url,fetched_at\nhttps://a.test/x 20260101020304 y,2026-01-01\n",
        "feed.json": '[{"url":"https://a.test/x","fetched_at":"2026-01-01"}]\n',
        "seconds.jl": '{"url":"https://a.test/x","timestamp":1767225600,"digest":"A","mime":"text/html"}\n',
        "scrapy.jl": '{"url":"https://a.test/x","fetched_at":"2026-01-01T02:03:04+01:00","timestamp":1}\n',
    }
    for name, text in others.items():
        assert detect("observations", name, text.encode()) in (None, "scrapy"), name
    log = "2026-01-01T02:03:05.010Z   200       5120 https://a.test/x L https://a.test/ text/html #012 "
    log += f"20260101020304500+310 sha1:{A} - -\n"
    assert read(write(tmp_path, log, "crawl.log")).forms == ["heritrix"]
    assert read(write(tmp_path, capture())).forms == ["cdx"]
