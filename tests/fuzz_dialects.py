"""Coverage-guided fuzzing of the readers of other formats: `make fuzz`, or

    python -m tests.fuzz_dialects FOLDER [-max_total_time=300] [other options of libFuzzer]

Inputs that reach new code are kept in FOLDER, and one that fails is written beside it. The first byte of an
input is the dialect, the rest the file. Whatever the bytes are, reading ends, only an `InputError` is raised,
and every line is accepted, rejected or left out, once. What CDXJ has of plain strings is read again by the
JSON reader, which must find the same.
"""

from __future__ import annotations

import os
import sys
import tempfile
from dataclasses import dataclass, field
from typing import Any
from unittest import mock

import atheris

with atheris.instrument_imports(include=["transforms.dialects", "transforms.dialects.textformats"]):
    from transforms import dialects
    from transforms.dialects import cdxj
    from transforms.dialects.json_strings import read_plain
    from transforms.files import unpacking

    FORMS = sorted(dialects.dialects())  # imports them

from transforms.batches.errors import InputError
from transforms.batches.tally import Counts
from transforms.files.blocks import How, RawBlock, Split
from transforms.intake.formats import read
from transforms.rows.normalise import KINDS, normalise

# Of one file, bounded or at fixed places: not for bytes that anybody may have sent.
LEFT_OUT = ("changedetection", "commoncrawl", "search_console")
OPTIONS = {"requests_site": "https://shop.test", "observations_timezone": "UTC", "requests_day": "2026-01-01"}
# A line may be several rows: a list of records, or a page with all its crawls.
SEVERAL = ("cdx_json", "lambdacrawl", "scrapy", "stormcrawler", "urlfrontier", "nutch")
SMALL_BYTES = 256

FORMS = [key for key in FORMS if key[1] not in LEFT_OUT]
PATH = os.path.join(tempfile.mkdtemp(prefix="recrawl-fuzz-"), "input")


@dataclass
class Found:
    """What a file had: accepted rows, and rejected ones and those left out by number."""

    rows: list[dict[str, Any]] = field(default_factory=list)
    rejected: list[tuple[int, str]] = field(default_factory=list)
    left_out: int = 0


def found_in(kind: str, form: str) -> Found:
    """Read the file at `PATH`."""
    found, notes = Found(), Counts()
    split = Split(PATH, form, how=How(form, (), tuple(OPTIONS.items())))
    for block in read(split, KINDS[kind], None, notes):
        bad = block
        if isinstance(block, RawBlock):
            done = normalise(KINDS[kind], block.batch, PATH, block.row)
            assert done.rows.num_rows + done.rejected.num_rows == block.batch.num_rows
            found.rows += done.rows.to_pylist()
            bad = done.rejected
        reasons = zip(bad.column("row").to_pylist(), bad.column("reason").to_pylist(), strict=True)
        found.rejected += [
            (row, reason) for row, reason in reasons if reason != "nul_bytes"
        ]  # no row is lost
    found.left_out = sum(n for name, n in notes.totals().items() if "_left_out_" in name)
    return found


def one(data: bytes) -> None:
    """Read one file; raises where a rule is broken."""
    if not data:
        return
    kind, form = FORMS[data[0] % len(FORMS)]
    body = data[1:]
    with open(PATH, "wb") as file:
        file.write(body)
    unpacking.CHUNK_BYTES = SMALL_BYTES if data[0] & 0x80 else 8 << 20
    try:
        found = found_in(kind, form)
    except InputError:
        return
    ends = body.count(b"\n") + body.count(b"\r") + 1
    assert all(-1 <= row <= ends for row, _ in found.rejected), (form, found.rejected)
    lines = sum(1 for line in body.replace(b"\r", b"\n").split(b"\n") if line.strip(b" \t"))
    if form not in SEVERAL and kind != "hosts":
        assert len(found.rows) + len(found.rejected) + found.left_out <= lines, (form, found, lines)
    if form == "cdxj":
        with mock.patch.object(
            cdxj, "read_plain", lambda block, end, fields: read_plain(b"", end[:0], fields)
        ):
            assert found_in(kind, form) == found


def sow(folder: str) -> None:
    """Put a file of each dialect into an empty folder: from noise alone it takes long to find one."""
    from tests.transforms.dialects import (
        test_access_log,
        test_cdx,
        test_cdxj,
        test_crawl_log,
        test_lambdacrawl,
        test_nutch,
        test_scrapy,
        test_stores,
    )

    texts: dict[str, list[str | bytes]] = {
        "access_log": test_access_log.MIXED,
        "cdx": test_cdx.MIXED,
        "cdxj": test_cdxj.MIXED,
        "heritrix": [test_crawl_log.LOG],
        "lambdacrawl": [test_lambdacrawl.TEXT],
        "nutch": [test_nutch.DUMP],
        "scrapy": [test_scrapy.FEED],
        "stormcrawler": [test_stores.DUMP],
        "urlfrontier": [test_stores.FRONTIER],
    }
    for i, (_, form) in enumerate(FORMS):
        lines = [t.encode() if isinstance(t, str) else t for t in texts.get(form, [])]
        if lines:
            with open(os.path.join(folder, f"seed-{i}"), "wb") as file:
                file.write(bytes([i]) + b"\n".join(lines))


def main() -> None:
    folder = next((word for word in sys.argv[1:] if not word.startswith("-")), "")
    if folder and not os.listdir(folder):
        sow(folder)
    atheris.Setup(sys.argv, one)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
