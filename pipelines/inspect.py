"""`recrawl inspect FILES`: what logs and dumps hold, before a night reads them."""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from pipelines import options_inputs
from pipelines.options import OptionsError
from transforms.formats import How
from transforms.inputs import InputError, match_files
from transforms.inspecting import MAX_SAMPLES, Account, Distinct, account, ends, kinds_of
from transforms.normalise import KINDS
from transforms.sources import ROBOTS

DESCRIPTION = """\
Read files to their end and say what they hold: format, rows, time span, pages, hosts, evidence of changes,
and what would be rejected and why. Nothing is written. Memory does not grow with the files.
"""
EXIT_HELP = "exit codes: 0 all could be read; 1 some could not, or not to the end; 2 options wrong."
_LEFT_OUT = {
    "bot": "requests of bots",
    "method": "requests that are no GET",
    "never_fetched": "pages never fetched",
    "no_delay": "files without a crawl delay",
    "no_fetch_time": "documents without the time of a fetch",
    "no_request": "lines without a request",
    "no_user_agent": "requests without a user agent",
    "not_a_page": "records of no page",
    "not_get": "answers to other methods than GET",
    "not_http": "fetches by other protocols",
    "own_crawler": "requests of your own crawler",
    "prerequisite": "fetches of robots.txt or DNS",
    "rest_of_metadata": "lines that go on with metadata",
    "resume_key": "resume keys",
    "robots_or_icon": "requests for robots.txt or an icon",
    "robots_txt": "captures of robots.txt",
    "status": "requests answered by neither 2xx nor 304",
}
_SPELLED = {
    "digest": "with a digest",
    "not_modified": "told that nothing has changed",
    "changed": "that say whether the page has changed",
    "last_modified": "with Last-Modified",
    "status": "with 304, 404 or 410",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of the command."""
    parser.description = DESCRIPTION
    parser.epilog = EXIT_HELP
    parser.add_argument("files", nargs="+", metavar="FILES", help="files, folders or globs")
    parser.add_argument(
        "--kind",
        choices=tuple(KINDS),
        help="read them as this input (default: told by what they hold)",
    )
    parser.add_argument("--json", action="store_true", help="one JSON object a file, a line each")
    options_inputs.add_arguments(parser)


def run(parsed: argparse.Namespace) -> int:
    """Inspect and print; 1 where a file could not be read to its end.

    Raises
    ------
    OptionsError
    """
    problems: list[str] = []
    hows = options_inputs.hows(vars(parsed), problems)
    if problems:
        raise OptionsError(problems)
    option = "sitemaps" if parsed.kind == "sitemaps" else parsed.kind or "files"
    failed, robots = 0, _Robots(parsed.own_user_agent or "")
    for file in match_files(",".join(parsed.files), option, named=False):
        try:
            kinds = [parsed.kind] if parsed.kind else kinds_of(file, hows)
            if not kinds:
                raise InputError(
                    f"{file.path}: nothing that a night reads. Say what it is with --kind, or name its "
                    "columns with --observations_columns or --requests_columns"
                )
            found = account(file, kinds[0], hows.get(kinds[0], How()))
        except InputError as error:
            failed += 1
            if parsed.json:
                nothing = {"format": None, "rows": 0, "accepted": 0, "rejected": {}, "error": str(error)}
                print(json.dumps({"file": file.path} | nothing, ensure_ascii=False))
            print(f"recrawl: {error}", file=sys.stderr)
            continue
        failed += bool(found.damaged)
        if parsed.json or found.format != ROBOTS:
            print(_as_json(found) if parsed.json else _as_text(found, kinds[1:]), flush=True)
        else:
            robots.add(found)
    if robots.files:
        print(robots.as_text())
    return 1 if failed else 0


@dataclass
class _Robots:
    """All robots.txt files of a call: each has a line or two that matter, and there may be thousands."""

    agents: str
    files: int = 0
    first: str = ""
    last: str = ""
    hosts: Distinct = field(default_factory=Distinct)
    gaps: list[tuple[float, str]] = field(default_factory=list)
    left_out: Counter[str] = field(default_factory=Counter)
    rejected: Counter[str] = field(default_factory=Counter)
    samples: list[str] = field(default_factory=list)
    damaged: list[str] = field(default_factory=list)

    def add(self, found: Account) -> None:
        """Take a file."""
        self.files += 1
        self.first, self.last = self.first or found.file, found.file
        self.hosts.merge(found.hosts)
        self.gaps = ends(self.gaps + found.gaps)
        self.left_out += found.left_out
        for row, reason, sample in found.samples:
            if self.rejected[reason] < MAX_SAMPLES:
                self.samples.append(f"{found.file}: row {row}: {reason}: {sample}")
        self.rejected += found.rejected
        self.damaged += [f"{found.file}: {damage}" for damage in found.damaged]

    def as_text(self) -> str:
        """One block for all."""
        lines = [self.first if self.files == 1 else f"{self.first} to {self.last}"]

        def say(name: str, what: str) -> None:
            lines.append(f"  {name:<10} {what}")

        own = ", ".join(agent.strip() for agent in self.agents.split(",") if agent.strip())
        rules = f"groups of {own}, of * where a file has none" if own else "groups of *"
        say("read as", f"hosts, {ROBOTS}: {_number(self.files, 'file')}, {rules}")
        if not own:
            say("", "(--own_user_agent reads those of your own crawler)")
        if self.gaps:
            (least, _), (most, slowest) = self.gaps
            span = f"{most:g} s" if least == most else f"{least:g} to {most:g} s, the longest of {slowest}"
            say("delays", f"{_number(len(self.hosts), 'host')}: {span}")
        for name, counts in (("left out", self.left_out), ("rejected", self.rejected)):
            if counts:
                say(name, _counts(counts, _LEFT_OUT if name == "left out" else {}))
        for sample in self.samples:
            say("", sample)
        for damage in self.damaged[:MAX_SAMPLES]:
            say("damaged", damage)
        if len(self.damaged) > MAX_SAMPLES:
            say("damaged", f"and {len(self.damaged) - MAX_SAMPLES:,} more")
        return "\n".join(lines)


def _as_json(found: Account) -> str:
    said: dict[str, Any] = {
        "file": found.file,
        "kind": found.kind,
        "format": found.format,
        "rows": found.rows,
        "accepted": found.accepted,
        # What is left out is no fault of the file; both are told by reason.
        "rejected": dict(sorted((found.rejected + found.left_out).items())),
        "left_out": sorted(found.left_out),
        "damaged": found.damaged,
        "no_site": found.no_site,
        "first": found.first,
        "last": found.last,
        "pages": len(found.pages),
        "hosts": len(found.hosts),
        "evidence": dict(sorted((+found.evidence).items())),
    }
    return json.dumps(said, ensure_ascii=False, allow_nan=False)


def _as_text(found: Account, others: list[str]) -> str:
    lines = [found.file]

    def say(name: str, what: str) -> None:
        lines.append(f"  {name:<10} {what}")

    also = f" (or as {' or '.join(others)}: --kind)" if others else ""
    say("read as", f"{found.kind}, {found.format}{also}")
    say("rows", f"{found.rows:,}, {found.accepted:,} accepted")
    if found.accepted:
        pages = f"{_number(len(found.pages), 'page')} on " if len(found.pages) else ""
        say(
            "of",
            f"{pages}{_number(len(found.hosts), 'host')}"
            + (f", {found.first} to {found.last}" if found.first else ""),
        )
    if found.kind == "observations" and found.accepted:
        say("evidence", _evidence(found))
    if found.no_site:
        say("site", "not told: it has paths only. Give --requests_site https://HOST")
    for name, counts in (("left out", found.left_out), ("rejected", found.rejected)):
        if counts:
            say(name, _counts(counts, _LEFT_OUT if name == "left out" else {}))
    for row, reason, sample in found.samples:
        say("", f"row {row}: {reason}: {sample}")
    for damage in found.damaged:
        say("damaged", damage)
    return "\n".join(lines)


def _number(n: int, what: str) -> str:
    return f"{n:,} {what}{'' if n == 1 else 's'}"


def _counts(counts: Counter[str], spelled: Mapping[str, str]) -> str:
    order = sorted(counts.items(), key=lambda c: (-c[1], c[0]))
    return ", ".join(f"{n:,} {spelled.get(reason, reason)}" for reason, n in order)


def _evidence(found: Account) -> str:
    some = [f"{found.evidence[n]:,} {what}" for n, what in _SPELLED.items() if found.evidence[n]]
    none = found.evidence["none"]
    if none:
        some.append(f"{none:,} without any: they cannot show a change")
    return "; ".join(some)
