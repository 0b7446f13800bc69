"""Records of JSON with a known schema: Arrow and Python read the same."""

import json

import pyarrow as pa
import pytest

from tests.transforms.dialects.reading import read, write
from transforms.dialects import json_rows

SCHEMA = pa.schema([("url", pa.string()), ("code", pa.string()), ("kept", pa.struct([("a", pa.string())]))])
NUTCH = {
    "url": "https://shop.test/1",
    "statusCode": 2,
    "fetchTime": "Sun Feb 01 03:00:00 UTC 2026",
    "modifiedTime": "Thu Jan 01 03:00:00 UTC 2026",
    "retryIntervalSeconds": 2592000,
    "signature": "9e10",
}
STATUS = {
    "url": "https://shop.test/1",
    "status": "FETCHED",
    "metadata": {"lastProcessedDate": ["2026-01-01T00:00:00Z"], "signature": ["9e10"]},
}
ITEM = {
    "known": {
        "info": {
            "url": "https://shop.test/1",
            "metadata": {"lastProcessedDate": {"values": ["2026-01-01T00:00:00Z"]}},
        }
    }
}


@pytest.mark.parametrize("head", ["", "\ufeff", "[\n"])
def test_whole_numbers_do_not_take_the_slow_way(monkeypatch, head):
    lines = [json.dumps({"url": "u", "code": n}) for n in (2, -1, 2**53)]
    slow = json_rows._parse_slowly((head + ",\n".join(lines)).encode(), 1, SCHEMA, "f").table
    assert slow["code"].to_pylist() == ["2", "-1", str(2**53)]
    if not head.startswith("["):
        monkeypatch.setattr(json_rows, "_parse_slowly", None)
    block = (head + ("\n" if head != "[\n" else ",\n").join(lines)).encode()
    found = json_rows.parse(block.removeprefix(b"\xef\xbb\xbf"), 1, SCHEMA, "f")
    assert found.table.equals(slow)


@pytest.mark.parametrize("other", ['"x"', "1.5", "null", "1e400", "9" * 400, "true", "[1]", '{"a":1}'])
def test_a_number_here_and_something_else_there(other):
    block = f'{{"url":"u","code":7}}\n{{"url":"v","code":{other}}}\n'.encode()
    found = json_rows.parse(block, 1, SCHEMA, "f")
    assert found.table.equals(json_rows._parse_slowly(block, 1, SCHEMA, "f").table)
    assert found.table["code"][0].as_py() == "7" and list(found.line) == [1, 2]


@pytest.mark.parametrize("record", [NUTCH, STATUS, ITEM], ids=["nutch", "stormcrawler", "urlfrontier"])
@pytest.mark.parametrize("bad", [b"\xff", b"\\ud800"])
@pytest.mark.parametrize("slowly", [True, False])
def test_a_url_that_is_not_utf8_is_rejected_and_no_other_url_is_made_of_it(tmp_path, record, bad, slowly):
    good = json.dumps(record).encode()
    text = good + b"\n" + good.replace(b"test/1", b"test/" + bad) + b"\n" + (b"no json\n" if slowly else b"")
    found = read(write(tmp_path, text))
    assert found.seen("url") == [("https://shop.test/1",)]
    assert found.reasons == [(2, "bad_utf8")] + [(3, "bad_json")] * slowly
