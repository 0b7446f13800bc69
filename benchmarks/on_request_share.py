"""What it buys to share the budget between a nightly schedule and crawls that requests trigger.

    python -m benchmarks.on_request_share [--pages 600] [--budgets 0.05,0.2] [--seeds 3]

Drawn offers (`pipelines.experiments.figures.han_on_request`), of three quarters of which a month is known.
Each night learns, and plans the optimum of crawls at equal distances with the part of the budget that is not
shared; by day a request triggers a crawl where the copy is older than the age from which that is worth a
multiplier, while there is budget left: the share, and slots of pages that were crawled before their time. The
multiplier is the night's, raised or lowered from day to day by a tenth until all of the budget is spent.
Freshness is that of requests. With --bursts N requests of a page come on one day in N, N times as many. How
bursty requests are is said as pairs: of requests of a page on one day, over what days that do not know of
each other would give.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence

import numpy as np

from pipelines.experiments.figures.han_on_request import LEAD_DAYS, world
from policies.history.page_state import US_PER_DAY
from policies.numerics.special import p2
from policies.numerics.typing_ import FloatArray
from policies.on_request.replay import Asked, Nights, fold_crawls
from policies.on_request.value import worth_from_days
from policies.rules.rate_policies import Parameters, rates

SHARES = (0.0, 0.1, 0.25, 0.5, 0.75, 1.0)


def multiplier(rate: FloatArray, change: FloatArray, weight: FloatArray) -> float:
    """What one more crawl gains on the pages that are crawled."""
    some = rate > 1e-9
    x = change[some] / rate[some]
    value: FloatArray = weight[some] / change[some] * p2(x)
    return float(np.median(value))


def play(asked: Asked, budget_per_day: float, share: float) -> tuple[float, float, float]:
    """Freshness at requests, crawls a day, and the part of these that requests triggered."""
    history, state, n = asked.history, asked.before, len(asked.history)
    nights, factor = Nights(asked.group, asked.teaches), 1.0
    last = np.full(n, history.start_us)
    copy = history.version(np.arange(n), last)
    fresh, many, made, triggered, left, owed = 0, 0, 0, 0, 0.0, 0.0
    for day, waves in enumerate(asked.waves):
        begin = history.start_us + day * US_PER_DAY
        known = nights.learn(state, day)
        change, weight = known.change_rate_per_day, known.request_rate_per_day
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
        before = left
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
        factor *= 1.1 if left < 1.0 else 1.0 / 1.1 if left > 0.1 * before else 1.0
        made += len(crawls) if day >= LEAD_DAYS else 0
        nights.count(asked.page[rows])
        if crawls:
            page, at = (np.array(c, np.int64) for c in zip(*crawls, strict=True))
            state = fold_crawls(state, history, page, at)
    days = len(asked.waves) - LEAD_DAYS
    return fresh / many, made / days, triggered / days


def burst(asked: Asked, seed: int, days_apart: int) -> Asked:
    """The same requests, each on one of the days, one in so many of its page, on which they come."""
    history, days = asked.history, len(asked.waves)
    rng = np.random.Generator(np.random.Philox(key=np.array([seed, 0xB5], dtype=np.uint64)))
    hot = np.argsort(rng.random((len(history), days)), axis=1)[:, : max(1, days // days_apart)]
    day = hot[asked.page, rng.integers(0, hot.shape[1], len(asked.page))]
    at = history.start_us + day * US_PER_DAY + (asked.at_us - history.start_us) % US_PER_DAY
    seen = np.flatnonzero(asked.teaches)
    return Asked.of(history, asked.page, at, asked.group, asked.teaches, seen, from_us=0)


def pairs(asked: Asked) -> float:
    """Pairs of requests of a page on one day, over those expected if days did not know of each other."""
    history, days = asked.history, len(asked.waves)
    day = (asked.at_us - history.start_us) // US_PER_DAY
    count = np.zeros((len(history), days))
    np.add.at(count, (asked.page, day), 1.0)
    total = count.sum(axis=1, keepdims=True)
    return float((count * (count - 1.0)).sum() * (days - 1) / (count * (total - count)).sum())


def main(argv: Sequence[str] | None = None) -> int:
    """Print freshness by budget and share, with standard errors over seeds, and paired differences."""
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--pages", type=int, default=600)
    p.add_argument("--budgets", default="0.05,0.2")
    p.add_argument("--shares", default=",".join(map(str, SHARES)))
    p.add_argument("--seeds", type=int, default=3)
    p.add_argument("--bursts", type=int, default=1, metavar="N")
    parsed = p.parse_args(argv)
    for budget in map(float, parsed.budgets.split(",")):
        found = {}
        for share in map(float, parsed.shares.split(",")):
            rows = []
            for seed in range(parsed.seeds):
                asked, _ = world(parsed.pages, seed)
                if parsed.bursts > 1:
                    asked = burst(asked, seed, parsed.bursts)
                rows.append((*play(asked, budget * parsed.pages, share), pairs(asked)))
            found[share] = np.array(rows)
            gain = 100.0 * (found[share][:, 0] - found[0.0][:, 0])
            error = gain.std(ddof=1) / np.sqrt(len(gain))
            mean = found[share].mean(axis=0)
            print(
                f"{budget:g} crawls a page and day, share {share:g}: fresh {100 * mean[0]:.2f} %, "
                f"{gain.mean():+.2f} ± {error:.2f}; {mean[1] / parsed.pages:.4f} made, "
                f"{mean[2] / max(mean[1], 1e-9):.2f} by requests; pairs {mean[3]:.2f}",
                flush=True,
            )
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
