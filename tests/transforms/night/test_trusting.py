"""How far sources are trusted, host by host, and what that makes of their pages."""

import numpy as np
import pyarrow as pa
import pytest

from policies.estimation.prior import estimate, fit_prior
from policies.history.page_state import NO_TIME
from policies.signals.bundles import Bundles
from policies.signals.estimation import Pooled, SignalPrior, default_prior
from policies.signals.host_signals import HostRates
from tests.policies.signal_simulation import Simulated, simulate
from tests.transforms.signal_shards import AS_OF_US, DAY_US, plain_evidence, shard_of
from transforms.kept.state import microseconds, times
from transforms.night.trusting import LEAST_RECALL, LearnedTrust, Shared, estimate_signals

GOOD, ALWAYS_NOW = 0, 1
N, CRAWLS = 80, 3


def _two_hosts(k: int = CRAWLS, n: int = N, seed: int = 1) -> tuple[Simulated, np.ndarray]:
    """One host with a sitemap that is right 9 times in 10, one whose sitemap says "now" every day."""
    rng = np.random.Generator(np.random.Philox(key=seed))
    rate = rng.gamma(1.5, 0.2, 2 * n) + 0.02
    host = np.repeat([0, 1], n)
    precision, recall = np.array([0.9, 0.0])[host], np.array([0.8, 0.0])[host]
    # A signal a day whatever the page does: recall 0 and false signals on top, drawn below.
    drawn = simulate(seed, rate, k, np.maximum(precision, 0.5)[:, None], recall[:, None], mean_gap=2.0)
    signals = drawn.signals.copy()
    now = host[drawn.page] == ALWAYS_NOW
    signals[now, 0] = rng.poisson(drawn.gap[now])
    return Simulated(
        drawn.unsignalled, drawn.signal_rate, drawn.weight, drawn.page, drawn.gap, signals, drawn.changed
    ), host


def _learned_rate(drawn: Simulated, host: np.ndarray) -> np.ndarray:
    """Change rates as the job has them: from crawls alone."""
    evidence = plain_evidence(drawn)
    n_hosts = int(host.max()) + 1
    return estimate(evidence, host, n_hosts, fit_prior(evidence, host)).change_rate_per_day


def _trust(found, host=0, source="sitemap"):
    (row,) = [r for r in found.trust.to_pylist() if r["host_code"] == host and r["source"] == source]
    return row


def test_a_good_sitemap_and_one_that_always_says_now_are_told_apart_after_three_crawls():
    drawn, host = _two_hosts()
    found = estimate_signals(
        shard_of(drawn, host, ["sitemap"]), _learned_rate(drawn, host), LearnedTrust(), AS_OF_US
    )
    good, bad = _trust(found, GOOD), _trust(found, ALWAYS_NOW)
    for row, precision, recall in ((good, 0.9, 0.8), (bad, 0.0, 0.0)):
        for name, true in (("precision", precision), ("recall", recall)):
            value, error = row[f"signal_{name}"], row[f"signal_{name}_stderr"]
            # Modes in the logarithm are never 0: an absolute slack besides.
            assert abs(value - true) < 3 * error + 0.1, (name, value, error)
    assert good["signal_precision"] > 0.75 and bad["signal_precision"] < 0.1
    assert good["pages"] + bad["pages"] <= 2 * N and good["signal_rate_per_day"] < bad["signal_rate_per_day"]
    assert not good["silent"] and not bad["silent"]
    # What is junk takes no part in the schedule; pages of the good host do.
    assert set(found.row.tolist()) >= set(range(N))
    weight = found.pages.column("signal_weight").to_numpy()
    assert (weight[found.row < N] > 0.5).all()
    late = found.row >= N
    true = -np.expm1(-weight) * found.pages.column("signal_rate_per_day").to_numpy()
    assert (true[late] < 0.25 * found.change_rate_per_day[late]).all()


def test_a_page_with_three_observations_borrows_from_its_host():
    """The same three intervals, one signal true and one false: each host pulls its own way."""
    drawn, host = _two_hosts()
    gap, signals = drawn.gap.copy(), drawn.signals.copy()
    changed = drawn.changed.copy()
    for page in (0, N):
        rows = drawn.page == page
        gap[rows], signals[rows, 0], changed[rows] = 1.0, [1, 0, 1], [True, False, False]
    drawn = Simulated(drawn.unsignalled, drawn.signal_rate, drawn.weight, drawn.page, gap, signals, changed)
    pending = np.zeros((2 * N, 1))
    pending[[0, N]] = 1
    rate = np.full(2 * N, 0.3)
    found = estimate_signals(shard_of(drawn, host, ["sitemap"], pending), rate, LearnedTrust(), AS_OF_US)
    at = {row: i for i, row in enumerate(found.row.tolist())}
    weight = found.pages.column("signal_weight").to_numpy()
    precision = -np.expm1(-weight)
    shared = [_trust(found, h)["signal_precision"] for h in (GOOD, ALWAYS_NOW)]
    assert 0.5 * shared[GOOD] < precision[at[0]] < shared[GOOD]  # its one false signal counts as well
    # The bad host's page has no signals that count, or hardly: one pending signal moves its clock by nothing.
    clock = found.pages.column("clock_of_signals").to_numpy()
    assert clock[at[0]] > 0.4
    assert N not in at or clock[at[N]] < 0.2
    # Alone, with nobody to borrow from, it is neither.
    alone = Simulated(
        drawn.unsignalled[:1],
        drawn.signal_rate[:1],
        drawn.weight[:1],
        np.zeros(3, np.int64),
        gap[:3],
        signals[:3],
        changed[:3],
    )
    lone = estimate_signals(
        shard_of(alone, np.zeros(1, np.int64), ["sitemap"], pending[:1]), rate[:1], LearnedTrust(), AS_OF_US
    )
    between = -np.expm1(-lone.pages.column("signal_weight").to_numpy()[0])
    assert shared[ALWAYS_NOW] + 0.1 < between < precision[at[0]] - 0.1


def _one_host(seed=3, n=60, k=8, sources=1):
    rng = np.random.Generator(np.random.Philox(key=seed))
    rate = rng.gamma(1.5, 0.3, n) + 0.02
    precision, recall = np.full(sources, 0.8), np.full(sources, 0.6 / sources)
    return simulate(seed, rate, k, precision, recall), np.zeros(n, np.int64), rate


@pytest.mark.parametrize(("days", "silent"), [(0.5, False), (4.9, False), (5.5, True), (30.0, True)])
def test_a_source_that_has_stopped_is_silent_and_its_changes_go_on(days, silent):
    drawn, host, rate = _one_host()
    heard = estimate_signals(shard_of(drawn, host, ["feed"]), rate, LearnedTrust(), AS_OF_US)
    found = estimate_signals(shard_of(drawn, host, ["feed"], last_days=days), rate, LearnedTrust(), AS_OF_US)
    assert _trust(found, 0, "feed")["silent"] == silent
    if not silent:
        assert found.pages.column("signal_rate_per_day").equals(heard.pages.column("signal_rate_per_day"))
        return
    assert len(found.row) == 0  # nothing of it counts any more, so these pages are as if without signals
    # The trust that was learned is still shown.
    for name in ("signal_precision", "signal_rate_per_day"):
        assert _trust(found, 0, "feed")[name] == _trust(heard, 0, "feed")[name]


def test_what_a_silent_source_told_counts_as_unsignalled():
    """Two sources, one stops: pages keep their change rate, and its part of it comes unannounced."""
    drawn, host, rate = _one_host(sources=2, k=20)
    tables = shard_of(drawn, host, ["feed", "sitemap"])
    heard = estimate_signals(tables, rate, LearnedTrust(), AS_OF_US)
    sources = tables.tables["signal_sources"]
    stopped = sources.column("source").to_numpy() == 0
    last = np.where(stopped, AS_OF_US - 40 * DAY_US, microseconds(sources.column("last_signal_at")))
    columns = {name: sources.column(name) for name in sources.schema.names} | {"last_signal_at": times(last)}
    tables.tables["signal_sources"] = pa.RecordBatch.from_pydict(columns, schema=sources.schema)
    found = estimate_signals(tables, rate, LearnedTrust(), AS_OF_US)
    assert [_trust(found, 0, s)["silent"] for s in ("feed", "sitemap")] == [True, False]
    assert np.array_equal(found.row, heard.row)
    np.testing.assert_allclose(found.change_rate_per_day, heard.change_rate_per_day, rtol=1e-9)
    before, after = (f.pages.column("unsignalled_rate_per_day").to_numpy() for f in (heard, found))
    assert (after > before).all()
    assert 0.15 < ((after - before) / found.change_rate_per_day).mean() < 0.45  # 0.3 of all changes


def test_few_signals_a_day_are_no_silence():
    """A host that signals every third day has said nothing for ten days: that happens."""
    n = 10
    rate = np.full(n, 0.03)
    drawn = simulate(5, rate, 6, np.array([0.9]), np.array([0.9]), mean_gap=20.0)
    found = estimate_signals(
        shard_of(drawn, np.zeros(n, np.int64), ["feed"], last_days=10.0), rate, LearnedTrust(), AS_OF_US
    )
    row = _trust(found, 0, "feed")
    assert not row["silent"] and row["signal_rate_per_day"] * 10 < 12
    assert len(found.row) == n


def test_several_sources_have_a_trust_each_and_count_together():
    """A good feed beside junk pings: the clock runs by the feed's signals."""
    n = 150
    rng = np.random.Generator(np.random.Philox(key=8))
    rate = rng.gamma(1.5, 0.3, n) + 0.02
    drawn = simulate(8, rate, 10, np.array([0.85, 0.02]), np.array([0.6, 0.02]))
    host = np.zeros(n, np.int64)
    pending = np.zeros((n, 2))
    pending[0], pending[1], pending[2] = (1, 0), (0, 3), (2, 1)
    found = estimate_signals(shard_of(drawn, host, ["feed", "ping"], pending), rate, LearnedTrust(), AS_OF_US)
    feed, ping = _trust(found, 0, "feed"), _trust(found, 0, "ping")
    assert feed["signal_precision"] > 0.6 > 0.15 > ping["signal_precision"]
    assert feed["signal_recall"] > 0.4 and ping["signal_recall"] < 0.1
    assert feed["signals_since_crawl"] == 3 and ping["signals_since_crawl"] == 4
    assert np.array_equal(found.row, np.arange(n))
    clock = found.pages.column("clock_of_signals").to_numpy()
    assert clock[2] > clock[0] > 0.7 and clock[1] < 0.6 and (clock[3:] == 0.0).all()
    assert found.pages.column("signals_since_crawl").to_numpy()[:4].tolist() == [1, 3, 3, 0]
    true = -np.expm1(-found.pages.column("signal_weight").to_numpy())
    true *= found.pages.column("signal_rate_per_day").to_numpy()
    change = found.pages.column("unsignalled_rate_per_day").to_numpy() + true
    np.testing.assert_allclose(change, found.change_rate_per_day, rtol=1e-12)
    assert found.forecasts.column("signal_source")[0].as_py() == ["feed", "ping"]


def test_a_host_does_not_depend_on_the_company_it_keeps():
    """A host with one source, alone and beside one with two others: the same bits."""
    rng = np.random.Generator(np.random.Philox(key=21))
    n = 30
    rate = rng.gamma(1.5, 0.3, 2 * n) + 0.02
    drawn = simulate(9, rate, 6, np.array([0.7, 0.5, 0.3]), np.array([0.3, 0.2, 0.2]))
    signals = drawn.signals.copy()
    host = np.repeat([0, 1], n)
    first = host[drawn.page] == 0
    signals[first, 0] = signals[first, 2] = 0
    signals[~first, 1] = 0
    whole = Simulated(
        drawn.unsignalled, drawn.signal_rate, drawn.weight, drawn.page, drawn.gap, signals, drawn.changed
    )
    part = Simulated(
        drawn.unsignalled[:n],
        drawn.signal_rate[:n],
        drawn.weight[:n],
        drawn.page[first],
        drawn.gap[first],
        signals[first][:, [1]],
        drawn.changed[first],
    )
    together = estimate_signals(shard_of(whole, host, ["a", "b", "c"]), rate, LearnedTrust(), AS_OF_US)
    alone = estimate_signals(shard_of(part, host[:n], ["b"]), rate[:n], LearnedTrust(), AS_OF_US)
    mine = [r for r in together.trust.to_pylist() if r["host_code"] == 0]
    assert mine == alone.trust.to_pylist()
    some = together.row < n
    for name in alone.pages.schema.names:
        assert np.array_equal(together.pages.column(name).to_numpy()[some], alone.pages.column(name)), name
    assert np.array_equal(together.change_rate_per_day[some], alone.change_rate_per_day)
    assert np.array_equal(together.information[some], alone.information)
    assert together.forecasts.to_pylist()[: len(alone.row)] == alone.forecasts.to_pylist()


def test_pages_without_signals_that_matter_are_left_out():
    """A page that nobody signals, of a host that signals: it has a small rate of signals, like its host."""
    drawn, host = _two_hosts(k=30)
    found = estimate_signals(
        shard_of(drawn, host, ["sitemap"]), _learned_rate(drawn, host), LearnedTrust(), AS_OF_US
    )
    recall = -np.expm1(-found.pages.column("signal_weight").to_numpy())
    recall *= found.pages.column("signal_rate_per_day").to_numpy() / found.change_rate_per_day
    assert (recall > LEAST_RECALL).all()
    assert (found.row >= N).sum() == 0  # the sitemap that always says now is given up


def test_the_first_ping_of_a_host_does_not_change_how_often_its_pages_change():
    """Nothing is known of its signals: rates are those of the crawls, for that page and others."""
    drawn, host, rate = _one_host(n=40, k=6)
    quiet = Simulated(
        drawn.unsignalled,
        drawn.signal_rate,
        drawn.weight,
        drawn.page[:0],
        drawn.gap[:0],
        drawn.signals[:0],
        drawn.changed[:0],
    )
    pending = np.zeros((40, 1))
    pending[7] = 1
    for number in (1, 24):
        tables = shard_of(quiet, host, ["ping"], number * pending)
        found = estimate_signals(tables, rate, LearnedTrust(), AS_OF_US)
        assert 7 in found.row.tolist()
        others = found.row != 7
        np.testing.assert_allclose(found.change_rate_per_day[others], rate[found.row[others]], rtol=0.02)
        mine = found.change_rate_per_day[found.row == 7][0]
        assert rate[7] * 0.98 < mine < rate[7] + 0.6  # one signal in half a day, a quarter of it true


def test_a_flood_does_not_raise_change_rates_before_a_crawl_has_seen_it():
    drawn, host, rate = _one_host(n=60, k=8)
    calm = estimate_signals(shard_of(drawn, host, ["feed"]), rate, LearnedTrust(), AS_OF_US)
    flooded = shard_of(drawn, host, ["feed"], np.full((60, 1), 166.0))
    found = estimate_signals(flooded, rate, LearnedTrust(), AS_OF_US)
    assert found.pages.column("signals_since_crawl").to_numpy().sum() == 60 * 166
    total = [f.change_rate_per_day.sum() for f in (calm, found)]
    assert total[0] < total[1] < 1.1 * total[0]
    shown = _trust(found, 0, "feed")
    assert shown["signals_since_crawl"] == 60 * 166 and shown["signals"] < 1.15 * drawn.signals.sum()


def test_information_is_what_the_errors_say():
    drawn, host, rate = _one_host(k=30)
    found = estimate_signals(shard_of(drawn, host, ["feed"]), rate, LearnedTrust(), AS_OF_US)
    assert (found.information > 0.0).all() and np.isfinite(found.information).all()
    # 30 intervals of a page and the host's prior: change rates known to about 1 part in 2 to 5.
    assert 3.0 < np.median(found.information) < 60.0


def test_a_shard_without_signals_has_no_estimates():
    drawn, host, rate = _one_host()
    tables = shard_of(drawn, host, ["feed"])
    for name in ("signal_pages", "signal_sources", "signal_bins", "signal_pairs", "sources"):
        del tables.tables[name]
    assert estimate_signals(tables, rate, LearnedTrust(), AS_OF_US) is None


# ---- what the sample says


def _learned() -> LearnedTrust:
    prior = SignalPrior(0.4, 1.0, np.array([0.5, 2.0]), np.array([1.0, 3.0]))
    covariance = np.array([[[0.5, 0.1, 0.2], [0.1, 0.6, 0.05], [0.2, 0.05, 0.7]]])
    return LearnedTrust(
        ("ping", "sitemap"), prior, {7: _host(Pooled(np.array([0.3]), np.array([[0.1, 4.0]]), covariance))}
    )


def _host(pooled: Pooled, *rates: float) -> Shared:
    """A split host with these numbers of `HostRates` for each of its sources."""
    sources = pooled.signal_weight.shape[1]
    sent = HostRates(*(np.full((1, sources), v) for v in rates or (1.0, 1.0, 1.0, 20.0)))
    return Shared(pooled, sent, Bundles.none(1, sources))


def test_the_prior_of_a_shard_has_its_sources_and_the_default_for_new_ones():
    prior, unknown = _learned().prior_of(["indexnow", "sitemap"]), default_prior(1)
    assert prior.missed_share == 0.4 and prior.missed_strength == 1.0
    assert prior.signal_weight.tolist() == [unknown.signal_weight[0], 2.0]
    assert prior.weight_strength.tolist() == [unknown.weight_strength[0], 3.0]
    assert LearnedTrust().prior_of(["a"]).signal_weight.tolist() == unknown.signal_weight.tolist()
    assert _learned().prior_of([]).signal_weight.shape == (0,)


def test_what_a_split_host_shares_is_put_in_the_order_of_a_shard():
    learned = _learned()
    found = learned.giant(7, ["indexnow", "sitemap"]).pooled
    assert found.missed_share.tolist() == [0.3]
    assert found.signal_weight.tolist() == [[default_prior(1).signal_weight[0], 4.0]]
    assert found.covariance[0].tolist() == [[0.5, 0.0, 0.2], [0.0, 1.0, 0.0], [0.2, 0.0, 0.7]]
    same = learned.giant(7, ["ping", "sitemap"]).pooled
    assert np.array_equal(same.covariance, learned.giants[7].pooled.covariance)
    assert learned.giant(7, []).pooled.covariance.tolist() == [[[0.5]]]


def test_pages_of_a_split_host_follow_what_all_its_parts_share():
    drawn, host, rate = _one_host(n=20, k=3)
    covariance = np.zeros((1, 2, 2))
    shared = Pooled(np.array([0.1]), np.array([[3.0]]), covariance)
    learned = LearnedTrust(("feed",), default_prior(1), {1: _host(shared)})
    found = estimate_signals(shard_of(drawn, host, ["feed"]), rate, learned, AS_OF_US)
    row = _trust(found, 0, "feed")
    assert row["signal_precision"] == pytest.approx(-np.expm1(-3.0)) and row["signal_precision_stderr"] == 0.0
    own = estimate_signals(shard_of(drawn, host, ["feed"]), rate, LearnedTrust(), AS_OF_US)
    assert (
        found.pages.column("signal_weight").to_numpy().mean()
        > own.pages.column("signal_weight").to_numpy().mean() + 0.3
    )


def test_rates_that_pages_of_a_split_host_borrow_are_those_of_all_its_parts():
    drawn, host, rate = _one_host(n=20, k=3)
    shared = Pooled(np.array([0.5]), np.array([[1.0]]), np.zeros((1, 2, 2)))
    learned = LearnedTrust(("feed",), default_prior(1), {1: _host(shared, 0.3, 0.5, 0.4, 20.0)})
    both = learned.giant(1, ["new", "feed"]).rates
    assert both.calm.tolist() == [[0.0, 0.3]] and both.kept.tolist() == [[1.0, 0.5]]
    assert both.usual.tolist() == [[0.0, 0.4]] and both.signals.tolist() == [[0.0, 20.0]]
    whole = estimate_signals(shard_of(drawn, host, ["feed"]), rate, learned, AS_OF_US)
    part = Simulated(
        drawn.unsignalled[:5],
        drawn.signal_rate[:5],
        drawn.weight[:5],
        drawn.page[:15],
        drawn.gap[:15],
        drawn.signals[:15],
        drawn.changed[:15],
    )
    found = estimate_signals(shard_of(part, host[:5], ["feed"]), rate[:5], learned, AS_OF_US)
    for name in found.pages.schema.names:
        assert found.pages.column(name).equals(whole.pages.column(name).slice(0, 5)), name


def test_last_signals_of_pages_without_any_are_no_time():
    drawn, host, rate = _one_host(n=40, k=2)
    found = estimate_signals(shard_of(drawn, host, ["feed"]), rate, LearnedTrust(), AS_OF_US)
    silent = np.bincount(drawn.page, weights=drawn.signals[:, 0], minlength=40) == 0
    last = found.pages.column("last_signal_us").to_numpy()
    assert silent.any() and (last[silent[found.row]] == NO_TIME).all()
    assert (last[~silent[found.row]] == AS_OF_US - DAY_US // 2).all()
