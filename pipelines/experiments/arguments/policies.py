"""What the help of experiments says of their policies, a line each; nothing of what they are made of."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import product

from pipelines.experiments.arguments.shared import EXIT_HELP
from policies.rules.crawler_rules import RULES

_RULE = "a crawler's rule, intervals scaled to the budget"
_ESTIMATED = ("change-weighted", "lambdacrawl", "lambdacrawl-discrete", "harmonic")
_BY = {"metadata": "metadata alone", "both": "history and metadata"}
REPLAYED = {
    "recrawl": "the nightly job with its defaults",
    "recrawl+groups": "with --group_columns: all metadata columns",
    "recrawl+signals": "with change signals",
    "recrawl+equal": "with --weight_by=equal: it is not told what pages weigh, by which it is scored",
    "recrawl+greedy": "with --sequencer=greedy: the page whose crawl is worth most",
    "uniform": "all pages alike",
    "change-weighted": "in proportion to learned change rates",
    "click-weighted": "in proportion to weights",
    "impression-weighted": "in proportion to impressions",
    "lambdacrawl": "LambdaCrawl: rates for crawls at random instants",
    "lambdacrawl-discrete": "LambdaCrawl in steps of a day",
    "harmonic": "optimal for the harmonic cost, at random instants",
    **{f"{name}/{how}": f"{name}, rates by {what}" for name, (how, what) in product(_ESTIMATED, _BY.items())},
    "periodic-history": "periodic optimum of 30-day averages of changes found",
    **{f"kab{k}": f"bandit over {k} rate policies, steps of two hours" for k in (2, 3, 4, 5)},
    **dict.fromkeys(RULES, _RULE),
    "sitemap": "what sitemaps call modified, time between runs scaled to the budget",
    "age-aware": "reference: 1 h, 6 h, a day, a week after a page appears, then weekly; scaled to the budget",
    "hour-aware": "reference: all pages alike, at the hour that is best for their host as the truth has it",
    "uncensored": "reference: told every change up to its own last crawl",
    "known-rates": "reference: told the change rates of the scored nights",
}
TOLD = {
    "GREEDY": "the page of the highest crawl value, signals left out",
    "GREEDY-CIS": "the same with signals that are taken for sure",
    "GREEDY-NCIS": "the same with signals that may be wrong",
    "G-NCIS-APPROX-j": "the same by j terms of the value, e.g. G-NCIS-APPROX-2",
    "GREEDY-CIS+": "signals count where precision is above 0.7 and recall above 0.6",
    "GREEDY-NCIS-D": "GREEDY-NCIS that does not count signals right after a crawl, see --discard",
    "LDS": "slots at even distances, at the rates of the continuous optimum without signals",
    "BASELINE": "accuracy of that optimum, exact; no crawls",
}
DISCOVERING = {
    "recrawl": "recrawl's own: what not refreshing now costs, learned",
    "oracle": "knows what sources show; greedy, so no upper bound",
    "waiting": "new links an hour and lifetimes; what cannot wait first",
    "elapsed": "new links an hour x hours since, as far as they stay",
    "elapsed-sampled": "the same, rates drawn",
    "thompson": "Schulam and Muslea 2023",
    "thompson-skip-first": "the same, nothing learned from first refreshes",
    "pham": "Pham et al. 2018: ridge regression and UCB1",
    "pham-skip-first": "the same, nothing learned from first refreshes",
    "round-robin": "what was refreshed longest ago",
    "uniform": "at random",
}


def _listed(meanings: Mapping[str, str]) -> list[str]:
    """Names and what they mean in two columns."""
    width = max(24, *(len(name) + 2 for name in meanings))
    return [f"  {name.ljust(width)}{what}" for name, what in meanings.items()]


def epilog(command: str) -> str:
    """What the help of a command ends with: all policies that it takes, and its exit codes."""
    if command == "simulate":
        lines = ["policies that are told the true rates:", *_listed(TOLD), ""]
        lines += ["policies that see only their own crawls, and references:", *_listed(REPLAYED)]
    else:
        lines = ["policies:", *_listed(DISCOVERING if command == "backtest-discovery" else REPLAYED)]
    return "\n".join([*lines, "", EXIT_HELP])
