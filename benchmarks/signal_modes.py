"""What a night makes of signals, as plug-ins of `benchmarks.closed_loop`.

A mode turns a folded shard into an estimated one, and may reorder the night's crawls. `MODES` has them
by name.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from policies import estimation
from policies.typing_ import BoolArray, FloatArray, IntArray
from transforms.coders import ShardTables
from transforms.learning import Learned, RequestClock, estimate_shard


@dataclass(frozen=True)
class Planned:
    """Crawls of one night.

    Attributes
    ----------
    page : (k,) int64
    due_us : (k,) int64
        UTC microseconds.
    value : (k,) float64
        Value of the crawl when it was planned, requests.
    predicted : (k,) float64
        Probability that it finds a change.
    """

    page: IntArray
    due_us: IntArray
    value: FloatArray
    predicted: FloatArray


class Mode:
    """No signals: the job as it is without them. The base of all modes.

    Attributes
    ----------
    name : str
    objective : str
        A name of `policies.objectives`.
    hears : bool
        Whether the fold is given the signals.
    """

    name = "no signals"
    objective = "periodic"
    hears = False

    def estimate(self, folded: ShardTables, learned: Learned, clock: RequestClock) -> ShardTables:
        """Rates of a folded shard."""
        return estimate_shard(folded, learned, None, clock)

    def choose(self, planned: Planned, pinged: BoolArray) -> Planned:
        """The crawls that the crawler makes of those that were planned.

        Parameters
        ----------
        planned : Planned
        pinged : (n,) bool
            Pages with a signal since their last crawl.
        """
        return planned

    def predict(
        self,
        estimated: ShardTables,
        row: IntArray,
        since_days: FloatArray,
        ahead_days: FloatArray,
        first: BoolArray,
    ) -> FloatArray:
        """Probability that crawls find a change, told at the night's instant, (k,).

        Parameters
        ----------
        estimated : ShardTables
            Of `estimate`.
        row : (k,) int64
            Rows of its pages.
        since_days : (k,) float64
            From the last crawl to the night.
        ahead_days : (k,) float64
            From the night, or from a crawl of the same page in this night, to the crawl. Signals may come in
            this time: it changes at the whole rate of changes.
        first : (k,) bool
            The page's first crawl in this night: the signals that are pending are of its interval.
        """
        pages = estimated.tables["pages"]
        rate = pages.column("change_rate_per_day").to_numpy()[row]
        information = pages.column("information").to_numpy()[row]
        return 1.0 - estimation.predict_unchanged(rate, information, since_days + ahead_days)

    def trust(self, estimated: ShardTables) -> dict[str, tuple[float, float]]:
        """Learned precision and recall of the signals of each host that has any."""
        return {}


class PingedFirst(Mode):
    """Pages with a signal first, in the first slots of the night; the least valuable others give way.

    What a crawler does that takes every signal at its word and has no model of it.
    """

    name = "pinged first"

    def choose(self, planned: Planned, pinged: BoolArray) -> Planned:
        n = len(planned.page)
        order = np.argsort(planned.due_us, kind="stable")
        page, value = planned.page[order], planned.value[order]
        first = np.zeros(n, np.bool_)
        first[np.unique(page, return_index=True)[1]] = True
        called = pinged[page] & first
        others = np.setdiff1d(np.flatnonzero(pinged), page)
        called_page = np.concatenate([page[called], others])[:n]
        rest = np.flatnonzero(~called)
        kept = np.argsort(-value[rest], kind="stable")[: n - len(called_page)]
        rest = rest[np.sort(kept)]
        chosen = np.concatenate([called_page, page[rest]])
        return Planned(chosen, planned.due_us[order], np.zeros(n), np.zeros(n))


MODES: dict[str, type[Mode]] = {m.name: m for m in (Mode, PingedFirst)}
