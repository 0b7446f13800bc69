"""A stable 64-bit hash of texts, read straight from the buffers of an Arrow array.

The hash is the same on every machine, Python and night, and for every way of cutting a column into
batches: it depends on the bytes of one value and on nothing else. One text is a sequence of 8-byte
little-endian lanes, the last one padded with zeros; a lane is mixed in by one round of xxHash64 (multiply,
add, rotate, multiply), the length and that hash's final avalanche close it. It is not keyed: it spreads
rows, it does not defend against somebody who searches for collisions.

The loop runs over lanes and is vectorised over rows, a few thousand rows at a time so that they stay in
the cache. Rows are ordered by their number of lanes, so lane `k` works on a shrinking prefix of rows.
"""

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from transforms.batches.texts import ALL_BITS, CHUNK_ROWS, LONG_BYTES, Hashes, Texts

# Multipliers of xxHash64.
_P1 = np.uint64(0x9E3779B185EBCA87)
_P2 = np.uint64(0xC2B2AE3D27D4EB4F)
_P3 = np.uint64(0x165667B19E3779F9)
_P4 = np.uint64(0x85EBCA77C2B2AE63)
_P5 = np.uint64(0x27D4EB2F165667C5)
_MASK = (1 << 64) - 1

# Of longer texts than `LONG_BYTES`.
BLOCK_BYTES = 4096

# What is hashed of texts besides their authorities.
_WHOLE, _PAGE, _NONE = range(3)

_ONES = np.uint64(0x0101010101010101)
_HIGH = np.uint64(0x8080808080808080)
_LOWER = np.uint64(0x2020202020202020)
_HTTPS = np.uint64(int.from_bytes(b"https://", "little"))
_HTTP = np.uint64(int.from_bytes(b"http://", "little"))
_SEVEN = np.uint64((1 << 56) - 1)


def stable_hash(text: str | bytes) -> int:
    """The hash of one text, equal to that of `hash_texts` for the same bytes.

    Parameters
    ----------
    text : str or bytes
        A `str` is encoded as UTF-8.

    Returns
    -------
    int
        0 <= hash < 2**64.
    """
    raw = text.encode("utf-8", "surrogatepass") if isinstance(text, str) else bytes(text)
    size = len(raw)
    if size > LONG_BYTES:
        blocks = (raw[i : i + BLOCK_BYTES] for i in range(0, size, BLOCK_BYTES))
        inner = stable_hash(b"".join(stable_hash(b).to_bytes(8, "little") for b in blocks))
        return _avalanche_int(inner ^ (size * int(_P4) & _MASK))
    state = int(_P5)
    for i in range(0, size, 8):
        state = (state + int.from_bytes(raw[i : i + 8], "little") * int(_P2)) & _MASK
        state = (state << 31 | state >> 33) & _MASK
        state = state * int(_P1) & _MASK
    return _avalanche_int(state ^ (size * int(_P4) & _MASK))


def _avalanche_int(h: int) -> int:
    h = (h ^ h >> 33) * int(_P2) & _MASK
    h = (h ^ h >> 29) * int(_P3) & _MASK
    return h ^ h >> 32


def _finish(state: Hashes, size: NDArray[np.integer]) -> Hashes:
    """Close the states, in place."""
    spare = size.astype(np.uint64)
    spare *= _P4
    state ^= spare
    np.right_shift(state, np.uint64(33), out=spare)
    state ^= spare
    state *= _P2
    np.right_shift(state, np.uint64(29), out=spare)
    state ^= spare
    state *= _P3
    np.right_shift(state, np.uint64(32), out=spare)
    state ^= spare
    return state


def _round(state: Hashes, lane: Hashes, spare: Hashes) -> None:
    """Mix a lane into the state, both in place."""
    np.multiply(lane, _P2, out=lane)
    _mix(state, lane, spare)


def _mix(state: Hashes, lane: Hashes, spare: Hashes) -> None:
    """The rest of a round, once the lane is multiplied."""
    np.add(state, lane, out=state)
    np.right_shift(state, np.uint64(33), out=spare)
    np.left_shift(state, np.uint64(31), out=state)
    np.bitwise_or(state, spare, out=state)
    np.multiply(state, _P1, out=state)


def hash_texts(array: pa.Array) -> Hashes:
    """Hash every value of an Arrow array of strings or binaries.

    Parameters
    ----------
    array : pa.Array of n values
        string, large_string, binary or large_binary, at any offset; other types are cast to binary. Bytes
        need not be UTF-8.

    Returns
    -------
    uint64 (n,)
        Nulls hash as the empty text.
    """
    if pa.types.is_dictionary(array.type):
        codes = array.indices.fill_null(0).to_numpy(zero_copy_only=False)
        words = hash_texts(array.dictionary)
        out = words[codes] if len(words) else np.full(len(array), stable_hash(b""), np.uint64)
        if array.indices.null_count:
            out[np.asarray(array.indices.is_null())] = stable_hash(b"")
        return out
    return _hash(Texts(array), False)[0]


def hash_texts_and_prefixes(texts: Texts) -> tuple[Hashes, Hashes]:
    """Hash URLs, and their prefixes that end with the authority.

    Returns
    -------
    uint64 (n,), uint64 (n,)
        The second is `stable_hash(url[:end])`, where `end` is the first `/` or `?` after an `http://` or
        `https://` (in any case) and at least one byte more. A URL without that form has its whole hash.
    """
    return _hash(texts, True)


def hash_prefixes(texts: Texts) -> tuple[Hashes, Hashes]:
    """As `hash_texts_and_prefixes`, but zeros for the first: most rows are read to their authority's end."""
    return _hash(texts, True, _NONE)


def hash_pages(texts: Texts) -> tuple[Hashes, Hashes]:
    """As `hash_texts_and_prefixes`, but the first is of what follows `https://`.

    It is 0 where a URL does not begin so, in lower case, or has nothing behind its authority.
    """
    return _hash(texts, True, _PAGE)


def _hash(texts: Texts, authorities: bool, of: int = _WHOLE) -> tuple[Hashes, Hashes]:
    n = len(texts)
    out = np.zeros(n, np.uint64)
    prefix = np.empty(n if authorities else 0, np.uint64)
    chunk = _Chunk(min(n, CHUNK_ROWS), authorities, of)
    for a, b in texts.chunks():
        rows = slice(a, b)
        size = texts.size[rows]
        long = np.flatnonzero(size > LONG_BYTES)
        if len(long):
            size = size.copy()
            size[long] = 0
        dense = None if authorities else texts.matrix(a, b)
        if dense is not None:
            out[rows] = chunk.hash_matrix(dense)
            continue
        words, base = texts.words(a, b)
        at = texts.start[rows] - base if base else texts.start[rows]
        chunk.hash(words, at, size, out[rows], prefix[rows])
        if len(long):
            hashes = _hash_long(texts, a + long)
            if of == _WHOLE:
                out[a + long] = hashes
            if authorities:
                prefix[a + long] = hashes
    return out, prefix


def _hash_long(texts: Texts, rows: NDArray[np.int64]) -> Hashes:
    """Hash rows of more than `LONG_BYTES`: the hash of their blocks' hashes, mixed with the size."""
    out = np.empty(len(rows), np.uint64)
    for j, row in enumerate(rows):
        start, size = int(texts.start[row]), int(texts.size[row])
        blocks = Texts.__new__(Texts)
        blocks.data = texts.data
        blocks.start = np.arange(start, start + size, BLOCK_BYTES, dtype=np.int64)
        blocks.size = np.minimum(start + size - blocks.start, BLOCK_BYTES)
        inner = Texts.__new__(Texts)
        inner.data = _hash(blocks, False)[0].astype("<u8").view(np.uint8)
        inner.start = np.zeros(1, np.int64)
        inner.size = np.array([len(inner.data)])
        out[j] = _hash(inner, False)[0][0]
    return _finish(out, texts.size[rows])


class _Chunk:
    """Hashes chunks of rows, in arrays that are made once: fresh ones would cost more than the arithmetic."""

    def __init__(self, rows: int, authorities: bool, of: int) -> None:
        self.wide = [np.empty(rows, np.uint64) for _ in range(15)]
        self.index = [np.empty(rows, np.int64) for _ in range(4)]
        self.authorities, self.of = authorities, of

    def hash_matrix(self, lanes: Hashes) -> Hashes:
        """Hash rows of one size, a multiple of 8 bytes: uint64 (n, size / 8) to (n,), a scratch array."""
        n, last = lanes.shape
        lane, spare, state = (a[:n] for a in self.wide[:3])
        state.fill(_P5)
        for k in range(last):
            np.multiply(lanes[:, k], _P2, out=lane)
            _mix(state, lane, spare)
        return _finish(state, np.full(n, 8 * last))

    def hash(
        self, words: Hashes, at: NDArray[np.int64], size: NDArray[np.int64], out: Hashes, prefix: Hashes
    ) -> None:
        """Hash `len(at)` rows of at most `LONG_BYTES` into `out` and, where asked for, `prefix`."""
        n = len(at)
        right, left, tail, state, page, lane, spare, head, following, *more = (a[:n] for a in self.wide)
        index, bits, starts, sizes = (a[:n] for a in self.index)
        np.add(size, 7, out=index)
        index >>= 3
        last = int(index.max(initial=0))
        np.subtract(last, index, out=index)
        order = index.astype(np.uint16).argsort(kind="stable")
        # active[k] rows have more than k lanes; they are the first ones.
        active = (n - np.bincount(index, minlength=last + 1)[::-1].cumsum()).tolist()
        at.take(order, mode="clip", out=starts)
        size.take(order, mode="clip", out=sizes)
        np.bitwise_and(starts, 7, out=bits)
        bits <<= 3
        np.copyto(right, bits, casting="unsafe")
        np.subtract(64, bits, out=bits)
        np.copyto(left, bits, casting="unsafe")
        np.negative(sizes, out=bits)
        bits &= 7
        bits <<= 3
        np.copyto(tail, bits, casting="unsafe")
        np.right_shift(ALL_BITS, tail, out=tail)
        np.right_shift(starts, 3, out=index)
        words.take(index, mode="clip", out=following)
        state.fill(_P5)
        page.fill(_P5)
        authority = _Authorities(more, state) if self.authorities else None
        for k in range(last):
            m, done = active[k], active[k + 1]
            x, t, s = lane[:m], spare[:m], state[:m]
            head, following = following, head
            w, i = following[:m], index[:m]
            i += 1
            words.take(i, mode="clip", out=w)
            np.right_shift(head[:m], right[:m], out=x)
            # NumPy defines a shift by 64 as 0, so an aligned lane takes nothing from the next word.
            np.left_shift(w, left[:m], out=t)
            x |= t
            x[done:] &= tail[done:m]
            if authority is not None and not authority.closed:
                authority.see(k, x, s)
            ended = authority is not None and authority.closed and authority.all_ended
            if ended and self.of == _NONE:
                break
            np.multiply(x, _P2, out=x)
            if not ended or self.of == _WHOLE:
                _mix(s, x, t)
            if k and self.of == _PAGE:
                _mix(page[:m], x, t)
        if authority is not None:
            prefix[order] = authority.finish(state, sizes)
        if self.of == _WHOLE:
            out[order] = _finish(state, sizes)
        elif self.of == _PAGE and authority is not None:
            out[order] = np.where(authority.usual, _finish(page, sizes - 8), np.uint64(0))


class _Authorities:
    """Follows the lanes of one chunk and keeps the state of the hash where each authority ends."""

    def __init__(self, scratch: list[Hashes], state: Hashes) -> None:
        self.one, self.two, self.three, self.four, self.five, self.six = scratch
        self.closed = False
        self.all_ended = True  # once closed: no row needs the hash of more than its authority
        self.open = np.empty(0, np.intp)
        self.secure, self.usual = (np.zeros(len(state), np.bool_) for _ in range(2))
        self.rows: list[NDArray[np.intp]] = []
        self.states: list[Hashes] = []
        self.sizes: list[NDArray[np.int64]] = []

    def see(self, k: int, lane: Hashes, state: Hashes) -> None:
        """Look for ends in lane `k`; `state` is the hash of the lanes before it."""
        if k == 0:
            self._begin(lane)
            return
        rows = self.open
        # Rows are ordered by length: those that have run out of lanes stay as they are.
        whole = len(rows) == len(lane) and rows[-1] == len(lane) - 1
        if not whole:
            rows = rows[rows < len(lane)]
        n = len(rows)
        self.closed = n == 0
        if self.closed:
            return
        seen = lane if whole else lane.take(rows, mode="clip", out=self.one[:n])
        # `/` and `?` differ in bit 4 only. The usual test for a zero byte, exact up to the first one. A
        # `#` may stay in the prefix: the URL library cuts it.
        x, end = self.two[:n], self.three[:n]
        np.bitwise_or(seen, np.uint64(0x1010101010101010), out=x)
        x ^= np.uint64(0x3F3F3F3F3F3F3F3F)
        np.subtract(x, _ONES, out=end)
        np.invert(x, out=x)
        end &= x
        end &= _HIGH
        some = end != 0
        hit = some.nonzero()[0]
        if not len(hit):
            return
        self.open = rows.compress(~some)
        self._close(k, rows, hit, end, seen, state)

    def _close(
        self,
        k: int,
        rows: NDArray[np.intp],
        hit: NDArray[np.intp],
        ends: Hashes,
        seen: Hashes,
        state: Hashes,
    ) -> None:
        h = len(hit)
        rows = rows.take(hit, mode="clip")
        end = ends.take(hit, mode="clip", out=self.four[:h])
        part = seen.take(hit, mode="clip", out=self.five[:h])
        before = state.take(rows, mode="clip", out=self.six[:h])
        if k == 1:
            # https:// and then at once a slash is no authority: the URL library decides on the whole.
            bad = (end & np.uint64(0x80)).astype(np.bool_)
            bad &= self.secure.take(rows)
            if bad.any():
                self.all_ended = False
                rows, end, part, before = rows[~bad], end[~bad], part[~bad], before[~bad]
                h = len(rows)
        # All bytes below the first terminator.
        mask = np.subtract(np.uint64(0), end, out=self.two[:h])
        mask &= end
        mask >>= np.uint64(7)
        mask -= np.uint64(1)
        part &= mask
        mixed = before.copy()
        _round(mixed, part, self.one[:h])
        np.copyto(mixed, before, where=mask == 0)
        self.rows.append(rows)
        self.states.append(mixed)
        self.sizes.append((np.bitwise_count(mask) >> np.uint8(3)).astype(np.int64) + 8 * k)

    def _begin(self, lane: Hashes) -> None:
        """Rows that begin with https://, or with http:// and an eighth byte of an authority."""
        n = len(lane)
        np.equal(lane, _HTTPS, out=self.usual[:n])
        low = np.bitwise_or(lane, _LOWER, out=self.one[:n])
        secure = self.secure[:n]
        np.equal(low, _HTTPS, out=secure)
        low &= _SEVEN
        good = low == _HTTP
        eighth = np.right_shift(lane, np.uint64(56), out=self.two[:n])
        good &= eighth != np.uint64(ord("/"))
        good &= eighth != np.uint64(ord("?"))
        good |= secure
        self.open = good.nonzero()[0]
        self.all_ended = len(self.open) == n

    def finish(self, state: Hashes, size: NDArray[np.int64]) -> Hashes:
        """The hashes of the prefixes; whole texts where no authority ended."""
        out, sizes, ended = self.one[: len(state)], size.copy(), np.zeros(len(state), np.bool_)
        np.copyto(out, state)
        for rows, some, those in zip(self.rows, self.states, self.sizes, strict=True):
            out[rows] = some
            sizes[rows], ended[rows] = those, True
        self.usual &= ended
        return _finish(out, sizes)
