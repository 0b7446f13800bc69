"""What the manifest of a night must be like for those who tell of it: kinds of values, in one place.

Older nights have fewer keys, never others. What is not listed is not told, or looked at before it is.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator
from datetime import date, datetime
from typing import Any, Final, NamedTuple

from policies.objectives import objectives

_FILE = re.compile(r"(?:\w+/)+shard-\d+-of-\d+\.\w+")
_HASH = re.compile(r"[0-9a-f]{1,16}")


class Kind(NamedTuple):
    """A value: what it is in words, and whether one is such."""

    said: str
    fits: Callable[[Any], bool]


class Many(NamedTuple):
    """A dictionary with any keys that fit, and values of one shape."""

    value: Any
    key: re.Pattern[str] = re.compile(r".*", re.DOTALL)


class Maybe(NamedTuple):
    """Null, or a value of this shape."""

    value: Any


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _between(low: float, high: float) -> Callable[[Any], bool]:
    return lambda value: _is_number(value) and low <= value <= high


def _is_time(read: Callable[[str], object]) -> Callable[[Any], bool]:
    def fits(value: Any) -> bool:
        try:
            read(value)
        except (ValueError, TypeError):
            return False
        return True

    return fits


def _is_whole(value: Any) -> bool:
    return _is_number(value) and value == int(value) and value >= 0


def one_of(*names: str) -> Kind:
    """One of some texts."""
    return Kind(f"one of {', '.join(names)}", lambda value: isinstance(value, str) and value in names)


NUMBER = Kind("a number", _is_number)
AMOUNT = Kind("a number of 0 or more", _between(0.0, 1e300))
COUNT = Kind("a whole number of 0 or more", _is_whole)
SHARE = Kind("a number from 0 to 1", _between(0.0, 1.0))
SHARDS = Kind("a whole number from 1 on", lambda value: _is_whole(value) and value >= 1)
INSTANT_US = Kind("microseconds since 1970, until 2100", _between(0, 4_102_444_800_000_000))
HOURS = Kind("a number of hours, up to 8784", _between(1e-9, 8784.0))
RANGE = Kind(
    "two numbers", lambda value: isinstance(value, list) and len(value) == 2 and all(map(_is_number, value))
)
TEXT = Kind("a text", lambda value: isinstance(value, str))
FLAG = Kind("true or false", lambda value: isinstance(value, bool))
INSTANT = Kind("an instant in ISO 8601", _is_time(datetime.fromisoformat))
DAY = Kind("a day such as 2026-06-15", _is_time(date.fromisoformat))
FILE = Kind(
    "a path such as pages/shard-00000-of-00001.parquet",
    lambda value: isinstance(value, str) and _FILE.fullmatch(value) is not None,
)
ANY = Kind("anything", lambda _: True)

_FRESH = {
    "predicted": Maybe(SHARE),
    "realised": Maybe(SHARE),
    "at_least?": Maybe(SHARE),
    "at_most?": Maybe(SHARE),
}
_SOURCE = {
    "source": TEXT,
    "hosts": AMOUNT,
    "hosts_silent": AMOUNT,
    "hosts_not_learned?": AMOUNT,
    "hosts_flooding?": AMOUNT,
    "learned?": FLAG,
    "pages": AMOUNT,
    "signal_rate_per_day": AMOUNT,
    "signal_precision": Maybe(SHARE),
    "signal_recall?": Maybe(SHARE),
    "signal_precision_of_others?": Maybe(SHARE),
    "most_false?": [
        {
            "host": TEXT,
            "learned": FLAG,
            "signal_precision": Maybe(SHARE),
            "signal_rate_per_day": AMOUNT,
            "changes_per_day?": AMOUNT,
            "floods?": FLAG,
        }
    ],
}
_DISCOVERY = {
    "share_of_slots": SHARE,
    "new_links_per_day": AMOUNT,
    "counters": Many(AMOUNT),
    "price": AMOUNT,
    "worth_of_last_refresh": Maybe(AMOUNT),
    "worth_of_last_crawl": Maybe(AMOUNT),
    "new_page_worth": Maybe(AMOUNT),
    "options": {"why": TEXT},
}
MANIFEST: Final[dict[str, Any]] = {
    "recrawl_version?": TEXT,
    "status": TEXT,
    "status_reason?": TEXT,
    "multiplier": AMOUNT,
    "budget_per_day": AMOUNT,
    "allocated_per_day": AMOUNT,
    "unspent_per_day": AMOUNT,
    "unspent_reason": TEXT,
    "slots?": COUNT,
    "expected_freshness": Maybe(SHARE),
    "expected_freshness_uniform": Maybe(SHARE),
    "expected_freshness_by_hours?": Maybe(NUMBER),
    "freshness_range?": Maybe({"level": SHARE, "low": SHARE, "high": SHARE}),
    "floors?": {"pages": COUNT, "crawls_per_day": NUMBER, "freshness_at_most": Maybe(NUMBER)},
    "starved?": {"pages": COUNT, "weight_share": Maybe(SHARE), "by_limit?": Many(COUNT)},
    "weight_by": one_of("clicks", "impressions", "importance", "equal"),
    "weights_alike?": FLAG,
    "search": {"status": TEXT, "rounds": COUNT},
    "prior?": Maybe(Many(ANY)),
    "signals?": Maybe(
        {
            "sources": [_SOURCE],
            "expected_freshness": Maybe(SHARE),
            "expected_freshness_without": Maybe(SHARE),
            "crawls_saved_per_day_at_least": Maybe(NUMBER),
            "hosts?": [{"host": TEXT, "source": TEXT, "pages": AMOUNT, "signals": AMOUNT, "silent": FLAG}],
        }
    ),
    "silence?": Maybe(
        {
            "scheduled": COUNT,
            "in_no_log": COUNT,
            "pages_silent": COUNT,
            "hosts?": [{"host": TEXT, "pages": COUNT}],
        }
    ),
    "judged?": Maybe(
        {
            "crawls": COUNT,
            "nights": [Many(ANY)],
            "changes_found": COUNT,
            "changes_predicted": AMOUNT,
            "ratio": Maybe(AMOUNT),
            "ratio_95": Maybe(RANGE),
            "from_priors?": FLAG,
            "reliability?": [
                {"from": SHARE, "to": SHARE, "crawls": COUNT, "predicted": AMOUNT, "found": COUNT}
            ],
            "freshness": _FRESH,
            "freshness_of_time": _FRESH,
            "hosts?": [{"host": TEXT, "crawls": COUNT, "changes_predicted": AMOUNT, "changes_found": COUNT}],
            "drift": {"night": FLAG, "week": FLAG},
        }
    ),
    "hosts_at_limit": [{"host": TEXT, "multiplier": NUMBER}],
    "counters": Many(AMOUNT),
    "discovery?": Maybe(_DISCOVERY),
    "on_request?": Maybe(
        {"share": SHARE, "why": TEXT, "budget_per_day": AMOUNT, "price_factor": AMOUNT}
    ),
    "unknown_pages?": [TEXT],
    "newest_log_day?": Maybe(DAY),
    "split_hosts?": Many(SHARDS, _HASH),
    "warnings": [TEXT],
    "options": {
        "as_of": INSTANT,
        "as_of_us": INSTANT_US,
        "horizon_hours?": HOURS,
        "num_shards": SHARDS,
        "objective?": one_of(*objectives.NAMES),
        "host_max_per_day": Maybe(AMOUNT),
        "host_min_gap_seconds": Maybe(AMOUNT),
        "hosts": Maybe(TEXT),
        "pages?": Maybe(TEXT),
        "page_min_per_day?": Maybe(AMOUNT),
        "page_max_per_day?": Maybe(AMOUNT),
    },
    "files": [{"path": FILE, "rows": COUNT}],
}  # fmt: skip
"""By key what its value must be; keys that end in ? may be missing."""


_TOGETHER: Final = (
    ("expected_freshness", "expected_freshness_uniform"),
    ("signals.expected_freshness", "signals.expected_freshness_without"),
    ("judged.crawls", "judged.freshness_of_time.predicted"),
    ("judged.crawls", "judged.freshness_of_time.realised"),
    ("judged.ratio", "judged.ratio_95"),
    ("judged.freshness.realised", "judged.freshness.predicted"),
    ("judged.freshness.realised", "judged.freshness.at_least"),
    ("judged.freshness.realised", "judged.freshness.at_most"),
    ("discovery.worth_of_last_refresh", "discovery.worth_of_last_crawl"),
    ("discovery.worth_of_last_refresh", "discovery.new_page_worth"),
)
"""Where the first has a value other than 0, the second has one."""


def problems(manifest: dict[str, Any]) -> Iterator[str]:
    """What of a manifest no night writes: kinds of values, then what they are beside each other."""
    found = False
    for text in misfits(manifest):
        found = True
        yield text
    if found:
        return
    for one, other in _TOGETHER:
        if _at(manifest, one) and _at(manifest, other) is None:
            yield f"{other} is null or missing, expected a number, as {one} has one"
    for i, row in enumerate((manifest.get("judged") or {}).get("reliability", [])):
        if row["found"] > row["crawls"]:
            most = f"expected at most its crawls, {row['crawls']}"
            yield f"judged.reliability[{i}].found is {row['found']}, {most}"


def _at(value: Any, path: str) -> Any:
    for name in path.split("."):
        value = value.get(name) if isinstance(value, dict) else None
    return value


def misfits(value: Any, shape: Any = MANIFEST, where: str = "") -> Iterator[str]:
    """What of a value is not as its shape says: as in `slots is -7, expected a number of 0 or more`."""
    if isinstance(shape, Kind):
        if not shape.fits(value):
            yield f"{where} is {value!r:.60}, expected {shape.said}"
    elif isinstance(shape, Maybe):
        if value is not None:
            yield from misfits(value, shape.value, where)
    elif isinstance(shape, list):
        if not isinstance(value, list):
            yield f"{where} is {value!r:.60}, expected a list"
            return
        for i, one in enumerate(value):
            yield from misfits(one, shape[0], f"{where}[{i}]")
    elif not isinstance(value, dict):
        yield f"{where} is {value!r:.60}, expected an object"
    elif isinstance(shape, Many):
        for name, one in value.items():
            if not shape.key.fullmatch(name):
                yield f"{where} has the key {name!r:.60}, expected {shape.key.pattern}"
            yield from misfits(one, shape.value, f"{where}.{name}")
    else:
        for name, inner in shape.items():
            key, inside = name.removesuffix("?"), f"{where}.{name.removesuffix('?')}".lstrip(".")
            if key in value:
                yield from misfits(value[key], inner, inside)
            elif key == name:
                yield f"{inside} is missing"
