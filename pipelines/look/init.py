"""`recrawl init FILES`: look at logs, and write a configuration for `recrawl night`."""

from __future__ import annotations

import argparse
import errno
import itertools
import json
import math
import os
import re
import shlex
import sys
import textwrap
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from pipelines.command import options_inputs
from pipelines.command.errors import OptionsError
from pipelines.look.inspect import looked_at
from pipelines.look.inspect_report import LEFT_OUT
from transforms.batches.errors import InputError
from transforms.batches.tally import counted
from transforms.batches.times import DAY_US
from transforms.batches.zones import said_of_local_times
from transforms.files.blocks import How
from transforms.intake.inspecting import Account

DESCRIPTION = """\
Read logs, lists and dumps to their end and write a commented configuration for `recrawl night --config`: the
inputs, with {date} where names of files have dates, and a budget of what the log shows was crawled a day.
"""
EXIT_HELP = "exit codes: 0 written; 1 written, but some files could not be read; 2 options wrong."
LOGS = ("observations", "requests", "signals", "sitemaps")
KINDS = (*LOGS, "pages", "hosts")
WIDTH = 110
FAILS_ABOVE = 0.01
_SHOWN = 3
"""Files that cannot be read are told one by one up to so many."""
_DATES = (
    (re.compile(r"(?<!\d)(19|20)\d\d-(0[1-9]|1[0-2])-(0[1-9]|[12]\d|3[01])(?!\d)"), "{date}", 3),
    (
        re.compile(r"(?<!\d)(19|20)\d\d/(0[1-9]|1[0-2])/(0[1-9]|[12]\d|3[01])(?!\d)"),
        "{year}/{month}/{day}",
        5,
    ),
    (re.compile(r"(?<!\d)(19|20)\d\d(0[1-9]|1[0-2])(0[1-9]|[12]\d|3[01])(?!\d)"), "{year}{month}{day}", 3),
)
"""How dates look, their placeholders, and in how many of a path's last names they are looked for."""
_PLACEHOLDER = re.compile(r"\{\w+\}")
_TIME = re.compile(
    r"(?<=\})([T_-]?)([01]\d|2[0-3])[-.:_]?[0-5]\d([-.:_]?[0-5]\d([.,]\d+)?)?(Z|[+-]\d\d[-.:_]?\d\d)?(?!\d)"
)
"""When a crawl began, behind its date: another one begins at another minute."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of the command."""
    parser.description = DESCRIPTION
    parser.epilog = EXIT_HELP
    parser.add_argument("files", nargs="+", metavar="FILES", help="files, folders or globs")
    parser.add_argument(
        "--output", default="recrawl.toml", help="file to write; none may be there (default: %(default)s)"
    )
    options_inputs.add_arguments(parser)


def run(parsed: argparse.Namespace) -> int:
    """Look and write; 1 where a file could not be read.

    Raises
    ------
    OptionsError
    InputError
        A name that no file has, or no file that could be read.
    """
    given = {name: getattr(parsed, name) for name in options_inputs.names()}
    problems: list[str] = []
    hows = options_inputs.hows(given, problems)
    if os.path.exists(parsed.output):
        problems.append(f"--output={parsed.output}: is there; remove it, or give another name")
    problems += [
        f"{folder}: a night of recrawl, and no log; give the logs of the crawler"
        for folder in parsed.files
        if os.path.isfile(os.path.join(folder, "manifest.json"))
    ]
    if problems:
        raise OptionsError(problems)
    paths: dict[str, list[str]] = {}
    found: dict[str, list[Account]] = {}
    unread: list[InputError] = []
    for file, kinds, held in looked_at(parsed.files, hows):
        if isinstance(held, InputError):
            unread.append(held)
            if len(unread) <= _SHOWN:
                print(f"recrawl: {held}", file=sys.stderr)
            continue
        paths.setdefault(kinds[0], []).append(
            os.path.abspath(file.path) if "://" not in file.path else file.path
        )
        found.setdefault(kinds[0], []).append(held)
    if len(unread) > _SHOWN:
        print(
            f"recrawl: and {counted(len(unread) - _SHOWN, 'more file')} that cannot be read", file=sys.stderr
        )
    if not found:
        raise InputError(f"{', '.join(parsed.files)}: nothing that a night reads; nothing is written")
    if not any(account.accepted for accounts in found.values() for account in accounts):
        why = sum((account.rejected for accounts in found.values() for account in accounts), Counter())
        said = ", ".join(f"{n:,} {reason}" for reason, n in why.most_common()) or "no rows at all"
        raise InputError(
            f"{', '.join(parsed.files)}: no row that a night can use: {said}. Nothing is written; `recrawl "
            "inspect` shows rows"
        )
    chosen = {n: v for n, v in given.items() if v and v != "auto"}
    text = config(paths, found, chosen, hows, unread, parsed.output)
    try:
        with open(parsed.output, "x", encoding="utf-8") as out:
            out.write(text)
    except OSError as error:
        if error.errno == errno.ENOSPC:
            Path(parsed.output).unlink(missing_ok=True)  # what there was room for
        raise OptionsError(
            [f"--output={parsed.output}: cannot be written: {error.strerror}; give a file that can"]
        ) from None
    print(f"{parsed.output} is written. Read it, then, for every night:")
    command = f"  recrawl night --config {shlex.quote(parsed.output)}"
    print(command)
    if span := _sum(found["observations"]).span() if "observations" in found else None:
        print("or, to try it on this log alone:")
        print(f"{command} --as_of {_after(span[1])}")
    for name in re.findall(r"^# (budget|requests_site) =", text, re.MULTILINE):
        print(f"Set {name} in {parsed.output}: a night needs it, and the files do not tell it")
    for kind, accounts in found.items():
        total = _sum(accounts)
        for said in _doubts(kind, total, hows.get(kind, How())):
            print(f"Look at {kind}: {said}")
    if (lost := _rejected_share({kind: _sum(accounts) for kind, accounts in found.items()})) > FAILS_ABOVE:
        print(
            f"Rejected: {lost:.1%} of all rows. A night fails with so many: mend them, or set "
            f"max_rejected_fraction in {parsed.output}"
        )
    return 1 if unread else 0


def config(
    paths: Mapping[str, Sequence[str]],
    found: Mapping[str, Sequence[Account]],
    given: Mapping[str, Any],
    hows: Mapping[str, How],
    unread: Sequence[InputError],
    output: str,
) -> str:
    """The text of the configuration.

    Parameters
    ----------
    paths, found : mapping of str to sequence
        By kind of input the files, and what they hold.
    given : mapping of str
        Options of the inputs, by name.
    hows : mapping of str to How
        By kind what they make of it.
    unread : sequence of InputError
    output : str
        Where it is written: the store is proposed beside it.
    """
    sums = {kind: _sum(accounts) for kind, accounts in found.items()}
    lines = [
        *_said("Options of `recrawl night`; its --help has them all. What stands on the command line wins."),
        "",
        *_said("The folder of all nights. A crawler reads current/schedule in it."),
        _set("store", os.path.join(os.path.dirname(os.path.abspath(output)), "recrawl-store")),
        "",
        *_budget(sums.get("observations")),
    ]  # fmt: skip
    for kind, total in ((kind, sums[kind]) for kind in KINDS if kind in sums):
        patterns = _patterns(kind, paths)
        lines += ["", *_said(_holds(kind, total, found[kind])), _set(kind, patterns)]
        lines += _odd(kind, total, hows.get(kind, How()), patterns)
        if total.no_site:
            lines += _site(sums["observations"].twins.sites() if "observations" in sums else [])
    if (lost := _rejected_share(sums)) > FAILS_ABOVE:
        most = "A night fails above one rejected row in a hundred; mend them, or allow as many:"
        lines += ["", *_said(most), f"# max_rejected_fraction = {math.ceil(100.0 * lost) / 100.0:g}"]
    lines += [""] if given else []
    lines += [_set(name, value) for name, value in given.items()]
    lines += [
        "",
        *_said("How much a host may take: of all hosts here; of single ones by a file, hosts = '...'."),
    ]
    lines += ["# host_max_per_day = 1000", "# host_min_gap_seconds = 5"]
    for error in unread:
        lines += ["", *_said(f"Not read: {error}")]
    return "\n".join(lines) + "\n"


def _sum(accounts: Sequence[Account]) -> Account:
    total = Account("", accounts[0].kind)
    for one in accounts:
        total.add(one)
        total.damaged += [f"{one.file}: {damage}" for damage in one.damaged]
    return total


def _budget(log: Account | None) -> Iterator[str]:
    spent = _spent(log) if log else None
    if spent is None:
        yield from _said(
            "Crawls a day over all pages (required): no crawl log here says what they were so far."
        )
        yield "# budget = 1000"
        return
    crawls, days, when = spent
    yield from _said(f"Crawls a day over all pages. The crawl log has {crawls:,} in {days:.1f} days{when}.")
    yield f"budget = {max(round(crawls / days), 1)}"


def _spent(log: Account) -> tuple[int, float, str] | None:
    """Crawls of a log, in how many days, and when these were.

    Up to the first row of its last day: a crawler that makes a round a day has made none more in that time
    than there are days.
    """
    span = log.span()
    if span is None:
        return None
    first, last = map(_moment, span)
    day, begin_us = log.last_day
    days = begin_us / DAY_US - first.timestamp() * 1e6 / DAY_US
    if days >= 1.0 and not log.strays()[0]:
        return log.accepted - log.by_day[day], days, " before its last one"
    return log.accepted, max((last - first) / timedelta(days=1), 1.0), ""


def _moment(text: str) -> datetime:
    return datetime.fromisoformat(text)


def _after(text: str) -> str:
    """The midnight after a moment, so that its day is over."""
    whole = (_moment(text) + timedelta(days=1)).replace(hour=0, minute=0, second=0, microsecond=0)
    return whole.isoformat().replace("+00:00", "Z")


def _holds(kind: str, total: Account, accounts: Sequence[Account]) -> str:
    forms = sorted({form for account in accounts for form in account.format.split(", ")})
    pages = f" of {counted(len(total.pages), 'page')}" if len(total.pages) else ""
    span = f", {total.first} to {total.last} (UTC)" if total.first else ""
    return (
        f"{counted(len(accounts), 'file')} of {', '.join(forms)}: {counted(total.accepted, 'row')}{pages} on "
        f"{counted(len(total.hosts), 'host')}{span}."
    )


def _zone(kind: str, total: Account, how: How) -> str:
    """What times are taken for that name no zone; empty where all name one, or it is given."""
    n = total.noted["local_times"]
    return said_of_local_times(kind, n, columns=dict(how.columns)) if n and not how.timezone else ""


def _doubts(kind: str, total: Account, how: How) -> list[str]:
    """What a person should look at before the first night."""
    n, first = counted(len(total.damaged), "damaged file"), "".join(total.damaged[:1]).partition(";")[0]
    damaged = f"{n}, read up to there: {first}" if first else ""
    doubts = damaged, total.said_of_strays(), total.twins.said(), _zone(kind, total, how)
    return [said for said in doubts if said]


def _odd(kind: str, total: Account, how: How, patterns: Sequence[str]) -> Iterator[str]:
    """What a person should look at, as comments."""
    for name, counts in (("rejected", total.rejected), ("left out", total.left_out)):
        if counts:
            reasons = ", ".join(f"{n:,} {LEFT_OUT.get(reason, reason)}" for reason, n in counts.most_common())
            yield from _said(f"Rows {name}: {reasons}. `recrawl inspect` shows some.")
    for said in _doubts(kind, total, how):
        yield from _said(f"{said}.")
    if _zone(kind, total, how):
        if total.noted["dates_hours_ahead"]:
            yield from _said("They seem local: fetches are hours before the Last-Modified of their pages.")
        if kind in options_inputs.KINDS_WITH_FORMATS:
            yield f'# {kind}_timezone = "Europe/Berlin"'
    if total.left_out["never_fetched"]:
        yield from _said(
            "Pages that were never fetched are scheduled, too, if the same files list all pages:"
        )
        yield f"# {_set('pages', patterns)}"
    if kind == "observations" and total.evidence["none"] > total.accepted / 2:
        yield from _said("Most rows cannot show a change: log a digest of each page, see docs/inputs.md.")


def _site(sites: Sequence[str]) -> Iterator[str]:
    """The site of requests that do not name theirs, by those of the crawl log."""
    if len(sites) == 1:
        yield from _said("The log has paths alone; this is the only site of the crawl log.")
        yield _set("requests_site", sites[0])
        return
    some = f": one of {', '.join(sites[:_SHOWN])}{', ...' * (len(sites) > _SHOWN)}" if sites else ""
    yield from _said(f"The log has paths alone. Say of which site (required){some}")
    yield f"# {_set('requests_site', 'https://HOST')}"


def _rejected_share(sums: Mapping[str, Account]) -> float:
    """Of the rows of all inputs together, as a night counts them: sitemaps are not of one's own making."""
    own = [total for kind, total in sums.items() if kind != "sitemaps"]
    lost = sum(total.rejected.total() for total in own)
    return lost / max(sum(total.accepted for total in own) + lost, 1)


def _patterns(kind: str, paths: Mapping[str, Sequence[str]]) -> list[str]:
    """Few patterns that match all files of a kind, and none of another that was looked at."""
    own = list(dict.fromkeys(_dated(path) if kind in LOGS else path for path in paths[kind]))
    others = [_dated(path) for other, files in paths.items() if other != kind for path in files]
    folders: dict[tuple[str, ...], list[str]] = {}
    for path in own:
        folder, name = os.path.split(path)
        folders.setdefault((folder, os.path.splitext(name)[1], *_PLACEHOLDER.findall(name)), []).append(path)
    merged = [one for among in folders.values() for one in _merged(among)]
    merged = _merged(merged)
    taken = [re.compile(re.escape(one).replace(r"\*", "[^/]*")) for one in merged]
    return own if any(one.fullmatch(other) for one in taken for other in others) else merged


def _dated(path: str) -> str:
    """A path with placeholders for the date that it has, and a `*` for the time behind it."""
    for pattern, placeholder, depth in _DATES:
        parts = path.rsplit("/", depth)
        head, tail = path[: len(path) - len("/".join(parts[1:]))], "/".join(parts[1:])
        if found := pattern.search(tail):
            return head + _TIME.sub(r"\1*", tail.replace(found[0], placeholder))
    return path


def _merged(paths: list[str]) -> list[str]:
    """One pattern with a `*`, where paths differ in one name alone."""
    names = [path.split("/") for path in paths]
    if len({len(parts) for parts in names}) != 1:
        return paths
    differ = [set(column) for column in zip(*names, strict=True)]
    if sum(len(column) > 1 for column in differ) > 1:
        return paths
    return ["/".join(min(column) if len(column) == 1 else _common(sorted(column)) for column in differ)]


def _common(names: Sequence[str]) -> str:
    begin = _prefix(names)
    end = _prefix([name[len(begin) :][::-1] for name in names])[::-1]
    # A number that goes on has other digits tomorrow.
    return f"{begin.rstrip('0123456789')}*{end.lstrip('0123456789')}"


def _prefix(names: Sequence[str]) -> str:
    """What all begin with: what the first and the last of them in order do."""
    pairs = itertools.takewhile(lambda pair: pair[0] == pair[1], zip(min(names), max(names), strict=False))
    return "".join(one for one, _ in pairs)


def _said(text: str) -> list[str]:
    return textwrap.wrap(text, WIDTH, initial_indent="# ", subsequent_indent="# ", break_on_hyphens=False)


def _set(name: str, value: Any) -> str:
    """A key and its value; JSON's texts and lists of them are TOML's, too."""
    if isinstance(value, list) and len(value) == 1:
        value = value[0]
    return f"{name} = {json.dumps(value, ensure_ascii=False)}"
