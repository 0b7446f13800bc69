"""Options of `recrawl backtest`."""

from __future__ import annotations

import argparse

from pipelines.experiments.arguments.shared import add_choices, add_inputs
from policies.on_request.strategies import RULES

DESCRIPTION = """\
Replay when pages changed, let policies crawl them with equal budgets, and print how fresh each keeps its
copies, with standard errors, and what more budget buys. Policies see only what their own crawls find and
learn on the way; the first part of the time is not scored. Give --observations, a crawl log, or --changes, a
list of all changes. DIR gets results.parquet (a row a run), days.parquet (a row a run and day),
summary.parquet (the table) and report.html, a page.
"""
DEFAULT_POLICIES = (
    "recrawl",
    "recrawl+signals",
    "recrawl+equal",
    "uniform",
    "change-weighted",
    "click-weighted",
    "lambdacrawl",
    "periodic-history",
    "nutch-default",
    "nutch-adaptive",
    "stormcrawler-adaptive",
    "heritrix",
    "sitemap",
    "uncensored",
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of the command."""
    parser.description = DESCRIPTION
    add_inputs(parser)
    add = parser.add_argument
    add(
        "--budgets",
        nargs="+",
        metavar="RATE",
        help="crawls per page and day (default: parts of the log's own rate, or of the changes' rate)",
    )
    add("--json", action="store_true", help="print results.json and the summary as one JSON document")
    _add_on_request(parser)
    add_choices(parser, DEFAULT_POLICIES)


def _add_on_request(parser: argparse.ArgumentParser) -> None:
    """Options of crawls that requests trigger."""
    parser.add_argument(
        "--on_request",
        action="store_true",
        help="requests trigger crawls: replay --requests, or drawn ones, under rules that decide which do; "
        f"--policies are then {', '.join(RULES)} (docs/on_request.md)",
    )
    parser.add_argument(
        "--requests_per_page_day",
        metavar="N",
        default="4",
        help="of --on_request without --requests: how many are drawn (default %(default)s)",
    )
