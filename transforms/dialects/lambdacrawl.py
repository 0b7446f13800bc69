"""The published crawl histories of Kolobov et al. (NeurIPS 2019): a line a URL, three fields with tabs.

url_id    first crawl, in days    [[days since the crawl before, 1 if changed else 0], ...]
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from transforms.dialects import Dialect, Source
from transforms.dialects.delimited_lines import split_fields
from transforms.dialects.text_blocks import line_blocks
from transforms.files.blocks import Block, RawBlock
from transforms.rows.normalise import rejected_rows

START_US: Final = 1_483_228_800_000_000
"""2017-01-01: the histories are of that year, and have no date."""
URL: Final = "https://lambdacrawl.invalid/"
"""Pages are this and their number: the histories have no URLs."""
_DAY_US = 86_400e6
_FIRST = re.compile(rb"\d+\t\d+(\.\d+)?\t\[(\[|\]\s*(\n|$))")
_NUMBER = r"[0-9]{1,4}(?:\.[0-9]*)?(?:[eE]-[0-9]{1,2})?"
_HISTORY = rf"^\[(?:\[{_NUMBER}, ?[01]\](?:, ?|\]))*$"
_BLANKS = bytes.maketrans(b"[],", b"   ")
_NONE = r"^\[ *\]$"


def looks_like(path: str, text: bytes) -> bool:
    return _FIRST.match(text) is not None


def read(source: Source) -> Iterator[Block]:
    """A row for each crawl of each line; the first tells nothing of changes. A line is good or bad whole."""
    for item in line_blocks(source.path, source.gzip):
        if isinstance(item, pa.RecordBatch):
            yield item
            continue
        block, line = item
        fields = split_fields(block, line, "\t", 3, [0, 1, 2])
        if fields.wrong:
            samples = [f"{len(text.split(chr(9)))} fields, expected 3: {text}" for _, text in fields.wrong]
            yield rejected_rows(source.path, [n for n, _ in fields.wrong], "column_count", samples)
        key, first, history = (c.combine_chunks() for c in fields.table.columns)
        history = pc.ascii_trim_whitespace(history)
        sound = pc.and_(
            pc.match_substring_regex(key, r"^\d{1,18}$"), pc.match_substring_regex(first, f"^{_NUMBER}$")
        )
        listed = pc.and_(pc.match_substring_regex(history, _HISTORY), pc.ends_with(history, "]]"))
        good = np.asarray(pc.and_(sound, pc.or_(listed, pc.match_substring_regex(history, _NONE))))
        bad = np.flatnonzero(~good)
        if len(bad):
            samples = history.take(pa.array(bad)).cast(pa.binary()).to_pylist()
            yield rejected_rows(
                source.path,
                fields.line[bad].tolist(),
                "bad_history",
                [s.decode("utf-8", "replace") for s in samples],
            )
        rows = np.flatnonzero(good)
        if not len(rows):
            continue
        index = pa.array(rows)
        key, first, history = (a.take(index) for a in (key, first, history))
        crawls = pc.subtract(pc.count_substring(history, "["), 1).to_numpy()
        text = _bytes_of(history).translate(_BLANKS) + b" 0 0"  # of nothing but blanks it makes a number
        numbers = np.fromstring(text, dtype=np.float64, sep=" ")[:-2]
        yield _crawls(key, first, crawls, numbers.reshape(-1, 2), fields.line[rows])


def _bytes_of(texts: pa.Array) -> bytes:
    """All texts one after the other."""
    offsets = np.frombuffer(texts.buffers()[1], np.int32)[texts.offset : texts.offset + len(texts) + 1]
    return texts.buffers()[2].to_pybytes()[offsets[0] : offsets[-1]]


def _crawls(
    key: pa.Array, first: pa.Array, crawls: np.ndarray, numbers: np.ndarray, lines: np.ndarray
) -> RawBlock:
    """Rows of all lines; gaps are added up as whole microseconds."""
    begins = np.concatenate([[0], np.cumsum(crawls + 1)])[:-1]
    is_first = np.zeros(int((crawls + 1).sum()), np.bool_)
    is_first[begins] = True
    gap_us = np.zeros(len(is_first), np.int64)
    gap_us[is_first] = np.round(pc.cast(first, pa.float64()).to_numpy() * _DAY_US).astype(np.int64)
    gap_us[~is_first] = np.round(numbers[:, 0] * _DAY_US).astype(np.int64)
    total = np.cumsum(gap_us)
    before = np.repeat(total[begins] - gap_us[begins], crawls + 1)
    changed = np.zeros(len(is_first), np.bool_)
    changed[~is_first] = numbers[:, 1] == 1.0
    page = pa.array(np.repeat(np.arange(len(key)), crawls + 1))
    batch = pa.RecordBatch.from_pydict(
        {
            "url": pc.binary_join_element_wise(URL, key, "").take(page),
            "fetched_at": pa.array(START_US + total - before),
            "changed": pa.array(changed, mask=is_first),
        }
    )
    numbered = np.repeat(lines, crawls + 1)
    return RawBlock(batch, lambda: numbered)


DIALECT = Dialect("lambdacrawl", "observations", "crawl histories of Kolobov et al. 2019", looks_like, read)
