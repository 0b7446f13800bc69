"""One colour a policy in every picture, told apart by the colour-blind, and dark enough to be read as text.

Policies of one kind share a colour: names beside lines and dots tell which is which.
"""

from __future__ import annotations

from typing import Final

COLOURS: Final = {
    "fresh": ("#0060a0", "#56b4e9"),
    "found": ("#b34700", "#ef9149"),
    "plain": ("#6a737d", "#98a2ad"),
    "crawls": ("#00704d", "#00e09a"),
    "violet": ("#7a00f4", "#b266ff"),
    "wine": ("#6b0040", "#ffd400"),
    "black": ("#101418", "#f4f6f8"),
    "trouble": ("#a03070", "#e08bbd"),
}
"""By role: on white, and on a dark ground. The last is for what went wrong, and never of a policy."""
_ROLES: Final = {
    "recrawl": "fresh",
    "uniform": "plain",
    "nutch": "found",
    "stormcrawler": "violet",
    "heritrix": "crawls",
    "sitemap": "violet",
    "lambdacrawl": "wine",
    "harmonic": "wine",
    "periodic": "wine",
    "kab": "wine",
    "click": "wine",
    "impression": "wine",
    "change": "wine",
    "uncensored": "black",
    "known": "black",
    "hour": "black",
    "age": "black",
}
_SIMULATED: Final = {
    "GREEDY-NCIS": "#0060a0",
    "GREEDY": "#b34700",
    "GREEDY-CIS": "#00704d",
    "LDS": "#7a00f4",
    "BASELINE": "#101418",
}


def role_of(policy: str) -> str | None:
    """Role of a policy of `recrawl backtest`, by the first word of its name; None of another."""
    return next((role for word, role in _ROLES.items() if policy.startswith(word)), None)


def colour_of(name: str) -> str | None:
    """Colour on white of a policy, or of one of the papers' that most pictures have; None of another."""
    role = role_of(name)
    return COLOURS[role][0] if role else _SIMULATED.get(name)
