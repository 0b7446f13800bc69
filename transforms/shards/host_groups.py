"""Hosts that share one limit and one gap: those of one server, or all subdomains of a domain."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from policies.numerics.typing_ import FloatArray, UIntArray
from transforms.batches.errors import InputError
from transforms.batches.hashing import stable_hash
from transforms.rows.host_rows import ANY


def group_hash(name: str) -> int:
    """Key of a group: never that of a host of the same name."""
    return stable_hash(f"group\0{name}") or 1


@dataclass(frozen=True)
class Groups:
    """Groups of the hosts of a shard.

    Attributes
    ----------
    unit_hash : (h,) uint64
        Key of each host's group, 0 where it has none.
    max_per_day, gap_seconds : (h,) float64
        The tightest of the rows of its group; NaN where none has any.
    """

    unit_hash: UIntArray
    max_per_day: FloatArray
    gap_seconds: FloatArray


def groups_of(host: pa.Array, limits: pa.Table) -> Groups | None:
    """The groups of hosts by the rows of `--hosts`, or None where no row names one.

    A row for a host counts before one for a domain, that of a longer domain before that of a shorter one; a
    host whose own row names no group has none.

    Parameters
    ----------
    host : pa.Array of h strings
    limits : Table of `schemas.HOSTS`
        Has all rows with a group, of other shards, too.

    Raises
    ------
    InputError
        If rows of one host name two groups.
    """
    if "group" not in limits.schema.names or not pc.any(limits.column("group").is_valid()).as_py():
        return None
    table = pa.table({n: limits.column(n) for n in ("host", "group", "max_per_day", "min_gap_seconds")})
    rows = table.to_pylist()
    exact: dict[str, str | None] = {}
    domains: dict[str, str] = {}
    most: dict[str, float] = {}
    gap: dict[str, float] = {}
    for row in rows:
        name, group = row["host"], row["group"]
        where = domains if name.startswith(ANY) else exact
        key = name.removeprefix(ANY)
        if where.setdefault(key, group) != group:
            raise InputError(
                f"--hosts: {name} is in the groups {where[key] or 'none'} and {group or 'none'}; a host can "
                "have one only"
            )
        if group is not None:
            if row["max_per_day"] is not None:
                most[group] = min(most.get(group, np.inf), row["max_per_day"])
            if row["min_gap_seconds"] is not None:
                gap[group] = max(gap.get(group, 0.0), row["min_gap_seconds"])
    found: list[str | None] = [None] * len(host)
    for key in sorted(domains, key=lambda d: (len(d), d)):
        inside = pc.or_(pc.equal(host, key), pc.ends_with(host, f".{key}"))
        for at in np.flatnonzero(inside.to_numpy(zero_copy_only=False)).tolist():
            found[at] = domains[key]
    for at, name in enumerate(host.to_pylist()):
        if name in exact:
            found[at] = exact[name]
    return Groups(
        np.array([0 if g is None else group_hash(g) for g in found], np.uint64),
        np.array([np.nan if g is None else most.get(g, np.nan) for g in found], np.float64),
        np.array([np.nan if g is None else gap.get(g, np.nan) for g in found], np.float64),
    )
