"""Options of the nightly job: declared once, checked all at once."""

from __future__ import annotations

import argparse
import math
import os
from datetime import UTC, datetime, timedelta
from typing import Any

from apache_beam.io.filesystems import FileSystems
from apache_beam.options.pipeline_options import PipelineOptions, StandardOptions

from pipelines.command import options_inputs
from pipelines.command.errors import OptionsError
from pipelines.command.output_folder import PATTERN_CHARACTERS
from pipelines.nightly import flink
from policies.objectives import objectives
from transforms.batches.times import END_US, FIRST_US
from transforms.files.inputs import split_patterns
from transforms.night.dividing import SEQUENCERS
from transforms.night.request_share import RequestShare
from transforms.rows.normalise import KINDS

LOCAL_RUNNERS = ("", "directrunner", "fnapirunner")
OUTPUT_FORMATS = ("parquet", "avro", "jsonl")
WEIGHTS = ("auto", "clicks", "impressions", "importance", "equal")
# A crawl in 2,700 years; far below it numbers are too small for sums.
LEAST_BUDGET = 1e-6
AUTO, MOST_SHARE = "auto", 0.9
"""Of parts of the budget."""
DAY_MICROSECONDS = 86_400_000_000


class NightlyOptions(PipelineOptions):
    """Options of `recrawl nightly`.

    Nothing is `required` for argparse: a required option of one `PipelineOptions` subclass would stop every
    other pipeline of the process. `validate` does the checking.
    """

    @classmethod
    def _add_argparse_args(cls, parser: argparse.ArgumentParser) -> None:
        inputs = parser.add_argument_group(
            "inputs (globs, comma-separated; Parquet, Avro, JSON Lines, CSV, .gz)"
        )
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
            help="folder for pages/, hosts/, schedule/, state/, slots/, rejected/ and manifest.json "
            "(required)",
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


class _Checker:
    """Turns option texts into values and collects what is wrong with them."""

    def __init__(self, values: dict[str, Any]) -> None:
        self.values = values
        self.problems: list[str] = []

    def number(
        self,
        name: str,
        low: float,
        high: float,
        unit: str,
        *,
        none: bool = False,
        whole: bool = False,
        open_low: bool = False,
    ) -> Any:
        text = self.values[name]
        if text is None:
            if not none:
                self.problems.append(f"--{name} is missing: give {unit}")
            return None
        try:
            value = float(text)
        except ValueError:
            value = math.nan
        bad_low = value <= low if open_low else value < low
        if math.isnan(value) or bad_low or value > high or (whole and value != int(value)):
            kind = "a whole number" if whole else "a number"
            bound = f"{'above' if open_low else 'from'} {low:g} to {high:g}"
            self.problems.append(f"--{name}={text}: expected {kind} {bound} ({unit})")
            return None
        return int(value) if whole else value

    def paths(self, name: str) -> None:
        """Whether there is a file system for every path of an option."""
        for path in split_patterns(self.values[name] or ""):
            try:
                FileSystems.get_filesystem(path)
            except ValueError as e:
                self.problems.append(f"--{name}={path}: {e}")

    def plain(self, name: str) -> None:
        """A folder whose name would be taken for a pattern: files of others would be read, or deleted."""
        bad = sorted({c for c in self.values[name] or "" if c in PATTERN_CHARACTERS})
        if bad:
            self.problems.append(
                f"--{name}={self.values[name]}: a folder with {' '.join(bad)} in its name would be taken for "
                "a pattern; give it another name"
            )

    def choice(self, name: str, choices: tuple[str, ...]) -> str:
        value = str(self.values[name])
        if value not in choices:
            self.problems.append(f"--{name}={value}: expected one of {', '.join(choices)}")
        return value


def parse_instant(text: str) -> int:
    """UTC microseconds of an ISO 8601 text; without an offset it is UTC. ValueError outside 1990 to 2100."""
    moment = datetime.fromisoformat(text.strip())
    moment = moment.replace(tzinfo=moment.tzinfo or UTC)
    since = moment - datetime(1970, 1, 1, tzinfo=UTC)
    us = (since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds
    if not FIRST_US <= us < END_US:
        raise ValueError(text)
    return us


def format_instant(at_us: int) -> str:
    """ISO 8601 text of UTC microseconds."""
    moment = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=at_us)
    return moment.isoformat().replace("+00:00", "Z")


class Settings:
    """The checked values of `NightlyOptions`, typed, with units. Plain data: it travels to workers.

    Raises
    ------
    OptionsError
        Listing every problem.
    """

    def __init__(self, options: PipelineOptions) -> None:
        values = options.view_as(NightlyOptions).get_all_options(current_only=True)
        check = _Checker(values)
        self.observations: str | None = values["observations"]
        self.requests: str | None = values["requests"]
        self.pages: str | None = values["pages"]
        self.hosts: str | None = values["hosts"]
        self.signals: str | None = values["signals"]
        self.sitemaps: str | None = values["sitemaps"]
        self.sitemap_pages: bool = bool(values["sitemap_pages"])
        self.state: str | None = values["state"]
        self.discovery: str | None = values["discovery"]
        self.output: str = (values["output"] or "").rstrip("/") or (values["output"] or "")[:1]
        self.overwrite: bool = bool(values["overwrite"])
        listed = self.pages or self.discovery or (self.sitemaps and self.sitemap_pages)
        knows_pages = listed or self.state
        for name, what, there in (
            ("observations", "the crawl log, e.g. --observations='logs/*.parquet'", knows_pages),
            ("output", "the folder for tonight's results", False),
        ):
            if not values[name] and not there:
                check.problems.append(f"--{name} is missing: give {what}")
        self.how = options_inputs.hows(values, check.problems)
        for name in (*KINDS, "state", "discovery", "output"):
            check.paths(name)
        for name in ("state", "discovery", "output"):
            check.plain(name)
        if values["flink_rest"]:
            try:
                flink.address(values["flink_rest"])
            except ValueError:
                check.problems.append(
                    f"--flink_rest={values['flink_rest']}: expected host:port, e.g. jobmanager:8081"
                )
        self.output_format = check.choice("output_format", OUTPUT_FORMATS)
        self.objective = check.choice("objective", ("auto", *objectives.NAMES))
        self.sequencer = check.choice("sequencer", SEQUENCERS)
        self.weight_by = check.choice("weight_by", WEIGHTS)
        self.budget_per_day: float = check.number("budget", 0.0, 1e15, "crawls per day")
        if 0.0 < (self.budget_per_day or 0.0) < LEAST_BUDGET:
            check.problems.append(
                f"--budget={values['budget']}: expected 0, or a number from {LEAST_BUDGET:g} to 1e+15 "
                "(crawls per day)"
            )
        self.on_request_share: float | None = None
        if values["on_request_share"] != AUTO:
            self.on_request_share = check.number(
                "on_request_share", 0.0, MOST_SHARE, "part of --budget, or auto"
            )
        self.request_share = RequestShare(budget_per_day=self.budget_per_day or 0.0)
        self.horizon_hours: float = check.number("horizon_hours", 0.001, 8784.0, "hours")
        self.host_max_per_day: float | None = check.number(
            "host_max_per_day", 0.0, 1e15, "crawls per day and host", none=True
        )
        self.host_min_gap_seconds: float = (
            check.number("host_min_gap_seconds", 0.0, 1e7, "seconds", none=True) or 0.0
        )
        self.page_min_per_day: float | None = check.number(
            "page_min_per_day", 0.0, 1e15, "crawls per day and page", none=True
        )
        self.page_max_per_day: float | None = check.number(
            "page_max_per_day", 0.0, 1e15, "crawls per day and page", none=True, open_low=True
        )
        if (self.page_min_per_day or 0.0) > (self.page_max_per_day or math.inf):
            check.problems.append(
                f"--page_min_per_day={values['page_min_per_day']} is above "
                f"--page_max_per_day={values['page_max_per_day']}: lower the one or raise the other"
            )
        self.half_life_changes: int = check.number("half_life_changes", 0, 1e6, "changes", whole=True)
        self.half_life_days: float | None = check.number("half_life_days", 1.0, 1e5, "days", none=True)
        self.request_half_life_days: float = check.number(
            "request_half_life_days", 0.0, 1e5, "days", open_low=True
        )
        self.signal_delay_minutes: float = check.number("signal_delay_minutes", 0.0, 1e5, "minutes")
        self.max_rejected_fraction: float = check.number("max_rejected_fraction", 0.0, 1.0, "share of rows")
        self.max_signal_shift: float = check.number("max_signal_shift", 0.0, 1.0, "share of slots")
        self.hour_capacity: float = check.number("hour_capacity", 1.0, 24.0, "times the even share")
        self.num_shards: int | None = check.number("num_shards", 1, 99_999, "shards", none=True, whole=True)
        self.split_hosts_above: int = check.number("split_hosts_above", 0, 1e15, "pages", whole=True)
        self.rows_per_batch: int = check.number("rows_per_batch", 1, 1e8, "rows", whole=True)
        self.allow_shrink: bool = bool(values["allow_shrink"])
        self.lower_soft_404: bool = bool(values["lower_soft_404"])
        self.host_groups: bool = bool(values["host_groups"])
        self.group_columns: tuple[str, ...] = tuple(
            c.strip() for c in (values["group_columns"] or "").split(",") if c.strip()
        )
        if self.group_columns and not self.pages:
            check.problems.append("--group_columns needs --pages: the columns are the catalogue's")
        self.as_of_us = 0
        if not values["as_of"]:
            check.problems.append(
                "--as_of is missing: give the night's instant, e.g. --as_of=2026-07-01T00:00:00Z"
            )
        else:
            try:
                self.as_of_us = parse_instant(values["as_of"])
            except ValueError:
                check.problems.append(
                    f"--as_of={values['as_of']}: expected ISO 8601 of the years 1990 to 2100, "
                    "e.g. 2026-07-01T00:00:00Z"
                )
        if self.output and self.state and (self.state.rstrip("/") + "/").startswith(self.output + "/"):
            check.problems.append(
                f"--state={self.state} lies in --output={self.output}: the night would delete "
                "what it reads; give another --output"
            )
        self._given: dict[str, str] = {}
        if str(options.view_as(StandardOptions).runner or "").lower() not in LOCAL_RUNNERS:
            self._resolve(check.problems)
        if check.problems:
            raise OptionsError(check.problems)

    def _resolve(self, problems: list[str]) -> None:
        """Make paths absolute: workers elsewhere work in other folders. The manifest has them as given."""
        here = os.path.join(os.getcwd(), "")
        for name in (*KINDS, "state", "discovery", "output"):
            paths = split_patterns(getattr(self, name) or "")
            found = ",".join(p if os.path.isabs(p) or "://" in p else here + p for p in paths)
            if paths and found != ",".join(paths):
                self._given[name] = getattr(self, name)
                setattr(self, name, found)
        if self._given and any(c in here for c in PATTERN_CHARACTERS + ","):
            problems.append(
                f"--{next(iter(self._given))}: a path in {here}, which would be taken for a pattern or a "
                "list; run it in a folder without these characters in its name"
            )

    def follow(self, previous: dict[str, Any] | None) -> None:
        """Settle what depends on the manifest of the previous night."""
        if self.objective == "auto":
            before = (previous or {}).get("options", {}).get("objective")
            given = self.signals or self.sitemaps
            self.objective = "signals" if given or before == "signals" else "periodic"
        shared = self.on_request_share, self.budget_per_day, self.objective
        self.request_share = RequestShare.of(*shared, previous or {}, self.page_min_per_day or 0.0)

    @property
    def horizon_us(self) -> int:
        """Microseconds that the schedule covers."""
        return round(self.horizon_hours * DAY_MICROSECONDS / 24)

    @property
    def limits_hosts(self) -> bool:
        """Whether any host may have a limit."""
        return bool(self.hosts or self.host_max_per_day is not None or self.host_min_gap_seconds)

    def published(self) -> dict[str, Any]:
        """What the manifest says of the options: all that decide what is computed, not where it is put."""
        hidden = {"output", "overwrite", "rows_per_batch", "how", "_given", "request_share"}
        values = {k: v for k, v in (vars(self) | self._given).items() if k not in hidden}
        for kind, how in self.how.items():
            values |= {f"{kind}_format": how.form, f"{kind}_columns": dict(how.columns), **dict(how.options)}
        values["group_columns"] = list(self.group_columns)
        values["on_request_share"] = AUTO if self.on_request_share is None else self.on_request_share
        values["as_of"] = format_instant(self.as_of_us)
        return dict(sorted(values.items()))
