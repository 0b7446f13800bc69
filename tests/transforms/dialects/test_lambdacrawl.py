"""The published crawl histories of Kolobov et al."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.transforms.dialects.reading import read, write
from transforms.dialects.lambdacrawl import looks_like
from transforms.files import unpacking

START = datetime(2017, 1, 1, tzinfo=UTC)
TEXT = """\
5\t5.5143055555555556\t[[1.10396990740741, 0], [1.47311342592593, 1]]
6\t0\t[]
7\t1\t[[1,2]]
8\tx

9\t0.5\t[[1.0, 1], [1e-05, 0]]
10\t0.5\t[[1.0, 1], 3]
11\t0.5\t[[1.0, 1]
12\t1e99\t[[1.0, 1]]
"""


def test_a_line_is_as_many_crawls_as_it_lists_and_one(tmp_path):
    found = read(write(tmp_path, TEXT))
    assert found.forms == ["lambdacrawl"]
    days = [5.5143055555555556, 6.6182754629629656, 8.0913888888888956, 0.0, 0.5, 1.5, 1.50001]
    assert [(r["fetched_at"] - START) / timedelta(days=1) for r in found.rows] == pytest.approx(
        days, abs=1e-10
    )
    assert [r["changed"] for r in found.rows] == [None, False, True, None, None, True, False]
    assert [r["url"].rsplit("/", 1)[1] for r in found.rows] == ["5"] * 3 + ["6"] + ["9"] * 3
    bad = [
        (3, "bad_history"),
        (4, "column_count"),
        (7, "bad_history"),
        (8, "bad_history"),
        (9, "bad_history"),
    ]
    assert found.reasons == bad


def test_thousands_of_gaps_add_up_without_drift(tmp_path):
    gaps = np.random.default_rng(1).uniform(0.01, 3.0, 1000)
    history = ", ".join(f"[{g!r}, {i % 2}]" for i, g in enumerate(gaps.tolist()))
    found = read(write(tmp_path, f"1\t0.25\t[{history}]\n" * 2))
    exact = 0.25 + np.concatenate([[0.0], np.cumsum(gaps)])
    seen = np.array([(r["fetched_at"] - START) / timedelta(days=1) for r in found.rows])
    # A gap is rounded to the microsecond.
    np.testing.assert_allclose(seen.reshape(2, -1), [exact, exact], atol=1001 * 0.5e-6 / 86_400)


def test_it_is_told_by_its_content():
    assert looks_like("x", TEXT.encode()) and looks_like("x", b"6\t0\t[]\n")
    for other in (b"1\t2\t3\n", b"url\tfetched_at\n", b"", b"5 5.5 [[1.1, 0]]"):
        assert not looks_like("urlid_offset_history.txt", other)


@pytest.mark.parametrize("size", [40, 120])
def test_where_a_block_begins_does_not_matter(tmp_path, monkeypatch, size):
    path = write(tmp_path, TEXT)
    whole = read(path)
    monkeypatch.setattr(unpacking, "CHUNK_BYTES", size)
    parts = read(path)
    assert (parts.rows, parts.reasons) == (whole.rows, whole.reasons)


LINES = [
    *TEXT.splitlines(),
    "1\t1\t[[]]",
    "1\t1\t[[1, 0],]",
    "1\t1\t[[1, 0]][[1, 0]]",
    "1\t.\t[]",
    "1\t1\t[[1.2.3, 0]]",
]


@settings(max_examples=100, deadline=None)
@given(st.lists(st.one_of(st.sampled_from(LINES), st.text("0123456789.[], \te-", max_size=30)), max_size=6))
def test_any_lines_are_accounted_for(tmp_path_factory, lines):
    found = read(write(tmp_path_factory.mktemp("fuzz"), "\n".join(lines)), form="lambdacrawl")
    bad = {r["row"] for r in found.rejected if r["reason"] != "bad_timestamp"}
    crawls = sum(max(line.count("["), 1) for i, line in enumerate(lines, 1) if line and i not in bad)
    assert len(found.rows) + sum(r["reason"] == "bad_timestamp" for r in found.rejected) == crawls
