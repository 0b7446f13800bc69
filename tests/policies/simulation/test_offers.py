"""The generator of price offers keeps the patterns that are reported of real ones."""

import numpy as np
import pytest

from policies.history.page_state import US_PER_DAY
from policies.simulation import offers
from policies.simulation.offers import CATEGORIES, COUNTRIES, NIGHTLY, SATURATED, OfferModel

N, DAYS = 4000, 70


@pytest.fixture(scope="module")
def drawn():
    return offers.generate(N, DAYS, 3)


def _local(drawn):
    """Day of week and hour, local, of each change; and its offer."""
    hour, page = np.nonzero(drawn.changed)
    local = (hour + drawn.utc_offset_hours[page]) % 168
    return local // 24, local % 24, page


def test_changes_peak_at_local_midnight(drawn):
    _, hour, page = _local(drawn)
    count = np.bincount(hour[drawn.kind[page] != SATURATED], minlength=24)
    others = count[1:]
    assert count[0] > 5 * others.max()
    # By UTC the peak is smeared over the time zones.
    utc = np.bincount(np.nonzero(drawn.changed[:, drawn.kind != SATURATED])[0] % 24, minlength=24)
    assert utc.max() < 0.5 * count[0]


def test_nightly_offers_change_at_midnight_only(drawn):
    _, hour, page = _local(drawn)
    nightly = drawn.kind[page] == NIGHTLY
    assert nightly.any() and (hour[nightly] == 0).all()


def test_weekends_have_the_given_ratio(drawn):
    day, _, page = _local(drawn)
    count = np.bincount(day[drawn.kind[page] != SATURATED], minlength=7).astype(float)
    ratio = count[5:].mean() / count[:5].mean()
    # At midnight a change is certain rather than expected for the fastest offers, which flattens the week.
    error = ratio * np.sqrt(1.0 / count[5:].sum() + 1.0 / count[:5].sum())
    assert abs(ratio - OfferModel().weekend_ratio) < 4.0 * error + 0.06


def test_intervals_peak_at_multiples_of_a_day_and_many_are_short(drawn):
    hour, page = np.nonzero(drawn.changed)
    order = np.lexsort((hour, page))
    hour, page = hour[order], page[order]
    same = page[1:] == page[:-1]
    gap = np.diff(hour)[same]
    count = np.bincount(gap, minlength=200)
    for day in (24, 48, 72, 96, 120):
        around = np.r_[count[day - 8 : day - 1], count[day + 2 : day + 9]]
        assert count[day] > 4 * around.mean()
    assert count[1] > 0.3 * count.sum()


def test_a_few_offers_are_saturated(drawn):
    daily = drawn.changes_per_day().mean(axis=0)
    saturated = daily > 18.0
    expected = OfferModel().saturated_share
    assert abs(saturated.mean() - expected) < 4.0 * np.sqrt(expected / N)
    assert (saturated == (drawn.kind == SATURATED)).all()
    # They make most of all changes.
    assert daily[saturated].sum() > 0.4 * daily.sum()


def test_shares_of_a_day_are_as_reported(drawn):
    model = OfferModel()
    assert (drawn.changes_per_day() > 0).mean() == pytest.approx(model.changed_share, rel=0.15)
    assert (drawn.clicks > 0).mean() == pytest.approx(model.clicked_share, rel=0.15)
    assert (drawn.impressions > 0).mean() == pytest.approx(model.shown_share, rel=0.15)


def test_countries_and_categories_differ_in_the_reported_order():
    flat = OfferModel(merchant_deviation=0.0, change_drift=0.0, saturated_share=1e-9, offers_per_merchant=2)
    many = offers.generate(20_000, 7, 5, flat)
    daily = many.changes_per_day().mean(axis=0)

    def mean(code, names, some):
        chosen = np.isin(code, [list(names).index(name) for name in some])
        return daily[chosen].mean()

    assert mean(many.country, COUNTRIES, ["IN", "MX", "BR"]) > 1.8 * mean(
        many.country, COUNTRIES, ["US", "JP", "ID"]
    )
    top = mean(many.category, CATEGORIES, ["Software"])
    middle = mean(many.category, CATEGORIES, ["Electronics", "Media"])
    low = mean(many.category, CATEGORIES, ["Business & Industrial", "Religious & Ceremonial"])
    assert top > middle > 1.5 * low


def test_same_seed_same_offers_and_another_seed_others():
    one, two, other = (offers.generate(50, 14, seed) for seed in (1, 1, 2))
    for name in ("kind", "merchant", "change_rate_per_day", "changed", "clicks", "impressions"):
        np.testing.assert_array_equal(getattr(one, name), getattr(two, name))
    assert (one.changed != other.changed).any()


def test_steps_and_days_hold_the_hourly_changes(drawn):
    steps = drawn.changed_in_steps(2)
    assert steps.shape == (12 * DAYS, N)
    np.testing.assert_array_equal(steps[5], drawn.changed[10] | drawn.changed[11])
    np.testing.assert_array_equal(drawn.changes_per_day()[3], drawn.changed[72:96].sum(axis=0))
    with pytest.raises(ValueError, match="5 hours"):
        drawn.changed_in_steps(5)


def test_history_has_the_same_changes(drawn):
    history = drawn.history(0)
    assert len(history) == N
    counted = history.changes_between(0, 10 * US_PER_DAY)
    np.testing.assert_array_equal(counted, drawn.changes_per_day()[:10].sum(axis=0))


def test_wrong_models_are_named():
    with pytest.raises(ValueError, match="quiet_share"):
        OfferModel(quiet_share=1.2)
    with pytest.raises(ValueError, match="of all"):
        OfferModel(quiet_share=0.9, saturated_share=0.2)
    with pytest.raises(ValueError, match="changed_share"):
        offers.generate(100, 7, 1, OfferModel(changed_share=0.5, quiet_share=0.8))
    with pytest.raises(ValueError, match="offers and days"):
        offers.generate(0, 7, 1)
