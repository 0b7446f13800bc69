"""Options of the nightly job as words of a command line."""

from __future__ import annotations

import argparse

from pipelines.command import options_inputs
from policies.objectives import objectives

LOCAL_RUNNERS = ("", "directrunner", "fnapirunner")
OUTPUT_FORMATS = ("parquet", "avro", "jsonl")
WEIGHTS = ("auto", "clicks", "impressions", "importance", "equal")
# A crawl in 2,700 years; far below it numbers are too small for sums.
LEAST_BUDGET = 1e-6
AUTO, MOST_SHARE = "auto", 0.9
"""Of parts of the budget."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare them, in groups."""
    inputs = parser.add_argument_group("inputs (globs, comma-separated; Parquet, Avro, JSON Lines, CSV, .gz)")
    inputs.add_argument(
        "--observations",
        help="crawl log: url, fetched_at, and any of status, digest, changed, "
        "last_modified, not_modified (required, but where a catalogue or a state says what is known)",
    )
    inputs.add_argument("--requests", help="request log: url, day or at, clicks, impressions")
    options_inputs.add_arguments(inputs)
    inputs.add_argument(
        "--pages",
        help="page catalogue: url, importance, min_rate_per_day, max_rate_per_day, published_at, "
        "metadata columns",
    )
    inputs.add_argument("--hosts", help="politeness limits: host, max_per_day, min_gap_seconds")
    inputs.add_argument("--signals", help="change signals: url, signalled_at[, source]; or IndexNow logs")
    inputs.add_argument(
        "--sitemaps",
        help="sitemaps as fetched: XML, RSS, Atom or plain text, .gz; a lastmod that has moved since the "
        "night before is a signal",
    )
    inputs.add_argument(
        "--sitemap_pages",
        action="store_true",
        help="URLs of --sitemaps are pages, as if --pages had them (default: unknown ones are left out)",
    )
    inputs.add_argument(
        "--state",
        help="the state/ folder of the previous night; slots/ and manifest.json beside it are used when "
        "they are there",
    )
    inputs.add_argument(
        "--discovery",
        help="the --output of a finished `recrawl discover`: the targets that it has found are pages, "
        "and the refreshes that it has planned are crawls of this night",
    )
    outputs = parser.add_argument_group("outputs")
    outputs.add_argument(
        "--output",
        help="folder for pages/, hosts/, schedule/, state/, slots/, rejected/ and manifest.json (required)",
    )
    outputs.add_argument(
        "--overwrite",
        action="store_true",
        help="remove the files of the old night before the job, and let an empty night replace one that "
        "has a schedule (default: what is there is replaced when the new night is complete, by an empty "
        "one never)",
    )
    outputs.add_argument(
        "--output_format",
        default="parquet",
        help=f"format of pages/ and schedule/: {', '.join(OUTPUT_FORMATS)} (default: %(default)s)",
    )
    plan = parser.add_argument_group("budget and schedule")
    plan.add_argument("--budget", help="crawls per day over all pages (required)")
    plan.add_argument(
        "--as_of",
        help="the night's instant, ISO 8601, UTC unless it says otherwise: later rows "
        "are left for the next night, the schedule starts here (required)",
    )
    plan.add_argument(
        "--horizon_hours", default="24", help="hours that the schedule covers (default: %(default)s)"
    )
    plan.add_argument(
        "--objective",
        default="auto",
        help=f"what is maximised: {', '.join(objectives.NAMES)}; auto takes signals where change signals "
        "are given or the previous night used them, else periodic (default: %(default)s)",
    )
    plan.add_argument(
        "--max_signal_shift",
        default="0.005",
        help="share of a night's slots that the signals of one host may take from other hosts "
        "(default: %(default)s)",
    )
    plan.add_argument(
        "--hour_capacity",
        default="4",
        help="how many times its even share of the crawls a 24th of the schedule may hold, where pages "
        "change, or are asked for, at some hours: 1 to 24 (default: %(default)s)",
    )
    plan.add_argument(
        "--sequencer",
        default="lds",
        help="who gets which slot: lds (each page at even distances, by its crawl rate) or greedy "
        "(the page of highest crawl value) (default: %(default)s)",
    )
    plan.add_argument(
        "--weight_by",
        default="auto",
        help="what a page weighs: clicks or impressions per day, importance, or equal; auto takes "
        "clicks where there is a request log, else importance (default: %(default)s)",
    )
    plan.add_argument(
        "--on_request_share",
        default="0",
        help="part of --budget that is left for crawls at requests, by crawl_on_request of pages/: 0 to "
        "0.9, or auto: by how bursty requests are (default: %(default)s)",
    )
    plan.add_argument(
        "--page_min_per_day",
        help="least crawls per day of pages without min_rate_per_day in --pages, such as 0.0714 for one "
        "in 14 days: no page starves; the summary says what that costs (default: none)",
    )
    plan.add_argument(
        "--page_max_per_day",
        help="most crawls per day of pages without max_rate_per_day in --pages (default: no limit)",
    )
    plan.add_argument(
        "--host_groups",
        action="store_true",
        help="hosts of --hosts with the same group, and all subdomains of a row like *.blog.test, share "
        "one limit and one gap (default: off)",
    )
    plan.add_argument(
        "--lower_soft_404",
        action="store_true",
        help="pages of a host that look like one error page, soft_404 in pages/, weigh together what one "
        "of them does; not for digests that pages may have in common, such as of a price (default: off)",
    )
    plan.add_argument(
        "--host_max_per_day", help="crawls per day and host, where --hosts has none (default: no limit)"
    )
    plan.add_argument(
        "--host_min_gap_seconds",
        help="least seconds between two crawls of one host; --hosts may only make it longer (default: 0)",
    )
    learn = parser.add_argument_group("learning")
    learn.add_argument(
        "--group_columns",
        help="metadata columns of --pages, comma-separated, by which pages "
        "borrow from each other (default: the host)",
    )
    learn.add_argument(
        "--half_life_changes",
        default="12",
        help="observed changes of a page after which older evidence counts half; 0: never "
        "(default: %(default)s)",
    )
    learn.add_argument("--half_life_days", help="days after which evidence counts half (default: never)")
    learn.add_argument(
        "--request_half_life_days",
        default="28",
        help="days after which requests count half (default: %(default)s)",
    )
    learn.add_argument(
        "--signal_delay_minutes",
        default="0",
        help="signals less than this after a crawl of their page are discarded: the crawl has likely "
        "seen what they are about (default: %(default)s)",
    )
    safety = parser.add_argument_group("safety")
    safety.add_argument(
        "--max_rejected_fraction",
        default="0.01",
        help="share of rejected input rows above which the run fails, after writing them "
        "(default: %(default)s)",
    )
    safety.add_argument(
        "--allow_shrink",
        action="store_true",
        help="go on although more than 10 %% of known pages or input rows are gone since last night",
    )
    work = parser.add_argument_group("execution (and Beam's own options, e.g. --runner)")
    work.add_argument(
        "--num_shards",
        help="files a kind, and units of distribution; about a million pages each at most (default: as "
        "the night before, on a first night by the sizes of files: 1 for a small night, mostly up to 16)",
    )
    work.add_argument(
        "--split_hosts_above",
        default="100000",
        help="pages of a host above which it is spread over several shards, where it would fill more "
        "than half of one; it keeps its one limit and gap (default: %(default)s)",
    )
    work.add_argument(
        "--rows_per_batch",
        default="262144",
        help="rows that are gathered before they are cut by "
        "shard; any value gives the same output (default: %(default)s)",
    )
    work.add_argument(
        "--flink_rest",
        help="host:port of Flink's REST API: shows the stages, and cancels the job of a night that is "
        "stopped (default: --flink_master, where that is an address)",
    )
