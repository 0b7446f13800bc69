"""Text of any encoding as UTF-8, in a stream: for files that other people wrote.

What a file's first bytes show counts before what it declares. A declaration that could not have been read if
it were true is wrong: such files are taken as UTF-8.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterator

from transforms.files.unpacking import Problem

_BOMS = (
    (codecs.BOM_UTF8, "utf-8"),
    # Before those of UTF-16, with which one of them begins.
    (codecs.BOM_UTF32_LE, "utf-32-le"),
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
# Where the zeros are in two characters of ASCII.
_ZEROS = (
    (re.compile(rb"(?:[\t-~]\0\0\0){2}"), "utf-32-le"),
    (re.compile(rb"(?:\0\0\0[\t-~]){2}"), "utf-32-be"),
    (re.compile(rb"(?:[\t-~]\0){2}"), "utf-16-le"),
    (re.compile(rb"(?:\0[\t-~]){2}"), "utf-16-be"),
)
_DECLARED = re.compile(rb"""<\?xml\s[^>]{0,200}?\bencoding\s*=\s*["']([A-Za-z][\w.:-]{0,60})["']""", re.ASCII)
# Names that sites use and Python does not know.
_ALIASES = {
    "x-sjis": "cp932",
    "windows-31j": "cp932",
    "x-gbk": "gb18030",
    "x-euc-jp": "euc_jp",
    "windows-949": "cp949",
}
# Sites that declare the old standard write its later additions as well.
_WIDER = {
    "shift_jis": "cp932",
    "euc_kr": "cp949",
    "gb2312": "gb18030",
    "gbk": "gb18030",
    "big5": "cp950",
    "ascii": "utf-8",
}
# No encodings of files; some of them take time that grows with the square of the length.
_NEVER = {"idna", "punycode", "unicode-escape", "raw-unicode-escape", "undefined", "utf-7", "mbcs", "oem"}


def find_codec(head: bytes, blank: bytes) -> tuple[str, int]:
    """Tell the encoding of a file.

    Parameters
    ----------
    head : bytes
        Its beginning.
    blank : bytes
        Bytes that may come before an XML declaration.

    Returns
    -------
    codec : str
        Name of a Python codec; "utf-8" where nothing says otherwise.
    skip : int
        Length of the byte order mark.

    Raises
    ------
    LookupError
        If the declared encoding is none that Python can read.
    """
    for mark, codec in _BOMS:
        if head.startswith(mark):
            return codec, len(mark)
    for zeros, codec in _ZEROS:
        if zeros.match(head):
            return codec, 0
    declared = _DECLARED.match(head.lstrip(blank)[:1000])
    if declared is None:
        return "utf-8", 0
    name = declared[1].decode("ascii").lower()
    try:
        info = codecs.lookup(_ALIASES.get(name, name))
    except (LookupError, ValueError):
        raise LookupError(f"the encoding {name} is not known") from None
    if info.name.replace("_", "-") in _NEVER or not info._is_text_encoding or info.incrementaldecoder is None:
        raise LookupError(f"{name} is no encoding of files")
    try:
        is_true = info.decode(declared[0])[0] == declared[0].decode("ascii")
    except ValueError:
        is_true = False
    return (_WIDER.get(info.name, info.name) if is_true else "utf-8"), 0


def to_utf8(content: Iterator[bytes], codec: str, problem: Problem) -> Iterator[bytes]:
    """The content as UTF-8, up to the first byte that is not of the codec; `problem` says why it ended."""
    decoder = codecs.getincrementaldecoder(codec)()
    for chunk in content:
        before = decoder.getstate()
        try:
            text = decoder.decode(chunk).encode()
        except ValueError as e:
            decoder.setstate(before)
            yield _sound(decoder, chunk)
            problem.reason, problem.sample = "unreadable_file", f"not {codec}: {e}"[:200]
            return
        if text:
            yield text
    if problem.reason:  # cut already
        return
    try:
        text = decoder.decode(b"", final=True).encode()
    except ValueError as e:
        problem.reason, problem.sample = "truncated_file", f"not {codec} at the end: {e}"[:200]
        return
    if text:
        yield text


def _sound(decoder: codecs.IncrementalDecoder, chunk: bytes) -> bytes:
    """What comes before a defect."""
    parts: list[bytes] = []
    try:
        for i in range(len(chunk)):
            parts.append(decoder.decode(chunk[i : i + 1]).encode())
    except ValueError:
        pass
    return b"".join(parts)
