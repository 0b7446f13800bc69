"""Dumps of Nutch' CrawlDb."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from policies.rules.crawler_rules import NutchAdaptive
from tests.transforms.dialects.reading import PACKED_OR_UTF_16, read, write
from transforms.batches.errors import InputError
from transforms.dialects.nutch import looks_like
from transforms.files import unpacking

HEAD = (
    "Url,Status code,Status name,Fetch Time,Modified Time,Retries since fetch,Retry interval seconds,"
    "Retry interval days,Score,Signature,Metadata\n"
)
SIGNATURE = "9e107d9d372bb6826bd81d3542a419d6"


def row(url, code, name, due, interval=2592000.0, signature=SIGNATURE, more="", modified=None) -> str:
    return (
        f'"{url}",{code},"db_{name}",{due},{modified or "Thu Jan 01 03:00:00 UTC 2026"},0,{interval},'
        f'{interval / 86400},1.0,"{signature}","_pst_:success(1), lastModified=0|||{more}"\n'
    )


DUMP = (
    HEAD
    + row("https://shop.test/p/1", 2, "fetched", "Sun Feb 01 03:00:00 UTC 2026")
    + row('https://shop.test/"quoted",1', 6, "notmodified", "Sun Feb 01 03:00:00 GMT 2026")
    + row("https://shop.test/gone", 3, "gone", "Sun Feb 01 03:00:00 UTC 2026", signature="null")
    + HEAD
    + row("https://shop.test/new", 1, "unfetched", "Sun Feb 01 03:00:00 UTC 2026", signature="null")
    + row("https://shop.test/m", 2, "fetched", "Sun Feb 01 03:00:00 UTC 2026", more="a\nb:c\nd")
    + '"https://shop.test/cut",2,"db_fetched",Sun Feb\n'
    + row("https://shop.test/odd", 77, "odd", "Sun Feb 01 03:00:00 UTC 2026")
    + row("https://shop.test/never", 2, "fetched", "Sun Feb 01 03:00:00 UTC 2026", interval=float("nan"))
)
JAN_2 = datetime(2026, 1, 2, 3, tzinfo=UTC)


def test_a_dump_as_nutch_writes_it(tmp_path):
    found = read(write(tmp_path, DUMP, "part-00000"))
    assert found.forms == ["nutch"]
    assert found.seen("url", "fetched_at", "status") == [
        ("https://shop.test/p/1", JAN_2, 200),
        ('https://shop.test/"quoted",1', JAN_2, 200),
        ("https://shop.test/gone", JAN_2, 404),
        ("https://shop.test/m", JAN_2, 200),
    ]
    assert [r["digest_hash"] is None for r in found.rows] == [False, False, True, False]
    assert [r["not_modified"] for r in found.rows] == [False, True, False, False]
    assert found.left_out == {"never_fetched": 1, "rest_of_metadata": 2}
    assert found.reasons == [(10, "not_nutch"), (11, "not_nutch"), (12, "not_nutch")]


def test_json_says_the_same_as_csv(tmp_path):
    due = "Sun Feb 01 03:00:00 UTC 2026"
    records = [
        {"url": "https://shop.test/p/1", "statusCode": 2, "statusName": "db_fetched", "fetchTime": due,
         "modifiedTime": due, "retriesSinceFetch": 0, "retryIntervalSeconds": 2592000, "retryIntervalDays": 30,
         "score": 1.0, "signature": SIGNATURE, "metadata": {"a": "b"}},
        {"url": "https://shop.test/new", "statusCode": 1, "fetchTime": due, "signature": "null",
         "modifiedTime": due, "retryIntervalSeconds": 2592000.0},
    ]  # fmt: skip
    text = "".join(json.dumps(r) + "\n" for r in records)
    found = read(write(tmp_path, text + "{broken\n", "dump.json"))
    csv = read(write(tmp_path, DUMP, "dump.csv"))
    assert found.forms == ["nutch"] and found.left_out == {"never_fetched": 1}
    assert found.rows == csv.rows[:1] and found.reasons == [(3, "bad_json")]


def test_local_times_need_their_zone(tmp_path):
    """Abbreviations are ambiguous; within a zone the summer's and the winter's hour are told apart by them."""
    dump = HEAD + "".join(
        row(f"https://a.test/{i}", 2, "fetched", f"Sun Oct 25 02:30:00 {zone} 2026", interval=86400.0)
        for i, zone in enumerate(("CEST", "CET"))
    )
    path = write(tmp_path, dump.replace("Thu Jan 01 03:00:00 UTC", "Thu Jan 01 03:00:00 CET"))
    with pytest.raises(InputError, match="--observations_timezone=Europe/Berlin"):
        read(path)
    found = read(path, observations_timezone="Europe/Berlin")
    first, second = (r["fetched_at"] for r in found.rows)
    assert first == datetime(2026, 10, 24, 0, 30, tzinfo=UTC) and second - first == timedelta(hours=1)
    with pytest.raises(InputError, match="Asia/Tokyo has no CE"):
        read(path, observations_timezone="Asia/Tokyo")


@pytest.mark.parametrize("changed", [True, False])
def test_the_last_fetch_is_found_again_behind_sync_delta(tmp_path, changed):
    """As AdaptiveFetchSchedule sets the due time: by the rule that the backtest has."""
    fetched_s, modified_s, interval_s = 1_767_322_800, 1_767_322_800 - 20 * 86_400, 7 * 86_400.0
    modified_s = fetched_s if changed else modified_s
    delta = fetched_s - modified_s
    interval_s = max(interval_s, delta)
    due_s = round(fetched_s - NutchAdaptive().sync_delta_rate * delta + interval_s)
    texts = [datetime.fromtimestamp(s, UTC).strftime("%a %b %d %H:%M:%S UTC %Y") for s in (due_s, modified_s)]
    dump = HEAD + row("https://a.test/", 6, "notmodified", texts[0], interval_s, modified=texts[1])
    path = write(tmp_path, dump)
    assert read(path, nutch_sync_delta_rate="0.3").rows[0]["fetched_at"].timestamp() == fetched_s
    plain = read(path).rows[0]["fetched_at"].timestamp()
    assert fetched_s - plain == pytest.approx(0.3 * delta)
    with pytest.raises(InputError, match="from 0 to below 1"):
        read(path, nutch_sync_delta_rate="30%")


def test_modified_time_is_when_a_change_was_found_not_when_it_happened(tmp_path):
    """Nutch sets it to a fetch: as Last-Modified it would date changes to the visit before."""
    due = "Sun Feb 01 03:00:00 UTC 2026"
    dump = HEAD + "".join(
        row(f"https://a.test/{i}", 2, "fetched", due, modified=modified)
        for i, modified in enumerate(("Fri Jan 02 03:00:00 UTC 2026", "Thu Dec 04 03:00:00 UTC 2025"))
    )
    found = read(write(tmp_path, dump))
    assert found.seen("fetched_at", "last_modified", "changed") == [(JAN_2, None, None)] * 2


@pytest.mark.parametrize("interval", [2**31 - 1, 2**31 - 2, 2**31, 90 * 86_400, 91 * 86_400])
def test_intervals_that_mean_never_do_not_wrap(tmp_path, interval):
    """The largest 32-bit number of seconds, and intervals about Nutch' maximum."""
    due = (JAN_2 + timedelta(seconds=interval)).strftime("%a %b %d %H:%M:%S UTC %Y")
    soon = "Sun Feb 01 03:00:00 UTC 2026"
    dump = HEAD + row("https://a.test/1", 2, "fetched", due, float(interval))
    dump += row("https://a.test/2", 2, "fetched", soon, float(interval))
    found = read(write(tmp_path, dump))
    assert found.rows[0]["fetched_at"] == JAN_2
    if interval > 2**30:  # a fetch before there was a web is none
        assert found.reasons == [(3, "bad_timestamp")]
    else:
        assert found.rows[1]["fetched_at"] == datetime(2026, 2, 1, 3, tzinfo=UTC) - timedelta(
            seconds=interval
        )


def test_a_page_that_was_not_fetched_again_gives_the_same_row(tmp_path):
    first, second = (read(write(tmp_path, DUMP, name)).rows for name in ("a", "b"))
    assert first == second


def test_it_is_told_by_its_content_and_no_other_is_taken_for_it():
    assert looks_like("x", DUMP.encode())
    for other in (b'{"url":"https://a.test/","fetchTime":1}', b"Url,Status code\n", b"", b"\0\1"):
        assert not looks_like("crawldb.csv", other)


def test_a_dump_lists_all_its_pages(tmp_path):
    """Without the times of fetches, whose zone nobody needs to know then."""
    found = read(write(tmp_path, DUMP.replace(" UTC ", " CEST ")), "pages")
    assert found.forms == ["nutch"] and found.left_out == {"rest_of_metadata": 2}
    names = ["p/1", '"quoted",1', "gone", "new", "m", "odd"]
    assert [row["url"] for row in found.rows] == [f"https://shop.test/{name}" for name in names]
    assert found.reasons == [(10, "not_nutch"), (12, "not_nutch")]
    text = (
        '{"url": "https://a.test/", "statusCode": 1, "fetchTime": "", "retryIntervalSeconds": 1}\n{"url": 1\n'
    )
    found = read(write(tmp_path, text), "pages")
    assert found.seen("url") == [("https://a.test/",)] and found.reasons == [(2, "bad_json")]


TEXT = """\
https://shop.test/\tVersion: 7
Status: 2 (db_fetched)
Fetch time: Sun Feb 01 03:00:00 UTC 2026
Retry interval: 2592000 seconds (30 days)
Metadata:

"""


@pytest.mark.parametrize("form", ["auto", "nutch"])
@pytest.mark.parametrize("kind", ["observations", "pages"])
def test_a_dump_as_text_is_refused_once(tmp_path, kind, form):
    with pytest.raises(InputError, match=r"dump of Nutch as text.*-format json"):
        read(write(tmp_path, TEXT * 2), kind, form)


@pytest.mark.parametrize("size", [300, 1000])
def test_where_a_block_begins_does_not_matter(tmp_path, monkeypatch, size):
    path = write(tmp_path, DUMP)
    whole = read(path)
    monkeypatch.setattr(unpacking, "CHUNK_BYTES", size)
    parts = read(path)
    assert (parts.rows, parts.reasons, parts.left_out) == (whole.rows, whole.reasons, whole.left_out)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.one_of(st.sampled_from(DUMP.encode().splitlines()), st.binary(max_size=60)), max_size=8),
    st.binary(max_size=200),
)
def test_any_bytes_are_accounted_for(tmp_path_factory, lines, more):
    lines = [line.replace(b"\n", b" ").replace(b"\r", b" ").lstrip(b"\0") for line in lines]
    assume(not b"\n".join(lines).startswith(PACKED_OR_UTF_16))
    folder = tmp_path_factory.mktemp("fuzz")
    found = read(write(folder, b"\n".join(lines)), form="nutch")
    heads = sum(line.startswith(HEAD.strip().encode()) for line in lines)
    if not any(line.lstrip(b"\xef\xbb\xbf[ ").startswith(b"{") for line in lines):
        assert found.lines + heads == sum(bool(line) for line in lines)
    read(write(folder, b'{"statusCode": ' + more), form="nutch")


def test_dates_that_are_not_utf8_cost_their_row(tmp_path):
    record = b'{"url": "https://a.test/", "statusCode": 2, "fetchTime": "Sun F\xe9b 01 03:00:00 UTC 2026", "modifiedTime": "", "retryIntervalSeconds": 60}\n'
    found = read(write(tmp_path, record))
    assert found.reasons == [(1, "not_nutch")] and "https://a.test/" in found.rejected[0]["sample"]


@pytest.mark.parametrize("before", ["\ufeff", "\n\r\n"])
def test_what_may_be_in_front_of_a_header(tmp_path, before):
    found = read(write(tmp_path, before + DUMP))
    plain = read(write(tmp_path, DUMP, "plain"))
    assert found.forms == ["nutch"]
    assert (found.rows, found.left_out) == (plain.rows, plain.left_out)


def test_pages_behind_a_header_without_line_end_are_counted(tmp_path):
    head, rest = DUMP.split("\n", 1)
    assert read(write(tmp_path, head + rest)).lines == read(write(tmp_path, DUMP)).lines
