"""What pages answer that are not found, and since when: by a plain loop, and for any cut into nights."""

from __future__ import annotations

import numpy as np

from policies.history.answers import FAILING, FOUND, LOST, REDIRECTED, class_of, last_answers
from policies.history.page_state import NO_TIME
from policies.history.visits import STATUS_NONE

STATUSES = np.array([200, 206, 304, STATUS_NONE, 301, 307, 404, 410, 403, 503, -2], np.int16)


def test_classes():
    found = class_of(STATUSES)
    assert found.tolist() == [FOUND] * 4 + [REDIRECTED] * 2 + [LOST] * 2 + [FAILING] * 3
    told = np.array([0, -1, 301, 404], np.int16)
    assert class_of(told, np.ones(4, np.bool_)).tolist() == [FOUND, FOUND, FOUND, LOST]


def _by_loop(n, page, at_us, status):
    said, since = [STATUS_NONE] * n, [NO_TIME] * n
    for p in range(n):
        rows = [
            (at, class_of(np.array([s], np.int16))[0] == FOUND, s)
            for at, s in zip(at_us[page == p], status[page == p], strict=True)
        ]
        run = None
        for at, found, s in sorted(rows):
            kind = class_of(np.array([s], np.int16))[0]
            if kind != run:
                run, since[p] = kind, at
            said[p] = STATUS_NONE if found else int(s)
    return said, since


def test_the_last_run_of_answers_for_any_cut_into_nights():
    rng = np.random.default_rng(5)
    n, k = 60, 700
    page = rng.integers(0, n, k)
    # No two rows of a page at one instant: such runs have no order.
    at_us = rng.permutation(k).astype(np.int64) * 10
    status = rng.choice(STATUSES, k, p=np.array([6, 1, 2, 1, 3, 1, 3, 1, 1, 3, 1]) / 23)
    expected = _by_loop(n, page, at_us, status)
    for cuts in ([k * 10], [900, 901, 3000, k * 10]):
        said, since = np.full(n, STATUS_NONE, np.int16), np.full(n, NO_TIME)
        heard = np.full(n, NO_TIME)
        for night in cuts:
            # All of the log is given every night: what is known, or later, counts once.
            said, since = last_answers(said, since, heard, page, at_us, status, None, night)
            past = at_us <= night
            np.maximum.at(heard, page[past], at_us[past])
        assert said.tolist() == expected[0]
        odd = said != STATUS_NONE
        assert 20 < odd.sum() < n and since[odd].tolist() == np.array(expected[1])[odd].tolist()


def test_of_one_instant_the_row_that_found_the_page_counts():
    nothing = np.full(1, STATUS_NONE, np.int16), np.full(1, NO_TIME), np.full(1, NO_TIME)
    log = np.zeros(3, np.int64), np.full(3, 7), np.array([301, 200, 503], np.int16)
    said, _ = last_answers(*nothing, *log, None, 9)
    assert said.tolist() == [STATUS_NONE]
    log = np.zeros(2, np.int64), np.full(2, 7), np.array([503, 301], np.int16)
    assert last_answers(*nothing, *log, None, 9)[0].tolist() == [503]
