"""What `recrawl inspect` says to people: a block for each format, of one file or of thousands."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from transforms.batches.tally import counted
from transforms.batches.times import READ_AS
from transforms.batches.zones import said_of_local_times
from transforms.files.blocks import How
from transforms.finished.nights import Night
from transforms.intake.inspecting import MAX_SAMPLES, Account
from transforms.intake.sources import ROBOTS
from transforms.rows.normalise import KINDS

LEFT_OUT = {
    "bot": "requests of bots",
    "method": "requests that are no GET",
    "never_fetched": "pages never fetched",
    "no_delay": "files without a crawl delay",
    "no_fetch_time": "documents without the time of a fetch",
    "no_request": "lines without a request",
    "no_user_agent": "requests without a user agent",
    "not_a_page": "records of no page",
    "not_an_answer": "records of no answer",
    "not_get": "answers to other methods than GET",
    "not_http": "fetches by other protocols",
    "not_modified": "fetches that found a page not modified",
    "not_parsed": "fetches whose links are not in the dump",
    "own_crawler": "requests of your own crawler",
    "prerequisite": "fetches of robots.txt or DNS",
    "page_not_in_log": "links on pages that the log has no fetch of",
    "rest_of_metadata": "lines that go on with metadata",
    "resume_key": "resume keys",
    "robots_or_icon": "requests for robots.txt or an icon",
    "robots_txt": "captures of robots.txt",
    "status": "requests answered by neither 2xx nor 304",
}
NOTED = {
    "dates_hours_ahead": "fetches hours before the Last-Modified of their page",
    "fragments": "URLs with a fragment (#...), each a page of its own",
    "nul_bytes": "files with NUL bytes in front of lines",
    "repeated_header": "rows that repeat the header",
    "repeated_times": "times of an hour that clocks show twice",
    "skipped_times": "times of an hour that clocks skip",
}
_READ = ", ".join(KINDS["pages"].optional)
_OF_A_LOG = re.compile(
    r"date|time|fetch|crawl|_at$|hash|digest|signature|etag|checksum|status", re.IGNORECASE
)
"""Names of columns that logs have, and lists of pages hardly."""
_SPELLED = {
    "digest": "with a digest",
    "not_modified": "told that nothing has changed",
    "changed": "that say whether the page has changed",
    "last_modified": "with Last-Modified",
    "status": "with 304, 404 or 410",
}


class Group:
    """Files of one format, added up.

    Parameters
    ----------
    found : Account
        The first file.
    others : sequence of str
        Kinds of input that such a file may be read as, too.
    agents : str
        Of `--own_user_agent`.
    how : How
        How they were read.
    """

    def __init__(self, found: Account, others: Sequence[str], agents: str, how: How) -> None:
        self._sum, self._how = found, how
        self._others, self._agents = others, agents
        self._last, self._files = found.file, 1
        self._samples = [(found.file, *sample) for sample in found.samples]
        self._damaged = [(found.file, damage) for damage in found.damaged]

    @property
    def of_robots(self) -> bool:
        """Whether they are robots.txt files, which each have a line or two that matter."""
        return self._sum.format == ROBOTS

    def add(self, found: Account) -> None:
        """Take one more file."""
        self._last, self._files = found.file, self._files + 1
        for row, reason, sample in found.samples:
            if sum(why == reason for _, _, why, _ in self._samples) < MAX_SAMPLES:
                self._samples.append((found.file, row, reason, sample))
        self._damaged += [(found.file, damage) for damage in found.damaged]
        self._sum.add(found)

    def as_text(self) -> str:
        """Its block of lines."""
        found, one = self._sum, self._files == 1
        lines = [found.file if one else f"{found.file} to {self._last}"]

        def say(name: str, what: str) -> None:
            lines.append(f"  {name:<10} {what}")

        also = f" (or as {' or '.join(self._others)}: --kind)" if self._others else ""
        files = "" if one else f": {counted(self._files, 'file')}"
        if self.of_robots:
            self._say_rules(say)
        else:
            say("read as", f"{found.kind}, {found.format}{files}{also}")
            self._say_rows(say)
        if found.no_site:
            say("site", "not told: it has paths only. Give --requests_site https://HOST")
        for name, counts in (("left out", found.left_out), ("rejected", found.rejected)):
            if counts:
                say(name, _counts(counts, LEFT_OUT if name == "left out" else {}))
        if noted := Counter({reason: n for reason, n in found.noted.items() if reason in NOTED}):
            say("noted", _counts(noted, NOTED))
        if found.left_out["never_fetched"]:
            say("", "(given to --pages as well, the same files make pages of those that were never fetched)")
        if log := sorted(name for name in found.metadata if _OF_A_LOG.search(name)):
            given = "--kind observations --observations_columns fetched_at=YOURS,digest=YOURS"
            say("columns", f"{', '.join(log)}: if this is a log, say which of them are ours: {given}")
        elif found.metadata:
            say(
                "columns", f"{', '.join(found.metadata)}: kept with their pages; a night itself reads {_READ}"
            )
        if twins := found.twins.said():
            say("twins", twins)
        if strays := found.said_of_strays():
            say("strays", strays)
        if n := found.noted["local_times"]:
            say("zone", said_of_local_times(found.kind, n, self._how.timezone, dict(self._how.columns)))
        for file, row, reason, sample in self._samples:
            # What hides or turns text around would do so here, too.
            shown = "".join(c if c.isprintable() else ascii(c)[1:-1] for c in sample)
            say("", f"{'' if one else f'{file}: '}row {row}: {reason}: {shown}")
        if any(found.rejected[f"bad_{name}"] for name in ("clicks", "impressions", "importance", "rate")):
            say(
                "", "a number such as 1,500 may be 1500 or 1.5: write it so, without a mark between thousands"
            )
        if found.rejected["bad_status"]:
            say(
                "",
                "statuses are numbers, such as 200, or words of StormCrawler or Nutch",
            )
        if found.rejected["bad_utf8"]:
            say("", "texts are read as UTF-8; of a table of Windows: iconv -f WINDOWS-1252 -t UTF-8 FILE")
        if found.rejected["bad_timestamp"]:
            say("", f"times are read as {READ_AS}")
        for file, damage in self._damaged[:MAX_SAMPLES]:
            say("damaged", damage if one else f"{file}: {damage}")
        if len(self._damaged) > MAX_SAMPLES:
            say("damaged", f"and {len(self._damaged) - MAX_SAMPLES:,} more")
        return "\n".join(lines)

    def _say_rows(self, say: Callable[[str, str], None]) -> None:
        found = self._sum
        say("rows", f"{found.rows:,}, {found.accepted:,} accepted")
        if found.accepted:
            pages = f"{counted(len(found.pages), 'page')} on " if len(found.pages) else ""
            span = f", {found.first} to {found.last}" if found.first else ""
            say("of", f"{pages}{counted(len(found.hosts), 'host')}{span}")
        if found.kind == "observations" and found.accepted:
            say("evidence", _evidence(found))

    def _say_rules(self, say: Callable[[str, str], None]) -> None:
        own = ", ".join(agent.strip() for agent in self._agents.split(",") if agent.strip())
        rules = f"groups of {own}, of * where a file has none" if own else "groups of *"
        say("read as", f"hosts, {ROBOTS}: {counted(self._files, 'file')}, {rules}")
        if not own:
            say("", "(--own_user_agent reads those of your own crawler)")
        if self._sum.gaps:
            (least, _), (most, slowest) = self._sum.gaps
            span = f"{most:g} s" if least == most else f"{least:g} to {most:g} s, the longest of {slowest}"
            say("delays", f"{counted(len(self._sum.hosts), 'host')}: {span}")


def night_as_text(night: Night) -> str:
    """What a folder of a finished night is, and who reads it."""
    found = _of_night(night)
    return "\n".join(
        [
            night.folder,
            f"  {'read as':<10} no input: what the night of {found['as_of']} has left",
            f"  {'holds':<10} {counted(found['pages'], 'page')} on {counted(found['hosts'], 'host')}, "
            f"{counted(found['slots'], 'slot')}, status {found['status']}",
            f"  {'for':<10} recrawl nightly --state, recrawl diff, recrawl export",
        ]
    )


def night_as_json(night: Night) -> str:
    """The same as an object."""
    return json.dumps({"file": night.folder, "kind": "night", "format": None, **_of_night(night)})


def _of_night(night: Night) -> dict[str, Any]:
    counters = night.manifest["counters"]
    names = {"pages": "pages_known", "hosts": "hosts_known", "slots": "slots_used"}
    said = {name: counters.get(counter, 0) for name, counter in names.items()}
    return {"as_of": night.options.get("as_of"), "status": night.manifest.get("status")} | said


def _counts(counts: Counter[str], spelled: Mapping[str, str]) -> str:
    order = sorted(counts.items(), key=lambda c: (-c[1], c[0]))
    return ", ".join(f"{n:,} {spelled.get(reason, reason)}" for reason, n in order)


def _evidence(found: Account) -> str:
    some = [f"{found.evidence[n]:,} {what}" for n, what in _SPELLED.items() if found.evidence[n]]
    if sum(found.evidence.values()) > found.accepted:
        some[-1] += " (a row may have several)"
    none = found.evidence["none"]
    if none:
        some.append(f"{none:,} without any: they cannot show a change")
    return "; ".join(some)
