"""`recrawl report NIGHT|STORE`: a finished night as one web page; each night has one beside its manifest."""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pipelines.command import output_folder
from pipelines.command.errors import OptionsError
from pipelines.command.version import __version__
from pipelines.look import diff, diff_report
from pipelines.nightly.report import to_look_at
from pipelines.webpage import sections, trends
from pipelines.webpage.rendering import rendered
from transforms.files.replacing import REPORT
from transforms.files.sinks import write_file
from transforms.finished.figures import figures
from transforms.finished.nights import Night
from transforms.finished.opened import OpenNight, nights_of

DESCRIPTION = """\
Write a finished night as one web page: freshness promised and found, what another budget buys, where the
budget goes, what moved since the night before and why, hosts, signals, starved pages, rejected rows, slots by
hour. Of a store with several nights also their trends. The page needs no network.
"""
EXIT_HELP = "exit codes: 0 written; 1 the night cannot be read; 2 options wrong."
MOST_COMPARED = 1_000_000
"""Pages of a night that is compared with the one before: more take longer than a page is worth."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of the command."""
    parser.description = DESCRIPTION
    parser.epilog = EXIT_HELP
    parser.add_argument("night", metavar="NIGHT|STORE", help="output folder of a night, or a store")
    parser.add_argument(
        "--output", metavar="FILE", help="where to write the page (default: report.html in NIGHT or STORE)"
    )


def run(parsed: argparse.Namespace) -> None:
    """Write the page.

    Raises
    ------
    RecrawlError
        A night cannot be read.
    OptionsError
        The file cannot be written.
    """
    night = OpenNight.open(parsed.night)
    file = parsed.output or os.path.join(parsed.night, REPORT)
    if "://" in file:
        raise OptionsError([f"{file}: not on this machine; give --output a file that is"])
    output_folder.check_file(file)
    text = page(night, nights_of(parsed.night))
    try:
        write_file(os.path.dirname(file) or ".", os.path.basename(file), text.encode(), 1)
    except OSError as error:
        why = error.strerror or error
        raise OptionsError(
            [f"--output={file}: cannot be written: {why}; give --output a file that can"]
        ) from None
    print(file, flush=True)


def page(night: OpenNight, nights: Sequence[str] = ()) -> str:
    """The page of a night; with the trends of several nights, of which it is the newest.

    Raises
    ------
    RecrawlError
        A night cannot be read.
    """
    moved, why_not = _moved(night)
    said = sections.of_night(night.manifest, figures(night), moved, why_not)
    if len(nights) > 1:
        said = [trends.of_nights([OpenNight.open(folder).manifest for folder in nights]), *said]
    options = night.manifest["options"]
    hours = f"{float(options.get('horizon_hours', 24.0)):g} hours"
    version = night.manifest.get("recrawl_version", __version__)
    return rendered(
        f"recrawl, night of {trends.when(night.manifest)}",
        f"Status {night.manifest.get('status')}; the schedule covers {hours}. Times are UTC.",
        said,
        f"recrawl {version} from manifest.json and the tables beside it",
        to_look_at(night.manifest),
    )


def _moved(night: OpenNight) -> tuple[dict[str, Any] | None, str]:
    """What moved since the night before in the store, or why that is not said."""
    path = Path(night.folder)
    if "://" in night.folder or path.absolute().parent.name != "nights":
        return None, ""
    before = [f for f in nights_of(str(path.absolute().parent.parent)) if Path(f).name < path.absolute().name]
    if not before:
        return None, ""
    one, two = Night.open(before[-1]), Night.open(night.folder)
    pages = max(n.manifest["counters"].get("pages_known", 0) for n in (one, two))
    if pages > MOST_COMPARED:
        return None, (
            f"With {pages:,} pages this takes longer than a page is worth: "
            f"recrawl diff {Path(before[-1]).name} {path.name} says it."
        )
    return diff_report.report(one, two, diff.compare(one, two)), ""
