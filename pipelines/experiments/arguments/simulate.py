"""Options of `recrawl simulate`."""

from __future__ import annotations

import argparse

from pipelines.experiments.arguments.shared import add_run_options
from policies.simulation.drawn import CLICKS, GAMMA, OFFERS, REQUESTS, UNIFORM, WORLDS, ZIPF
from policies.simulation.experiments import BASELINE

DESCRIPTION = """\
Draw worlds of pages that change, are requested and send signals, let policies crawl them with equal budgets,
and print what share of requests each answers with a fresh copy. A time unit of the papers is a day. All
policies of a repetition see the same changes, requests and signals. No data is needed. DIR gets
results.parquet (a row a policy and repetition), over_time.parquet (the same in twenty parts of the time),
summary.parquet (the table), simulate.json (options and seed) and pictures.
"""
DEFAULT_POLICIES = (
    "recrawl",
    "recrawl+signals",
    "uniform",
    "nutch-adaptive",
    "stormcrawler-adaptive",
    "heritrix",
    "GREEDY",
    "GREEDY-NCIS",
    "LDS",
    BASELINE,
)
AUTO = "auto"
REQUESTS_OF = {UNIFORM: UNIFORM, GAMMA: ZIPF, OFFERS: CLICKS}
NO_SIGNALS, TRUE_SIGNALS, NOISY_SIGNALS = "none", "true", "noisy"
SIGNALS = (NO_SIGNALS, TRUE_SIGNALS, NOISY_SIGNALS)
RECALL, FALSE_SIGNALS, CHANGE_RATE, SHAPE = (0.25, 0.25), (0.1, 0.6), 0.5, 0.5


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of the command."""
    parser.description = DESCRIPTION
    size = parser.add_argument_group("size").add_argument
    size("--pages", nargs="+", metavar="N", default=["500"], help="numbers of pages (default: 500)")
    size(
        "--bandwidth",
        nargs="+",
        metavar="R",
        default=["50"],
        help="crawls per day over all pages; divided by the pages it is the budget of recrawl backtest. Each "
        "is run with each number of pages (default: 50)",
    )
    size("--until", metavar="DAYS", default="200", help="days (default %(default)s)")
    size(
        "--warm_up", metavar="SHARE", default="0.4", help="share of the days not scored (default %(default)s)"
    )
    size("--repetitions", metavar="N", default="6", help="drawn worlds (default %(default)s)")
    size("--seed", metavar="N", default="0", help="of all that is drawn (default %(default)s)")

    world = parser.add_argument_group("world").add_argument
    world(
        "--world",
        metavar="NAME",
        default=UNIFORM,
        help=f"{', '.join(WORLDS)}: change rates uniform, or gamma (most pages hardly change), or price "
        "offers with hours, weekends and merchants (default %(default)s)",
    )
    world(
        "--change_rate",
        metavar="RATE",
        help=f"mean changes per page and day, not of offers (default {CHANGE_RATE})",
    )
    world("--shape", metavar="A", help=f"shape of the gamma distribution (default {SHAPE})")
    world(
        "--requests",
        metavar="NAME",
        default=AUTO,
        help=f"request rates: {', '.join(REQUESTS)} (offers alone have clicks); auto is uniform in the world "
        "uniform, zipf in gamma, clicks in offers (default %(default)s)",
    )
    world(
        "--signals",
        metavar="KIND",
        default=NOISY_SIGNALS,
        help="none, true (some changes are signalled), noisy (false signals as well) (default %(default)s)",
    )
    world(
        "--recall",
        metavar="A,B",
        help="Beta distribution of the share of a page's changes that is signalled (default 0.25,0.25)",
    )
    world(
        "--false_signals",
        metavar="LOW,HIGH",
        help="false signals per page and day, uniform (default 0.1,0.6)",
    )
    world("--delay", metavar="DAYS", default="0", help="mean delay of signals, exponential (default: none)")

    add = parser.add_argument
    add(
        "--policies",
        nargs="+",
        metavar="NAME",
        help=f"see below (default: {' '.join(DEFAULT_POLICIES)}, those that the world allows)",
    )
    add("--against", metavar="NAME", help="policy to compare with (default: the first of --policies)")
    add(
        "--discard",
        metavar="DAYS",
        help="after a crawl, in which GREEDY-NCIS-D does not count signals (default: --delay)",
    )
    add("--sampled", action="store_true", help="draw requests, too, and count those served fresh")
    add_run_options(parser)
