"""Synthetic crawling problems in continuous time: pages, and streams of changes, signals and requests.

Times are float64 "time units", rates are per time unit. Changes are Poisson; each is signalled with
probability `recall`; false signals are Poisson and independent; a signal may arrive late. All streams of a
repetition are drawn once and every policy sees the same ones.

Memory: 16 bytes a change and 16 bytes a signal; 5e5 changes for 1,000 pages of mean rate 0.5 over 1,000 time
units.
"""

from dataclasses import dataclass
from typing import Literal

import numpy as np

from policies.numerics.typing_ import FloatArray, Int32Array, IntArray
from policies.objectives.objectives import get
from policies.optimum.page_block import PageBlock
from policies.optimum.search import solve

Delay = Literal["none", "exponential", "poisson"]

_PURPOSES = {"instance": 1, "changes": 2, "signalled": 3, "false signals": 4, "delays": 5, "requests": 6}


def generator(seed: int, repetition: int, purpose: str) -> np.random.Generator:
    """Random numbers of one repetition for one purpose, the same wherever and whenever they are drawn.

    Parameters
    ----------
    seed, repetition : int, >= 0
    purpose : str
        "instance", "changes", "signalled", "false signals", "delays", "requests", or any other word.
    """
    number = _PURPOSES.get(purpose)
    if number is None:
        number = int.from_bytes(purpose.encode()[:7], "little") + 256
    return np.random.Generator(
        np.random.Philox(np.random.SeedSequence((seed, repetition, number)).generate_state(2, np.uint64))
    )


@dataclass(frozen=True)
class Instance:
    """m pages of a crawling problem, (m,) float64 each.

    Attributes
    ----------
    request_rate, change_rate : >= 0
    recall : in [0, 1]
        Probability that a change is signalled.
    false_signal_rate : >= 0
    """

    request_rate: FloatArray
    change_rate: FloatArray
    recall: FloatArray
    false_signal_rate: FloatArray

    def __post_init__(self) -> None:
        m = self.request_rate.shape
        for name in ("request_rate", "change_rate", "recall", "false_signal_rate"):
            values = getattr(self, name)
            most = 1.0 if name == "recall" else 1e30
            if values.shape != m or values.ndim != 1:
                raise ValueError(f"{name} has shape {values.shape}, expected {m}")
            bad = ~((values >= 0.0) & (values <= most))
            if bad.any():
                raise ValueError(f"{name} holds {float(values[bad][0])!r}; give numbers from 0 to {most!r}")

    def __len__(self) -> int:
        return int(self.request_rate.shape[0])

    @property
    def precision(self) -> FloatArray:
        """Part of the signals that are changes, (m,) float64; 0 where there are no signals."""
        signalled = self.recall * self.change_rate
        signals = signalled + self.false_signal_rate
        return signalled / np.where(signals > 0.0, signals, 1.0)

    def with_signals(self, precision: FloatArray, recall: FloatArray) -> "Instance":
        """The same pages with signals of that precision and recall, (m,) float64 each.

        ``nu = lam D (1 - p) / p``; a page of precision 0 gets no signals at all.
        """
        known = precision > 0.0
        lam = np.where(known, recall, 0.0)
        false = lam * self.change_rate * (1.0 - precision) / np.where(known, precision, 1.0)
        return Instance(self.request_rate, self.change_rate, lam, false)


def uniform_instance(
    m: int,
    rng: np.random.Generator,
    recall: tuple[float, float] | None = None,
    false_signals: tuple[float, float] | None = None,
) -> Instance:
    """Pages as in section 6 of Busa-Fekete et al.: change and request rates uniform on [0, 1].

    Parameters
    ----------
    m : int
    rng : Generator
    recall : (float, float), optional
        Parameters of the Beta distribution of the recall; the paper's are (0.25, 0.25). None: no signals.
    false_signals : (float, float), optional
        Range of the uniform distribution of the rate of false signals; the paper's is (0.1, 0.6).

    Notes
    -----
    Pages and true signals are the same with and without false ones, and the recall is the same too.
    """
    change, request = rng.random(m), rng.random(m)
    lam = np.zeros(m) if recall is None else rng.beta(*recall, size=m)
    low, high = (0.0, 0.0) if false_signals is None else false_signals
    noise = low + (high - low) * rng.random(m)
    return Instance(request, change, np.clip(lam, 0.0, 1.0), noise)


@dataclass(frozen=True)
class Streams:
    """What happens to the pages of one repetition in (0, until].

    Attributes
    ----------
    pages : int
    until : float
    change_page : (c,) int32
    change_time : (c,) float64
        Sorted by page, then time.
    signal_page : (s,) int32
    signal_time : (s,) float64
        When each signal arrives; sorted by time, then page. Those that arrive after `until` are left out.
    """

    pages: int
    until: float
    change_page: Int32Array
    change_time: FloatArray
    signal_page: Int32Array
    signal_time: FloatArray


def _poisson(rate: FloatArray, until: float, rng: np.random.Generator) -> tuple[IntArray, FloatArray]:
    """Pages and times of Poisson events, sorted by page, then time."""
    counts = rng.poisson(rate * until)
    page = np.repeat(np.arange(rate.size), counts)
    time = until * (1.0 - rng.random(page.size))
    return page, time[np.lexsort((time, page))]


def draw_streams(
    instance: Instance,
    until: float,
    seed: int,
    repetition: int,
    delay: Delay = "none",
    delay_mean: float = 0.0,
) -> Streams:
    """Changes and signals of one repetition.

    Parameters
    ----------
    instance : Instance
    until : float
    seed, repetition : int
        Keys of the random numbers, see `generator`.
    delay : {"none", "exponential", "poisson"}
        Distribution of the delay of every signal, true or false. "poisson" is a whole number of units of 1/6
        of the mean: ``delay_mean / 6 * Poisson(6)``, so that a mean of 6 slots is Poisson(6) slots.
    delay_mean : float
        In time units.

    Returns
    -------
    Streams

    Raises
    ------
    ValueError
        An unknown delay, until or delay_mean out of range.
    """
    if not 0.0 < until < np.inf:
        raise ValueError(f"until must be above 0 and finite, got {until!r}")
    page, time = _poisson(instance.change_rate, until, generator(seed, repetition, "changes"))
    return streams_of(instance, page, time, until, seed, repetition, delay, delay_mean)


def streams_of(
    instance: Instance,
    page: IntArray,
    time: FloatArray,
    until: float,
    seed: int,
    repetition: int,
    delay: Delay = "none",
    delay_mean: float = 0.0,
) -> Streams:
    """Streams of changes that come from elsewhere, (c,) page and time, sorted by page, then time.

    Other parameters, and what is raised, as `draw_streams`.
    """
    if not 0.0 <= delay_mean < np.inf:
        raise ValueError(f"delay_mean must be at least 0, got {delay_mean!r}")
    signalled = generator(seed, repetition, "signalled").random(page.size) < instance.recall[page]
    false_page, false_time = _poisson(
        instance.false_signal_rate, until, generator(seed, repetition, "false signals")
    )
    arrival = np.concatenate((time[signalled], false_time))
    signal_page = np.concatenate((page[signalled], false_page))
    rng = generator(seed, repetition, "delays")
    if delay == "exponential":
        arrival = arrival + rng.exponential(delay_mean, arrival.size)
    elif delay == "poisson":
        arrival = arrival + delay_mean / 6.0 * rng.poisson(6.0, arrival.size)
    elif delay != "none":
        raise ValueError(f"no delay {delay!r}; there are none, exponential, poisson")
    kept = arrival <= until
    arrival, signal_page = arrival[kept], signal_page[kept]
    order = np.lexsort((signal_page, arrival))
    return Streams(
        len(instance),
        float(until),
        page.astype(np.int32),
        time,
        signal_page[order].astype(np.int32),
        arrival[order],
    )


def draw_requests(
    instance: Instance, until: float, seed: int, repetition: int
) -> tuple[Int32Array, FloatArray]:
    """Page and time of every request in (0, until], sorted by page, then time."""
    page, time = _poisson(instance.request_rate, until, generator(seed, repetition, "requests"))
    return page.astype(np.int32), time


def optimal_rates(instance: Instance, bandwidth: float) -> FloatArray:
    """Crawl rates of the continuous optimum without signals, at most one crawl a slot: (m,) float64.

    The solution of problem (5) of Busa-Fekete et al., after Azar et al.
    """
    cap = np.full(len(instance), float(bandwidth))
    block = PageBlock(instance.change_rate, instance.request_rate, cap_per_day=cap)
    return solve(block, get("periodic"), bandwidth)[1][0].crawl_rate_per_day


def baseline_accuracy(instance: Instance, rate: FloatArray) -> float:
    """Exact accuracy of crawling each page at even distances: sum G(rate) / sum mu; NaN without requests."""
    fresh = get("periodic").freshness(rate, instance.change_rate)
    total = float(instance.request_rate.sum())
    return float((instance.request_rate * fresh).sum()) / total if total > 0.0 else float("nan")
