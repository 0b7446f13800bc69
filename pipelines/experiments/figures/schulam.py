"""Figures 2, 3 and 4 of Schulam and Muslea, "Improving the Exploration/Exploitation Trade-Off in Web Content
Discovery", made again."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import pairwise
from typing import Final

import numpy as np

from pipelines.experiments.figures import schulam_runs as runs
from pipelines.experiments.figures.records import Claim, Columns, Figure, Made, Table
from pipelines.experiments.figures.schulam_runs import Part
from pipelines.pictures.plots import Panel, Picture, Series
from policies.discovery import drawn, metrics
from policies.numerics.typing_ import FloatArray

PAPER: Final = (
    "Schulam and Muslea 2023, Improving the Exploration/Exploitation Trade-Off in Web Content Discovery, "
    "Figure {}"
)
_SETTING: Final = (
    "Their data is private: domains are drawn with what they report, 77 sources and 18 new targets an hour, "
    "fetched in 95 % of 1,176 hours; half of the targets are on several sources, and links stay for 1, 4 and "
    "47 hours (10, 50 and 90 %), as on sections of news sites. A repetition is a domain; pages are its "
    "sources. The first seventh of the time is the warm-up, and targets first shown in it are not scored. "
    "Pham's shares are rounded at random. `accuracy` is coverage, intervals are 95 % of 1,000 bootstrap "
    "samples of domains. Where $RECRAWL_SHARED holds data/discovery/news_de_sections, these sections of ten "
    "domains are played, too, with 24 hours of warm-up and budgets of 1, 2 and 5: rows with 0 pages."
)
COVERAGE, OVERHEAD, HTD, WITHIN, OF_ALL = range(5)
_HEADS: Final = ("coverage", "overhead", "HTD-P90, hours", "found within 3 h", "of all, warm-up too")
_NAMES: Final = ("accuracy", "overhead", "htd_p90", "found_within_3h", "coverage_of_all")
_TITLES: Final = {
    2: "Coverage, overhead and hours to discovery",
    3: "Regret against the Oracle",
    4: "Thompson relative to Pham",
}


class Domains:
    """Parts with the same sources: drawn ones of one size, or the given ones."""

    def __init__(self, parts: Sequence[Part]) -> None:
        first = parts[0]
        self.pages, self.budgets, self.policies = first.task.pages, first.budgets, first.policies
        self.values = np.concatenate([part.values for part in parts], axis=2)
        self.regret = np.concatenate([part.regret for part in parts], axis=2)
        self.hours = first.hours
        self.names = [
            (part.task.repetition if part.task.pages else i, name)
            for part in parts
            for i, name in enumerate(part.domains)
        ]

    @property
    def title(self) -> str:
        """What they are."""
        count = f"{len(self.names)} domain{'s' if len(self.names) != 1 else ''}"
        return f"{count} drawn, {self.pages} sources each" if self.pages else f"{count}, given sections"

    def of(self, policy: str, k: int, which: int) -> FloatArray:
        """By domain: (d,) float64."""
        found: FloatArray = self.values[self.policies.index(policy), self.budgets.index(k), :, which]
        return found

    def behind(self, policy: str, k: int) -> FloatArray:
        """Regret: (d, t) float64."""
        found: FloatArray = self.regret[self.policies.index(policy), self.budgets.index(k)]
        return found


def _split(parts: Sequence[Part]) -> list[Domains]:
    """The largest drawn ones first, the given ones last."""
    ordered = sorted(parts, key=lambda p: (-p.task.pages, p.task.repetition))
    sizes = dict.fromkeys(p.task.pages for p in ordered)
    return [Domains([p for p in ordered if p.task.pages == size]) for size in sizes]


def _interval(values: FloatArray, places: int = 3, sign: str = "") -> str:
    values = values[np.isfinite(values)]
    if not len(values):
        return "none"
    low, high = metrics.bootstrap(values)
    mean = f"{values.mean():{sign}.{places}f}"
    return mean if np.isnan(low) else f"{mean} [{low:{sign}.{places}f}, {high:{sign}.{places}f}]"


def _mean(values: FloatArray) -> float:
    values = values[np.isfinite(values)]
    return float(values.mean()) if len(values) else float("nan")


def _by_budget(d: Domains, which: int, policies: Sequence[str], places: int = 3) -> str:
    return "; ".join(
        f"{p} " + ", ".join(f"{_mean(d.of(p, k, which)):.{places}f}" for k in d.budgets) for p in policies
    )


def _levels(d: Domains) -> list[Claim]:
    """Figure 2."""
    low, high = d.budgets[0], d.budgets[-1]
    oracle = [_mean(d.of(runs.ORACLE, k, COVERAGE)) for k in d.budgets]
    whole = [_mean(d.of(runs.ORACLE, k, OF_ALL)) for k in d.budgets]
    both = ("thompson", "pham")
    overhead = {p: [_mean(d.of(p, k, OVERHEAD)) for k in d.budgets] for p in (runs.ORACLE, *both)}
    hours = {p: [_mean(d.of(p, k, HTD)) for k in d.budgets] for p in (runs.ORACLE, *both)}
    at = f"k = {', '.join(map(str, d.budgets))}"
    return [
        Claim(
            "The Oracle's coverage does not depend on the budget (within .02)",
            max(oracle) - min(oracle) <= 0.02,
            f"{at}: " + ", ".join(f"{x:.3f}" for x in oracle),
            "just under 65 % for all budgets",
        ),
        Claim(
            "It is about .65 (.60 to .70): counted over all targets, those of the warm-up too",
            all(0.6 <= x <= 0.7 for x in whole),
            f"{at}: " + ", ".join(f"{x:.3f}" for x in whole),
            "just under 65 %",
        ),
        Claim(
            "Thompson's coverage comes near the Oracle's at the smallest budget (within .05)",
            oracle[0] - _mean(d.of("thompson", low, COVERAGE)) <= 0.05,
            _by_budget(d, COVERAGE, (runs.ORACLE, *both)),
            "competitive with the Oracle even at k = 5",
        ),
        Claim(
            "All crawlers need more refreshes for a new page as the budget grows",
            all(b > a for x in overhead.values() for a, b in pairwise(x)),
            _by_budget(d, OVERHEAD, (runs.ORACLE, *both)),
            "all crawlers become less efficient",
        ),
        Claim(
            "The Oracle needs fewest, Pham most, at every budget",
            all(
                o < t < p for o, t, p in zip(overhead[runs.ORACLE], *(overhead[x] for x in both), strict=True)
            ),
            _by_budget(d, OVERHEAD, (runs.ORACLE, *both)),
            "in general the Oracle is most, Pham least efficient",
        ),
        Claim(
            "The Oracle discovers most pages within 4 hours at the smallest budget",
            hours[runs.ORACLE][0] <= 4.0,
            f"k = {low}: {hours[runs.ORACLE][0]:.1f} hours",
            "3 to 4 hours",
        ),
        Claim(
            "Thompson and Pham take much longer (twice and more) at the smallest budget, Pham longest",
            hours["pham"][0] > hours["thompson"][0] > 2.0 * hours[runs.ORACLE][0],
            _by_budget(d, HTD, both, 1),
            "20 hours for Pham, 15 for Thompson at k = 5",
        ),
        Claim(
            "and under 5 hours at the largest",
            all(hours[p][-1] < 5.0 for p in both),
            f"k = {high}: " + ", ".join(f"{p} {hours[p][-1]:.1f}" for p in both),
            "under 5 hours at k = 20",
        ),
    ]


def _regrets(d: Domains) -> list[Claim]:
    """Figure 3."""
    k = d.budgets[0] if d.pages else d.budgets[-1]
    thompson, pham = (d.behind(p, k) for p in ("thompson", "pham"))
    early = int(np.searchsorted(d.hours, min(96.0, d.hours[-1])))
    end = {p: d.behind(p, k)[:, -1] for p in d.policies if p != runs.ORACLE}
    words = ", ".join(f"{p} {_interval(x, 1)}" for p, x in end.items())
    return [
        Claim(
            "Both are under 20 % within the first four days",
            all(_mean(x[:, early]) < 20.0 for x in (thompson, pham)),
            f"thompson {_mean(thompson[:, early]):.1f}, pham {_mean(pham[:, early]):.1f}",
            "both quickly converge to under 20 % within the first few days",
        ),
        Claim(
            "Thompson ends at about 6 % (4 to 8)",
            4.0 <= _mean(end["thompson"]) <= 8.0,
            words,
            "approximately 6 % by the end",
        ),
        Claim(
            "Pham ends at about 15 % (13 to 17)",
            13.0 <= _mean(end["pham"]) <= 17.0,
            words,
            "stabilizes at approximately 15 %",
        ),
        Claim(
            "Thompson ends below Pham",
            metrics.bootstrap(end["pham"] - end["thompson"])[0] > 0.0,
            f"pham less thompson {_interval(end['pham'] - end['thompson'], 1, '+')} points",
            "Thompson balances exploration and exploitation more effectively",
        ),
    ]


def _relative(d: Domains, k: int, which: int, to: str = "pham") -> FloatArray:
    """Ratios of Thompson to Pham less 1, of hours the differences: (d,) float64."""
    ours, theirs = d.of("thompson", k, which), d.of(to, k, which)
    return ours - theirs if which == HTD else ours / theirs - 1.0


def _relatives(d: Domains) -> list[Claim]:
    """Figure 4."""
    claims = []
    for which, text, least, most, paper in (
        (COVERAGE, "Thompson finds about 20 % more pages (10 to 30) at the least budget", 0.1, 0.3, "+20 %"),
        (HTD, "and finds them about 6 hours earlier (3 to 9)", -9.0, -3.0, "6 hours earlier"),
        (OVERHEAD, "with about 14 % fewer refreshes a page (7 to 21)", -0.21, -0.07, "14 % fewer"),
    ):  # fmt: skip
        values = _relative(d, d.budgets[0], which)
        words = ", ".join(f"k = {k}: {_interval(_relative(d, k, which), 3, '+')}" for k in d.budgets)
        claims.append(Claim(text, least <= _mean(values) <= most, words, paper))
    bounds = [
        metrics.bootstrap(sign * _relative(d, k, which))
        for which, sign in ((COVERAGE, 1), (HTD, -1), (OVERHEAD, -1))
        for k in d.budgets
    ]
    claims.append(
        Claim(
            "Thompson is better by every metric at every budget, beyond 95 % intervals",
            all(low > 0.0 for low, _ in bounds),
            f"{sum(low > 0.0 for low, _ in bounds)} of {len(bounds)} are",
            "statistically significant improvements across all metrics and budgets",
        )
    )
    gaps = [_mean(_relative(d, k, COVERAGE)) for k in d.budgets]
    claims.append(
        Claim(
            "The gap narrows as the budget grows",
            all(b < a for a, b in pairwise(gaps)),
            ", ".join(f"{x:+.3f}" for x in gaps),
            "the gap narrows considerably",
        )
    )
    return claims


_CLAIMS: Final[Mapping[int, Callable[[Domains], list[Claim]]]] = {2: _levels, 3: _regrets, 4: _relatives}


def _level_table(d: Domains) -> Table:
    rows = [
        [policy, str(k), *(_interval(d.of(policy, k, which)) for which in range(len(_HEADS)))]
        for k in d.budgets
        for policy in d.policies
    ]
    return Table(d.title, ["crawler", "k", *_HEADS], rows)


def _regret_table(d: Domains) -> Table:
    at = [int(np.searchsorted(d.hours, share * d.hours[-1])) for share in (0.1, 0.25, 0.5, 1.0)]
    heads = ["crawler", "k", *(f"{d.hours[i] / 24.0:.1f} days" for i in at)]
    rows = [
        [policy, str(k), *(_interval(d.behind(policy, k)[:, i], 1) for i in at)]
        for k in d.budgets
        for policy in d.policies
        if policy != runs.ORACLE
    ]
    return Table(f"Regret, percent: {d.title}", heads, rows)


def _relative_table(d: Domains) -> Table:
    rows = [
        [to, str(k), *(_interval(_relative(d, k, which, to), 3, "+") for which in (COVERAGE, OVERHEAD, HTD))]
        for to in ("pham", "pham-skip-first", "round-robin", "recrawl")
        for k in d.budgets
    ]
    heads = ["Thompson relative to", "k", "coverage", "overhead", "HTD-P90, hours"]
    return Table(f"Ratios less 1, of hours differences: {d.title}", heads, rows)


_TABLES: Final[Mapping[int, Callable[[Domains], Table]]] = {
    2: _level_table,
    3: _regret_table,
    4: _relative_table,
}


def _panels(number: int, d: Domains) -> list[Panel]:
    budgets = np.array(d.budgets, np.float64)
    if number == 3:
        k = d.budgets[0] if d.pages else d.budgets[-1]
        lines = [
            Series(p, d.hours / 24.0, np.nanmean(d.behind(p, k), axis=0), style="bare")
            for p in d.policies
            if p != runs.ORACLE
        ]
        return [Panel(f"{d.title}, k = {k}", "days", "regret, percent", lines)]
    panels = []
    for which in (COVERAGE, OVERHEAD, HTD):
        if number == 2:
            series = [
                Series(p, budgets, np.array([_mean(d.of(p, k, which)) for k in d.budgets]))
                for p in d.policies
            ]
        else:
            at = np.array([_mean(_relative(d, k, which)) for k in d.budgets])
            series = [Series("thompson to pham", budgets, at)]
        panels.append(Panel(d.title, "budget k", _HEADS[which], series))
    return panels


def _columns(every: Sequence[Domains]) -> Columns:
    out: dict[str, list[object]] = {
        name: [] for name in ("policy", "pages", "repetition", *_NAMES, "k", "domain")
    }
    for d in every:
        for p, policy in enumerate(d.policies):
            for b, k in enumerate(d.budgets):
                for i, (repetition, domain) in enumerate(d.names):
                    row = [policy, d.pages, repetition, *d.values[p, b, i].tolist(), k, domain]
                    for column, value in zip(out.values(), row, strict=True):
                        column.append(value)
    return out


def _over_time(every: Sequence[Domains]) -> Columns:
    names = ("policy", "pages", "k", "hours", "regret", "regret_low", "regret_high")
    out: dict[str, list[object]] = {name: [] for name in names}
    for d in every:
        for policy in d.policies:
            for k in d.budgets:
                behind = d.behind(policy, k)
                for i, hours in enumerate(d.hours.tolist()):
                    row = [policy, d.pages, k, hours, _mean(behind[:, i]), *metrics.bootstrap(behind[:, i])]
                    for column, value in zip(out.values(), row, strict=True):
                        column.append(value)
    return out


def _made(number: int, parts: list[Part]) -> Made:
    every = _split(parts)
    claims = _CLAIMS[number](every[0])
    if not every[-1].pages:
        claims += [
            Claim(f"Given sections: {c.text}", c.holds, c.ours, c.paper) for c in _CLAIMS[number](every[-1])
        ]
    panels = [panel for d in every for panel in _panels(number, d)]
    picture = Picture(f"schulam-{number}", _TITLES[number], panels, across=2 if number == 3 else 3)
    more = {"over_time": _over_time(every)} if number == 3 else {}
    return Made(_columns(every), claims, [_TABLES[number](d) for d in every], [picture], more)


FIGURES: Final = tuple(
    Figure(
        f"schulam-{number}",
        title,
        PAPER.format(number),
        _SETTING,
        (drawn.SOURCES,),
        53,
        float(drawn.HOURS),
        runs.tasks,
        runs.run,
        partial(_made, number),
        1000,
    )
    for number, title in _TITLES.items()
)
