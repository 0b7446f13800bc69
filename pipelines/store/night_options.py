"""Options of `recrawl night`: its own, those of the nightly job and those of the discovery job."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from typing import Any

from pipelines.discovery import discover
from pipelines.nightly.options import NightlyOptions
from pipelines.store.partitions import LOGS

OWNED = {
    "output": "the store has a folder for every night",
    "state": "the state is that of the last committed night of the store",
    "discovery": "give --discover_share and --links, and the job runs first",
}
FOR_DISCOVERY = (
    "links", "links_format", "links_columns", "sources", "sources_columns", "off_site", "least_hours",
    "capacity", "policy", "forget_days",
)  # fmt: skip
"""Options of `recrawl discover` that the nightly job has not."""
DEFAULT_KEEP, DEFAULT_LATE_DAYS = 14, 2


class _Passing:
    """A parser that takes some of the options of a job."""

    def __init__(self, parser: Any, takes: Callable[[str], bool]) -> None:
        self._parser, self._takes = parser, takes

    def add_argument(self, *names: str, **settings: Any) -> None:
        if not self._takes(names[0].removeprefix("--")):
            return
        if names[0] == "--as_of":
            settings["help"] = "the night's instant (default: the last one of --every, UTC)"
        if names[0] == "--horizon_hours":
            settings |= {"default": None, "help": "hours that the schedule covers (default: --every)"}
        self._parser.add_argument(*names, **settings)

    def add_argument_group(self, *names: str, **settings: Any) -> _Passing:
        if isinstance(self._parser, argparse._ArgumentGroup):  # of another command that is one here
            return self
        return _Passing(self._parser.add_argument_group(*names, **settings), self._takes)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of `recrawl night`."""
    _add_own(parser.add_argument_group("store"))
    _add_discovery(parser.add_argument_group("discovery"))
    NightlyOptions._add_argparse_args(_Passing(parser, lambda name: name not in OWNED))  # type: ignore[arg-type]


def _add_discovery(group: Any) -> None:
    group.add_argument(
        "--discover_share",
        help="part of --budget that fetches sources again for links to new pages, 0 to 0.9, or auto: by one "
        "price for both (default: 0, no discovery)",
    )
    discover.add_options(_Passing(group, lambda name: name in FOR_DISCOVERY))  # type: ignore[arg-type]


def _add_own(group: Any) -> None:
    group.add_argument("--store", help="folder of all nights (required)")
    group.add_argument(
        "--keep",
        default=str(DEFAULT_KEEP),
        help="committed nights that are kept, the newest ones (default: %(default)s)",
    )
    group.add_argument(
        "--late_days",
        default=str(DEFAULT_LATE_DAYS),
        help="days before the last night whose {date} partitions are looked at once more for new files "
        "(default: %(default)s)",
    )
    group.add_argument(
        "--every",
        default="24h",
        help="how often a night is run, counted from midnight UTC: 1h, 2h, 3h, 4h, 6h, 8h, 12h or 24h "
        "(default: %(default)s)",
    )
    group.add_argument("--status", action="store_true", help="print the nights of the store and do nothing")


def split(argv: Sequence[str]) -> tuple[argparse.Namespace, list[str]]:
    """What the wrapper takes of a command line, and the rest."""
    own = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    _add_own(own)
    _add_discovery(own)
    for name in ("as_of", "horizon_hours", *LOGS, *OWNED):
        if name not in FOR_DISCOVERY:
            own.add_argument(f"--{name}")
    return own.parse_known_args(list(argv))
