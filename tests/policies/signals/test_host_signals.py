"""What the pages of a host share of its signals, before and after much is known."""

import numpy as np
import pytest

from policies.signals.estimation import Pooled, default_prior, fit_pooled
from policies.signals.evidence import PageSignals
from policies.signals.host_signals import (
    TOTAL_VARIANCE,
    HostRates,
    credible_signals,
    expected_rates,
    hold_to_changes,
    host_rates,
    page_rates,
)
from tests.policies.signal_evidence import from_intervals

N = 40
RATE = np.full(N, 0.2)


def _heard(ended, ended_days, running, running_days) -> PageSignals:
    """Of pages with one source; numbers for all pages or one each."""

    def column(values):
        return np.broadcast_to(np.asarray(values, np.float64), N).copy()

    counts = (column(ended)[:, None], column(ended_days), column(running)[:, None], column(running_days))
    return PageSignals(*counts, *np.zeros((3, 0), np.int64), *np.zeros((2, 0)))


def _rates(*heard, hosts=1) -> HostRates:
    """Of equal hosts."""
    return host_rates(_heard(*heard), RATE, np.arange(N) * hosts // N, np.ones((hosts, 1)))


def _unknown(n_hosts: int = 1, sources: int = 1) -> Pooled:
    prior = default_prior(sources)
    nothing = from_intervals(np.zeros(0, np.int64), np.zeros(0), np.zeros((0, sources)), np.zeros(0, bool), 0)
    return fit_pooled(nothing, np.zeros(0), np.zeros(0, np.int64), n_hosts, prior)


def _total(pooled: Pooled, per_change: np.ndarray) -> np.ndarray:
    return pooled.missed_share + (-np.expm1(-pooled.signal_weight) * per_change).sum(axis=1)


@pytest.mark.parametrize("seed", range(5))
def test_a_crawl_on_every_signal_does_not_raise_rates(seed):
    """Pages crawled as soon as they are signalled, 0.2 times a day: all ended intervals have a signal."""
    rng = np.random.Generator(np.random.Philox(key=seed))
    listened = 2.0
    times = [np.sort(rng.random(k)) * listened for k in rng.poisson(0.2 * listened, N)]
    ended = np.array([len(t) for t in times], float)
    ended_days = np.array([t[-1] if len(t) else 0.0 for t in times])
    by_ended = ended.sum() / ended_days.sum()
    rates = _rates(ended, ended_days, 0.0, listened - ended_days)
    per_day = rates.usual[0, 0] * 0.2
    counted = ended.sum() / (N * listened)
    assert per_day == pytest.approx(counted, rel=0.1)
    assert by_ended > 2.0 * per_day  # what crawls alone say


def test_few_signals_in_little_time_stay_near_what_is_expected():
    """Two signals in a fortieth of a day are not 75 a day."""
    ended, days = np.zeros(N), np.zeros(N)
    ended[0], days[0] = 2.0, 0.0272
    rates = _rates(ended, days, 0.0, 0.0)
    assert ended.sum() / days.sum() > 70.0
    assert rates.usual[0, 0] < 2.1  # signals per change; one is expected
    assert _rates(ended * 100, days * 1e5, 0.0, 0.0).usual[0, 0] == pytest.approx(0.0735 / 0.2, rel=0.01)


def test_hosts_that_never_signalled_have_no_rate():
    rates = _rates(0.0, 5.0, 0.0, 5.0)
    assert rates.usual.tolist() == rates.calm.tolist() == [[0.0]] and rates.kept.tolist() == [[1.0]]
    none = page_rates(np.zeros((N, 1)), np.full(N, 3.0), rates.usual, RATE, np.zeros(N, np.int64))
    assert (none == 0.0).all()


def test_a_flood_counts_little_more_than_what_is_usual():
    running = np.full(N, 2.0)
    running[20:] = 500.0
    ended, days, group = np.full(N, 20.0), np.full(N, 100.0), np.arange(N) // 20
    rates = _rates(ended, days, running, 10.0, hosts=2)
    counted = credible_signals(_heard(ended, days, running, 10.0), RATE, group, rates)[:, 0]
    assert (counted[:20] == 2.0).all() and rates.kept[0, 0] == 1.0
    assert counted[20:].sum() == pytest.approx(40 + 3 * np.sqrt(40) + 1, rel=0.05)
    assert rates.usual[1, 0] < 1.1 * rates.usual[0, 0]


def test_a_flood_of_a_host_that_was_never_heard_of_is_held_to_its_changes():
    rates = _rates(0.0, 0.0, 500.0, 0.5)
    expected = N * 0.5 * 0.2  # at one a change
    assert rates.signals[0, 0] == pytest.approx(expected + 3 * np.sqrt(expected) + 1)
    assert rates.usual[0, 0] < 5.0


def test_pages_borrow_by_how_often_they_change_and_keep_what_is_theirs():
    rate, group = np.array([0.1, 1.0, 1.0]), np.zeros(3, np.int64)
    found = page_rates(
        np.array([[0.0], [0.0], [300.0]]), np.array([0.0, 0.0, 100.0]), np.array([[0.8]]), rate, group
    )[:, 0]
    np.testing.assert_allclose(found[:2], [0.08, 0.8])
    assert found[2] == pytest.approx(3.0, rel=0.01)


@pytest.mark.parametrize("per_change", [0.01, 0.5, 1.0, 3.0, 10.0])
def test_first_signals_leave_change_rates_as_they_are(per_change):
    before, sent = _unknown(), np.array([[per_change]])
    after = hold_to_changes(before, sent, np.array([[50.0]]))
    # Within the error that the observation has.
    assert abs(np.log(_total(after, sent)[0])) < np.sqrt(TOTAL_VARIANCE)
    if per_change >= 1.0:
        assert _total(before, sent)[0] > 0.99 and after.signal_weight[0, 0] <= before.signal_weight[0, 0]
    assert (np.linalg.eigvalsh(after.covariance) > 0.0).all()
    assert after.covariance[0, 0, 0] < before.covariance[0, 0, 0]


def test_what_is_known_stays():
    known = Pooled(np.array([0.6]), np.array([[1.2]]), 1e-4 * np.eye(2)[None])
    sent = np.array([[1.5]])
    assert _total(known, sent)[0] > 1.6
    after = hold_to_changes(known, sent, np.array([[1000.0]]))
    np.testing.assert_allclose(after.missed_share, 0.6, rtol=0.01)
    np.testing.assert_allclose(after.signal_weight, 1.2, rtol=0.01)


def test_a_host_does_not_depend_on_others_or_on_sources_it_lacks():
    many = Pooled(
        np.array([0.75, 0.4]), np.array([[0.29, 0.5, 0.29], [0.3, 1.0, 2.0]]), np.stack([np.eye(3 + 1)] * 2)
    )
    sent = np.array([[0.0, 2.0, 0.0], [1.0, 2.0, 0.5]])
    both = hold_to_changes(many, sent, 10 * sent)
    alone = Pooled(np.array([0.75]), np.array([[0.5]]), np.eye(2)[None])
    one = hold_to_changes(alone, sent[:1, [1]], 10 * sent[:1, [1]])
    assert both.missed_share[0] == one.missed_share[0]
    assert both.signal_weight[0].tolist() == [0.29, one.signal_weight[0, 0], 0.29]
    assert np.array_equal(both.covariance[0][np.ix_([0, 2], [0, 2])], one.covariance[0])


def test_what_is_expected_makes_up_for_the_changes_that_are_told():
    hosts = Pooled(np.array([0.4, 1.7]), np.array([[np.log(2.0)], [1e-9]]), np.zeros((2, 2, 2)))
    assert expected_rates(hosts)[:, 0].tolist() == pytest.approx([1.2, 1.0])


def test_rates_of_pages_by_hand_and_of_a_few_of_them():
    """A page that is known little is as its host is; whichever pages are given, the numbers are the same."""
    count, days = np.array([[10.0, 0.0], [0.0, 0.0]]), np.array([10.0, 10.0])
    rate, usual = np.array([0.5, 0.25]), np.array([[1.0, 0.0]])
    found = page_rates(count, days, usual, rate, np.zeros(2, np.int64))
    np.testing.assert_allclose(found[:, 0], [10.5 / (10.0 + 1.0), 0.5 / (10.0 + 2.0)], rtol=1e-14)
    assert found[:, 1].tolist() == [0.0, 0.0]
    rng = np.random.Generator(np.random.Philox(key=1))
    true, zeros = rng.gamma(0.5, 2.0, 300), np.zeros(300, np.int64)
    seen, days = rng.poisson(true * 400.0)[:, None].astype(float), np.full(300, 400.0)
    found = page_rates(seen, days, np.array([[1.0]]), np.ones(300), zeros)
    z = (found[:, 0] - true) / np.sqrt(np.maximum(true, 1.0 / 400.0) / 400.0)
    assert np.abs(z).max() < 5.0 and abs(z.mean()) < 4.0 / np.sqrt(300)
    part = page_rates(seen[:5], days[:5], np.array([[1.0]]), np.ones(5), zeros[:5])
    assert np.array_equal(found[:5], part)
