"""What other budgets would buy: the optimum solved anew for the same pages."""

from collections.abc import Sequence

import numpy as np

from policies.numerics.errors import InfeasibleError
from policies.numerics.typing_ import FloatArray
from policies.objectives.objectives import Objective
from policies.optimum.page_block import PageBlock
from policies.optimum.search import solve


def freshness_at(block: PageBlock, objective: Objective, budgets_per_day: Sequence[float]) -> FloatArray:
    """Expected freshness at each budget, weighted by requests.

    Parameters
    ----------
    block : PageBlock
        All pages, without signals.
    objective : Objective
    budgets_per_day : sequence of float
        Crawls per day.

    Returns
    -------
    (b,) float64
        NaN where the floors of the pages are above the budget, or no page has a weight.

    Raises
    ------
    ValueError
        A malformed block or budget.
    """
    fresh = np.full(len(budgets_per_day), np.nan)
    weight = block.request_rate_per_day
    total = float(weight.sum())
    for i, budget in enumerate(budgets_per_day):
        try:
            _, (found,) = solve(block, objective, budget)
        except InfeasibleError:
            continue
        kept = objective.freshness(found.crawl_rate_per_day, block.change_rate_per_day)
        if total > 0.0:
            fresh[i] = float(weight @ kept) / total
    return fresh
