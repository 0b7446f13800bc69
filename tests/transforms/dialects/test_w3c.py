"""W3C extended logs."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from tests.transforms.dialects.reading import PACKED_OR_UTF_16, read, solid, write
from transforms.batches.errors import InputError
from transforms.files import unpacking

DAY_2026 = 20454  # 2026-01-01
IIS = (
    "#Software: Microsoft Internet Information Services 10.0\n#Version: 1.0\n#Date: 2026-01-01 00:00:00\n"
    "#Fields: date time s-ip cs-method cs-uri-stem cs-uri-query s-port c-ip cs(User-Agent) sc-status cs-host\n"
)
EDGE = (
    "#Version: 1.0\n#Fields: date time c-ip cs-method cs(Host) cs-uri-stem sc-status cs(User-Agent) cs-uri-query "
    "x-host-header cs-protocol\n"
)


def iis(
    stem: str = "/p/1",
    query: str = "-",
    agent: str = "Mozilla/5.0+(X11;+Linux)",
    status: str = "200",
    *,
    method: str = "GET",
    port: str = "443",
    host: str = "shop.test",
    time: str = "02:04:05",
) -> str:
    return f"2026-01-01 {time} 10.0.0.1 {method} {stem} {query} {port} 192.0.2.1 {agent} {status} {host}\n"


def edge(*, agent: str, stem: str = "/a+b", host: str = "-", protocol: str = "https") -> str:
    cells = (
        "2026-01-01",
        "02:04:05",
        "192.0.2.1",
        "GET",
        "d1.cdn.test",
        stem,
        "200",
        agent,
        "-",
        host,
        protocol,
    )
    return "\t".join(cells) + "\n"


def test_clicks_of_iis(tmp_path: Path):
    lines = {
        iis(): "https://shop.test/p/1",
        iis(query="utm=x+y&b"): "https://shop.test/p/1?utm=x+y&b",
        iis(stem="/a+b", query="c+d"): "https://shop.test/a%20b?c+d",
        iis(port="80"): "http://shop.test/p/1",
        iis(port="8080"): "https://shop.test/p/1",
        iis(host="shop.test:8080"): "http://shop.test:8080/p/1",
        iis(host="-"): "https://site.test/p/1",
        iis(stem='"/p/1"', agent='"Mozilla/5.0 (X11; ""x"")"'): "https://shop.test/p/1",
        iis(stem="/gr\u00fc\u00dfe"): "https://shop.test/gr\u00fc\u00dfe",
    }
    path = write(tmp_path, IIS + "".join(lines))
    found = read(path, "requests", requests_site="https://site.test")
    assert found.forms == ["w3c"]
    assert found.seen("url", "day") == [(url, DAY_2026) for url in lines.values()]
    with_ends = write(tmp_path, (IIS + "".join(lines)).replace("\n", "\r\n"), "ends")
    assert read(with_ends, "requests", requests_site="https://site.test").rows == found.rows


def test_clicks_of_cloudfront(tmp_path: Path):
    """Tabs, encoded values, the name that the visitor asked for."""
    lines = [
        edge(agent="Mozilla/5.0%20(X11)", host="www.shop.test", protocol="http"),
        edge(agent="Mozilla/5.0%2520(X11)"),
        edge(agent="Feedfetcher-Google;%20x"),
        edge(agent="Our%2520Bot/1"),
    ]
    found = read(write(tmp_path, EDGE + "".join(lines)), "requests", own_user_agent="our bot")
    assert found.seen("url") == [("http://www.shop.test/a+b",), ("https://d1.cdn.test/a+b",)]
    assert found.left_out == {"bot": 1, "own_crawler": 1}


def test_fields_change_within_the_file(tmp_path: Path):
    other = (
        "#Date: 2026-01-02 00:00:00\n#Fields: time cs-method cs-uri sc-status\n"
        "02:04:05 GET https://other.test/p/3?a 200\n"
    )
    lines = [IIS, iis(), other, "\n#Remark: restart\n", IIS, iis("/p/2"), iis("/p/4", time="24:04:05")]
    found = read(write(tmp_path, "".join(lines)), "requests")
    assert found.seen("url", "day") == [
        ("https://shop.test/p/1", DAY_2026),
        ("https://other.test/p/3?a", DAY_2026 + 1),
        ("https://shop.test/p/2", DAY_2026),
    ]
    assert [reason for _, reason in found.reasons] == ["bad_timestamp"]


def test_every_line_has_an_end(tmp_path: Path):
    lines = {
        iis(agent="Mozilla/5.0+(compatible;+Googlebot/2.1)"): "bot",
        iis(agent="-"): "no_user_agent",
        iis(agent="OurBot/1"): "own_crawler",
        iis(method="POST"): "method",
        iis(method="-"): "no_request",
        iis(status="404"): "status",
        iis(status="-"): "status",
        iis("/robots.txt"): "robots_or_icon",
    }
    wrong = [iis()[:60] + "\n", iis(agent="two words")]
    found = read(write(tmp_path, "".join([IIS, *lines, *wrong, iis()])), "requests", own_user_agent="OurBot")
    expected = {reason: list(lines.values()).count(reason) for reason in set(lines.values())}
    assert found.left_out == expected
    assert found.reasons == [(13, "column_count"), (14, "column_count")]
    assert len(found.rows) == 1


def test_a_header_alone_is_no_row_and_no_error(tmp_path: Path):
    """Directives and no row: nothing was asked for."""
    found = read(write(tmp_path, IIS), "requests")
    assert found.forms == ["w3c"] and found.lines == 0


def test_what_a_log_must_tell(tmp_path: Path):
    with pytest.raises(InputError, match=r"line 2 lack cs-method, sc-status: .*Have the server log them"):
        read(write(tmp_path, "#Version: 1.0\n#Fields: date time cs-uri-stem\n"), "requests")
    with pytest.raises(InputError, match="lack date"):
        read(write(tmp_path, "#Fields: time cs-method cs-uri-stem sc-status\n"), "requests")
    with pytest.raises(InputError, match=r"line 5 does not say .*--requests_site"):
        read(write(tmp_path, IIS + iis(host="-")), "requests")


PIECES = [
    IIS,
    EDGE,
    iis(),
    iis("/a+b", "q"),
    iis('"/q"'),
    edge(agent="x"),
    "broken\n",
    "\n",
    "#Date: 2026-01-03\n",
]


@pytest.mark.parametrize("size", [1, 64, 1000])
def test_nothing_depends_on_where_a_block_begins(size: int, tmp_path: Path, monkeypatch):
    path = write(tmp_path, "".join([IIS, *PIECES, *PIECES]))
    whole = read(path, "requests")
    monkeypatch.setattr(unpacking, "CHUNK_BYTES", size)
    parts = read(path, "requests")
    assert (parts.rows, parts.reasons, parts.left_out) == (whole.rows, whole.reasons, whole.left_out)
    assert whole.rows and whole.rejected


def test_a_log_of_carriage_returns_alone_is_refused(tmp_path: Path):
    """All of it would be one directive, and no row."""
    text = (
        "#Version: 1.0\r#Fields: date time cs-method cs-uri-stem sc-status\r2026-01-01 00:00:00 GET / 200\r"
    )
    with pytest.raises(InputError, match="line 1 has carriage returns"):
        read(write(tmp_path, text), "requests", "w3c", requests_site="https://site.test")


_BITS = st.sampled_from(
    [b'"', b" ", b"\t", b"#", b"\n", b"\r", b"#Fields: date time cs-method", b"-", b"\xff\x00"]
)
_SOME = st.sampled_from([text.encode() for text in PIECES])


@settings(deadline=None, max_examples=100, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(_SOME | _BITS | st.binary(max_size=40), max_size=10).map(b"".join))
def test_any_bytes_are_accounted_for(tmp_path: Path, data: bytes):
    data = solid(data)
    assume(not data.startswith(PACKED_OR_UTF_16))
    path = write(tmp_path, data)
    try:
        found = read(path, "requests", "w3c", requests_site="https://site.test")
    except InputError as e:
        assert "fields" in str(e) or "carriage returns" in str(e)
        return
    lines = [text for text in data.removeprefix(b"\xef\xbb\xbf").split(b"\n") if text.strip(b" \t\r\x0b\x0c")]
    assert found.lines == len([text for text in lines if not text.startswith(b"#")])
