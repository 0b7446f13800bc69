"""Soft 404s: many pages of a host that all show one and the same content.

A site that answers for a missing page with status 200 and a friendly text looks, to a crawler, like a site
with many pages that are all alike. So do pages behind a login, a consent dialogue or a captcha. They are
asked for, so by their weights alone they are crawled like any other page, and a host can have any number of
them.

Nothing in a crawl log proves that a content is an error. Its digest may be one of a part of the page, such
as a price, or a version number of the page's own; then pages have it in common by chance. So such pages are
flagged, and only a team that knows what its digests are may have their weights lowered: all pages of a host
with one content then weigh together what one of them does. They are never taken for gone: one that shows
something else has its whole weight again.

A page is flagged only if it has changed once at most: error pages do not change, and the one change is the
one from a page to an error page. The home page is none: many sites answer with its content to any URL that
they do not know, and it is no error itself.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from policies.numerics.typing_ import Int32Array, IntArray, UIntArray

MIN_PAGES: Final = 30
"""Fewer may be copies that are meant: pages to be printed, parameters that change nothing."""
MAX_CHANGES: Final = 1


def pages_alike(host_code: IntArray | Int32Array, digest: UIntArray, n_changes: Int32Array) -> Int32Array:
    """How many pages of its host have the content of each page.

    Parameters
    ----------
    host_code : (n,) int
        Host of each page.
    digest : (n,) uint64
        What the last fetch found; 0 where that is not known, or the page is gone.
    n_changes : (n,) int32
        Changes that were ever found.

    Returns
    -------
    (n,) int32
        Pages of the host, this one among them, with this digest and at most `MAX_CHANGES` changes; 0 where
        they are fewer than `MIN_PAGES`, or the page itself is none of them.
    """
    alike = np.zeros(len(digest), np.int32)
    rows = np.flatnonzero((digest != 0) & (n_changes <= MAX_CHANGES))
    if len(rows) < MIN_PAGES:
        return alike
    order = rows[np.lexsort((digest[rows], host_code[rows]))]
    host, content = host_code[order], digest[order]
    first = np.ones(len(order), np.bool_)
    first[1:] = (host[1:] != host[:-1]) | (content[1:] != content[:-1])
    group = np.cumsum(first) - 1
    size = np.bincount(group)[group]
    alike[order] = np.where(size >= MIN_PAGES, size, 0)
    return alike
