"""One budget for the night's schedule and for crawls at requests: the part of the latter, and its price."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

from policies.on_request.pairs import KINDS, KeptPairs, PairSums
from policies.on_request.sharing import first_factor, next_factor, share_for
from transforms.shards.catalogue import DAY_US

_UNKNOWN = (
    "auto: how bursty requests are is not known yet, which takes three to four weeks of --requests, so all "
    "of the budget is planned"
)
_NO_REQUESTS = "auto: pages do not weigh by requests, so all of the budget is planned"
HARMONIC = "harmonic"
_NO_PRICE = f"auto: the objective is {HARMONIC}, for which no request is worth a crawl, so all is planned"


@dataclass(frozen=True)
class RequestShare:
    """What a night leaves for crawls at requests.

    Attributes
    ----------
    share : float
        Of the budget.
    why : str
    budget_per_day : float
        For both.
    before : dict
        What the night before said of this; empty where nothing did.
    since_us : int
        Instant of the night before, UTC microseconds.
    objective : str
    """

    share: float = 0.0
    why: str = ""
    budget_per_day: float = 0.0
    before: dict[str, Any] | None = None
    since_us: int = 0
    objective: str = ""

    @classmethod
    def of(
        cls,
        asked: float | None,
        budget_per_day: float,
        objective: str,
        last: dict[str, Any],
        page_min_per_day: float = 0.0,
    ) -> Self:
        """By the manifest of the night before, empty without one; `asked` is None where it decides."""
        before = last.get("on_request")
        share, why = asked, f"--on_request_share={asked:g}" if asked else ""
        if share is None:
            pairs = kept_pairs(before).get(last.get("weight_by", ""))
            found = share_for(pairs) if pairs is not None else None
            share = (found or 0.0) * (1.0 - _floors(last, budget_per_day, page_min_per_day))
            if objective == HARMONIC:
                share, why = 0.0, _NO_PRICE
            elif last.get("weight_by", KINDS[0]) not in KINDS:
                share, why = 0.0, _NO_REQUESTS
            elif pairs is None or found is None:
                why = _UNKNOWN
            else:
                why = f"auto: {said_of_pairs(pairs, share)}"
        return cls(share, why, budget_per_day, before, last.get("options", {}).get("as_of_us", 0), objective)

    @property
    def planned_per_day(self) -> float:
        """Crawls a day of the schedule."""
        return (1.0 - self.share) * self.budget_per_day

    def factor(self, rows_by_day: Mapping[int, int], as_of_us: int) -> float:
        """By what the multiplier is multiplied for crawls at requests.

        Parameters
        ----------
        rows_by_day : dict of int to int
            Tonight's crawl log, days since 1970-01-01.
        as_of_us : int
            The night, UTC microseconds.
        """
        if not self.share:
            return 1.0
        before = self.before or {}
        factor, share, budget = (before.get(n, 0.0) for n in ("price_factor", "share", "budget_per_day"))
        if not (factor and share and budget):
            return first_factor(self.share)
        # Of a day that has been read in part before, the whole is counted.
        begin = self.since_us // DAY_US
        crawls = sum(n for day, n in rows_by_day.items() if day >= begin)
        if not (crawls and as_of_us > self.since_us):
            return float(factor)
        return next_factor(factor, crawls * DAY_US / (as_of_us - begin * DAY_US), budget, share)

    def account(
        self,
        pairs: PairSums,
        rows_by_day: Mapping[int, int],
        weight_by: str,
        as_of_us: int,
        half_life_days: float,
    ) -> dict[str, Any]:
        """For the manifest, with tonight's pairs."""
        keep = 0.5 ** ((as_of_us - self.since_us) / DAY_US / half_life_days)
        kept = {kind: old.after(pairs, kind, keep).as_json() for kind, old in kept_pairs(self.before).items()}
        warning = ""
        if self.share > 0.0 and (weight_by not in KINDS or self.objective == HARMONIC):
            because, remedy = f"the objective is {self.objective}", "another --objective"
            if self.objective != HARMONIC:
                because, remedy = f"pages weigh by {weight_by}", "--requests"
            warning = (
                f"{self.why}: {self.share * self.budget_per_day:,.6g} crawls a day are left for crawls at "
                f"requests, but {because}, and crawl_on_request is empty. Give {remedy}, or leave the option "
                "out"
            )
        return {
            "share": self.share,
            "why": self.why,
            "budget_per_day": self.budget_per_day,
            "price_factor": self.factor(rows_by_day, as_of_us),
            "pairs": kept,
            "warning": warning,
        }


def kept_pairs(before: dict[str, Any] | None) -> dict[str, KeptPairs]:
    """Pairs by kind of request, as `RequestShare.account` has left them. ValueError for anything else."""
    kept = (before or {}).get("pairs", {})
    return {kind: KeptPairs.from_json(kept[kind]) if kind in kept else KeptPairs() for kind in KINDS}


def _floors(last: dict[str, Any], budget_per_day: float, page_min_per_day: float) -> float:
    """Part of the budget that floors take, by the pages of the night before."""
    pages = last.get("counters", {}).get("pages_known", 0)
    floors: float = max(last.get("search", {}).get("floor_per_day", 0.0), page_min_per_day * pages)
    return min(floors / budget_per_day, 1.0) if budget_per_day > 0.0 else 0.0


def said_of_pairs(pairs: KeptPairs, share: float) -> str:
    """How bursty requests are, and what follows."""
    ratio = f"{pairs.ratio:.1f} +- {pairs.stderr:.1f} times as many pairs on one day as by chance"
    if share > 0.0:
        return f"requests come in bursts ({ratio}), so {share:.0%} of the budget is left for crawls at them"
    return f"requests are steady, or not surely in bursts ({ratio}), so all of the budget is planned"


def said_of_share(found: dict[str, Any] | None) -> str:
    """What is left for crawls at requests and why, in a line; empty where nobody asked."""
    if not found or not found["why"]:
        return ""
    left = found["share"] * found["budget_per_day"]
    if not left:
        return str(found["why"])
    return (
        f"{left:,.6g} of {found['budget_per_day']:,.6g} crawls a day are left for them, at "
        f"{found['price_factor']:.3g} times the multiplier. {found['why']}"
    )
