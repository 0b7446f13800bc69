"""An object store in memory, as Beam sees one: keys and bytes under `mem://`, no folders, links or locks."""

from __future__ import annotations

import io
from collections.abc import Iterator
from typing import Any, ClassVar

from apache_beam.io.filesystem import BeamIOError, FileMetadata, FileSystem
from apache_beam.io.filesystem import CompressionTypes as Compression


class _Written(io.BytesIO):
    """Appears when it is closed."""

    def __init__(self, path: str) -> None:
        super().__init__()
        self._path = path

    def close(self) -> None:
        if not self.closed:
            MemoryFiles.files[self._path] = self.getvalue()
        super().close()


class MemoryFiles(FileSystem):
    """Beam finds this class by its scheme."""

    files: ClassVar[dict[str, bytes]] = {}
    modified: ClassVar[dict[str, float]] = {}

    @classmethod
    def scheme(cls) -> str:
        return "mem"

    def join(self, basepath: str, *paths: str) -> str:
        return "/".join([basepath.rstrip("/"), *(p.strip("/") for p in paths)])

    def split(self, path: str) -> tuple[str, str]:
        head, _, tail = path.rpartition("/")
        return head, tail

    def mkdirs(self, path: str) -> None:
        pass

    def has_dirs(self) -> bool:
        return False

    def _list(self, dir_or_prefix: str) -> Iterator[FileMetadata]:
        for path in sorted(self.files):
            if path.startswith(dir_or_prefix):
                yield self.metadata(path)

    def create(self, path: str, mime_type: str = "", compression_type: str = Compression.AUTO) -> Any:
        return _Written(path)

    def open(self, path: str, mime_type: str = "", compression_type: str = Compression.AUTO) -> Any:
        return io.BytesIO(self._get(path))

    def _get(self, path: str) -> bytes:
        if path not in self.files:
            raise BeamIOError("not there", {path: FileNotFoundError(path)})
        return self.files[path]

    def copy(self, source_file_names: list[str], destination_file_names: list[str]) -> None:
        for source, destination in zip(source_file_names, destination_file_names, strict=True):
            self.files[destination] = self._get(source)

    def rename(self, source_file_names: list[str], destination_file_names: list[str]) -> None:
        self.copy(source_file_names, destination_file_names)
        self.delete(source_file_names)

    def exists(self, path: str) -> bool:
        return path in self.files

    def size(self, path: str) -> int:
        return len(self._get(path))

    def last_updated(self, path: str) -> float:
        return self.modified.get(path, 0.0)

    def checksum(self, path: str) -> str:
        return str(len(self._get(path)))

    def metadata(self, path: str) -> FileMetadata:
        return FileMetadata(path, self.size(path), self.last_updated(path))

    def delete(self, paths: list[str]) -> None:
        for path in paths:
            self._get(path)
            del self.files[path]
