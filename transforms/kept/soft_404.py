"""Pages of a shard that look like error pages with status 200, see `policies.history.soft_404`."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from policies.history.page_state import PageState
from policies.history.soft_404 import pages_alike
from transforms.shards.coding import ShardPages

_HOME = r"^(?i:https?)://[^/?#]+/?(?:#.*)?$"


def soft_404_columns(pages: ShardPages, history: PageState, lower: bool) -> dict[str, pa.Array]:
    """What a shard's table of pages has more where pages look like error pages; else nothing.

    Of a host that is spread over several shards each shard sees its own pages only.

    Parameters
    ----------
    pages : ShardPages, n pages
    history : PageState
    lower : bool
        Whether they weigh less.

    Returns
    -------
    dict
        "soft_404", bool, and where they weigh less "weight_share", float64: the part of its weight that
        a page keeps.
    """
    digest = np.where(history.gone, np.uint64(0), history.digest)
    alike = pages_alike(pages.host_code, digest, history.n_changes)
    rows = np.flatnonzero(alike)
    if not len(rows):
        return {}
    home = pc.match_substring_regex(pages.url.take(pa.array(rows)), _HOME)
    alike[rows[home.to_numpy(zero_copy_only=False)]] = 0
    columns = {"soft_404": pa.array(alike > 0)}
    if lower:
        columns["weight_share"] = pa.array(1.0 / np.maximum(alike, 1))
    return columns
