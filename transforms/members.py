"""Lines of files that are several gzip members in a row, or that were cut while somebody wrote on."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

# Of a line that two members may share, looked at.
MAX_JOINT_BYTES = 1 << 16

Apart = Callable[[bytes, bytes], bool]
"""Whether what ends a gzip member and what begins the next are two lines, with no line end between."""


class Holes:
    """Bytes that were left out."""

    size = 0


def without_holes(chunks: Iterator[bytes], holes: Holes) -> Iterator[bytes]:
    """Chunks without NULs at the beginning of lines.

    They are where a log was cut by copytruncate while its writer kept its place, or the power failed.
    """
    begins = True
    for chunk in chunks:
        if b"\0" in chunk:
            size = len(chunk)
            chunk = re.sub(rb"(^|\n)\0+" if begins else rb"(\n)\0+", rb"\1", chunk)
            holes.size += size - len(chunk)
        if chunk:
            begins = chunk.endswith(b"\n")
            yield chunk


def line_ends(pieces: Iterator[tuple[bytes, bool]], apart: Apart) -> Iterator[bytes]:
    """Chunks of gzip members, with line ends between members where `apart` says that they lack."""
    tail, held = b"", b""
    for chunk, begins in pieces:
        if begins and held:
            # All of a member was not a line.
            held = _joint(tail, held, apart)
            yield held
            tail, held = _open_line(tail, held), b""
        if (begins and tail) or held:
            held += chunk
            if b"\n" not in held and len(held) < MAX_JOINT_BYTES:
                continue
            chunk, held = _joint(tail, held, apart), b""
        yield chunk
        tail = _open_line(tail, chunk)
    if held:
        yield _joint(tail, held, apart)


def _joint(tail: bytes, head: bytes, apart: Apart) -> bytes:
    return b"\n" + head if apart(tail, head.split(b"\n", 1)[0]) else head


def _open_line(before: bytes, chunk: bytes) -> bytes:
    """What follows the last line end."""
    at = chunk.rfind(b"\n")
    return (before + chunk if at < 0 else chunk[at + 1 :])[:MAX_JOINT_BYTES]
