"""Kinds of input, and the columns that files of each have."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa

from transforms.batches import schemas


@dataclass(frozen=True)
class Kind:
    """What one kind of input is made of.

    Attributes
    ----------
    required : groups of columns of which a file must have at least one each
    optional : columns that a file may have
    key : the column with the URL (or host)
    times : columns that hold times
    repeats : whether a key stands in many rows, one after the other
    """

    name: str
    schema: pa.Schema
    required: tuple[tuple[str, ...], ...]
    optional: tuple[str, ...] = ()
    key: str = "url"
    times: tuple[str, ...] = ()
    repeats: bool = False

    @property
    def known(self) -> list[str]:
        """All columns of this kind."""
        return [*(c for group in self.required for c in group), *self.optional]

    def without(self, names: Collection[str]) -> Kind:
        """The same kind where files need not have some columns."""
        given = tuple(group for group in self.required if not set(group).isdisjoint(names))
        return replace(
            self,
            required=tuple(group for group in self.required if group not in given),
            optional=(*self.optional, *(c for group in given for c in group)),
        )

    def renamed(self, names: Mapping[str, str]) -> Kind:
        """The same kind where files have other names for some of its columns."""

        def theirs(columns: Sequence[str]) -> tuple[str, ...]:
            return tuple(names.get(c, c) for c in columns)

        return replace(
            self,
            required=tuple(map(theirs, self.required)),
            optional=theirs(self.optional),
            key=names.get(self.key, self.key),
            times=theirs(self.times),
        )


KINDS = {
    kind.name: kind
    for kind in (
        Kind(
            "observations",
            schemas.OBSERVATIONS,
            (("url",), ("fetched_at",)),
            ("status", "digest", "changed", "not_modified", "last_modified"),
            times=("fetched_at", "last_modified"),
        ),
        Kind(
            "requests",
            schemas.REQUESTS,
            (("url",), ("day", "at"), ("clicks", "impressions")),
            ("hour",),
            times=("day", "at", "hour"),
        ),
        Kind(
            "signals",
            schemas.SIGNALS,
            (("url",), ("signalled_at", "received_at")),
            ("source",),
            times=("signalled_at", "received_at"),
        ),
        Kind("sitemaps", schemas.SITEMAPS, (("url",),), ("lastmod",)),
        Kind(
            "pages",
            schemas.PAGES,
            (("url",),),
            ("importance", "min_rate_per_day", "max_rate_per_day", "published_at"),
            times=("published_at",),
        ),
        Kind("hosts", schemas.HOSTS, (("host",), ("max_per_day", "min_gap_seconds", "group")), key="host"),
    )
}
# No inputs of a night: replays read when pages changed, and what sources showed.
CHANGES = Kind(
    "changes",
    schemas.CHANGES,
    (("url",), ("changed_at",)),
    ("digest", "kind"),
    times=("changed_at",),
)
LINKS = Kind(
    "links",
    schemas.LINKS,
    (("source",), ("target",), ("appeared_at",)),
    ("gone_at", "domain"),
    key="source",
    times=("appeared_at", "gone_at"),
)
SNAPSHOTS = Kind(
    "snapshots", schemas.SNAPSHOTS, (("source",), ("seen_at",)), ("status",), key="source", times=("seen_at",)
)
# What the discovery job plans, for a night.
REFRESHES = Kind("refreshes", schemas.REFRESHES, (("url",), ("due_at",)), times=("due_at",))
# Inputs of the discovery job.
LINKS_SEEN = Kind(
    "links_seen",
    schemas.LINKS_SEEN,
    (("source",), ("target",), ("seen_at",)),
    ("status", "partial"),
    key="source",
    times=("seen_at",),
    repeats=True,
)
SOURCES = Kind("sources", schemas.SOURCES, (("url",),))
REPLAYED = KINDS | {kind.name: kind for kind in (CHANGES, LINKS, SNAPSHOTS, REFRESHES, LINKS_SEEN, SOURCES)}
