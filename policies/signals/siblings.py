"""Siblings as a signal: what the crawls of a page's group found since its own last crawl moves its clock.

Pages of a host often change together: a release, a new template, a quiet August. A page that was crawled t
days ago has then aged as if

    t (2 + X) / (2 + E)

days had passed, where X is the number of changes that crawls of its group found since, and E the number that
was expected of them: the rule of a rate that has a gamma prior of shape 2 and mean 1 around the page's own.

X and E are kept by group and day. The days after that of the page's last crawl count, so its own crawl never
does, and all sums are whole numbers of one unit, which merge in any order.

On some sites this helps, on others it does harm. So each crawl whose outcome was predicted is also a trial:
the log of the probability that the rule, with the evidence of the night before, gave to what the crawl found,
minus the log of the one without the rule. A group's gains are added up with a half-life, and the rule is
applied where more than three nats of them are left without the best day: where it has made what was found 20
times as likely. If pages change alone and as predicted, that likelihood ratio is a martingale of mean 1, so
that the sum of all days is ever above three nats for one group in twenty at most (Ville's inequality). Crawls
of one day share their siblings and so their luck, and no prediction is quite right: the best day is left out.

How much the gains spread is not asked. Their sum is what the rule was good for, and a night on which all
predictions were off, such as the third of a new site, would stand against a group for months.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from policies.estimation.forecast import PROBABILITY_UNIT, Clocks, Forecast
from policies.history.interval_sums import Intervals
from policies.history.page_state import NO_TIME, US_PER_DAY
from policies.numerics.typing_ import BoolArray, FloatArray, Int32Array, IntArray

STRENGTH = 2.0
"""Changes found, and expected, that each clock starts with: how much the group has to say to move it."""

KEPT_DAYS = 90
HALF_LIFE_DAYS = 30.0
MIN_PAGES = 20
"""Smaller groups are left out: what is kept of a group, at most 90 rows, must be small beside its pages."""

MIN_GAIN_NATS = 3.0
"""Of all days but the best."""

GAIN_UNIT = 2.0**-32

_MOST_NATS = 1024.0  # of one crawl; so that no sum leaves 64 bits
_DAY_BITS = 20
_DAY_ZERO = 1 << (_DAY_BITS - 1)
_WEIGHT = np.exp2(-np.arange(KEPT_DAYS + 1) / HALF_LIFE_DAYS)


@dataclass(frozen=True, slots=True)
class SiblingDays:
    """What crawls of groups found by day: k rows, ascending in (group, day), each pair once.

    Attributes
    ----------
    group : (k,) int64
    day : (k,) int64
        Days since 1970-01-01, UTC, within 1,400 years of it.
    found : (k,) int64
        Crawls with a prediction that found a change.
    expected : (k,) int64
        Sum of their predicted probabilities, units of `policies.estimation.forecast.PROBABILITY_UNIT`.
    gain : (k,) int64
        What the rule would have gained in log score, units of `GAIN_UNIT` nats.
    """

    group: IntArray
    day: IntArray
    found: IntArray
    expected: IntArray
    gain: IntArray

    def __post_init__(self) -> None:
        sizes = {len(getattr(self, name)) for name in self.__dataclass_fields__}
        if len(sizes) > 1:
            raise ValueError(f"columns of sibling days have {sorted(sizes)} rows; give as many of each")
        key = self._key()
        if (key[1:] <= key[:-1]).any():
            raise ValueError("sibling days are not ascending in (group, day); use SiblingDays.gather")

    def __len__(self) -> int:
        return len(self.group)

    def _key(self) -> IntArray:
        return _key(self.group, self.day)

    @classmethod
    def empty(cls) -> SiblingDays:
        """No crawl yet."""
        none = np.zeros(0, np.int64)
        return cls(none, none, none, none, none)

    @classmethod
    def gather(
        cls, group: IntArray, day: IntArray, found: IntArray, expected: IntArray, gain: IntArray
    ) -> SiblingDays:
        """Rows in any order, those of one group and day added up: five (k,) int64."""
        key = _key(group, day)
        order = np.argsort(key, kind="stable")
        key = key[order]
        first = np.flatnonzero(np.diff(key, prepend=key[:1] - 1))
        sums = [np.add.reduceat(v[order], first) if len(key) else v for v in (found, expected, gain)]
        return cls(group[order][first], day[order][first], *sums)

    def merge(self, *others: SiblingDays) -> SiblingDays:
        """The crawls of all."""
        names = self.__dataclass_fields__
        columns = ([getattr(days, name) for days in (self, *others)] for name in names)
        return SiblingDays.gather(*map(np.concatenate, columns))

    def take(self, rows: IntArray | BoolArray) -> SiblingDays:
        """Some rows, in the order in which they stand here."""
        return SiblingDays(*(getattr(self, name)[rows] for name in self.__dataclass_fields__))

    def since(self, as_of_day: int) -> SiblingDays:
        """Without days that are more than `KEPT_DAYS` before `as_of_day`."""
        return self.take(self.day >= as_of_day - KEPT_DAYS)

    def between(self, group: IntArray, after: IntArray, before: IntArray) -> tuple[FloatArray, FloatArray]:
        """Changes found and expected in the days after one and before another.

        Parameters
        ----------
        group, after, before : (n,) int64

        Returns
        -------
        found, expected : (n,) float64, changes
            0 for groups without rows.
        """
        return SiblingClock(self).between(group, after, before)

    def clock_factor(self, group: IntArray, after: IntArray, before: IntArray) -> FloatArray:
        """How much faster the clock of a page ran than the days: (n,) float64, arguments as `between`."""
        return SiblingClock(self).factor(group, after, before)

    def gains(self, n_groups: int, as_of_day: int) -> tuple[FloatArray, FloatArray]:
        """Gain of each group, older days counting less, and that of its best day.

        Parameters
        ----------
        n_groups : int
        as_of_day : int
            The present; a day `HALF_LIFE_DAYS` before it counts half.

        Returns
        -------
        gain, best_day : (n_groups,) float64, nats
            The second is 0 where no day had a gain.
        """
        age = np.clip(as_of_day - self.day, 0, KEPT_DAYS)
        gain = _WEIGHT[age] * (self.gain * GAIN_UNIT)
        best = np.zeros(n_groups)
        np.maximum.at(best, self.group, gain)
        return np.bincount(self.group, gain, n_groups).astype(np.float64), best

    def pays(self, n_groups: int, as_of_day: int) -> BoolArray:
        """Groups whose log shows that the rule predicts better than the days alone: (n_groups,) bool."""
        gain, best = self.gains(n_groups, as_of_day)
        pays: BoolArray = gain - best > MIN_GAIN_NATS
        return pays


class SiblingClock:
    """Sums of days, prepared for many questions: two cumulative sums."""

    def __init__(self, days: SiblingDays) -> None:
        self._key = _key(days.group, days.day)
        none = np.zeros(1, np.int64)
        self._found = np.concatenate([none, np.cumsum(days.found)])
        self._expected = np.concatenate([none, np.cumsum(days.expected)])

    def between(self, group: IntArray, after: IntArray, before: IntArray) -> tuple[FloatArray, FloatArray]:
        """As `SiblingDays.between`."""
        low = np.searchsorted(self._key, _key(group, np.clip(after, -_DAY_ZERO, _DAY_ZERO - 2) + 1))
        high = np.searchsorted(self._key, _key(group, np.clip(before, -_DAY_ZERO, _DAY_ZERO - 1)))
        high = np.maximum(high, low)
        found = (self._found[high] - self._found[low]).astype(np.float64)
        return found, (self._expected[high] - self._expected[low]) * PROBABILITY_UNIT

    def factor(self, group: IntArray, after: IntArray, before: IntArray) -> FloatArray:
        """As `SiblingDays.clock_factor`."""
        found, expected = self.between(group, after, before)
        factor: FloatArray = (STRENGTH + found) / (STRENGTH + expected)
        return factor


def _key(group: IntArray, day: IntArray) -> IntArray:
    return (group << _DAY_BITS) + (day + _DAY_ZERO)


def day_of(at_us: IntArray) -> IntArray:
    """Days since 1970-01-01 of UTC microseconds; a time that is `NO_TIME` comes out before all others."""
    return np.where(at_us == NO_TIME, -_DAY_ZERO, at_us // US_PER_DAY)


def log_score_gain(
    with_it: FloatArray, without: FloatArray, changed: BoolArray, factor: FloatArray
) -> FloatArray:
    """Log of the probability of what a crawl found if its clock ran `factor` times as fast, minus as it ran.

    Parameters
    ----------
    with_it, without : (k,) float64
        Log of the probability of no change, see `policies.judging.calibration.Forecast`.
    changed : (k,) bool
    factor : (k,) float64, positive

    Returns
    -------
    (k,) float64, nats, within 1,024 of 0
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        of_change = np.log(-np.expm1(with_it)) - np.log(-np.expm1(without))
    # A rate of nearly 0: the probability of a change is the product, which has been rounded away.
    of_change = np.where(np.isfinite(of_change), of_change, np.log(factor))
    gain: FloatArray = np.where(changed, of_change, with_it - without)
    return np.clip(gain, -_MOST_NATS, _MOST_NATS)


class SiblingWatch:
    """Counts a night's crawls by group and day, a run of pages at a time.

    Parameters
    ----------
    forecast : Forecast of n pages
        Crawls of pages without one are not counted: what to expect of them was never said.
    group : (n,) int32
        Group of each page.
    before : SiblingDays
        Up to the night before. The rule is tried with these alone, as that night could have used it.
    counted : (G,) bool
        Groups that are counted, see `MIN_PAGES`.

    Notes
    -----
    The sums depend neither on the order of pages and rows nor on the cut into runs. They do depend on when
    the job ran: it is nights that predict, and what one night expects another may expect otherwise.
    """

    def __init__(
        self, forecast: Forecast, group: Int32Array, before: SiblingDays, counted: BoolArray
    ) -> None:
        self._forecast, self._group, self._before, self._counted = forecast, group, before, counted
        self._clock = SiblingClock(before)
        self._news: list[SiblingDays] = []

    def __call__(self, first_page: int, intervals: Intervals, clocks: Clocks | None = None) -> None:
        """Count intervals of the pages from `first_page` on; their codes count from there.

        With `clocks` by what these expected of each interval. Siblings then move what comes with time alone.
        """
        forecast = self._forecast
        page = intervals.page + first_page
        use = (forecast.row[page] >= 0) & self._counted[self._group[page]]
        rows = np.flatnonzero(use if clocks is None else use & clocks.known)
        if not len(rows):
            return
        of_row = forecast.row[page[rows]]
        group = self._group[page[rows]].astype(np.int64)
        if clocks is not None:
            forecast, of_row = clocks.take(rows).forecast, np.arange(len(rows), dtype=np.int32)
        at_us, gap_us, changed = intervals.at_us[rows], intervals.gap_us[rows], intervals.changed[rows]
        days, day = gap_us / US_PER_DAY, at_us // US_PER_DAY
        unchanged = forecast.log_unchanged(of_row, days)
        factor = self._clock.factor(group, (at_us - gap_us) // US_PER_DAY, day)
        if clocks is not None:
            factor = 1.0 + clocks.by_time[rows] * (factor - 1.0)
        gain = log_score_gain(forecast.log_unchanged(of_row, factor * days), unchanged, changed, factor)
        self._news.append(
            SiblingDays.gather(
                group,
                day,
                changed.astype(np.int64),
                np.rint(-np.expm1(unchanged) * (1.0 / PROBABILITY_UNIT)).astype(np.int64),
                np.rint(gain * (1.0 / GAIN_UNIT)).astype(np.int64),
            )
        )

    @property
    def gain(self) -> int:
        """What the rule would have gained on the night's crawls, units of `GAIN_UNIT` nats."""
        return sum(int(news.gain.sum()) for news in self._news)

    def days(self, as_of_day: int) -> SiblingDays:
        """What was known before together with the night's crawls; days too old are left out."""
        return self._before.merge(*self._news).since(as_of_day)
