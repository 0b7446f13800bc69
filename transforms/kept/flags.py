"""What a night says of pages whose crawls tell little, and what they weigh: flags and numbers that no night
keeps.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from policies.history import volatile
from policies.history.soft_404 import pages_alike
from transforms.kept.clocks import ShardClocks
from transforms.kept.protocol import ShardNight, Statistic

_HOME = r"^(?i:https?)://[^/?#]+/?(?:#.*)?$"


class Volatile(Statistic):
    """Pages that are new at every visit, see `policies.history.volatile`. Only when all pages are known is it
    decided which candidates are; these have a "volatile_weight", float64.
    """

    PAGES = (pa.field("volatile", pa.bool_()),)
    SAID = (("pages_volatile", "volatile (new at every visit: at most a crawl in 30 days)"),)

    def columns(self, night: ShardNight) -> dict[str, pa.Array]:
        after, multiplier = night.after, night.settings.multiplier
        weight = volatile.weight_limit(after.n_intervals, after.n_changes, night.evidence, multiplier)
        night.kept[ShardClocks].limit_volatile(night, weight)
        return {"volatile_weight": pa.array(weight)} if (weight >= 0.0).any() else {}


class Alike(Statistic):
    """Pages that look like error pages with status 200, see `policies.history.soft_404`. Of a host that is
    spread over several shards each shard sees its own pages only. Where they are to weigh less, pages have a
    "weight_share", float64: the part of its weight that a page keeps.
    """

    PAGES = (pa.field("soft_404", pa.bool_()),)
    SAID = (("pages_soft_404", "alike on their hosts (soft_404)"),)

    def columns(self, night: ShardNight) -> dict[str, pa.Array]:
        pages, history = night.pages, night.after
        digest = np.where(history.gone, np.uint64(0), history.digest)
        alike = pages_alike(pages.host_code, digest, history.n_changes)
        rows = np.flatnonzero(alike)
        if not len(rows):
            return {}
        home = pc.match_substring_regex(pages.url.take(pa.array(rows)), _HOME)
        alike[rows[home.to_numpy(zero_copy_only=False)]] = 0
        columns = {"soft_404": pa.array(alike > 0)}
        if night.settings.lower_soft_404:
            columns["weight_share"] = pa.array(1.0 / np.maximum(alike, 1))
        return columns


class Alternating(Statistic):
    """Pages that go back and forth between contents, see `policies.history.alternating`."""

    PAGES = (pa.field("alternating", pa.bool_()),)
    SAID = (("pages_alternating", "back and forth between contents (alternating)"),)

    def columns(self, night: ShardNight) -> dict[str, pa.Array]:
        found = night.alternating
        return {"alternating": pa.array(found)} if found.any() else {}


class Weight(Statistic):
    """What a page weighs, once that is estimated."""

    PAGES = (pa.field("weight", pa.float64()),)


class OnRequest(Statistic):
    """From which age of its copy, hours, a request of a page is worth a crawl, once rates are decided; see
    `transforms.night.request_crawls`.
    """

    PAGES = (pa.field("crawl_on_request", pa.float64()),)
