"""Options of `recrawl frontier`."""

from __future__ import annotations

import argparse

from pipelines.experiments.arguments.shared import add_choices, add_inputs

DESCRIPTION = """\
The budget that each policy needs to keep a target share of requests fresh, on a replay as in recrawl
backtest, with its standard error. DIR gets frontier.parquet (a row a policy, target and repetition) and what
recrawl backtest writes, of all runs of the search.
"""
DEFAULT_POLICIES = (
    "recrawl",
    "recrawl+signals",
    "uniform",
    "nutch-adaptive",
    "stormcrawler-adaptive",
    "heritrix",
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of the command."""
    parser.description = DESCRIPTION
    parser.add_argument(
        "--target",
        nargs="+",
        required=True,
        metavar="SHARE",
        help="share of requests that find a fresh copy, e.g. 0.9",
    )
    add_inputs(parser)
    parser.add_argument(
        "--most",
        metavar="RATE",
        help="largest budget to try, crawls per page and day (default: the log's own rate, or 16 times "
        "that of changes)",
    )
    add_choices(parser, DEFAULT_POLICIES)
