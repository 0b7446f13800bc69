"""What several of these commands take."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from pipelines.command import options_inputs
from policies.simulation.drawn import EQUAL, ZIPF

EXIT_HELP = "exit codes: 0 done; 1 failed; 2 options or inputs wrong."
WEIGHTS = ("auto", EQUAL, ZIPF, "clicks", "impressions", "importance")


def add_run_options(parser: argparse.ArgumentParser) -> None:
    """Declare what all of these commands take: workers, where results go, whether there are pictures."""
    parser.add_argument("--workers", metavar="N", help="processes on this machine (default: cores)")
    parser.add_argument("--output", metavar="DIR", required=True, help="folder for the results")
    parser.add_argument(
        "--no_plots",
        action="store_true",
        help="no pictures and no page; pictures need matplotlib: in a checkout pip install '.[plots]'",
    )


def add_inputs(parser: argparse.ArgumentParser) -> None:
    """Options of what is replayed."""
    group = parser.add_argument_group("inputs (globs, comma-separated; what recrawl nightly reads)")
    inputs = group.add_argument
    inputs("--observations", metavar="FILES", help="crawl log, as for recrawl nightly")
    inputs(
        "--changes",
        metavar="FILES",
        help="every change: url, changed_at[, digest, kind]; a row of kind `first` is where the page appears",
    )
    inputs("--requests", metavar="FILES", help="request log, as for recrawl nightly: what pages weigh")
    inputs("--signals", metavar="FILES", help="change signals: url, signalled_at[, source]")
    inputs("--pages", metavar="FILES", help="page catalogue: url[, importance], metadata columns")
    inputs("--start", metavar="TIME", help="first night, ISO 8601, UTC (default: the first whole day)")
    inputs("--end", metavar="TIME", help="end of the last night's day (default: the last whole day)")
    inputs("--sample", metavar="SHARE", default="1", help="share of all pages, by hash (default %(default)s)")
    inputs(
        "--max_pages",
        metavar="N",
        default="5000",
        help="of more pages, this many by hash; a run takes 0.05 s a night and more (default %(default)s)",
    )
    options_inputs.add_arguments(parser.add_argument_group("how files are read"))


def add_choices(parser: argparse.ArgumentParser, policies: Sequence[str]) -> None:
    """Options of what is compared."""
    add = parser.add_argument
    add(
        "--policies",
        nargs="+",
        metavar="NAME",
        default=list(policies),
        help=f"see below (default: {' '.join(policies)}, those that the inputs allow)",
    )
    add(
        "--estimators",
        nargs="+",
        metavar="NAME",
        default=["history"],
        help="what policies of estimated rates learn from, an arm each: history (their own crawls), metadata "
        "(means of pages with the same columns of --pages), both (default: history)",
    )
    add(
        "--weights",
        nargs="+",
        metavar="NAME",
        default=["auto"],
        help=f"what requests are: {', '.join(WEIGHTS)}; zipf draws which pages are popular; auto takes "
        "clicks, impressions or importance where the inputs have them, else equal (default: auto)",
    )
    add("--draws", metavar="N", default="5", help="draws of zipf weights (default %(default)s)")
    add(
        "--repetitions",
        metavar="N",
        default="1",
        help="runs with other instants of first crawls (default %(default)s)",
    )
    add(
        "--warm_up",
        metavar="SHARE",
        default="0.4",
        help="share of the nights not scored (default %(default)s)",
    )
    add("--against", metavar="NAME", help="policy to compare with (default: the first of --policies)")
    add("--seed", metavar="N", default="0", help="of changes that a log cannot show (default %(default)s)")
    add_run_options(parser)
