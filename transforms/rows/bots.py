"""Whose a request is, by its user agent: a person's, the team's own crawler's, another bot's.

Bots are those of the list that the package `crawler-user-agents` keeps. Its regular expressions in one piece
cost a millisecond for a browser, as nothing matches: nearly all of them are plain texts, which are found
here by three of their letters.
"""

from __future__ import annotations

import re
from functools import cache

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

PERSON, OWN, BOT, NO_AGENT = range(4)
REASONS = ("", "own_crawler", "bot", "no_user_agent")
# User agents that are remembered: whoever writes them must not fill the memory.
MAX_KNOWN = 1 << 18
MAX_AGENT_BYTES = 1 << 12
# What nearly every browser says: letters to avoid.
_USUAL = (
    "Mozilla/5.0 (Windows NT 10.0; Win64; x64; rv:109.0; compatible; Macintosh; Intel Mac OS X 10_15_7; X11; "
    "Linux x86_64; Android 13; K; iPhone; CPU iPhone OS 17_0 like Mac OS X) AppleWebKit/537.36 (KHTML, like "
    "Gecko) Chrome/120.0.0.0 Mobile Safari/537.36 Version/17.0 Edg/120 OPR/ Gecko/20100101 Firefox/121.0"
)
_SPECIAL = re.compile(r"[\\^$.|?*+()\[\]{}]")
_LETTERS = 3


@cache
def _patterns() -> tuple[dict[str, tuple[str, ...]], str]:
    """Plain texts by three of their letters, and one pattern of all the others."""
    import crawleruseragents

    plain: dict[str, list[str]] = {}
    others = []
    for pattern in dict.fromkeys(entry["pattern"] for entry in crawleruseragents.CRAWLER_USER_AGENTS_DATA):
        text = re.sub(r"\\(\W)", r"\1", pattern)
        if _SPECIAL.search(re.sub(r"\\\W", "", pattern)) or len(text) < _LETTERS:
            others.append(f"(?:{pattern})")
            continue
        parts = [text[i : i + _LETTERS] for i in range(len(text) - _LETTERS + 1)]
        plain.setdefault(min(parts, key=lambda p: (_USUAL.count(p), p)), []).append(text)
    return {part: tuple(texts) for part, texts in plain.items()}, "|".join(others)


def are_bots(agents: pa.Array) -> NDArray[np.bool_]:
    """Which user agents are of known bots.

    Parameters
    ----------
    agents : pa.Array of n string values

    Returns
    -------
    bool (n,)
    """
    plain, others = _patterns()
    found = np.array(pc.match_substring_regex(agents, others), np.bool_)
    for row in np.flatnonzero(~found).tolist():
        agent = agents[row].as_py()
        for i in range(len(agent) - _LETTERS + 1):
            texts = plain.get(agent[i : i + _LETTERS])
            if texts and any(text in agent for text in texts):
                found[row] = True
                break
    return found


class Visitors:
    """Tells requests apart; a user agent is looked at once.

    Parameters
    ----------
    own : str
        Texts of which one is part of the user agent of the team's crawler, comma-separated, in any case.
    """

    def __init__(self, own: str = "") -> None:
        self._own = [text.strip().lower() for text in own.split(",") if text.strip()]
        self._known: dict[bytes, int] = {}

    def of(self, agents: pa.Array) -> NDArray[np.uint8]:
        """`PERSON`, `OWN`, `BOT` or `NO_AGENT` of each request.

        Parameters
        ----------
        agents : pa.Array of n binary values
            Null where the log has no such field: a person's.

        Returns
        -------
        uint8 (n,)
        """
        encoded = agents.dictionary_encode()
        distinct = encoded.dictionary.to_pylist()
        found = list(map(self._known.get, distinct))
        new = [i for i, code in enumerate(found) if code is None]
        if new:
            if len(self._known) > MAX_KNOWN:
                self._known.clear()
            texts = [distinct[i][:MAX_AGENT_BYTES].decode("utf-8", "replace") for i in new]
            bots = are_bots(pa.array(texts, pa.string()))
            for i, text, bot in zip(new, texts, bots.tolist(), strict=True):
                found[i] = code = self._look(text, bot)
                if len(distinct[i]) <= MAX_AGENT_BYTES:
                    self._known[distinct[i]] = code
        codes = np.array([*found, PERSON], np.uint8)
        return codes[encoded.indices.fill_null(len(distinct)).to_numpy(zero_copy_only=False)]

    def _look(self, agent: str, bot: bool) -> int:
        lower = agent.lower()
        if any(text in lower for text in self._own):
            return OWN
        if bot:
            return BOT
        return NO_AGENT if agent.strip() in ("", "-") else PERSON
