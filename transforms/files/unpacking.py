"""The bytes of files: as they are stored, unpacked, without holes, with the line ends that they lack."""

from __future__ import annotations

import re
import zlib
from collections.abc import Callable, Iterator

from transforms.batches.errors import InputError
from transforms.files.filesystems import FileSystems

HEAD_BYTES = 1 << 16
CHUNK_BYTES = 8 << 20
_GZIP = b"\x1f\x8b"
# Of a line that two members may share, looked at.
MAX_JOINT_BYTES = 1 << 16
Apart = Callable[[bytes, bytes], bool]
"""Whether what ends a gzip member and what begins the next are two lines, with no line end between."""


class Problem:
    """Why a stream of bytes ended early; empty while all is well."""

    reason = ""
    sample = ""


def stored(path: str, size: int = 1 << 20) -> Iterator[bytes]:
    """The bytes of a file as they are stored, `size` at a time."""
    with FileSystems.open(path) as f:
        while chunk := f.read(size):
            yield chunk


def gunzip(packed: Iterator[bytes], problem: Problem) -> Iterator[bytes]:
    """Unpack, at most `CHUNK_BYTES` at a time; `problem` says why it ended early."""
    for chunk, _ in members(packed, problem):
        yield chunk


def members(packed: Iterator[bytes], problem: Problem) -> Iterator[tuple[bytes, bool]]:
    """As `gunzip`, with whether a chunk is the first of a gzip member."""
    unpacker = zlib.decompressobj(31)
    data, begins = next(packed, b""), True
    while data:
        try:
            # A limit for each step: what unpacks to a thousand times its size stays bounded, too.
            chunk = unpacker.decompress(data, CHUNK_BYTES)
        except zlib.error as e:
            problem.reason, problem.sample = "unreadable_file", str(e)
            return
        if chunk:
            yield chunk, begins
            begins = False
        data = unpacker.unconsumed_tail
        if unpacker.eof:
            # Files may be several gzip members in a row, padded with zeros.
            data = unpacker.unused_data.lstrip(b"\0") or next(packed, b"").lstrip(b"\0")
            if data:
                unpacker, begins = zlib.decompressobj(31), True
        elif not data:
            data = next(packed, b"")
    if not unpacker.eof and not problem.reason:
        problem.reason, problem.sample = "truncated_file", "the gzip stream ends early"


def heads(path: str) -> tuple[bytes, bytes]:
    """The first bytes of a file as they are stored, and unpacked, without the NULs of a log that was cut."""
    try:
        with FileSystems.open(path) as f:
            head: bytes = f.read(HEAD_BYTES)
        raw = _unpack(head) if is_gzip(head) else head
        text = raw.lstrip(b"\0")
        if len(text) < len(raw):
            chunks = gunzip(stored(path), Problem()) if is_gzip(head) else stored(path)
            text = b""
            for chunk in without_holes(chunks, Holes()):
                text += chunk
                if len(text) >= HEAD_BYTES:
                    break
    except OSError as e:
        raise InputError(f"{path}: cannot be opened: {e}") from None
    return head, text[:HEAD_BYTES]


def head_of(path: str) -> bytes:
    """The first bytes of a file, unpacked."""
    return heads(path)[1]


def _unpack(head: bytes) -> bytes:
    text = b""
    while head and len(text) < HEAD_BYTES:
        unpacker = zlib.decompressobj(31)
        try:
            text += unpacker.decompress(head, HEAD_BYTES)
        except zlib.error:
            break
        head = unpacker.unused_data.lstrip(b"\0")
    return text


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


def is_gzip(head: bytes) -> bool:
    """Whether the bytes begin as gzip does."""
    return head.startswith(_GZIP)
