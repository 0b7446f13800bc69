"""Figures 10 and 11 of Han et al. 2019 for `recrawl reproduce`: crawls that requests trigger."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final

import numpy as np

from pipelines.experiments.figures import trained
from pipelines.experiments.figures.records import Claim, Columns, Figure, Made, Table
from pipelines.pictures.plots import Panel, Picture, Series
from policies.history.page_state import US_PER_DAY
from policies.numerics.typing_ import BoolArray, FloatArray, IntArray
from policies.on_request.networks import Findings, Trained, watched_rows
from policies.on_request.replay import Asked, Outcome, by_period, follow
from policies.on_request.savings import SHARES, Saving, saving, savings_by_period
from policies.on_request.strategies import RULES, UNIFORM, Rule
from policies.simulation import offers

FIGURE_10, FIGURE_11 = "han-2019-figure-10", "han-2019-figure-11"
TRAINED_DAYS, LEAD_DAYS, PERIODS, PERIOD_DAYS = 30, 4, 10, 5
DAYS: Final = LEAD_DAYS + PERIODS * PERIOD_DAYS
STEP_HOURS: Final = 6
UNSEEN_SHARE: Final = 0.25
REQUESTS_PER_DAY: Final = 4.0
SEEN: Final = ("seen", "unseen")
SHOWN: Final = (0.0, 0.02, 0.04, 0.06, 0.08, 0.1, 0.3, 0.5, 0.7, 0.9, 1.0)
PAPER_SAVED: Final = {"seen": 0.27, "unseen": 0.17}
_PAPER: Final = "Han et al. 2019, Predictive Crawling for Commercial Web Content, Figure {}"
_WORLD: Final = (
    "Their data is private: price offers are drawn with the reported patterns (see han-table-5). Requests "
    f"come by Poisson processes, {REQUESTS_PER_DAY:g} a day and offer on average, as uneven as impressions; "
    f"all copies are fresh at first. {TRAINED_DAYS} days of hourly crawls of three quarters of the offers, "
    "those that are seen, come before; of the unseen ones nothing is known. The first "
    f"{LEAD_DAYS} days are not scored, then come {PERIODS} periods of {PERIOD_DAYS} days. "
    "`accuracy` is freshness at requests."
)
_STRATEGIES: Final = (
    " What a strategy does not crawl it does not learn from. frequency, metadata and recrawl go by equation "
    "1, on the frequency of changes found, the mean rate of like offers (country and category), and our "
    "probability of a change since the last crawl; value crawls where the value of the crawl reaches a "
    "multiplier. Their neural networks, dnn-metadata (metadata, weekday and hour) and dnn (these and "
    "frequencies), are trained on the hourly crawls; both need Keras and are left out without it. A period "
    "in which a strategy does not reach the target counts as nothing saved."
)


@dataclass(frozen=True)
class Task:
    """One strategy on one draw of offers."""

    name: str
    pages: int
    repetition: int
    seed: int
    policy: str


@dataclass(frozen=True)
class Part:
    """What came of a task.

    Attributes
    ----------
    task : Task
    resources, freshness : (levels, 2, periods) float64
        Of offers that are seen, and unseen.
    steps : (levels, steps) float64
        Freshness of all offers every six hours; of Figure 10.
    """

    task: Task
    resources: FloatArray
    freshness: FloatArray
    steps: FloatArray


def world(pages: int, seed: int) -> tuple[Asked, BoolArray]:
    """Offers with their requests, and which of them are seen."""
    return _world(pages, seed)[1:]


def _world(pages: int, seed: int) -> tuple[offers.Offers, Asked, BoolArray]:
    drawn = offers.generate(pages, TRAINED_DAYS + DAYS, seed)
    start = TRAINED_DAYS * US_PER_DAY
    history = replace(drawn.history(0), start_us=start)
    rng = np.random.Generator(np.random.Philox(key=np.array([seed, 0x4A2019], dtype=np.uint64)))
    shown = drawn.impressions.mean(axis=0)
    rate = REQUESTS_PER_DAY * shown / shown.mean()
    page = np.repeat(np.arange(pages), rng.poisson(rate * DAYS))
    at = start + (rng.random(len(page)) * DAYS * US_PER_DAY).astype(np.int64)
    seen = rng.random(pages) >= UNSEEN_SHARE
    _, group = np.unique(drawn.country * len(offers.CATEGORIES) + drawn.category, return_inverse=True)
    asked = Asked.of(history, page, at, group.astype(np.int64), seen, np.flatnonzero(seen), from_us=0)
    return drawn, asked, seen


def _network(drawn: offers.Offers, asked: Asked, seen: BoolArray, rule: Rule, seed: int) -> Trained:
    """A network of the offers that are seen, from the month before."""
    metadata = np.column_stack([drawn.category, drawn.country, drawn.merchant]) + 1
    history = replace(asked.history, start_us=0)
    findings = Findings(drawn.category, metadata, history.first_us)
    rows = watched_rows(findings, history, np.flatnonzero(seen), 0, asked.history.start_us)
    return Trained(trained.network(rows, rule.frequencies, seed), rule.frequencies, findings)


def tasks(
    name: str, pages: Sequence[int], repetitions: int, until: float, seed: int, at_once: int
) -> list[Task]:
    """A task a strategy; of Figure 10 uniform alone."""
    rules = [n for n, rule in RULES.items() if not rule.by_network or trained.has_keras()]
    policies = [UNIFORM] if name == FIGURE_10 else rules
    return [
        Task(name, n, repetition, 1000 * seed + repetition, policy)
        for n in sorted(set(pages), reverse=True)
        for repetition in range(repetitions)
        for policy in policies
    ]


def run(task: Task) -> Part:
    """Play all levels of a strategy."""
    drawn, asked, seen = _world(task.pages, task.seed)
    rule, start = RULES[task.policy], asked.history.start_us
    levels = SHOWN if task.name == FIGURE_10 else rule.levels
    periods = start + (LEAD_DAYS + PERIOD_DAYS * np.arange(PERIODS + 1)) * US_PER_DAY
    steps = start + np.arange(DAYS * 24 // STEP_HOURS + 1) * (STEP_HOURS * US_PER_DAY // 24)
    told = _network(drawn, asked, seen, rule, task.seed) if rule.by_network else None
    made = [follow(asked, rule.make(level, told), task.seed) for level in levels]
    found = np.array([[_rates(asked, one, periods, some) for some in (seen, ~seen)] for one in made])
    everything = np.ones(task.pages, np.bool_)
    over_time = [_rates(asked, one, steps, everything)[1] for one in made] if task.name == FIGURE_10 else []
    return Part(task, found[:, :, 0], found[:, :, 1], np.array(over_time))


def _rates(
    asked: Asked, outcome: Outcome, edges: IntArray, pages: BoolArray
) -> tuple[FloatArray, FloatArray]:
    """Resources and freshness of each period."""
    spent = by_period(asked, outcome, edges, pages)
    many = np.maximum(spent.requests, 1)
    return spent.crawls / many, spent.fresh / many


def _columns(parts: Sequence[Part]) -> Columns:
    """A row a strategy, level, kind of offer, period and repetition."""
    rows: dict[str, list[Any]] = {
        name: []
        for name in ("policy", "level", "offers", "pages", "repetition", "period", "resources", "accuracy")
    }
    for part in parts:
        levels = SHOWN if part.task.name == FIGURE_10 else RULES[part.task.policy].levels
        for i, j, p in np.ndindex(part.resources.shape):
            values = (part.task.policy, levels[i], SEEN[j], part.task.pages, part.task.repetition, p)
            both = float(part.resources[i, j, p]), float(part.freshness[i, j, p])
            for name, value in zip(rows, (*values, *both), strict=True):
                rows[name].append(value)
    return rows


def make_10(parts: list[Part]) -> Made:
    """Freshness over time of uniform crawling."""
    largest = [p for p in parts if p.task.pages == max(q.task.pages for q in parts)]
    curves = np.mean([p.steps for p in largest], axis=0)
    scored = np.array([p.steps[:, LEAD_DAYS * 24 // STEP_HOURS :].mean(axis=1) for p in largest])
    mean = dict(zip(SHOWN, scored.mean(axis=0).tolist(), strict=True))
    first, rest = mean[0.1] - mean[0.0], mean[1.0] - mean[0.1]
    low = scored[:, SHOWN.index(0.1)] - scored[:, 0]
    error = float(low.std(ddof=1) / np.sqrt(len(low))) if len(low) > 1 else float("nan")
    claims = [
        Claim(
            "The first 10 % of the crawls gain more freshness than the other 90 %",
            first > rest,
            f"{first:.3f} ± {error:.3f} and {rest:.3f}",
            "0.381 and 0.029",
        ),
        Claim(
            "They gain ten times as much",
            first > 10.0 * rest,
            f"{first / max(rest, 1e-9):.1f} times",
            "13 times",
        ),
        Claim(
            "Freshness is not 1 with a crawl at every request",
            mean[1.0] < 0.999,
            f"{mean[1.0]:.3f}",
            "the topmost line stays below 1",
        ),
    ]
    days = (np.arange(curves.shape[1]) + 0.5) * STEP_HOURS / 24.0
    lines = [Series(f"{100 * p:g} %", days, c, style="bare") for p, c in zip(SHOWN, curves, strict=True)]
    axes = "days", "freshness at requests"
    picture = Picture(FIGURE_10, "Uniform crawling at requests", [Panel("", *axes, lines)], across=1)
    table = Table(
        "Mean freshness from day 4 on",
        ["crawled", *(f"{100 * p:g} %" for p in SHOWN)],
        [["freshness", *(f"{mean[p]:.3f}" for p in SHOWN)]],
    )
    return Made(_columns(parts), claims, [table], [picture])


def savings(parts: Sequence[Part]) -> dict[tuple[str, str], list[Saving]]:
    """By strategy and kind of offer, at each of `SHARES`: over the periods of all repetitions."""
    uniform = {p.task.repetition: p for p in parts if p.task.policy == UNIFORM}
    found: dict[tuple[str, str], list[Saving]] = {}
    for policy in RULES:
        mine = [p for p in parts if p.task.policy == policy]
        for j, kind in enumerate(SEEN):
            if policy != UNIFORM and mine:
                saved = [
                    savings_by_period(
                        *((q.resources[:, j], q.freshness[:, j]) for q in (uniform[p.task.repetition], p))
                    )
                    for p in mine
                ]
                # Periods of one draw are alike; those of all draws are what an interval is over.
                found[policy, kind] = [saving(row) for row in np.concatenate(saved, axis=1)]
    return found


def make_11(parts: list[Part]) -> Made:
    """Resources saved at the freshness of uniform crawling."""
    largest = max(p.task.pages for p in parts)
    found = savings([p for p in parts if p.task.pages == largest])
    rows, saved = [], []
    names = ("policy", "offers", "uniform_resources", "saved", "low", "high", "periods")
    summary: Columns = {name: [] for name in names}
    for (policy, kind), each in found.items():
        rows.append(
            [policy, kind, *(f"{100 * s.mean:.0f} [{100 * s.low:.0f}, {100 * s.high:.0f}]" for s in each)]
        )
        for share, s in zip(SHARES, each, strict=True):
            for name, value in zip(
                names, (policy, kind, share, s.mean, s.low, s.high, s.periods), strict=True
            ):
                summary[name].append(value)
        saved.append(Series(f"{policy}, {kind}", np.array(SHARES), np.array([s.mean for s in each])))
    heads = ["strategy", "offers", *(f"at uniform {100 * s:g} %" for s in SHARES)]
    table = Table("Crawls saved, % [95 % confidence interval]", heads, rows)
    axes = "resources of uniform crawling", "share of crawls saved"
    picture = Picture(
        FIGURE_11, "Crawls saved at equal freshness", [Panel("", *axes, saved, level=0.0)], across=1
    )
    return Made(_columns(parts), list(_claims(found)), [table], [picture], {"savings": summary})


def _claims(found: dict[tuple[str, str], list[Saving]]) -> list[Claim]:
    def worst(policy: str, kind: str) -> float:
        return min(s.mean for s in found[policy, kind])

    def said(policy: str, kind: str) -> str:
        return f"{policy}, {kind}: " + ", ".join(f"{100 * s.mean:.0f} %" for s in found[policy, kind])

    claims = [
        Claim(
            f"The best strategy saves {100 * PAPER_SAVED[kind]:.0f} % of the crawls or more on {kind} "
            "offers, at every freshness",
            min(s.low for s in found["value", kind]) >= PAPER_SAVED[kind],
            said("value", kind) + " (the lower ends of the intervals decide)",
            f"as much as {100 * PAPER_SAVED[kind]:.0f} %, DNN (metadata + frequency)",
        )
        for kind in SEEN
    ]
    if ("dnn", "seen") in found:
        claims += [
            Claim(
                f"DNN (metadata + frequency) saves as much on {kind} offers, within the intervals",
                all(s.high >= PAPER_SAVED[kind] for s in found["dnn", kind]),
                said("dnn", kind),
                f"as much as {100 * PAPER_SAVED[kind]:.0f} %",
            )
            for kind in SEEN
        ]
    claims.append(
        Claim(
            "A score by a model with history and metadata saves more than the frequency of changes",
            all(worst("recrawl", kind) > worst("frequency", kind) for kind in SEEN),
            "; ".join(said(policy, kind) for kind in SEEN for policy in ("recrawl", "frequency")),
            "DNN (metadata + frequency) above Frequency (combined)",
        )
    )
    claims.append(
        Claim(
            "Every strategy saves something at every freshness",
            all(s.mean > 0.0 for each in found.values() for s in each),
            "; ".join(said(*one) for one in found if worst(*one) <= 0.0) or "all do",
            "all other models spend less; DNN (metadata) about 5 % less on unseen offers",
        )
    )
    claims.append(
        Claim(
            "Less is saved on unseen offers than on seen ones",
            all(worst(p, "unseen") < worst(p, "seen") for p in ("recrawl", "value")),
            "; ".join(said(p, kind) for p in ("recrawl", "value") for kind in SEEN),
            "27 % and 17 %",
        )
    )
    return claims


FIGURES: Final = tuple(
    Figure(
        name,
        title,
        _PAPER.format(number),
        setting,
        (1000,),
        3,
        None,
        partial(tasks, name),
        run,
        make,
        20_000,
    )
    for name, number, title, setting, make in (
        (FIGURE_10, 10, "Freshness over time of uniform crawling at requests", _WORLD, make_10),
        (FIGURE_11, 11, "Crawls saved at the freshness of uniform crawling", _WORLD + _STRATEGIES, make_11),
    )
)
