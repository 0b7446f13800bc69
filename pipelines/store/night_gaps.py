"""Nights that do not follow on each other as they should: too early, or long after the last one."""

from __future__ import annotations

from collections.abc import Sequence

from pipelines.store.store import Night

MANY_MISSED = 14
"""Missed nights that are named as a possible mistake: hardly an outage lasts two weeks."""


def too_early(as_of: str, as_of_us: int, nights: Sequence[Night]) -> str:
    """Why a night before the last one of a store cannot be run, and what to do if that one was a mistake."""
    text = (
        f"--as_of={as_of}: the store has a later night, {nights[-1].as_of}, that has read the logs until "
        "then. Give a later instant, or run `recrawl nightly` into a folder of its own. "
    )
    before = [night for night in nights if night.as_of_us <= as_of_us]
    if not before:
        return text + "The store keeps no night before, so if later ones are a mistake, give another --store"
    later = [night for night in nights if night.as_of_us > as_of_us]
    files = ", ".join(f"{night.folder}/manifest.json" for night in reversed(later))
    return text + (
        f"If what is later is a mistake, delete {files}: then the night of {before[-1].as_of} is the last "
        "one again, and logs since then are read again"
    )


def long_after(as_of: str, last: Night, missed: int, given: bool) -> list[str]:
    """A warning of a night so long after the last one that it may not be meant; said before it is run.

    Parameters
    ----------
    as_of : str
    last : Night
    missed : int
        Nights between the two.
    given : bool
        Whether the night was given by `--as_of`.
    """
    if missed <= MANY_MISSED:
        return []
    how = "" if given else ", the last one that is due, since --as_of is not given"
    return [
        f"{missed} nights were missed since {last.as_of}; this one is of {as_of}{how}. After an outage that "
        "is right, and it goes on by itself. If it is a mistake, stop it now: once it is committed no "
        "earlier night can be run, unless its manifest.json is deleted"
    ]
