"""What folding a shard needs to know of the night."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from policies.clocks.pooled import HoursOfAll
from policies.history import request_history
from policies.history.page_state import Forgetting
from policies.numerics.typing_ import FloatArray, Int32Array
from transforms.shards.catalogue import HostDefaults


@dataclass(frozen=True)
class RequestClock:
    """How requests are weighted by age: the night's day, and the half-life in days."""

    as_of_day: int
    half_life_days: float

    def exposure_days(self, request_days: tuple[int, int], first_seen_day: Int32Array) -> FloatArray:
        """Weighted days in which each page could have been asked for, (n,).

        Parameters
        ----------
        request_days : (int, int)
            First and last day of the request log, days since 1970-01-01.
        first_seen_day : (n,) int32
        """
        return request_history.exposure_days(
            first_seen_day, *request_days, self.as_of_day, self.half_life_days
        )


@dataclass(frozen=True)
class FoldSettings:
    """What folding needs to know of the night.

    Attributes
    ----------
    as_of_us : int
        The night's instant, UTC microseconds; later rows are left for the next night.
    forgetting : Forgetting
    clock : RequestClock
    hosts : HostDefaults
    group_columns : tuple of str
    num_shards : int
    split_hosts : frozenset of int
        Hashes of hosts of which other shards have pages, too.
    multiplier : float, requests per crawl, or None
        That of the night before.
    signal_delay_us : int, microseconds
        Signals less than this after an observation are discarded.
    sitemap_pages : bool
        Whether what sitemaps list are pages, as if the catalogue had them.
    clock_factors : (c,) float64, or None
        Of the night before, see `policies.judging.recalibration.Track.factors`.
    lower_soft_404 : bool
        Whether pages that look like error pages weigh less, see `policies.history.soft_404`.
    hours_of_all : HoursOfAll
        Of the night before.
    night_before_us : int or None
        Instant of the night before.
    with_lastmods : bool
        Whether what sitemaps claim is carried: once any night had sitemaps.
    page_limits_per_day : tuple of float
        Least and most crawls of a page for which the catalogue names none.
    """

    as_of_us: int
    forgetting: Forgetting
    clock: RequestClock
    hosts: HostDefaults
    group_columns: tuple[str, ...] = ()
    num_shards: int = 1
    split_hosts: frozenset[int] = frozenset()
    multiplier: float | None = None
    signal_delay_us: int = 0
    sitemap_pages: bool = False
    clock_factors: FloatArray | None = None
    lower_soft_404: bool = False
    hours_of_all: HoursOfAll = field(default_factory=HoursOfAll)
    night_before_us: int | None = None
    with_lastmods: bool = False
    page_limits_per_day: tuple[float, float] = (0.0, math.inf)
