"""What `recrawl diff` says: one document with all numbers, and the text that a person reads."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from policies.sequencing.sequencing import REASONS
from transforms.files.inputs import split_patterns
from transforms.finished.comparing import CAUSES, LIMITS, Comparison, HostRow, PageRow
from transforms.finished.nights import Night
from transforms.finished.ratios import Ratios

_NOTHING = 1e-6  # crawls a day
QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)
# These say where a night's data lies and when it was, not how it is decided.
_PLACES = {"as_of", "as_of_us", "state", "output_format", "num_shards"}
_INPUTS = {"observations", "requests", "pages", "hosts", "signals", "sitemaps"}
_LABELS = {
    "change_observed": ("change rate, observed", "new evidence of the page itself"),
    "change_learned": ("change rate, learned", "no new crawl: signals, the prior, or age"),
    "signals": ("signals", "how far those of the page are trusted"),
    "weight": ("{weight}", "of the page itself"),
    "multiplier": ("multiplier", ""),
    "host_limit": ("host limit", "of the host, and what its other pages want"),
    "page_limit": ("floor or cap", "of the page itself"),
    "aim": ("objective or weight", "weight, multiplier and host limit as one"),
    "volatile": ("volatile", "new at every visit: a crawl in 30 days"),
    "clock": ("clock", "hours, days or ages at which the page changes more or less"),
    "silent": ("silent", "tried in vain: waits longer each time"),
    "new_page": ("new pages", "in the second night only"),
    "lost_page": ("lost pages", "in the first night only"),
}


def _pair(before: Any, after: Any) -> list[Any]:
    return [_plain(before), _plain(after)]


def _plain(value: Any) -> Any:
    if hasattr(value, "isoformat"):
        return value.isoformat().replace("+00:00", "Z")
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


def _night(night: Night) -> dict[str, Any]:
    names = (
        "status",
        "budget_per_day",
        "allocated_per_day",
        "unspent_reason",
        "multiplier",
        "expected_freshness",
        "slots",
    )
    found = {name: _plain(night.manifest.get(name)) for name in names}
    return {
        "folder": night.folder,
        "as_of": night.options.get("as_of"),
        "weight_by": night.weight_by,
        **found,
    }


def _numbers(value: Any, prefix: str = "") -> dict[str, Any]:
    """A nested document as names with dots."""
    if not isinstance(value, dict):
        return {prefix: value}
    found: dict[str, Any] = {}
    for name, inner in value.items():
        found |= _numbers(inner, f"{prefix}.{name}" if prefix else str(name))
    return found


def _differing(before: dict[str, Any], after: dict[str, Any]) -> dict[str, list[Any]]:
    one, two = _numbers(before), _numbers(after)
    names = dict.fromkeys([*one, *two])
    return {n: _pair(one.get(n), two.get(n)) for n in names if one.get(n) != two.get(n)}


def _causes(
    net: Sequence[float], up: Sequence[float], down: Sequence[float], moved: float, everything: bool = False
) -> list[dict[str, Any]]:
    """Causes, the first one first.

    Where rates moved mostly one way (`moved`: crawls a day that moved, half the sum over pages), a cause
    counts by what it did in all; else by its ups and downs. Then, over all pages, the multiplier counts for
    no more than the budget moved: beyond that it makes up for the other causes.
    """
    rows = [
        {"cause": name, "net_per_day": float(n), "up_per_day": float(u), "down_per_day": float(d)}
        for name, n, u, d in zip(CAUSES, net, up, down, strict=True)
    ]
    total = abs(sum(net))

    def size(row: dict[str, Any]) -> float:
        if total > moved:
            return abs(row["net_per_day"])
        found: float = row["up_per_day"] - row["down_per_day"]
        return min(found, total) if everything and row["cause"] == "multiplier" else found

    return sorted(rows, key=lambda row: -size(row))


def _single(parts: Sequence[float]) -> list[dict[str, Any]]:
    up, down = np.maximum(parts, 0.0).tolist(), np.minimum(parts, 0.0).tolist()
    return _causes(parts, up, down, abs(sum(parts)))


def _ratios(ratios: Ratios) -> dict[str, Any]:
    quantiles = {f"p{round(q * 100):02d}": _plain(ratios.quantile(q)) for q in QUANTILES}
    counts = {n: getattr(ratios, n) for n in ("doubled", "halved", "from_zero", "to_zero")}
    return quantiles | counts


def _horizon_days(night: Night) -> float:
    return float(night.options.get("horizon_hours", 24.0)) / 24.0


def _host(row: HostRow, days: tuple[float, float]) -> dict[str, Any]:
    slots = [sum(s) for s in row.slots]
    # Slots follow rates but for what is due: pages overdue, new ones, and the rounding to whole slots.
    beyond = [n / d - rate for n, d, rate in zip(slots, days, row.rate, strict=True)]
    return {
        "host": row.host,
        "pages": list(row.pages),
        "crawl_rate_per_day": list(row.rate),
        "slots": slots,
        "slots_by_reason": {
            name: [row.slots[0][i], row.slots[1][i]] for i, name in enumerate(REASONS) if name != "empty"
        },
        "price": [_plain(p) for p in row.price],
        "at_limit": [p > 0.0 for p in row.price],
        "causes_per_day": dict(zip(CAUSES, row.parts, strict=True)),
        "deadlines_per_day": beyond[1] - beyond[0],
    }


def _page(row: PageRow) -> dict[str, Any]:
    known = row.before or row.after or {}
    names = [n for n in dict.fromkeys([*(row.before or {}), *(row.after or {})]) if n not in ("url", "host")]
    return {
        "url": row.url,
        "host": known["host"],
        "moved_per_day": row.moved,
        "columns": {n: _pair((row.before or {}).get(n), (row.after or {}).get(n)) for n in names},
        "causes_per_day": dict(zip(CAUSES, row.parts, strict=True)),
    }


def _head(before: Night, after: Night, found: Comparison) -> dict[str, Any]:
    return {
        "before": _night(before),
        "after": _night(after),
        "options": {
            n: pair
            for n, pair in _differing(before.options, after.options).items()
            if n not in _PLACES | _INPUTS
        },
        "inputs": {n: p for n, p in _differing(before.options, after.options).items() if n in _INPUTS},
        "counters": _differing(before.manifest["counters"], after.manifest["counters"]),
        "prior": _differing(before.manifest.get("prior") or {}, after.manifest.get("prior") or {}),
        "missing_columns": sorted(found.absent),
    }


def report(before: Night, after: Night, found: Comparison, host: str | None = None) -> dict[str, Any]:
    """All numbers of a comparison; of one host if given."""
    days = _horizon_days(before), _horizon_days(after)
    net = found.net
    at = CAUSES.index("multiplier")
    total = float(found.rate[1] - found.rate[0])
    limits = [
        {"before": LIMITS[i], "after": LIMITS[j], "pages": int(found.limits[i, j])}
        for i in range(len(LIMITS))
        for j in range(len(LIMITS))
        if i != j and found.limits[i, j]
    ]
    return _head(before, after, found) | {
        "host": host,
        "pages": {"same": found.same, "new": found.new, "lost": found.lost},
        "hosts": dict(zip(("same", "new", "lost"), found.hosts.tolist(), strict=True))
        | {
            "at_limit": [int(found.at_limit[1].sum()), int(found.at_limit[:, 1].sum())],
            "newly_at_limit": int(found.at_limit[0, 1]),
            "no_longer_at_limit": int(found.at_limit[1, 0]),
        },
        "crawl_rate_per_day": found.rate.tolist(),
        "weight": found.weight.tolist(),
        "moved_per_day": found.moved,
        "causes": _causes(
            net.tolist(), found.up.tolist(), found.down.tolist(), found.moved, everything=host is None
        ),
        "multiplier_pays_for": {"budget": total, "other_causes": float(net[at]) - total},
        "slots_by_reason": {n: found.slots[:, i].tolist() for i, n in enumerate(REASONS) if n != "empty"},
        "ratios": {name: _ratios(r) for name, r in found.ratios.items()},
        "limits": sorted(limits, key=lambda row: -int(row["pages"])),
        "hosts_by_slots": [_host(row, days) for row in found.by_slots],
        "hosts_newly_at_limit": [_host(row, days) for row in found.to_limit],
        "hosts_no_longer_at_limit": [_host(row, days) for row in found.off_limit],
        "pages_by_rate": [_page(row) for row in found.by_rate],
    }


def page(before: Night, after: Night, found: Comparison, row: PageRow) -> dict[str, Any]:
    """All numbers about one page, and its host's."""
    days = _horizon_days(before), _horizon_days(after)
    return _head(before, after, found) | {
        "page": _page(row),
        "causes": _single(row.parts),
        "host_of_page": _host(found.by_slots[0], days),
    }


def number(value: Any) -> str:
    """A number as short as it stays plain."""
    if value is None:
        return "none"
    if isinstance(value, bool) or not isinstance(value, int | float):
        return str(value)
    if value == int(value) and abs(value) < 1e15:
        return f"{int(value):,}"
    return f"{value:,.1f}".removesuffix(".0") if abs(value) >= 100 else f"{value:.4g}"


def _signed(value: float) -> str:
    size = abs(value)
    text = f"{size:,.0f}" if size >= 1000 else f"{size:.1f}" if size >= 10 else f"{size:.2g}"
    return f"{'-' if value < 0 else '+'}{text}" if size >= _NOTHING else "0"


def _arrow(pair: Sequence[Any]) -> str:
    return f"{number(pair[0])} -> {number(pair[1])}"


def _patterns(patterns: str | None) -> str:
    """A list of files as a person reads it: `recrawl night` names them one by one."""
    listed = split_patterns(patterns or "")
    if not listed:
        return "none"
    return listed[0] + (f" and {len(listed) - 1} more" if len(listed) > 1 else "")


def label(cause: str, weight: str) -> str:
    """A cause in words."""
    return _LABELS[cause][0].format(weight=weight)


def _multiplier_note(document: dict[str, Any]) -> str:
    one, two = document["before"], document["after"]
    moved = f"{number(one['multiplier'])} -> {number(two['multiplier'])}"
    pays = document.get("multiplier_pays_for")
    if document.get("host") or pays is None:
        return f"{moved}: the budget, and what all other pages want"
    budget, other = pays["budget"], pays["other_causes"]
    if abs(budget) > 1e-6 * one["allocated_per_day"]:
        allocated = number(one["allocated_per_day"]), number(two["allocated_per_day"])
        return f"{moved}: budget {allocated[0]} -> {allocated[1]}, other causes {_signed(other)}"
    return f"{moved}: makes up for the other causes"


def why(causes: dict[str, float], weight: str, extra: dict[str, float] | None = None) -> str:
    """The largest causes of a host's or page's change, at least a tenth of it."""
    named = {label(n, weight): v for n, v in causes.items()} | (extra or {})
    total = sum(abs(v) for v in named.values())
    large = sorted(((-abs(v), n) for n, v in named.items() if abs(v) > 0.1 * total))
    return ", ".join(f"{n} {_signed(named[n])}" for _, n in large[:2]) or "nothing"


class _Text:
    def __init__(self) -> None:
        self.lines: list[str] = []

    def row(self, name: str, text: str) -> None:
        self.lines.append(f"  {name:<20}{text}")

    def head(self, *texts: str) -> None:
        self.lines += ["", *texts]

    def differing(self, name: str, pairs: dict[str, list[Any]], most: int) -> None:
        """Some names and what they were and are, one a line."""
        for i, (key, pair) in enumerate(list(pairs.items())[:most]):
            self.row(name if i == 0 else "", f"{key} {_arrow(pair)}")
        if len(pairs) > most:
            self.row("", f"and {len(pairs) - most} more: --json has all")


def text(document: dict[str, Any], top: int) -> str:
    """A screen or two for a person."""
    out = _Text()
    one, two = document["before"], document["after"]
    out.lines.append(f"recrawl diff, crawl rates of {one['as_of']} -> {two['as_of']}")
    out.row("folders", f"{one['folder']} -> {two['folder']}")
    if "page" in document:
        _page_text(out, document)
    else:
        _night_text(out, document, top)
    for missing in document["missing_columns"]:
        out.lines.append(f"NOTE: no column {missing}; what needs it is left out or counted elsewhere")
    return "\n".join(out.lines)


def main_cause(document: dict[str, Any]) -> str:
    """The first cause of what moved, in words."""
    first = document["causes"][0]
    if first["up_per_day"] - first["down_per_day"] < _NOTHING:
        return "none: no crawl rate moved"
    weight = document["after"]["weight_by"]
    note = _LABELS[first["cause"]][1]
    note = _multiplier_note(document) if first["cause"] == "multiplier" else note
    return f"{label(first['cause'], weight)}: {note}"


def _night_text(out: _Text, document: dict[str, Any], top: int) -> None:
    one, two, weight = document["before"], document["after"], document["after"]["weight_by"]
    rate, pages, hosts = document["crawl_rate_per_day"], document["pages"], document["hosts"]
    if document["host"]:
        out.row("host", document["host"])
    share = f", {document['moved_per_day'] / rate[0]:.1%} of the first" if rate[0] else ""
    out.row("crawls a day", f"{_arrow(rate)}; {number(document['moved_per_day'])} moved{share}")
    out.row("main cause", main_cause(document))
    out.lines.append("")
    out.differing("options", document["options"], 12)
    if not document["options"]:
        out.row("options", "the same")
    inputs = {n: [_patterns(p) for p in pair] for n, pair in document["inputs"].items()}
    out.differing("inputs", inputs, 5)
    out.row("pages", ", ".join(f"{number(n)} {name}" for name, n in pages.items()))
    if not document["host"]:
        changed = {
            n: p
            for n, p in document["counters"].items()
            if n.removesuffix("_accepted") in _INPUTS and n.endswith("_accepted")
        }
        out.differing("rows read", {n.removesuffix("_accepted"): p for n, p in changed.items()}, 6)
        out.row("hosts", ", ".join(f"{number(hosts[name])} {name}" for name in ("same", "new", "lost")))
        out.row("budget", f"{_arrow([one['budget_per_day'], two['budget_per_day']])} crawls a day; "
                f"allocated {_arrow([one['allocated_per_day'], two['allocated_per_day']])}")  # fmt: skip
    out.row("multiplier", _multiplier_text(document))
    if not document["host"]:
        out.row(
            "expected freshness",
            _arrow([_short(one["expected_freshness"]), _short(two["expected_freshness"])]),
        )
        out.differing("prior", document["prior"], 4)
    out.row("hosts at limit", f"{_arrow(hosts['at_limit'])}; {number(hosts['newly_at_limit'])} newly, "
            f"{number(hosts['no_longer_at_limit'])} no longer")  # fmt: skip
    slots = document["slots_by_reason"]
    said = [f"{name} {_arrow(pair)}" for name, pair in slots.items() if any(pair)]
    out.row("slots", ", ".join(said) or "none")
    _causes_text(out, document)
    out.head(
        f"  {'page by page, x':<22}"
        + "".join(f"{f'{q:.0%}':>9}" for q in QUANTILES)
        + f"{'over 2x':>11}{'under 1/2':>11}"
    )
    for name, ratios in document["ratios"].items():
        if name == "weight" and one["weight_by"] != weight:
            continue  # other units
        quantiles = [v for n, v in ratios.items() if n[0] == "p"]
        numbers = "".join(f"{'-' if v is None else f'{v:.3g}':>9}" for v in quantiles)
        shown = weight if name == "weight" else name.replace("_", " ")
        out.lines.append(f"  {shown:<22}{numbers}{ratios['doubled']:>11,}{ratios['halved']:>11,}")
    if document["limits"]:
        moves = [f"{row['before']} -> {row['after']} {row['pages']:,}" for row in document["limits"]]
        out.head(f"  what bounds pages     {', '.join(moves[:4])}")
    if not document["host"]:
        _hosts_text(out, "hosts by slots", document["hosts_by_slots"][:top], weight)
        _hosts_text(out, "newly at limit", document["hosts_newly_at_limit"][:top], weight)
        _hosts_text(out, "no longer at limit", document["hosts_no_longer_at_limit"][:top], weight)
    elif document["hosts_by_slots"]:
        _one_host_text(out, document["hosts_by_slots"][0])
    if document["pages_by_rate"]:
        out.head("  pages by crawl rate")
        for row in document["pages_by_rate"][:top]:
            pair = [0.0 if v is None else v for v in row["columns"]["crawl_rate_per_day"]]
            out.row(_arrow(pair), row["url"])
            out.row("", f"  {why(row['causes_per_day'], weight)}")


def _short(value: Any) -> Any:
    return None if value is None else float(f"{value:.4g}")


def _multiplier_text(document: dict[str, Any]) -> str:
    one, two = document["before"]["multiplier"], document["after"]["multiplier"]
    moved = f"{number(one)} -> {number(two)} {document['after']['weight_by']} a day for one more crawl a day"
    if document["before"]["weight_by"] != document["after"]["weight_by"]:
        return f"{moved}; the first counts {document['before']['weight_by']}"
    return f"{moved}: x{two / one:.3g}" if one and two else moved


def _causes_text(out: _Text, document: dict[str, Any]) -> None:
    weight = document["after"]["weight_by"]
    out.head(f"  {'why, crawls a day':<22}{'up':>9}{'down':>9}{'net':>9}")
    for row in document["causes"]:
        if row["up_per_day"] - row["down_per_day"] < _NOTHING:
            continue
        note = _LABELS[row["cause"]][1]
        numbers = "".join(f"{_signed(row[n]):>9}" for n in ("up_per_day", "down_per_day", "net_per_day"))
        note = _multiplier_note(document) if row["cause"] == "multiplier" else note
        out.lines.append(f"  {label(row['cause'], weight):<22}{numbers}  {note}")
    total = sum(row["net_per_day"] for row in document["causes"])
    out.lines.append(f"  {'in all':<22}{'':>18}{_signed(total):>9}")


def _hosts_text(out: _Text, title: str, rows: list[dict[str, Any]], weight: str) -> None:
    if not rows:
        return
    width = max(20, *(len(row["host"]) for row in rows))
    out.head(f"  {title:<{width}}{'slots':>17}{'crawls a day':>21}  why")
    for row in rows:
        slots = _arrow(row["slots"])
        rate = _arrow([round(v, 1) for v in row["crawl_rate_per_day"]])
        reason = why(row["causes_per_day"], weight, {"deadlines": row["deadlines_per_day"]})
        out.lines.append(f"  {row['host']:<{width}}{slots:>17}{rate:>21}  {reason}")


def _one_host_text(out: _Text, row: dict[str, Any]) -> None:
    out.head(f"  {'this host':<22}pages {_arrow(row['pages'])}, slots {_arrow(row['slots'])}")
    reasons = ", ".join(f"{name} {_arrow(pair)}" for name, pair in row["slots_by_reason"].items())
    out.row("", f"  {reasons}; {_signed(row['deadlines_per_day'])} by deadlines")
    if any(row["at_limit"]):
        rates = [
            f"{number(round(r, 1))} crawls a day" if held else "not reached"
            for r, held in zip(row["crawl_rate_per_day"], row["at_limit"], strict=True)
        ]
        out.row("", f"  limit {rates[0]} -> {rates[1]}")
        worth = [price or "the multiplier" for price in row["price"]]
        out.row("", f"  one more crawl a day here is worth {_arrow(worth)}")


_FLAGS = {
    "volatile": "yes, new at every visit",
    "soft_404": "yes, like many of its host",
    "alternating": "yes, back and forth between contents",
}


def _page_text(out: _Text, document: dict[str, Any]) -> None:
    found, one, two = document["page"], document["before"], document["after"]
    out.row("page", found["url"])
    out.row("main cause", main_cause(document))
    out.lines.append("")
    for name, pair in found["columns"].items():
        rarely = name in ("host_price", *_FLAGS) or name.startswith("signal")
        if not rarely or any(pair):
            shown = [_short(v) if isinstance(v, float) else v for v in pair]
            if name in _FLAGS:
                shown = [_FLAGS[name] if v else "no" if v is False else None for v in pair]
            out.lines.append(f"  {name.replace('_', ' '):<28}{_arrow(shown)}")
    out.lines.append(f"  {'multiplier':<28}{_arrow([one['multiplier'], two['multiplier']])}")
    out.differing("options", document["options"], 12)
    _causes_text(out, document)
    _one_host_text(out, document["host_of_page"])
