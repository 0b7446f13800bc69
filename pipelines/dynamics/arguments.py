"""Options of `recrawl dynamics` as words of a command line."""

from __future__ import annotations

import argparse

from pipelines.command import options_inputs
from pipelines.experiments.arguments.shared import add_run_options

DESCRIPTION = """\
Say when pages change: at which hours of the day and on which weekdays, how long after their last change, and
how often in which groups. A crawl log shows a change when it is found: "corrected" are the rates at which the
log is most probable, "found" is how the log looks, "last-modified" and "sitemap" are by dates, "listed" by
--changes. All figures have standard errors. DIR gets hours, weekdays, intervals and groups.parquet,
results.json, rejected/, pictures and report.html.
"""
EXIT_HELP = "exit codes: 0 done; 1 failed; 2 options or inputs wrong; 4 too many rows rejected."
INPUTS = {
    "observations": "crawl log, as for recrawl nightly",
    "changes": "all changes: url, changed_at[, digest]; in place of a crawl log, or to compare with it",
    "sitemaps": "sitemaps: their lastmod is when a page says that it changed",
    "pages": "page catalogue: url and columns for --by, --timezone_column and --correlate",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of the command."""
    parser.description, parser.epilog = DESCRIPTION, EXIT_HELP
    inputs = parser.add_argument_group("inputs (globs, comma-separated)")
    for name, text in INPUTS.items():
        inputs.add_argument(f"--{name}", metavar="FILES", help=text)
    add = parser.add_argument
    add("--by", nargs="+", metavar="COLUMN", help="groups: host, or columns of --pages, such as country")
    add("--most_groups", metavar="N", default="8", help="of each column, groups with profiles of their own; "
        "those in which most changes were found (default %(default)s)")  # fmt: skip
    add("--timezone", metavar="ZONE", default="UTC", help="whose hours, e.g. Europe/Berlin (default UTC)")
    add("--timezone_column", metavar="COLUMN", help="column of --pages that names the time zone of each page")
    add("--correlate", metavar="COLUMN", help="column of --pages with a number, such as inflation: how the "
        "rates of groups go with its means")  # fmt: skip
    add("--max_rejected_fraction", metavar="X", default="0.01", help="share of rejected rows above which the "
        "run fails (default %(default)s)")  # fmt: skip
    add("--num_shards", metavar="N", default="16", help="units of distribution (default %(default)s)")
    add_run_options(parser)
    options_inputs.add_arguments(parser.add_argument_group("how files are read"))
