"""Pages that nobody has looked at for long."""

import numpy as np

from policies.estimation.unseen import GIVEN_UP_DAYS, QUIET_AFTER_DAYS, times_less_often


def test_first_crawls_are_worth_the_mean_time_until_a_page_changes() -> None:
    rng = np.random.default_rng(0)
    rate, since = rng.gamma(0.5, 4.0, 2000), rng.exponential(60.0, 2000)
    known = (rate * since > 1.0) & (since > GIVEN_UP_DAYS)
    lasts = times_less_often(rate, since) / rate
    quiet = -np.expm1(-(since - GIVEN_UP_DAYS) / QUIET_AFTER_DAYS)
    np.testing.assert_allclose(lasts[known], ((1.0 - quiet) / rate + quiet * since)[known], rtol=1e-12)
    assert known.sum() > 500 and (lasts[~known] == 1.0 / rate[~known]).all()


def test_the_longer_nobody_looks_the_less_often_a_page_is_taken_to_change() -> None:
    since = np.linspace(0.0, 4000.0, 999)
    for rate in (0.003, 0.2, 30.0):
        less = times_less_often(np.full(999, rate), since)
        assert less[0] == 1.0 and (np.diff(less) >= 0.0).all()
        # It is never thought to stay for longer than it was left alone, nor to change more than it did.
        assert (less[1:] / rate <= np.maximum(since[1:], 1.0 / rate) * (1.0 + 1e-12)).all()
