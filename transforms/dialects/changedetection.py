"""The data folder of changedetection.io, by its `url-watches.json`.

A history lists when the content of a page was new, and not the checks that found nothing: read as fetches it
would have changed at every visit. So for each change there are two rows, the check before it and the check
that saw it, and at the end one of the last check: what the checks between them add to what is known is
nothing.
"""

from __future__ import annotations

import json
import posixpath
from collections.abc import Iterator, Mapping
from typing import Any, Final

import numpy as np
import pyarrow as pa

from transforms.batches.errors import InputError
from transforms.dialects import Dialect, Source
from transforms.files.blocks import Block, RawBlock
from transforms.files.filesystems import FileSystems
from transforms.files.unpacking import Problem, gunzip, stored
from transforms.rows.normalise import rejected_rows

NAME: Final = "url-watches.json"
DEFAULT_SECONDS: Final = 3 * 3600
"""Between two checks, where neither a watch nor the settings say."""
MAX_BYTES: Final = 256 << 20
_SECONDS = {"weeks": 604_800, "days": 86_400, "hours": 3600, "minutes": 60, "seconds": 1}


def looks_like(path: str, text: bytes) -> bool:
    name = posixpath.basename(path).removesuffix(".gz")
    return name == NAME and text.lstrip().startswith(b"{")


def read(source: Source) -> Iterator[Block]:
    """Rows of all watches; their histories lie in folders beside the file. A few kilobytes a watch.

    Raises
    ------
    InputError
        If the file is not what its name says.
    """
    try:
        store = json.loads(_whole(source))
        watches: Mapping[str, Any] = store["watching"]
        usual = _seconds(store.get("settings", {}).get("requests", {}).get("time_between_check"))
        items = sorted(watches.items())
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise InputError(
            f"{source.path}: no list of watches: {error!r}. Give {NAME} and the folders beside it"
        ) from None
    for key, watch in items:
        url = watch.get("url") if isinstance(watch, dict) else None
        if not isinstance(url, str):
            yield rejected_rows(source.path, [-1], "no_url", [f"watch {key}"])
            continue
        folder = posixpath.dirname(source.path)
        history = posixpath.join(folder, key, "history.txt") if folder else posixpath.join(key, "history.txt")
        try:
            with FileSystems.open(history) as file:
                lines = file.read(MAX_BYTES).split(b"\n")
        except OSError:
            source.leave_out("never_fetched", 1)
            continue
        yield from _rows(
            source, history, url, lines, _seconds(watch.get("time_between_check")) or usual, watch
        )


def _whole(source: Source) -> bytes:
    problem, parts, size = Problem(), [], 0
    packed = stored(source.path)
    for part in gunzip(packed, problem) if source.gzip else packed:
        parts.append(part)
        size += len(part)
        if size > MAX_BYTES:
            raise InputError(
                f"{source.path}: more than {MAX_BYTES >> 20} MiB, the limit for a list of watches; split it"
            )
    return b"".join(parts)


def _rows(
    source: Source, path: str, url: str, lines: list[bytes], seconds: int, watch: Mapping[str, Any]
) -> Iterator[Block]:
    at: dict[int, int] = {}
    bad: list[int] = []
    for number, line in enumerate(lines, 1):
        text, _, name = line.strip().partition(b",")
        if text.isdigit() and len(text) <= 10 and name:
            at.setdefault(int(text), number)
        elif line.strip():
            bad.append(number)
    if bad:
        samples = [lines[number - 1].decode("utf-8", "replace") for number in bad]
        yield rejected_rows(path, bad, "bad_history", samples)
    if not at:
        return
    seen = np.array(sorted(at), np.int64)
    seconds = seconds or DEFAULT_SECONDS
    before = seen[1:] - seconds
    quiet = before[before > seen[:-1]]
    last = watch.get("last_checked")
    checked = np.array([int(last)] if isinstance(last, int | float) and last > seen[-1] else [], np.int64)
    times = np.concatenate([seen, quiet, checked])
    changed = np.zeros(len(times), np.bool_)
    changed[: len(seen)] = True
    first = np.zeros(len(times), np.bool_)
    first[0] = True
    order = np.argsort(times, kind="stable")
    batch = pa.RecordBatch.from_pydict(
        {
            "url": pa.array([url] * len(times)),
            "fetched_at": pa.array(times[order]),
            "changed": pa.array(changed[order], mask=first[order]),
        }
    )
    numbers = np.array([at.get(t, at[int(seen[-1])]) for t in times[order].tolist()], np.int64)
    yield RawBlock(batch, lambda: numbers)


def _seconds(spans: Any) -> int:
    """Seconds of a `time_between_check`; 0 where there is none."""
    if not isinstance(spans, dict):
        return 0
    return int(sum(float(spans.get(name) or 0) * size for name, size in _SECONDS.items()))


DIALECT = Dialect(
    "changedetection", "observations", "url-watches.json of changedetection.io", looks_like, read
)
