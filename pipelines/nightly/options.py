"""Options of the nightly job: declared once, checked all at once."""

from __future__ import annotations

import argparse
import math
import os
from typing import Any

from apache_beam.options.pipeline_options import PipelineOptions, StandardOptions

from pipelines.command import options_inputs
from pipelines.command.errors import OptionsError
from pipelines.command.instants import DAY_MICROSECONDS, format_instant, parse_instant
from pipelines.command.output_folder import PATTERN_CHARACTERS
from pipelines.nightly import flink
from pipelines.nightly.arguments import (
    AUTO,
    LEAST_BUDGET,
    LOCAL_RUNNERS,
    MOST_SHARE,
    OUTPUT_FORMATS,
    WEIGHTS,
    add_arguments,
)
from policies.objectives import objectives
from transforms.files.filesystems import FileSystems
from transforms.files.inputs import split_patterns
from transforms.files.shard_files import MOST_SHARDS
from transforms.night.dividing import SEQUENCERS
from transforms.night.request_share import RequestShare
from transforms.rows.normalise import KINDS


class NightlyOptions(PipelineOptions):
    """Options of `recrawl nightly`.

    Nothing is `required` for argparse: a required option of one `PipelineOptions` subclass would stop every
    other pipeline of the process. `validate` does the checking.
    """

    @classmethod
    def _add_argparse_args(cls, parser: argparse.ArgumentParser) -> None:
        add_arguments(parser)


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
                FileSystems.check(path)
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
        self.num_shards: int | None = check.number(
            "num_shards", 1, MOST_SHARDS, "shards", none=True, whole=True
        )
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
