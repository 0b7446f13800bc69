"""What floors of crawl rates cost: an upper bound from the prices of the optimum that keeps them."""

from dataclasses import dataclass

import numpy as np

from policies.numerics.typing_ import FloatArray
from policies.objectives.objectives import Objective
from policies.optimum.allocation import Allocation
from policies.optimum.page_block import PageBlock


@dataclass(frozen=True, slots=True)
class FloorCost:
    """What pages at their floors take from others.

    Attributes
    ----------
    pages : int
        Pages that would get fewer crawls without.
    crawls_per_day : float
        Crawls that they would not get without.
    value_per_day : float
        Requests served fresh per day that there would be more without, at most.
    """

    pages: int = 0
    crawls_per_day: float = 0.0
    value_per_day: float = 0.0

    def merge(self, other: "FloorCost") -> "FloorCost":
        """Those of the pages of both."""
        return FloorCost(
            self.pages + other.pages,
            self.crawls_per_day + other.crawls_per_day,
            self.value_per_day + other.value_per_day,
        )


def floor_cost(block: PageBlock, objective: Objective, found: Allocation, multiplier: float) -> FloorCost:
    """What the floors of a block cost, at most.

    By weak duality the value of any plan without floors is at most the sum, over pages, of value less crawls
    at their price, each at its best rate, and of budget and limits at these prices. The plan with floors
    attains it but for the pages that are at theirs: what these fall short of is the bound. It is close while
    floors take a small part of the budget; above, the price would fall without them.

    Parameters
    ----------
    block : PageBlock
    objective : Objective
        Pages with signals count as if nobody looked at these.
    found : Allocation
    multiplier : float
        Of all pages.
    """
    if block.floor_per_day is None:
        return FloorCost()
    floor, rate = block.floor_per_day, found.crawl_rate_per_day
    # Below it where a host's limit is too low for the floors of its pages.
    rows = np.flatnonzero((floor > 0.0) & (rate <= floor * (1.0 + 1e-9)))
    price: FloatArray = np.full(rows.size, multiplier)
    if block.host_start is not None:
        price += found.host_multiplier[np.searchsorted(block.host_start, rows, side="right") - 1]
    rows, price = rows[price > 0.0], price[price > 0.0]  # elsewhere a crawl more takes none from others
    change, weight = block.change_rate_per_day[rows], block.request_rate_per_day[rows]
    at_floor = rate[rows]
    # Demand depends on what a request is worth in crawls alone.
    free = np.minimum(objective.rate(1.0, change, weight / price), at_floor)
    lost = weight * (objective.value(free, change) - objective.value(at_floor, change))
    paid = price * (at_floor - free)
    held, cost = int((free < at_floor).sum()), np.maximum(lost + paid, 0.0)
    return FloorCost(held, float((at_floor - free).sum()), float(cost.sum()))
