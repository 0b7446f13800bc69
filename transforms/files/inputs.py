"""Which files an input pattern means, and what kind of file each one is."""

from __future__ import annotations

import functools
import glob
import logging
import os
import re
import stat
from collections.abc import Collection
from concurrent.futures import ThreadPoolExecutor
from fnmatch import fnmatchcase
from pathlib import PurePosixPath

from transforms.batches.errors import FolderError, InputError, NotLinesError, UnreadableError
from transforms.files.filesystems import GLOB, FileSystems, InputFile, local_path, walked
from transforms.files.unpacking import head_of, is_gzip

FORMATS = {
    ".parquet": "parquet",
    ".pq": "parquet",
    ".avro": "avro",
    ".jsonl": "jsonl",
    ".jsonlines": "jsonl",
    ".jl": "jsonl",
    ".ndjson": "jsonl",
    ".json": "jsonl",
    ".csv": "csv",
    ".tsv": "csv",
}
# Of --sitemaps; the ending says nothing else.
SITEMAPS = (".xml", ".txt", ".rss", ".atom", ".rdf")
# In folders, beside `FORMATS`: indexes of archives, logs of crawlers and servers, exports of Search Console,
# robots.txt.
ALSO = {"observations": (".cdx", ".cdxj", ".log"), "requests": (".log", ".zip"), "hosts": (".txt",)}
ALSO["files"] = tuple(sorted({*SITEMAPS, *(ending for endings in ALSO.values() for ending in endings)}))
ALSO["links"] = ALSO["links_seen"] = (".log", ".wat")
# Of a log that goes on in a new file: crawl.log.20260701000000, access.log-20260701.gz, access_log.1.
_ROTATED = re.compile(r".+[._]log[.-](?:cp)?\d[\w-]*(?:\.gz)?", re.IGNORECASE)
# Of what Hadoop writes, such as dumps of Nutch.
_PART = re.compile(r"part-(?:[mr]-)?\d{5}")
MATCH_THREADS = 16
_LOG = logging.getLogger(__name__)
_LISTED, _CHOICES = re.compile(r"(?:\{[^{}]*\}|[^,])+"), re.compile(r"\{([^{}]*,[^{}]*)\}")
_BOM = b"\xef\xbb\xbf"
# What else packs files: how it begins, its name, and what unpacks it.
_OLD_SHEET, _SHEETS = b"\xd0\xcf\x11\xe0", (b"[Content_Types].xml", b"vnd.oasis.opendocument")
_PACKERS = (
    (b"BZh", "bzip2", "bunzip2"),
    (b"\xfd7zXZ\0", "xz", "unxz"),
    (b"\x28\xb5\x2f\xfd", "zstd", "unzstd"),
    (b"\x04\x22\x4d\x18", "lz4", "unlz4"),
    (b"\xff\x06\0\0sNaPpY", "snappy", "snzip -d"),
    (b"\x1f\x9d", "compress", "uncompress"),
    (b"7z\xbc\xaf\x27\x1c", "7-Zip", "7z e"),
    (b"PK\x03\x04", "zip", "unzip"),
)
# An object that goes on behind the line it begins on.
_SPREAD_JSON = re.compile(rb'[\s\[]*\{[ \t]*\r?\n\s*"')


def split_patterns(patterns: str) -> list[str]:
    """The globs of a comma-separated list; `{a,b}` in one stands for two, as in shells."""
    return [q for p in _LISTED.findall(patterns) if p.strip() for q in _spread(p.strip())]


def _spread(pattern: str) -> list[str]:
    found = _CHOICES.search(pattern)
    if found is None:
        return [pattern]
    ends = pattern[: found.start()], pattern[found.end() :]
    return [p for choice in found[1].split(",") for p in _spread(f"{ends[0]}{choice}{ends[1]}")]


def match_files(
    patterns: str, option: str = "input", required: bool = True, named: bool = True
) -> list[InputFile]:
    """All files of a comma-separated list of globs, folders and paths, in order of their names, each once.

    A folder stands for the data files in it (known endings and logs that were rotated, at any depth); of
    others a warning is logged, once. Names of files and folders that begin with `_` or `.` are skipped there
    and where a wildcard matches them; what is written out is taken as is. Of a file and the same one packed,
    one is read. Errors name the option, unless `named` is false: then `option` only says what files are for.

    Raises
    ------
    InputError
        If a pattern of a required input matches nothing, or a folder has no data file.
    """
    found: dict[str, InputFile] = {}
    prefix = f"--{option}: " if named else ""
    wanted = split_patterns(patterns)
    # A list of thousands of files is as many questions to an object store.
    known = SITEMAPS if option == "sitemaps" else tuple(sorted([*FORMATS, *ALSO.get(option, ())]))
    with ThreadPoolExecutor(MATCH_THREADS) as pool:
        matched = list(pool.map(lambda p: _match(p, known), wanted))
    for pattern, files in zip(wanted, matched, strict=True):
        if not files and (required or not GLOB.search(pattern)):
            what = "no data file in this folder" if _is_folder(pattern) else "no file matches"
            endings = ", ".join(known)
            if GLOB.search(pattern) and any(map(os.path.isdir, glob.glob(pattern))):
                raise InputError(f"{prefix}only folders match {pattern}: give their files, {pattern}/*")
            raise InputError(f"{prefix}{what}: {pattern} (data files end in {endings}, with or without .gz)")
        for file in files:
            found.setdefault(identity(file.path), file)
    if required and not found:
        raise InputError(f"{prefix}no pattern given")
    return sorted(_once(found.values()), key=lambda file: file.path)


def _once(files: Collection[InputFile]) -> list[InputFile]:
    """Without those that are there packed and as they were: between the two steps of a rotation, say."""
    by_path = {file.path: file for file in files}
    for file in files:
        packed = by_path.get(f"{file.path}.gz")
        if packed is None or not file.size:
            continue
        begins, packed_begins = head_of(file.path), head_of(packed.path)
        size = min(len(begins), len(packed_begins))
        if begins[:size] == packed_begins[:size]:
            # Who packs removes the file at the end; who unpacks has begun only if it is shorter.
            shorter, other = (packed, file) if file.size >= len(packed_begins) else (file, packed)
            del by_path[shorter.path]
            _tell_twice(other.path, shorter.path)
    return list(by_path.values())


def identity(path: str) -> str:
    """The same for every spelling of one local file, so that none is read twice."""
    local = local_path(path)
    return path if local is None else os.path.realpath(local)


def _is_folder(pattern: str) -> bool:
    return pattern.endswith("/") or os.path.isdir(pattern)


def _match(pattern: str, known: tuple[str, ...]) -> list[InputFile]:
    folder = _is_folder(pattern)
    if os.path.isfile(pattern):  # as is, though its name may look like a glob
        return [InputFile(pattern, os.path.getsize(pattern), os.path.getmtime(pattern))]
    is_glob = bool(GLOB.search(pattern))
    files = list_files(pattern.rstrip("/") + "/**" if folder else pattern)
    if not files and not folder and not is_glob:
        # Object stores have no folders: a prefix is one if something lies under it.
        files, folder = list_files(pattern + "/**"), True
    if folder:
        base = pattern.rstrip("/") + "/"
        inside = [(f, f.path[len(base) :] if f.path.startswith(base) else f.path) for f in files]
        data = [f for f, path in inside if _is_data(path, known)]
        others = [path for _, path in inside if not _is_data(path, known)]
        if data and others:
            _tell(pattern, len(others), ", ".join(sorted(others)[:3]), ", ".join(known))
        return data
    return files


def list_files(pattern: str) -> list[InputFile]:
    """All files that a glob matches, but for hidden ones and what is in hidden folders.

    Raises
    ------
    FolderError
        If a folder cannot be read in which files might match.
    """
    # The folder before the first wildcard is listed, and the one that a job works in has no name there.
    if local_path(pattern) == pattern and not os.path.dirname(GLOB.split(pattern)[0]):
        pattern = os.path.join(".", pattern)

    def fail(error: OSError) -> None:
        if not isinstance(error, FileNotFoundError | NotADirectoryError):
            raise FolderError(
                f"{error.filename or pattern}: cannot be read: {error.strerror}. There may be files that "
                f"{pattern} means: give the right to read it, or patterns that leave it out"
            )

    if local_path(pattern) == pattern:
        found = walked(pattern, lambda folder: not _is_own(folder, pattern), fail)
    else:
        found = FileSystems.match(pattern)
    return [
        file
        for file in found
        if not _is_own(file.path, pattern) and not file.path.endswith("/") and not os.path.isdir(file.path)
    ]


def _is_own(path: str, pattern: str) -> bool:
    """Whether a file is one of a job or a tool, of no concern to others: copies, and what is half written."""
    # A folder such as day=3 or year=2026 is a partition; one that begins with _ or . is not.
    base = GLOB.split(pattern)[0].rpartition("/")[0]

    def hidden(of: str) -> list[str]:
        parts = PurePosixPath(of.removeprefix(base)).parts
        return [part for part in parts if part.startswith(("_", "."))]

    written = hidden(pattern)
    return any(not any(fnmatchcase(part, one) for one in written) for part in hidden(path))


def _is_data(inside: str, known: tuple[str, ...]) -> bool:
    """Whether a file of a folder, by its path inside it, is one to read."""
    name = PurePosixPath(inside).name
    return (
        _ending(name) in known
        or _PART.fullmatch(name) is not None
        or (".log" in known and _ROTATED.fullmatch(name) is not None)
    )


@functools.cache
def _tell(folder: str, n: int, some: str, known: str) -> None:
    _LOG.warning(
        "%s: not read, by their names: %d files (%s). Data files there end in %s, with or without .gz; "
        "give others by a path or a glob",
        folder,
        n,
        some,
        known,
    )


@functools.cache
def _tell_twice(path: str, other: str) -> None:
    _LOG.warning("%s is the same as %s, as far as they go: only the former is read", path, other)


def _ending(path: str) -> str:
    return PurePosixPath(path.removesuffix(".gz")).suffix.lower()


def _by_name(path: str) -> str | None:
    return FORMATS.get(_ending(path))


def check_file(path: str) -> None:
    """Refuse what has no size, and would pass for an empty file: files are looked at before they are read.

    Raises
    ------
    UnreadableError
    """
    local = local_path(path)
    if local is None or local == os.devnull or not os.path.exists(local):
        return
    if not stat.S_ISREG(os.stat(local).st_mode):
        raise UnreadableError(f"{path}: a pipe or a device, expected a file. Write what comes from it to one")


def check_text(path: str, text: bytes) -> None:
    """Refuse what is no UTF-8 from its first byte on, or packed twice: each line of it would be rejected.

    Parameters
    ----------
    path : str
    text : bytes
        The first bytes, unpacked.

    Raises
    ------
    UnreadableError
    """
    # Sitemaps, which begin with a bracket, may be of any encoding.
    if text.startswith((b"\xff\xfe", b"\xfe\xff")) and b"<" not in text[:16]:
        raise UnreadableError(
            f"{path}: UTF-16 text, expected UTF-8. Convert the file: iconv -f UTF-16 -t UTF-8 FILE"
        )
    if is_gzip(text):
        raise UnreadableError(f"{path}: packed by gzip twice. Unpack it once: gzip -dc FILE")


def sniff(path: str, head: bytes, text: bytes) -> str:
    """The format of a file: parquet, avro, jsonl or csv.

    Parameters
    ----------
    path : str
    head : bytes
        Its first bytes as stored.
    text : bytes
        Its first bytes, unpacked.

    Raises
    ------
    InputError
        If neither the bytes nor the name say what it is.
    """
    # What a file holds counts more than its name.
    if head.startswith(b"PAR1"):
        return "parquet"
    if head.startswith(b"Obj\x01"):
        return "avro"
    if head.startswith(_OLD_SHEET) or (head.startswith(b"PK") and any(mark in head for mark in _SHEETS)):
        raise UnreadableError(f"{path}: a spreadsheet, expected a table of text. Save it as CSV UTF-8")
    for begins, packer, command in _PACKERS:
        if head.startswith(begins) or text.startswith(begins):
            raise UnreadableError(
                f"{path}: packed by {packer}, expected gzip or nothing. Unpack it: {command} FILE"
            )
    named = _by_name(path)
    if named:
        return named
    text = text.removeprefix(_BOM).lstrip()
    if text.startswith((b"{", b"[")):
        return "jsonl"
    if text.startswith(b"<"):
        raise InputError(f"{path}: this is XML or HTML; give sitemaps and feeds to --sitemaps")
    first = text.split(b"\n", 1)[0]
    if b"," in first or (b"//" not in first and (b";" in first or b"\t" in first)):
        return "csv"
    raise InputError(f"{path}: not Parquet, Avro, JSON Lines or CSV by its name or its first bytes")


def check_lines(path: str, text: bytes) -> None:
    """Refuse JSON that is laid out for people: each of its lines would be rejected.

    Parameters
    ----------
    path : str
    text : bytes
        The first bytes, unpacked.

    Raises
    ------
    NotLinesError
    """
    if _SPREAD_JSON.match(text.removeprefix(_BOM)):
        array = text.removeprefix(_BOM).lstrip().startswith(b"[")
        what = ".[]" if array else ".hits.hits[]" if b'"hits"' in text else "."
        raise NotLinesError(
            f"{path}: one JSON object on many lines, expected one a line. Rewrite it: jq -c '{what}' FILE"
        )
