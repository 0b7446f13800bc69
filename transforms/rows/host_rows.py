"""Rows of `--hosts`: a host, or a domain with all below it, and the group that a row names."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from transforms.batches import columns
from transforms.batches.urls import canonical_host

ANY = "*."
"""How a row of `--hosts` begins that stands for a domain and all of its subdomains."""


def listed_host(text: str) -> str | None:
    """The host that a row of `--hosts` names, or `*.` and a domain; None where it names none."""
    scheme, _, name = text.strip().rpartition("://")
    start = ANY if name.startswith(ANY) else ""
    host = canonical_host(f"{scheme or 'http'}://{name.removeprefix(start)}")
    return host and start + host


def group_names(host: pa.Array, given: pa.Array | None) -> pa.Array:
    """Names of the groups of rows of `--hosts`, null where there is none.

    Parameters
    ----------
    host : pa.Array of n strings
        A row for a domain is of a group of that name where it names no other.
    given : pa.Array of n values, or None
        As the file has them.
    """
    domain = [h[len(ANY) :] if h and h.startswith(ANY) else None for h in host.to_pylist()]
    named = pa.array(domain, pa.string())
    if given is None:
        return named
    texts = columns.clean(columns.text(given)[0])[0].cast(pa.string())
    return pc.coalesce(pc.if_else(pc.equal(texts, ""), None, texts), named)
