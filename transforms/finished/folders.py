"""What all who read the folder of a finished night share: its error, and the names of its files."""

from __future__ import annotations

from policies.numerics.errors import RecrawlError


class NightError(RecrawlError):
    """The folder of a night cannot be read, or has no such page or host."""


def shard_of(name: str) -> int:
    """The shard of a night's file, by its path."""
    return int(name.rpartition("/")[2].removeprefix("shard-").split("-")[0])
