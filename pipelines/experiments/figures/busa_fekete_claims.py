"""What Busa-Fekete et al. say of their simulated figures, checked against ours.

The paper has its numbers in pictures alone, so relations are checked. "Above" means by more than two standard
errors of the paired differences.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from itertools import pairwise
from typing import Final

import numpy as np

from pipelines.experiments.figures.busa_fekete_runs import (
    BANDWIDTH,
    CORRUPTIONS,
    NO_DELAY,
    STEPPED,
    raised_between,
)
from pipelines.experiments.figures.measured import Measured, surely_above, with_error
from pipelines.experiments.figures.records import Claim
from policies.numerics.typing_ import BoolArray, FloatArray

_ON_PAR: Final = 0.01
_MANY, _FEW = 0.8, 0.2  # recall
_NOT_TIGHT: Final = 500
_CLOSE: Final = 0.005


def _relative(m: Measured, policy: str) -> Callable[[int], FloatArray]:
    return lambda pages: m.accuracy(policy, pages) / m.accuracy("BASELINE", pages) - 1.0


def _on_par(m: Measured, policies: tuple[str, ...]) -> list[Claim]:
    return [
        m.every(
            f"{policy} is on par with BASELINE (within 1 %)",
            "on par with the baseline at every m",
            _relative(m, policy),
            lambda v: bool(abs(v.mean()) <= _ON_PAR),
        )
        for policy in policies
    ]


def _falls(m: Measured, policy: str) -> Claim:
    means = [float(m.accuracy(policy, pages).mean()) for pages in m.pages]
    words = ", ".join(f"m = {n}: {x:.4f}" for n, x in zip(m.pages, means, strict=True))
    return Claim(
        "The more pages, the lower the accuracy",
        all(b < a for a, b in pairwise(means)),
        f"{policy}: {words}",
        "lower accuracy is achievable with more pages",
    )


def figure_3(m: Measured) -> list[Claim]:
    """Continuous and discrete policies."""
    return [
        *_on_par(m, ("GREEDY", "LDS")),
        m.every(
            "GREEDY and LDS perform alike (within 1 %)",
            "very similar performance regardless of m",
            lambda n: m.gain("GREEDY", "LDS", n) / m.accuracy("LDS", n),
            lambda v: bool(abs(v.mean()) <= _ON_PAR),
        ),
        _falls(m, "BASELINE"),
    ]


def figure_4(m: Measured) -> list[Claim]:
    """Signals without false ones."""
    return [
        m.every(
            "GREEDY-CIS is above GREEDY at every m",
            "significantly better, whatever the bandwidth against the sum of change rates",
            lambda n: m.gain("GREEDY-CIS", "GREEDY", n),
            surely_above,
        ),
        *_on_par(m, ("GREEDY",)),
    ]


def _share(rate: FloatArray, optimal: FloatArray, kept: BoolArray) -> FloatArray:
    """Crawls of the pages kept, as a share of their optimal ones, by repetition."""
    return (rate * kept).sum(axis=1) / (optimal * kept).sum(axis=1)


def figure_5(m: Measured) -> list[Claim]:
    """Crawl rates by recall."""
    few, most = m.pages[0], m.pages[-1]
    out = []
    for policy in ("GREEDY", "GREEDY-CIS"):
        rate, best = m.rate(policy, few), m.rate("BASELINE", few)
        corr = np.array([np.corrcoef(a, b)[0, 1] for a, b in zip(rate, best, strict=True)])
        out.append(f"{policy} {with_error(corr)}")
    claims = [
        Claim(
            "GREEDY's rates follow BASELINE's more closely than GREEDY-CIS's",
            _correlation(m, "GREEDY", few) > _correlation(m, "GREEDY-CIS", few),
            f"correlation at m = {few}: " + ", ".join(out),
            "points of GREEDY near the diagonal",
        )
    ]
    rate, best, recall = m.rate("GREEDY-CIS", few), m.rate("BASELINE", few), m.recall(few)
    many, hardly = _share(rate, best, recall > _MANY), _share(rate, best, recall < _FEW)
    claims += [
        Claim(
            f"m = {few}: GREEDY-CIS crawls pages with many signals (recall > 0.8) less",
            surely_above(1.0 - many),
            f"{with_error(many, 3)} of BASELINE's crawls",
            "decreases the crawl rate for pages with many signals",
        ),
        Claim(
            f"m = {few}: it crawls pages with few signals (recall < 0.2) more",
            surely_above(hardly - 1.0),
            f"{with_error(hardly, 3)} of BASELINE's crawls",
            "allocates more bandwidth to pages with no or few signals",
        ),
    ]
    rate, best, recall = m.rate("GREEDY-CIS", most), m.rate("BASELINE", most), m.recall(most)
    change = m.change_rate(most)
    signalled = recall > _MANY
    up, down = signalled & (rate > 1.1 * best), signalled & (rate < 0.9 * best)
    share_up, share_down = up.sum() / signalled.sum(), down.sum() / signalled.sum()
    hardly = _share(rate, best, recall < _FEW)
    claims += [
        Claim(
            f"m = {most}: of pages with many signals some are crawled more, some less",
            bool(share_up > 0.05 and share_down > 0.05),
            f"{share_up:.0%} more than 1.1 of BASELINE's rate, {share_down:.0%} less than 0.9",
            "some get boosted and some get decreased",
        ),
        Claim(
            f"m = {most}: those crawled more change often",
            bool(change[up].mean() > change[down].mean()) if up.any() and down.any() else False,
            f"mean change rate {change[up].mean() if up.any() else np.nan:.2f} of those crawled more, "
            f"{change[down].mean() if down.any() else np.nan:.2f} of those crawled less",
            "typically pages with high change rates get a higher rate",
        ),
        Claim(
            f"m = {most}: pages with few signals stay near BASELINE (within 10 %)",
            bool(abs(hardly.mean() - 1.0) <= 0.1),
            f"{with_error(hardly, 3)} of BASELINE's crawls",
            "rates remain close to BASELINE's",
        ),
    ]
    return claims


def _correlation(m: Measured, policy: str, pages: int) -> float:
    pairs = zip(m.rate(policy, pages), m.rate("BASELINE", pages), strict=True)
    return float(np.mean([np.corrcoef(a, b)[0, 1] for a, b in pairs]))


def figure_6(m: Measured) -> list[Claim]:
    """Signals, some of them false."""
    small = [n for n in m.pages if n <= _NOT_TIGHT]
    large = [n for n in m.pages if n > _NOT_TIGHT]
    claims = [
        m.every(
            f"GREEDY-NCIS is at least as good as {other} in every cell",
            "superior in almost every case",
            partial(m.gain, "GREEDY-NCIS", other),
            lambda v: bool(v.mean() >= 0.0),
            places=5,
        )
        for other in ("GREEDY", "GREEDY-CIS")
    ]
    for name in ("G-NCIS-APPROX-1", "G-NCIS-APPROX-2"):

        def over_both(n: int, name: str = name) -> FloatArray:
            return np.minimum(m.gain(name, "GREEDY", n), m.gain(name, "GREEDY-CIS", n))

        def to_exact(n: int, name: str = name) -> FloatArray:
            return m.gain("GREEDY-NCIS", name, n)

        claims.append(_almost(m, f"{name} is above GREEDY and GREEDY-CIS in almost every cell", over_both))
        if small:
            claims.append(
                m.every(
                    f"m <= {_NOT_TIGHT}: {name} is very close to GREEDY-NCIS (within {_CLOSE})",
                    "very close",
                    to_exact,
                    lambda v: bool(abs(v.mean()) <= _CLOSE),
                    pages=small,
                )
            )
        if large:
            claims.append(
                m.every(
                    f"m > {_NOT_TIGHT}: GREEDY-NCIS is above {name}",
                    "the exact value shows superiority",
                    to_exact,
                    surely_above,
                    pages=large,
                )
            )
            most = m.pages[-1]
            used = [m.gain(policy, "GREEDY", most) for policy in (name, "GREEDY-NCIS")]
            claims.append(
                Claim(
                    f"m = {most}: {name} makes less than half of what GREEDY-NCIS makes of signals",
                    bool(used[0].mean() < 0.5 * used[1].mean()),
                    f"above GREEDY by {with_error(used[0], 4, '+')}, "
                    f"GREEDY-NCIS by {with_error(used[1], 4, '+')}",
                    "policies with approximated values cannot utilize the signals",
                )
            )
    gap = [float(m.gain("GREEDY-CIS", "GREEDY", n).mean()) for n in m.pages]
    if len(gap) < 2:  # one number of pages does not grow
        return claims
    claims.append(
        Claim(
            "GREEDY-CIS loses against GREEDY as pages grow in number",
            gap[-1] < gap[0] and gap[-1] < 0.0,
            ", ".join(f"m = {n}: {g:+.4f}" for n, g in zip(m.pages, gap, strict=True)),
            "deteriorates with the number of pages",
        )
    )
    return claims


def _almost(m: Measured, text: str, values: Callable[[int], FloatArray]) -> Claim:
    """A claim about four of five numbers of pages."""
    claim = m.every(text, "superior in almost every case", values, lambda v: True)
    above = [bool(values(n).mean() >= 0.0) for n in m.pages]
    return replace(
        claim, holds=sum(above) >= 0.8 * len(above), ours=f"{sum(above)} of {len(above)}; {claim.ours}"
    )


def figure_7(m: Measured) -> list[Claim]:
    """Crawl rates when some signals are false."""
    claims = []
    for n in m.pages:
        best, recall = m.rate("BASELINE", n), m.recall(n)
        cis, ncis = (m.rate(p, n) for p in ("GREEDY-CIS", "GREEDY-NCIS"))
        signalled = recall > _MANY
        # Of pages that the optimum crawls at all.
        counted = signalled & (best > 0.0)
        twice = [(counted & (r > 2.0 * best)).sum(axis=1) / counted.sum(axis=1) for r in (cis, ncis)]
        never = (cis == 0.0).mean(axis=1)
        shares = [_share(r, best, signalled) for r in (cis, ncis)]
        claims += [
            Claim(
                f"m = {n}: GREEDY-CIS crawls more pages of high recall at twice BASELINE's rate or more than "
                "GREEDY-NCIS does",
                surely_above(twice[0] - twice[1]),
                f"{with_error(twice[0], 3)} and {with_error(twice[1], 3)} of those with recall above 0.8; "
                f"in the time scored GREEDY-CIS never crawls {with_error(never, 3)} of all pages",
                "significantly higher rates for some pages with high observability",
            ),
            Claim(
                f"m = {n}: false signals raise the crawls of pages of high recall under GREEDY-CIS",
                surely_above(shares[0] - shares[1]),
                f"{with_error(shares[0], 3)} of BASELINE's crawls, under GREEDY-NCIS "
                f"{with_error(shares[1], 3)}",
                "false positives unnecessarily boost its rate",
            ),
        ]
    return claims


def figure_8(m: Measured) -> list[Claim]:
    """Parameters that are not exact."""
    n = m.pages[-1]
    plus, noisy = (
        [m.accuracy(p, n, corruption=c) for c in CORRUPTIONS] for p in ("GREEDY-CIS+", "GREEDY-NCIS")
    )
    plain = m.accuracy("GREEDY", n, corruption=0.0)
    lost = [(a[0] - a[-1]) / a[0] for a in (plus, noisy)]
    return [
        Claim(
            "Without corruption GREEDY-CIS+ is close to GREEDY-NCIS (within 0.01)",
            bool(abs((noisy[0] - plus[0]).mean()) <= 0.01),
            f"GREEDY-NCIS less GREEDY-CIS+ {with_error(noisy[0] - plus[0], 4, '+')}",
            "close to optimal when the estimates are correct",
        ),
        Claim(
            "GREEDY-CIS+ is less robust than GREEDY-NCIS",
            surely_above(lost[0] - lost[1]),
            f"lost by p = {CORRUPTIONS[-1]:g}: {with_error(lost[0])} and {with_error(lost[1])} of the "
            "accuracy",
            "less robust to corrupted precision and recall",
        ),
        Claim(
            "GREEDY-NCIS is above GREEDY at every corruption",
            all(surely_above(a - plain) for a in noisy),
            ", ".join(
                f"p = {c:g}: {with_error(a - plain, 4, '+')}" for c, a in zip(CORRUPTIONS, noisy, strict=True)
            ),
            "above in the picture",
        ),
    ]


def figure_10(m: Measured) -> list[Claim]:
    """Crawl rates of GREEDY and LDS."""
    until = m.parts[0].task.until
    claims = []
    for n in m.pages:
        best = m.rate("BASELINE", n)
        off = {p: np.abs(m.rate(p, n) - best) for p in ("GREEDY", "LDS")}
        furthest = float(off["LDS"].max() * until)
        means = {p: x.mean(axis=1) for p, x in off.items()}
        claims += [
            Claim(
                f"m = {n}: LDS's rates are those of BASELINE (counts within 1)",
                furthest < 1.0 + 1e-6,
                f"counts of crawls are off by at most {furthest:.4f}",
                "very close, on the diagonal",
            ),
            Claim(
                f"m = {n}: GREEDY's rates differ more from BASELINE's",
                surely_above(means["GREEDY"] - means["LDS"]),
                f"mean distance {with_error(means['GREEDY'])}, LDS {with_error(means['LDS'], 5)}",
                "rates for the same pages are different",
            ),
        ]
    return [*claims, *_on_par(m, ("GREEDY", "LDS"))]


def figure_11(m: Measured) -> list[Claim]:
    """Signals that come late."""
    few, most = m.pages[0], m.pages[-1]
    lost = {n: m.gain(NO_DELAY, "GREEDY-NCIS", n) for n in m.pages}
    left = m.gain("GREEDY-NCIS-D", NO_DELAY, few)
    recovered = m.gain("GREEDY-NCIS-D", "GREEDY-NCIS", few)
    claims = [
        Claim(
            f"Delay costs GREEDY-NCIS accuracy when bandwidth is not tight (m = {few})",
            surely_above(lost[few]),
            f"{with_error(lost[few], 4, '+')} without delay",
            "deteriorates the performance when the bandwidth is not so tight",
        ),
        Claim(
            f"It matters less when bandwidth is tight (m = {most})",
            bool(lost[most].mean() < 0.5 * lost[few].mean()) if most > few else True,
            ", ".join(f"m = {n}: {with_error(v, 4, '+')}" for n, v in lost.items()),
            "marginal impact at tighter bandwidth",
        ),
        Claim(
            f"m = {few}: GREEDY-NCIS-D is on par with no delay (within {_CLOSE})",
            bool(abs(left.mean()) <= _CLOSE),
            f"{with_error(left, 4, '+')}, that is {with_error(recovered, 4, '+')} above GREEDY-NCIS with "
            "delay",
            "on par; can almost recover the drop",
        ),
    ]
    return claims


def running(values: FloatArray, width: int) -> FloatArray:
    """Means over the last `width` entries along the last axis; fewer at the start."""
    total = np.concatenate((np.zeros((*values.shape[:-1], 1)), np.cumsum(values, axis=-1)), axis=-1)
    at = np.arange(1, values.shape[-1] + 1)
    first = np.maximum(at - width, 0)
    mean: FloatArray = (total[..., at] - total[..., first]) / (at - first)
    return mean


def over_time(m: Measured, pages: int) -> dict[str, FloatArray]:
    """Accuracy over the last 1000 crawls by schedule of the bandwidth: (R, k), to whole time units."""
    found = {}
    for policy, more in m.keys:
        cells = m.cells(policy, pages, **dict(more))
        values = np.concatenate([c.over_time for c in cells if c.over_time is not None])
        schedule = str(dict(more)["schedule"])
        if schedule == STEPPED:
            rise, fall = (int(x) for x in raised_between(m.parts[0].task.until))
            low, high = running(values, 10), running(values, 7)
            values = low.copy()
            # The last 1000 crawls at 150 a unit are 6.7 units.
            values[:, rise + 7 : fall] = high[:, rise + 7 : fall]
        else:
            values = running(values, round(1000.0 / float(schedule)))
        found[schedule] = values
    return found


def figure_12(m: Measured) -> list[Claim]:
    """Bandwidth that changes."""
    pages = m.pages[-1]
    until = m.parts[0].task.until
    rise, fall = (int(x) for x in raised_between(until))
    found = over_time(m, pages)
    third = max((fall - rise) // 2, 1)
    late = {
        "raised": slice(fall - third, fall),
        "lowered": slice(int(until) - third, int(until)),
    }
    low, high, steps = found[f"{BANDWIDTH:g}"], found["150"], found[STEPPED]
    up = (steps - high)[:, late["raised"]].mean(axis=1)
    down = (steps - low)[:, late["lowered"]].mean(axis=1)
    gap = (high - low)[:, late["raised"]].mean(axis=1)
    near = np.flatnonzero((high - steps)[:, rise:fall].mean(axis=0) < 0.1 * gap.mean())
    words = f"{near[0]} time units to nine tenths of the rise" if near.size else "not within the time"
    return [
        Claim(
            "Accuracy rises to the optimum of the larger bandwidth by itself",
            bool(abs(up.mean()) <= 0.1 * gap.mean()),
            f"{with_error(up, 4, '+')} against always 150 (gap {gap.mean():.4f}); {words}",
            "automatically rises to the new optimal level",
        ),
        Claim(
            "It falls back when the bandwidth does",
            bool(abs(down.mean()) <= 0.1 * gap.mean()),
            f"{with_error(down, 4, '+')} against always 100",
            "automatically falls back to the original level",
        ),
    ]


CLAIMS: Final[Mapping[str, Callable[[Measured], list[Claim]]]] = {
    f"busa-fekete-{number}": check
    for number, check in (
        (3, figure_3),
        (4, figure_4),
        (5, figure_5),
        (6, figure_6),
        (7, figure_7),
        (8, figure_8),
        (10, figure_10),
        (11, figure_11),
        (12, figure_12),
    )
}
