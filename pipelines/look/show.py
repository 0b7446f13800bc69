"""`recrawl show NIGHT`: a finished night in words."""

from __future__ import annotations

import argparse
import json

from pipelines.nightly import report
from transforms.finished.opened import OpenNight

DESCRIPTION = """\
Say what a night decided: what was read, what is known, what the budget buys, and what needs a look. The same
words as at the end of the night's run.
"""
EXIT_HELP = "exit codes: 0 shown; 1 the night cannot be read; 2 options wrong."


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of the command."""
    parser.description = DESCRIPTION
    parser.epilog = EXIT_HELP
    parser.add_argument(
        "night", metavar="NIGHT", help="output folder of a night, or a store: its newest night"
    )
    parser.add_argument("--json", action="store_true", help="the manifest, for programs")


def run(parsed: argparse.Namespace) -> None:
    """Print.

    Raises
    ------
    RecrawlError
        The night cannot be read.
    """
    night = OpenNight.open(parsed.night)
    if parsed.json:
        print(json.dumps(night.manifest, indent=1, ensure_ascii=False), flush=True)
        return
    text = report.summary(night.manifest, night.folder)
    print(text, flush=True)
