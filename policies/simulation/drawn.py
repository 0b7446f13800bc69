"""Worlds to try policies on, drawn: pages, their changes and signals, and whom they resemble.

    uniform   change rates uniform on [0, 2 mean], as in section 6 of Busa-Fekete et al. with mean 0.5
    gamma     change rates of a gamma distribution: most pages hardly change, a few do all the time
    offers    price offers, `policies.simulation.offers`: hours of the day, weekends, merchants, drift

A time unit is a day. Pages of a repetition have the same rank by change rate, by requests, and the same
recall in the worlds uniform and gamma: what differs is the distribution alone.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np
from scipy.special import gammaincinv

from policies.numerics.typing_ import FloatArray, IntArray
from policies.simulation.offers import CATEGORIES, COUNTRIES, HOURS_PER_DAY, generate
from policies.simulation.streams import (
    Delay,
    Instance,
    Streams,
    draw_streams,
    generator,
    streams_of,
    uniform_instance,
)

UNIFORM, GAMMA, OFFERS = "uniform", "gamma", "offers"
WORLDS: Final = (UNIFORM, GAMMA, OFFERS)
EQUAL, ZIPF, CLICKS = "equal", "zipf", "clicks"
REQUESTS: Final = (UNIFORM, ZIPF, EQUAL, CLICKS)
MEAN_REQUESTS: Final = 0.5
"""Requests per page and day, save with `CLICKS`; which number it is decides nothing but sampled requests."""

MOST_SEED: Final = 2**31 - 1


@dataclass(frozen=True)
class Model:
    """Distributions of a world.

    Attributes
    ----------
    kind : {"uniform", "gamma", "offers"}
    requests : {"uniform", "zipf", "equal", "clicks"}
        Request rates: uniform on [0, 1], 1/rank, all alike, or the offers' mean clicks.
    change_rate : float
        Mean changes per page and day; not for offers.
    shape : float
        Of the gamma distribution.
    recall : (float, float), optional
        Parameters of the Beta distribution of the recall of signals; None: no signals.
    false_signals : (float, float)
        Range of the uniform distribution of false signals per page and day.
    delay : float
        Mean delay of signals, days, exponential; 0: none.
    """

    kind: str = UNIFORM
    requests: str = UNIFORM
    change_rate: float = 0.5
    shape: float = 0.5
    recall: tuple[float, float] | None = (0.25, 0.25)
    false_signals: tuple[float, float] = (0.1, 0.6)
    delay: float = 0.0


@dataclass(frozen=True)
class Drawn:
    """A repetition of a world of m pages.

    Attributes
    ----------
    instance : Instance
        True parameters. Of offers the expected rates, which leave out hours, weekends and drift.
    streams : Streams
    site : (m,) int64, ascending
        Pages of a site (a merchant) may be alike.
    impressions : (m,) float64, optional
        Mean per day, of offers.
    labels : dict of str to list of str
        Metadata of each page.
    """

    instance: Instance
    streams: Streams
    site: IntArray
    impressions: FloatArray | None = None
    labels: Mapping[str, list[str]] = field(default_factory=dict)


def draw(model: Model, m: int, days: int, seed: int, repetition: int) -> Drawn:
    """Draw a repetition: the same for equal arguments, wherever and whenever.

    Parameters
    ----------
    model : Model
    m : int
        Pages.
    days : int
    seed, repetition : int, in [0, 2^31)

    Raises
    ------
    ValueError
        For an unknown kind of world or requests, clicks without offers, or offers without any click.
    """
    if model.kind not in WORLDS or model.requests not in REQUESTS:
        raise ValueError(
            f"no world {model.kind!r} with {model.requests!r} requests; there are {', '.join(WORLDS)} with "
            f"{', '.join(REQUESTS)}"
        )
    false_signals = None if model.recall is None else model.false_signals
    base = uniform_instance(m, generator(seed, repetition, "instance"), model.recall, false_signals)
    noise = np.zeros(m) if model.recall is None else base.false_signal_rate
    base = replace(base, request_rate=_requests(model, base.request_rate), false_signal_rate=noise)
    if model.kind == OFFERS:
        return _offers(model, base, days, seed, repetition)
    if model.requests == CLICKS:
        raise ValueError(f"only offers have clicks, not the world {model.kind}")
    if model.kind == GAMMA:
        change = gammaincinv(model.shape, base.change_rate) * (model.change_rate / model.shape)
    else:
        change = base.change_rate * (2.0 * model.change_rate)
    instance = replace(base, change_rate=change)
    delay: Delay = "exponential" if model.delay > 0.0 else "none"
    streams = draw_streams(instance, float(days), seed, repetition, delay, model.delay)
    return Drawn(instance, streams, np.zeros(m, np.int64))


def _requests(model: Model, uniform: FloatArray) -> FloatArray:
    if model.requests == ZIPF:
        rank = np.empty(uniform.size)
        rank[np.argsort(-uniform, kind="stable")] = np.arange(1, uniform.size + 1)
        rate = 1.0 / rank
        scaled: FloatArray = rate * (MEAN_REQUESTS / rate.mean())
        return scaled
    if model.requests == EQUAL:
        return np.full(uniform.size, MEAN_REQUESTS)
    return uniform


def _offers(model: Model, base: Instance, days: int, seed: int, repetition: int) -> Drawn:
    offers = generate(len(base), days, (seed << 32) + repetition)
    order = np.argsort(offers.merchant, kind="stable")
    requests = base.request_rate
    if model.requests == CLICKS:
        requests = offers.clicks.mean(axis=0)[order]
        if not requests.sum() > 0.0:
            raise ValueError(
                f"{len(base)} offers have no click in {days} days: take more pages or days, or other requests"
            )
    instance = replace(base, request_rate=requests, change_rate=offers.change_rate_per_day[order])
    page, hour = np.nonzero(offers.changed[:, order].T)
    # Anywhere in its hour: slots at whole hours would profit from changes at them.
    part = generator(seed, repetition, "minutes").random(page.size)
    time = (hour + (1.0 - part)) / HOURS_PER_DAY
    delay: Delay = "exponential" if model.delay > 0.0 else "none"
    streams = streams_of(instance, page, time, float(days), seed, repetition, delay, model.delay)
    category, country = list(CATEGORIES), list(COUNTRIES)
    labels = {
        "category": [category[code] for code in offers.category[order].tolist()],
        "country": [country[code] for code in offers.country[order].tolist()],
    }
    return Drawn(instance, streams, offers.merchant[order], offers.impressions.mean(axis=0)[order], labels)
