"""The bytes of an Arrow array of texts, as 8-byte words of its own buffers.

One text is a sequence of 8-byte little-endian lanes, the last one padded with zeros.
"""

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

Hashes = NDArray[np.uint64]

ALL_BITS = np.uint64((1 << 64) - 1)
CHUNK_ROWS = 8192
CHUNK_BYTES = 1 << 22
# A longer text is hashed as the hashes of its blocks: else one long row would cost a NumPy call a lane.
LONG_BYTES = 8192


class Texts:
    """The bytes and the offsets behind an Arrow array of texts.

    Attributes
    ----------
    data : uint8 (any,)
        The values buffer, not copied.
    start : int64 (n,)
        First byte of each row in `data`.
    size : int64 (n,)
        Bytes of each row; 0 for a null.
    """

    __slots__ = ("data", "size", "start")

    def __init__(self, array: pa.Array) -> None:
        kind = array.type
        if pa.types.is_string(kind) or pa.types.is_binary(kind):
            width = np.dtype(np.int32)
        elif pa.types.is_large_string(kind) or pa.types.is_large_binary(kind):
            width = np.dtype(np.int64)
        elif pa.types.is_string_view(kind):
            array, width = array.cast(pa.large_string()), np.dtype(np.int64)
        else:
            array, width = array.cast(pa.large_binary()), np.dtype(np.int64)
        _, offsets, data = array.buffers()
        n = len(array)
        self.data = np.frombuffer(data, np.uint8) if data is not None and data.size else np.empty(0, np.uint8)
        if n == 0 or offsets is None or offsets.size == 0:
            self.start = np.zeros(n, np.int64)
            self.size = np.zeros(n, np.int64)
            return
        ends = np.frombuffer(offsets, width, count=n + 1, offset=array.offset * width.itemsize)
        ends = ends.astype(np.int64)
        self.start = ends[:-1]
        self.size = np.diff(ends)
        if array.null_count:
            self.size[np.asarray(array.is_null())] = 0

    def __len__(self) -> int:
        return len(self.start)

    def span(self) -> NDArray[np.uint8]:
        """All bytes from the first row to the last, with whatever lies between rows."""
        if not len(self):
            return self.data[:0]
        return self.data[int(self.start[0]) : int(self.start[-1] + self.size[-1])]

    def first_lanes(self, a: int, b: int) -> Hashes:
        """The first 8 bytes of rows a..b, padded with zeros: uint64 (b - a,)."""
        words, base = self.words(a, b)
        lane = _lanes_at(words, self.start[a:b] - base)
        size = np.minimum(self.size[a:b], 8).astype(np.uint64)
        # NumPy defines a shift by 64 as 0.
        lane &= ALL_BITS >> ((np.uint64(8) - size) << np.uint64(3))
        return lane

    def chunks(self) -> list[tuple[int, int]]:
        """Ranges of rows of at most `CHUNK_ROWS` rows and about `CHUNK_BYTES` bytes, one row at least."""
        n, out, a = len(self), [], 0
        while a < n:
            b = min(a + CHUNK_ROWS, n)
            if self.start[b - 1] + self.size[b - 1] - self.start[a] > CHUNK_BYTES:
                limit = self.start[a] + CHUNK_BYTES
                b = a + max(1, int(np.searchsorted(self.start[a:b] + self.size[a:b], limit, side="right")))
            out.append((a, b))
            a = b
        return out

    def matrix(self, a: int, b: int) -> Hashes | None:
        """Rows a..b as a matrix of lanes, if all have one size, a multiple of 8, and follow each other."""
        size = int(self.size[a])
        if not 0 < size <= LONG_BYTES or size & 7:
            return None
        start, n = int(self.start[a]), b - a
        if self.start[b - 1] - start != size * (n - 1) or (self.size[a:b] != size).any():
            return None
        # A copy is aligned and much cheaper than to shift every lane into place.
        return self.data[start : start + size * n].copy().view("<u8").reshape(n, size >> 3)

    def words(self, a: int, b: int) -> tuple[Hashes, int]:
        """Aligned 8-byte words that hold every byte of rows a..b, and the byte where they begin."""
        low = int(self.start[a])
        high = max(low, int(self.start[b - 1] + self.size[b - 1]))
        data = self.data
        whole = len(data) >> 3
        if high <= whole << 3 and whole and data.ctypes.data & 7 == 0:
            return data[: whole << 3].view("<u8"), 0
        # The last bytes of a buffer need not fill a word; reading past its end is not allowed.
        base = low & ~7
        padded = np.zeros(max(1, (high - base + 7) >> 3), "<u8")
        padded.view(np.uint8)[: high - base] = data[base:high]
        return padded, base


def _lanes_at(words: Hashes, at: NDArray[np.int64]) -> Hashes:
    """The 8 bytes from each position on; bytes past the end of `words` are undefined."""
    index = at >> 3
    shift = ((at & 7) << 3).astype(np.uint64)
    low = np.take(words, index, mode="clip")
    index += 1
    high = np.take(words, index, mode="clip")
    # NumPy defines a shift by 64 as 0.
    return (low >> shift) | (high << (np.uint64(64) - shift))
