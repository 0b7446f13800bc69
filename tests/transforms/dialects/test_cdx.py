"""CDX files: which field is which, and what is no visit of a page."""

from __future__ import annotations

import base64
import gzip
import tempfile
from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from tests.transforms.dialects.indexes import EMPTY, HEADER, A, B, accounted, capture, folded
from tests.transforms.dialects.reading import PACKED_OR_UTF_16, read, solid, write
from transforms.batches.errors import InputError
from transforms.batches.hashing import stable_hash
from transforms.files import unpacking

AT = datetime(2026, 1, 1, 2, 3, 4, tzinfo=UTC)


def lines_of(letters: str, **values: str) -> str:
    usual = {
        "N": "test,a)/x",
        "A": "a.test/x",
        "a": "https://a.test/x",
        "b": "20260101020304",
        "m": "text/html",
    }
    usual |= {"s": "200", "k": A, "S": "512", "V": "0", "g": "a.warc.gz", "u": "urn:uuid:0", "e": "10.0.0.1"}
    return " ".join((usual | values).get(letter, "-") for letter in letters)


# wget's order has the URL twice, the last field is an id; the others are layouts of archives' tools.
@pytest.mark.parametrize(
    "letters", ["NbamskrMSVg", "NbamskrMVg", "NbamskrVg", "abamskrMVgu", "AbeamsckrVvDdgMn", "gVkmsabN"]
)
@pytest.mark.parametrize("header", [" CDX {}", "CDX {}"])
def test_a_header_names_the_fields(tmp_path, letters, header):
    text = header.format(" ".join(letters)) + "\n" + lines_of(letters) + "\n"
    found = read(write(tmp_path, text))
    assert found.forms == ["cdx"]
    assert found.seen("url", "fetched_at", "status", "digest_hash") == [
        ("https://a.test/x", AT, 200, stable_hash(A))
    ]
    accounted(found, text, no_rows=1)


@pytest.mark.parametrize("letters", ["NbamskrMSVg", "NbamskrMVg", "NbamskrVg", "NbamskS"])
def test_without_a_header_the_first_sound_line_tells_the_layout(tmp_path, letters):
    lines = [lines_of(letters), lines_of(letters, a="https://a.test/y z"), lines_of(letters, s="404")]
    found = read(write(tmp_path, "\n".join(lines)))
    assert found.seen("url", "status") == [("https://a.test/x", 200), ("https://a.test/x", 404)]
    assert found.reasons == [(2, "column_count")]
    n = len(letters)
    assert found.rejected[0]["sample"].startswith(f"{n + 1} columns, expected {n}: test,a)/x 2026")


def test_fields_that_look_wrong_are_not_read_by_their_number(tmp_path):
    # Twelve fields: other readers take this for nine and three, the status for "text/html".
    text = "test,a)/x 20260101000000 http://a.test/x y text/html 200 AAAA - - 9 0 f\n"
    found = read(write(tmp_path, text, "a.cdx"))
    assert (found.rows, found.reasons) == ([], [(1, "column_count")])
    assert found.rejected[0]["sample"] == f"12 columns, expected 7, 9, 10 or 11: {text.strip()}"
    # The right number by accident: the status says so.
    line = "test,a)/x 20260101000000 http://a.test/x y text/html 200 AAAA - 9 0 f"
    found = read(write(tmp_path, f"{HEADER}\n{line}\n{capture()}\n"))
    assert found.reasons == [(2, "bad_status")]


def test_headers_in_mid_file_change_the_layout(tmp_path):
    parts = ["NbamskrMSVg", "abamskrMVgu", "NbamskrVg"]
    text = "".join(f" CDX {' '.join(p)}\n{lines_of(p)}\n\n{lines_of(p, s='404')}\n" for p in parts)
    for chunk in (1, 30, 100, 8 << 20):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(unpacking, "CHUNK_BYTES", chunk)
            found = read(write(tmp_path, text))
        assert found.seen("status") == [(200,), (404,)] * 3
        accounted(found, text, no_rows=6)


def test_a_sorted_file_has_its_header_anywhere(tmp_path):
    found = read(write(tmp_path, f"{capture()}\n{HEADER}\n{capture(status=404)}\r\n"))
    assert found.seen("status") == [(200,), (404,)]
    assert found.rejected == []


def test_a_key_stands_for_the_url_where_there_is_none(tmp_path):
    for letters, url in (("NbmskrVg", "http://a.test/x"), ("AbmskrVg", "http://a.test/x")):
        found = read(write(tmp_path, f" CDX {' '.join(letters)}\n{lines_of(letters)}\n"))
        assert found.seen("url") == [(url,)]


@pytest.mark.parametrize("letters", ["N m s k", "b m s k"])
def test_a_header_without_time_or_url_is_an_error(tmp_path, letters):
    with pytest.raises(InputError, match=f"header CDX {letters}"):
        read(write(tmp_path, f" CDX {letters}\na b c d\n"))


def test_the_index_of_a_zipnum_cluster_is_an_error_with_the_remedy(tmp_path):
    idx = "test,a)/ 20260101020304\tpart-0\t0\t275\t1\ntest,b)/ 20260101020304\tpart-0\t275\t3\t2\n"
    for name, text in (("a.idx", idx), ("cluster", idx), ("a.loc", "part-0\t/data/part-0.cdx.gz\n")):
        with pytest.raises(InputError, match=r"ZipNum.*Give the \.cdx\.gz"):
            read(write(tmp_path, text, name))


def test_gzip_members_whose_last_line_has_no_end(tmp_path):
    lines = [capture(20260101020300 + i) for i in range(6)]
    packed = b"".join(gzip.compress("\n".join(lines[i : i + 2]).encode()) for i in (0, 2, 4))
    assert [r[0].second for r in read(write(tmp_path, packed)).seen("fetched_at")] == [0, 1, 2, 3, 4, 5]
    # A member may as well end inside a line.
    whole = "\n".join(lines).encode()
    for cut in (25, 70, len(lines[0]) - 4, len(lines[0]), len(lines[0]) + 1):
        found = read(write(tmp_path, gzip.compress(whole[:cut]) + gzip.compress(whole[cut:])))
        assert (len(found.rows), found.rejected) == (6, [])


# --- What a line says ---------------------------------------------------------------------------------


def one(folder: Path, *lines: str, **options: str):
    return read(write(folder, "\n".join([HEADER, *lines])), **options)


def test_what_is_no_visit_of_a_page_is_left_out(tmp_path):
    lines = [
        capture(),
        capture(url="dns:a.test", mime="text/dns"),
        capture(url="filedesc://a.arc", key="filedesc:a"),
        capture(url="warcinfo:/a.warc.gz/archiveIt"),
        capture(url="metadata://gnu.test/warc/MANIFEST.txt", status="-"),
        capture(mime="warc/request"),
        capture(mime="application/warc-fields"),
        capture(url="https://a.test/robots.txt"),
        capture(url="HTTP://a.test:80/robots.txt?x"),
        capture(key="test,a)/x?__wb_method=post&a=1"),
        capture(url="https://a.test/about/robots.txt"),
        capture(url="https://a.test/?u=https://b.test/robots.txt"),
    ]
    found = one(tmp_path, *lines)
    assert found.left_out == {"not_a_page": 6, "robots_txt": 2, "not_get": 1}
    assert len(found.rows) == 3
    assert found.rejected == []


def test_what_archives_cannot_hold_is_rejected_like_any_url(tmp_path):
    found = one(tmp_path, capture(url="a.test:80/x"), capture(url="http://"), capture(url="-"))
    assert found.reasons == [(2, "bad_url"), (3, "bad_url"), (4, "bad_url")]


def test_a_resume_key_and_comments_are_no_captures(tmp_path):
    text = f"{HEADER}\n{capture()}\n# a comment\n\ntest%2Ca%29%2F+20260101235545\n{capture()}\nlone-word\n"
    found = read(write(tmp_path, text))
    assert found.left_out == {"resume_key": 1}
    assert found.reasons == [(7, "column_count")]
    accounted(found, text, no_rows=3)


@pytest.mark.parametrize("none", ["-", "-1", "=", "0"])
def test_a_revisit_has_no_status_and_its_digest_counts(tmp_path, none):
    def counts(digest: str, mime: str = "warc/revisit", before: str = A) -> dict[str, int]:
        lines = [
            capture(20260101000000, digest=before),
            capture(20260102000000, mime=mime, status=none, digest=digest),
        ]
        return folded(write(tmp_path, "\n".join([HEADER, *lines])))

    assert counts(A) == {"baseline": 1, "unchanged": 1}
    assert counts(B) == {"baseline": 1, "changed_undated": 1}
    # Without a digest it says that nothing has changed, whatever was there.
    assert counts("-") == {"baseline": 1, "unchanged": 1}
    # That of an empty body says nothing.
    assert counts(EMPTY) == {"baseline": 1, "no_change_evidence": 1}


def test_a_revisit_with_a_real_status_keeps_it(tmp_path):
    lines = [capture(mime="warc/revisit", status=s, digest="-") for s in (304, 404, 503)]
    assert one(tmp_path, *lines).seen("status") == [(304,), (404,), (503,)]


def test_a_failed_fetch_is_no_revisit(tmp_path):
    lines = [capture(20260101000000), capture(20260102000000, status=-2, digest="-")]
    assert folded(write(tmp_path, "\n".join([HEADER, *lines]))) == {"baseline": 1, "failed": 1}


def test_304_on_the_first_fetch_is_no_baseline(tmp_path):
    lines = [
        capture(20260101000000, status=304, digest=EMPTY),
        capture(20260102000000, digest=B),
        capture(20260103000000, digest=B),
    ]
    found = folded(write(tmp_path, "\n".join([HEADER, *lines])))
    assert found == {"not_modified_without_baseline": 1, "baseline": 1, "unchanged": 1}


def test_redirects_to_one_page_are_pages_of_their_own(tmp_path):
    urls = ["https://a.test/1", "https://a.test/2", "https://a.test/c"]
    lines = [capture(20260101000000 + i * 1000000, url=u, status=s)
             for i in range(2) for u, s in zip(urls, (301, 301, 200), strict=True)]  # fmt: skip
    assert folded(write(tmp_path, "\n".join([HEADER, *lines]))) == {"baseline": 3, "unchanged": 3}


def test_one_digest_in_any_spelling(tmp_path):
    raw = bytes(range(20))
    b32 = base64.b32encode(raw).decode()
    spelled = [b32, b32.lower(), f"sha1:{b32}", f"SHA-1:{b32.lower()}", raw.hex(), raw.hex().upper()]
    found = one(tmp_path, *(capture(digest=d) for d in [*spelled, f"sha1:{raw.hex()}", B]))
    hashes = [h for (h,) in found.seen("digest_hash")]
    assert hashes == [stable_hash(b32)] * 7 + [stable_hash(B)]
    long = "0F" * 32
    found = one(tmp_path, *(capture(digest=d) for d in (long, long.lower(), f"sha-256:{long}", "zz" * 20)))
    assert [h for (h,) in found.seen("digest_hash")] == [stable_hash(long.lower())] * 3 + [
        stable_hash("zz" * 20)
    ]


def test_the_digest_of_an_empty_body_is_none(tmp_path):
    hexadecimal = "da39a3ee5e6b4b0d3255bfef95601890afd80709"
    found = one(
        tmp_path, *(capture(digest=d) for d in (EMPTY, EMPTY.lower(), f"sha1:{EMPTY}", hexadecimal, "-"))
    )
    assert found.seen("digest_hash") == [(None,)] * 5


# --- Times ---------------------------------------------------------------------------------------------


def test_times_of_any_precision(tmp_path):
    texts = [
        "20260101020304123",
        "202601010203041",
        "20260101020304",
        "202601010203",
        "2026010102",
        "20260101",
    ]
    found = one(tmp_path, *map(capture, texts))
    at = [t for (t,) in found.seen("fetched_at")]
    assert at[:2] == [AT.replace(microsecond=123000), AT.replace(microsecond=100000)]
    assert at[2:] == [
        AT,
        AT.replace(second=0),
        AT.replace(minute=0, second=0),
        datetime(2026, 1, 1, tzinfo=UTC),
    ]


@pytest.mark.parametrize(
    "at", ["2026", "202601", "2026010", "2026010102030", "20261301020304", "2026x101020304", "-", "9" * 30]
)
def test_what_is_no_time_costs_its_line(tmp_path, at):
    found = one(tmp_path, capture(), capture(at), capture(20260101020304123))
    assert len(found.rows) == 2
    assert found.reasons == [(3, "bad_timestamp")]
    assert at in found.rejected[0]["sample"]


def test_two_captures_within_the_precision_are_one(tmp_path):
    for times in (
        [202601010203, 202601010203],
        [202601010203, 20260101020344],
        [20260101020304123, 20260101020304],  # copies of one record
        [20260101020304] * 3 + [20260101020306],
    ):
        counts = folded(write(tmp_path, "\n".join([HEADER, *map(capture, times)])))
        assert counts == {"baseline": 1, "duplicate": len(times) - 1}


def test_a_stray_00_is_rejected_or_repaired(tmp_path):
    # Before the month, and before the day; the third is no time either way.
    lines = [capture(20000800241623), capture(20000008241623), capture(20000013241623), capture()]
    assert one(tmp_path, *lines).reasons == [(2, "bad_timestamp"), (3, "bad_timestamp"), (4, "bad_timestamp")]
    found = one(tmp_path, *lines, repair_cdx00="True")
    meant = datetime(2000, 8, 24, 16, 23, tzinfo=UTC)
    assert found.seen("fetched_at") == [(meant,), (meant,), (AT,)]
    assert found.reasons == [(4, "bad_timestamp")]


# --- Files ---------------------------------------------------------------------------------------------


def test_the_order_of_lines_and_files_does_not_matter(tmp_path):
    lines = [capture(20260101000000 + i * 1000000, digest=A if i < 2 else B) for i in range(4)]
    together = folded(write(tmp_path, "\n".join([HEADER, *lines])))
    first = write(tmp_path, "\n".join([HEADER, lines[3], lines[0]]), "a.cdx")
    second = write(tmp_path, "\n".join([lines[2], lines[1]]), "b.cdx")
    assert folded(first, second) == folded(second, first) == together
    assert together == {"baseline": 1, "unchanged": 2, "changed_undated": 1}


def test_a_folder_of_a_zipnum_cluster(tmp_path):
    write(tmp_path, gzip.compress(capture().encode()), "part-0.cdx.gz")
    write(tmp_path, f'test,a)/x 20260101020304 {{"url": "https://a.test/x", "digest": "{A}"}}', "index.cdxj")
    write(tmp_path, "test,a)/ 20260101020304\tpart-0\t0\t275\t1\n", "part-0.idx")
    write(tmp_path, "part-0\tpart-0.cdx.gz\n", "part-0.loc")
    found = read(tmp_path)
    assert (found.forms, len(found.rows)) == (["cdxj", "cdx"], 2)


def test_variants_of_a_url_stay_pages_of_their_own(tmp_path):
    urls = ["http://a.test/x", "https://a.test/x", "https://www.a.test/x", "https://a.test:443/x"]
    assert folded(write(tmp_path, "\n".join(map(capture, [20260101000000] * 4, urls)))) == {"baseline": 4}


def test_urls_are_kept_as_they_are(tmp_path):
    urls = ["https://a.test/100%", "http://[2001:db8::1]:8080/", "http://0x7f.1/"]
    assert one(tmp_path, *(capture(url=u) for u in urls)).seen("url") == [(u,) for u in urls]


MIXED = [
    HEADER,
    capture(),
    "",
    capture(url="https://a.test/a b"),
    " " + capture(status="-"),
    HEADER.strip(),
    capture(202601),
    capture(url="dns:a.test"),
    "# comment",
    capture(mime="warc/revisit", digest="-"),
    " CDX N b a m s k r V g",
    lines_of("NbamskrVg", s="404"),
    "test%2Ca%29%2F+20260101235545",
    capture(),
]


@pytest.mark.parametrize("end", ["\n", "\r\n"])
@pytest.mark.parametrize("chunk", [1, 7, 64, 200, 8 << 20])
def test_nothing_depends_on_where_a_block_begins(tmp_path, monkeypatch, chunk, end):
    monkeypatch.setattr(unpacking, "CHUNK_BYTES", chunk)
    text = end.join(MIXED)
    found = read(write(tmp_path, text))
    assert found.seen("status", "not_modified") == [(200, None), (None, None), (200, True), (404, None)]
    assert found.reasons == [(4, "column_count"), (7, "bad_timestamp"), (14, "column_count")]
    assert found.left_out == {"not_a_page": 1, "resume_key": 1}
    accounted(found, text, no_rows=5)


PARTS = [
    HEADER,
    capture(),
    capture(status="-"),
    " ",
    "\n",
    "\n\n",
    "CDX",
    " CDX N b a",
    "\t",
    "\r",
    "\0",
    "é",
    "#",
]


@settings(max_examples=80, deadline=None)
@given(
    st.lists(st.sampled_from(PARTS) | st.binary(max_size=20).map(lambda b: b.decode("latin-1")), max_size=25)
)
def test_any_bytes_are_rows_left_out_or_rejected(parts):
    raw = solid("".join(parts).encode("utf-8" if len(parts) % 2 else "latin-1", "replace"))
    assume(not raw.startswith(PACKED_OR_UTF_16))
    with tempfile.TemporaryDirectory() as folder:
        found = read(write(Path(folder), raw, "a.cdx"), form="cdx")
    # Headers here are whole lines. A comment that has the fields of a capture may pass for one.
    lines = raw.removeprefix(b"\xef\xbb\xbf").replace(b"\r\n", b"\n").replace(b"\r", b" ").split(b"\n")
    headers = {b" CDX N b a", HEADER.encode()}
    rows = [x for x in lines if x.strip() and x.rstrip(b" \t") not in headers]
    comments = sum(x.strip().startswith(b"#") for x in rows)
    assert len(rows) - comments <= found.lines <= len(rows)
    assert sum(len(r["sample"]) for r in found.rejected) <= 200 * len(found.rejected)
