"""What Han et al. 2020 say of their tables and figures, checked against ours."""

from collections.abc import Callable, Sequence
from typing import Final

import numpy as np

from pipelines.experiments.figures.han_runs import Part
from pipelines.experiments.figures.records import Claim
from policies.numerics.typing_ import FloatArray

TITLES: Final = {
    "han-table-5": "Click-weighted freshness of crawl strategies by budget",
    "han-table-6": "Offer-level freshness of crawl strategies by budget",
    "han-figure-4": "KAB5 against LambdaCrawl by budget, from 0.1 % of the offers a day on",
    "han-figure-5": "Probabilities of KAB5's arms over time",
    "han-figure-6": "KAB2 to KAB5 against LambdaCrawl by budget",
}


class Measured:
    """Values of all parts of one number of pages, for the claims."""

    def __init__(self, parts: Sequence[Part]) -> None:
        self.parts = list(parts)
        self.budgets = parts[0].budgets
        self.policies = tuple(parts[0].fresh)

    def daily(self, policy: str, metric: str, budget: int) -> FloatArray:
        """All days of all repetitions: (k,) float64; days without clicks left out."""
        found: FloatArray = np.concatenate([p.fresh[policy][metric][budget].reshape(-1) for p in self.parts])
        return found[~np.isnan(found)]

    def median(self, policy: str, metric: str, budget: int) -> float:
        """Median of the days of all repetitions, as the paper's tables have it."""
        return float(np.median(self.daily(policy, metric, budget)))

    def medians(self, policy: str, metric: str) -> FloatArray:
        """Medians at all budgets: (B,) float64."""
        return np.array([self.median(policy, metric, b) for b in range(len(self.budgets))])

    def reference(self, policy: str) -> str:
        """LambdaCrawl with the parameters that `policy` has; empty where it is not there or is `policy`."""
        name = "lambda_meta" if policy.endswith("meta") else "lambda_ml"
        return name if name in self.policies and name != policy else ""

    def change(self, policy: str, metric: str, budget: int) -> FloatArray:
        """Change against its `reference` in percent, of each day and repetition on which that is not 0."""
        base = self.daily(self.reference(policy), metric, budget)
        kept = base > 0.0
        out: FloatArray = 100.0 * (self.daily(policy, metric, budget)[kept] / base[kept] - 1.0)
        return out

    def of_sets(self, policy: str, metric: str, budget: int) -> FloatArray:
        """Mean freshness on each set of offers."""
        return np.array([np.nanmean(p.fresh[policy][metric][budget]) for p in self.parts])

    def standard_error(self, values: FloatArray) -> float:
        """Of a mean over sets of offers; NaN for one set."""
        return float(values.std(ddof=1) / np.sqrt(len(values))) if len(values) > 1 else float("nan")


def _rows(m: Measured, low: float = 0.0, high: float = 1.0) -> list[int]:
    return [b for b, budget in enumerate(m.budgets) if low <= budget <= high]


def _above(
    m: Measured, metric: str, text: str, paper: str, better: str, worse: Sequence[str], rows: Sequence[int]
) -> Claim:
    """The median of `better` is above those of all of `worse` at each budget."""
    holds = [all(m.median(better, metric, b) > m.median(name, metric, b) for name in worse) for b in rows]
    numbers = []
    for b in sorted({rows[0], rows[len(rows) // 2], rows[-1]}):
        best = max(worse, key=lambda name: m.median(name, metric, b))
        gap = m.of_sets(better, metric, b) - m.of_sets(best, metric, b)
        numbers.append(
            f"{100 * m.budgets[b]:g} %: {m.median(better, metric, b):.4f} against "
            f"{m.median(best, metric, b):.4f} of {best} "
            f"(mean difference {gap.mean():+.4f} ± {m.standard_error(gap):.4f})"
        )
    ours = f"{sum(holds)} of {len(holds)} budgets; " + "; ".join(numbers)
    return Claim(text, all(holds), ours, paper)


def _table_5(m: Measured) -> list[Claim]:
    every = _rows(m)
    others = [p for p in m.policies if p != "delta_h" and p != "lambda_h-no-floor"]

    def above(text: str, paper: str, better: str, worse: Sequence[str], rows: Sequence[int] = every) -> Claim:
        return _above(m, "click", text, paper, better, worse, rows)

    worst = [m.median("delta_h", "click", b) < min(m.median(p, "click", b) for p in others) for b in every]
    found = m.medians("delta_h", "click")
    claims = [
        Claim(
            "Crawling by past change rates is worst",
            all(worst),
            f"{sum(worst)} of {len(worst)} budgets; {found[0]:.4f} to {found[-1]:.4f}",
            "0.1951 to 0.3549, worst at every budget",
        ),
        above(
            "Predicted change rates beat past ones", "0.4067 against 0.1951 at 10 %", "delta_ml", ["delta_h"]
        ),
        above(
            "mu_h beats Uniform up to 50 %",
            "0.8840 against 0.7460 at 10 %",
            "mu_h",
            ["Uniform"],
            _rows(m, high=0.5),
        ),
        above("nu_h beats Uniform", "0.9013 against 0.7460 at 10 %", "nu_h", ["Uniform"]),
        above(
            "Impressions, less sparse, beat clicks in history",
            "0.9013 against 0.8840 at 10 %",
            "nu_h",
            ["mu_h"],
        ),
        above(
            "lambda_h beats what it is made of",
            "0.8843 against 0.8840 at 10 %, 0.9385 at 90 %",
            "lambda_h",
            ["mu_h", "delta_h"],
        ),
        above("Predictions improve LambdaCrawl", "0.8983 against 0.8843 at 10 %", "lambda_ml", ["lambda_h"]),
        above("Predictions improve crawls by clicks", "0.8976 against 0.8840 at 10 %", "mu_ml", ["mu_h"]),
        above(
            "lambda_ml is the best single strategy with predictions",
            "0.8983 at 10 %, next 0.8976",
            "lambda_ml",
            ["delta_ml", "mu_ml", "nu_ml"],
        ),
    ]
    claims += [
        above(
            f"{name} beats lambda_ml",
            "0.9027 against 0.8983 at 10 %, +0.93 %; +0.15 % at 90 %",
            name,
            ["lambda_ml"],
        )
        for name in ("KAB5", "KAB5-gain")
    ]
    furthest = max(
        abs(m.median("KAB5-gain", "click", b) - m.median(f"KAB5-gain-{kind}", "click", b))
        for b in every
        for kind in ("EXP3-IX", "EXP3++")
    )
    claims.append(
        Claim(
            "EXP3-IX and EXP3++ do as EXP3 (within 0.02)",
            furthest <= 0.02,
            f"medians differ by at most {furthest:.4f}",
            "similar results (footnote 4)",
        )
    )
    return claims


def _table_6(m: Measured) -> list[Claim]:
    every = _rows(m)
    singles = [p for p in m.policies if not p.startswith("KAB")]

    def above(text: str, paper: str, better: str, worse: Sequence[str]) -> Claim:
        return _above(m, "offer", text, paper, better, worse, every)

    return [
        above(
            "Uniform is best of all",
            "0.7426 to 0.9015, best at every budget",
            "Uniform",
            [p for p in m.policies if p != "Uniform"],
        ),
        above(
            "Uniform is best of the strategies from history",
            "0.7426 against 0.3424 at 10 %",
            "Uniform",
            [p for p in singles if p.endswith("_h")],
        ),
        above("By past changes beats by past clicks", "0.1589 against 0.0724 at 10 %", "delta_h", ["mu_h"]),
        above(
            "By past changes beats by past impressions", "0.1589 against 0.1239 at 10 %", "delta_h", ["nu_h"]
        ),
        above(
            "LambdaCrawl is best of history but for Uniform",
            "0.3424 at 10 %, next 0.1589",
            "lambda_h",
            ["delta_h", "mu_h", "nu_h"],
        ),
        above("Predictions help: changes", "0.4611 against 0.1589 at 10 %", "delta_ml", ["delta_h"]),
        above("Predictions help: clicks", "0.4447 against 0.0724 at 10 %", "mu_ml", ["mu_h"]),
        above("Predictions help: impressions", "0.6033 against 0.1239 at 10 %", "nu_ml", ["nu_h"]),
        above(
            "LambdaCrawl is best with predictions",
            "0.6550 at 10 %, next 0.6033",
            "lambda_ml",
            ["delta_ml", "mu_ml", "nu_ml"],
        ),
        above(
            "KAB5 beats lambda_ml",
            "0.6604 against 0.6550 at 10 %, +1.07 %; +0.35 % at 90 %",
            "KAB5",
            ["lambda_ml"],
        ),
        above("KAB5-gain beats lambda_ml", "as KAB5", "KAB5-gain", ["lambda_ml"]),
    ]


def _changes(m: Measured, policy: str, metric: str, rows: Sequence[int]) -> list[float]:
    found = [m.change(policy, metric, b) for b in rows]
    return [float(np.median(change)) if len(change) else float("nan") for change in found]


def _in_words(m: Measured, policy: str, metric: str, changes: Sequence[float], rows: Sequence[int]) -> str:
    chosen = {0, len(rows) // 2, len(rows) - 1}
    if not np.isnan(changes).all():
        chosen |= {int(np.nanargmax(changes)), int(np.nanargmin(changes))}
    words = []
    for i in sorted(chosen):
        gap = m.of_sets(policy, metric, rows[i]) - m.of_sets(m.reference(policy), metric, rows[i])
        words.append(
            f"{changes[i]:+.2f} % at {100 * m.budgets[rows[i]]:g} % "
            f"(mean difference {gap.mean():+.4f} ± {m.standard_error(gap):.4f})"
        )
    return ", ".join(words)


def _better(m: Measured, policy: str, metric: str, rows: Sequence[int], where: str, paper: str) -> Claim:
    changes = _changes(m, policy, metric, rows)
    above = sum(change > 0.0 for change in changes)
    words = _in_words(m, policy, metric, changes, rows)
    return Claim(
        f"{policy} beats {m.reference(policy)} in {metric} freshness, {where} (median change)",
        above == len(changes),
        f"{above} of {len(changes)} budgets; {words}",
        paper,
    )


def _figure_4(m: Measured) -> list[Claim]:
    claims = []
    for policy in [p for p in m.policies if p.startswith("KAB")]:
        for metric in ("click", "offer"):
            for where, low, high in (
                ("below 1 %", 0.0, 0.0099),
                ("1 to 9 %", 0.0099, 0.099),
                ("10 to 90 %", 0.099, 1.0),
            ):
                claims.append(
                    _better(m, policy, metric, _rows(m, low, high), where, "above at every budget, p < 0.05")
                )
        tight = max(_changes(m, policy, "click", _rows(m, high=0.0099)))
        wide = max(_changes(m, policy, "click", _rows(m, 0.0099)))
        claims.append(
            Claim(
                f"{policy} gains most in click freshness below 1 %",
                tight > max(wide, 0.0),
                f"at most {tight:+.2f} % below 1 %, {wide:+.2f} % above",
                "especially pronounced below 1 %",
            )
        )
    return claims


def _figure_5(m: Measured) -> list[Claim]:
    claims = []
    for policy in ("KAB5", "KAB5-gain"):
        q = np.concatenate([p.outcome.arm_probability[policy] for p in m.parts], axis=1)
        # The last week of steps, all repetitions.
        end = q[:, :, -84:].mean(axis=(1, 2))
        uniform, change, click, impression, best = (end[:, k] for k in range(5))
        named = "; ".join(
            f"{100 * budget:g} %: uniform {uniform[b]:.2f}, delta {change[b]:.2f}, mu {click[b]:.2f}, "
            f"nu {impression[b]:.2f}, lambda {best[b]:.2f}"
            for b, budget in enumerate(m.budgets)
        )
        spread = [float(np.ptp(row)) for row in end]
        claims += [
            Claim(
                f"{policy}: lambda_ml and mu_ml end above 0.2",
                bool((best > 0.2).all() and (click > 0.2).all()),
                named,
                "both above 0.2 at 1 % and 10 %",
            ),
            Claim(
                f"{policy}: mu_ml is preferred to lambda_ml",
                bool((click > best).all()),
                named,
                "mu_ml more preferable at both budgets",
            ),
            Claim(
                f"{policy}: others end below 0.2",
                bool((uniform < 0.2).all() and (change < 0.2).all() and (impression < 0.2).all()),
                named,
                "several strategies receive low probabilities",
            ),
            Claim(
                f"{policy}: probabilities are less unequal with more budget",
                spread[-1] < spread[0],
                f"largest minus smallest {spread[0]:.3f} and {spread[-1]:.3f}",
                "less imbalanced at 10 % than 1 %",
            ),
        ]
    return claims


def _figure_6(m: Measured) -> list[Claim]:
    every, claims = _rows(m), []
    for end in ("", "-gain"):
        two, three, four, five = (f"KAB{k}{end}" for k in (2, 3, 4, 5))
        near = [abs(change) for change in _changes(m, two, "click", _rows(m, 0.3))]
        gaps = {
            name: [abs(c) for c in _changes(m, name, "click", every)] for name in (two, three, four, five)
        }
        first = ", ".join(f"{name} {gap[0]:.2f} % to {gap[-1]:.2f} %" for name, gap in gaps.items())
        claims += [
            Claim(
                f"Click gaps to lambda_ml close with the budget ({two} to {five})",
                all(gap[-1] < gap[0] for gap in gaps.values()),
                f"at 10 % and at 90 %: {first}",
                "close gradually to zero",
            ),
            Claim(
                f"{two} has lambda_ml's click freshness from 30 % on (within 1 %)",
                max(near) <= 1.0,
                f"at most {max(near):.2f} % from it",
                "comparable, particularly above 30 %",
            ),
            _above(
                m,
                "offer",
                f"{two} falls behind lambda_ml in offer freshness",
                "below",
                "lambda_ml",
                [two],
                every,
            ),
            _above(
                m,
                "offer",
                f"Uniform as a third arm helps offers: {three} over {two}",
                "significantly improved",
                three,
                [two],
                every,
            ),
            _above(
                m,
                "click",
                f"{three} beats lambda_ml in clicks",
                "by a very large margin",
                three,
                ["lambda_ml"],
                every,
            ),
            _above(
                m,
                "offer",
                f"Impressions as an arm help offers: {four} over {three}",
                "an additional boost",
                four,
                [three],
                every,
            ),
            _better(m, five, "click", every, "10 to 90 %", "outperforms on both"),
            _better(m, five, "offer", every, "10 to 90 %", "outperforms on both"),
        ]
    return claims


CLAIMS: Final[dict[str, Callable[[Measured], list[Claim]]]] = {
    "han-table-5": _table_5,
    "han-table-6": _table_6,
    "han-figure-4": _figure_4,
    "han-figure-5": _figure_5,
    "han-figure-6": _figure_6,
}
