"""Logs with NULs in them: cut by copytruncate while their writer went on, or by a power failure."""

from __future__ import annotations

import gzip

import pytest

from tests.transforms.dialects.reading import read

LINES = {
    ("requests", "access_log"): [
        f'192.0.2.{i} - - [01/Jun/2026:02:00:0{i} +0000] "GET https://a.test/{i} HTTP/1.1" 200 5 "-" "Safari"'
        for i in range(4)
    ],
    ("requests", "w3c"): [
        "#Fields: date time cs-method cs(host) cs-uri-stem sc-status cs(user-agent)",
        *(f"2026-06-01 02:00:0{i} GET a.test /{i} 200 Firefox" for i in range(4)),
    ],
    ("requests", "csv"): ["url,day,clicks", *(f"https://a.test/{i},2026-06-01,{i}" for i in range(4))],
    ("observations", "jsonl"): [
        f'{{"url": "https://a.test/{i}", "fetched_at": "2026-06-01T02:00:0{i}Z"}}' for i in range(4)
    ],
    ("observations", "heritrix"): [
        f"2026-06-01T02:03:0{i}.010Z   200       5120 https://a.test/{i} L - text/html #012 "
        "20260601020304500+310 - - -"
        for i in range(4)
    ],
    ("observations", "cdx"): [
        " CDX N b a m s k r M S V g",
        *(f"test,a)/{i} 2026060102000{i} https://a.test/{i} text/html 200 A - - 9 0 f" for i in range(4)),
    ],
    ("hosts", "csv"): ["host,max_per_day", *(f"h{i}.test,5" for i in range(4))],
}  # fmt: skip


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize(("kind", "form"), LINES)
def test_a_log_that_begins_with_nulls(tmp_path, kind, form, packed):
    """More of them than are looked at, and than a chunk has."""
    lines = "".join(f"{line}\n" for line in LINES[kind, form]).encode()

    def put(name, content):
        path = tmp_path / (name + (".gz" if packed else ""))
        path.write_bytes(gzip.compress(content, 1) if packed else content)
        return path

    ending = form if form in ("csv", "jsonl") else "log"
    whole = read(put(f"whole.{ending}", lines), kind)
    assert len(whole.rows) == 4 and not whole.rejected
    size = 9 << 20
    cut = read(put(f"cut.{ending}", bytes(size) + lines), kind)
    assert (cut.forms, cut.rows, cut.left_out) == (whole.forms, whole.rows, whole.left_out)
    (note,) = cut.rejected
    assert note["reason"] == "nul_bytes" and note["sample"].startswith("9,437,184 NUL bytes")
    # The same between lines and behind them: a file system that was not unmounted.
    at = lines.index(b"\n", len(lines) // 2) + 1
    torn = read(put(f"torn.{ending}", lines[:at] + bytes(700) + lines[at:] + bytes(300)), kind)
    assert (torn.rows, torn.left_out) == (whole.rows, whole.left_out)
    assert [r["sample"][:5] for r in torn.rejected] == ["1,000"]


def test_nothing_but_nulls_is_a_file_without_rows(tmp_path):
    (tmp_path / "access.log").write_bytes(bytes(5000))
    found = read(tmp_path / "access.log", "requests")
    assert not found.rows and [r["reason"] for r in found.rejected] == ["nul_bytes"]
