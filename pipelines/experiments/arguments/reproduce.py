"""Options of `recrawl reproduce`."""

from __future__ import annotations

import argparse
import os

DESCRIPTION = """\
Run the experiment of a figure or table of a paper with the paper's parameters, and print our numbers, with
standard errors, beside what the paper says. --output gets results.parquet (policy, pages, repetition,
accuracy and more), report.md, and pictures as PNG and SVG (they need matplotlib: in a checkout
pip install '.[plots]'). `recrawl reproduce list` names the figures. At full size a figure takes minutes to
hours: --pages, --repetitions and --until make it smaller.
"""
EXIT_HELP = "exit codes: 0 done, whether claims hold or not; 1 failed; 2 options wrong."


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of the command."""
    parser.description = DESCRIPTION
    parser.epilog = EXIT_HELP
    add = parser.add_argument
    add("figure", metavar="FIGURE", help="AUTHOR-FIGURE, e.g. busa-fekete-6 or han-table-5; list: name all")
    add("--output", metavar="DIR", help="folder for results, report and pictures")
    add(
        "--pages",
        metavar="N[,N]",
        help="numbers of pages, e.g. 100,500 (default: the figure's); with --changes, a page catalogue",
    )
    add("--repetitions", type=int, metavar="N", help="repetitions (default: the figure's)")
    add("--until", type=float, metavar="T", help="time units of a repetition (default: the figure's)")
    add("--seed", type=int, default=0, metavar="N", help="random numbers to use (default %(default)s)")
    add(
        "--workers",
        type=int,
        default=os.cpu_count() or 1,
        metavar="N",
        help="processes; results do not depend on it (default: cores)",
    )
    add("--no_plots", action="store_true", help="no pictures")
    add(
        "--document",
        metavar="FILE",
        help="a Markdown file to put the report into, in place of the figure's last one; its pictures go to "
        "pictures/ beside it",
    )
    _add_given_history(parser)


def _add_given_history(parser: argparse.ArgumentParser) -> None:
    """Declare the options of a given history."""
    group = parser.add_argument_group("a given history, for the figures that can take one (han-2019-...)")
    add = group.add_argument
    add(
        "--changes",
        metavar="FILES",
        help="every change, as for recrawl backtest; --pages is the catalogue then, and its columns are the "
        "metadata",
    )
    add("--start", metavar="TIME", help="begin, ISO 8601, UTC (default: the first whole day)")
    add("--end", metavar="TIME", help="end (default: the last whole day)")
    add("--dataset", metavar="NAME", default="given", help="its name in the results (default %(default)s)")
    add("--group_columns", nargs="+", metavar="NAME", help="the paper's category (default: the host)")
    add("--feature_columns", nargs="+", metavar="NAME", help="metadata (default: all of the catalogue)")
    add("--horizon_hours", metavar="K", default="6", help="hours ahead, 1 to 168 (default %(default)s)")
