"""`recrawl export NIGHT --to FORMAT --output DIR`: a night's schedule in the words of a crawler."""

from __future__ import annotations

import argparse
import importlib.util
import json
import posixpath
import sys

from pipelines.command import output_folder
from pipelines.command.errors import OptionsError
from pipelines.command.exit_codes import EXIT_EMPTY, EXIT_OK
from transforms.files.filesystems import FileSystems
from transforms.finished import databases
from transforms.finished.export_formats import FORMATS, NUTCH_DEFAULT_SECONDS, Wishes
from transforms.finished.exporting import Exported, export, strangers
from transforms.finished.nights import Night

DESCRIPTION = """\
Write the schedule of a finished night for a crawler: seeds, status documents, queues, lists of URLs. Entries
are in order of time. Memory does not grow with the schedule, but for a bit a crawl.
"""
EXIT_HELP = (
    "exit codes: 0 done; 1 the night cannot be read; 2 options wrong; 3 done, but nothing was to be written."
)
_MAX_SECONDS = 2**31 - 1


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of the command."""
    parser.description = DESCRIPTION
    parser.epilog = EXIT_HELP
    add = parser.add_argument
    add(
        "night",
        metavar="NIGHT",
        help="output folder of a night, the schedule/ in it, or a store: its newest night",
    )
    kinds = "; ".join(f"{f.name}: {f.what}" for f in FORMATS.values())
    kinds += "; sqlite and postgres: a table, of which the old night stays until the new one is whole"
    add("--to", choices=(*FORMATS, *databases.KINDS), metavar="FORMAT", help=f"required; {kinds}")
    add(
        "--output",
        metavar="DIR",
        help="folder to write to (required); files of an earlier export in it are replaced. Of sqlite the "
        "file, of postgres a connection string, such as postgresql://user@host/name",
    )
    add(
        "--bulk",
        action="store_true",
        help="stormcrawler: requests for OpenSearch's bulk API that set the date of a page and keep what the "
        "topology has stored of it, in place of whole documents",
    )
    add(
        "--no_routing",
        action="store_true",
        help="stormcrawler with --bulk: the status index has opensearch.status.routing: false",
    )
    add(
        "--crawl_id",
        default="DEFAULT",
        metavar="ID",
        help="urlfrontier: the crawl that the URLs belong to (default %(default)s)",
    )
    add(
        "--nutch_default_seconds",
        type=int,
        default=NUTCH_DEFAULT_SECONDS,
        metavar="N",
        help="nutch: db.fetch.interval.default of its nutch-site.xml (default %(default)s)",
    )
    add("--json", action="store_true", help="say what was written as one JSON object")


def problems(parsed: argparse.Namespace) -> list[str]:
    """What is wrong with the options."""
    found = [f"--{name} is missing" for name in ("to", "output") if not getattr(parsed, name)]
    try:
        FileSystems.check(parsed.night)
    except ValueError as error:
        found.append(f"{parsed.night}: {error}")
    if not 0 < parsed.nutch_default_seconds <= _MAX_SECONDS:
        found.append(f"--nutch_default_seconds={parsed.nutch_default_seconds}: expected 1 to {_MAX_SECONDS}")
    if parsed.to == "sqlite" and "://" in (parsed.output or ""):
        found.append(f"--output={parsed.output}: SQLite needs a file on this machine")
    if parsed.to == "postgres" and importlib.util.find_spec("psycopg") is None:
        found.append(
            "--to postgres needs psycopg: pip install 'psycopg[binary]', or recrawl's extra postgres"
        )
    if parsed.bulk and parsed.to not in (None, "stormcrawler"):
        found.append(f"--bulk: for --to stormcrawler, not {parsed.to}")
    if parsed.no_routing and not parsed.bulk:
        found.append("--no_routing: for --bulk")
    return found


def run(parsed: argparse.Namespace) -> int:
    """Export; 3 where the schedule is empty, or no URL of it could be written.

    Raises
    ------
    NightError
        The night cannot be read.
    DatabaseError
        The database does not take it.
    OptionsError
        The folder cannot be written to, or holds what no export has written.
    """
    folder = parsed.night.rstrip("/")
    if posixpath.basename(folder) == "schedule":
        folder = posixpath.dirname(folder) or "."
    night = Night.open(folder)
    if parsed.to in databases.KINDS:
        rows = databases.export_to(parsed.to, night, parsed.output)
        _tell(parsed, Exported(rows, rows, rows))
        return EXIT_OK if rows else EXIT_EMPTY
    output_folder.check(parsed.output)
    if other := strangers(parsed.output):
        raise OptionsError(
            [f"--output={parsed.output}: holds {other[0]}, which no export has written; give a new folder"]
        )
    wishes = Wishes(
        bulk=parsed.bulk,
        routing=not parsed.no_routing,
        crawl_id=parsed.crawl_id,
        nutch_default_seconds=parsed.nutch_default_seconds,
    )
    found = export(night, parsed.to, parsed.output, wishes)
    _tell(parsed, found)
    return EXIT_OK if found.written else EXIT_EMPTY


def _tell(parsed: argparse.Namespace, found: Exported) -> None:
    if parsed.json:
        said = {
            "format": parsed.to,
            "rows": found.rows,
            "crawls": found.crawls,
            "written": found.written,
            "rejected": dict(sorted(found.rejected.items())),
            "samples": [{"reason": reason, "url": url} for reason, url in found.samples],
            "files": [file.as_dict() for file in found.files],
        }
        print(json.dumps(said, ensure_ascii=False))
    elif parsed.to in databases.KINDS:
        # A connection string may have a password.
        where = parsed.output if parsed.to == "sqlite" else "PostgreSQL"
        print(f"{found.written:,} crawls to the table {databases.SCHEDULE} of {where}")
    else:
        what = "pages" if FORMATS[parsed.to].first_only else "crawls"
        files = found.files[0].path if len(found.files) == 1 else f"{len(found.files)} files"
        print(f"{found.written:,} of {found.rows:,} {what} to {files} in {parsed.output}")
    if again := found.crawls - found.rows:
        print(
            f"recrawl: {again:,} of {found.crawls:,} crawls left out: second and further crawls of a page, "
            f"for which {parsed.to} has no entry. Export and load again during the night, or take --to "
            "heritrix, scrapy, urls or csv",
            file=sys.stderr,
        )
    for reason, n in sorted(found.rejected.items()):
        example = next((url for why, url in found.samples if why == reason), "")
        example = example if len(example) <= 120 else f"{example[:120]}..."
        print(f"recrawl: {n:,} rejected, {reason}: such as {example!r}", file=sys.stderr)
