"""Two sources that tell the same changes count once: against the truth of simulated hosts."""

from __future__ import annotations

import numpy as np
import pytest

from policies.signalled import value as signal_value
from policies.signalled.pages import SignalPages
from tests.transforms.told_together import DAY, START, Site, crawls, estimates, fold_nights, site
from transforms.night.trusting import SignalEstimates

N, DAYS, RATE, RECALL = 150, 60.0, 0.18, 0.9


def rates(made: Site) -> float:
    return len(made.change_us) / made.n / made.days


def trust(found: SignalEstimates, source: str) -> dict:
    (row,) = [r for r in found.trust.to_pylist() if r["source"] == source]
    return row


def near(value: float, true: float, error: float, slack: float = 0.02) -> bool:
    """Within three standard errors, and what a page of one visit in three days leaves to its prior."""
    return abs(value - true) < 3.0 * error + slack


def check(
    made: Site, found: SignalEstimates, recalls: dict[str, float], precisions: dict[str, float]
) -> None:
    changes = len(made.change_us)
    assert np.array_equal(found.row, np.arange(made.n))
    assert near(found.change_rate_per_day.mean() / rates(made), 1.0, changes**-0.5)
    for name, true in recalls.items():
        row = trust(found, name)
        assert near(row["signal_recall"], true, row["signal_recall_stderr"] + changes**-0.5), (name, row)
    for name, true in precisions.items():
        row = trust(found, name)
        assert near(row["signal_precision"], true, row["signal_precision_stderr"]), (name, row)


def twice(seed: int, minutes: float = 40.0, wrong: float = 0.0) -> Site:
    rng = np.random.default_rng(seed)
    made = site(rng, N, DAYS, RATE)
    told = made.tell(0, RECALL, rng, minutes)
    made.tell(1, RECALL, rng, minutes, told)
    if wrong:
        page, at = made.noise(0, wrong, rng)
        made._add(1, page, at + 60_000_000)
    return made


@pytest.mark.parametrize(("seed", "minutes"), [(1, 0.0), (2, 40.0), (3, 40.0)])
def test_two_sources_that_tell_the_same_changes(seed: int, minutes: float) -> None:
    made = twice(seed, minutes)
    found = estimates(made, crawls(made, np.random.default_rng(seed + 50), 0.35), ["indexnow", "sitemap"])
    both = {"indexnow": RECALL, "sitemap": RECALL}
    check(made, found, both, {"indexnow": 1.0, "sitemap": 1.0})
    # The page's one source that stands for both signals as often as each of them.
    rate = found.pages.column("signal_rate_per_day").to_numpy()
    assert rate.mean() == pytest.approx(RECALL * rates(made), rel=0.1)


def test_two_sources_that_are_wrong_together() -> None:
    """One signal in two is true: precision is that of the bundle, not that of a half of its weight."""
    made = twice(4, wrong=RECALL * RATE)
    found = estimates(made, crawls(made, np.random.default_rng(54), 0.35), ["indexnow", "sitemap"])
    both = {"indexnow": RECALL, "sitemap": RECALL}
    check(made, found, both, {"indexnow": 0.5, "sitemap": 0.5})


def test_two_sources_that_tell_changes_of_their_own() -> None:
    rng = np.random.default_rng(5)
    made = site(rng, N, DAYS, RATE)
    lot = rng.random(len(made.change_us))
    made.tell(0, 0.0, rng, mask=lot < 0.4)
    made.tell(1, 0.0, rng, mask=lot > 0.6)
    found = estimates(made, crawls(made, rng, 0.35), ["indexnow", "sitemap"])
    check(made, found, {"indexnow": 0.4, "sitemap": 0.4}, {"indexnow": 1.0, "sitemap": 1.0})


def test_two_sources_that_tell_some_of_the_same_changes() -> None:
    """Each tells three in five, whatever the other does: 84 % are told by one at least."""
    rng = np.random.default_rng(6)
    made = site(rng, N, DAYS, RATE)
    made.tell(0, 0.6, rng)
    made.tell(1, 0.6, rng)
    found = estimates(made, crawls(made, rng, 0.35), ["indexnow", "sitemap"])
    check(made, found, {"indexnow": 0.6, "sitemap": 0.6}, {"indexnow": 1.0, "sitemap": 1.0})
    unannounced = found.pages.column("unsignalled_rate_per_day").to_numpy().mean()
    assert near(unannounced / rates(made), 0.16, 0.02)


@pytest.mark.parametrize("junk", ["clockwork", "random", "hours"])
def test_junk_takes_nothing_from_a_good_sitemap(junk: str) -> None:
    """All of its true signals fall within an hour of one of the pings: so do all other times."""
    rng = np.random.default_rng(7)
    made = site(rng, N, DAYS, RATE)
    made.tell(1, RECALL, rng)
    if junk == "clockwork":
        made.clockwork(0, 30)
    elif junk == "hours":
        made.clockwork(0, 3 * 60)
    else:
        made.noise(0, 6.0, rng)
    seen = crawls(made, rng, 0.35)
    found = estimates(made, seen, ["ping", "sitemap"])
    check(made, found, {"sitemap": RECALL}, {"sitemap": 1.0, "ping": 0.0})
    assert trust(found, "ping")["signal_recall"] < 0.1
    # As the sitemap alone.
    made.page, made.at_us, made.source = (v[made.source == 1] for v in (made.page, made.at_us, made.source))
    alone = estimates(made, seen, ["ping", "sitemap"])
    for name in ("signal_rate_per_day", "signal_weight"):
        with_junk, without = (f.pages.column(name).to_numpy().mean() for f in (found, alone))
        assert with_junk == pytest.approx(without, rel=0.1), name


def test_two_that_tell_the_same_beside_junk() -> None:
    rng = np.random.default_rng(8)
    made = twice(8)
    made.clockwork(2, 60)
    found = estimates(made, crawls(made, rng, 0.35), ["cdn", "indexnow", "ping"])
    check(made, found, {"cdn": RECALL, "indexnow": RECALL}, {"cdn": 1.0, "indexnow": 1.0, "ping": 0.0})


def realised(a: float, weight: float, clock: float, rng: np.random.Generator) -> tuple[float, float]:
    """Freshness and crawls a day of a page told of by both at once, crawled by its clock."""
    n = 40_000
    changes = np.sort(rng.uniform(0.0, n / RATE, n))
    at = changes[rng.random(n) < RECALL].tolist()
    times, last, level = [0.0], 0.0, 0.0
    for now in at:
        while last + (clock - level) / a <= now:  # the clock runs out between signals
            last, level = last + (clock - level) / a, 0.0
            times.append(last)
        level += weight
        if a * (now - last) + level >= clock:
            last, level = now, 0.0
            times.append(now)
    crawled = np.array(times)
    place = np.searchsorted(changes, crawled[:-1], side="right")
    first = np.append(changes, np.inf)[place]
    fresh = np.minimum(first, crawled[1:]) - crawled[:-1]
    return float(fresh.sum() / crawled[-1]), float((len(crawled) - 1) / crawled[-1])


def test_expected_freshness_is_what_comes_true() -> None:
    """The mean page of a host that is told twice: what it is planned by, and what happens."""
    made = twice(9)
    found = estimates(made, crawls(made, np.random.default_rng(59), 0.35), ["indexnow", "sitemap"])
    names = ("unsignalled_rate_per_day", "signal_rate_per_day", "signal_weight")
    a, g, kappa = (found.pages.column(name).to_numpy().mean(keepdims=True) for name in names)
    pages = SignalPages(np.ones(1), a, g, kappa)
    expected = float(signal_value.freshness(pages, np.array([0.4]))[0])
    crawls_a_day = 1.0 / float(signal_value.interval_days(pages, np.array([0.4]))[0])
    fresh, crawled = realised(float(a[0]), float(kappa[0]), 0.4, np.random.default_rng(10))
    assert fresh > 0.85 and abs(fresh - expected) < 0.005
    assert crawled == pytest.approx(crawls_a_day, rel=0.05)


@pytest.mark.parametrize("seed", range(3))
def test_nights_are_one_night(seed: int) -> None:
    made = twice(20 + seed)
    made.noise(2, 0.5, np.random.default_rng(seed))
    seen = crawls(made, np.random.default_rng(30 + seed), 0.5)
    for half_lives in ({}, {"half_life_changes": 3, "half_life_days": 20.0}):
        one, _ = fold_nights(made, seen, 1, **half_lives)
        many, _ = fold_nights(made, seen, 45, **half_lives)
        assert many.equals(one) and one.near.sum() > (300.0 if not half_lives else 1.0)
    assert START % DAY == 0
