"""Options of `recrawl night`: its own, those of the nightly job and those of the discovery job."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from pipelines.command.instants import DAY_MICROSECONDS, format_instant, parse_instant
from pipelines.discovery import arguments as discovery
from pipelines.nightly import arguments as nightly
from pipelines.store import clock
from pipelines.store.partitions import LOGS, check_placeholders
from pipelines.store.store import Store, name_problems
from transforms.files.filesystems import FileSystems

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
EXIT_HELP = (
    "exit codes: 0 committed, or nothing to do; 1 failed; 2 options or configuration wrong; 3 nothing to "
    "read, or committed with an empty schedule; 4 too many rows rejected; 5 history shrunk; 6 another night "
    "is running on this store; 7 the schedule in force has run out, of --status. After 1, 2, 4, 5 and 6 the "
    "schedule of the night before stays in force."
)
# A scheduler's clock may be ahead of this machine's by so much.
CLOCK_ERROR_US = 300_000_000
# Whole nights make a day, so that logs by day belong to as many.
_EVERY = ("1", "2", "3", "4", "6", "8", "12", "24")


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
    parser.epilog = EXIT_HELP
    _add_own(parser.add_argument_group("store"))
    _add_discovery(parser.add_argument_group("discovery"))
    nightly.add_arguments(_Passing(parser, lambda name: name not in OWNED))  # type: ignore[arg-type]


def _add_discovery(group: Any) -> None:
    group.add_argument(
        "--discover_share",
        help="part of --budget that fetches sources again for links to new pages, 0 to 0.9, or auto: by one "
        "price for both (default: 0, no discovery)",
    )
    discovery.add_options(_Passing(group, lambda name: name in FOR_DISCOVERY))  # type: ignore[arg-type]


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


@dataclass(frozen=True)
class Asked:
    """Checked options of the wrapper.

    Attributes
    ----------
    store : Store
    as_of_us : int
    every_us : int
        From one night to the next.
    keep : int
    late_days : int
    logs : dict of str to str
        Patterns of the logs that are given.
    horizon_hours : str
    names_night : bool
        Whether `--as_of` is given.
    """

    store: Store
    as_of_us: int
    every_us: int
    keep: int
    late_days: int
    logs: dict[str, str]
    horizon_hours: str
    names_night: bool


def asked(values: argparse.Namespace, problems: list[str]) -> Asked:
    """What `split` has found, checked; `problems` gets what is wrong with it."""
    problems += [
        f"--{name} is not an option of night: {why}" for name, why in OWNED.items() if getattr(values, name)
    ]
    if not values.store:
        problems.append("--store is missing: give the folder of all nights, e.g. --store=/var/lib/recrawl")
    else:
        problems += name_problems(values.store)
        try:
            FileSystems.check(values.store)
        except ValueError as e:
            problems.append(f"--store={values.store}: {e}")
    keep, late_days = (
        _count(name, getattr(values, name), low, problems) for name, low in (("keep", 1), ("late_days", 0))
    )
    clock_us = clock.now_us()
    hours = values.every.removesuffix("h")
    if hours not in _EVERY:
        problems.append(f"--every={values.every}: expected one of {', '.join(f'{h}h' for h in _EVERY)}")
        hours = "24"
    every_us = int(hours) * DAY_MICROSECONDS // 24
    as_of_us = clock_us - clock_us % every_us
    if values.as_of:
        try:
            as_of_us = parse_instant(values.as_of)
            if as_of_us % 1_000_000:
                problems.append(f"--as_of={values.as_of}: a night of the store is of a whole second")
            if as_of_us > clock_us + CLOCK_ERROR_US:
                problems.append(
                    f"--as_of={values.as_of} is later than now, {format_instant(clock_us)}: its logs are not "
                    "there yet, and once it is committed no night before it can be run"
                )
        except ValueError:
            pass  # `Settings` complains
    logs = {kind: getattr(values, kind) for kind in LOGS if getattr(values, kind)}
    for kind, patterns in logs.items():
        problems += check_placeholders(kind, patterns)
    store, hours = Store(values.store or ".", clock.now), values.horizon_hours or hours
    return Asked(store, as_of_us, every_us, keep, late_days, logs, hours, bool(values.as_of))


def _count(name: str, text: str, low: int, problems: list[str]) -> int:
    if not (text.isdecimal() and low <= int(text) <= 100_000):
        problems.append(f"--{name}={text}: expected a whole number from {low} to 100000")
        return low
    return int(text)
