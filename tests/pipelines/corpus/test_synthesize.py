"""The made-up corpus: reproducible, the same in every format, and true to what it says it is.

Statistical bounds are four standard errors of the sum in question; the seeds are fixed.
"""

import gzip
import hashlib
import io
import json
from dataclasses import replace
from pathlib import Path

import fastavro
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet as pq
import pytest

from pipelines.corpus import corpus as model
from pipelines.corpus.corpus import CorpusSpec
from pipelines.corpus.corpus_files import FORMATS, as_text_columns
from pipelines.corpus.synthesize import synthesize
from tests.pipelines.jobs import command

FIRST_DAY = 20605  # 2026-06-01
SPEC = CorpusSpec(
    pages=300, hosts=9, days=5, observations=2500, first_day=FIRST_DAY, requests_per_day=400.0, seed=3
)


def checksums(folder: Path) -> dict[str, str]:
    files = [p for p in sorted(folder.rglob("*")) if p.is_file()]
    return {str(p.relative_to(folder)): hashlib.sha256(p.read_bytes()).hexdigest() for p in files}


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Enough rows for statistics."""
    output = tmp_path_factory.mktemp("large")
    spec = replace(SPEC, pages=6000, hosts=60, days=14, observations=120_000, requests_per_day=3000.0)
    synthesize(spec, output)
    return output


@pytest.mark.parametrize("file_format", FORMATS)
def test_same_bytes_whatever_the_chunks(tmp_path: Path, file_format: str) -> None:
    gzipped = file_format in ("jsonl", "csv")
    for name, chunk in (("whole", None), ("again", None), ("small", 7)):
        synthesize(SPEC, tmp_path / name, file_format, gzipped=gzipped, pages_per_chunk=chunk)
    whole = checksums(tmp_path / "whole")
    assert len(whole) == 3 * SPEC.days + 3
    assert checksums(tmp_path / "again") == whole
    assert checksums(tmp_path / "small") == whole


def test_row_groups_do_not_depend_on_the_chunks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Row groups of 64 rows and files of 200: many groups, many parts, the same bytes."""
    monkeypatch.setattr("pipelines.corpus.synthesize.GROUP_ROWS", 64)
    for name, chunk in (("a", 300), ("b", 11)):
        synthesize(SPEC, tmp_path / name, rows_per_file=200, pages_per_chunk=chunk)
    assert checksums(tmp_path / "a") == checksums(tmp_path / "b")
    parts = sorted((tmp_path / "a" / "logs").glob("2026-06-02-part-*.parquet"))
    rows = [pq.read_metadata(part).num_rows for part in parts]
    assert len(parts) > 1
    assert max(rows) <= 200
    plain = tmp_path / "plain"
    synthesize(SPEC, plain)
    assert sum(rows) == pq.read_metadata(plain / "logs" / "2026-06-02.parquet").num_rows
    assert pq.read_metadata(plain / "pages.parquet").num_rows == SPEC.pages
    assert pq.read_table(tmp_path / "b" / "pages.parquet").equals(pq.read_table(plain / "pages.parquet"))


def test_another_seed_is_another_corpus(tmp_path: Path) -> None:
    synthesize(SPEC, tmp_path / "a")
    synthesize(replace(SPEC, seed=4), tmp_path / "b")
    a, b = checksums(tmp_path / "a"), checksums(tmp_path / "b")
    assert a.keys() == b.keys()
    assert not {name for name in a if a[name] == b[name]}


def read_as_text(path: Path) -> list[dict[str, object]]:
    """Rows of a file of any format, times and dates as text, nulls left out."""
    if path.name.endswith(".avro"):
        with path.open("rb") as stream:
            records = list(fastavro.reader(stream))
        table = pa.Table.from_pylist(records)
    elif path.name.endswith(".parquet"):
        table = pq.read_table(path)
    else:
        raw = gzip.decompress(path.read_bytes()) if path.name.endswith(".gz") else path.read_bytes()
        if ".csv" in path.name:
            text = pa.csv.ConvertOptions(
                column_types=dict.fromkeys(
                    ("day", "fetched_at", "last_modified", "signalled_at"), pa.string()
                ),
                strings_can_be_null=True,
                quoted_strings_can_be_null=False,
            )
            table = pa.csv.read_csv(io.BytesIO(raw), convert_options=text)
        else:
            return [json.loads(line) for line in raw.splitlines()]
    rows = as_text_columns(table).to_pylist()
    return [{k: v for k, v in row.items() if v is not None} for row in rows]


def test_all_formats_carry_the_same_rows(tmp_path: Path) -> None:
    for file_format in FORMATS:
        synthesize(SPEC, tmp_path / file_format, file_format, gzipped=file_format == "jsonl")
    for kind in ("logs/2026-06-03", "clicks/2026-06-03", "signals/2026-06-03", "pages"):
        expected = read_as_text(tmp_path / "parquet" / f"{kind}.parquet")
        assert expected
        for file_format, suffix in (("avro", "avro"), ("csv", "csv"), ("jsonl", "jsonl.gz")):
            assert read_as_text(tmp_path / file_format / f"{kind}.{suffix}") == expected, (kind, file_format)


def logs_of(output: Path) -> pa.Table:
    return pq.read_table(output / "logs")


def test_files_hold_their_day_and_the_columns_that_the_job_reads(large: Path) -> None:
    days = sorted((large / "logs").iterdir())
    assert [p.name for p in days][:2] == ["2026-06-01.parquet", "2026-06-02.parquet"]
    assert len(days) == 14
    for i, path in enumerate(days):
        at = pq.read_table(path)["fetched_at"].cast(pa.int64()).to_numpy()
        assert set(at // 86_400_000_000) == {FIRST_DAY + i}
    assert logs_of(large).column_names == ["url", "fetched_at", "status", "digest", "last_modified"]
    assert pq.read_table(large / "clicks").column_names == ["url", "day", "clicks", "impressions"]
    assert pq.read_table(large / "signals").column_names == ["url", "signalled_at", "source"]


def test_changes_follow_the_true_rates(large: Path) -> None:
    """Digests of successive good fetches differ as often as 1 - exp(-rate x gap) says, by bands of rates."""
    truth = pq.read_table(large / "truth.parquet")
    rate_of = dict(zip(truth["url"].to_pylist(), truth["change_rate_per_day"].to_pylist(), strict=True))
    logs = logs_of(large)
    logs = logs.filter(pc.and_(pc.equal(logs["status"], 200), pc.not_equal(logs["digest"], EMPTY)))
    logs = logs.sort_by([("url", "ascending"), ("fetched_at", "ascending")])
    url = np.array(logs["url"].to_pylist())
    at = logs["fetched_at"].cast(pa.int64()).to_numpy() / 86_400e6
    digest = np.array(logs["digest"].to_pylist())
    gap = np.diff(at)
    same_page = (url[1:] == url[:-1]) & (gap * 86_400 > 60)  # retries are copies
    rate = np.array([rate_of[u] for u in url[1:]])
    conditional = hosts_with_304(large)
    same_page &= ~np.isin(
        [u.split("/")[2] for u in url[1:]], list(conditional)
    )  # their unchanged rows are 304s
    changed = digest[1:] != digest[:-1]
    for low, high in ((0.0, 0.05), (0.05, 0.5), (0.5, 2.0), (2.0, 20.0)):
        use = same_page & (rate >= low) & (rate < high)
        p = -np.expm1(-rate[use] * gap[use])
        assert use.sum() > 2000
        assert abs(np.sum(changed[use] - p)) < 4 * np.sqrt(np.sum(p * (1 - p)))
    assert changed[same_page & (rate >= model.ALWAYS_CHANGES_PER_DAY)].all()
    assert not changed[same_page & (rate == 0)].any()


EMPTY = model.MD5_OF_NOTHING.decode()


def hosts_with_304(output: Path) -> set[str]:
    logs = logs_of(output)
    urls = logs.filter(pc.equal(logs["status"], 304))["url"].to_pylist()
    return {u.split("/")[2] for u in urls}


def test_not_modified_is_never_a_change(large: Path) -> None:
    """The good fetch after a 304 has the digest of the one before it, unless it changed after the 304."""
    logs = logs_of(large).sort_by([("url", "ascending"), ("fetched_at", "ascending")])
    status = logs["status"].to_numpy()
    modified = logs["last_modified"].cast(pa.int64()).to_numpy(zero_copy_only=False)
    url = np.array(logs["url"].to_pylist())
    known = np.flatnonzero((status[1:] == 304) & (status[:-1] == 200) & (url[1:] == url[:-1]))
    dated = known[~np.isnan(modified[known])]
    assert len(dated) > 1000
    assert np.array_equal(modified[dated], modified[dated + 1])


def test_shares_of_the_odd_rows(large: Path) -> None:
    logs = logs_of(large)
    rows = logs.num_rows
    status = logs["status"].to_numpy()
    hosts = model.Hosts(replace(SPEC, pages=6000, hosts=60, days=14, observations=120_000))
    assert abs(rows / 120_000 - 1) < 0.03
    failed = np.isin(status, [0, 429, 500, 502, 503])
    expected = float(hosts.share @ hosts.failure_rate)
    assert expected * 0.8 < failed.mean() < expected * 1.2 + 0.1  # outages come on top
    assert 0.05 < (status == 304).mean() < 0.6
    assert 0.001 < np.isin(status, [404, 410]).mean() < 0.02
    good = status == 200
    digests = logs["digest"]
    assert np.array_equal(pc.is_valid(digests).to_numpy(), good)
    empty = pc.sum(pc.equal(digests, EMPTY)).as_py()
    mean = model.FRACTION_EMPTY * good.sum()
    assert abs(empty - mean) < 4 * np.sqrt(mean)
    repeated = rows - logs.group_by(["url", "fetched_at"]).aggregate([]).num_rows
    mean = model.FRACTION_REPEATED * rows
    assert abs(repeated - mean) < 4 * np.sqrt(mean)
    at = pq.read_table(large / "logs" / "2026-06-03.parquet")["fetched_at"].cast(pa.int64()).to_numpy()
    backwards = np.mean(np.diff(at) < 0)
    assert 0.5 * model.FRACTION_DELAYED < backwards < 2 * model.FRACTION_DELAYED


def test_requests_and_weekdays(large: Path) -> None:
    truth = pq.read_table(large / "truth.parquet")
    clicks = pq.read_table(large / "clicks")
    total = pc.sum(clicks["clicks"]).as_py()
    mean = pc.sum(truth["request_rate_per_day"]).as_py() * 14
    assert abs(total - mean) < 4 * np.sqrt(mean)
    assert pc.all(pc.greater_equal(clicks["impressions"], clicks["clicks"])).as_py()
    assert pc.min(clicks["impressions"]).as_py() == 1
    per_day = [pq.read_metadata(p).num_rows for p in sorted((large / "logs").iterdir())]
    assert np.mean([per_day[i] for i in (5, 6, 12, 13)]) < 0.8 * np.mean(per_day[:5])


def test_one_host_may_hold_a_third_of_the_pages(tmp_path: Path) -> None:
    spec = replace(SPEC, pages=4000, hosts=50, giant_host_fraction=0.3)
    synthesize(spec, tmp_path)
    urls = pq.read_table(tmp_path / "pages.parquet")["url"].to_pylist()
    assert len(set(urls)) == 4000
    giant = sum(u.startswith(f"https://{model.Hosts(spec).names[0]}/") for u in urls)
    assert abs(giant - 1200) < 4 * np.sqrt(4000 * 0.3 * 0.7)


def test_problems_come_all_at_once(tmp_path: Path) -> None:
    output = tmp_path / "corpus"
    wrong = ["--output", str(output), "--pages", "0", "--days", "999", "--start", "June", "--gzip"]
    code, _, message = command("synthesize", *wrong)
    assert code == 2
    for part in ("--pages is 0", "--days is 999", "--start is 'June'", "--gzip"):
        assert part in message
    assert not output.exists()


def test_a_corpus_is_replaced_only_when_told(tmp_path: Path) -> None:
    output = tmp_path / "corpus"
    small = ["--output", str(output), "--pages", "20", "--days", "3"]
    assert command("synthesize", *small)[0] == 0
    code, _, message = command("synthesize", *small)
    assert code == 2 and "--overwrite" in message
    assert command("synthesize", *small[:-1], "2", "--overwrite")[0] == 0
    assert len(list((output / "logs").iterdir())) <= 2


def test_a_night_reads_a_host_table_of_one_row(tmp_path: Path) -> None:
    """Its gap once had three decimals, which might be a thousand."""
    made = ["--pages=600", "--hosts=9", "--days=18", "--seed=3", "--observations=9000"]
    made += ["--giant_host_fraction=0.4", f"--output={tmp_path / 'corpus'}"]
    assert command("synthesize", *made)[0] == 0
    hosts = tmp_path / "corpus" / "hosts.csv"
    assert len(hosts.read_text().splitlines()) == 2
    code, printed, message = command("inspect", str(hosts))
    assert code == 0 and "1, 1 accepted" in printed, message
