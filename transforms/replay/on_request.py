"""Requests of a world replayed, each of which may trigger a crawl: strategies at all their levels."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np

from policies.history.page_state import US_PER_DAY
from policies.numerics.typing_ import FloatArray, IntArray
from policies.on_request.networks import Findings, Train, Trained, watched_rows
from policies.on_request.replay import Asked, by_period, drawn_requests, follow
from policies.on_request.strategies import RULES
from policies.simulation import metrics
from transforms.batches.steps import Step
from transforms.replay.backtesting import scored_from
from transforms.replay.replaying import Replayed, ReplayError
from transforms.replay.worlds import World

PERIODS = 10


@dataclass(frozen=True)
class Question:
    """A strategy, and the number of a draw: of requests that no log has, and of what is left to chance."""

    policy: str
    repetition: int


@dataclass(frozen=True)
class Answer:
    """What came of a question.

    Attributes
    ----------
    question : Question
    begin_us : (periods,) int64
    requests : (periods,) int64
    resources, freshness : (levels, periods) float64
        Crawls for each request, and the share of requests that met a fresh copy.
    """

    question: Question
    begin_us: IntArray
    requests: IntArray
    resources: FloatArray
    freshness: FloatArray


def questions(policies: Iterable[str], repetitions: int) -> Iterator[Question]:
    """All runs."""
    for name in policies:
        yield from (Question(name, repetition) for repetition in range(repetitions))


def requests_of(world: World, repetition: int, per_page_day: float) -> tuple[IntArray, IntArray]:
    """Pages and times of the log's requests; without a log, drawn ones of Zipf popularity."""
    if world.asked is not None:
        return world.asked.instants(repetition)
    weight = metrics.zipf_weights(len(world), repetition + 1)
    rate = per_page_day * weight / weight.mean()
    return drawn_requests(rate, world.start_us, world.end_us, repetition)


class PlayRequests(Step):
    """Answers questions about the world, a side input.

    Parameters
    ----------
    warm_up : float
        Share of the nights that is not scored.
    per_page_day : float
        Requests a page and day where there is no log of them.
    train : callable
        Trains networks, for the rules that go by one.
    """

    def __init__(self, warm_up: float, per_page_day: float, train: Train) -> None:
        self._warm_up, self._per_page_day, self._train = warm_up, per_page_day, train

    def process(self, question: Question, replayed: Replayed) -> Iterator[Answer]:
        yield answer(replayed.world, question, self._warm_up, self._per_page_day, self._train)


def trained(world: World, question: Question, until_us: int, train: Train) -> Trained | None:
    """The network of a rule that goes by one: of all pages, crawled every hour while nothing is scored."""
    rule = RULES[question.policy]
    if not rule.by_network:
        return None
    first = np.maximum(world.history.first_us, world.start_us)
    if until_us < (begin_us := int(first.min())) + US_PER_DAY:
        raise ReplayError(
            f"--policies: {question.policy} is trained on what is not scored, a day at least, and there are "
            f"{max(until_us - begin_us, 0) / US_PER_DAY:.2g} days: raise --warm_up, or give a longer time"
        )
    texts = [c.to_numpy(zero_copy_only=False).astype(str) for _, c in sorted(world.metadata.items())]
    columns = [np.unique(c, return_inverse=True)[1] for c in (world.host, *texts)]
    findings = Findings(world.host, np.column_stack(columns) + 1, first)
    rows = watched_rows(findings.copy(), world.history, np.arange(len(world)), world.start_us, until_us)
    return Trained(train(rows, rule.frequencies, question.repetition), rule.frequencies, findings)


def answer(world: World, question: Question, warm_up: float, per_page_day: float, train: Train) -> Answer:
    """Play a strategy at all its levels; the scored days are cut into ten equal periods."""
    page, at_us = requests_of(world, question.repetition, per_page_day)
    asked = Asked.of(world.history, page, at_us, world.host)
    begin = scored_from(world, warm_up)
    edges = begin + np.arange(PERIODS + 1) * ((world.end_us - begin) // PERIODS)
    every = np.ones(len(world), np.bool_)
    rule, resources, freshness = RULES[question.policy], [], []
    told = trained(world, question, begin, train)
    for level in rule.levels:
        spent = by_period(asked, follow(asked, rule.make(level, told), question.repetition), edges, every)
        many = np.maximum(spent.requests, 1)
        resources.append(spent.crawls / many)
        freshness.append(spent.fresh / many)
    return Answer(question, edges[:-1], spent.requests, np.array(resources), np.array(freshness))
