"""What the pages of a host share of its signals: how many come, and how they go with what crawls found.

A rate is signals by changes expected while somebody listened: pages that change more often are signalled
more often, as shared shares and weights imply. Crawls are made because of signals, so intervals that a crawl
has ended are full of them: the time in which all other pages were quiet is in intervals that still run. Both
count. What nobody has seen the worth of yet counts as far as it is credible: a flood must not raise rates.

While little is known, rates are held near what the host's change rate allows: its true signals cannot tell of
more changes than there are. The same holds for its share of missed changes and its weights.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from policies.numerics.sums import sum_by
from policies.numerics.typing_ import FloatArray, IntArray
from policies.signals.bundles import Bundles, told
from policies.signals.estimation import Pooled
from policies.signals.evidence import PageSignals

LEAST_TOLD = 0.05
"""Share of a host's changes that its signals are taken to tell of, at least, where rates are expected."""

LEAST_PRECISION = 0.05

RATE_SHAPE = 0.5

TOTAL_VARIANCE = 0.01
"""Of the logarithm of a host's change rate by its signals around that by its crawls: 10 %."""

WEIGHT_GAIN = 0.25
"""Share of the variance of weights by which they give way to that, at least. They are what the first
intervals with signals are learning, the share of missed changes is rather a guess; but signals that tell of
more changes than there are cannot be that good. By trial on simulated hosts."""

_ERRORS = 3.0
_STEPS = 12
_CLIP = 1.0


@dataclass(frozen=True, slots=True)
class HostRates:
    """Signals of G hosts and S sources, for every change that their pages are expected to have.

    Attributes
    ----------
    calm : (G, S) float64, signals per change
        From intervals that a crawl has ended, and what is expected: the measure of running ones.
    kept : (G, S) float64, in [0, 1]
        Of the signals of running intervals, what is credible of the host as a whole.
    usual : (G, S) float64, signals per change
        From all intervals: what pages borrow. 0 for sources that the host does not have.
    signals : (G, S) float64, weight
        Signals behind `usual`.
    """

    calm: FloatArray
    kept: FloatArray
    usual: FloatArray
    signals: FloatArray


def expected_rates(pooled: Pooled) -> FloatArray:
    """Signals per change that make up for the changes that are not missed, (G, S)."""
    told = np.clip(1.0 - pooled.missed_share, LEAST_TOLD, 1.0)
    precision = np.maximum(-np.expm1(-pooled.signal_weight), LEAST_PRECISION)
    rates: FloatArray = told[:, None] / precision
    return rates


def page_rates(
    count: FloatArray, days: FloatArray, per_change: FloatArray, rate: FloatArray, group: IntArray
) -> FloatArray:
    """Signals of each page and source a day: mean of the gamma posterior of shape 0.5 around its host's.

    Parameters
    ----------
    count : (n, S) float64, weight
    days : (n,) float64, days
        In which they were counted.
    per_change : (G, S) float64
        Signals of a host per change, 0 for a source that it does not have.
    rate : (n,) float64, per day
        Change rate of each page.
    group : (n,) int64
        Host of each page.

    Returns
    -------
    (n, S) float64, per day
        0 for a source that the host does not have.
    """
    usual = per_change[group] * rate[:, None]
    some = usual > 0.0
    each = 1.0 / np.where(some, usual, 1.0)
    return np.where(some, (count + RATE_SHAPE) / (RATE_SHAPE * each + days[:, None]), 0.0)


def host_rates(heard: PageSignals, rate: FloatArray, group: IntArray, expected: FloatArray) -> HostRates:
    """Signals of the pages of each host per change.

    Parameters
    ----------
    heard : PageSignals
    rate : (n,) float64, positive, per day
        Change rate of each page.
    group : (n,) int64, 0..G-1
        Host of each page; all pages of each host, or a sample of them.
    expected : (G, S) float64, positive
        Of `expected_rates`: counts as the changes in which one signal is expected.

    Notes
    -----
    The signal with which a host began to be listened to stands for the one that is expected. Signals of
    running intervals are cut at three standard errors and one signal above what `calm` lets expect, for each
    page and then for each host and source. On most nights nothing is cut.
    """
    n_groups, n_sources = expected.shape
    changes, calm_changes = (
        sum_by(group, d * rate, n_groups) for d in (heard.ended_days + heard.running_days, heard.ended_days)
    )
    calm, kept, usual = (np.zeros(expected.shape) for _ in range(3))
    signals = np.zeros(expected.shape)
    sent = [sum_by(group, heard.ended[:, j], n_groups) for j in range(n_sources)]
    for j in range(n_sources):
        some = sent[j] + sum_by(group, heard.running[:, j], n_groups) > 0.0
        calm[some, j] = ((sent[j] + 1.0) / (calm_changes + 1.0 / expected[:, j]))[some]
    credible, likely = _page_cut(heard, rate, group, calm)
    for j in range(n_sources):
        foreseen, came = (sum_by(group, x[:, j], n_groups) for x in (likely, credible))
        most = foreseen + _ERRORS * np.sqrt(foreseen) + 1.0
        kept[:, j] = np.where(came > most, most / np.maximum(came, 1.0), 1.0)
        signals[:, j] = sent[j] + kept[:, j] * came
        usual[:, j] = signals[:, j] / (changes + 1.0 / expected[:, j])
    return HostRates(calm, kept, usual, signals)


def credible_signals(heard: PageSignals, rate: FloatArray, group: IntArray, rates: HostRates) -> FloatArray:
    """Signals of running intervals, as far as they may count for rates: (n, S) float64, at most `running`.

    Parameters are those of `host_rates`. A page's result depends on that page and its host's rates alone.
    """
    return _page_cut(heard, rate, group, rates.calm)[0] * rates.kept[group]


def _page_cut(
    heard: PageSignals, rate: FloatArray, group: IntArray, calm: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Running signals of each page as far as they are credible, and how many are likely: (n, S) each."""
    likely = page_rates(heard.ended, heard.ended_days, calm, rate, group) * heard.running_days[:, None]
    return np.minimum(heard.running, likely + _ERRORS * np.sqrt(likely) + 1.0), likely


def hold_to_changes(
    pooled: Pooled, signals_per_change: FloatArray, signals: FloatArray, bundles: Bundles | None = None
) -> Pooled:
    """Shares and weights of hosts, held to the change rates that crawls have found.

    All changes are those without a signal and the true signals. While shares and weights are as good as
    unknown, their sum would be anything: the first signals of a host would make its pages change more often,
    or less. The change rate by crawls is one more observation of that sum, good to `TOTAL_VARIANCE`; what
    intervals have told of shares and weights stays, by how well they did.

    Parameters
    ----------
    pooled : Pooled
        Of G hosts and S sources.
    signals_per_change, signals : (G, S) float64
        Of each host, and the number of signals seen behind it.
    bundles : Bundles, optional
        Of G hosts: sources that tell the same changes, which count once.

    Returns
    -------
    Pooled
        One step of a Kalman filter in the logarithms, iterated; covariances are those of a filter with this
        gain, in Joseph's form. A host depends on its own numbers alone.
    """
    n_groups, n_sources = pooled.signal_weight.shape
    d = 1 + n_sources
    began = [np.log(pooled.missed_share), *(np.log(pooled.signal_weight[:, j]) for j in range(n_sources))]
    at = list(began)
    prior = pooled.covariance
    share = told(pooled.signal_weight, signals_per_change, bundles).true_per_day
    firm = [np.ones(n_groups)] + [np.sqrt(np.clip(np.square(np.square(share)), WEIGHT_GAIN, 1.0))] * n_sources
    by = [np.zeros(n_groups)] * d
    gain = [np.zeros(n_groups)] * d
    spread, variance = [np.zeros(n_groups)] * d, np.zeros(n_groups)
    for _ in range(_STEPS):
        # A share's posterior is a gamma: upwards it ends sooner than a normal in the logarithm would.
        up = np.maximum(at[0] - began[0], 1e-3)
        tight = np.sqrt(0.5 * np.square(up) / (np.expm1(up) - up))
        prior = pooled.covariance.copy()
        prior[:, 0, :] *= tight[:, None]
        prior[:, :, 0] *= tight[:, None]
        missed = np.exp(at[0])  # of every change
        weight = np.exp(np.stack(at[1:], axis=1)) if n_sources else pooled.signal_weight
        now = told(weight, signals_per_change, bundles)
        true, slope = now.precision * signals_per_change, weight * now.wrong * signals_per_change
        total = missed + now.true_per_day
        slopes = [missed, *slope.T]
        by = [values / total for values in slopes]
        noise = np.full(n_groups, TOTAL_VARIANCE)
        for j in range(n_sources):
            noise += np.square(true[:, j] / total) / np.maximum(signals[:, j], 1.0)
        spread = _times(prior, by)
        held = [
            s * x
            for s, x in zip(_times(prior, [b * x for b, x in zip(by, firm, strict=True)]), firm, strict=True)
        ]
        variance, known, off = noise, noise, -np.log(total)
        for j in range(d):
            variance = variance + by[j] * spread[j]
            known = known + by[j] * held[j]
            off = off - by[j] * (began[j] - at[j])
        gain = [h / known for h in held]
        at = [a + np.clip(b + g * off - a, -_CLIP, _CLIP) for a, b, g in zip(at, began, gain, strict=True)]
    covariance = prior.copy()
    for i in range(d):
        for j in range(d):
            covariance[:, i, j] += gain[i] * variance * gain[j] - gain[i] * spread[j] - spread[i] * gain[j]
    weights = np.stack([np.exp(a) for a in at[1:]], axis=1) if n_sources else pooled.signal_weight
    return Pooled(np.exp(at[0]), weights, covariance)


def _times(matrix: FloatArray, vector: list[FloatArray]) -> list[FloatArray]:
    """Products of (G, d, d) and d columns (G,), in strict order."""
    out = [np.zeros(len(matrix)) for _ in vector]
    for i, row in enumerate(out):
        for j, column in enumerate(vector):
            row += matrix[:, i, j] * column
    return out
