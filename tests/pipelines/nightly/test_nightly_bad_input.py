"""Bad files, bad rows, no rows: the run goes on where it can, and says what it could not use."""

from __future__ import annotations

import gzip
from itertools import pairwise
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.pipelines.jobs import Night, at, crawls, nightly, seen, write_rows

GOOD = [r for i in range(40) for r in crawls(f"https://h{i % 4}.test/{i}", "AABBC")]
KINDS = ("pages", "schedule", "state", "state/signals", "slots/pages", "slots/hosts")


class TestNoInput:
    """A job that crashes on nothing, or passes it by: an exit code, valid empty outputs, and the reason."""

    @staticmethod
    def check(night: Night, reason: str) -> None:
        assert night.code == 3, night.complaints
        assert "Traceback" not in night.complaints
        manifest = night.manifest
        assert manifest["status"] == "no_input" and reason in manifest["status_reason"]
        assert manifest["status_reason"] in night.printed
        assert (manifest["slots"], manifest["allocated_per_day"], manifest["multiplier"]) == (0, 0, 0)
        for kind in KINDS:
            table = night.table(kind)
            assert table.num_rows == 0 and table.num_columns > 1, kind
            assert len([f for f in manifest["files"] if f["path"].rpartition("/")[0] == kind]) == 2

    def test_an_empty_file(self, tmp_path):
        (tmp_path / "log.csv").write_bytes(b"")
        self.check(nightly(tmp_path, observations=tmp_path / "log.csv"), "empty")

    @pytest.mark.parametrize("suffix", [".csv", ".csv.gz", ".parquet"])
    def test_a_header_only(self, suffix, tmp_path):
        path = tmp_path / f"log{suffix}"
        header = b"url,fetched_at,status\n"
        if suffix == ".parquet":
            names = pa.schema([("url", pa.string()), ("fetched_at", pa.string())])
            pq.write_table(names.empty_table(), path)
        else:
            path.write_bytes(gzip.compress(header) if suffix.endswith("gz") else header)
        self.check(nightly(tmp_path, observations=path), "empty")

    def test_all_rows_rejected(self, tmp_path):
        """Too many are too many, in a first night as in any other; who allows all of them gets the reason."""
        rows = [seen(f"ftp://a.test/{i}", at(i)) for i in range(5)]
        night = nightly(tmp_path, observations=rows, max_rejected_fraction=0.01)
        assert night.code == 4 and not night.committed
        assert "5 of 5 input rows were rejected" in night.complaints and "bad_url: 5" in night.complaints
        assert len(night.rejected()) == 5
        allowed = nightly(tmp_path, "allowed", observations=rows, max_rejected_fraction=1)
        self.check(allowed, "all 5 rows")
        assert "(no page is known)" in allowed.printed and "no page gains" not in allowed.printed

    def test_all_crawls_failed(self, tmp_path):
        """A crawler that is blocked: its pages are known, and nothing is learned of them."""
        rows = [seen(f"https://a.test/{i % 4}", at(i), None, 403) for i in range(12)]
        night = nightly(tmp_path, observations=rows)
        (text,) = [w for w in night.manifest["warnings"] if "succeeded" in w]
        assert text.startswith("none of 12 fetches in the crawl log succeeded") and "blocked" in text
        assert night.counters["pages_never_fetched"] == 4
        assert "0 never crawled, 4 crawled without success" in night.printed
        mixed = nightly(tmp_path, "mixed", observations=[*rows, seen("https://a.test/0", at(13))])
        assert not [w for w in mixed.manifest["warnings"] if "succeeded" in w]
        assert "0 never crawled, 3 crawled without success" in mixed.printed

    def test_all_rows_later(self, tmp_path):
        self.check(nightly(tmp_path, observations=[seen("https://a.test/", at(31))]), "later than --as_of")

    def test_the_next_night_goes_on_from_nothing(self, tmp_path):
        (tmp_path / "log.csv").write_bytes(b"")
        empty = nightly(tmp_path, "empty", observations=tmp_path / "log.csv")
        night = nightly(tmp_path, "next", observations=GOOD, state=empty.folder / "state")
        fresh = nightly(tmp_path, "fresh", observations=GOOD)
        assert night.code == fresh.code == 0
        assert night.digests("pages", "schedule", "state", "slots") == fresh.digests(
            "pages", "schedule", "state", "slots"
        )

    def test_a_catalogue_alone_is_input(self, tmp_path):
        """Pages that were never crawled, and no log yet."""
        pages = [{"url": f"https://h{i}.test/"} for i in range(12)]
        night = nightly(tmp_path, pages=pages, num_shards=1)
        assert night.code == 0 and night.counters["pages_new"] == 12
        assert {r["reason"] for r in night.rows("schedule")} == {"new"}
        assert len(night.rows("schedule")) == 10
        assert len({r["url"] for r in night.rows("schedule")}) == 10


BAD_ROWS: list[tuple[str, bytes, str | None]] = [
    # name, line of CSV (url, fetched_at, status, digest), reason or None where the row is good
    ("null url", b",2026-06-01,200,A", "no_url"),
    ("blank url", b"   ,2026-06-01,200,A", "no_url"),
    ("long url", b"https://long.test/" + b"x" * 1_000_000 + b",2026-06-01,200,A", "url_too_long"),
    ("not utf-8", b"https://bytes.test/\xff\xfe,2026-06-01,200,A", "bad_utf8"),
    ("no scheme", b"www.a.test/x,2026-06-01,200,A", "bad_url"),
    ("other scheme", b"ftp://a.test/x,2026-06-01,200,A", "bad_url"),
    ("no host", b"http://?x,2026-06-01,200,A", "bad_url"),
    ("bad port", b"http://a.test:99999/x,2026-06-01,200,A", "bad_url"),
    ("year 1", b"https://year.test/1,0001-01-01T00:00:00Z,200,A", "bad_timestamp"),
    ("year 9999", b"https://year.test/9999,9999-12-31T23:59:59Z,200,A", "bad_timestamp"),
    ("no time", b"https://year.test/none,,200,A", "bad_timestamp"),
    ("30 February", b"https://year.test/feb,2026-02-30,200,A", "bad_timestamp"),
    ("status text", b"https://status.test/,2026-06-01,OK,A", "bad_status"),
    ("status huge", b"https://status.test/,2026-06-01,99999999999,A", "bad_status"),
    ("percent at end", b"https://a.test/100%,2026-06-01,200,A", None),
    ("umlaut", "https://a.test/ä,2026-06-01,200,Ä".encode(), None),
    ("quoted comma", b'"https://a.test/x,y",2026-06-01,200,"A,B"', None),
]


@pytest.fixture(scope="module")
def mixed(tmp_path_factory: pytest.TempPathFactory) -> Night:
    """Good files, bad rows, and files that break off: a truncated Parquet and a truncated gzip file."""
    folder: Path = tmp_path_factory.mktemp("mixed")
    logs = folder / "logs"
    write_rows(logs / "day=1" / "good.parquet", GOOD)
    lines = [b"url,fetched_at,status,digest", *(line for _, line, _ in BAD_ROWS)]
    (logs / "bad.csv").write_bytes(b"\n".join(lines) + b"\n")
    whole = write_rows(folder / "whole.parquet", GOOD).read_bytes()
    (logs / "cut.parquet").write_bytes(whole[: len(whole) // 2])
    packed = write_rows(
        folder / "whole.csv.gz", [seen(f"https://gz.test/{i}", at(1), str(i)) for i in range(9999)]
    )
    (logs / "cut.csv.gz").write_bytes(packed.read_bytes()[:-2000])
    (logs / "notes.txt").write_text("not a log")
    (logs / "_temporary.csv").write_text("not,a,log")
    night = nightly(folder, observations=logs, budget=50)
    assert night.code == 0, night.complaints
    return night


@pytest.mark.parametrize("name, line, reason", BAD_ROWS, ids=[r[0] for r in BAD_ROWS])
def test_a_row_is_used_or_rejected_with_its_line(name, line, reason, mixed):
    number = [r[0] for r in BAD_ROWS].index(name) + 2  # the header is line 1
    found = [r for r in mixed.rejected() if r["source"].endswith("bad.csv") and r["row"] == number]
    assert [r["reason"] for r in found] == ([] if reason is None else [reason])
    if reason and line[:1] not in (b",", b" "):
        assert line[:8].decode() in found[0]["sample"] and len(found[0]["sample"]) <= 200


def test_good_rows_beside_bad_ones_are_kept_as_they_came(mixed):
    """URLs verbatim: an escape is an escape, a per cent sign is one."""
    urls = set(mixed.urls())
    assert {"https://a.test/100%", "https://a.test/ä", "https://a.test/x,y"} <= urls
    assert {r["url"] for r in GOOD} <= urls
    assert not [u for u in urls if "year.test" in u or "status.test" in u]


def test_truncated_files_are_named_and_give_what_they_have(mixed):
    cut = {Path(r["source"]).name: r["reason"] for r in mixed.rejected() if r["row"] == -1}
    assert cut == {"cut.parquet": "truncated_file", "cut.csv.gz": "truncated_file"}
    rows = [u for u in mixed.urls() if "gz.test" in u]
    assert 0 < len(rows) < 9999


def test_rows_are_conserved(mixed):
    counters = mixed.counters
    n_bad = sum(reason is not None for *_, reason in BAD_ROWS)
    assert counters["observations_rejected"] == n_bad == len(mixed.rejected()) - 2
    assert counters["observations_files_truncated"] == 2
    n_gzip = len([u for u in mixed.urls() if "gz.test" in u])
    assert counters["observations_accepted"] == len(GOOD) + len(BAD_ROWS) - n_bad + n_gzip


def test_too_many_bad_rows_stop_the_night_after_they_are_written(tmp_path):
    rows = GOOD + [seen("nowhere", at(1), "A")] * 3  # 3 of 203 are more than one in a hundred
    night = nightly(tmp_path, observations=rows, max_rejected_fraction=0.01)
    assert night.code == 4 and not night.committed
    assert "3 of 203 input rows" in night.complaints and "observations bad_url: 3" in night.complaints
    assert "--max_rejected_fraction" in night.complaints and "Traceback" not in night.complaints
    assert len(night.rejected()) == 3
    assert nightly(tmp_path, "more", observations=rows, max_rejected_fraction=0.02).code == 0
    fewer = nightly(tmp_path, "fewer", observations=rows[:-1], max_rejected_fraction=0.01)  # 2 of 202
    assert fewer.code == 0


def test_counts_that_are_no_counts(tmp_path):
    """NaN, negative and absurd clicks; the rest of the page's rows counts."""
    url = GOOD[0]["url"]
    lines = [
        f"{url},2026-06-0{i + 1},{c}"
        for i, c in enumerate(["nan", "-1", "inf", "1e300", "many", "3", "", "0.5"])
    ]
    log = tmp_path / "clicks.csv"
    log.write_text("\n".join(["url,day,clicks", *lines]))
    night = nightly(tmp_path, observations=GOOD, requests=log)
    assert night.counters["requests_rejected_bad_clicks"] == 5
    assert sorted(r["row"] for r in night.rejected()) == [2, 3, 4, 5, 6]
    (state,) = [r for r in night.rows("state") if r["url"] == url]
    assert sum(state["request_clicks"]) == 3.5 * 2**20


@pytest.fixture(scope="module")
def spelled(tmp_path_factory: pytest.TempPathFactory) -> Night:
    """Hosts in many spellings, and a gap of 3 hours for two of them."""
    urls = [
        "http://EXAMPLÉ.test/1",
        "http://xn--exampl-gva.test/2",
        "http://exampl%C3%A9.test./3",
        "https://exampl\u0065\u0301.test:8443/4",
        "http://0x7f.1/",
        "http://127.0.0.1:8080/x",
        "http://[2001:db8::1]:8080/",
        "http://[2001:DB8:0:0::1]/y",
        "http://a.test:80/",
        "https://A.TEST.:443/",
    ]
    hosts = [
        {"host": "exampl\u00e9.test", "min_gap_seconds": 10_800},
        {"host": "[2001:db8::1]", "min_gap_seconds": 10_800},
    ]
    rows = [r for u in urls for r in crawls(u, "ABCDE", 24)]
    night = nightly(tmp_path_factory.mktemp("hosts"), observations=rows, hosts=hosts, budget=100)
    assert night.code == 0, night.complaints
    return night


def _urls_of(night: Night, host: str) -> set[str]:
    return {r["url"] for r in night.rows("pages") if r["host"] == host}


def test_spellings_of_a_host_share_one_key_and_keep_their_urls(spelled):
    """Each spelling has a queue: upper case, punycode, percent-encoding, final dot, decomposed, a port."""
    assert len(_urls_of(spelled, "xn--exampl-gva.test")) == 4
    assert "http://EXAMPLÉ.test/1" in _urls_of(spelled, "xn--exampl-gva.test")
    assert _urls_of(spelled, "a.test") == {"http://a.test:80/", "https://A.TEST.:443/"}


def test_numeric_hosts_are_canonical(spelled):
    """Forms of IPv4; IPv6 with brackets; the port stays in the URL."""
    assert _urls_of(spelled, "127.0.0.1") == {"http://0x7f.1/", "http://127.0.0.1:8080/x"}
    assert _urls_of(spelled, "[2001:db8::1]") == {"http://[2001:db8::1]:8080/", "http://[2001:DB8:0:0::1]/y"}


def test_a_limit_holds_for_all_spellings_of_its_host(spelled):
    for host in ("xn--exampl-gva.test", "[2001:db8::1]"):
        due = sorted(r["due_at"] for r in spelled.rows("schedule") if r["host"] == host)
        assert 5 <= len(due) <= 8
        assert min((b - a).total_seconds() for a, b in pairwise(due)) >= 10_800


def test_very_many_rows_of_one_page(tmp_path):
    """A minute apart for 139 days."""
    n = 200_000
    first = 1_770_000_000
    table = pa.table(
        {
            "url": pa.array(["https://one.test/"] * n).dictionary_encode(),
            "fetched_at": pa.array(range(first, first + 60 * n, 60)),
            "digest": pa.array([f"{i // 1000}" for i in range(n)]),
        }
    )
    pq.write_table(table, tmp_path / "log.parquet")
    night = nightly(tmp_path, observations=tmp_path / "log.parquet")
    assert night.code == 0
    page = night.page("https://one.test/")
    assert (page["n_intervals"], page["n_changes"]) == (n - 1, 199)
    assert page["change_rate_per_day"] == pytest.approx(1.44, rel=0.35)


@pytest.mark.parametrize("output_format, suffix", [("jsonl", ".jsonl"), ("avro", ".avro")])
def test_results_in_other_formats_hold_the_same(output_format, suffix, tmp_path):
    """And tomorrow reads its own state all the same."""
    log = write_rows(tmp_path / "log.csv", GOOD)
    parquet = nightly(tmp_path, "parquet", observations=log)
    other = nightly(tmp_path, "other", observations=log, output_format=output_format)
    assert other.code == 0 and other.digests("state", "slots") == parquet.digests("state", "slots")
    for kind in ("pages", "schedule"):
        files = [f for f in other.manifest["files"] if f["path"].startswith(f"{kind}/")]
        assert {Path(f["path"]).suffix for f in files} == {suffix}
        assert sum(f["rows"] for f in files) == len(parquet.rows(kind))
