"""Options of the discovery job as words of a command line."""

from __future__ import annotations

import argparse
from typing import Any

from policies.discovery.names import POLICIES
from transforms import dialects

DESCRIPTION = """\
Learn from links seen which pages bring new ones, and write when to fetch these pages again, and the links
that are new. --links has a row for each link of a fetch: source, target, seen_at [, status]; a row without a
target says that the source was fetched and showed none, a status other than 2xx that it told nothing. DIR
gets schedule/ (which source when), sources/ (what is known of each), targets/ (new pages, for --pages of
nightly) and state/, which the next run reads by --state.
"""
EXIT_HELP = (
    "exit codes: 0 done; 1 failed; 2 options or inputs wrong; 3 done, but the schedule is empty; 4 too many "
    "rows rejected; 6 another run has taken --output over."
)
_INPUTS = (
    ("links", "FILES", "links seen: source, target, seen_at[, status] (required, but where a list or a state "
        "says what is known)"),
    ("links_format", "NAME", "canonical, a format of docs/discovery_job.md, or auto: told by what each file "
        "begins with (default: auto)"),
    ("links_columns", "PAIRS", "names that your files have for recrawl's columns, comma-separated, such as "
        "source=page,seen_at=time"),
    ("tracking_parameters", "NAMES", "parameters that are no part of a page, comma-separated, such as "
        "ref,src or my_*: added to the usual ones"),
    ("sources", "FILES", "pages that are sources: url (default: all that have brought new links)"),
    ("sources_columns", "PAIRS", "the same names for --sources, such as url=address"),
    ("hosts", "FILES", "politeness limits: host, max_per_day, min_gap_seconds"),
    ("state", "DIR", "the --output of the run before"),
)  # fmt: skip
_PLAN = (
    ("budget", "N", "refreshes a day, of all sources together (required)", None),
    ("as_of", "TIME", "where the schedule begins, ISO 8601, UTC; later rows are left for the next run "
        "(required)", None),
    ("horizon_hours", "H", "hours of the schedule", "24"),
    ("host_max_per_day", "N", "refreshes a day and host, where --hosts has none (default: no limit)", None),
    ("host_min_gap_seconds", "S", "least seconds between two refreshes of a host; --hosts may only make it "
        "longer", "0"),
    ("least_hours", "H", "least hours between two refreshes of a source", "0.25"),
    ("forget_days", "D", "days after which a source that is not listed, and that no visit has seen, is "
        "forgotten", "90"),
    ("policy", "NAME", f"how a refresh is valued: {', '.join(POLICIES)}", POLICIES[0]),
    ("capacity", "X", "how many times its even share of the refreshes any time may have", "2"),
)  # fmt: skip
_WORK = (
    ("max_rejected_fraction", "X", "share of rejected rows above which the run fails", "0.01"),
    ("num_shards", "N", "files a kind, and units of distribution (default: those of --state, else 4 where "
        "the inputs are small, or 16)", None),
    ("rows_per_batch", "N", "rows that are gathered before they are cut by shard; any value gives the same "
        "output", "262144"),
)  # fmt: skip


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of the command."""
    parser.description, parser.epilog = DESCRIPTION, EXIT_HELP
    add_options(parser)
    outputs = parser.add_argument_group("output")
    outputs.add_argument("--output", metavar="DIR", required=True, help="folder for the results")
    outputs.add_argument(
        "--overwrite", action="store_true", help="remove the files of an old run before this one"
    )


def add_options(parser: Any) -> None:
    """Those that say what is read and decided."""
    inputs = parser.add_argument_group("inputs (globs, comma-separated; Parquet, Avro, JSON Lines, CSV, .gz)")
    for name, metavar, text in _INPUTS:
        default = dialects.AUTO if name == "links_format" else None
        inputs.add_argument(f"--{name}", metavar=metavar, help=text, default=default)
    inputs.add_argument(
        "--host_groups",
        action="store_true",
        help="hosts of --hosts with the same group, and all subdomains of a row like *.blog.test, share one "
        "limit and one gap",
    )
    inputs.add_argument("--off_site", action="store_true", help="links to other sites are targets, too")
    for title, options in (
        ("budget and schedule", _PLAN),
        ("execution (and Beam's own options, e.g. --runner)", _WORK),
    ):
        group = parser.add_argument_group(title)
        for name, metavar, text, default in options:
            said = f"{text} (default: {default})" if default else text
            required = name in ("budget", "as_of")
            group.add_argument(f"--{name}", metavar=metavar, help=said, default=default, required=required)
