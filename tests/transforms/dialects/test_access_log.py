"""Access logs: their forms, what is a click, and that every line is accounted for."""

from __future__ import annotations

import gzip
import re
from pathlib import Path

import pytest
from hypothesis import HealthCheck, assume, example, given, settings
from hypothesis import strategies as st

from benchmarks.measuring.histories import shared_folder
from tests.transforms.dialects.reading import PACKED_OR_UTF_16, read, solid, write
from transforms.batches.errors import InputError
from transforms.files import unpacking

SITE = {"requests_site": "https://site.test"}
BROWSER = "Mozilla/5.0 (X11; Linux x86_64; rv:126.0) Gecko/20100101 Firefox/126.0"
DAY_2026 = 20454  # 2026-01-01


def line(
    request: str = "GET /p/1 HTTP/1.1",
    status: str = "200",
    agent: str | None = BROWSER,
    *,
    front: str = "192.0.2.7 - -",
    time: str = "01/Jan/2026:03:04:05 +0100",
    size: str = "512",
    referer: str = "-",
    more: str = "",
) -> str:
    fields = "" if agent is None else f' "{referer}" "{agent}"'
    return f'{front} [{time}] "{request}" {status} {size}{fields}{more}'


def urls(folder: Path, *lines: str, **options: str) -> list[str]:
    found = read(write(folder, "".join(text + "\n" for text in lines)), "requests", **(options or SITE))
    assert found.forms == ["access_log"] and found.lines == len(lines)
    return [row["url"] for row in found.rows]


# Lines that all are a click on /p/1 of the site of the option.
SAME = {
    "combined": line(),
    "common": line(agent=None),
    "no size": line(size="-"),
    "HTTP/2": line("GET /p/1 HTTP/2"),
    "HTTP/0.9": line("GET /p/1"),
    "HTTP/3": line("GET /p/1 HTTP/3.0"),
    "user with a blank": line(front="192.0.2.7 - john doe"),
    "empty user in quotes": line(front='192.0.2.7 - ""'),
    "IPv6": line(front="2001:db8::1 - -"),
    "address is a name": line(front="dsl-7.isp.test - -"),
    "escaped quotes": line(referer=r"https://search.test/?q=a \"b\""),
    "backslash at the end": line(referer="a\\\\"),
    "bytes in the agent": line(agent=BROWSER + r" \xd0\xb0"),
    "columns of numbers": line(more=' 0.005 0.004 . 200 "10.0.0.1, 10.0.0.2" TLSv1.3 "-"'),
    "a column before the referer": line(size="512 0.003"),
    "ISO time": line(time="2026-01-01T03:04:05+01:00"),
    "no host but a mark": line(front="_ 192.0.2.7 - -"),
    "carriage return": line() + "\r",
    "blank at the end": line() + " ",
    "whole URL": line("GET https://site.test/p/1 HTTP/1.1"),
    "the site's own name": line(front="site.test:8080 192.0.2.7 - -"),
}


@pytest.mark.parametrize("name", SAME)
def test_forms_of_one_click(name: str, tmp_path: Path):
    found = read(write(tmp_path, SAME[name] + "\n"), "requests", "access_log", **SITE)
    assert found.seen("url", "day") == [("https://site.test/p/1", DAY_2026)], (found.rejected, found.left_out)


def test_hosts_of_lines(tmp_path: Path):
    """The same line with the host behind it; and the other places and spellings."""
    quoted = line(referer=r"https://search.test/?q=a \"b\"")
    hosts = {
        quoted: "https://site.test",
        quoted + ' "shop.test"': "https://shop.test",
        line(more=' "shop.test"'): "https://shop.test",
        line(more=" shop.test"): "https://shop.test",
        line(agent=None, more=" www.shop.test"): "https://www.shop.test",
        line(
            more=" 0.1 10.0.0.1:8080 TLSv1.2 backend.test:8080 shop.test:443 other.test"
        ): "https://shop.test",
        line(front="shop.test:443 192.0.2.7 - -"): "https://shop.test",
        line(front="shop.test:80 192.0.2.7 - -"): "http://shop.test",
        line(front="shop.test 192.0.2.7 - a b"): "https://shop.test",
        line(front="SHOP.test:8080 192.0.2.7 - -"): "http://shop.test:8080",
        line(front="shop.test:8443 192.0.2.7 - -", referer=r"\""): "https://shop.test:8443",
        line(front="[2001:db8::1]:443 192.0.2.7 - -"): "https://[2001:db8::1]",
        line("GET http://other.test/p/1 HTTP/1.1", front="shop.test:443 192.0.2.7 - -"): "http://other.test",
    }
    assert urls(tmp_path, *hosts) == [f"{site}/p/1" for site in hosts.values()]


PREFIXES = [
    "Jun  1 23:04:05 web1 nginx: ",
    "<190>Jun  1 23:04:05 web1.dc.test nginx[123]: ",
    "<190>Jun 11 23:04:05 nginx: ",
    "2026-06-01T23:04:05.123456+02:00 web1 nginx[7]: ",
    "<190>1 2026-06-01T23:04:05Z web1 nginx 7 access - ",
    "2026-06-01T23:04:05.123456789Z stdout F ",
    "2026-06-01T23:04:05.123456789Z ",
    "web-1  | ",
    "[pod/web-1/nginx] ",
    "nginx: ",
    "INFO: ",
]


@pytest.mark.parametrize("prefix", PREFIXES)
@pytest.mark.parametrize("referer", ["-", r"\""])
def test_what_machines_put_in_front_is_no_host(tmp_path: Path, prefix: str, referer: str):
    """Quick lines and slow ones; a host with a port is one, behind a prefix, too."""
    plain, named = (
        line(front=prefix + f, referer=referer) for f in ("192.0.2.7 - -", "shop.test:443 192.0.2.7 - -")
    )
    assert urls(tmp_path, plain, named) == ["https://site.test/p/1", "https://shop.test/p/1"]
    with pytest.raises(InputError, match="does not say of which site it is"):
        urls(tmp_path, plain, own_user_agent="nobody")
    assert urls(tmp_path, named, own_user_agent="nobody") == ["https://shop.test/p/1"]


@pytest.mark.parametrize("referer", ["-", r"\""])
def test_a_site_that_is_told_goes_before_a_guess(tmp_path: Path, referer: str):
    fronts = [
        "203.0.113.5 192.0.2.7 - -",
        "203.0.113.5, 192.0.2.8 192.0.2.7 - -",
        "Jun  1 23:04:05 web1.test 192.0.2.7 - -",
    ]
    lines = [line(front=front, referer=referer) for front in fronts]
    assert urls(tmp_path, *lines) == ["https://site.test/p/1"] * 3
    assert urls(tmp_path, lines[0], lines[2], own_user_agent="nobody") == [
        "https://203.0.113.5/p/1",
        "https://web1.test/p/1",
    ]
    words = [
        line(front=f"{word} 192.0.2.7 - -", referer=referer)
        for word in ("INFO", "shop", "1780272000.5", "a:b:1")
    ]
    assert urls(tmp_path, *words) == ["https://site.test/p/1"] * 4
    # A name without port in front, or behind, is none: logs of many sites have it.
    sure = [line(front="shop.test 192.0.2.7 - -", referer=referer), line(more=" shop.test", referer=referer)]
    assert urls(tmp_path, *sure) == ["https://shop.test/p/1"] * 2


def test_targets_as_urls(tmp_path: Path):
    targets = {
        "/p?a=1&b=/x": "/p?a=1&b=/x",
        r"/caf\xc3\xa9": "/caf%C3%A9",
        r"/say/\"hi\"\\": "/say/%22hi%22%5C",
        "/a b": "/a%20b",
        "/a HTTP/1.1 b": "/a%20HTTP/1.1%20b",
        "//p": "//p",
        "/grüße": "/grüße",
    }
    got = urls(tmp_path, *(line(f"GET {target} HTTP/1.1") for target in targets))
    assert got == ["https://site.test" + expected for expected in targets.values()]


def test_what_is_no_click_is_left_out_and_counted(tmp_path: Path):
    """The first reason counts, and every line has one."""
    lines = {
        line("-", "408", "-"): "no_request",
        line(r"\x16\x03\x01\x02\x00", "400", "-"): "no_request",
        line("", "400"): "no_request",
        line("GET p HTTP/1.1"): "no_request",
        line("t3 12.2.1"): "no_request",
        line("HEAD / HTTP/1.1"): "method",
        line("POST / HTTP/1.1", agent="Googlebot/2.1"): "method",
        line("QUERY / HTTP/1.1"): "method",
        line(r"POST /\" HTTP/1.1"): "method",
        line(status="404"): "status",
        line(status="301"): "status",
        line(status="500", agent="Googlebot/2.1", referer=r"\""): "status",
        line(agent="Mozilla/5.0 (compatible; Googlebot/2.1; +http://www.google.com/bot.html)"): "bot",
        line(agent="curl/8.5.0"): "bot",
        line(agent="OurBot/1.0"): "own_crawler",
        line(agent=r"\"ourbot\" (Googlebot/2.1)"): "own_crawler",
        line(agent="-"): "no_user_agent",
        line(agent=""): "no_user_agent",
        line("GET /robots.txt HTTP/1.1"): "robots_or_icon",
        line("GET /favicon.ico?v=2 HTTP/1.1"): "robots_or_icon",
    }
    path = write(tmp_path, "\n".join([*lines, line(), line(status="304"), line("GET /robots.txt.html")]))
    found = read(path, "requests", own_user_agent="Our-other, ourbot", **SITE)
    expected = {reason: list(lines.values()).count(reason) for reason in set(lines.values())}
    assert found.left_out == expected and not found.rejected and len(found.rows) == 3


def test_what_is_no_line_is_rejected_where_it_stands(tmp_path: Path):
    lines = [
        line(),
        "192.0.2.7 line 2",
        line(time="30/Feb/2026:03:04:05 +0100"),
        line()[:-10],
        "",
        line(time="01/Jan/1926:03:04:05 +0100"),
        line("GET /%zz HTTP/1.1"),
        line()[40:],
        line(status="20"),
        "  \t",
        line(front="192.0.2.7"),
    ]
    found = read(write(tmp_path, "\n".join(lines)), "requests", **SITE)
    bad = [(2, "bad_line"), (3, "bad_timestamp"), (4, "bad_line"), (6, "bad_timestamp")]
    assert found.reasons == [*bad, (8, "bad_line"), (9, "bad_line")]
    assert len(found.rows) == 3


def test_days_are_those_of_utc(tmp_path: Path):
    times = {
        "01/Jan/2026:00:59:59 +0100": DAY_2026 - 1,
        "01/Jan/2026:01:00:00 +0100": DAY_2026,
        "31/Dec/2025:16:00:00 -0800": DAY_2026,
        "31/dec/2025:23:59:59 +0000": DAY_2026 - 1,
        "01/Jan/2026:05:29:59 +0530": DAY_2026 - 1,
    }
    found = read(write(tmp_path, "\n".join(line(time=time) for time in times)), "requests", **SITE)
    assert [row["day"] for row in found.rows] == list(times.values())


def test_a_log_without_hosts_says_what_to_do(tmp_path: Path):
    path = write(tmp_path, line(agent="Googlebot/2.1") + "\n" + line() + "\n")
    with pytest.raises(InputError, match=r"line 2 does not say .* --requests_site https://HOST"):
        read(path, "requests")
    for bad in ("shop test", "ftp://shop.test", "https://shop.test/a"):
        with pytest.raises(InputError, match="expected a scheme and a host"):
            read(path, "requests", requests_site=bad)
    # Where lines do say it, one that does not is a defect of that line.
    path = write(tmp_path, "\n".join([line(more=" shop.test"), line(), line("GET /q", more=" shop.test")]))
    found = read(path, "requests")
    assert found.reasons == [(2, "no_host")]
    assert found.seen("url") == [("https://shop.test/p/1",), ("https://shop.test/q",)]


MIXED = [*SAME.values(), "", "broken", line(agent="OurBot"), line("-"), line("GET /é"), line(more=" x.test")]


@pytest.mark.parametrize("size", [1, 100, 1000])
@pytest.mark.parametrize("packed", [False, True])
def test_nothing_depends_on_where_a_block_begins(size: int, packed: bool, tmp_path: Path, monkeypatch):
    data = "\n".join(MIXED * 3).encode()
    path = write(tmp_path, gzip.compress(data) if packed else data)
    whole = read(path, "requests", own_user_agent="ourbot", **SITE)
    monkeypatch.setattr(unpacking, "CHUNK_BYTES", size)
    parts = read(path, "requests", own_user_agent="ourbot", **SITE)
    assert (parts.rows, parts.reasons, parts.left_out) == (whole.rows, whole.reasons, whole.left_out)


_BITS = st.sampled_from([b'"', b"[", b"]", b" ", b"\\", b"\n", b"\r", b"- -", b"GET /", b"200", b"\x00\xff"])
_SOME = st.sampled_from([text.encode() for text in MIXED])


def _cut(drawn: tuple[bytes, int, int, bytes]) -> bytes:
    text, a, b, bit = drawn
    return text[:a] + bit + text[a + b :]


_DAMAGED = st.tuples(_SOME, st.integers(0, 200), st.integers(0, 9), _BITS).map(_cut)


@settings(deadline=None, max_examples=80, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(_SOME | _DAMAGED | st.binary(max_size=60), max_size=8).map(b"\n".join))
@example(b'"' * 7)
@example(b"\r")
def test_any_bytes_are_accounted_for(tmp_path: Path, data: bytes):
    data = solid(data)
    assume(not data.startswith(PACKED_OR_UTF_16))
    found = read(write(tmp_path, data), "requests", "access_log", **SITE)
    lines = [text for text in data.removeprefix(b"\xef\xbb\xbf").split(b"\n") if text.strip(b" \t\r")]
    assert found.lines == len(lines)
    assert all(len(row["sample"]) <= 200 for row in found.rejected)


SAMPLES = {
    # Lines that are not blank.
    "adv-combined_no_errors.log": 885,
    "adv-combined_with_errors.log": 889,
    "adv-dreamhost_apache_access.log": 129,
    "adv-nginx_access.log": 1000,
    "elastic-apache_logs-head.log": 4267,
}
_SIMPLE = re.compile(r'\S+ \S+ \S+ \[[^]]+\] "(.*?)" (\d{3}) \S+ "(?:[^"\\]|\\.)*" "((?:[^"\\]|\\.)*)"')


@pytest.mark.parametrize("name", SAMPLES)
def test_real_logs(name: str):
    """Against another reading of the same lines: one regular expression, and the package's own function."""
    path = shared_folder() / "data" / "formats" / "logs" / name
    if not path.exists():
        pytest.skip(f"no {path}; set RECRAWL_SHARED to the folder that holds data/formats")
    import crawleruseragents

    count = {"rows": 0, "bad_line": 0}
    known: dict[str, bool] = {}
    for text in filter(None, path.read_text("utf-8", "replace").split("\n")):
        found = _SIMPLE.match(text)
        if found is None:
            reason = "bad_line"
        else:
            request, status, agent = found[1].split(" "), int(found[2]), found[3]
            if agent not in known:
                known[agent] = crawleruseragents.is_crawler(agent)
            if not (len(request) > 1 and request[0].isupper() and request[0].isalpha()):
                reason = "no_request"
            elif request[0] != "GET":
                reason = "method"
            elif not (200 <= status < 300 or status == 304):
                reason = "status"
            elif known[agent]:
                reason = "bot"
            elif agent in ("", "-"):
                reason = "no_user_agent"
            else:
                plain = request[1].split("?")[0]
                reason = "robots_or_icon" if plain in ("/robots.txt", "/favicon.ico") else "rows"
        count[reason] = count.get(reason, 0) + 1
    got = read(path, "requests", **SITE)
    assert got.forms == ["access_log"] and got.lines == SAMPLES[name] == sum(count.values())
    assert {"rows": len(got.rows), "bad_line": len(got.rejected)} | got.left_out == count
