"""How a search for the multiplier ended."""

from dataclasses import dataclass
from enum import StrEnum


class Status(StrEnum):
    """How a search stands or ended."""

    RUNNING = "running"
    CONVERGED = "converged"
    ALL_AT_CAP = "all at cap"  # every useful page at its cap or its host's limit, multiplier 0
    ALL_AT_FLOOR = "all at floor"  # the floors take the whole budget; any larger multiplier would do
    NOTHING_USEFUL = "nothing useful"  # no page gains from a crawl, multiplier 0


@dataclass(frozen=True, slots=True)
class SearchResult:
    """The multiplier and what it took.

    Attributes
    ----------
    objective : str
    status : Status
    multiplier : float
        Value that one more crawl per day would buy.
    low, high : float
        Bracket of the multiplier; a page's rate is share_low * rate(low) + (1 - share_low) * rate(high).
    share_low : float
    budget_per_day, allocated_per_day, unspent_per_day : float
        Crawls per day.
    unspent_reason : str
        Empty where the budget is spent.
    floor_per_day : float
        Sum of all floors, as applied.
    rounds : int
    residual : float
        Relative width of the bracket; no free page's marginal value is further from the multiplier.
    certificate : float
        The objective is at most this far below the optimum (without the hosts' own parts, see `Allocation`).
    pages : int
    constrained : bool
        Whether any page has a floor, or a cap or host's limit that may cut its rate.
    scaled_hosts : int
        Hosts whose floors exceed their limit and were scaled down to it.
    expanded_at : float
        Multiplier around which pages with signals were expanded, see `policies.signalled.block`; 0: none
        were.
    price : float
        The multiplier as far as the first rounds told, see `policies.optimum.rounds.SearchState`.
    """

    objective: str
    status: Status
    multiplier: float
    low: float
    high: float
    share_low: float
    budget_per_day: float
    allocated_per_day: float
    unspent_per_day: float
    unspent_reason: str
    floor_per_day: float
    rounds: int
    residual: float
    certificate: float
    pages: int
    constrained: bool
    scaled_hosts: int
    expanded_at: float = 0.0
    price: float = 0.0
