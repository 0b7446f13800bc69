"""What a file of an input holds, read to its end in bounded memory: rows, span, pages, hosts, evidence."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from transforms import dialects
from transforms.batches import schemas
from transforms.batches.errors import InputError, NoColumnError, NoSiteError, UnreadableError
from transforms.batches.tally import Counts, counted
from transforms.batches.times import DAY_US
from transforms.files.blocks import How
from transforms.files.delimiters import DELIMITERS
from transforms.files.filesystems import InputFile
from transforms.files.unpacking import head_of
from transforms.intake.formats import plan
from transforms.intake.log_ages import day_text
from transforms.intake.sources import NOTED, ROWS, read_split
from transforms.intake.twins import Twins
from transforms.rows.normalise import KINDS

# XML, or URLs and nothing else: sitemaps are of both kinds.
_SITEMAP = re.compile(rb"(?:\xef\xbb\xbf)?\s*(?:<|https?://[^\s,;\"]+[ \t\r]*(?:\n|$))", re.IGNORECASE)
SKETCHED = 1 << 16
MAX_COLUMNS, MAX_SHOWN = 20, 80
"""Of a header in an error, and characters of it."""
"""Distinct values up to which their number is exact; above, its standard error is 1 in 256."""
EVIDENCE = ("digest_hash", "changed", "not_modified", "last_modified")
_TIMES = {"observations": "fetched_at", "signals": "signalled_at", "requests": "day", "sitemaps": "lastmod"}


class Distinct:
    """How many distinct hashes there were, from the smallest `SKETCHED` of them."""

    def __init__(self) -> None:
        self._least = np.zeros(0, np.uint64)
        self._full = False

    def add(self, hashes: NDArray[np.uint64]) -> None:
        """Count hashes, (n,) uint64."""
        self._least = np.union1d(self._least, hashes)
        if len(self._least) > SKETCHED:
            self._least, self._full = self._least[:SKETCHED], True

    def merge(self, other: Distinct) -> None:
        """Count those of another."""
        self._full |= other._full
        self.add(other._least)

    def __len__(self) -> int:
        if not self._full:
            return len(self._least)
        return round((SKETCHED - 1) * 2.0**64 / float(self._least[-1]))


@dataclass
class Account:
    """What a file holds.

    Attributes
    ----------
    file, kind, format : str
    rows : int
        Accepted, rejected and left out.
    accepted : int
    rejected, left_out : Counter
        By reason. What is left out is sound, and not of use.
    noted : Counter
        Of what a part is odd, and which counts all the same, by reason.
    damaged : list of str
        Why the file could not be read to its end.
    no_site : bool
        The file has paths only; they are counted as of one site.
    first, last : str or None
        ISO 8601, UTC.
    by_day : Counter
        Rows by their day since 1970, UTC.
    last_day : (int, int)
        Their last day, and its first row in microseconds since 1970.
    metadata : list of str
        Of pages the columns that pass through.
    pages, hosts : Distinct
    twins : Twins
        Of observations.
    evidence : Counter
        Observations that have a column of `EVIDENCE`; "none" have none and no status that tells.
    samples : list of (int, str, str)
        Row, reason and sample of the first rejected rows of each reason.
    gaps : list of (float, str)
        Of hosts with a gap between crawls, seconds and host: the least and the greatest.
    """

    file: str
    kind: str
    format: str = ""
    accepted: int = 0
    rejected: Counter[str] = field(default_factory=Counter)
    left_out: Counter[str] = field(default_factory=Counter)
    noted: Counter[str] = field(default_factory=Counter)
    damaged: list[str] = field(default_factory=list)
    no_site: bool = False
    first: str | None = None
    last: str | None = None
    by_day: Counter[int] = field(default_factory=Counter)
    last_day: tuple[int, int] = (0, 0)
    metadata: list[str] = field(default_factory=list)
    pages: Distinct = field(default_factory=Distinct)
    hosts: Distinct = field(default_factory=Distinct)
    twins: Twins = field(default_factory=Twins)
    evidence: Counter[str] = field(default_factory=Counter)
    samples: list[tuple[int, str, str]] = field(default_factory=list)
    gaps: list[tuple[float, str]] = field(default_factory=list)

    @property
    def rows(self) -> int:
        return self.accepted + self.rejected.total() + self.left_out.total()

    def add(self, other: Account) -> None:
        """Add what another file holds, but for its name, its samples and its damage."""
        self.accepted += other.accepted
        self.rejected += other.rejected
        self.left_out += other.left_out
        self.noted += other.noted
        self.evidence += other.evidence
        self.pages.merge(other.pages)
        self.hosts.merge(other.hosts)
        self.twins.merge(other.twins)
        self.by_day += other.by_day
        self._end(*other.last_day)
        self.metadata = list(dict.fromkeys(self.metadata + other.metadata))
        self.gaps = ends(self.gaps + other.gaps)
        self.no_site |= other.no_site
        self.first = min(filter(None, (self.first, other.first)), default=None)
        self.last = max(filter(None, (self.last, other.last)), default=None)

    def _end(self, day: int, begin_us: int) -> None:
        if day >= self.last_day[0]:
            self.last_day = day, min(begin_us, self.last_day[1]) if day == self.last_day[0] else begin_us

    def strays(self) -> tuple[list[int], int, int]:
        """Days of rows that are far from all others, and the first and the last day of these others.

        Far is further than a month, and than the others span; they are one row in a hundred at most, or one
        of twenty and more.
        """
        days, rows = sorted(self.by_day), self.by_day.total()
        low, high, left = 0, len(days) - 1, max(rows // 100, int(rows >= 20))
        while low < high:
            tail, gap = self.by_day[days[high]], days[high] - days[high - 1]
            if tail <= left and gap > max(STRAY_DAYS, days[high - 1] - days[low]):
                high, left = high - 1, left - tail
                continue
            head, gap = self.by_day[days[low]], days[low + 1] - days[low]
            if head > left or gap <= max(STRAY_DAYS, days[high] - days[low + 1]):
                break
            low, left = low + 1, left - head
        return [*days[:low], *days[high + 1 :]], days[low], days[high]

    def span(self) -> tuple[str, str] | None:
        """From when to when its rows are, ISO 8601, without those that are far from all others."""
        if not (self.first and self.last):
            return None
        days, low, high = self.strays()
        first = f"{day_text(low)}T00:00:00Z" if days and min(days) < low else self.first
        return first, f"{day_text(high)}T23:59:59Z" if days and max(days) > high else self.last

    def said_of_strays(self) -> str:
        """Of how many rows the dates are far from all others, and which; empty if there are none."""
        days, low, high = self.strays() if self.by_day else ([], 0, 0)
        if not days:
            return ""
        n = sum(self.by_day[day] for day in days)
        some = ", ".join(map(day_text, days[:MAX_SAMPLES])) + (", ..." if len(days) > MAX_SAMPLES else "")
        return (
            f"{counted(n, 'row')} of {some}, far from all others ({day_text(low)} to {day_text(high)}): "
            "look at the clock that wrote them"
        )


STRAY_DAYS = 30
MAX_SAMPLES = 3
_SOME_SITE = ("requests_site", "https://site.invalid")


def account(file: InputFile, kind: str, how: How | None = None) -> Account:
    """Read a file and say what it holds.

    Raises
    ------
    InputError
        If it is nothing of this kind.
    """
    how = how or How()
    try:
        return _account(file, kind, how)
    except NoSiteError:
        found = _account(file, kind, replace(how, options=(*how.options, _SOME_SITE)))
        found.no_site = True
        return found


def _account(file: InputFile, kind: str, how: How) -> Account:
    found, notes = Account(file.path, kind), Counts()
    forms: dict[str, None] = {}
    for split in plan(file, kind, how):
        apart = f" with {DELIMITERS[split.delimiter]}" if split.delimiter not in ("", ",") else ""
        forms[split.form + apart] = None
        for tag, batch in read_split(split, KINDS[kind], notes=notes) if split.form != "empty" else ():
            if tag == ROWS:
                _accept(found, batch)
            else:
                _reject(found, batch)
    found.format = ", ".join(forms)
    mark = f"{kind}_left_out_"
    for name, n in notes.totals().items():
        if name.startswith(mark):
            found.left_out[name.removeprefix(mark)] += n
        elif name.endswith(("_times", "_fragments")):
            found.noted[name.removeprefix(f"{kind}_")] += n
    return found


def _accept(found: Account, batch: pa.RecordBatch) -> None:
    found.accepted += batch.num_rows
    if found.kind == "pages":
        own = {*KINDS["pages"].known, "url_hash", "host_hash"}
        found.metadata = [name for name in batch.schema.names if name not in own]
    if found.kind != "hosts":
        found.pages.add(batch.column("url_hash").to_numpy())
    found.hosts.add(batch.column("host_hash").to_numpy())
    if found.kind == "hosts":
        gaps = zip(*(batch.column(n).to_pylist() for n in ("min_gap_seconds", "host")), strict=True)
        found.gaps = ends(found.gaps + [(gap, host) for gap, host in gaps if gap is not None])
    times = batch.column(_TIMES[found.kind]) if found.kind in _TIMES else None
    if times is not None and times.null_count < len(times):
        if found.kind == "requests":
            times = pc.multiply(times.cast(pa.int64()), DAY_US).cast(schemas.TIME)
        at = times.drop_null().cast(pa.int64()).to_numpy()
        days, rows = np.unique(at // DAY_US, return_counts=True)
        found._end(int(days[-1]), int(at[at >= days[-1] * DAY_US].min()))
        found.by_day.update(dict(zip(days.tolist(), rows.tolist(), strict=True)))
        span = pc.min_max(times)
        first, last = (str(span[end].as_py().isoformat()).replace("+00:00", "Z") for end in ("min", "max"))
        found.first = min(found.first or first, first)
        found.last = max(found.last or last, last)
    if found.kind == "observations":
        found.twins.add(batch.column("url"), batch.column("url_hash"))
        none = np.ones(batch.num_rows, np.bool_)
        for name in EVIDENCE:
            column = batch.column(name)
            there = np.asarray(column.is_valid() if name != "not_modified" else pc.fill_null(column, False))
            found.evidence[name.removesuffix("_hash")] += int(there.sum())
            none &= ~there
        told = np.asarray(pc.is_in(batch.column("status"), pa.array([304, 404, 410], pa.int16())))
        found.evidence["status"] += int(told.sum())
        found.evidence["none"] += int((none & ~told).sum())


def ends(gaps: list[tuple[float, str]]) -> list[tuple[float, str]]:
    """The least and the greatest of some; none of none."""
    return [min(gaps), max(gaps)] if gaps else []


def _reject(found: Account, batch: pa.RecordBatch) -> None:
    shown = Counter(reason for _, reason, _ in found.samples)
    for row in batch.to_pylist():
        reason = row["reason"]
        if reason in NOTED:
            found.noted[reason] += 1
            continue
        if reason.endswith("_file"):
            found.damaged.append(f"{reason.removesuffix('_file')}: {row['sample']}")
            continue
        found.rejected[reason] += 1
        if shown[reason] < MAX_SAMPLES:
            shown[reason] += 1
            found.samples.append((row["row"], reason, row["sample"]))


def kinds_of(file: InputFile, hows: Mapping[str, How] | None = None) -> list[str]:
    """Kinds of input that a file can be read as, the likeliest first.

    A format of a crawler, an archive or a server says what it is; a file with recrawl's columns may be more.

    Parameters
    ----------
    file : InputFile
    hows : mapping of str to How, optional
        By kind how its files are read. A dialect that is named for a kind but does not know the file comes
        last, before a list of pages.

    Raises
    ------
    InputError
        If no input can read it: what it has, or what is wrong with it.
    """
    hows = hows or {}
    wrong: list[InputError] = []
    surely: list[str] = []
    fits: list[str] = []
    named: list[str] = []
    text = head_of(file.path) if file.size else b""
    for kind in ("observations", "requests", "signals", "hosts", "pages"):
        how = hows.get(kind, How())
        if how.form not in (dialects.AUTO, dialects.CANONICAL, dialects.detect(kind, file.path, text)):
            named.append(kind)
            continue
        if kind == "pages":
            fits += named
        try:
            splits = plan(file, kind, how)
            if splits[0].form == "empty":
                return ["observations"]
            if splits[0].form not in ("parquet", "avro", "jsonl", "csv", "broken"):
                surely.append(kind)
                continue
            next(read_split(splits[0], KINDS[kind]), None)
            fits.append(kind)
        except UnreadableError:
            raise
        except InputError as error:
            wrong.append(error)
    # A list of URLs may be a list of pages as well.
    if surely + fits in ([], ["pages"]) and _SITEMAP.match(text):
        return ["sitemaps", *surely]
    if not (surely or fits):
        raise _useless(file.path, wrong)
    return surely or fits


def _useless(path: str, wrong: Sequence[InputError]) -> InputError:
    """What to say of a file that no input takes, by what each of them said."""
    for error in wrong:
        if not isinstance(error, NoColumnError):
            return error
    have = next((error.have for error in wrong if isinstance(error, NoColumnError)), ())
    if have and have[0].lower().startswith("sep="):
        return InputError(
            f"{path}: its first line, {have[0]}, is for spreadsheets. Remove it: sed -i 1d FILE"
        )
    if len(have) == 1 and "|" in have[0]:
        return InputError(
            f"{path}: its header is one column, {have[0][:MAX_SHOWN]!r}. Columns are set apart by commas, "
            "semicolons or tabs; rewrite it without '|'"
        )
    more = f" and {len(have) - MAX_COLUMNS} more" if len(have) > MAX_COLUMNS else ""
    names = ", ".join(have[:MAX_COLUMNS]) + more
    return InputError(
        f"{path}: nothing that a night reads. It has the columns {names or 'of no table'}. Say what it is "
        "with --kind, or which columns are ours: --observations_columns "
        "url=YOURS,fetched_at=YOURS,digest=YOURS or --requests_columns url=YOURS,day=YOURS,clicks=YOURS"
    )
