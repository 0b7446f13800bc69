"""Warnings of a night of which many fetches say nothing of changes, though they seem to."""

from __future__ import annotations

LEAST_OTHER_FORMS, LEAST_CLOCKS = 0.002, 0.01
"""Shares of fetches from which digests of other forms, and Last-Modified of the clock, are a warning."""


def evidence_warnings(counters: dict[str, int], fetched: int) -> list[str]:
    """What to say of fetches without evidence; `fetched` is how many found a page."""
    found = []
    forms = counters.get("digest_form_changed", 0)
    if forms > LEAST_OTHER_FORMS * fetched:
        found.append(
            f"{forms:,} of {fetched:,} fetches have a digest of another form than the one before (length, "
            "alphabet or algorithm): they cannot be compared, and their pages begin anew. That is so once, "
            "when a crawler takes another algorithm; if it goes on, two crawlers write to this log: give one"
        )
    clock = counters.get("last_modified_clock", 0)
    if clock > LEAST_CLOCKS * fetched:
        found.append(
            f"{clock:,} of {fetched:,} fetches have a Last-Modified that is the clock of the server, and "
            "nothing else to compare: they say nothing of changes. Give the crawl log a digest"
        )
    return found
