"""The discovery job as a part of a night: it runs first, in the night's folder, with its part of the budget.

What it finds and plans the nightly job then takes as `--discovery`.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from apache_beam.options.pipeline_options import PipelineOptions

from pipelines.command.instants import DAY_MICROSECONDS
from pipelines.discovery import discover
from pipelines.discovery.arguments import add_arguments
from pipelines.nightly.arguments import AUTO, MOST_SHARE
from pipelines.nightly.options import NightlyOptions, Settings
from pipelines.store.night_options import FOR_DISCOVERY
from pipelines.store.store import Night
from policies.discovery.names import UNPRICED
from policies.discovery.pricing import Recrawling
from transforms.files.filesystems import FileSystems
from transforms.files.replacing import MANIFEST

FOLDER = "discovery"
FIRST_SHARE = 0.1
"""Of `auto`, where no night has told prices yet."""
HOST_SHARE = 0.5
"""Of the slots of a limited host that refreshes may take: what they find is there to be crawled."""
_SHARED = (
    "hosts", "host_max_per_day", "host_min_gap_seconds", "host_groups", "tracking_parameters",
    "max_rejected_fraction", "rows_per_batch", "num_shards",
)  # fmt: skip


@dataclass(frozen=True)
class Finding:
    """Checked options of the discovery job of a night.

    Attributes
    ----------
    share : float or None
        Of the budget; None where one price decides.
    words : tuple of str
        Options of the job.
    """

    share: float | None
    words: tuple[str, ...]

    @classmethod
    def of(cls, values: argparse.Namespace, problems: list[str]) -> Finding | None:
        """What `night_options.split` has found; None without discovery."""
        given = [name for name in FOR_DISCOVERY if getattr(values, name)]
        text = values.discover_share
        if text is None:
            if values.links or values.sources:
                problems.append(
                    "--links and --sources need --discover_share: the part of --budget for sources"
                )
            return None
        share = None
        if text == AUTO and values.policy in UNPRICED:
            problems.append(f"--policy={values.policy} has no price: give --discover_share a part, not auto")
        if text != AUTO:
            try:
                share = float(text)
            except ValueError:
                share = -1.0
            if not 0.0 <= share <= MOST_SHARE:
                problems.append(f"--discover_share={text}: expected auto, or a part from 0 to {MOST_SHARE:g}")
        if not (values.links or values.sources):
            problems.append("--discover_share needs --links: what sources showed, see docs/discovery_job.md")
        return cls(share, tuple(_word(name, getattr(values, name)) for name in given if name != "links"))

    def run(self, arguments: Sequence[str], links: str | None, nights: Sequence[Night]) -> str | None:
        """Run the job for the night with these arguments of the nightly job.

        Parameters
        ----------
        arguments : sequence of str
            With `--output` and `--state`.
        links : str or None
            Files to read.
        nights : sequence of Night
            Committed ones.

        Returns
        -------
        str or None
            Its folder; None where nothing is known of any source yet.

        Raises
        ------
        OptionsError, InputError, policies.numerics.errors.RecrawlError, submitting.RunnerError
        """
        before = next((f for night in reversed(nights) if _is_there(f := _folder(night.folder))), None)
        if not (links or before or any(word.startswith("--sources=") for word in self.words)):
            return None
        settings, beam = self.settings(arguments, links, before, nights[-1].manifest() if nights else {})
        discover.run_job(settings, beam)
        return settings.output

    def settings(
        self, arguments: Sequence[str], links: str | None, before: str | None, last: dict[str, Any]
    ) -> tuple[discover.Settings, list[str]]:
        """Of the job, and options of Beam.

        Raises
        ------
        OptionsError
        """
        night = Settings(PipelineOptions(list(arguments)))
        night.follow(last)
        parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
        NightlyOptions._add_argparse_args(parser)
        shared, beam = parser.parse_known_args(list(arguments))
        budget, recrawling, why = self._budget(night, last)
        words = [
            *self.words,
            *(_word(n, v) for n in _SHARED if (v := getattr(shared, n)) not in (None, False)),
        ]
        if before:  # the state has its number of shards
            words = [word for word in words if not word.startswith("--num_shards=")]
        words += [_word(name, value) for name, value in (("links", links), ("state", before)) if value]
        words += [
            f"--budget={budget!r}",
            f"--as_of={shared.as_of}",
            f"--horizon_hours={shared.horizon_hours}",
        ]
        own = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
        add_arguments(own)
        made = discover.Settings.of(
            own.parse_args([*words, f"--output={_folder(night.output)}", "--overwrite"])
        )
        inputs = tuple(replace(i, how=night.how["hosts"]) if i.kind == "hosts" else i for i in made.inputs)
        host_share = max(self.share or 0.0, HOST_SHARE)
        return replace(made, inputs=inputs, recrawling=recrawling, why=why, host_share=host_share), beam

    def _budget(self, night: Settings, last: dict[str, Any]) -> tuple[float, Recrawling | None, str]:
        """Refreshes a day, or crawls of both kinds where one price decides; what decides; and why."""
        budget = night.request_share.planned_per_day
        if self.share is not None:
            less = f", less {left:.0%} for crawls at requests" if (left := night.request_share.share) else ""
            why = f"--discover_share={self.share:g} of --budget={night.budget_per_day:g}{less}"
            return self.share * budget, None, why
        multiplier, worth = last.get("multiplier"), last.get("new_page_worth")
        if not multiplier or not worth:
            why = f"auto: no night before tells what crawls and new pages are worth, so {FIRST_SHARE:.0%}"
            return FIRST_SHARE * budget, None, why
        counters, hours = last["counters"], last["options"]["horizon_hours"]
        crawls = counters.get("slots_used", 0) - counters.get("slots_discover", 0)
        span = crawls / hours * night.horizon_us / DAY_MICROSECONDS * 24.0
        why = (
            f"auto: at one price for both. Last night the last of {crawls:,} crawls of pages was worth "
            f"{multiplier:.4g}, and the first crawl of a new page {worth:.4g}: a refresh is worth it that "
            f"finds {multiplier / worth:.4g} links more, times what the price has risen by since"
        )
        return budget, Recrawling(span, multiplier, worth), why


def _word(name: str, value: Any) -> str:
    return f"--{name}" if value is True else f"--{name}={value}"


def _folder(night: str) -> str:
    return FileSystems.join(night, FOLDER)


def _is_there(folder: str) -> bool:
    return bool(FileSystems.exists(FileSystems.join(folder, MANIFEST)))
