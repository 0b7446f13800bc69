"""Files on this machine as Beam's own file systems have them, without Beam."""

from __future__ import annotations

import itertools
import re
from pathlib import Path

import pytest
from apache_beam.io.filesystem import FileSystem
from apache_beam.io.filesystems import FileSystems as OfBeam

from transforms.files.filesystems import FileSystems, local_path, translate

NAMES = ("a", "b.csv", "ab", "[a]", "^", "a]b", "x\ny", "a\\b")
PATTERNS = (
    "*", "**", "?", "a*", "*b", "**/b.csv", "x/*", "x/**", "x/*/b.csv", "[ab]", "[!a]*", "[^a]", "[]a]",
    "[!]a]", "[a", "a[", "*.csv", "x/a?b", "{a,b}", "a+b", "(a|b)", "[a-c]*", "[!", "[a\\]", "$", ".", "x\ny",
)  # fmt: skip
TREE = ("b.csv", "x/b.csv", "x/a", "x/y/b.csv", ".hidden/b.csv")


def test_globs_mean_what_they_mean_to_beam() -> None:
    paths = [*NAMES, *(f"x/{name}" for name in NAMES), *(f"x/y/{name}" for name in NAMES), "", "{a,b}", "a+b"]
    agreed = 0
    for pattern, path in itertools.product(PATTERNS, paths):
        theirs = re.match(FileSystem.translate_pattern(pattern), path) is not None
        ours = re.fullmatch(translate(pattern), path, re.DOTALL) is not None
        assert ours == theirs, (pattern, path)
        agreed += ours
    assert agreed > 80


@pytest.mark.parametrize("pattern", ["*.csv", "*/b.csv", "**", "x/**.csv", "x/y/b.csv", "x/?", "none/*"])
def test_the_same_files_match(pattern: str, tmp_path: Path) -> None:
    for name in TREE:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(b"12345")
    whole = f"{tmp_path}/{pattern}"
    theirs = OfBeam.match([whole])[0].metadata_list
    ours = FileSystems.match(whole)
    assert sorted((f.path, f.size) for f in ours) == sorted((f.path, f.size_in_bytes) for f in theirs)
    assert {f.path: f.modified for f in ours} == {f.path: f.last_updated_in_seconds for f in theirs}


def test_files_are_written_moved_and_removed(tmp_path: Path) -> None:
    first, last = f"{tmp_path}/a/b/one", f"{tmp_path}/a/[two]*"
    with FileSystems.create(first) as file:
        file.write(b"x")
    Path(last).write_bytes(b"old")
    (tmp_path / "a" / "two").write_bytes(b"not meant")
    FileSystems.rename([first], [last])
    with FileSystems.open(last) as file:
        assert file.read() == b"x"
    assert not FileSystems.exists(first)
    FileSystems.delete([last])  # a name, and no glob
    assert [p.name for p in (tmp_path / "a").iterdir() if p.is_file()] == ["two"]
    with pytest.raises(FileNotFoundError):
        FileSystems.delete([last])
    with pytest.raises(OSError, match="exist"):
        FileSystems.mkdirs(f"{tmp_path}/a")


def test_other_places_are_those_of_beam() -> None:
    assert FileSystems.join("nowhere", "x") == "nowhere/x" and local_path("nowhere") == "nowhere"
    with pytest.raises(ValueError, match="Unable to get filesystem"):
        FileSystems.check("nowhere://bucket/x")
    assert local_path("nowhere://bucket/x") is None
