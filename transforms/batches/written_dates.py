"""Dates with names of months, one at a time: of mail and HTTP, of C, Java, JavaScript and `date`.

A text is understood to its last letter or not at all: what stands behind a date may be its offset.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

_MONTHS = "january february march april may june july august september october november december".split()
_DAYS = "monday tuesday wednesday thursday friday saturday sunday".split()
_MONTH_OF = {name[:size]: i for i, name in enumerate(_MONTHS, 1) for size in (3, len(name))} | {"sept": 9}
# Of RFC 822, which names no others.
_HOURS = {"est": -5, "edt": -4, "cst": -6, "cdt": -5, "mst": -7, "mdt": -6, "pst": -8, "pdt": -7}
_UTC = ("gmt", "utc", "ut", "z")

_B = "(?:[ \t\u00a0\u202f]+)"
_NAME = "|".join(sorted({name[:size] for name in _DAYS for size in (3, len(name))}, key=len, reverse=True))
_WEEKDAY = rf"(?:(?:{_NAME}|tues|thur|thurs)\.?(?:,{_B}?|{_B}))?"
_MONTH = rf"(?P<month>{'|'.join(sorted(_MONTH_OF, key=len, reverse=True))})\.?"
_CLOCK = (
    r"(?P<hour>\d{1,2}):(?P<minute>\d\d)(?::(?P<second>\d\d)(?:[.,](?P<fraction>\d{1,9}))?)?"
    rf"(?:{_B}?(?P<half>[ap])\.?m\.?)?"
)
_OFFSET = r"(?P<sign>[+-])(?P<hours>\d{1,2})(?::?(?P<minutes>\d\d))?"
# Behind an offset what is in brackets names the zone once more.
_ZONE = (
    rf"(?:{_B}?(?P<utc>gmt|utc|ut|z)?(?:{_OFFSET})?(?P<named>{_B}?\([^()]*\))?|{_B}(?P<zone>[a-z]{{3,5}}))"
)
_FORMS = tuple(
    re.compile(form, re.IGNORECASE | re.ASCII)
    for form in (
        # Mon, 01 Jun 2026 02:00:00 +0200; Monday, 01-Jun-26 02:00:00 GMT
        rf"{_WEEKDAY}(?P<day>\d{{1,2}})(?:{_B}|-){_MONTH}(?:{_B}|-)(?P<year>\d{{4}}|\d\d),?{_B}{_CLOCK}{_ZONE}",
        # Jun 1, 2026 2:00:00 PM; Mon Jun 01 2026 02:00:00 GMT+0200 (Central European Summer Time)
        rf"{_WEEKDAY}{_MONTH}{_B}(?P<day>\d{{1,2}}),?{_B}(?P<year>\d{{4}})(?:,?{_B}(?:at{_B})?){_CLOCK}{_ZONE}",
        # Mon Jun  1 02:00:00 2026; Mon Jun  1 02:00:00 CEST 2026
        rf"{_WEEKDAY}{_MONTH}{_B}(?P<day>\d{{1,2}}){_B}{_CLOCK}{_ZONE}{_B}(?P<year>\d{{4}})",
    )
)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def read(text: str, zone: ZoneInfo | None = None) -> tuple[int, bool] | None:
    """Microseconds since 1970 of a date, and whether it names no zone, so that they are of a local clock.

    An abbreviation that several zones have is read only where `zone` has it at that time. None for what is
    not understood.
    """
    found = next((m for form in _FORMS if (m := form.fullmatch(text))), None)
    if found is None or (found["named"] and not (found["utc"] or found["sign"])):
        return None
    hour, year = int(found["hour"]), int(found["year"])
    if len(found["year"]) == 2:
        year += 2000 if year < 69 else 1900
    if found["half"]:
        if not 1 <= hour <= 12:
            return None
        hour = hour % 12 + 12 * (found["half"].lower() == "p")
    second = int(found["second"] or 0)
    try:
        # A leap second is the first of the next minute.
        civil = datetime(
            year, _MONTH_OF[found["month"].lower()], int(found["day"]), hour, int(found["minute"])
        )
        civil += timedelta(seconds=second, microseconds=int(f"{found['fraction'] or '':0<6.6}"))
    except (ValueError, OverflowError):
        return None
    named = (found["zone"] or "").lower()
    if second > 60 or int(found["hours"] or 0) > 23 or int(found["minutes"] or 0) > 59:
        return None
    if found["sign"]:
        offset = timedelta(hours=int(found["hours"]), minutes=int(found["minutes"] or 0))
        civil += offset if found["sign"] == "-" else -offset
    elif named and (own := _abbreviated(civil, named, zone)) is not None:
        civil -= own
    elif named in _HOURS:
        civil -= timedelta(hours=_HOURS[named])
    elif named and named not in _UTC:
        return None
    us = (civil.replace(tzinfo=UTC) - _EPOCH) // timedelta(microseconds=1)
    return us, not (found["utc"] or found["sign"] or named)


def _abbreviated(civil: datetime, name: str, zone: ZoneInfo | None) -> timedelta | None:
    """The offset that a zone calls so, in the hour that comes twice in autumn, too."""
    for fold in (0, 1) if zone is not None else ():
        moment = civil.replace(tzinfo=zone, fold=fold)
        if (moment.tzname() or "").lower() == name:
            return moment.utcoffset()
    return None
