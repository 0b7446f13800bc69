"""Files of robots.txt as limits of hosts: `Crawl-delay` is the least gap between two crawls.

Such a file does not name its host: its name does, or that of its folder.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from pathlib import PurePosixPath

import pyarrow as pa

from transforms.batches.urls import canonical_host
from transforms.dialects import Dialect, Source
from transforms.files.blocks import Block, RawBlock
from transforms.files.unpacking import Problem, gunzip, stored
from transforms.rows.normalise import rejected_file, rejected_rows

MAX_BYTES = 500 << 10
"""Of a file, read: as the search engines do, which ignore the rest."""
MAX_DELAY_SECONDS = 86400.0
_DIRECTIVE = re.compile(rb"\s*(?:user-?agent|disallow|allow|sitemap|crawl-delay|host)\s*:", re.IGNORECASE)
_DELAY = re.compile(r"\s*crawl[- ]delay(?:\s*:|\s)\s*([^#]*)", re.IGNORECASE)


def _name(path: str) -> str:
    """What a file is called without `.gz`, `.txt` and `robots`; its folder's name if nothing is left."""
    file = PurePosixPath(path.replace("\\", "/"))
    name = re.sub(r"(?i)\.gz$", "", file.name)
    name = re.sub(r"(?i)(^|[._-])robots\.txt$|\.txt$", "", name)
    return name or file.parent.name


def _looks_like(path: str, text: bytes) -> bool:
    file = re.sub(r"(?i)\.gz$", "", PurePosixPath(path).name).lower()
    if not file.endswith(".txt"):
        return False
    if file.endswith("robots.txt"):
        return True
    lines = (line for line in text.splitlines() if line.strip() and not line.lstrip().startswith(b"#"))
    return "." in _name(path) and _DIRECTIVE.match(next(lines, b"")) is not None


def _read(source: Source) -> Iterator[Block]:
    problem = Problem()
    packed = stored(source.path, MAX_BYTES)
    held = b""
    for chunk in gunzip(packed, problem) if source.gzip else packed:
        held += chunk
        if len(held) >= MAX_BYTES:
            break
    if problem.reason:
        yield rejected_file(source.path, problem.reason, problem.sample)
        return
    text = held[:MAX_BYTES].decode("utf-8-sig", "replace")
    name = _name(source.path)
    host = canonical_host(f"http://{name}") if name else None
    if host is None:
        yield rejected_rows(source.path, [1], "host", [f"{name!r} is no host name"])
        return
    own = [agent.strip() for agent in source.options.get("own_user_agent", "").split(",") if agent.strip()]
    lines = text.splitlines()
    delays = [_longest(lines, agent) for agent in own or ["*"]]
    delay = max((d for d in delays if d is not None), default=None)
    bad = _unreadable(lines)
    if delay is not None and delay > MAX_DELAY_SECONDS:
        sample = f"{host}: Crawl-delay of {delay:g} s, at most {MAX_DELAY_SECONDS:g} s are believed"
        yield rejected_rows(source.path, [1], "crawl_delay", [sample])
    elif delay:
        columns = {"host": pa.array([host]), "min_gap_seconds": pa.array([delay], pa.float64())}
        yield RawBlock(pa.RecordBatch.from_pydict(columns), 1)
    elif delay is None and bad is not None:
        # Which of the groups it stands in does not matter: somebody meant something.
        yield rejected_rows(source.path, [bad[0]], "crawl_delay", [f"{host}: Crawl-delay: {bad[1]}"])
    else:
        source.leave_out("no_delay", 1)


def _longest(lines: list[str], agent: str) -> float | None:
    """The longest delay that an agent is asked for: its groups may be several, and the last is not the first.

    What cannot be believed counts only where there is nothing else.
    """
    from protego import Protego

    found = [None if (m := _DELAY.match(line)) is None else _seconds(m[1].strip()) for line in lines]

    def of(least: float, most: float) -> float | None:
        """The delay without those that are shorter or longer."""
        kept = (
            line if value is None or least <= value <= most else "Crawl-delay:"
            for line, value in zip(lines, found, strict=True)
        )
        delay: float | None = Protego.parse("\n".join(kept)).crawl_delay(agent)
        return delay

    steps = sorted({value for value in found if value is not None and value <= MAX_DELAY_SECONDS})
    longest = of(0.0, MAX_DELAY_SECONDS) if steps else None
    if longest is None:
        return of(0.0, math.inf)
    low, high = 0, len(steps)
    while high - low > 1:  # steps[low] is short enough, steps[high] is not
        middle = (low + high) // 2
        delay = of(steps[middle], MAX_DELAY_SECONDS)
        low, high = (middle, high) if delay is not None else (low, middle)
        longest = max(longest, delay or 0.0)
    return longest


def _seconds(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) and value >= 0 else None


def _unreadable(lines: list[str]) -> tuple[int, str] | None:
    """Line and value of the first delay that is no number of seconds."""
    for number, line in enumerate(lines, 1):
        found = _DELAY.match(line)
        if found is not None and _seconds(found[1].strip()) is None:
            return number, found[1].strip()
    return None


DIALECT = Dialect("robots", "hosts", "folders of robots.txt files", _looks_like, _read)
