"""Which files a night reads: those of its days that no night before has read to the end."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime, timedelta
from typing import Any

from pipelines.command.instants import DAY_MICROSECONDS
from transforms.batches.errors import FolderError, InputError
from transforms.files.filesystems import InputFile, local_path, translate
from transforms.files.inputs import identity, list_files, match_files, split_patterns
from transforms.intake.log_ages import day_text

LOGS = ("observations", "requests", "signals", "sitemaps", "links")
# Which counter of the manifest says how many rows of a log were left for a later night.
_LEFT = {
    "observations": "after_as_of",
    "requests": "requests_after_as_of",
    "signals": "signals_after_as_of",
    "sitemaps": "future_lastmod",
    "links": "links_after_as_of",
}
_PLACEHOLDER = re.compile(r"\{(\w*)\}")
_GLOBS = {"date": "????-??-??", "year": "????", "month": "??", "day": "??"}
_DIGITS = {"date": r"\d{4}-\d\d-\d\d", "year": r"\d{4}", "month": r"\d\d", "day": r"\d\d"}
# Clocks of a crawler and of the file system may differ by so much.
CLOCKS_APART_US = 300_000_000
# A file without a date that no pattern matches any more is forgotten after so many days.
FORGET_DAYS = 30


def is_dated(pattern: str) -> bool:
    return _PLACEHOLDER.search(pattern) is not None


def check_placeholders(kind: str, patterns: str | None) -> list[str]:
    """What is wrong with the placeholders of an option."""
    problems = []
    for pattern in split_patterns(patterns or ""):
        names = set(_PLACEHOLDER.findall(pattern))
        if unknown := sorted(names - _GLOBS.keys()):
            problems.append(
                f"--{kind}={pattern}: {{{unknown[0]}}} is no placeholder; there are {{date}}, {{year}}, "
                "{month} and {day}"
            )
        elif names and "date" not in names and names != {"year", "month", "day"}:
            problems.append(
                f"--{kind}={pattern}: placeholders must name a day: {{date}}, or all of {{year}}, "
                "{month} and {day}"
            )
    return problems


def on_day(pattern: str, day: int) -> str:
    """A pattern with the placeholders of one day filled in."""
    year, month, number = day_text(day).split("-")
    values = {"date": day_text(day), "year": year, "month": month, "day": number}
    return _PLACEHOLDER.sub(lambda found: values[found.group(1)], pattern)


def days_there(pattern: str) -> list[int]:
    """All days for which a dated pattern matches a file, or a folder with files in it."""
    wide = _PLACEHOLDER.sub(lambda found: _GLOBS[found.group(1)], pattern).rstrip("/")
    seen: dict[str, int] = {}

    def group(found: re.Match[str]) -> str:
        name = found.group(1)
        seen[name] = seen.get(name, 0) + 1
        return f"(?P<{name}>{_DIGITS[name]})" if seen[name] == 1 else f"(?P={name})"

    # Placeholders pass the translation as letters that no pattern of a person has.
    marked = _PLACEHOLDER.sub(lambda found: f"\0{found.group(1)}\0", pattern.rstrip("/").removeprefix("./"))
    translated = translate(marked)
    translated = re.sub(r"\\?\x00(\w+)\\?\x00", lambda found: group(found), translated)
    path_of_day = re.compile(rf"(?s:{translated}(?:/.*)?\Z)")
    days = set()
    for file in [*list_files(wide), *list_files(wide + "/**")]:
        found = path_of_day.match(file.path.removeprefix("./"))
        if found and (day := _day_of(found.groupdict())) is not None:
            days.add(day)
    return sorted(days)


def _day_of(values: dict[str, str | None]) -> int | None:
    text = values.get("date") or "-".join(str(values.get(n)) for n in ("year", "month", "day"))
    try:
        return date.fromisoformat(text).toordinal() - date(1970, 1, 1).toordinal()
    except ValueError:
        return None


@dataclass(frozen=True, slots=True)
class Entry:
    """A file that a night has read.

    Attributes
    ----------
    path : str
    size : int, bytes
    modified_us : int
        0 where the file system does not say.
    day : int or None
        Of the partition, days since 1970.
    night : str
        Name of the night that read it.
    seen : str
        Name of the last night for which a pattern matched it.
    """

    path: str
    size: int
    modified_us: int
    day: int | None
    night: str
    seen: str

    @property
    def key(self) -> str:
        return identity(self.path)

    def check(self) -> Entry:
        """Itself. ValueError where it is none that a night writes."""
        numbers = (self.size, self.modified_us, 0 if self.day is None else self.day)
        texts = (self.path, self.night, self.seen)
        if not all(isinstance(n, int) for n in numbers) or not all(isinstance(t, str) for t in texts):
            raise ValueError(f"not a file that was read: {self}")
        _moment(self.seen)
        return self

    def same_bytes(self, other: Entry) -> bool:
        return (self.size, self.modified_us) == (other.size, other.modified_us)


@dataclass(frozen=True)
class Ledger:
    """Which files of each log have been read, by the name of the file, and with which patterns."""

    patterns: dict[str, list[str]] = field(default_factory=dict)
    files: dict[str, dict[str, Entry]] = field(default_factory=dict)

    def as_json(self) -> dict[str, Any]:
        names = Entry.__dataclass_fields__
        return {
            "patterns": self.patterns,
            "columns": list(names),
            "files": {
                kind: [[getattr(e, n) for n in names] for _, e in sorted(entries.items())]
                for kind, entries in self.files.items()
            },
        }

    @staticmethod
    def from_json(value: Any) -> Ledger:
        """Raises KeyError, TypeError or ValueError on anything else than what `as_json` gives."""
        if not all(isinstance(value[name], dict) for name in ("files", "patterns")):
            raise ValueError("no list of files by the kind of log")
        names = list(value["columns"])
        files = {
            kind: {e.key: e for row in rows for e in [Entry(**dict(zip(names, row, strict=True))).check()]}
            for kind, rows in value["files"].items()
        }
        patterns = {kind: [*map(str, found)] for kind, found in value["patterns"].items()}
        return Ledger(patterns, files)


@dataclass(frozen=True)
class Before:
    """The last committed night, as far as choosing files needs it.

    Attributes
    ----------
    name : str
    as_of_us : int
    manifest : dict
    ledger : Ledger
    """

    name: str
    as_of_us: int
    manifest: dict[str, Any]
    ledger: Ledger

    def left_rows(self, kind: str) -> bool:
        """Whether it left rows of a log that are later than its instant."""
        return bool(self._of(kind).get("counters", {}).get(_LEFT[kind], 0))

    def read(self, kind: str) -> frozenset[str]:
        """The files of a log that it was given, as its job says."""
        options = self._of(kind).get("options", {})
        return frozenset(split_patterns(options.get("inputs", {}).get("links_seen", options.get(kind)) or ""))

    def _of(self, kind: str) -> dict[str, Any]:
        """What its manifest says of the job that reads a log."""
        found: dict[str, Any] = self.manifest.get("discovery") or {} if kind == "links" else self.manifest
        return found


@dataclass(frozen=True)
class Choice:
    """What a night reads of one log.

    Attributes
    ----------
    files : list of Entry
    again : int
        Those among them that a night before has read in part, or that have changed since.
    ledger : dict of str to Entry
        What has been read when the night is done.
    fresh : bool
        Whether some file may hold rows since the last night.
    missing : list of int
        Days since the last night without a file, if all patterns are dated.
    """

    files: list[Entry]
    again: int
    ledger: dict[str, Entry]
    fresh: bool
    missing: list[int]

    @property
    def pattern(self) -> str:
        """The files as an input option names them."""
        return ",".join(as_pattern(entry.path) for entry in self.files)


def as_pattern(path: str) -> str:
    """A pattern that matches a path: options are split at commas, and other file systems have no escapes."""
    if local_path(path) is not None and "," not in path and path == path.strip():
        return path
    return re.sub(r"[,\[]|^\s|\s$", "?", path)


def choose(
    kind: str, patterns: str, name: str, as_of_us: int, before: Before | None, late_days: int
) -> Choice:
    """Choose the files of one log.

    Parameters
    ----------
    kind : str
    patterns : str
        As the option has them.
    name : str
        Tonight's.
    as_of_us : int
    before : Before or None
    late_days : int
        Days before the last night whose partitions are looked at once more.

    Raises
    ------
    InputError
        On a first night, if a path without placeholders or wildcards is not there; later, if nothing matches
        a pattern that is new to the store.
    """
    today, until = as_of_us // DAY_MICROSECONDS, -(-as_of_us // DAY_MICROSECONDS)
    known = before.ledger.files.get(kind, {}) if before else {}
    unsettled = _unsettled(kind, before, late_days) if before else set()
    old_patterns = before.ledger.patterns.get(kind, []) if before else []
    from_day = before.as_of_us // DAY_MICROSECONDS if before else 0
    there: dict[str, Entry] = {}
    days_with_files: set[int] = set()
    all_dated = True
    for pattern in split_patterns(patterns):
        if is_dated(pattern):
            if before and pattern in old_patterns:
                days: Iterable[int] = range(from_day - late_days, until)
            else:
                days = (d for d in days_there(pattern) if d < until)
            found = [(f, d) for d in days for f in _matched(on_day(pattern, d), kind)]
            days_with_files |= {d for _, d in found}
        else:
            all_dated = False
            found = [(f, None) for f in _matched(pattern, kind, strict=before is None)]
        found = list(found)
        if not found and before and before.ledger.patterns and pattern not in old_patterns:
            raise InputError(
                f"--{kind}: no file matches: {pattern}. It is new to this store, which has a night already: "
                "mend it, or leave it out until there are files"
            )
        for file, day in found:
            entry = Entry(file.path, file.size, round(file.modified * 1e6), day, name, name)
            there.setdefault(entry.key, entry)
    unread = {
        key: entry
        for key, entry in there.items()
        if key not in known or key in unsettled or not entry.same_bytes(known[key])
    }
    kept = {
        key: replace(entry, seen=name) if key in there else entry
        for key, entry in known.items()
        if (entry.day >= today - late_days if entry.day is not None else _recent(entry, as_of_us))
    }
    return Choice(
        files=sorted(unread.values(), key=lambda e: e.path),
        again=sum(key in known for key in unread),
        ledger=kept | unread,
        fresh=any(e.day is None or e.day >= from_day for e in unread.values()),
        missing=sorted(set(range(from_day, today)) - days_with_files) if all_dated and before else [],
    )


def _matched(pattern: str, kind: str, strict: bool = False) -> list[InputFile]:
    try:
        return match_files(pattern, kind, required=False)
    except FolderError:
        raise
    except InputError:  # a path or a folder that is not there: logs may be missing
        if strict:
            raise
        return []


def _unsettled(kind: str, before: Before, late_days: int) -> set[str]:
    """Files of the last night that may have rows which it has not read, by their names in the ledger.

    It left rows that are later than its instant to the next night, but nobody knows in which files they are;
    not in those that were written before it. And where two jobs of one night ran, because the first one
    survived its launcher on a cluster, the one that committed may have been given fewer files.
    """
    until_us = before.as_of_us
    if kind == "requests":  # a day counts when it is over
        until_us -= until_us % DAY_MICROSECONDS
    first_day = before.as_of_us // DAY_MICROSECONDS - late_days
    left, read = before.left_rows(kind), before.read(kind)

    def complete(entry: Entry) -> bool:
        if as_pattern(entry.path) not in read:
            return False
        if not left or 0 < entry.modified_us <= until_us - CLOCKS_APART_US:
            return True
        return entry.day is not None and entry.day < first_day

    entries = before.ledger.files.get(kind, {})
    return {key for key, entry in entries.items() if entry.night == before.name and not complete(entry)}


def _moment(night: str) -> datetime:
    return datetime.strptime(night, "%Y%m%dT%H%M%SZ").replace(tzinfo=UTC)


def _recent(entry: Entry, as_of_us: int) -> bool:
    now = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=as_of_us)
    return now - _moment(entry.seen) <= timedelta(days=FORGET_DAYS)


def union(choices: Iterable[tuple[str, str, Choice]]) -> Ledger:
    """The ledger of a night from its choices: (kind, patterns, choice)."""
    listed: list[tuple[str, str, Choice]] = list(choices)
    return Ledger(
        {kind: split_patterns(patterns) for kind, patterns, _ in listed},
        {kind: choice.ledger for kind, _, choice in listed},
    )


def days_in_words(days: list[int]) -> Iterator[str]:
    """Runs of days, as a person writes them."""
    start = 0
    for at in range(1, len(days) + 1):
        if at == len(days) or days[at] != days[at - 1] + 1:
            first, last = day_text(days[start]), day_text(days[at - 1])
            yield first if first == last else f"{first} to {last}"
            start = at
