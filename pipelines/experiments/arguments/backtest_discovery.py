"""Options of `recrawl backtest-discovery`."""

from __future__ import annotations

import argparse

from pipelines.experiments.arguments.shared import add_run_options

KINDS = ("links", "snapshots")
DESCRIPTION = """\
Replay what source pages showed, let crawlers refresh k of them in each step, and print what they find of the
links that are new. --links has a row for each time that a source showed a target: source, target, appeared_at
[, gone_at (empty: still there), domain]. --snapshots has when sources were looked at: source, seen_at
[, status]; without it every refresh shows what --links says. A budget is tried for each domain, that of the
source's host unless a column says otherwise, and one for all. DIR gets results.parquet (a row a policy,
domain, k and seed; the domain `all` has one budget for all), over_time.parquet, summary.parquet (the table)
and pictures.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of the command."""
    parser.description = DESCRIPTION
    inputs = parser.add_argument_group("inputs (globs, comma-separated; Parquet, Avro, JSON Lines, CSV, TSV)")
    add = inputs.add_argument
    add("--links", metavar="FILES", required=True, help="what sources showed, from when to when")
    add("--snapshots", metavar="FILES", help="when sources were looked at")
    for kind in KINDS:
        example = "source=page,appeared_at=first_seen" if kind == "links" else "seen_at=time"
        add(
            f"--{kind}_columns",
            metavar="PAIRS",
            help=f"names that your files have for recrawl's columns, comma-separated, such as {example}",
        )
    add("--start", metavar="TIME", help="where steps begin, ISO 8601, UTC (default: with the first poll)")
    add("--end", metavar="TIME", help="where they end (default: with the last poll)")
    add = parser.add_argument
    add("--k", metavar="N", nargs="+", default=["1,2,5"], help="refreshes a step (default: 1,2,5)")
    add(
        "--policies",
        nargs="+",
        metavar="NAME",
        help="see below (default: all)",
    )
    add("--pooled", action="store_true", help="only one budget for all sources, none for each domain")
    add("--no_pooled", action="store_true", help="only budgets for each domain, none for all sources")
    add("--step_hours", metavar="H", default="1", help="length of a step (default %(default)s)")
    add(
        "--warmup_hours",
        metavar="H",
        default="24",
        help="targets that are first shown in these hours are not scored (default %(default)s)",
    )
    add("--repetitions", metavar="N", default="3", help="runs with other seeds (default %(default)s)")
    add("--seed", metavar="N", default="0", help="of the first (default %(default)s)")
    add_run_options(parser)
