"""What a search of rates is told of pages whose clocks do not run evenly."""

from __future__ import annotations

import numpy as np

from policies.clocks.planned import plan
from policies.clocks.profile import AGES, NO_TIME, US_PER_DAY, WEEK_HOURS, Profiles
from policies.clocks.worth import Ahead, crawl_values
from policies.objectives import objectives

NIGHT = 20_000 * US_PER_DAY


def test_a_young_page_asks_for_one_crawl_up_to_its_price_and_others_by_their_rates() -> None:
    """Pages of a host that ages: young, old, young without a crawl yet, and young with signals."""
    profiles = Profiles(np.array([0]), np.ones((1, WEEK_HOURS)), np.geomspace(4.0, 0.25, AGES)[None, :])
    born = NIGHT - np.array([1, 400, 1, 1]) * US_PER_DAY
    clocks = profiles.clocks(np.zeros(4, np.int64), born)
    ahead, ones = Ahead.of(NIGHT, US_PER_DAY), np.ones(4)
    last = np.array([NIGHT - US_PER_DAY // 2, NIGHT - US_PER_DAY, NO_TIME, NO_TIME])
    change, weight, cap = 0.5 * ones, np.array([3.0, 2.0, 1.0, 1.0]), np.full(4, np.inf)
    found = plan(
        ahead,
        clocks,
        np.ones((2, 24)),
        ones,
        5.0 * ones,
        0.7 * ones,
        last,
        change,
        weight,
        cap,
        np.array([3]),
    )
    assert found.by_age.tolist() == [True, False, False, False]
    assert (found.change_rate_per_day[1:] == 0.5).all() and (found.weight[1:] == weight[1:]).all()
    assert found.cap_per_day.tolist() == [1.0, np.inf, np.inf, np.inf] and (found.gain == 1.0).all()
    one = np.zeros(1, np.int64)
    worth = crawl_values(
        ahead, ahead.clock(clocks, one), ones[:1], 5.0 * ones[:1], 0.7 * ones[:1], weight[:1]
    )
    # From the first part of a crawl to the whole one it is worth the same, and beyond that it may have none.
    for rate in (1e-3, 1.0):
        price = objectives.get("periodic").marginal_value(
            np.full(1, rate), found.change_rate_per_day[:1], found.weight[:1]
        )
        np.testing.assert_allclose(price, worth, rtol=1e-9)
    assert (weight == [3.0, 2.0, 1.0, 1.0]).all() and np.isinf(cap).all()
