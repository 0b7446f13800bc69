"""Links of WAT files."""

import gzip
import json
from typing import Any

import pyarrow as pa
import pytest

from tests.transforms.dialects.seen_links import read
from transforms.dialects.wat import resolved


def answer(
    url: str, links: Any, status: Any = "200", head: Any = None, kind: str = "response"
) -> dict[str, Any]:
    """What a record of an answer has, and some of what else."""
    html = {"Head": head or {"Title": "T", "Metas": [{"name": "x", "content": "{}"}]}, "Links": links}
    message = {"Status": status, "Version": "HTTP/1.1", "Reason": "OK"}
    return {
        "Container": {"Filename": "x.warc.gz", "Compressed": True, "Offset": "1"},
        "Envelope": {
            "WARC-Header-Metadata": {
                "WARC-Type": kind,
                "WARC-Target-URI": url,
                "WARC-Date": "2026-07-01T02:00:05Z",
                "WARC-IP-Address": "192.0.2.1",
            },
            "Payload-Metadata": {
                "Actual-Content-Type": "application/http; msgtype=response",
                "HTTP-Response-Metadata": {"Headers": {"Server": "x"}, "Response-Message": message}
                | ({} if links is None else {"HTML-Metadata": html}),
            },
        },
    }


def record(payload: str) -> str:
    """In a WARC."""
    head = (
        "WARC/1.0\r\nWARC-Type: metadata\r\nWARC-Target-URI: https://a.test/\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(payload)}\r\n\r\n"
    )
    return f"{head}{payload}\r\n\r\n"


LINKS = [
    {"path": "IMG@/src", "url": "/pixel.png"},
    {"path": "A@/href", "url": "https://a.test/1?utm_source=x", "text": "one"},
    {"path": "A@/href", "url": "/2", "rel": "nofollow"},
    {"path": "AREA@/href", "url": "3.html"},
    {"path": "A@/href", "url": "#top"},
    {"path": "A@/href", "url": "//b.test/4"},
    {"path": "A@/href", "url": "mailto:x@a.test"},
    {"path": "A@/href"},
]
RECORDS = [
    json.dumps(answer("https://a.test/news/index.html", LINKS)),
    json.dumps({"Envelope": {"WARC-Header-Metadata": {"WARC-Type": "request"}}}),
    json.dumps(answer("https://c.test/", [], status=503)),
    json.dumps(answer("https://d.test/x.pdf", None)),
    json.dumps(answer("https://e.test/", LINKS[2:4], head={"Base": "/base/"})),
    '{"Container": {"cut',
]


@pytest.mark.parametrize("packed", [False, True])
def test_links_of_answers_are_read_and_resolved(tmp_path, packed):
    text = [record(r).encode() for r in RECORDS]
    path = tmp_path / ("a.warc.wat.gz" if packed else "a.warc.wat")
    path.write_bytes(b"".join(map(gzip.compress, text) if packed else text))
    found = read(path)
    assert found.form == "wat"
    at = "02:00:05"
    assert found.rows == [
        ("https://a.test/news/index.html", "https://a.test/1", at, True),
        ("https://a.test/news/index.html", "https://a.test/2", at, True),
        ("https://a.test/news/index.html", "https://a.test/news/3.html", at, True),
        ("https://a.test/news/index.html", "https://b.test/4", at, True),
        ("https://a.test/news/index.html", None, at, True),  # an address that is no page
        ("https://c.test/", None, at, False),
        ("https://d.test/x.pdf", None, at, True),
        ("https://e.test/", "https://e.test/2", at, True),
        ("https://e.test/", "https://e.test/base/3.html", at, True),
    ]
    assert found.rejected == [(47, "bad_json")]
    assert found.left_out == {"not_an_answer": 1}


def test_a_link_that_is_not_utf_8_costs_itself(tmp_path):
    path = tmp_path / "a.warc.wat"
    text = record(json.dumps(answer("https://a.test/x", LINKS))).encode()
    path.write_bytes(text.replace(b"3.html", b"\xe9.html"))
    found = read(path)
    assert [reason for _, reason in found.rejected] == ["bad_utf8"] and len(found.rows) == 4


def test_a_folder_of_them_is_read(tmp_path):
    (tmp_path / "a.warc.wat").write_text(record(RECORDS[0]))
    assert len(read(tmp_path).rows) == 5


def test_addresses_are_resolved_as_browsers_do():
    cases = {
        ("https://a.test/x/y?q", "z"): "https://a.test/x/z",
        ("https://a.test/x/y", "?p=2"): "https://a.test/x/y?p=2",
        ("https://a.test/x/y", "../z"): "https://a.test/z",
        ("https://a.test/x/y", "/u/../z"): "https://a.test/z",
        ("https://a.test/x/y", "/u/v"): "https://a.test/u/v",
        ("http://a.test", "u"): "http://a.test/u",
        ("http://a.test/", "//b.test"): "http://b.test",
        ("http://a.test/", "tel:1"): "tel:1",
        ("http://a.test/", "http://[x"): "http://[x",
    }
    base, url = (pa.array(texts) for texts in zip(*cases, strict=True))
    assert resolved(base, url).to_pylist() == list(cases.values())
