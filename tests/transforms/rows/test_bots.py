"""Whose requests are."""

from __future__ import annotations

import crawleruseragents
import pyarrow as pa
import pytest

from transforms.rows import bots
from transforms.rows.bots import BOT, NO_AGENT, OWN, PERSON, Visitors, are_bots

BROWSER = (
    "Mozilla/5.0 (Windows NT 10.0; Win64; x64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/126.0.0.0 "
    "Safari/537.36"
)
PEOPLE = (BROWSER, "Mozilla/5.0 (Android 14; Mobile; CUBOT X30) Firefox/127.0", "Opera/9.80", "x", "")


def test_the_list_is_searched_as_its_package_does():
    """Every user agent that the package knows, whole, cut and in one case: its own function is the oracle."""
    known = [text for entry in crawleruseragents.CRAWLER_USER_AGENTS_DATA for text in entry["instances"]]
    some = known[::5]
    agents = [*known, *(text[: len(text) // 2] for text in some), *(text.lower() for text in some), *PEOPLE]
    expected = [crawleruseragents.is_crawler(agent) for agent in agents]
    assert are_bots(pa.array(agents)).tolist() == expected
    assert sum(expected) > 1000 and not all(expected)


def test_each_visitor_has_one_kind_and_own_comes_first():
    agents = [BROWSER.encode(), b"OURBOT/1.0 (Googlebot/2.1)", b"Googlebot/2.1", b"-", b"", None, b"\xff\xfe"]
    found = Visitors("ourbot/1, nothing")
    expected = [PERSON, OWN, BOT, NO_AGENT, NO_AGENT, PERSON, PERSON]
    for _ in range(2):  # from the list, then from memory
        assert found.of(pa.array(agents, pa.binary())).tolist() == expected
    assert Visitors("").of(pa.array(agents[1:2], pa.binary())).tolist() == [BOT]


def test_what_is_remembered_is_bounded_and_makes_no_difference(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(bots, "MAX_KNOWN", 3)
    found = Visitors()
    long = b"x" * (bots.MAX_AGENT_BYTES + 1) + b"Googlebot/2.1"
    for i in range(6):
        agents = pa.array([f"Googlebot/2.{i}".encode(), f"{BROWSER}{i}".encode(), long], pa.binary())
        assert found.of(agents).tolist() == [BOT, PERSON, PERSON]
        assert len(found._known) <= 3 + 2
