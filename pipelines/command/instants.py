"""Instants as people write and read them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from transforms.batches.times import END_US, FIRST_US

DAY_MICROSECONDS = 86_400_000_000


def parse_instant(text: str) -> int:
    """UTC microseconds of an ISO 8601 text; without an offset it is UTC. ValueError outside 1990 to 2100."""
    moment = datetime.fromisoformat(text.strip())
    moment = moment.replace(tzinfo=moment.tzinfo or UTC)
    since = moment - datetime(1970, 1, 1, tzinfo=UTC)
    us = (since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds
    if not FIRST_US <= us < END_US:
        raise ValueError(text)
    return us


def format_instant(at_us: int) -> str:
    """ISO 8601 text of UTC microseconds."""
    moment = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=at_us)
    return moment.isoformat().replace("+00:00", "Z")
