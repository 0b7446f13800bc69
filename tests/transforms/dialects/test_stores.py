"""Stores that keep the current state of a page: StormCrawler's status documents, URLFrontier's dumps."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.transforms.dialects.reading import read, write
from transforms.dialects import stormcrawler, urlfrontier
from transforms.files import unpacking

DUE = "2026-01-02T03:04:00.000Z"
DUE_AT = datetime(2026, 1, 2, 3, 4, tzinfo=UTC)


def status(url: str, status: str = "FETCHED", due: str | None = DUE, **metadata: str) -> dict:
    kept = {k.replace("fetch_", "fetch%2E"): [v] for k, v in metadata.items()}
    return {"url": url, "status": status, "key": "shop.test", "metadata": kept} | (
        {"nextFetchDate": due} if due else {}
    )


DOCUMENTS = [
    # A 304 that keeps two different signatures is no change.
    status("https://shop.test/1", fetch_statusCode="304", signature="9e10", signatureOld="41d8",
           lastProcessedDate="2026-01-01T03:04:05.123Z", fetchInterval="1440"),
    status("https://shop.test/2", fetch_statusCode="200", signature="9e10", fetchInterval="1440"),
    status("https://shop.test/3", "REDIRECTION", fetchInterval="60"),
    status("https://shop.test/4", "FETCH_ERROR", fetchInterval="60"),
    status("https://shop.test/5", "ERROR", due=None),  # never again: no time at all
    status("https://shop.test/6", "DISCOVERED"),
]  # fmt: skip
DUMP = "".join(json.dumps(d) + "\n" for d in DOCUMENTS)
SEEN = [
    ("https://shop.test/1", datetime(2026, 1, 1, 3, 4, 5, 123_000, tzinfo=UTC), None),
    ("https://shop.test/2", DUE_AT - timedelta(days=1), 200),
    ("https://shop.test/3", DUE_AT - timedelta(hours=1), 301),
    ("https://shop.test/4", DUE_AT - timedelta(hours=1), 599),
]


@pytest.mark.parametrize("shape", ["bare", "source", "hits", "array"])
def test_status_documents_in_every_wrapping(tmp_path, shape):
    wrapped = [{"_index": "status", "_id": "0", "_source": d} for d in DOCUMENTS]
    text = {
        "bare": DUMP,
        "source": "".join(json.dumps(d) + "\n" for d in wrapped),
        "hits": json.dumps({"took": 1, "hits": {"total": 6, "hits": wrapped}}),
        "array": "[\n" + ",\n".join(json.dumps(d) for d in DOCUMENTS) + "\n]\n",
    }[shape]
    found = read(write(tmp_path, text))
    assert found.forms == ["stormcrawler"]
    assert found.seen("url", "fetched_at", "status") == SEEN
    assert [r["digest_hash"] is None for r in found.rows] == [False, False, True, True]
    assert [r["not_modified"] for r in found.rows] == [True, False, False, False]
    assert found.left_out == {"never_fetched": 1, "no_fetch_time": 1} and not found.rejected


def test_what_is_no_status_document_is_rejected_with_its_line(tmp_path):
    other = '{"url": "https://shop.test/7", "status": "LOST"}\n{"status": "FETCHED"}\nno json\n'
    found = read(write(tmp_path, DUMP + other))
    assert found.seen("url", "fetched_at", "status") == SEEN
    assert found.reasons == [(7, "not_stormcrawler"), (8, "not_stormcrawler"), (9, "bad_json")]


def test_far_future_dates_and_lists_of_nothing(tmp_path):
    far = status("https://shop.test/1", due="2099-12-31T00:00:00Z", fetchInterval="-1")
    empty = status("https://shop.test/2") | {"metadata": {"fetchInterval": [], "signature": None}}
    none = {"url": "https://shop.test/3", "status": "FETCHED", "nextFetchDate": DUE}
    found = read(write(tmp_path, "".join(json.dumps(d) + "\n" for d in (far, empty, none))))
    assert found.left_out == {"no_fetch_time": 3} and found.lines == 3


def test_what_an_earlier_fetch_left_behind_is_not_of_one_that_failed_or_was_redirected(tmp_path):
    # The topology keeps metadata.persist of the last answer: a time-out has the code and signature before it.
    left = {"lastProcessedDate": "2026-01-01T03:04:05.123Z", "signature": "9e10"}
    documents = [
        status("https://shop.test/1", "FETCH_ERROR", fetch_statusCode="200", **left),
        status("https://shop.test/2", "ERROR", fetch_statusCode="304", **left),
        status("https://shop.test/3", "FETCH_ERROR", fetch_statusCode="503", **left),
        status("https://shop.test/4", "REDIRECTION", fetch_statusCode="301", **left),
        # A status says more than a count that somebody forgot to remove.
        status("https://shop.test/5", "FETCHED", fetch_statusCode="200", **left)
        | {"metadata": {"fetch%2Eerror%2Ecount": ["2"], "fetch%2EstatusCode": ["200"], **left}},
    ]
    found = read(write(tmp_path, "".join(json.dumps(d) + "\n" for d in documents)))
    assert [r["status"] for r in found.rows] == [599, 599, 503, 301, 200]
    assert not any(r["not_modified"] for r in found.rows)
    assert found.rows[3]["digest_hash"] is None

    # URLFrontier has no status, but StormCrawler's count of failures.
    kept = item("https://shop.test/1", fetch_statusCode="200", fetch_error_count="1", **left)
    found = read(write(tmp_path, json.dumps(kept).replace("fetch%2Eerror_count", "fetch.error.count") + "\n"))
    assert [r["status"] for r in found.rows] == [599]


def item(url: str, due: object = "1767225600", **metadata: str) -> dict:
    info = {"url": url, "key": "shop.test", "crawlID": "DEFAULT"}
    info["metadata"] = {k.replace("fetch_", "fetch%2E"): {"values": [v]} for k, v in metadata.items()}
    return {"known": {"info": info} | ({} if due is None else {"refetchableFromDate": due})}


FRONTIER = (
    "".join(
        json.dumps(r) + "\n"
        for r in (
            item("https://shop.test/1", signature="9e10", fetchInterval="1440", fetch_statusCode="200"),
            item("https://shop.test/2", lastProcessedDate="2026-01-01T03:04:05.123Z", due=None),
            item("https://shop.test/3", 0, fetchInterval="60"),  # never due again
            item("https://shop.test/4", section="price"),
            {"discovered": {"info": {"url": "https://shop.test/5"}}},
            {"url": "https://shop.test/6", "key": "shop.test"},  # refused by URLFrontier, too
        )
    )
    + "https://shop.test/7\n"
)


def test_answers_of_a_scroll_a_line_each(tmp_path):
    """The last one is empty."""
    answers = [{"_scroll_id": "x", "hits": {"hits": [{"_source": d}]}} for d in DOCUMENTS]
    answers.append({"_scroll_id": "x", "hits": {"hits": []}})
    whole = read(write(tmp_path, DUMP))
    found = read(write(tmp_path, "".join(json.dumps(answer) + "\n" for answer in answers)))
    assert (found.rows, found.left_out, found.reasons) == (whole.rows, whole.left_out, whole.reasons)


def test_a_dump_of_urlfrontier(tmp_path):
    found = read(write(tmp_path, FRONTIER))
    assert found.forms == ["urlfrontier"]
    assert found.seen("url", "fetched_at", "status") == [
        ("https://shop.test/1", datetime(2025, 12, 31, tzinfo=UTC), 200),
        ("https://shop.test/2", datetime(2026, 1, 1, 3, 4, 5, 123_000, tzinfo=UTC), 200),
    ]
    assert found.left_out == {"never_fetched": 2, "no_fetch_time": 2}
    assert found.reasons == [(6, "not_urlfrontier")]


def test_seconds_may_be_numbers_and_names_as_in_the_protocol(tmp_path):
    one = item("https://shop.test/1", 1767225600, fetchInterval="1440")
    two = item("https://shop.test/1", None, fetchInterval="1440")
    two["known"]["refetchable_from_date"] = 1767225600
    found = read(write(tmp_path, json.dumps(one) + "\n" + json.dumps(two) + "\n"))
    assert len({str(r) for r in found.rows}) == 1 and found.lines == 2


ALL = [f"https://shop.test/{i}" for i in range(1, 8)]


@pytest.mark.parametrize("shape", ["bare", "source", "hits"])
def test_a_status_index_lists_all_its_pages(tmp_path, shape):
    wrapped = [{"_source": d} for d in DOCUMENTS]
    text = {
        "bare": DUMP,
        "source": "".join(json.dumps(d) + "\n" for d in wrapped),
        "hits": json.dumps({"hits": {"hits": wrapped}}),
    }[shape] + '\n{"url": "https://shop.test/7", "status": "LOST"}\n'
    found = read(write(tmp_path, text), "pages")
    assert found.forms == ["stormcrawler"] and not found.left_out
    assert [row["url"] for row in found.rows] == ALL[:6]
    assert [reason for _, reason in found.reasons] == ["not_stormcrawler"]
    assert found.rows[0]["importance"] is None


def test_a_dump_of_urlfrontier_lists_all_its_pages(tmp_path):
    long = "https://shop.test/" + "7" * 500  # longer than a sample of a rejected row
    found = read(write(tmp_path, "https://shop.test/0\n" + FRONTIER + long + "\nno url\n"), "pages")
    assert found.forms == ["urlfrontier"] and not found.left_out
    assert {row["url"] for row in found.rows} == {"https://shop.test/0", *ALL[:5], ALL[6], long}
    assert found.reasons == [(7, "not_urlfrontier"), (10, "bad_json")]


def test_a_list_of_pages_with_a_status_is_no_dump(tmp_path):
    path = write(tmp_path, '{"url": "https://a.test/", "status": "FETCHED", "importance": 2}\n', "p.jsonl")
    found = read(path, "pages")
    assert found.forms == ["jsonl"] and found.seen("importance", "status") == [(2.0, "FETCHED")]


@pytest.mark.parametrize("kind", ["observations", "pages"])
@pytest.mark.parametrize("size", [150, 400])
@pytest.mark.parametrize("text", [DUMP, FRONTIER], ids=["stormcrawler", "urlfrontier"])
def test_where_a_block_begins_does_not_matter(tmp_path, monkeypatch, size, text, kind):
    path = write(tmp_path, text)
    whole = read(path, kind)
    monkeypatch.setattr(unpacking, "CHUNK_BYTES", size)
    parts = read(path, kind)
    assert (parts.rows, parts.reasons, parts.left_out) == (whole.rows, whole.reasons, whole.left_out)


def test_they_are_told_apart_and_no_other_is_taken_for_them():
    assert stormcrawler.looks_like("x", DUMP.encode()) and urlfrontier.looks_like("x", FRONTIER.encode())
    assert not stormcrawler.looks_like("x", FRONTIER.encode())
    assert not urlfrontier.looks_like("x", DUMP.encode())
    for other in (b'{"url":"https://a.test/","status":200}\n', b"url,fetched_at\n", b"", b"\0\1"):
        assert not stormcrawler.looks_like("x", other) and not urlfrontier.looks_like("x", other)


def test_a_list_of_bare_urls_lists_pages(tmp_path):
    """Which URLFrontier's client takes for pages that were found; as it lists them for people they are not."""
    path = write(tmp_path, "\ufeff\n" + "".join(f"{url}\r\n" for url in ALL) + "\n", "urls.txt")
    found = read(path, "pages")
    assert (found.forms, [row["url"] for row in found.rows]) == (["urlfrontier"], ALL) and not found.rejected
    assert urlfrontier.PAGES.looks_like("x", "\n".join([*ALL, "htt"]).encode())
    for text in (
        "url\n" + ALL[0],
        f"{ALL[0]}\n{ALL[1]} 2\n",
        f"{ALL[0]},1\n{ALL[1]},2\n",
        f"{ALL[0]};1767225600\n{ALL[1]};0\n",
        "",
        "htt",
    ):
        assert not urlfrontier.PAGES.looks_like("x", text.encode())
    assert not urlfrontier.looks_like("x", path.read_bytes())


def test_fields_of_an_item_come_in_any_order(tmp_path):
    known = {"refetchableFromDate": "1767225600"} | item("https://shop.test/1", fetchInterval="60")["known"]
    found = read(write(tmp_path, json.dumps({"ID": "DEFAULT_1", "known": known}, indent=None) + "\n"))
    assert (found.forms, len(found.rows)) == (["urlfrontier"], 1)
    assert not urlfrontier.looks_like("x", b'{"known":{"pages":3}}') and not urlfrontier.looks_like(
        "x", b"[1]"
    )


LINES = [*DUMP.splitlines(), *FRONTIER.splitlines(), "null", "[]", "[1]", '{"metadata": 3}', '{"known": []}']
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["url", "status", "metadata", "_source", "known", "info", "values", "signature"]),
            inner,
            max_size=4,
        )
    ),
    max_leaves=8,
)


@settings(max_examples=80, deadline=None)
@given(
    st.lists(st.one_of(st.sampled_from(LINES), VALUES.map(json.dumps), st.text(max_size=20)), max_size=6),
    st.sampled_from(["stormcrawler", "urlfrontier"]),
    st.sampled_from(["observations", "pages"]),
)
def test_any_lines_are_accounted_for(tmp_path_factory, lines, form, kind):
    lines = [line.replace("\n", " ").replace("\r", " ").lstrip("\0") for line in lines]
    text = "\n".join(lines).encode("utf-8", "replace")
    found = read(write(tmp_path_factory.mktemp("fuzz"), text), kind, form)
    least = sum(line.strip(" \t,[]") != "" for line in lines)
    assert found.lines >= least
    assert all(r["url"] for r in found.rows)


def test_documents_that_are_not_utf8_cost_themselves(tmp_path):
    bad = b'{"url": "https://shop.test/8", "status": "\xc5OST"}\n{"url": "https://shop.test/\xc5", "status": "FETCHED", "nextFetchDate": "2026-01-02", "metadata": {"fetchInterval": ["60"]}}\n'
    found = read(write(tmp_path, DUMP.encode() + bad))
    assert found.seen("url", "fetched_at", "status") == SEEN
    assert found.reasons == [(7, "not_stormcrawler"), (8, "bad_utf8")]


def test_a_time_that_is_none_is_rejected_and_not_left_out_as_if_it_were_not_there(tmp_path):
    documents = [
        status("https://shop.test/1", due=None, lastProcessedDate="-0001-01-01T00:00:00Z"),
        status("https://shop.test/2", due="soon", fetchInterval="60"),
        status("https://shop.test/3", due="soon"),  # no time of a fetch would come of it
        status("https://shop.test/4", fetchInterval="60", lastProcessedDate="x"),  # the other one does
    ]
    found = read(write(tmp_path, "".join(json.dumps(d) + "\n" for d in documents)))
    assert found.reasons == [(1, "bad_timestamp"), (2, "bad_timestamp")]
    assert found.left_out == {"no_fetch_time": 1} and found.lines == 4


def test_first_values_of_lists_of_any_slice():
    lists = pa.array([["a", "b"], [], None, [None, "c"], ["d"]], pa.list_(pa.string()))
    for i in range(6):
        some = lists.slice(i)
        assert stormcrawler.first_of(some).to_pylist() == [v[0] if v else None for v in some.to_pylist()]


@pytest.mark.parametrize("row", ["0.5", "1", "0.5,shoes", "2026-01-01;x,3"])
def test_a_table_that_has_lost_its_header_is_no_list_of_urls(row):
    text = "".join(f"https://shop.test/{i},{row}\n" for i in range(3)).encode()
    assert not urlfrontier.PAGES.looks_like("a.csv", text)
    assert urlfrontier.PAGES.looks_like("a.csv", text + b"https://shop.test/about\n")


def test_deep_json_in_front_is_not_looked_into():
    for text in (b"[" * 100_000, b'{"a":' * 100_000):
        assert not urlfrontier.PAGES.looks_like("a", text)
