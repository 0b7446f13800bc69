"""Indexes of archives for tests, and what a night's fold makes of them."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from policies.history import history
from policies.history.page_state import PageState
from tests.transforms.dialects.reading import Read
from transforms.batches import schemas
from transforms.files.blocks import How
from transforms.intake.sources import ROWS, plan_files, read_split
from transforms.night.folding import observations_of
from transforms.rows.normalise import KINDS

HEADER = " CDX N b a m s k r M S V g"
A, B = "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA", "BBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBB"
EMPTY = "3I42H3S6NNFQ2MSVX7XZKYAYSCX5QBYJ"


def capture(
    at: object = 20260101020304,
    url: str = "https://a.test/x",
    mime: str = "text/html",
    status: object = 200,
    digest: str = A,
    key: str = "test,a)/x",
) -> str:
    """A line of eleven fields."""
    return f"{key} {at} {url} {mime} {status} {digest} - - 512 0 a.warc.gz"


def folded(*paths: Path, form: str = "auto") -> dict[str, int]:
    """Counters of a first night over the files, those that are not zero."""
    how = How(form)
    splits = [split for path in paths for split in plan_files(str(path), "observations", how=how)]
    found = [b for s in splits for tag, b in read_split(s, KINDS["observations"]) if tag == ROWS]
    urls = sorted({u for batch in found for u in batch.column("url").to_pylist()})
    code = {url: i for i, url in enumerate(urls)}
    pages = np.array([code[u] for batch in found for u in batch.column("url").to_pylist()], np.int64)
    batches = [batch.select(schemas.OBSERVATIONS.names) for batch in found]
    rows = observations_of(pages, batches)
    _, counts = history.fold(PageState.empty(len(urls)), rows, as_of_us=2**62)
    return {name: n for name, n in counts.items() if n and name != "observations"}


def accounted(found: Read, text: str, no_rows: int = 0) -> None:
    """Every line is accepted, rejected or left out, but for those that are no rows."""
    assert found.lines == len(text.splitlines()) - no_rows


__all__ = ["EMPTY", "HEADER", "A", "B", "accounted", "capture", "folded"]
