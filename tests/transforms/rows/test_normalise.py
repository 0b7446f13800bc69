"""Blocks to batches of one schema: nothing is lost, every bad row says why."""

from datetime import UTC, datetime

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from transforms.batches import schemas
from transforms.batches.errors import InputError
from transforms.batches.hashing import stable_hash
from transforms.rows.normalise import HASHES, KINDS, columns_to_read, normalise, rejected_rows

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
URL = "https://a.test/x"


def _run(kind, columns, **options):
    raw = pa.RecordBatch.from_pydict(columns)
    done = normalise(KINDS[kind], raw, "f", **options)
    schemas.check(done.rejected, schemas.REJECTED, "rejected")
    assert done.rows.num_rows + done.rejected.num_rows == raw.num_rows
    assert done.rows.schema.metadata == KINDS[kind].schema.metadata
    return done


def _reasons(done):
    return list(zip(done.rejected["row"].to_pylist(), done.rejected["reason"].to_pylist(), strict=True))


def test_good_columns_pass_untouched():
    raw = {
        "url": pa.array([URL, "https://b.test/"]),
        "fetched_at": pa.array([NOW, NOW], schemas.TIME),
        "status": pa.array([200, None], pa.int16()),
        "digest": pa.array(["A", None]),
    }
    done = _run("observations", raw, hashes=False)
    schemas.check(done.rows, schemas.OBSERVATIONS, "rows")
    for name in ("url", "fetched_at", "status"):
        assert done.rows[name].buffers()[-1].address == raw[name].buffers()[-1].address
    assert done.rows["digest_hash"].to_pylist() == [stable_hash("A"), None]
    for name in ("changed", "not_modified", "last_modified"):
        assert done.rows[name].null_count == 2


def test_hashes_follow_the_columns():
    done = _run("observations", {"url": [URL], "fetched_at": [NOW]})
    assert list(done.rows.schema)[-2:] == HASHES
    assert done.rows["url_hash"].to_pylist() == [stable_hash(URL)]
    assert done.rows["host_hash"].to_pylist() == [stable_hash("a.test")]


def test_each_bad_row_has_its_reason_and_a_sample():
    urls = [URL, None, "", "ftp://a.test/", "x" * 9000, b"https://a.test/\xff", URL, URL, URL, URL, URL]
    raw = {
        "url": pa.array([u.encode() if isinstance(u, str) else u for u in urls], pa.binary()),
        "fetched_at": ["2026-01-02"] * 6 + ["0001-01-01", "", "2026-01-02", "2026-01-02", "2026-01-02"],
        "status": ["200"] * 8 + ["70000", "-", "200"],
        "changed": ["true"] * 10 + ["perhaps"],
        "last_modified": ["never"] * 11,
    }
    done = _run("observations", raw, row=100)
    assert _reasons(done) == [
        (101, "no_url"), (102, "no_url"), (103, "bad_url"), (104, "url_too_long"), (105, "bad_utf8"),
        (106, "bad_timestamp"), (107, "bad_timestamp"), (108, "bad_status"), (110, "bad_changed"),
    ]  # fmt: skip
    samples = done.rejected["sample"].to_pylist()
    assert samples[2] == "ftp://a.test/"
    assert samples[5] == f"{URL} | fetched_at=0001-01-01"
    assert max(map(len, samples)) <= 200
    # A bad Last-Modified costs nothing but itself.
    assert done.rows.num_rows == 2
    assert done.rows["last_modified"].to_pylist() == [None, None]


def test_words_of_crawlers_are_the_status_that_they_stand_for():
    words = ["FETCHED", "db_gone", "Redirection", "FETCH_ERROR", "DISCOVERED", "db_unfetched", "GONE", "304"]
    times = ["2026-01-02"] * 4 + [None, ""] + ["2026-01-02"] * 2
    raw = pa.RecordBatch.from_pydict({"url": [URL] * 8, "fetched_at": times, "status": words})
    done = normalise(KINDS["observations"], raw, "f")
    assert done.rows["status"].to_pylist() == [200, 404, 301, 599, 304]
    assert _reasons(done) == [(6, "bad_status")] and done.counts["left_out_never_fetched"] == 2


def test_a_row_with_several_faults_is_rejected_once():
    done = _run("observations", {"url": ["x"], "fetched_at": ["x"], "status": ["x"]})
    assert _reasons(done) == [(0, "bad_url")]


def test_unparsable_urls_are_rejected_however_many():
    n = 10_000
    done = _run("observations", {"url": [f"nonsense {i}" for i in range(n)], "fetched_at": [NOW] * n})
    assert done.rows.num_rows == 0
    assert set(done.rejected["reason"].to_pylist()) == {"bad_url"}
    assert done.rejected["row"].to_pylist() == list(range(n))


def test_a_megabyte_url_and_far_timestamps():
    raw = {
        "url": ["https://a.test/" + "x" * 1_000_000, URL, URL],
        "fetched_at": pa.array([1767323045, -62135596800, 253402300799]).cast(pa.timestamp("s")),
    }
    done = _run("observations", raw)
    assert _reasons(done) == [(0, "url_too_long"), (1, "bad_timestamp"), (2, "bad_timestamp")]
    assert done.rejected["sample"].to_pylist()[2] == f"{URL} | fetched_at=9999-12-31 23:59:59"


def test_white_space_around_urls_goes():
    done = _run("observations", {"url": [URL + " ", URL], "fetched_at": [NOW, NOW]})
    assert done.rows["url"].to_pylist() == [URL, URL]
    assert len(set(done.rows["url_hash"].to_pylist())) == 1


def test_requests_count_in_fixed_point_by_utc_day():
    one = round(1 / schemas.COUNT_UNIT)
    done = _run(
        "requests",
        {
            "url": [URL] * 6,
            "at": ["2026-01-01T23:30:00-01:00", "1767323045", "2026-01-02", "2026-01-02", "2026-01-02", "x"],
            "clicks": [1.0, 0.5, float("nan"), -1.0, float("inf"), 1.0],
        },
    )
    assert done.rows["day"].to_pylist() == [20455, 20455]
    assert done.rows["clicks"].to_pylist() == [one, one // 2]
    assert done.rows["impressions"].to_pylist() == [0, 0]
    assert _reasons(done) == [(2, "bad_clicks"), (3, "bad_clicks"), (4, "bad_clicks"), (5, "bad_timestamp")]


def test_requests_keep_their_hour_where_it_is_known():
    """Times say it, dates do not; what a column says counts more, and a bad hour takes no request."""
    times = ["2026-01-01T23:30:00-01:00", "1767323045", "2026-01-02", "02/Jan/2026:17:05:09 +0000"]
    done = _run("requests", {"url": [URL] * 4, "at": times, "clicks": [1] * 4})
    assert done.rows["hour"].to_pylist() == [0, 3, None, 17]
    said = ["7", "07", None, "24", "x", "1.5"]
    done = _run("requests", {"url": [URL] * 6, "day": ["2026-01-02"] * 6, "hour": said, "clicks": [1] * 6})
    assert done.rows["hour"].to_pylist() == [7, 7, None, None, None, None]
    assert done.rejected.num_rows == 0
    assert done.noted["reason"].to_pylist() == ["bad_hour"] * 3
    whole = pa.array([1767323045 * 10**6], pa.timestamp("us", "UTC"))
    done = _run("requests", {"url": [URL], "day": ["2026-01-02"], "hour": whole, "clicks": [1]})
    assert done.rows["hour"].to_pylist() == [3]
    both = {"url": [URL] * 2, "day": ["2026-01-02"] * 2, "at": ["2026-01-02T05:06:07Z", None]}
    assert _run("requests", both | {"clicks": [1, 1]}).rows["hour"].to_pylist() == [5, None]


def test_requests_take_the_day_and_else_the_time():
    done = _run(
        "requests",
        {
            "url": [URL] * 4,
            "day": ["2026-01-02", None, None, "2026-01-02"],
            "at": ["x", "2026-01-03T01:00:00Z", None, None],
            "impressions": ["1", "2", "3", "x"],
        },
    )
    assert done.rows["day"].to_pylist() == [20455, 20456]
    assert _reasons(done) == [(2, "bad_timestamp"), (3, "bad_impressions")]


def test_pages():
    nan, inf = float("nan"), float("inf")
    done = _run(
        "pages",
        {
            "url": [URL] * 9,
            "importance": [nan, -1.0, 0.0, inf, None, 1.0, 1.0, 1.0, 1.0],
            "min_rate_per_day": [None, None, None, None, None, -1.0, 2.0, 1.0, 0.5],
            "max_rate_per_day": [None, None, None, None, None, 1.0, 1.0, nan, 1.0],
            "template": ["a", "b", "c", "d", "e", "f", "g", "h", None],
            "price": list(range(9)),
        },
    )
    assert _reasons(done) == [
        (0, "bad_importance"), (1, "bad_importance"), (3, "bad_importance"), (5, "bad_rate"),
        (6, "floor_above_cap"), (7, "bad_rate"),
    ]  # fmt: skip
    assert done.rows["importance"].to_pylist() == [0.0, None, 1.0]
    # Metadata passes through as text, after the columns of the schema.
    assert done.rows.schema.names[5:7] == ["template", "price"]
    assert done.rows["price"].to_pylist() == ["2", "4", "8"]
    assert done.rows["template"].to_pylist() == ["c", "e", None]


def test_signals_that_name_no_source_are_of_one_source():
    done = _run("signals", {"url": [URL, URL], "signalled_at": [NOW, None]})
    assert done.rows["source"].to_pylist() == ["signal"]
    assert _reasons(done) == [(1, "bad_timestamp")]
    columns = {"url": [URL] * 4, "signalled_at": [NOW] * 4, "source": ["", "  ", None, "cdn"]}
    assert _run("signals", columns).rows["source"].to_pylist() == ["signal"] * 3 + ["cdn"]
    columns["received_at"] = columns.pop("signalled_at")
    assert _run("signals", columns).rows["source"].to_pylist() == ["indexnow"] * 3 + ["cdn"]


def test_hosts_in_any_spelling():
    names = ["EXAMPLÉ.test", "http://exampl%C3%A9.test.:80/x", "[2001:DB8::1]:8080", "0x7f.1"]
    done = _run(
        "hosts", {"host": names, "max_per_day": ["10", None, "0", ""], "min_gap_seconds": [1, 2, 3, None]}
    )
    assert done.rows["host"].to_pylist() == ["xn--exampl-gva.test"] * 2 + ["[2001:db8::1]", "127.0.0.1"]
    assert done.rows["max_per_day"].to_pylist() == [10.0, None, 0.0, None]
    assert done.rows["host_hash"].to_pylist()[3] == stable_hash("127.0.0.1")


@pytest.mark.parametrize(
    ("columns", "named"),
    [
        ({"host": ["a.test", ""], "max_per_day": [1.0, 1.0]}, "row 8 .*host is ''"),
        ({"host": ["a.test", "b test"]}, "row 8 .*host is 'b test'"),
        ({"host": ["a.test", "b.test"], "max_per_day": [1.0, -1.0]}, "row 8 .*max_per_day is -1.0"),
        ({"host": ["a.test", "b.test"], "max_per_day": ["1", "lots"]}, "row 8 .*max_per_day is 'lots'"),
        (
            {"host": ["a.test", "b.test"], "min_gap_seconds": [1.0, float("nan")]},
            "row 8 .*min_gap_seconds is nan",
        ),
    ],
)
def test_a_limit_that_cannot_be_read_stops_the_run(columns, named):
    with pytest.raises(InputError, match=named):
        _run("hosts", columns, row=7)


def test_columns_of_a_file():
    def read(kind, *names, metadata=None, **types):
        fields = [(n, types.get(n, pa.string())) for n in names]
        return columns_to_read(KINDS[kind], pa.schema(fields), "f.csv", metadata)

    assert read("observations", "x", "fetched_at", "digest", "url") == ["url", "fetched_at", "digest"]
    assert read("requests", "impressions", "at", "url") == ["url", "at", "impressions"]
    assert read("pages", "b", "url", "a", "host_hash") == ["url", "b", "a"]
    assert read("pages", "b", "url", "a", metadata=["a"]) == ["url", "a"]
    assert read("pages", "url", "tags", tags=pa.list_(pa.string())) == ["url"]
    for kind, names, message in (
        (
            "observations",
            ["URL", "fetched_at"],
            r"f\.csv: observations need a column url.*has: URL, fetched_at",
        ),
        ("observations", ["x"], "a column url and a column fetched_at"),
        ("observations", [], "The file has: none"),
        ("requests", ["url", "clicks"], "a column day or at"),
        ("requests", ["url", "day"], "a column clicks or impressions"),
        ("observations", ["url", "url", "fetched_at"], "the column url occurs 2 times"),
    ):
        with pytest.raises(InputError, match=message):
            read(kind, *names)
    with pytest.raises(InputError, match="a column template"):
        read("pages", "url", metadata=["template"])
    for name, of in (("digest", pa.list_(pa.int8())), ("url", pa.int64()), ("fetched_at", pa.bool_())):
        with pytest.raises(InputError, match=f"the column {name} is {of}".replace("[", r"\[")):
            read("observations", "url", "fetched_at", "digest", **{name: of})


values = st.sampled_from(
    [
        "https://a.test/",
        "",
        None,
        "x",
        "200",
        "2026-01-02",
        "1767323045",
        "-1",
        "nan",
        "\ud7ff",
        "true",
        "9" * 30,
    ]
)


@settings(deadline=None, max_examples=60)
@given(
    st.sampled_from(["observations", "requests", "signals", "pages"]),
    st.lists(st.lists(values, min_size=9, max_size=9), max_size=12),
    st.integers(1, 12),
)
def test_rows_in_are_rows_out_and_rejected_for_any_cut(kind, rows, cut):
    names = KINDS[kind].known
    raw = pa.RecordBatch.from_arrays(
        [pa.array([r[i] for r in rows], pa.string()) for i in range(len(names))], names=names
    )
    whole = normalise(KINDS[kind], raw, "f")
    assert whole.rows.num_rows + whole.rejected.num_rows == len(rows)
    parts = [normalise(KINDS[kind], raw.slice(a, cut), "f", a) for a in range(0, len(rows), cut)]
    for name in ("rows", "rejected"):
        found = [getattr(p, name) for p in parts]
        table = pa.Table.from_batches(found, getattr(whole, name).schema)
        assert table.equals(pa.Table.from_batches([getattr(whole, name)]))


@pytest.mark.parametrize(
    ("name", "good"),
    [
        ("cdn", True),
        ("x" * 200, True),
        ("漢" * 200, True),
        ("a b|c/é", True),
        ("x" * 201, False),
        ("漢" * 201, False),
        ("a\0", False),
        ("\0", False),
        ("a\x1bb", False),
        ("a\nb", False),
        ("\x7f", False),
        ("\x85x", False),
    ],
)
def test_names_of_sources_can_be_shown(name, good):
    """A bad one takes its row, not its neighbours."""
    columns = {"url": [URL] * 4, "signalled_at": [NOW] * 4, "source": ["a", name, None, "b"]}
    done = _run("signals", columns)
    assert done.rows["source"].to_pylist() == ["a", *[name] * good, "signal", "b"]
    assert _reasons(done) == [(1, "bad_source")] * (not good)


def test_rejected_rows_are_clean_and_short():
    batch = rejected_rows("f", [3], "bad_json", ["x" * 500])
    assert len(batch["sample"][0].as_py()) == 200
    assert batch["sample"].validate(full=True) is None
    lazy = normalise(KINDS["signals"], pa.RecordBatch.from_pydict({"url": ["x"], "signalled_at": ["x"]}), "f",
                     lambda: np.array([42]))  # fmt: skip
    assert lazy.rejected["row"].to_pylist() == [42]
