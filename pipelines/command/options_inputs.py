"""Options that say how the files of an input are to be read, for every command that reads logs."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from typing import Any

from transforms import dialects
from transforms.batches.zones import zone_of
from transforms.files.blocks import How
from transforms.rows.joining import given_names
from transforms.rows.normalise import REPLAYED

KINDS_WITH_FORMATS = ("observations", "requests")
# What files do not say of themselves. By name: the kinds of input, what it means.
DIALECT_OPTIONS: dict[str, tuple[str, str]] = {
    "repair_cdx00": (
        "observations",
        "in indexes of archives read times with a stray 00 before the month or the day, and seconds cut off, "
        "as what they were (default: such rows are rejected)",
    ),
    "nutch_sync_delta_rate": (
        "observations",
        "share of a page's age by which Nutch' adaptive schedule brings fetches forward (its "
        "sync_delta_rate, 0.3); leave it out for others",
    ),
    "observations_timezone": (
        "observations",
        "time zone of times that name none, such as Europe/Berlin, in formats that do not say they are of "
        "UTC, and of the abbreviations in dumps of Nutch (default: UTC)",
    ),
    "requests_timezone": (
        "requests",
        "the same for requests that have a time (at); a day is taken as it is (default: UTC)",
    ),
    "requests_site": (
        "requests",
        "site of web server logs whose lines do not name it, such as https://shop.test",
    ),
    "requests_day": (
        "requests",
        "day (YYYY-MM-DD) on which the clicks of Search Console exports count that have no dates",
    ),
    "tracking_parameters": (
        "requests",
        "parameters of your own in URLs of requests that are no part of a page, comma-separated, such as "
        "ref,src or my_*: added to those that docs/formats.md lists",
    ),
    "own_user_agent": (
        "requests,hosts",
        "parts of the user agents of your own crawlers, comma-separated: their requests are no clicks, and "
        "robots.txt files given as --hosts are read as for them",
    ),
}

OLD_NAMES = {"observations_timezone": ("nutch_timezone",)}
FLAGS = ("repair_cdx00",)
"""Of `DIALECT_OPTIONS` those that take no value."""


def add_arguments(parser: Any) -> None:
    """Declare them, in an argparse parser or group."""
    for kind in KINDS_WITH_FORMATS:
        parser.add_argument(
            f"--{kind}_format",
            default=dialects.AUTO,
            help=f"format of the files of --{kind}: canonical, one that docs/formats.md names, or auto: told "
            "by what each file begins with (default: %(default)s)",
        )
        parser.add_argument(
            f"--{kind}_columns",
            help="names that your files have for recrawl's columns, comma-separated, such as "
            + ("fetched_at=crawl_time,digest=sha1" if kind == "observations" else "day=date,clicks=visits"),
        )
    for name, (_, help_text) in DIALECT_OPTIONS.items():
        action = "store_true" if name in FLAGS else "store"
        spellings = (f"--{one}" for one in (name, *OLD_NAMES.get(name, ())))
        parser.add_argument(*spellings, action=action, help=help_text)


def names() -> list[str]:
    """All of them, without dashes."""
    return [f"{k}_{what}" for k in KINDS_WITH_FORMATS for what in ("format", "columns")] + [*DIALECT_OPTIONS]


def hows(values: Mapping[str, Any], problems: list[str]) -> dict[str, How]:
    """By kind how its files are read; `problems` gets what is wrong with the options.

    Parameters
    ----------
    values : mapping of str to str or None
        Of `add_arguments`, by name.
    problems : list of str
    """
    found = {"hosts": How(options=_options("hosts", values))}
    try:
        given_names(values["tracking_parameters"] or "")
    except ValueError as error:
        problems.append(
            f"--tracking_parameters={error}: expected names of parameters alone, comma-separated, such as "
            "ref,src or my_*"
        )
    for kind in KINDS_WITH_FORMATS:
        try:
            zone_of(values[f"{kind}_timezone"] or "UTC")
        except ValueError as error:
            problems.append(f"--{kind}_timezone={error}: no such zone; give one like Europe/Berlin")
        form = values[f"{kind}_format"] or dialects.AUTO
        if form not in dialects.names(kind):
            problems.append(f"--{kind}_format={form}: expected one of {', '.join(dialects.names(kind))}")
        columns = named_columns(kind, values[f"{kind}_columns"] or "", problems)
        if columns and form not in (dialects.AUTO, dialects.CANONICAL):
            problems.append(
                f"--{kind}_columns: {form} has its own names; leave it out, or --{kind}_format={form}"
            )
        found[kind] = How(dialects.CANONICAL if columns else form, columns, _options(kind, values))
    return found


def _options(kind: str, values: Mapping[str, Any]) -> tuple[tuple[str, str], ...]:
    return tuple(
        (name, str(values[name]))
        for name, (kinds, _) in DIALECT_OPTIONS.items()
        if kind in kinds.split(",") and values[name]
    )


def named_columns(
    kind: str, text: str, problems: list[str], option: str | None = None
) -> tuple[tuple[str, str], ...]:
    """Pairs of our columns and the names that files have for them, from `OURS=YOURS,...` of an option."""
    option = f"--{option or kind}_columns"
    known = REPLAYED[kind].known
    named: dict[str, str] = {}
    for pair in (p.strip() for p in text.split(",") if p.strip()):
        ours, _, theirs = (part.strip() for part in pair.partition("="))
        if ours not in known or not theirs:
            expected = "OURS=YOURS with OURS one of " + ", ".join(known)
            problems.append(f"{option}={pair}: expected {expected}")
        elif ours in named:
            problems.append(f"{option}: {ours} is named twice: {named[ours]} and {theirs}")
        else:
            named[ours] = theirs
    if len(set(named.values())) < len(named):
        problems.append(f"{option}={text}: two columns have one name")
    return tuple(sorted(named.items()))


def parser() -> argparse.ArgumentParser:
    """A parser of these options alone."""
    made = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    add_arguments(made)
    return made
