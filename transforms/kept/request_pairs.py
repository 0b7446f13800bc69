"""How bursty tonight's requests are, see `policies.on_request.pairs`; carried in the manifest."""

from __future__ import annotations

from policies.history.visits import Observations
from policies.on_request.pairs import PairSums
from transforms.batches import schemas
from transforms.kept.protocol import ShardNight, Statistic
from transforms.kept.requests import ShardRequests


class ShardRequestPairs(Statistic):
    """Pairs of requests on the days that tonight's log tells of."""

    def __init__(self, night: ShardNight) -> None:
        self._sums = PairSums()

    def fold(self, night: ShardNight, rows: Observations) -> None:
        asked = night.kept[ShardRequests]
        page, day, *counts = asked.timely
        hashes = night.pages.url_hash
        self._sums = PairSums.of(asked.counted, page, day, counts, hashes, asked.oldest, schemas.COUNT_UNIT)

    def sums(self) -> PairSums:
        return self._sums
