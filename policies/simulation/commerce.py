"""Crawl strategies and bandits over them on price offers: the evaluation of Han et al. 2020, section 4.2.

In each step of two hours prices change, then each offer is crawled with the probability that the strategy
gives it, then copies are read. A strategy of several arms draws one of them in each step, all offers are
crawled by it, and it learns from the reward of equation 2,

    x = sum over crawled offers of mu_i 1(the copy was stale) / sum over crawled offers of mu_i,

the share of crawls that were of use, weighted with the click rates that the strategy takes for known; 0 when
it crawled nothing. It does not measure what freshness was gained, whatever the text says: an arm with few but
sure crawls gets 1. `reward="gain"` divides by the sum over the budget's worth of most clicked offers instead.

Conventions. A copy is fresh if the price did not change since the crawl (prices that return do not count).
Copies do not exist at first, and count as stale; or all are fresh (`copies_at_start`). Click freshness of a
day is over its clicks, spread evenly over its steps; offer freshness is the share of offers fresh at the
day's end. Parameters of a day are learned from the hourly truth of the days before, as in the paper.
All strategies, budgets and bandits of a repetition share changes, clicks and random numbers.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from policies.estimation.estimators import predict_unchanged
from policies.estimation.prior import Prior, fit_prior
from policies.numerics.typing_ import BoolArray, FloatArray, IntArray, UIntArray
from policies.rules import bandits, rate_policies
from policies.rules.bandits import Bandit, BanditState
from policies.rules.rate_policies import Parameters
from policies.simulation.offers import HOURS_PER_DAY, Offers

Source = Callable[[int], Parameters]
"""Parameters of all offers for a day, from what was known at its beginning."""

Float32Array = np.typing.NDArray[np.float32]

REWARDS: Final = ("precision", "gain")
DEFAULT_WINDOW_DAYS: Final = 30
_LEARNED_DAYS: Final = 60


@dataclass(frozen=True, slots=True)
class Arm:
    """A rate policy of `rate_policies.NAMES` and the name of the source of its parameters."""

    policy: str
    source: str = ""


@dataclass(frozen=True, slots=True)
class Strategy:
    """A named strategy: one arm, or several that a bandit chooses from."""

    name: str
    arms: tuple[Arm, ...]
    bandit: Bandit | None = None
    reward: str = "precision"

    def __post_init__(self) -> None:
        if not self.arms:
            raise ValueError(f"strategy {self.name} has no arm")
        if (len(self.arms) > 1) != (self.bandit is not None):
            raise ValueError(f"strategy {self.name} has {len(self.arms)} arms; a bandit needs two or more, "
                             "a single arm needs none")  # fmt: skip
        if self.reward not in REWARDS:
            raise ValueError(f"unknown reward {self.reward!r}: choose one of {', '.join(REWARDS)}")


def kab(name: str, source: str, bandit: Bandit | None = None, reward: str = "precision") -> Strategy:
    """KAB2 to KAB5 with all parameters from `source`.

    Raises
    ------
    ValueError
        Another name.
    """
    if name not in bandits.KAB_ARMS:
        raise ValueError(f"unknown bandit strategy {name!r}: choose one of {', '.join(bandits.KAB_ARMS)}")
    arms = tuple(Arm(policy, source) for policy in bandits.KAB_ARMS[name])
    return Strategy(name, arms, bandits.Exp3() if bandit is None else bandit, reward)


def history_averages(offers: Offers, floor_per_day: float = 0.0) -> Source:
    """Average daily price changes, clicks and impressions of the days before (section 5.2.2).

    `floor_per_day` is the least rate of a change, click and impression. Without one, LambdaCrawl never
    crawls an offer that was not clicked or did not change in these days.
    """
    changes = offers.changes_per_day()

    def parameters(day: int) -> Parameters:
        past = slice(max(0, day - DEFAULT_WINDOW_DAYS), day)
        counts = (changes, offers.clicks, offers.impressions)
        change, click, shown = (np.maximum(rate_policies.averages(of[past]), floor_per_day) for of in counts)
        return Parameters.of(change, click, shown)

    return parameters


def learned(offers: Offers, metadata_only: bool = False) -> Source:
    """Estimates from the days before, with a prior for each merchant: the metadata group.

    They stand where the paper has a neural network of history and metadata. Each is turned into what its
    classifiers predict: the probability that the price changes, or the offer is clicked or shown, on the day.

    Parameters
    ----------
    offers : Offers
    metadata_only : bool
        Whether an offer gets the mean of its merchant's offers, its own history unknown.
    """
    changed_days = np.cumsum(offers.changes_per_day() > 0, axis=0, dtype=np.int64)
    clicks = np.cumsum(offers.clicks, axis=0)
    impressions = np.cumsum(offers.impressions, axis=0)
    group = offers.merchant
    fitted: dict[int, Prior] = {}

    def since(total: IntArray, day: int, days: int) -> FloatArray:
        before = total[day - days - 1] if day > days else 0
        return np.asarray(total[day - 1] - before, dtype=np.float64)

    def parameters(day: int) -> Parameters:
        days = min(day, _LEARNED_DAYS)
        changed = since(changed_days, day, days)
        week = day // 7
        if week not in fitted:
            fitted[week] = fit_prior(rate_policies.change_evidence(changed, days), group)
        rate, information = rate_policies.learned_changes(changed, days, group, fitted[week])
        will_change = 1.0 - predict_unchanged(rate, information, 1.0)
        click, shown = rate_policies.learned_clicks(
            since(clicks, day, days), since(impressions, day, days), days
        )
        if metadata_only:
            will_change, click, shown = (_group_mean(group, of) for of in (will_change, click, shown))
        once = -np.expm1(-click), -np.expm1(-shown)
        return Parameters.of(-np.log1p(-will_change), *once, will_change)

    return parameters


def _group_mean(group: IntArray, values: FloatArray) -> FloatArray:
    mean: FloatArray = np.bincount(group, values) / np.maximum(np.bincount(group), 1)
    return mean[group]


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of S strategies at B budgets in R repetitions, over D scored days.

    Attributes
    ----------
    click_freshness, offer_freshness : (S, B, R, D) float64
        Formulas 4 and 3. NaN for a day without clicks.
    crawls : (S, B, R) int64
        In the scored days.
    arm_probability : dict of (B, R, steps, K) float32
        Of each bandit, by name of strategy: probability of each arm in every step, warm-up included.
    reward : dict of (B, R, steps) float32
        Of the drawn arms, likewise.
    """

    click_freshness: FloatArray
    offer_freshness: FloatArray
    crawls: IntArray
    arm_probability: dict[str, Float32Array]
    reward: dict[str, Float32Array]


class _Lane:
    """One strategy at one budget, all repetitions."""

    def __init__(self, strategy: Strategy, share: float, shape: tuple[int, int], fresh: bool) -> None:
        self.strategy, self.share = strategy, share
        self.fresh: BoolArray = np.full(shape, fresh)
        self.state: BanditState | None = None
        if strategy.bandit is not None:
            self.state = strategy.bandit.start(shape[0], len(strategy.arms))
        self.probability: list[FloatArray] = []
        self.rewards: list[FloatArray] = []

    def crawl(
        self, chance: Float32Array, numbers: Float32Array, draw: FloatArray, weight: FloatArray | None
    ) -> BoolArray:
        """Crawl one step; returns which offers were, (R, n). `chance` is (K, n), `numbers` is (R, n)."""
        crawled: BoolArray
        bandit, state = self.strategy.bandit, self.state
        if bandit is None or state is None or weight is None:
            crawled = numbers < chance[0]
            self.fresh |= crawled
            return crawled
        q = bandit.probabilities(state)
        arm = bandits.draw(q, draw)
        crawled = numbers < chance[arm]
        reward = crawl_reward(crawled, self.fresh, weight, self.strategy.reward, self.share)
        self.fresh |= crawled
        self.state = bandit.learn(state, arm, reward)
        self.probability.append(q)
        self.rewards.append(reward)
        return crawled


def crawl_reward(
    crawled: BoolArray, fresh: BoolArray, click_rate: FloatArray, kind: str = "precision", share: float = 1.0
) -> FloatArray:
    """Reward of a step for each repetition, in [0, 1].

    Parameters
    ----------
    crawled, fresh : (R, n) bool
        Crawled in the step; copy fresh before it.
    click_rate : (n,) float64
    kind : {"precision", "gain"}
        Relative to the click rates of the crawled offers (equation 2), or to those of the `share` of offers
        that are clicked most.
    share : float
        Expected share of offers crawled in a step.

    Returns
    -------
    (R,) float64
        0 where there is nothing to divide by.
    """
    useful: FloatArray = (crawled & ~fresh) @ click_rate
    if kind == "precision":
        most = crawled @ click_rate
    else:
        top = max(1, int(np.ceil(share * len(click_rate))))
        most = np.full(len(useful), np.sort(click_rate)[-top:].sum())
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.asarray(np.where(most > 0.0, np.minimum(useful / most, 1.0), 0.0))


def simulate(
    offers: Offers,
    strategies: Sequence[Strategy],
    budgets: Sequence[float],
    sources: Mapping[str, Source],
    *,
    first_day: int,
    warm_up_days: int,
    repetitions: Sequence[int],
    seed: int,
    hours_per_step: int = 2,
    copies_at_start: bool = False,
) -> Outcome:
    """Run all strategies at all budgets, side by side.

    Parameters
    ----------
    offers : Offers
    strategies : sequence of Strategy
        With different names.
    budgets : sequence of float
        Crawls per offer and day.
    sources : mapping of str to Source
        Parameters, by the names in the arms; click rates of rewards are those of a strategy's first arm
        that has a source.
    first_day : int
        The first day with crawls; the days before are history to learn from. At least 1.
    warm_up_days : int
        Days with crawls that are not scored.
    repetitions : sequence of int
        Their numbers; the numbers drawn in a repetition depend on its number and `seed` only.
    seed : int
    hours_per_step : int
    copies_at_start : bool
        Whether there is a fresh copy of every offer at first, or none.

    Raises
    ------
    ValueError
        No history, no day left to score, or an unknown source.
    """
    n, days = len(offers), offers.days
    if not 0 < first_day < first_day + warm_up_days < days:
        raise ValueError(
            f"{days} days do not hold history before day {first_day}, {warm_up_days} days of warm-up and a "
            "day to score"
        )
    unknown = {arm.source for s in strategies for arm in s.arms if arm.policy != "uniform"} - set(sources)
    if unknown:
        raise ValueError(f"no source of parameters called {', '.join(sorted(unknown))}")
    steps = HOURS_PER_DAY // hours_per_step
    changed = offers.changed_in_steps(hours_per_step)
    lanes = [_Lane(s, b / steps, (len(repetitions), n), copies_at_start) for s in strategies for b in budgets]
    crawl_rng = [_rng(seed, r, 1) for r in repetitions]
    draw_rng = [_rng(seed, r, 2) for r in repetitions]
    scored = days - first_day - warm_up_days
    shape = (len(lanes), len(repetitions), scored)
    clicked_fresh, at_midnight = np.zeros(shape), np.zeros(shape)
    crawls = np.zeros(shape[:2], dtype=np.int64)
    numbers = np.empty((len(repetitions), n), dtype=np.float32)
    for day in range(first_day, days):
        known = {name: source(day) for name, source in sources.items()}
        chances = _Chances(known, n, steps)
        at = day - first_day - warm_up_days
        clicked = np.flatnonzero(offers.clicks[day])
        clicks = offers.clicks[day, clicked].astype(np.float64)
        for step in range(day * steps, (day + 1) * steps):
            for row, rng in enumerate(crawl_rng):
                rng.random(dtype=np.float32, out=numbers[row])
            draw = np.array([rng.random() for rng in draw_rng])
            unchanged = ~changed[step]
            for i, lane in enumerate(lanes):
                lane.fresh &= unchanged
                crawled = lane.crawl(
                    chances.of(lane.strategy, lane.share), numbers, draw, _click_rate(lane.strategy, known)
                )
                if at >= 0:
                    crawls[i] += [np.count_nonzero(row) for row in crawled]
                    clicked_fresh[i, :, at] += lane.fresh[:, clicked] @ clicks
        if at >= 0:
            with np.errstate(invalid="ignore"):
                clicked_fresh[:, :, at] /= steps * clicks.sum()
            for i, lane in enumerate(lanes):
                at_midnight[i, :, at] = np.count_nonzero(lane.fresh, axis=1) / n
    return _outcome(strategies, budgets, lanes, clicked_fresh, at_midnight, crawls)


def _outcome(
    strategies: Sequence[Strategy],
    budgets: Sequence[float],
    lanes: Sequence[_Lane],
    clicked_fresh: FloatArray,
    at_midnight: FloatArray,
    crawls: IntArray,
) -> Outcome:
    split = (len(strategies), len(budgets))
    probability: dict[str, Float32Array] = {}
    reward: dict[str, Float32Array] = {}
    for i, strategy in enumerate(strategies):
        if strategy.bandit is not None:
            mine = lanes[i * len(budgets) : (i + 1) * len(budgets)]
            q = np.stack([np.stack(lane.probability, axis=1) for lane in mine])
            x = np.stack([np.stack(lane.rewards, axis=1) for lane in mine])
            probability[strategy.name], reward[strategy.name] = q.astype(np.float32), x.astype(np.float32)
    return Outcome(
        clicked_fresh.reshape(split + clicked_fresh.shape[1:]),
        at_midnight.reshape(split + at_midnight.shape[1:]),
        crawls.reshape(split + crawls.shape[1:]),
        probability,
        reward,
    )


class _Chances:
    """Probabilities of a crawl in a step, of one day, each worked out once."""

    def __init__(self, known: Mapping[str, Parameters], n: int, steps: int) -> None:
        self._known, self._n, self._steps = known, n, steps
        self._of_arm: dict[tuple[Arm, float], Float32Array] = {}
        self._of_strategy: dict[tuple[tuple[Arm, ...], float], Float32Array] = {}

    def of(self, strategy: Strategy, share: float) -> Float32Array:
        """(K, n) float32, for each arm, when `share` of the offers are crawled in a step."""
        key = (strategy.arms, share)
        if key not in self._of_strategy:
            self._of_strategy[key] = np.stack([self._chance(arm, share) for arm in strategy.arms])
        return self._of_strategy[key]

    def _chance(self, arm: Arm, share: float) -> Float32Array:
        if (arm, share) not in self._of_arm:
            budget = share * self._steps * self._n
            if arm.policy == "uniform":
                rate = rate_policies.uniform(self._n, budget, self._steps)
            else:
                known, step_days = self._known[arm.source], 1.0 / self._steps
                rate = rate_policies.rates(arm.policy, known, budget, self._steps, step_days)
            self._of_arm[arm, share] = (rate / self._steps).astype(np.float32)
        return self._of_arm[arm, share]


def _click_rate(strategy: Strategy, known: Mapping[str, Parameters]) -> FloatArray | None:
    for arm in strategy.arms:
        if arm.source in known:
            return known[arm.source].click_rate_per_day
    return None


def _rng(seed: int, repetition: int, purpose: int) -> np.random.Generator:
    key: UIntArray = np.array([seed, (repetition << 8) + purpose], dtype=np.uint64)
    return np.random.Generator(np.random.Philox(key=key))
