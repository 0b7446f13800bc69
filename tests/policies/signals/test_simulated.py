"""The threshold policy, simulated from changes and signals: intervals, fresh time, value and freshness.

Nothing here uses the formulas under test but the clock itself: changes are drawn, each is announced with the
probability of recall, false signals are drawn, and a page is crawled when its clock reaches the threshold.
"""

import numpy as np

from policies.signalled import pages as signal_pages
from policies.signalled import value as signal_value
from policies.signalled.pages import SignalPages

SETS = 200
CYCLES = 20000


def parameters() -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Change rate, recall, rate of false signals, threshold: all kinds, changes neither rare nor certain."""
    rng = np.random.default_rng(20)
    change = 10.0 ** rng.uniform(-1.0, 1.0, SETS)
    recall = rng.beta(0.4, 0.4, SETS)
    recall[:15], recall[15:30] = 0.0, 1.0
    noise = change * 10.0 ** rng.uniform(-1.5, 1.0, SETS)
    noise[10:20] = noise[30:45] = 0.0
    clock = rng.uniform(0.2, 2.5, SETS)
    return change, recall, noise, clock


def simulate(
    change: float, recall: float, noise: float, clock: float, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """Length and fresh time of `CYCLES` cycles."""
    a, signalled = (1.0 - recall) * change, recall * change
    g = signalled + noise
    weight = np.inf if noise == 0.0 else np.log1p(signalled / noise)
    if signalled == 0.0:
        g, weight = 0.0, 0.0  # what says nothing need not be drawn
    length = np.full(CYCLES, np.inf)
    changed = rng.exponential(1.0, CYCLES) / a if a > 0.0 else np.full(CYCLES, np.inf)  # first one unseen
    now, jumps = np.zeros(CYCLES), np.zeros(CYCLES)
    open_ = np.arange(CYCLES)
    while open_.size:
        run_out = now[open_] * 0.0 + np.inf if a == 0.0 else (clock - jumps[open_]) / a
        at = now[open_] + rng.exponential(1.0, open_.size) / g if g > 0.0 else np.full(open_.size, np.inf)
        is_time = run_out <= at
        length[open_[is_time]] = run_out[is_time]
        rest = open_[~is_time]
        now[rest] = at[~is_time]
        is_change = rng.random(rest.size) * g < signalled
        changed[rest] = np.where(is_change, np.minimum(changed[rest], now[rest]), changed[rest])
        jumps[rest] += weight
        over = a * now[rest] + jumps[rest] >= clock * (1.0 - 1e-12)
        length[rest[over]] = now[rest[over]]
        open_ = rest[~over]
    return length, np.minimum(length, changed)


def test_threshold_policy_simulated():
    """800 z-scores, seeded: the largest within 4 standard errors, their mean square near 1."""
    change, recall, noise, clock = parameters()
    pages = SignalPages.from_rates(np.ones(SETS), change, recall, noise)
    kinds = set(signal_pages.kind_of(pages).tolist())
    assert kinds == {1, 2, 3, 4, 5}
    days = signal_value.interval_days(pages, clock)
    value = signal_value.value_at(pages, clock)
    share = signal_value.freshness(pages, clock)
    fresh = share * days
    rng = np.random.default_rng(21)
    scores = []
    for i in range(SETS):
        length, good = simulate(change[i], recall[i], noise[i], clock[i], rng)
        for sample, want in (
            (length, days[i]),
            (good, fresh[i]),
            (good - np.exp(-clock[i]) * length, value[i]),
            (good - share[i] * length, 0.0),
        ):
            error = sample.std() / np.sqrt(CYCLES)
            if error < 1e-9 * days[i]:  # without signals every interval is the same
                assert abs(sample.mean() - want) <= 1e-9 * days[i]
            else:
                scores.append((sample.mean() - want) / error)
    assert len(scores) > 750
    assert np.max(np.abs(scores)) < 4.0
    assert 0.8 < np.mean(np.square(scores)) < 1.2


def test_value_of_a_state_is_what_a_crawl_then_gains():
    """The page's gain falls if the threshold is moved from where V is the price, in either direction.

    By simulation of the same random numbers at three thresholds: gain = freshness - price * rate.
    """
    for change, recall, noise in ((1.0, 0.5, 0.5), (0.7, 0.9, 2.0), (3.0, 0.3, 0.2)):
        page = SignalPages.from_rates(*(np.array([x]) for x in (1.0, change, recall, noise)))
        price = 0.3 / change
        best = float(signal_value.threshold(page, price)[0])
        gains = []
        for clock in (best, 0.5 * best, 2.0 * best):
            length, good = simulate(change, recall, noise, clock, np.random.default_rng(22))
            gains.append((good.mean() - price) / length.mean())
        assert gains[0] > gains[1] and gains[0] > gains[2]
        assert abs(gains[0] - np.exp(-best)) < 0.02  # the page's net gain is mu e^-u*
