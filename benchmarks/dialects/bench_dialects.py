"""Microseconds a line from files of dialects to raw blocks, on one core.

Targets are for that; from there to accepted rows takes the same for all formats, and is told beside it.
"""

import os
import tempfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from benchmarks.dialects.bench_sources import log
from benchmarks.measuring.rows import Row
from benchmarks.measuring.timing import best_ns
from transforms.files.blocks import How
from transforms.files.filesystems import InputFile
from transforms.intake.formats import plan, read
from transforms.intake.sources import plan_files, read_split
from transforms.rows.normalise import KINDS

LINE_US = 1.5


def drain(path: Path, kind: str = "observations", how: How | None = None) -> int:
    """Read a file as what it is; values are not looked at."""
    splits = plan(InputFile(str(path), os.path.getsize(path)), kind, how)
    return sum(1 for split in splits for _ in read(split, KINDS[kind]))


def accept(path: Path, kind: str = "observations", how: How | None = None) -> int:
    """Read a file to accepted rows: URLs, times and statuses are checked, URLs hashed."""
    splits = plan_files(str(path), kind, how=how or How())
    return sum(len(batch) for split in splits for _, batch in read_split(split, KINDS[kind]))


def rows_of(
    name: str, path: Path, lines: int, kind: str = "observations", how: How | None = None
) -> list[Row]:
    """Figures of one text file."""
    raw = best_ns(lambda: drain(path, kind, how), lines) / 1000
    accepted = best_ns(lambda: accept(path, kind, how), lines, 3) / 1000
    size = os.path.getsize(path) // lines
    return [
        Row(f"{name}, {size} bytes a line", raw, "us/line", LINE_US),
        Row(f"{name}, to accepted rows", accepted, "us/line"),
    ]


def run(scale: float = 1.0) -> list[Row]:
    """All rows; `scale` 1 is a million lines a file."""
    n = max(int(1_000_000 * scale), 10_000)
    threads = pa.cpu_count()
    pa.set_cpu_count(1)
    try:
        with tempfile.TemporaryDirectory() as folder:
            data = log(n, n // 4)
            return [
                *_indexes(Path(folder), data),
                *_common_crawl(Path(folder), data),
                *_weblogs(Path(folder), data),
            ]
    finally:
        pa.set_cpu_count(threads)


def _texts(data: pa.Table) -> dict[str, pa.Array]:
    """Columns of an index as text; a tenth are revisits."""
    rng = np.random.Generator(np.random.Philox(key=2))
    revisit = pa.array(rng.random(len(data)) < 0.1)
    seconds = data["fetched_at"].combine_chunks().cast(pa.timestamp("s"), safe=False)
    url = data["url"].combine_chunks()
    return {
        "key": pc.binary_join_element_wise("com,example", pc.utf8_slice_codeunits(url, 12), ")"),
        "time": pc.strftime(seconds, "%Y%m%d%H%M%S"),
        "url": url,
        "mime": pc.if_else(revisit, "warc/revisit", "text/html"),
        "status": pc.if_else(revisit, "-", "200"),
        "digest": pc.utf8_upper(pc.utf8_slice_codeunits(data["digest"].combine_chunks(), 0, 32)),
    }


def _indexes(folder: Path, data: pa.Table) -> list[Row]:
    t = _texts(data)
    fields = [t[name] for name in ("key", "time", "url", "mime", "status", "digest")]
    objects = [
        *("{\"url\": \"", t["url"], "\", \"mime\": \"", t["mime"], "\", \"status\": \"", t["status"]),
        *("\", \"digest\": \"", t["digest"], "\", \"length\": \"12345\", \"offset\": \"123456789\""),
    ]  # fmt: skip
    path = "crawl-data/CC-MAIN-2026-05/segments/1707947473360.9/warc/CC-MAIN-20260120193358-00000.warc.gz"
    files = {
        "CDX, 11 fields": pc.binary_join_element_wise(*fields, "- - 12345 123456789 a.warc.gz", " "),
        "CDX, 7 fields": pc.binary_join_element_wise(*fields, "12345", " "),
        "CDXJ of pywb": (objects, ', "filename": "a.warc.gz"}'),
        "CDXJ of Common Crawl": (
            objects,
            f', "mime-detected": "text/html", "charset": "UTF-8", "languages": "eng", "filename": "{path}"}}',
        ),
    }
    rows = []
    for name, lines in files.items():
        if isinstance(lines, tuple):
            record = pc.binary_join_element_wise(*lines[0], lines[1], "")
            lines = pc.binary_join_element_wise(t["key"], t["time"], record, " ")
        file = folder / "index"
        file.write_text("\n".join(lines.to_pylist()))
        rows += rows_of(name, file, len(data))
    return rows


def _common_crawl(folder: Path, data: pa.Table) -> list[Row]:
    """Against canonical Parquet of the same rows: the target is its time."""
    names = {"fetched_at": "fetch_time", "status": "fetch_status", "digest": "content_digest"}
    pq.write_table(data, folder / "canonical.parquet")
    renamed = data.rename_columns([names.get(name, name) for name in data.schema.names])
    files = [folder / "canonical.parquet", folder / "index.parquet", folder / "subset=warc" / "index.parquet"]
    files[2].parent.mkdir()
    for file in files[1:]:
        pq.write_table(renamed, file)
    canonical, index, warc = (best_ns(lambda f=f: drain(f), len(data)) / 1000 for f in files)  # type: ignore[misc]
    return [
        Row("Common Crawl's Parquet, subset=warc, beside canonical Parquet", warc, "us/row", canonical),
        Row("Common Crawl's Parquet, no folder, beside canonical Parquet", index, "us/row", canonical),
    ]


def _weblogs(folder: Path, data: pa.Table) -> list[Row]:
    """A tenth are no GET, a tenth of bots, a sixth answered with an error; a hundred lines a user agent."""
    rng = np.random.Generator(np.random.Philox(key=3))
    n = len(data)
    version = pc.cast(pa.array(rng.integers(0, max(n // 100, 1), n)), pa.string())
    platform = "Mozilla/5.0 (Windows NT 10.0; Win64; x64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/1."
    browser = pc.binary_join_element_wise(platform, version, " Safari/537.36", "")
    crawler = "Mozilla/5.0 (compatible; Googlebot/2.1; +http://www.google.com/bot.html)"
    agent = pc.if_else(pa.array(rng.random(n) < 0.1), crawler, browser)
    method = pc.if_else(pa.array(rng.random(n) < 0.1), "POST", "GET")
    status = pc.cast(data["status"].combine_chunks(), pa.string())
    target = pc.utf8_slice_codeunits(data["url"].combine_chunks(), 12)
    target = pc.binary_join_element_wise("/", target, "")
    seconds = data["fetched_at"].combine_chunks().cast(pa.timestamp("s"), safe=False)
    time = pc.strftime(seconds, "%d/%b/%Y:%H:%M:%S")
    line = (
        " - - [",
        time,
        ' +0100] "',
        method,
        " ",
        target,
        ' HTTP/1.1" ',
        status,
        ' 51234 "',
        target,
        '" "',
        agent,
    )
    stamp, plus = pc.strftime(seconds, "%Y-%m-%d %H:%M:%S"), pc.replace_substring(agent, " ", "+")
    files = {
        "access log, combined": pc.binary_join_element_wise("192.0.2.177", *line, '"', ""),
        "access log, host in front": pc.binary_join_element_wise("shop.test:443 192.0.2.177", *line, '"', ""),
        "access log, host behind": pc.binary_join_element_wise("192.0.2.177", *line, '" 0.003 shop.test', ""),
        "W3C extended log": pc.binary_join_element_wise(
            stamp, "10.0.0.1", method, target, "- 443 - 192.0.2.177", plus, status, "15", " "
        ),
    }
    fields = (
        "date time s-ip cs-method cs-uri-stem cs-uri-query s-port cs-username c-ip cs(User-Agent) sc-status"
    )
    how = How(options=(("requests_site", "https://shop.test"),))
    rows = []
    for name, lines in files.items():
        text = "\n".join(lines.to_pylist())
        file = folder / "web.log"
        file.write_text(f"#Fields: {fields} time-taken\n{text}" if name.startswith("W3C") else text)
        rows += rows_of(name, file, n, "requests", how)
    return rows
