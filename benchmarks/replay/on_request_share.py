"""What it buys to share the budget between a nightly schedule and crawls that requests trigger.

    python -m benchmarks.replay.on_request_share [--pages 600] [--budgets 0.05,0.2] [--seeds 3]

Drawn offers (`pipelines.experiments.figures.han_on_request`), of three quarters of which a month is known.
Each night learns, and plans the optimum of crawls at equal distances with the part of the budget that is not
shared; by day a request triggers a crawl where the copy is older than the age from which that is worth a
multiplier, while there is budget left: the share, and slots of pages that were crawled before their time. The
multiplier is the night's, raised or lowered from day to day by a tenth until all of the budget is spent.
Freshness is that of requests. With --bursts N requests of a page come on one day in N, N times as many. How
bursty requests are is told by pairs (`policies.on_request.pairs`); `auto` takes the share from those that
the nights before have counted, eight weeks at first, in which requests came on other days.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence

import numpy as np

from pipelines.experiments.figures.han_on_request import LEAD_DAYS, world
from policies.history.page_state import US_PER_DAY
from policies.history.request_history import RequestState, fold_requests
from policies.numerics.special import p2
from policies.numerics.typing_ import FloatArray, IntArray
from policies.on_request.pairs import KeptPairs, PairSums
from policies.on_request.replay import REQUEST_HALF_LIFE_DAYS, Asked, Nights, fold_crawls
from policies.on_request.sharing import first_factor, next_factor, share_for
from policies.on_request.value import worth_from_days
from policies.rules.rate_policies import Parameters, rates

EARLIER_US = 56 * US_PER_DAY
SHARES = "0,0.1,0.25,0.5,auto"


class Log:
    """Requests of the days so far, as the nightly job keeps them."""

    def __init__(self, pages: int, earlier: Asked, before_us: int) -> None:
        self._state, self.pairs = RequestState.empty(pages), KeptPairs()
        self._hash = np.random.default_rng(0).integers(0, 1 << 63, pages).astype(np.uint64)
        day = earlier.at_us // US_PER_DAY
        for some in (np.flatnonzero(day == d) for d in np.unique(day)):
            self.count(earlier.page[some], earlier.at_us[some] - before_us)

    def count(self, page: IntArray, at_us: IntArray) -> None:
        """Add the requests of a day."""
        day, one, oldest = (
            at_us // US_PER_DAY,
            np.ones(len(page), np.int64),
            int(at_us[0] // US_PER_DAY) // 7 - 24,
        )
        self._state = fold_requests(self._state, page, day, one, 0 * one, oldest)
        found = PairSums.of(self._state, page, day, (one, 0 * one), self._hash, oldest, 1.0)
        self.pairs = self.pairs.after(found, "clicks", 0.5 ** (1.0 / REQUEST_HALF_LIFE_DAYS))


def multiplier(rate: FloatArray, change: FloatArray, weight: FloatArray) -> float:
    """What one more crawl gains on the pages that are crawled."""
    some = rate > 1e-9
    x = change[some] / rate[some]
    value: FloatArray = weight[some] / change[some] * p2(x)
    return float(np.median(value))


def play(
    asked: Asked, earlier: Asked, budget_per_day: float, fixed: float | None
) -> tuple[float, float, float, float, float]:
    """Freshness at requests, crawls a day, the part of these that requests triggered, pairs, and mean factor.

    `fixed` is the share; None takes it from the log.
    """
    history, state, n = asked.history, asked.before, len(asked.history)
    nights, log, factor, factors = Nights(asked.group, asked.teaches), Log(n, earlier, EARLIER_US), 0.0, []
    last = np.full(n, history.start_us)
    copy = history.version(np.arange(n), last)
    fresh, many, made, triggered, left, owed = 0, 0, 0, 0, 0.0, 0.0
    for day, waves in enumerate(asked.waves):
        begin = history.start_us + day * US_PER_DAY
        known = nights.learn(state, day)
        change, weight = known.change_rate_per_day, known.request_rate_per_day
        share = (share_for(log.pairs) or 0.0) if fixed is None else fixed
        planned = (1.0 - share) * budget_per_day
        rate = np.zeros(n)
        price = 0.0
        if planned > 0.0:
            rate = rates("periodic", Parameters.of(change, weight), planned, cap_per_day=24.0)
            price = multiplier(rate, change, weight)
        # Slots at equal distances: those most overdue first, as many as the budget has.
        owed += planned
        planned_slots = int(owed)
        with np.errstate(divide="ignore"):
            gap = np.where(rate > 1e-9, US_PER_DAY / np.maximum(rate, 1e-9), np.inf)
        slots: list[tuple[float, int]] = []
        for page in np.flatnonzero((last + gap) < begin + US_PER_DAY).tolist():
            due = max(last[page] + gap[page], begin)
            while due < begin + US_PER_DAY:
                slots.append((due, page))
                due += gap[page]
        late = np.array([due - begin for due, _ in slots])
        order = np.argsort(late, kind="stable")[: int(owed)]
        slots = sorted(slots[i] for i in order)
        owed = owed - planned_slots if share > 0.0 else min(owed - len(slots), 2.0 * planned)
        left = min(left, budget_per_day) + share * budget_per_day
        if share > 0.0:
            left += planned_slots - len(slots)
        factor = factor or first_factor(share)
        age = worth_from_days(weight, change, known.information, factor * (price or 1.0))
        rows = np.arange(int(waves[0]), int(waves[-1]))
        rows = rows[np.argsort(asked.at_us[rows], kind="stable")]
        crawls: list[tuple[int, int]] = []
        at_slot = 0
        for row in rows.tolist():
            at, page = int(asked.at_us[row]), int(asked.page[row])
            while at_slot < len(slots) and slots[at_slot][0] <= at:
                due, other = slots[at_slot]
                last[other] = int(due)
                copy[other] = history.version(np.array([other]), np.array([int(due)]))[0]
                crawls.append((other, int(due)))
                at_slot += 1
            good = copy[page] == asked.version[row]
            if day >= LEAD_DAYS:
                fresh, many = fresh + int(good), many + 1
            if left >= 1.0 and (at - last[page]) / US_PER_DAY >= age[page]:
                left -= 1.0
                last[page], copy[page] = at, asked.version[row]
                crawls.append((page, at))
                triggered += day >= LEAD_DAYS
        for due, other in slots[at_slot:]:
            last[other] = int(due)
            copy[other] = history.version(np.array([other]), np.array([int(due)]))[0]
            crawls.append((other, int(due)))
        if share > 0.0:
            factors.append(factor)
            factor = next_factor(factor, float(len(crawls)), budget_per_day, share)
        made += len(crawls) if day >= LEAD_DAYS else 0
        nights.count(asked.page[rows])
        log.count(asked.page[rows], asked.at_us[rows])
        if crawls:
            pages, times = (np.array(c, np.int64) for c in zip(*crawls, strict=True))
            state = fold_crawls(state, history, pages, times)
    days = len(asked.waves) - LEAD_DAYS
    pairs = log.pairs.ratio or 0.0
    return fresh / many, made / days, triggered / days, pairs, float(np.mean(factors or [1.0]))


def burst(asked: Asked, seed: int, days_apart: int) -> Asked:
    """The same requests, each on one of the days, one in so many of its page, on which they come."""
    if days_apart == 1:
        return asked
    history, days = asked.history, len(asked.waves)
    rng = np.random.Generator(np.random.Philox(key=np.array([seed, 0xB5], dtype=np.uint64)))
    hot = np.argsort(rng.random((len(history), days)), axis=1)[:, : max(1, days // days_apart)]
    day = hot[asked.page, rng.integers(0, hot.shape[1], len(asked.page))]
    at = history.start_us + day * US_PER_DAY + (asked.at_us - history.start_us) % US_PER_DAY
    seen = np.flatnonzero(asked.teaches)
    return Asked.of(history, asked.page, at, asked.group, asked.teaches, seen, from_us=0)


def main(argv: Sequence[str] | None = None) -> int:
    """Print freshness by budget and share, with standard errors over seeds, and paired differences."""
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--pages", type=int, default=600)
    p.add_argument("--budgets", default="0.05,0.2")
    p.add_argument("--shares", default=SHARES)
    p.add_argument("--seeds", type=int, default=3)
    p.add_argument("--bursts", type=int, default=1, metavar="N")
    parsed = p.parse_args(argv)
    for budget in map(float, parsed.budgets.split(",")):
        without = None
        for share in parsed.shares.split(","):
            rows = []
            for seed in range(parsed.seeds):
                asked, _ = world(parsed.pages, seed)
                asked, earlier = (burst(asked, s, parsed.bursts) for s in (seed, seed + parsed.seeds))
                part = None if share == "auto" else float(share)
                rows.append(play(asked, earlier, budget * parsed.pages, part))
            found = np.array(rows)
            without = found if without is None else without
            gain = 100.0 * (found[:, 0] - without[:, 0])
            error = gain.std(ddof=1) / np.sqrt(len(gain))
            mean = found.mean(axis=0)
            print(
                f"bursts {parsed.bursts}, {budget:g} crawls a page and day, share {share}: "
                f"fresh {100 * mean[0]:.2f} %, {gain.mean():+.2f} ± {error:.2f}; "
                f"{mean[1] / parsed.pages:.4f} made, {mean[2] / max(mean[1], 1e-9):.2f} by requests; "
                f"pairs {mean[3]:.2f}, factor {mean[4]:.2f}",
                flush=True,
            )
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
