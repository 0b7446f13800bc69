"""The fold, one page and one row at a time, written from the rules and not from the kernel."""

from __future__ import annotations

import math
from collections import Counter
from typing import Any

NO_TIME = -(2**63)
GAP = AGE = 60_000_000
HOUR = 3_600_000_000
DAY = 86_400_000_000
NO_STATUS = -32768


def kind_of(row: dict[str, Any]) -> str:
    status, same = row["status"], row["not_modified"]
    if status in (404, 410):
        return "gone"
    if status == 304:
        return "304"
    if status == NO_STATUS or 200 <= status < 400:
        return "revisit" if same else "success"
    return "revisit" if same and status <= 0 else "failed"


RANK = {"success": 0, "revisit": 1, "304": 2, "gone": 3, "failed": 4}


def sort_key(row: dict[str, Any]) -> tuple[Any, ...]:
    no_digest = row["digest"] == 0
    modified = row["last_modified"]
    return (row["at"], RANK[kind_of(row)], no_digest, row["digest"], -row["changed"], -modified, row["form"])


def timetable_hours(step: int) -> int:
    """Longest period, in hours, that divides a move of a date and a day; 0 if it moved by no whole hours."""
    hours = (step + HOUR // 2) // HOUR
    return math.gcd(hours, 24) if hours > 0 and abs(step - hours * HOUR) <= 2 * AGE else 0


def is_clock(age: int, step: int, since: int) -> bool:
    off = abs(since - step)
    if age < AGE or (0 < step and off <= 10_000_000 and off < abs(step - (step + HOUR // 2) // HOUR * HOUR)):
        return True
    return age < since // 24 and timetable_hours(step) != 24


def dated_exposure(age: int, step: int, since: int, gap: int) -> int:
    period = timetable_hours(step) * HOUR
    return min(period or max(age - max(AGE, since // 24), AGE), gap)


def half_octave(gap_us: int) -> int:
    minutes = gap_us / 60e6
    mantissa, exponent = math.frexp(minutes)  # in [0.5, 1)
    return 2 * (exponent - 1) + (mantissa >= 0.75)


class Page:
    """One page: every interval is kept, sums are taken when asked for."""

    def __init__(self) -> None:
        self.baseline = self.success = self.attempt = self.modified = self.modified_seen = NO_TIME
        self.digest = self.form = self.replaced = self.returns = 0
        self.gone = False
        self.intervals: list[tuple[Any, ...]] = []  # (end, gap_us, changed, (age, exposure) or None, changes)
        self.n_changes = 0
        self.opened = NO_TIME  # the first observation
        self.anew: list[int] = []  # later visits that intervals begin at and none ends with

    def fold(self, rows: list[dict[str, Any]], as_of: int, counts: Counter[str]) -> None:
        started_at, attempted_at = self.success, self.attempt
        for row in sorted(rows, key=sort_key):
            counts["observations"] += 1
            counts[self._row(row, as_of, started_at, attempted_at)] += 1

    def _row(self, row: dict[str, Any], as_of: int, started_at: int, attempted_at: int) -> str:
        at, kind = row["at"], kind_of(row)
        if at > as_of:
            return "after_as_of"
        if at <= started_at:
            return "duplicate" if at == started_at and kind != "failed" else "late"
        if kind == "failed" and at <= attempted_at:
            return "duplicate" if at == attempted_at else "late"
        if kind == "failed":
            self.attempt = max(self.attempt, at)
            return "failed"
        if self.success != NO_TIME and at - self.success < GAP:
            return "duplicate"
        self.success = at
        self.attempt = max(self.attempt, at)
        return self._visit(row, kind)

    def _visit(self, row: dict[str, Any], kind: str) -> str:
        known_digest, known_modified, was_gone = self.digest, self.modified, self.gone
        if kind == "revisit" and was_gone and row["digest"] and row["digest"] == known_digest:
            kind = "gone"
        at, digest = row["at"], row["digest"] if kind in ("success", "revisit") else 0
        modified = row["last_modified"] if kind != "gone" and row["last_modified"] <= row["at"] else NO_TIME
        flag = row["changed"] if kind == "success" else -1

        known_seen = self.modified_seen
        newer = modified != NO_TIME and known_modified != NO_TIME and modified > known_modified
        step = modified - known_modified if newer else 0
        clock = newer and is_clock(at - modified, step, at - known_seen)
        form = row["form"] & 0x7FFFFFFF
        other_form = row["form"] >= 1 << 31 if self.form == 0 else form not in (0, self.form)
        if form and self.form and 1 in (form & 15, self.form & 15):  # one looks like no digest
            other_form = form & 15 != self.form & 15 and form >> 4 != self.form >> 4
        comparable = bool(digest and known_digest and (digest == known_digest or not other_form))

        changed: bool | None = None
        moved = False
        start, by_digest = self.baseline, False
        if kind == "gone" or was_gone:
            changed = (kind == "gone") != was_gone
        elif kind == "304":
            changed = False
        elif kind == "revisit":
            by_digest = comparable
            changed = comparable and digest != known_digest
        elif flag >= 0:
            changed = flag == 1
        elif comparable:
            by_digest, changed = True, digest != known_digest
        elif modified != NO_TIME and known_modified != NO_TIME and not clock:
            changed = newer and modified > start
            moved = newer and modified > known_seen

        self.gone = kind == "gone"
        if self.gone:
            self.digest, self.modified, self.modified_seen = row["digest"], NO_TIME, NO_TIME
            self.form = form if row["digest"] else 0
        else:
            if digest:
                self.digest, self.form = digest, form
            elif was_gone or (kind == "success" and flag == 1) or moved:
                self.digest, self.form = 0, 0
            if modified != NO_TIME:
                self.modified = max(modified, known_modified)
                self.modified_seen = at

        if self.baseline == NO_TIME:
            opens = kind == "gone" or digest or (kind == "success" and (flag >= 0 or modified != NO_TIME))
            if opens:
                self.baseline = self.opened = at
                return "baseline"
            return "no_change_evidence" if kind == "success" else "not_modified_without_baseline"
        if changed is None:
            if digest or modified != NO_TIME:
                self.baseline = at
                self.anew.append(at)
            return "no_change_evidence"
        if by_digest and changed:
            self.returns += digest == self.replaced
            self.replaced = known_digest
        age = None
        since = at - (start if known_seen == NO_TIME else known_seen)
        if changed and start < modified and not is_clock(at - modified, step, since):
            age = at - modified, dated_exposure(at - modified, step, since, at - start)
        self.n_changes += changed
        self.intervals.append((at, at - start, changed, age, self.n_changes))
        self.baseline = at
        return "unchanged" if not changed else "changed_undated" if age is None else "changed_dated"

    def weight(
        self,
        end: int,
        count: int,
        half_life_changes: int | None,
        half_life_days: float | None,
        as_of: int | None,
    ) -> float:
        """Present weight of an interval that ended at `end` with `count` changes so far."""
        weight = 1.0
        if half_life_changes:
            weight *= 2.0 ** ((count - self.n_changes) / half_life_changes)
        if half_life_days:
            assert as_of is not None
            weight *= 2.0 ** (min(0.0, (end - as_of) / DAY / half_life_days))
        return weight

    def sums(
        self, half_life_changes: int | None, half_life_days: float | None, as_of: int | None
    ) -> tuple[float, float, dict[int, list[float]]]:
        """Exposure, dated changes and bins with the weights of the present."""
        exposure = dated = 0.0
        bins: dict[int, list[float]] = {}
        for end, gap, changed, age, count in self.intervals:
            weight = self.weight(end, count, half_life_changes, half_life_days, as_of)
            if not changed:
                exposure += weight * (gap / DAY)
            elif age is not None:
                exposure += weight * (age[1] / DAY)
                dated += weight
            else:
                days = gap / DAY
                entry = bins.setdefault(half_octave(gap), [0.0, 0.0, 0.0])
                for i in range(3):
                    entry[i] += weight * days**i
        return exposure, dated, bins
