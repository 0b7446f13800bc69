"""Files of any format to raw blocks: what a file is, where to cut it, and who reads it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from transforms import dialects
from transforms.batches.errors import InputError
from transforms.batches.kinds import KINDS, REPLAYED
from transforms.batches.tally import Counts
from transforms.dialects import canonical
from transforms.dialects.parquet import plan_parquet
from transforms.dialects.sitemaps import read_sitemap
from transforms.files.blocks import Block, How, Split
from transforms.files.delimiters import delimiter_of
from transforms.files.filesystems import InputFile
from transforms.files.inputs import check_file, check_lines, check_text, sniff
from transforms.files.unpacking import heads, is_gzip
from transforms.rows.normalise import Kind, rejected_file

_BOM = b"\xef\xbb\xbf"
TABLES = ("csv", "scrapy")
JSON_LINES = ("jsonl", "scrapy", "nutch", "stormcrawler", "urlfrontier")


def plan(file: InputFile, kind: str = "", how: How | None = None) -> list[Split]:
    """Look at the beginning (and the footer) of a file and cut it into splits.

    Sitemaps are of a kind, not of a format: whatever such a file holds, it is read as one.
    """
    how = how or How()
    if file.size == 0:
        check_file(file.path)
        return [Split(file.path, "empty")]
    head, text = heads(file.path)
    if not head:
        return [Split(file.path, "empty")]
    packed = is_gzip(head)
    if kind == "sitemaps":
        return [Split(file.path, "sitemap", packed)]
    if kind != "hosts":  # robots.txt files are others', of which one may be of no use
        check_text(file.path, text)
    form: str | None = how.form
    if form == dialects.AUTO:
        form = dialects.detect(kind, file.path, text)
    if form is None or form == dialects.CANONICAL:
        try:
            form = sniff(file.path, head, text)
        except InputError:
            if not text:  # nothing, or nothing but NULs: any reader of lines says so
                return [Split(file.path, "jsonl", packed, how=how)]
            for other in sorted({k for k, _ in dialects.dialects() if k in KINDS} - {kind}):
                if found := dialects.detect(other, file.path, text):
                    raise InputError(f"{file.path}: this is {found}; give it to --{other}") from None
            raise
    if form in JSON_LINES:
        check_lines(file.path, text)
    dialect = dialects.dialects().get((kind, form))
    if form == "parquet" or (dialect is not None and dialect.by_groups):
        splits = plan_parquet(file.path)
        return [replace(s, form=form if s.form == "parquet" else s.form, how=how) for s in splits]
    delimiter = ""
    if form in TABLES and kind in REPLAYED and not text.removeprefix(_BOM).lstrip().startswith((b"{", b"[")):
        delimiter = delimiter_of(file.path, text, REPLAYED[kind].renamed(dict(how.columns)).key)
    return [Split(file.path, form, packed, how=how, delimiter=delimiter)]


def read(
    split: Split, kind: Kind, metadata: Sequence[str] | None = None, notes: Counts | None = None
) -> Iterator[Block]:
    """Read a split: raw blocks, and batches of `schemas.REJECTED` for what cannot be read.

    `notes` gets what a sitemap says beyond its rows, see `sitemaps.read_sitemap`.

    Raises
    ------
    InputError
        If the columns are not those of the kind, see `columns_to_read`.
    """
    if split.form in canonical.FORMS:
        return canonical.read(split, kind, metadata)
    return canonical.named(split, kind, metadata, lambda theirs, _: _read(split, theirs, notes))


def _read(split: Split, kind: Kind, notes: Counts | None) -> Iterator[Block]:
    if split.form == "broken":
        yield rejected_file(split.path, *split.problem)
    elif split.form == "sitemap":
        yield from read_sitemap(split.path, split.gzip, notes)
    elif split.form != "empty":
        options = dict(split.how.options)
        source = dialects.Source(split.path, split.gzip, kind, options, notes, split.groups, split.row)
        yield from dialects.dialects()[kind.name, split.form].read(source)
