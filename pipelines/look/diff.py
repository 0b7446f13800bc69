"""`recrawl diff NIGHT1 NIGHT2`: what moved between two nights, and why."""

from __future__ import annotations

import argparse
import json
import os
from concurrent.futures import ThreadPoolExecutor
from functools import partial

from pipelines.look import diff_report
from transforms.batches.urls import canonical_host
from transforms.files.filesystems import FileSystems
from transforms.finished import comparing, pairing
from transforms.finished.comparing import Comparison, PageRow
from transforms.finished.nights import Night, NightError

DESCRIPTION = """\
Compare the output folders of two nights: what moved, and why. Every page's change of crawl rate is shared out
to its causes (change rate, signals, weight, multiplier, limits, new and lost pages), so that the parts add
up. Reads the manifests, pages/ and schedule/. Memory: for each of the --workers about 0.9 KB for every page
of the largest shard, of a million pages at most unless one host has more.
"""
EXIT_HELP = "exit codes: 0 compared, whether they differ or not; 1 a night cannot be read; 2 options wrong."
MAX_WORKERS = 4


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of the command."""
    parser.description = DESCRIPTION
    parser.epilog = EXIT_HELP
    add = parser.add_argument
    add("before", metavar="NIGHT1", help="output folder of a night, or a store: its newest")
    add("after", metavar="NIGHT2", help="the same of another night, usually a later one")
    add("--host", metavar="HOST", help="look at one host; reads only its shards")
    add("--url", metavar="URL", help="look at one page, spelt as in pages/; reads only its shards")
    add("--json", action="store_true", help="all numbers as one JSON document, for programs")
    add("--top", type=int, default=5, metavar="N", help="length of lists, 1 to 50 (default %(default)s)")
    add(
        "--workers",
        type=int,
        default=min(os.cpu_count() or 1, MAX_WORKERS),
        metavar="N",
        help="shards compared at the same time (default: cores, at most 4)",
    )


def problems(parsed: argparse.Namespace) -> list[str]:
    """What is wrong with the options."""
    found = []
    for night in (parsed.before, parsed.after):
        try:
            FileSystems.check(night)
        except ValueError as e:
            found.append(f"{night}: {e}")
    if parsed.host and parsed.url:
        found.append("--host and --url: give one of them")
    if parsed.url and canonical_host(parsed.url) is None:
        found.append(f"--url={parsed.url}: not an absolute http or https URL")
    if parsed.host and ("/" in parsed.host or canonical_host(f"http://{parsed.host}/") is None):
        found.append(
            f"--host={parsed.host}: not a host; give it without scheme and path, e.g. www.example.com"
        )
    if not 1 <= parsed.top <= comparing.KEPT:
        found.append(f"--top={parsed.top}: expected 1 to {comparing.KEPT}")
    if parsed.workers < 1:
        found.append(f"--workers={parsed.workers}: expected 1 or more")
    return found


def compare(
    before: Night, after: Night, host: str | None = None, url: str | None = None, workers: int = 1
) -> Comparison:
    """Compare two nights, or one host or page of them.

    Raises
    ------
    NightError
        A file is missing or damaged.
    """
    parts = list(pairing.parts_of(before, after, host))
    total = Comparison()
    with ThreadPoolExecutor(workers) as pool:
        # In order of shards, so that sums are the same every time.
        for found in pool.map(partial(comparing.compare, before, after, host=host, url=url), parts):
            total.merge(found)
    return total


def page_of(before: Night, after: Night, url: str) -> tuple[Comparison, PageRow]:
    """One page on both nights, with its host.

    Raises
    ------
    NightError
        Neither night has it.
    """
    host = canonical_host(url)
    found = compare(before, after, host, url)
    if not found.by_rate:
        raise NightError(
            f"{url}: in pages/ of neither {before.folder} nor {after.folder}; give the URL letter by letter "
            f"as the logs have it, or --host {host}"
        )
    return found, found.by_rate[0]


def run(parsed: argparse.Namespace) -> None:
    """Compare and print.

    Raises
    ------
    NightError
        A night cannot be read, or knows nothing of the host or page.
    """
    before, after = Night.open(parsed.before), Night.open(parsed.after)
    if parsed.url:
        found, page = page_of(before, after, parsed.url)
        report = diff_report.page(before, after, found, page)
    else:
        host = canonical_host(f"http://{parsed.host}/") if parsed.host else None
        found = compare(before, after, host, workers=parsed.workers)
        if host and not found.hosts.any():
            raise NightError(
                f"{host}: no page of it in {before.folder} or {after.folder}; a subdomain is a host of its "
                "own, and pages/ has the hosts in column host"
            )
        report = diff_report.report(before, after, found, host)
    if parsed.json:
        said = json.dumps(report, indent=1, ensure_ascii=False, allow_nan=False)
    else:
        said = diff_report.text(report, parsed.top)
    print(said, flush=True)
