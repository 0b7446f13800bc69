"""Price offers that change, are shown and are clicked as Han et al. 2019 and 2020 report of real ones.

Their data was never published. Drawn here, hour by hour, with what the papers say of it (2019, section 3;
2020, section 4.1):

    time of day     a peak at midnight of the merchant's time zone, by merchants that update at night only
    day of week     fewer changes at weekends
    intervals       many short ones, and peaks at 24 h, 48 h, ...
    countries       rates differ: IN, MX and BR highest, US, JP and ID lowest
    categories      rates differ: Software highest, then Electronics and Media; Business & Industrial and
                    Religious & Ceremonial lowest
    saturated       a few offers change nearly every hour, like gold coins with the spot price
    sparse          1 of 20 offers changes on a day, 1 of 67 is clicked and 1 of 7 is shown (averages)

What the papers do not tell is a parameter of `OfferModel`: how many offers hardly ever change, how uneven
rates are, how they drift. Its defaults were set with the levels of tables 5 and 6 of the 2020 paper in view,
so that levels come out alike is no evidence; which policy is above which is.
"""

from dataclasses import dataclass
from typing import Final

import numpy as np
from scipy.optimize import brentq

from policies.history.page_state import US_PER_DAY
from policies.numerics.typing_ import BoolArray, FloatArray, IntArray, UIntArray
from policies.simulation.histories import ChangeHistory

HOURS_PER_DAY: Final = 24
DAYS_PER_WEEK: Final = 7

COUNTRIES: Final[dict[str, tuple[int, float]]] = {
    "IN": (5, 2.6),
    "MX": (-6, 2.3),
    "BR": (-3, 2.1),
    "TR": (3, 1.6),
    "RU": (3, 1.5),
    "PL": (1, 1.3),
    "AU": (10, 1.2),
    "GB": (0, 1.15),
    "CZ": (1, 1.1),
    "FR": (1, 1.05),
    "DE": (1, 1.0),
    "IT": (1, 1.0),
    "ES": (1, 0.95),
    "NL": (1, 0.95),
    "SE": (1, 0.9),
    "CA": (-5, 0.85),
    "CH": (1, 0.8),
    "US": (-6, 0.6),
    "JP": (9, 0.5),
    "ID": (7, 0.45),
}
"""Hours ahead of UTC, and change rate relative to the mean. Only the ends of the order are reported."""

CATEGORIES: Final[dict[str, float]] = {
    "Software": 3.0,
    "Electronics": 1.8,
    "Media": 1.7,
    "Cameras & Optics": 1.3,
    "Toys & Games": 1.2,
    "Home & Garden": 1.0,
    "Apparel & Accessories": 1.0,
    "Sporting Goods": 1.0,
    "Health & Beauty": 0.9,
    "Vehicles & Parts": 0.9,
    "Hardware": 0.8,
    "Furniture": 0.8,
    "Office Supplies": 0.8,
    "Business & Industrial": 0.45,
    "Religious & Ceremonial": 0.4,
}
"""Change rate relative to the mean. Only the ends of the order are reported."""

QUIET, ANY_HOUR, NIGHTLY, SATURATED = 0, 1, 2, 3
KINDS: Final = ("quiet", "any hour", "nightly", "saturated")
"""How an offer changes: hardly ever, at any hour, at its merchant's midnight only, nearly every hour."""


@dataclass(frozen=True, slots=True)
class OfferModel:
    """Parameters of the generator; shares are of offers, deviations are of natural logarithms.

    Attributes
    ----------
    changed_share, clicked_share, shown_share : float
        Mean share of offers that change, are clicked and are shown on a day (Han et al. 2020, section 4.1.1).
    quiet_share : float
        Offers that change `quiet_rate_per_day` times a day. Not reported.
    quiet_rate_per_day : float
    saturated_share : float
        Offers that change in an hour with probability `saturated_hourly`.
    saturated_hourly : float
    nightly_share : float
        Merchants whose other offers change at midnight only.
    midnight_ratio : float
        How much likelier the others change in the hour after midnight than in another.
    weekend_ratio : float
        Rate at weekends over that of other days.
    rate_shape : float
        Shape of the gamma distribution of rates of like offers.
    merchant_deviation, change_drift, demand_drift : float
        Spread of change rates of merchants; of their slow movement (one relaxation in 30 days); of that of
        the demand of an offer.
    offers_per_merchant : int
        On average; merchants' sizes are uneven.
    impression_deviation, click_deviation : float
        Spread of impression rates, and of clicks per impression.
    """

    changed_share: float = 1.0 / 20.0
    clicked_share: float = 0.015
    shown_share: float = 0.15
    quiet_share: float = 0.65
    quiet_rate_per_day: float = 0.001
    saturated_share: float = 0.005
    saturated_hourly: float = 0.9
    nightly_share: float = 0.4
    midnight_ratio: float = 4.0
    weekend_ratio: float = 0.6
    rate_shape: float = 0.7
    merchant_deviation: float = 0.5
    change_drift: float = 0.3
    demand_drift: float = 0.4
    offers_per_merchant: int = 25
    impression_deviation: float = 2.0
    click_deviation: float = 0.7

    def __post_init__(self) -> None:
        for name in ("changed_share", "clicked_share", "shown_share", "quiet_share", "saturated_share"):
            value = getattr(self, name)
            if not 0.0 < value < 1.0:
                raise ValueError(f"{name} must lie in (0, 1), got {value!r}")
        if self.quiet_share + self.saturated_share >= 1.0:
            raise ValueError(
                f"quiet and saturated offers are {self.quiet_share + self.saturated_share:g} of all; "
                "leave some that change now and then"
            )


@dataclass(frozen=True, slots=True)
class Offers:
    """n offers over some days of hourly truth. Hour 0 is a Monday's first, UTC.

    Attributes
    ----------
    category, country, merchant : (n,) int64
        Codes: positions in `CATEGORIES` and `COUNTRIES`, and merchants from 0.
    utc_offset_hours : (n,) int64
    kind : (n,) int64
        `QUIET`, `ANY_HOUR`, `NIGHTLY` or `SATURATED`.
    change_rate_per_day : (n,) float64
        Expected before drift. Of a saturated offer, hours with a change.
    changed : (hours, n) bool
        Whether the price differs from that of an hour before.
    clicks, impressions : (days, n) int64
        Counts of each day, UTC.
    """

    category: IntArray
    country: IntArray
    merchant: IntArray
    utc_offset_hours: IntArray
    kind: IntArray
    change_rate_per_day: FloatArray
    changed: BoolArray
    clicks: IntArray
    impressions: IntArray

    def __len__(self) -> int:
        return len(self.kind)

    @property
    def days(self) -> int:
        """Whole days of truth."""
        return len(self.clicks)

    def changes_per_day(self) -> IntArray:
        """(days, n) int64: number of changes on each day."""
        daily = self.changed.reshape(self.days, HOURS_PER_DAY, len(self))
        return np.asarray(daily.sum(axis=1), dtype=np.int64)

    def changed_in_steps(self, hours: int) -> BoolArray:
        """(steps, n) bool: any change in each step of `hours` hours.

        Raises
        ------
        ValueError
            A day is not a whole number of steps.
        """
        if hours < 1 or HOURS_PER_DAY % hours:
            raise ValueError(f"steps of {hours} hours do not divide a day; use 1, 2, 3, 4, 6, 8, 12 or 24")
        return np.asarray(self.changed.reshape(-1, hours, len(self)).any(axis=1))

    def history(self, start_us: int = 0) -> ChangeHistory:
        """The changes as a history for replay; each at its hour's end, as hourly crawls find it.

        Parameters
        ----------
        start_us : int
            Beginning of hour 0, microseconds UTC.
        """
        hour, page = np.nonzero(self.changed)
        us_per_hour = US_PER_DAY // HOURS_PER_DAY
        return ChangeHistory.from_events(
            start_us,
            start_us + self.days * US_PER_DAY,
            np.full(len(self), start_us, np.int64),
            page.astype(np.int64),
            start_us + (hour.astype(np.int64) + 1) * us_per_hour,
        )


def hour_profile(model: OfferModel, kind: int) -> FloatArray:
    """Relative change rate in each local hour of a week from Monday on: (168,) float64 of mean 1."""
    day = np.ones(HOURS_PER_DAY)
    if kind == NIGHTLY:
        day[1:] = 0.0
    elif kind != SATURATED:
        day[0] = model.midnight_ratio
    week = np.ones(DAYS_PER_WEEK)
    if kind != SATURATED:
        week[5:] = model.weekend_ratio
    profile = np.outer(week, day).reshape(-1)
    out: FloatArray = profile / profile.mean()
    return out


def generate(n: int, days: int, seed: int, model: OfferModel | None = None) -> Offers:
    """Draw offers and what happens to them.

    Parameters
    ----------
    n : int
        Offers.
    days : int
    seed : int
        Same seed, n and days: same offers, bit for bit.
    model : OfferModel, optional

    Returns
    -------
    Offers
        About 24 n days bytes for the changes and 16 n days for the counts.

    Raises
    ------
    ValueError
        No offer or no day.
    """
    if n < 1 or days < 1:
        raise ValueError(f"needs offers and days, got {n} and {days}")
    m = OfferModel() if model is None else model

    def rng(purpose: int) -> np.random.Generator:
        key: UIntArray = np.array([seed, purpose], dtype=np.uint64)
        return np.random.Generator(np.random.Philox(key=key))

    who = rng(1)
    merchants = max(1, round(n / m.offers_per_merchant))
    size = who.gamma(1.0, size=merchants)
    merchant = who.choice(merchants, size=n, p=size / size.sum())
    country = who.integers(0, len(COUNTRIES), merchants)[merchant]
    focus = who.integers(0, len(CATEGORIES), merchants)[merchant]
    category = np.where(who.random(n) < 0.7, focus, who.integers(0, len(CATEGORIES), n))
    nightly = (who.random(merchants) < m.nightly_share)[merchant]
    level = np.exp(who.normal(0.0, m.merchant_deviation, merchants))[merchant]
    level *= np.array([factor for _, factor in COUNTRIES.values()])[country]
    level *= np.array(list(CATEGORIES.values()))[category]
    kind = np.where(nightly, NIGHTLY, ANY_HOUR)
    pick = who.random(n)
    kind[pick < m.quiet_share] = QUIET
    kind[pick > 1.0 - m.saturated_share] = SATURATED
    rate = level * who.gamma(m.rate_shape, size=n)
    rate = _scaled_rates(m, kind, rate)

    drift = _slow_movement(rng(2), days, merchants, m.change_drift)
    offset = np.array([hours for hours, _ in COUNTRIES.values()])[country]
    changed = _draw_changes(rng(3), m, kind, rate, offset, drift[:, merchant])
    impressions, clicks = _draw_demand(rng(4), m, n, days)
    return Offers(category, country, merchant, offset, kind, rate, changed, clicks, impressions)


def _scaled_rates(m: OfferModel, kind: IntArray, rate: FloatArray) -> FloatArray:
    """Rates of live offers scaled so that the expected share of offers that change on a day is as given."""
    live = (kind == ANY_HOUR) | (kind == NIGHTLY)
    fixed = np.where(kind == QUIET, m.quiet_rate_per_day, HOURS_PER_DAY * m.saturated_hourly)
    others = float(-np.expm1(-fixed[~live]).sum())
    missing = m.changed_share * len(kind) - others
    if not live.any() or missing <= 0.0:
        return np.where(live, 0.0, fixed)
    if missing >= 0.95 * live.sum():
        raise ValueError(
            f"{m.changed_share:g} of the offers shall change on a day, but only {live.mean():.3g} change "
            "more than hardly ever; lower changed_share or quiet_share"
        )
    x = rate[live]
    root = brentq(lambda log: float(-np.expm1(-x * np.exp(log)).sum()) - missing, -40.0, 40.0)
    return np.where(live, rate * np.exp(root), fixed)


def _slow_movement(rng: np.random.Generator, days: int, n: int, deviation: float) -> FloatArray:
    """Factors of mean 1 whose logarithms return to their mean within about 30 days: (days, n) float64."""
    keep = np.exp(-1.0 / 30.0)
    noise = rng.normal(0.0, deviation, (days, n))
    out = np.empty((days, n))
    out[0] = noise[0]
    for day in range(1, days):
        out[day] = keep * out[day - 1] + np.sqrt(1.0 - keep * keep) * noise[day]
    factors: FloatArray = np.exp(out - 0.5 * deviation * deviation)
    return factors


def _draw_changes(
    rng: np.random.Generator,
    m: OfferModel,
    kind: IntArray,
    rate: FloatArray,
    offset: IntArray,
    drift: FloatArray,
) -> BoolArray:
    days, n = drift.shape
    profile = np.stack([hour_profile(m, k) for k in range(len(KINDS))])
    hours = HOURS_PER_DAY * DAYS_PER_WEEK
    changed = np.empty((days * HOURS_PER_DAY, n), dtype=np.bool_)
    saturated = kind == SATURATED
    for hour in range(len(changed)):
        local = (hour + offset) % hours
        expected = rate / HOURS_PER_DAY * profile[kind, local] * drift[hour // HOURS_PER_DAY]
        p = np.where(saturated, m.saturated_hourly, -np.expm1(-expected))
        changed[hour] = rng.random(n) < p
    return changed


def _draw_demand(rng: np.random.Generator, m: OfferModel, n: int, days: int) -> tuple[IntArray, IntArray]:
    def scaled(rate: FloatArray, share: float) -> FloatArray:
        root = brentq(lambda log: float(-np.expm1(-rate * np.exp(log)).mean()) - share, -60.0, 60.0)
        out: FloatArray = rate * np.exp(root)
        return out

    shown = scaled(np.exp(rng.normal(0.0, m.impression_deviation, n)), m.shown_share)
    clicked = scaled(shown * np.exp(rng.normal(0.0, m.click_deviation, n)), m.clicked_share)
    movement = _slow_movement(rng, days, n, m.demand_drift)
    return rng.poisson(shown * movement), rng.poisson(clicked * movement)
