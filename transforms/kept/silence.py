"""Pages and hosts that give no answer, in a shard and in the manifest; see `policies.history.silence`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from policies.history.page_state import NO_TIME
from policies.history.silence import (
    Heard,
    Silence,
    failing_since,
    first_answers,
    forgiven,
    is_followed,
    silence,
)
from policies.history.visits import FAILED, STATUS_NONE, Observations, kind_of
from policies.numerics.lookup import rows_of
from policies.numerics.typing_ import IntArray
from transforms.batches import schemas
from transforms.batches.hashing import hash_texts
from transforms.batches.tally import counted
from transforms.batches.urls import other_forms
from transforms.kept.protocol import ShardNight, Statistic
from transforms.kept.state import microseconds, times

MAX_NAMED = 5
LEAST_PAGES = 3
"""Scheduled pages of a host of which none answers, for the host to be named as silent."""

LEAST_MISSED = 0.05
"""Share of scheduled pages that are in no log above which a warning says so."""

MAX_ASKED = 200
"""Silent pages of a shard of which another form of the URL is looked for."""


class ShardSilence(Statistic):
    """What the pages of a shard owe an answer for: since when they fail, and which slots no log shows."""

    STATE = (pa.field("failing_since_at", schemas.TIME),)
    SLOTS = (pa.field("slots_since_at", schemas.TIME),)

    def __init__(self, night: ShardNight) -> None:
        self._pages, self._night_before_us = night.pages, night.settings.night_before_us
        self._slot_us, slots, code = night.last_slot_us, night.slots, night.slot_code
        self._failing_since_us = night.carried("failing_since_at", NO_TIME)
        self._slots_since_us = np.full(len(night.pages), NO_TIME, np.int64)
        if slots is not None and code is not None:
            some = code >= 0
            self._slots_since_us[code[some]] = microseconds(slots.column("slots_since_at"))[some]

    def fold(self, night: ShardNight, rows: Observations) -> None:
        before, after = night.before, night.after
        status = rows.status if rows.status is not None else np.full(len(rows), STATUS_NONE, np.int16)
        failed = kind_of(np.asarray(status, np.int16), rows.not_modified) == FAILED
        log = rows.page, rows.fetched_at_us
        known, success = before.last_success_at_us, after.last_success_at_us
        since = failing_since(self._failing_since_us, success, *log, failed, night.settings.as_of_us)
        answers = known, first_answers(known, *log, ~failed), self._pages.host_code
        self._failing_since_us = forgiven(since, after.last_attempt_at_us, *answers)
        self._slots_since_us = forgiven(self._slots_since_us, self._slot_us, *answers)
        attempt, then, n_failed = after.last_attempt_at_us, self._night_before_us, int(failed.sum())
        last_night = self._slot_us > then if then is not None else np.zeros(len(attempt), np.bool_)
        self._heard = Heard(
            int(attempt.max(initial=NO_TIME)),
            then,
            int(last_night.sum()),
            0 if then is None else int((last_night & (attempt >= then)).sum()),
            len(rows) - n_failed,
            n_failed,
        )

    def sums(self) -> Heard:
        return self._heard

    def state(self) -> dict[str, pa.Array]:
        return {"failing_since_at": times(self._failing_since_us)}

    def columns(self, night: ShardNight) -> dict[str, pa.Array]:
        columns = {"failing_since_at": self._failing_since_us, "slots_since_at": self._slots_since_us}
        return {name: times(v) for name, v in columns.items() if (v != NO_TIME).any()}


def silence_of(pages: pa.RecordBatch, heard: Heard) -> Silence:
    """Who is silent among the rows of a pages table."""
    nothing = np.full(pages.num_rows, NO_TIME, np.int64)

    def column(name: str) -> IntArray:
        return microseconds(pages.column(name)) if name in pages.schema.names else nothing

    return silence(
        column("last_attempt_at"),
        column("failing_since_at"),
        column("last_slot_at"),
        column("slots_since_at"),
        heard.night_before_us,
        heard.until_us,
        heard.followed,
        heard.works,
    )


@dataclass(frozen=True)
class SilenceSums:
    """Silent pages of some shards.

    Attributes
    ----------
    awaited, missed : int
        Pages whose last crawl of the night before should be in the log, and those that are not.
    silent : int
        Pages that wait longer for having been tried in vain.
    hosts : tuple of (str, int)
        Hosts of whose scheduled pages none is in the log, and how many these are; the largest.
    twins : tuple of (str, str)
        A scheduled URL that is in no log, and one like it that is.
    """

    awaited: int = 0
    missed: int = 0
    silent: int = 0
    hosts: tuple[tuple[str, int], ...] = ()
    twins: tuple[tuple[str, str], ...] = ()

    def merge(self, other: SilenceSums) -> SilenceSums:
        """Of the pages of both."""
        hosts: dict[str, int] = {}
        for name, n in self.hosts + other.hosts:
            hosts[name] = hosts.get(name, 0) + n
        return SilenceSums(
            self.awaited + other.awaited,
            self.missed + other.missed,
            self.silent + other.silent,
            tuple(sorted(hosts.items(), key=lambda h: (-h[1], h[0]))[:MAX_NAMED]),
            tuple(sorted({*self.twins, *other.twins})[:MAX_NAMED]),
        )

    def account(self) -> dict[str, Any]:
        """What the manifest says."""
        return {
            "scheduled": self.awaited,
            "in_no_log": self.missed,
            "pages_silent": self.silent,
            "hosts": [{"host": name, "pages": n} for name, n in self.hosts],
            "logged_otherwise": [{"scheduled": one, "logged": other} for one, other in self.twins],
        }


def silence_sums(pages: pa.RecordBatch, hosts: pa.RecordBatch, found: Silence, heard: Heard) -> SilenceSums:
    """What a shard reports of its pages and hosts tables."""
    host = pages.column("host_code").to_numpy()
    awaited = np.bincount(host[found.awaited], minlength=hosts.num_rows)
    missed = np.bincount(host[found.missed], minlength=hosts.num_rows)
    quiet = np.flatnonzero((missed == awaited) & (awaited >= LEAST_PAGES))
    sums = SilenceSums(
        int(awaited.sum()),
        int(missed.sum()),
        int((found.wait_days > 0.0).sum()),
        tuple((hosts.column("host")[int(j)].as_py(), int(missed[j])) for j in quiet),
        _twins(pages, found, heard),
    )
    return SilenceSums().merge(sums)


def _twins(pages: pa.RecordBatch, found: Silence, heard: Heard) -> tuple[tuple[str, str], ...]:
    """Silent pages of which another form was fetched since the night before."""
    silent = np.flatnonzero(found.missed | ((found.wait_days > 0.0) & (found.slots_since_us != NO_TIME)))
    if not len(silent):
        return ()
    hashes = pages.column("url_hash").to_numpy()
    silent = silent[np.argsort(hashes[silent])[:MAX_ASKED]]
    forms = [
        (url, form)
        for url in pages.column("url").take(pa.array(silent)).to_pylist()
        for form in other_forms(url)
    ]
    if not forms:
        return ()
    order = np.argsort(hashes)
    wanted = hash_texts(pa.array([form for _, form in forms]))
    at = rows_of(hashes, wanted, order)
    heard_of = (at >= 0) & (
        microseconds(pages.column("last_crawl_at"))[at] >= (heard.night_before_us or NO_TIME)
    )
    return tuple(forms[i] for i in np.flatnonzero(heard_of))


def vain_warnings(account: dict[str, Any]) -> list[str]:
    """What a person should look at: crawls that were scheduled and are in no log."""
    scheduled, missed = account["scheduled"], account["in_no_log"]
    if missed <= LEAST_MISSED * scheduled:
        return []
    text = f"{missed:,} of {counted(scheduled, 'page')} that {'was' if scheduled == 1 else 'were'} scheduled "
    text += f"{'is' if missed == 1 else 'are'} in no log"
    if twins := account["logged_otherwise"]:
        text += (
            f": {twins[0]['scheduled']} is scheduled, {twins[0]['logged']} is logged. Give pages in the form"
        )
        text += " in which the crawler logs them"
    elif hosts := account["hosts"]:
        names = ", ".join(h["host"] for h in hosts)
        text += f"; not one of {names}. Look whether the crawler may fetch there (robots.txt), and whether"
        text += " all its logs are given"
    else:
        text += ". Look whether the crawler follows the schedule, and whether all its logs are given"
    if not is_followed(scheduled, scheduled - missed):
        return [f"{text}. So few were fetched that nothing is concluded of the others"]
    return [f"{text}. Pages in no log wait longer each time"]
