"""`recrawl synthesize`: a realistic corpus of any size, to try, test and measure the nightly job with."""

import argparse
import os
import shutil
import sys
import time
from datetime import date
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv

from pipelines.corpus.corpus import (
    CATEGORIES,
    DAY_MS,
    NONE,
    SECTIONS,
    Corpus,
    CorpusSpec,
    Hosts,
    Ints,
    Pages,
    Requests,
    Signals,
    Visits,
    digest_texts,
)
from pipelines.corpus.corpus_files import FORMATS, DailyFiles, TableFile

DESCRIPTION = """\
Make a corpus: the logs that a crawler would have kept of a made-up web, the clicks, a catalogue of pages,
limits of hosts, signals, and the truth behind them. The same options give the same bytes (with the same
versions of NumPy and Arrow, on one type of processor). Memory does not grow with the number of pages: about
0.5 GB, and 150 bytes a host.
"""
CHUNK_ROWS = 500_000  # fetches and click rows made at once
WAITING_ROWS = 1_000_000  # rows that wait, over all days, for their row group; of logs, and again of clicks
GROUP_ROWS = 1 << 17  # at most, so that a short corpus has row groups as well
MAX_DAYS = 300  # logs, clicks and signals of every day are open at the same time
MAX_PAGES = 2**43

TIME = pa.timestamp("us", tz="UTC")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of the command."""
    parser.description = DESCRIPTION
    add = parser.add_argument
    add("--output", metavar="DIR", required=True, help="folder to write the corpus to")
    add("--pages", type=int, default=10_000, metavar="N", help="number of pages (default %(default)s)")
    add(
        "--hosts",
        type=int,
        metavar="N",
        help="number of hosts; their sizes follow a power law (default pages/100)",
    )
    add(
        "--days",
        type=int,
        default=30,
        metavar="N",
        help=f"days of logs, 1 to {MAX_DAYS} (default %(default)s)",
    )
    add(
        "--observations",
        type=int,
        metavar="N",
        help="rows of crawl logs in all, about (default two for every three pages and days)",
    )
    add(
        "--start",
        default="2026-06-01",
        metavar="DATE",
        help="first day of the logs, UTC (default %(default)s)",
    )
    add("--seed", type=int, default=0, metavar="N", help="another seed, another corpus (default %(default)s)")
    add(
        "--format",
        choices=FORMATS,
        default="parquet",
        help="of logs, clicks, signals, pages (default %(default)s)",
    )
    add("--gzip", action="store_true", help="compress jsonl and csv")
    add("--rows_per_file", type=int, metavar="N", help="at most so many rows a file (default one file a day)")
    add("--requests_per_day", type=float, metavar="RATE", help="clicks a day in all, about (default pages/2)")
    add(
        "--giant_host_fraction",
        type=float,
        default=0.0,
        metavar="F",
        help="share of the pages on the largest host, 0 to 0.95 (default 0: as the power law has it)",
    )
    add("--overwrite", action="store_true", help="replace a corpus that is in DIR already")


def spec_from(args: argparse.Namespace) -> CorpusSpec:
    """The corpus that the options describe.

    Raises
    ------
    ValueError
        Every problem, one a line.
    """
    problems = []

    def check(name: str, value: float | None, low: float, high: float) -> None:
        if value is not None and not low <= value <= high:
            problems.append(f"--{name} is {value}; give a number from {low:g} to {high:g}")

    check("pages", args.pages, 1, MAX_PAGES)
    check("days", args.days, 1, MAX_DAYS)
    check("hosts", args.hosts, 1, max(args.pages, 1))
    check("observations", args.observations, 0, 200 * max(args.pages * args.days, 0))
    check("rows_per_file", args.rows_per_file, 1, 2**31)
    check("requests_per_day", args.requests_per_day, 0, 1e15)
    check("giant_host_fraction", args.giant_host_fraction, 0, 0.95)
    try:
        first_day = (date.fromisoformat(args.start) - date(1970, 1, 1)).days
    except ValueError:
        problems.append(f"--start is {args.start!r}; give a date such as 2026-06-01")
    if args.gzip and args.format not in ("jsonl", "csv"):
        problems.append(f"--gzip is for jsonl and csv; {args.format} compresses by itself")
    if not args.overwrite and any((Path(args.output) / name).exists() for name in ("logs", "truth.parquet")):
        problems.append(f"--output {args.output} holds a corpus; give another folder or --overwrite")
    if problems:
        raise ValueError("\n".join(problems))
    observations = args.pages * args.days * 2 // 3 if args.observations is None else args.observations
    return CorpusSpec(
        pages=args.pages,
        hosts=max(1, args.pages // 100) if args.hosts is None else args.hosts,
        days=args.days,
        observations=observations,
        first_day=first_day,
        requests_per_day=0.5 * args.pages if args.requests_per_day is None else args.requests_per_day,
        giant_host_fraction=args.giant_host_fraction,
        seed=args.seed,
    )


def _times(ms: np.ndarray, first_day: int) -> pa.Array:
    return pa.array((ms + first_day * DAY_MS) * 1000, mask=ms == NONE).cast(TIME)


def log_rows(pages: Pages, visits: Visits, rows: Ints) -> pa.Table:
    """Some rows of the log, before `finish_log`."""
    columns = {
        "url": pages.url.take(pa.array(visits.page[rows])),
        "logged": visits.logged_ms[rows],
        "at": visits.at_ms[rows],
        "status": visits.status[rows],
        "content": visits.content[rows],
        "modified": visits.last_modified_ms[rows],
    }
    return pa.table(columns)


def finish_log(rows: pa.Table, spec: CorpusSpec) -> pa.Table:
    """Rows of the log as a crawler writes them, in the order in which they reached it."""
    rows = rows.take(pa.array(np.argsort(rows["logged"].to_numpy(), kind="stable")))
    return pa.table(
        {
            "url": rows["url"],
            "fetched_at": _times(rows["at"].to_numpy(), spec.first_day),
            "status": rows["status"],
            "digest": digest_texts(rows["content"].to_numpy(), spec.seed),
            "last_modified": _times(rows["modified"].to_numpy(), spec.first_day),
        }
    )


def click_rows(pages: Pages, requests: Requests, spec: CorpusSpec, rows: Ints) -> pa.Table:
    """Some rows of clicks."""
    columns = {
        "url": pages.url.take(pa.array(requests.page[rows])),
        "day": pa.array((requests.day[rows] + spec.first_day).astype(np.int32)).cast(pa.date32()),
        "clicks": requests.clicks[rows],
        "impressions": requests.impressions[rows],
    }
    return pa.table(columns)


def signal_rows(pages: Pages, signals: Signals, hosts: Hosts, spec: CorpusSpec, rows: Ints) -> pa.Table:
    """Some rows of signals."""
    page = signals.page[rows]
    columns = {
        "url": pages.url.take(pa.array(page)),
        "signalled_at": _times(signals.at_ms[rows], spec.first_day),
        "source": pa.array(["sitemap", "ping"]).take(pa.array(hosts.pings[pages.host[page]].astype(np.int8))),
    }
    return pa.table(columns)


def page_rows(pages: Pages) -> pa.Table:
    """Rows of the catalogue: importance, a least or a greatest rate for some, and the kind of page."""
    number = pages.first + np.arange(len(pages.host))
    least = pa.array(np.full(len(number), 1 / 30), mask=number % 200 != 0)
    greatest = pa.array(np.full(len(number), 1.0), mask=number % 150 != 1)
    columns = {
        "url": pages.url,
        "importance": pa.array(pages.importance, mask=np.isnan(pages.importance)),
        "min_rate_per_day": least,
        "max_rate_per_day": greatest,
        "section": pa.array([s[0] for s in SECTIONS]).take(pa.array(pages.section)),
        "category": pa.array([c[0] for c in CATEGORIES]).take(pa.array(pages.category)),
    }
    return pa.table(columns)


def truth_rows(pages: Pages) -> pa.Table:
    """What an estimator tries to find out."""
    columns = {
        "url": pages.url,
        "change_rate_per_day": pages.change_rate_per_day,
        "request_rate_per_day": pages.request_rate_per_day,
    }
    return pa.table(columns)


def host_rows(hosts: Hosts) -> pa.Table:
    """Limits of the hosts that have their own."""
    columns = {
        "host": hosts.names.take(pa.array(hosts.listed)),
        "max_per_day": hosts.limit_per_day.astype(np.int64),
        "min_gap_seconds": hosts.min_gap_seconds,
    }
    return pa.table(columns)


def synthesize(
    spec: CorpusSpec,
    output: Path,
    file_format: str = "parquet",
    *,
    gzipped: bool = False,
    rows_per_file: int | None = None,
    pages_per_chunk: int | None = None,
    progress: bool = False,
) -> dict[str, int]:
    """Write the corpus and return its numbers of rows. `truth.parquet` comes last: it marks a whole corpus.

    The files do not depend on `pages_per_chunk`; memory and speed do.
    """
    output.mkdir(parents=True, exist_ok=True)
    for name in ("logs", "clicks", "signals"):
        shutil.rmtree(output / name, ignore_errors=True)
    for old in (*output.glob("pages.*"), output / "hosts.csv", output / "truth.parquet"):
        old.unlink(missing_ok=True)
    suffix = file_format + (".gz" if gzipped else "")
    group_rows = min(GROUP_ROWS, max(1, WAITING_ROWS // spec.days))

    def daily(name: str, finish=lambda rows: rows) -> DailyFiles:  # type: ignore[no-untyped-def]
        folder = output / name
        return DailyFiles(folder, file_format, suffix, spec.first_day, group_rows, rows_per_file, finish)

    corpus = Corpus(spec)
    logs = daily("logs", lambda rows: finish_log(rows, spec))
    clicks, signals = daily("clicks"), daily("signals")
    pages_file = TableFile(output / f"pages.{suffix}", file_format)
    unfinished = output / "truth.parquet.unfinished"
    truth_file = TableFile(unfinished, "parquet")
    hosts_file = TableFile(output / "hosts.csv", "csv")
    hosts_file.write(host_rows(corpus.hosts))
    hosts_file.close()
    chunk = pages_per_chunk or _pages_per_chunk(spec)
    catalogue, told = PagesBuffer(pages_file, truth_file), time.monotonic()
    while corpus.made < spec.pages:
        pages = corpus.pages(chunk)
        visits, signalled = corpus.visits(pages)
        requests = corpus.requests(pages)
        logs.add(visits.at_ms // DAY_MS, partial(log_rows, pages, visits))
        signals.add(signalled.at_ms // DAY_MS, partial(signal_rows, pages, signalled, corpus.hosts, spec))
        clicks.add(requests.day, partial(click_rows, pages, requests, spec))
        catalogue.add(pages)
        if progress and time.monotonic() - told > 5:
            told = time.monotonic()
            print(f"{corpus.made:,} of {spec.pages:,} pages, {logs.rows:,} rows of logs", file=sys.stderr)
    for table in (logs, clicks, signals, catalogue):
        table.close()
    os.replace(unfinished, output / "truth.parquet")
    return {
        "pages": spec.pages,
        "hosts": spec.hosts,
        "observations": logs.rows,
        "clicks": clicks.rows,
        "signals": signals.rows,
    }


class PagesBuffer:
    """The catalogue and the truth in row groups of `GROUP_ROWS`, whatever the chunks of pages."""

    def __init__(self, pages_file: TableFile, truth_file: TableFile) -> None:
        self._files = (pages_file, truth_file)
        self._waiting: tuple[list[pa.Table], list[pa.Table]] = ([], [])

    def add(self, pages: Pages) -> None:
        for waiting, rows in zip(self._waiting, (page_rows(pages), truth_rows(pages)), strict=True):
            waiting.append(rows)
        if sum(rows.num_rows for rows in self._waiting[0]) >= GROUP_ROWS:
            self._flush(GROUP_ROWS)

    def _flush(self, least: int) -> None:
        for waiting, file in zip(self._waiting, self._files, strict=True):
            table = pa.concat_tables(waiting)
            done = 0
            while table.num_rows - done >= least:
                file.write(table.slice(done, GROUP_ROWS))
                done += min(GROUP_ROWS, table.num_rows - done)
                if done == table.num_rows:
                    break
            waiting[:] = [table.slice(done)]

    def close(self) -> None:
        self._flush(1)
        for file in self._files:
            file.close()


def _pages_per_chunk(spec: CorpusSpec) -> int:
    rows_per_page = spec.observations / spec.pages + spec.days
    return int(min(max(CHUNK_ROWS / rows_per_page, 1), 1 << 16))


def run(args: argparse.Namespace) -> int:
    """Make the corpus; 0 when done, 2 when the options are wrong."""
    try:
        spec = spec_from(args)
    except ValueError as problem:
        print("\n".join(f"recrawl synthesize: {line}" for line in str(problem).splitlines()), file=sys.stderr)
        return 2
    began = time.monotonic()
    output = Path(args.output)
    made = synthesize(
        spec, output, args.format, gzipped=args.gzip, rows_per_file=args.rows_per_file, progress=True
    )
    counts = ", ".join(f"{count:,} {name}" for name, count in made.items())
    print(f"{output}: {counts} in {time.monotonic() - began:.1f} s")
    return 0
