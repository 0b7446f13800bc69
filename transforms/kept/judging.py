"""What became of yesterday's predictions: judged per shard, added up in the manifest."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import asdict, astuple, dataclass, field, replace
from typing import Any

import numpy as np
import pyarrow as pa

from policies.estimation.forecast import PROBABILITY_UNIT, Forecast
from policies.estimation.posterior import posterior
from policies.history.page_state import Forgetting, PageState, evidence
from policies.judging.calibration import (
    BINS,
    FACTORS,
    Bound,
    FreshSums,
    HostSums,
    Judge,
    JudgedSums,
    Tally,
    calibrate,
    drifted,
    sums_over_hosts,
)
from policies.judging.host_factors import GAIN_UNIT, HALF_LIFE_DAYS, Corrections
from policies.judging.recalibration import CellSums, Track
from policies.numerics.special import HALF_95
from policies.numerics.typing_ import IntArray
from transforms.batches.tally import counted
from transforms.shards.catalogue import DAY_US
from transforms.shards.coding import ShardPages

# Real sites change up to three times as often on a Wednesday as on a Sunday: only whole weeks are compared
# closely. A night, and the nights of a week that is not over, have the wider bound.
WEEK_DAYS = 7.0
ONE_NIGHT = Bound(z=6.0, rate_factor=2.0)
ONE_WEEK = Bound(z=4.0, rate_factor=1.25)

MAX_NAMED_HOSTS = 5
_FAULT = 2.0
"""Factor on the rates, either way, from which a fault of the crawler or of its digests may be behind it."""
_SMALLEST_RATE = 1e-30  # what single precision has rounded to 0
_NOT_COMPARABLE = (
    "baseline",
    "no_change_evidence",
    "not_modified_without_baseline",
    "failed",
    "duplicate",
    "late",
    "after_as_of",
)


@dataclass(frozen=True)
class Judged:
    """Crawls of tonight's log against last night's predictions.

    Attributes
    ----------
    sums : JudgedSums
    furthest : tuple of (host, crawls, changes predicted, changes found)
        The at most `MAX_NAMED_HOSTS` hosts where the last two are furthest apart.
    split : dict of str to HostSums
        Hosts of which several shards have pages: not in `furthest`, nor in the sums over hosts.
    cells : CellSums
        How predictions by rates alone did, by what was known when they were made.
    corrections : Corrections
        What factors did to them.
    """

    sums: JudgedSums = field(default_factory=JudgedSums)
    furthest: tuple[tuple[str, int, float, int], ...] = ()
    split: Mapping[str, HostSums] = field(default_factory=dict)
    cells: CellSums = field(default_factory=CellSums.empty)
    corrections: Corrections = field(default_factory=Corrections)

    def merge(self, other: Judged) -> Judged:
        """The crawls of both, of other hosts each but for split ones; in any order."""
        split = dict(self.split)
        for host, sums in other.split.items():
            split[host] = split[host].merge(sums) if host in split else sums
        return Judged(
            self.sums.merge(other.sums),
            _furthest(self.furthest + other.furthest),
            dict(sorted(split.items())),
            self.cells.merge(other.cells),
            self.corrections.merge(other.corrections),
        )

    def whole(self) -> Judged:
        """With the split hosts among the others: when all shards are in."""
        hosts = [h for h in self.split.values() if h.crawls]
        columns = np.array([astuple(h) for h in hosts], np.int64).reshape(-1, 4).T
        named = tuple(_named(name, sums) for name, sums in self.split.items() if sums.crawls)
        sums = self.sums.merge(sums_over_hosts(columns))
        return replace(self, sums=sums, furthest=_furthest(self.furthest + named), split={})


def _named(host: str, sums: HostSums) -> tuple[str, int, float, int]:
    return host, sums.crawls, sums.predicted * PROBABILITY_UNIT, sums.found


def _furthest(hosts: tuple[tuple[str, int, float, int], ...]) -> tuple[tuple[str, int, float, int], ...]:
    return tuple(sorted(hosts, key=lambda h: (-abs(h[3] - h[2]), h))[:MAX_NAMED_HOSTS])


def forecast_of(
    slots: pa.Table | None, code: IntArray | None, state: PageState, forgetting: Forgetting, as_of_us: int
) -> Forecast:
    """The forecast in a shard's `schemas.SLOTS_PAGES`.

    Parameters
    ----------
    slots : Table or None
    code : (m,) int64 or None
        Page of each row, -1 where the shard has no such page.
    state : PageState
        As the night before left it: what a page's posterior is, besides its mode and information.
    forgetting : Forgetting
    as_of_us : int
    """
    row = np.full(len(state), -1, np.int32)
    if slots is None or code is None:
        none = np.zeros(0)
        return Forecast(row, none, none, none)
    rate, information, weight = (
        slots.column(name).to_numpy().astype(np.float64)  # null becomes NaN
        for name in ("change_rate_per_day", "information", "weight")
    )
    use = np.flatnonzero((code >= 0) & ~np.isnan(rate))
    row[code[use]] = use
    rate = np.maximum(rate, _SMALLEST_RATE)
    # Where signals count, they and the rate without them say what to expect.
    alone = slots.column("unsignalled_rate_per_day").is_null().to_numpy()[use]
    changed = use[alone & (np.diff(state.bin_start)[code[use]] > 0)]
    known = evidence(
        state.take(code[changed]), forgetting.half_life_changes, forgetting.half_life_days, as_of_us
    )
    exact_row = np.full(len(rate), -1, np.int32)
    exact_row[changed] = np.arange(len(changed))
    return Forecast(
        row, rate, information, weight, posterior(known, rate[changed], information[changed]), exact_row
    )


def judged_of(
    judge: Judge,
    pages: ShardPages,
    split_hosts: Collection[int] = (),
    cells: CellSums | None = None,
    corrections: Callable[[Mapping[int, str]], Corrections] | None = None,
) -> Judged:
    """What a shard's judge found, with the names of hosts; `split_hosts` are hashes.

    `corrections` is `policies.judging.recalibration.CellWatch.corrections`.
    """
    start = pages.host_start[:-1]
    apart = np.flatnonzero(np.isin(pages.host_hash[start], np.array(sorted(split_hosts), np.uint64)))

    def name(code: int) -> str:
        return str(pages.host[int(start[code])].as_py())

    furthest = tuple(_named(name(c), judge.host(c)) for c in judge.furthest(MAX_NAMED_HOSTS, apart))
    names = {c: name(c) for c in apart.tolist()}
    split = {host: judge.host(c) for c, host in names.items()}
    corrected = corrections(names) if corrections else Corrections()
    return Judged(judge.sums(apart), furthest, split, cells or CellSums.empty(), corrected)


def tracked(judged: Judged, previous: dict[str, Any], as_of_us: int) -> Track:
    """How forecasts have done up to tonight; `previous` is the previous manifest, empty if there is none."""
    then = previous.get("options", {}).get("as_of_us", as_of_us)
    return Track.from_json(previous.get("recalibration", {})).add((as_of_us - then) / DAY_US, judged.cells)


def account(
    judged: Judged, counters: dict[str, int], previous: dict[str, Any], as_of_us: int
) -> dict[str, Any]:
    """What the manifest says of the night before.

    Parameters
    ----------
    judged : Judged
    counters : dict
        With the dispositions of the log's rows, see `policies.history.history`.
    previous : dict
        The previous manifest; empty where there is none.
    as_of_us : int
        Tonight, UTC microseconds.
    """
    judged = judged.whole()
    sums = judged.sums
    tally = sums.tally()
    blind = from_priors(previous)
    nights = _last_week(tally, previous, as_of_us, blind)
    week, days = Tally(), 0.0
    for night in (n for n in nights if not n.get("from_priors")):
        week = week.merge(Tally(**{name: night[name] for name in asdict(week)}))
        days += night["days"]
    of_week = ONE_WEEK if days >= WEEK_DAYS else ONE_NIGHT
    base = tally.found / tally.crawls if tally.crawls else 0.0
    brier = sums.brier * PROBABILITY_UNIT / tally.crawls if tally.crawls else None
    of_base_rate = base * (1.0 - base) if tally.crawls else None
    return {
        "crawls": tally.crawls,
        "from_priors": blind,
        "not_judged": {
            "not_scheduled": sums.not_scheduled,
            **{name: counters.get(name, 0) for name in _NOT_COMPARABLE},
        },
        "changes_found": tally.found,
        "changes_predicted": tally.predicted,
        **_calibration(tally),
        "by_rates": judged.cells.account(),
        "corrected": _corrected(judged.corrections, previous, as_of_us),
        "brier": brier,
        "brier_of_base_rate": of_base_rate,
        "brier_skill": 1.0 - brier / of_base_rate if brier is not None and of_base_rate else None,
        "reliability": [
            {
                "from": i / BINS,
                "to": (i + 1) / BINS,
                "crawls": sums.bin_crawls[i],
                "predicted": sums.bin_predicted[i] * PROBABILITY_UNIT,
                "found": sums.bin_found[i],
            }
            for i in range(BINS)
        ],
        "freshness": {
            **_freshness(sums.requests),
            "promised": previous.get("expected_freshness_crawled"),
            "promised_all_pages": previous.get("expected_freshness"),
        },
        "freshness_of_time": _freshness(sums.time),
        "hosts": [
            dict(zip(("host", "crawls", "changes_predicted", "changes_found"), h, strict=True))
            for h in judged.furthest
        ],
        "week": {
            "days": days,
            "crawls": week.crawls,
            "changes_found": week.found,
            "changes_predicted": week.predicted,
            **_calibration(week),
        },
        "bounds": {"night": asdict(ONE_NIGHT), "week": asdict(of_week)},
        "drift": {
            "night": not blind and drifted(tally, ONE_NIGHT),
            "week": drifted(week, of_week),
        },
        "nights": nights,
    }


def from_priors(previous: dict[str, Any]) -> bool:
    """Whether a night knew no interval between two crawls of most pages that it scheduled once more.

    What such a night predicted came from the priors, so that no page can have drifted from it.
    """
    counters = previous.get("counters", {})
    seen = counters.get("slots_with_evidence")
    again = counters.get("slots_used", 0) - counters.get("slots_new", 0)
    return seen is not None and 2 * seen < again


def _last_week(tally: Tally, previous: dict[str, Any], as_of_us: int, blind: bool) -> list[dict[str, Any]]:
    """Tonight's tally after those of earlier nights, as many as make a week."""
    then = previous.get("options", {}).get("as_of_us", as_of_us)
    if then >= as_of_us:
        return []
    nights = [
        {"as_of_us": as_of_us, "days": (as_of_us - then) / DAY_US, "from_priors": blind, **asdict(tally)}
    ]
    days = nights[0]["days"]
    for night in reversed(previous.get("judged", {}).get("nights", [])):
        if days >= WEEK_DAYS:
            break
        nights.insert(0, night)
        days += night["days"]
    return nights


def _corrected(now: Corrections, previous: dict[str, Any], as_of_us: int) -> dict[str, Any]:
    """What factors did to forecasts: tonight, and so far, older nights counting less."""
    then = previous.get("options", {}).get("as_of_us", as_of_us)
    kept = 0.5 ** (max(as_of_us - then, 0) / DAY_US / HALF_LIFE_DAYS)
    before = previous.get("judged", {}).get("corrected", {}).get("so_far", {})
    tonight = {
        "crawls": now.crawls,
        "log_loss_by_rates": now.by_rates * GAIN_UNIT,
        "log_loss": now.corrected * GAIN_UNIT,
    }
    return {
        **tonight,
        **dict(zip(("hosts", "hosts_by_cells", "hosts_by_own"), now.hosts(), strict=True)),
        "so_far": {name: kept * before.get(name, 0.0) + value for name, value in tonight.items()},
    }


def _calibration(tally: Tally) -> dict[str, Any]:
    found = calibrate(tally)
    if found is None:
        names = ("ratio", "ratio_95", "z", "overdispersion", "rate_factor")
        return dict.fromkeys(names)
    reach = HALF_95 * found.ratio_stderr
    return {
        "ratio": found.ratio,
        "ratio_95": [max(found.ratio - reach, 0.0), found.ratio + reach],
        "z": found.z,
        "overdispersion": found.overdispersion,
        "rate_factor": found.rate_factor,
    }


def _freshness(sums: FreshSums) -> dict[str, float | None]:
    return {
        "predicted": sums.share("predicted"),
        "realised": sums.share("found"),
        "at_least": sums.share("least"),
        "at_most": sums.share("most"),
    }


def drift_warnings(judged: dict[str, Any]) -> list[str]:
    """A warning if what was found is beyond a bound: what, since when, and what to look at."""
    drift = judged["drift"]
    if not drift["night"] and not drift["week"]:
        return []
    # A drift that lasts is the more serious; one night's is the more urgent while the week looks well.
    bad, when = (
        (judged["week"], f"in the last {judged['week']['days']:g} days")
        if drift["week"] and not (drift["night"] and judged["week"]["days"] < WEEK_DAYS)
        else (judged, "tonight")
    )
    found, predicted = bad["changes_found"], bad["changes_predicted"]
    more = found > predicted
    factor = f"{'at least ' if bad['rate_factor'] >= max(FACTORS) else ''}{bad['rate_factor']:.2f}"
    hosts = [h for h in judged["hosts"] if (h["changes_found"] > h["changes_predicted"]) == more]
    where = f", most on {hosts[0]['host']}" if hosts else ""
    # Where pages appear and age, as news do, this is how they are, and nobody's fault: so that comes first. A
    # fault would make most changes, or leave few: of less than that nobody is suspected.
    far = not 1.0 / _FAULT < bad["rate_factor"] < _FAULT
    if more:
        usual, option = "new pages change more at first", "lower --half_life_changes"
        fault = "see whether digests take in what differs at every visit"
    else:
        usual, option = "new pages change less as they age", "set --half_life_days"
        fault = "see whether the crawler is blocked or served from a cache"
    look = f"{usual}; if there are few, {f'{fault}; else ' if far else ''}{option}"
    return [
        f"drift: {counted(found, 'change')} found {when}, {predicted:,.0f} predicted: pages change {factor} "
        f"times as often as thought{where}. Look at it: {look}"
    ]
