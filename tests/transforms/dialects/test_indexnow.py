"""IndexNow as a receiver logs it."""

import json

import pytest

from tests.transforms.read_files import read_file, reasons, write_file
from transforms.dialects.indexnow import MAX_URLS, hide_keys
from transforms.files import unpacking

KEY = "0123456789abcdef"
AT = "2026-01-01T02:03:04Z"
POST = {"received_at": AT, "host": "shop.test", "key": KEY, "urlList": ["https://shop.test/1"]}
GET = {"received_at": AT, "url": "https://shop.test/get", "key": KEY}
ROW = {"url": "https://shop.test/row", "signalled_at": AT, "source": "cdn"}


def read(tmp_path, *records, name="a.jsonl"):
    text = "".join((r if isinstance(r, str) else json.dumps(r)) + "\n" for r in records)
    rows, rejected = read_file(write_file(tmp_path / name, [], text), "signals")
    assert KEY not in json.dumps(rejected)
    return rows, rejected


def urls(rows):
    return [r["url"] for r in rows]


def test_posts_gets_and_other_signals_in_one_file(tmp_path):
    urls_posted = ["https://shop.test/1", "http://SHOP.test:8080/2?x=%C3%A9", "https://shop.test/a b"]
    rows, rejected = read(tmp_path, POST | {"urlList": urls_posted}, GET, ROW)
    assert urls(rows) == [*urls_posted, GET["url"], ROW["url"]]
    assert [r["source"] for r in rows] == ["indexnow"] * 4 + ["cdn"]
    assert {r["signalled_at"].isoformat() for r in rows} == {"2026-01-01T02:03:04+00:00"}
    assert not rejected


def test_urls_of_another_host_are_rejected(tmp_path):
    """Also of a subdomain; a URL that cannot be read is rejected as such."""
    given = ["https://shop.test/1", "https://other.test/x", "https://www.shop.test/", "relative"]
    odd = [
        "https:///other.test/x",
        "https://shop.test@other.test/",
        "https:other.test/",
        "https://other.test\\@shop.test/",
    ]
    assert read(tmp_path, POST | {"urlList": odd * 2}, name="odd.jsonl")[0] == []
    rows, rejected = read(tmp_path, GET, POST | {"urlList": given})
    assert urls(rows) == [GET["url"], given[0]]
    assert reasons(rejected) == [(2, "bad_url"), (2, "other_host"), (2, "other_host")]
    assert "https://other.test/x | host=shop.test" in [r["sample"] for r in rejected]


@pytest.mark.parametrize(
    "host",
    ["shop.test", "SHOP.TEST.", "shop.test:443", " shop.test ", "https://shop.test/", " HTTP://Shop.test:80"],
)
def test_spellings_of_a_host(host, tmp_path):
    assert len(read(tmp_path, POST | {"host": host})[0]) == 1


@pytest.mark.parametrize("host", ["https://other.test/", "https://other.test/shop.test", "ftp://shop.test/"])
def test_a_url_of_another_host_is_another_host(host, tmp_path):
    rows, rejected = read(tmp_path, POST | {"host": host})
    assert not rows and reasons(rejected) == [(1, "other_host")]


def test_an_empty_list_beside_a_url_takes_nothing_from_it(tmp_path):
    rows, rejected = read(tmp_path, GET | {"urlList": []})
    assert urls(rows) == [GET["url"]] and not rejected


def test_no_host_may_be_any_and_a_bad_one_is_none(tmp_path):
    rows, _ = read(tmp_path, {k: v for k, v in POST.items() if k != "host"}, POST | {"host": None})
    assert len(rows) == 2
    rows, rejected = read(tmp_path, POST | {"host": "no host"}, POST | {"host": ""})
    assert not rows and reasons(rejected) == [(1, "other_host"), (2, "other_host")]


@pytest.mark.parametrize(("n", "accepted"), [(MAX_URLS, True), (MAX_URLS + 1, False)])
def test_ten_thousand_urls(n, accepted, tmp_path):
    rows, rejected = read(tmp_path, POST | {"urlList": [f"https://shop.test/{i}" for i in range(n)]}, GET)
    assert len(rows) == (n if accepted else 0) + 1
    assert reasons(rejected) == ([] if accepted else [(1, "too_many_urls")])


@pytest.mark.parametrize(
    ("listed", "expected", "bad"),
    [
        ("https://shop.test/one", 1, []),  # a single text
        ([], 0, ["no_urls"]),
        (["https://shop.test/1", 7, None, {"url": "x"}], 1, ["no_url"] * 3),
        (7, 0, ["no_url"]),
        ([""], 0, ["no_url"]),
    ],
)
def test_lists_of_all_sorts(listed, expected, bad, tmp_path):
    rows, rejected = read(tmp_path, POST | {"urlList": listed}, GET)
    assert len(rows) == expected + 1
    assert [r["reason"] for r in rejected] == bad


def test_requests_without_urls_or_time(tmp_path):
    rows, rejected = read(
        tmp_path, {"received_at": AT, "key": KEY}, {"urlList": ["https://a.test/"], "key": KEY}, GET
    )
    assert urls(rows) == [GET["url"]]
    assert reasons(rejected) == [(1, "no_url"), (2, "bad_timestamp")]


def test_a_named_source_stays(tmp_path):
    rows, _ = read(tmp_path, POST | {"source": "bing"}, GET)
    assert [r["source"] for r in rows] == ["bing", "indexnow"]


@pytest.mark.parametrize("name", ["a.parquet", "a.avro", "a.csv", "a.csv.gz", "a.jsonl", "a.jsonl.gz"])
def test_when_it_was_received_is_when_it_was_signalled(name, tmp_path):
    """In every format: rows that say when they came and not from where are pings."""
    rows, rejected = read_file(write_file(tmp_path / name, [GET]), "signals")
    assert [(r["url"], r["source"], r["signalled_at"].year) for r in rows] == [(GET["url"], "indexnow", 2026)]
    assert not rejected


def test_broken_lines_are_not_shown(tmp_path):
    line = json.dumps(POST)
    whole = f"[{json.dumps(GET)}, {json.dumps(GET)}]"
    rows, rejected = read(tmp_path, line[:80], line[60:], f'"{KEY}"', "null", whole, "", POST)
    assert urls(rows) == [GET["url"]] * 2 + POST["urlList"]
    assert reasons(rejected) == [(i, "bad_json") for i in (1, 2, 3, 4)]
    assert all("not shown" in r["sample"] for r in rejected)


def test_where_a_block_ends_changes_nothing(tmp_path, monkeypatch):
    records = [POST | {"urlList": [f"https://shop.test/{i}", "https://other.test/"]} for i in range(50)]
    records += [ROW, GET, "{", *records]
    expected = read(tmp_path, *records, name="whole.jsonl")
    monkeypatch.setattr(unpacking, "CHUNK_BYTES", 500)
    rows, rejected = read(tmp_path, *records, name="whole.jsonl")
    assert rows == expected[0] and reasons(rejected) == reasons(expected[1])


@pytest.mark.parametrize(
    "text",
    [
        f'{{"key":"{KEY}","urlList":',
        f'{{"key": "{KEY}',
        f"{{'key': '{KEY}'}}",
        f"https://api.test/indexnow?url=https://a.test/&key={KEY}",
        f"key%3D{KEY}&x",
        f'"keyLocation":"https://a.test/{KEY}.txt"',
        f"https://a.test/{KEY}.txt",
        f"KEY={KEY},2",
    ],
)
def test_keys_are_hidden_wherever_they_stand(text):
    assert KEY not in hide_keys(text) and "(key)" in hide_keys(text)


@pytest.mark.parametrize(
    "text", ["https://a.test/monkey/1", "https://a.test/keys", "https://a.test/robots.txt?", "x"]
)
def test_other_texts_stay(text):
    assert hide_keys(text) == text


def test_truncated_files_show_no_key(tmp_path):
    path = write_file(tmp_path / "a.jsonl.gz", [], (json.dumps(POST) + "\n") * 3000)
    path.write_bytes(path.read_bytes()[:-9])
    rows, rejected = read_file(path, "signals")
    assert rows and [r["reason"] for r in rejected] == ["truncated_file"]
    assert KEY[:4] not in rejected[0]["sample"]


def test_signals_csv_with_a_broken_row_shows_no_key(tmp_path):
    rows, rejected = read_file(
        write_file(tmp_path / "a.csv", [], f"url,received_at,key\nhttps://a.test/,{AT},key={KEY},x\n"),
        "signals",
    )
    assert not rows and KEY not in rejected[0]["sample"]
