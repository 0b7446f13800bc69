"""Common Crawl's columnar index."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.transforms.dialects.indexes import EMPTY, A, folded
from tests.transforms.dialects.reading import read
from transforms.batches.errors import InputError
from transforms.batches.hashing import stable_hash
from transforms.dialects import parquet

AT = datetime(2026, 1, 1, 2, 3, 4, tzinfo=UTC)
PAGE = {"url": "https://a.test/x", "fetch_time": AT, "fetch_status": 200, "content_digest": A}


def index(path, rows, drop=(), **options):
    """A file as the index has it: more columns than are read, some of them missing in some years."""
    path.parent.mkdir(parents=True, exist_ok=True)
    table = pa.Table.from_pylist([{"url_surtkey": "test,a)/x", "url_path": "/x", **row} for row in rows])
    for name, kind in (("fetch_status", pa.int16()), ("content_digest", pa.string())):
        at = table.schema.get_field_index(name)
        if at >= 0:
            table = table.set_column(at, name, table.column(name).cast(kind))
    options.setdefault("coerce_timestamps", None)
    pq.write_table(table.drop_columns(list(drop)), path, row_group_size=3, **options)
    return path


@pytest.mark.parametrize(
    "options",
    [{"use_deprecated_int96_timestamps": True}, {"coerce_timestamps": "ms"}, {"coerce_timestamps": "us"}],
)
def test_times_of_any_year_of_the_index(tmp_path, options):
    found = read(index(tmp_path / "part-0.parquet", [PAGE], **options))
    assert found.forms == ["commoncrawl"]
    assert found.seen("url", "fetched_at", "status", "digest_hash") == [
        ("https://a.test/x", AT, 200, stable_hash(A))
    ]


def test_files_with_other_columns_are_one_input(tmp_path):
    index(tmp_path / "a" / "part-0.parquet", [PAGE | {"content_languages": "eng", "fetch_redirect": None}])
    index(tmp_path / "b" / "part-0.parquet", [PAGE], drop=["fetch_status", "url_surtkey"])
    assert read(tmp_path).seen("status", "digest_hash") == [(200, stable_hash(A)), (None, stable_hash(A))]


def test_subsets(tmp_path):
    base = tmp_path / "crawl=CC-MAIN-2026-05"
    index(base / "subset=warc" / "part-0.parquet", [PAGE] * 4)
    gone = {"fetch_status": 404, "content_digest": None}
    index(base / "subset=crawldiagnostics" / "part-0.parquet", [PAGE | gone])
    index(base / "subset=robotstxt" / "part-0.parquet", [PAGE] * 10)
    found = read(tmp_path)
    assert found.seen("status", "digest_hash") == [(404, None)] + [(200, stable_hash(A))] * 4
    assert found.left_out == {"robots_txt": 10}


def test_the_subset_of_pages_has_no_robots_txt_but_as_a_page(tmp_path):
    rows = [PAGE | {"url": "https://a.test/robots.txt"}]
    index(tmp_path / "subset=warc" / "part-0.parquet", rows)
    index(tmp_path / "subset=crawldiagnostics" / "part-0.parquet", rows)
    found = read(tmp_path)
    assert found.seen("url") == [("https://a.test/robots.txt",)]
    assert found.left_out == {"robots_txt": 1}


def test_robots_txt_by_its_path(tmp_path):
    urls = [
        "https://a.test/x",
        "https://a.test/robots.txt",
        "http://b.test/robots.txt",
        "https://a.test/a/robots.txt",
    ]
    found = read(
        index(tmp_path / "part-0.parquet", [PAGE | {"url": u} for u in urls] + [PAGE | {"url": "a b"}])
    )
    assert found.seen("url") == [(urls[0],), (urls[3],)]
    assert found.left_out == {"robots_txt": 2}
    assert found.reasons == [(4, "bad_url")]


def test_unchanged_changed_and_gone(tmp_path):
    def row(day: int, **more: object) -> dict[str, object]:
        return PAGE | {"fetch_time": AT + timedelta(days=30 * day)} | more

    rows = [row(0), row(1), row(2, content_digest=EMPTY, fetch_status=304), row(3, content_digest="B" * 32)]
    rows += [row(4, fetch_status=404, content_digest=None)]
    found = folded(index(tmp_path / "part-0.parquet", rows))
    assert found == {"baseline": 1, "unchanged": 2, "changed_undated": 2}


def test_row_groups_are_read_as_canonical_ones_are(tmp_path, monkeypatch):
    rows = [
        PAGE | {"url": f"https://a.test/{i}" if i % 7 else "https://a.test/robots.txt"} for i in range(20)
    ]
    rows[11]["url"] = "nonsense"
    path = index(tmp_path / "part-0.parquet", rows)
    whole = read(path)
    monkeypatch.setattr(parquet, "BATCH_ROWS", 5)
    cut = read(path)
    assert len(cut.forms) > 3
    assert (cut.rows, cut.reasons) == (whole.rows, [(11, "bad_url")])
    assert cut.left_out == whole.left_out == {"robots_txt": 3}
    # By its file name alone it is no robots.txt subset, and cut into groups each is counted once.
    folder = tmp_path / "subset=robotstxt"
    folder.mkdir()
    assert read(path.rename(folder / "part-0.parquet")).left_out == {"robots_txt": 20}


def test_what_is_no_such_file(tmp_path):
    canonical = tmp_path / "canonical.parquet"
    pq.write_table(
        pa.table({"url": ["https://a.test/x"], "fetched_at": [AT], "content_digest": ["A"]}), canonical
    )
    assert read(canonical).forms == ["parquet"]
    with pytest.raises(InputError, match="fetch_time"):
        read(canonical, form="commoncrawl")
    broken = tmp_path / "broken.parquet"
    broken.write_bytes(b"PAR1 and no more")
    for form in ("auto", "commoncrawl"):
        assert read(broken, form=form).reasons == [(-1, "truncated_file")]
