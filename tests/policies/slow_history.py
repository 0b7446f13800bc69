"""The fold, one page and one row at a time, written from the rules and not from the kernel."""

from __future__ import annotations

import math
from collections import Counter
from typing import Any

NO_TIME = -(2**63)
GAP = AGE = 60_000_000
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
    return (row["at"], RANK[kind_of(row)], no_digest, row["digest"], -row["changed"], -modified)


def half_octave(gap_us: int) -> int:
    minutes = gap_us / 60e6
    mantissa, exponent = math.frexp(minutes)  # in [0.5, 1)
    return 2 * (exponent - 1) + (mantissa >= 0.75)


class Page:
    """One page: every interval is kept, sums are taken when asked for."""

    def __init__(self) -> None:
        self.baseline = self.success = self.attempt = self.modified = NO_TIME
        self.digest = 0
        self.gone = False
        self.intervals: list[tuple[Any, ...]] = []  # (end, gap_us, changed, age_us or None, changes)
        self.n_changes = 0
        self.opened = NO_TIME  # the first observation

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

        changed: bool | None = None
        if kind == "gone" or was_gone:
            changed = (kind == "gone") != was_gone
        elif kind == "304":
            changed = False
        elif kind == "revisit":
            changed = bool(digest and known_digest and digest != known_digest)
        elif flag >= 0:
            changed = flag == 1
        elif digest and known_digest:
            changed = digest != known_digest
        elif modified != NO_TIME and known_modified != NO_TIME:
            changed = modified != known_modified

        self.gone = kind == "gone"
        if self.gone:
            self.digest, self.modified = row["digest"], NO_TIME
        else:
            if digest:
                self.digest = digest
            elif changed:
                self.digest = 0
            if modified != NO_TIME:
                self.modified = modified

        if self.baseline == NO_TIME:
            opens = kind == "gone" or digest or (kind == "success" and (flag >= 0 or modified != NO_TIME))
            if opens:
                self.baseline = self.opened = at
                return "baseline"
            return "no_change_evidence" if kind == "success" else "not_modified_without_baseline"
        if changed is None:
            return "no_change_evidence"
        age = None
        if changed and self.baseline < modified <= at - AGE:
            age = at - modified
        self.n_changes += changed
        self.intervals.append((at, at - self.baseline, changed, age, self.n_changes))
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
                exposure += weight * (age / DAY)
                dated += weight
            else:
                days = gap / DAY
                entry = bins.setdefault(half_octave(gap), [0.0, 0.0, 0.0])
                for i in range(3):
                    entry[i] += weight * days**i
        return exposure, dated, bins
