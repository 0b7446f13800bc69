"""Folding observations: rules case by case, conservation of rows, the state."""

from __future__ import annotations

import numpy as np
import pytest

from policies.history import history
from policies.history.history import STATUS_NONE, Observations, fold
from policies.history.page_state import NO_TIME, PageState, evidence
from policies.history.visits import REWRITTEN
from tests.policies.crawl_rows import DAY, FOREVER, SECOND, START, Row, day, observations, row
from tests.policies.history_nights import filled, one_page


def outcomes(rows: list[Row]) -> dict[str, int]:
    return dict(one_page(rows)[1])


# ---- small cases by hand


def test_first_crawl_is_baseline_then_gap_is_exposure_then_change_is_binned() -> None:
    state, counts = one_page([day(0, digest=1), day(2, digest=1), day(5, digest=2)])
    assert counts == {"baseline": 1, "unchanged": 1, "changed_undated": 1}
    assert state.exposure_days.tolist() == [2.0]
    assert (state.n_intervals[0], state.n_changes[0]) == (2, 1)
    # 3 days are 4320 minutes: 2**12 <= 4320 < 1.5 * 2**12
    assert state.bin_id.tolist() == [24]
    assert [state.bin_weight[0], state.bin_days[0], state.bin_days_squared[0]] == [1.0, 3.0, 9.0]
    assert state.baseline_at_us[0] == state.last_success_at_us[0] == START + 5 * DAY
    assert state.digest[0] == 2


def test_swapped_rows_give_positive_gaps() -> None:
    rows = [day(3, digest=1), day(0, digest=1), day(1, digest=1)]
    assert one_page(rows)[0].exposure_days[0] == 3.0


def test_rows_after_as_of_are_ignored_and_counted() -> None:
    state, counts = one_page([day(0, digest=1), day(1, digest=1), day(2, digest=9)], START + DAY)
    assert counts == {"baseline": 1, "unchanged": 1, "after_as_of": 1}
    assert state.digest[0] == 1 and state.last_attempt_at_us[0] == START + DAY


@pytest.mark.parametrize(
    "modified_days",
    [(-0.5, 0.5, 1.5), (0.0, 1.0, 2.0), (-1.0, -2.0, -3.0), (-1.0, None, -0.5), (9.0, 9.0, -1.0)],
)
def test_same_digest_is_unchanged_although_last_modified_moves(modified_days: tuple) -> None:
    """Full answers say nothing of a change: forward, to the fetch itself, back, missing, or in the future."""
    times = [NO_TIME if m is None else START + round(m * DAY) for m in modified_days]
    rows = [day(d, digest=7, last_modified=m) for d, m in enumerate(times)]
    found = outcomes(rows)
    found.pop("last_modified_ignored", None)
    assert found == {"baseline": 1, "unchanged": 2}


def test_another_digest_is_a_change_although_last_modified_stands() -> None:
    rows = [day(d, digest=d + 1, last_modified=START - DAY) for d in range(3)]
    assert outcomes(rows) == {"baseline": 1, "changed_undated": 2}


def test_revisit_without_status_and_with_minus_one() -> None:
    for status in (STATUS_NONE, -1, 200):
        same = day(1, status=status, not_modified=True, digest=5)
        other = day(2, status=status, not_modified=True, digest=6)
        assert outcomes([day(0, digest=5), same]) == {"baseline": 1, "unchanged": 1}
        assert outcomes([day(0, digest=5), other]) == {"baseline": 1, "changed_undated": 1}
    assert outcomes([day(0, digest=5), day(1, status=-1)]) == {"baseline": 1, "failed": 1}
    assert outcomes([day(0, digest=5), day(1, status=STATUS_NONE, digest=5)]) == {
        "baseline": 1,
        "unchanged": 1,
    }


def test_repeated_lines_are_one_visit() -> None:
    rows = [day(0, digest=5)] * 3 + [row(0, START + 2 * SECOND, digest=6)]
    state, counts = one_page(rows)
    assert counts == {"baseline": 1, "duplicate": 3}
    assert state.last_success_at_us[0] == START and state.digest[0] == 5
    # again tomorrow, over state
    again, counts2 = fold(state, observations(rows), FOREVER)
    assert again.equals(state) and counts2["duplicate"] == 4


def test_the_minimum_gap_runs_from_the_last_visit_kept() -> None:
    rows = [row(0, START + s * SECOND, digest=1) for s in (0, 40, 80, 120, 139, 140, 199, 200)]
    state, counts = one_page(rows)  # kept: 0, 80, 140, 200
    assert counts == {"baseline": 1, "unchanged": 3, "duplicate": 4}
    assert state.exposure_days[0] == pytest.approx(200 / 86400, rel=1e-15)


def test_304_is_unchanged_whatever_its_digest() -> None:
    rows = [day(0, digest=5), day(1, status=304, digest=6), day(2, digest=5)]
    assert outcomes(rows) == {"baseline": 1, "unchanged": 2}


def test_304_first_is_no_baseline() -> None:
    state, counts = one_page([day(0, status=304)])
    assert counts == {"not_modified_without_baseline": 1}
    assert state.baseline_at_us[0] == NO_TIME and state.last_success_at_us[0] == START
    state, counts = one_page([day(0, status=304), day(1, digest=5), day(2, digest=6)])
    assert counts == {"not_modified_without_baseline": 1, "baseline": 1, "changed_undated": 1}
    assert state.bin_days[0] == 1.0


def test_a_revisit_of_a_page_gone_finds_it_gone() -> None:
    """Archives write a repeated 404 as a revisit: without a status, with the digest of the error page."""
    echo = {"status": STATUS_NONE, "not_modified": True, "digest": 9}
    gone = [day(0, status=404, digest=9), day(1, **echo), day(2, **echo)]
    assert outcomes(gone) == {"baseline": 1, "unchanged": 2}
    assert one_page(gone)[0].gone[0]
    back = [*gone, day(3, status=404, digest=9), day(4, digest=5), day(5, **echo | {"digest": 5})]
    assert outcomes(back) == {"baseline": 1, "unchanged": 4, "changed_undated": 1}
    # Another digest, or the same one after the page was back, is a page that is there.
    assert outcomes([*gone, day(3, **echo | {"digest": 8})])["changed_undated"] == 1
    assert outcomes([*gone, day(3), day(4, **echo)]) == {"baseline": 1, "unchanged": 3, "changed_undated": 1}


def test_without_digest_last_modified_decides_else_there_is_no_evidence() -> None:
    a, b = START - 10 * DAY, START + DAY // 2
    rows = [day(0, last_modified=a), day(1, last_modified=a), day(2, last_modified=b), day(3)]
    state, counts = one_page(rows)
    # b lies before the last observation: since that nothing has changed
    assert counts == {"baseline": 1, "unchanged": 2, "no_change_evidence": 1}
    assert state.baseline_at_us[0] == START + 2 * DAY and state.last_success_at_us[0] == START + 3 * DAY
    assert outcomes([day(0), day(1)]) == {"no_change_evidence": 2}


def test_visit_without_evidence_does_not_end_the_interval() -> None:
    state, counts = one_page([day(0, digest=1), day(1), day(4, digest=1)])
    assert counts == {"baseline": 1, "no_change_evidence": 1, "unchanged": 1}
    assert state.exposure_days[0] == 4.0


def test_a_b_a_unobserved_is_unchanged() -> None:
    assert outcomes([day(0, digest=1), day(9, digest=1)]) == {"baseline": 1, "unchanged": 1}


def test_failed_fetches_are_spanned() -> None:
    statuses = [500, 503, 429, 401, 403, 0, -7, 100, 599, 999]
    rows = [day(0, digest=1)] + [day(1 + i, status=s, digest=8) for i, s in enumerate(statuses)]
    state, counts = one_page([*rows, day(20, digest=1)])
    assert counts == {"baseline": 1, "failed": 10, "unchanged": 1}
    assert state.exposure_days[0] == 20.0
    state, _ = one_page(rows)
    assert state.last_success_at_us[0] == START and state.last_attempt_at_us[0] == START + 10 * DAY


def test_a_revisit_of_a_page_gone_leaves_no_date() -> None:
    """The date is that of the error page."""
    at = day(1)["at"]
    rows = [day(0, status=404, digest=9), day(1, not_modified=True, digest=9, last_modified=at)]
    state = one_page(rows)[0]
    assert state.gone[0] and state.last_modified_at_us[0] == NO_TIME == state.last_modified_seen_us[0]


def test_gone_and_back_are_changes_and_gone_again_is_not() -> None:
    rows = [
        day(0, digest=1),
        day(1, status=404, digest=4),
        day(2, status=410),
        day(3, digest=1),
        day(4, digest=1),
    ]
    state, counts = one_page(rows)
    assert counts == {"baseline": 1, "changed_undated": 2, "unchanged": 2}
    assert not state.gone[0]
    assert one_page(rows[:3])[0].gone[0]
    assert outcomes([day(0, status=404), day(1, status=404)]) == {"baseline": 1, "unchanged": 1}
    assert outcomes([day(0, digest=1), day(1, status=404), day(2, status=304)]) == {
        "baseline": 1,
        "changed_undated": 2,
    }


def test_flag_goes_before_digest_and_needs_none() -> None:
    rows = [day(0, changed=1), day(1, changed=0), day(2, changed=1)]
    assert outcomes(rows) == {"baseline": 1, "unchanged": 1, "changed_undated": 1}
    rows = [day(0, digest=1), day(1, digest=1, changed=1), day(2, digest=2, changed=0), day(3, digest=2)]
    assert outcomes(rows) == {"baseline": 1, "changed_undated": 1, "unchanged": 2}


def test_one_change_is_not_found_twice() -> None:
    # The flag tells of the change first; the digest that comes later is that of the new content.
    rows = [day(0, digest=1), day(1, changed=1), day(2, digest=2), day(3, digest=2)]
    assert outcomes(rows) == {"baseline": 1, "changed_undated": 1, "no_change_evidence": 1, "unchanged": 1}


def test_last_modified_tells_of_the_change_first() -> None:
    a, b = START - 9 * DAY, START - 8 * DAY
    rows = [day(0, digest=1, last_modified=a), day(1, last_modified=b), day(2, digest=2, last_modified=b)]
    assert outcomes(rows) == {"baseline": 1, "changed_undated": 1, "unchanged": 1}


def test_what_cannot_be_compared_begins_anew() -> None:
    """Unchanged is what was seen on both sides: not the time before the first of them."""
    seen = START - DAY
    for rows in (
        [day(0, status=404), day(10, status=304), day(20, digest=1), day(21, digest=1)],
        [day(0, status=410), day(10, status=304), day(20, last_modified=seen), day(21, last_modified=seen)],
        [day(0, digest=1), day(10, changed=1), day(20, digest=2), day(21, digest=2)],
        [day(0, last_modified=seen), day(20, digest=2), day(21, digest=2)],
        [day(0, digest=3), day(20, last_modified=seen), day(21, last_modified=seen)],
        [day(0, changed=0), day(20, digest=3), day(21, digest=3)],
        [day(0, digest=3, form=35), day(20, digest=4, form=67), day(21, digest=4, form=67)],
    ):
        state, counts = one_page(rows)
        assert state.exposure_days.tolist() == [1.0]
        assert counts["unchanged"] == counts["no_change_evidence"] == 1
        by_night = PageState.empty(1)
        for one in rows:
            by_night, _ = fold(by_night, observations([one]), FOREVER)
        assert by_night.equals(state)


def test_digests_of_another_form_are_no_change() -> None:
    """MD5 until day 3, then SHA-256, then both in turn: compared where both are of one form."""
    md5, sha = 0x203, 0x403
    rows = [day(d, digest=1 + d // 2, form=md5) for d in range(4)]
    rows += [day(d, digest=10 + d // 6, form=sha) for d in range(4, 8)]
    state, counts = one_page(rows)
    assert counts == {"baseline": 1, "unchanged": 4, "changed_undated": 2, "no_change_evidence": 1}
    assert state.digest_form[0] == sha and state.n_intervals[0] == 6
    _, full = fold(PageState.empty(1), observations(rows), FOREVER)
    assert full["digest_form_changed"] == 1
    # By Last-Modified, a flag or a revisit the visit can be compared all the same.
    for more, outcome in (
        ({"last_modified": START - DAY}, "unchanged"),
        ({"changed": 1}, "changed_undated"),
        ({"not_modified": True}, "unchanged"),
    ):
        _, counts = one_page(
            [day(0, digest=1, form=md5, last_modified=START - DAY), day(2, digest=5, form=sha) | more]
        )
        assert counts == {"baseline": 1, outcome: 1}


def test_digests_of_a_state_without_forms_are_compared_as_ever() -> None:
    old, _ = one_page([day(0, digest=1)])
    for form, digest, outcome in (
        (0x203, 2, "changed_undated"),
        (0x203, 1, "unchanged"),
        (0x203 | REWRITTEN, 1, "unchanged"),
        (0x203 | REWRITTEN, 2, "no_change_evidence"),  # may be the same digest in other letters
    ):
        state, counts = fold(old, observations([day(1, digest=digest, form=form)]), FOREVER)
        assert counts[outcome] == 1 and state.digest_form[0] == 0x203


def test_dated_change_adds_its_age() -> None:
    dated = day(4, digest=2, last_modified=START + 3 * DAY)
    state, counts = one_page([day(0, digest=1), dated])
    assert counts == {"baseline": 1, "changed_dated": 1}
    # Less what any date is old: four hours of a gap of four days.
    assert (
        state.exposure_days[0] == pytest.approx(1.0 - 4 / 24, rel=1e-12)
        and state.dated_changes[0] == 1.0
        and len(state.bin_id) == 0
    )


@pytest.mark.parametrize(
    "modified_us",
    [
        START + 4 * DAY + 1,  # after the fetch
        START + 4 * DAY,  # stamped with the present
        START + 4 * DAY - 59_999_999,
        START + 4 * DAY - DAY // 6 + 1,  # younger than the 24th part of the gap
        START,  # at the baseline
        START - DAY,
        NO_TIME,
        NO_TIME + 1,
    ],
)
def test_useless_dates_leave_the_change_undated(modified_us: int) -> None:
    _, counts = one_page([day(0, digest=1), day(4, digest=2, last_modified=modified_us)])
    assert counts == {"baseline": 1, "changed_undated": 1}


def test_youngest_usable_date() -> None:
    for gap, age in ((4.0, DAY // 6), (1 / 64, 60_000_000)):
        at = START + round(gap * DAY)
        _, counts = one_page([day(0, digest=1), day(gap, digest=2, last_modified=at - age)])
        assert counts == {"baseline": 1, "changed_dated": 1}


def test_late_rows_leave_the_page_alone() -> None:
    state, _ = one_page([day(0, digest=1), day(5, digest=1)])
    late = [day(1, digest=2), day(4.9999, status=404), day(3, status=500), day(5, status=503)]
    again, counts = fold(state, observations(late), FOREVER)
    assert again.equals(state) and counts["late"] == 4


def test_failures_that_the_state_has_are_not_counted_again() -> None:
    """A dump of a store shows the last failure of a page until it is fetched again."""
    state, _ = one_page([day(0, digest=1), day(3, status=503), day(5, status=503)])
    known = [day(0, digest=1), day(3, status=503), day(4, status=500), day(5, status=503)]
    again, counts = fold(state, observations(known), FOREVER)
    assert again.equals(state)
    assert (counts["duplicate"], counts["late"], counts["failed"]) == (2, 2, 0)
    # A visit that was not known before counts, although a failure came after it.
    news = [day(4, digest=2), day(5.5, status=503), day(6, status=503)]
    later, counts = fold(state, observations([*known, *news]), FOREVER)
    assert (counts["duplicate"], counts["late"], counts["failed"]) == (2, 2, 2)
    assert counts["changed_undated"] == 1 and later.last_attempt_at_us[0] == START + 6 * DAY
    never, _ = one_page([day(5, status=503)])  # never fetched with success
    assert fold(never, observations([day(5, status=503)]), FOREVER)[1]["duplicate"] == 1


def test_interval_weights_by_hand() -> None:
    """H = 2; three changes a day apart, then an unchanged day: now c = 3, L = 2."""
    rows = [day(d, digest=min(d, 3) + 1) for d in range(5)]
    state, _ = one_page(rows, half_life_changes=2)
    root = 2.0**0.5
    np.testing.assert_allclose(state.bin_weight, [0.5 * root + 1.0 + root], rtol=1e-15)
    np.testing.assert_allclose(state.exposure_days, [root], rtol=1e-15)
    now = evidence(state, half_life_changes=2)
    np.testing.assert_allclose(now.bin_weight, [0.5 + 0.5 * root + 1.0], rtol=1e-15)
    np.testing.assert_allclose(now.exposure_days, [1.0], rtol=1e-15)


def test_clock_weights_by_hand() -> None:
    state, _ = one_page([day(0, digest=1), day(1, digest=1), day(11, digest=1)], half_life_days=10.0)
    now = evidence(state, half_life_days=10.0, as_of_us=START + 21 * DAY)
    np.testing.assert_allclose(now.exposure_days, [0.25 * 1 + 0.5 * 10], rtol=1e-14)


# ---- state


def test_expand_then_take_is_the_identity() -> None:
    state = filled(50)
    codes = np.sort(np.random.default_rng(1).choice(400, 50, replace=False))
    wide = state.expand(codes, 400)
    assert wide.take(codes).equals(state)
    others = np.setdiff1d(np.arange(400), codes)
    assert wide.take(others).equals(PageState.empty(350))
    shuffled = np.random.default_rng(2).permutation(50)
    assert state.take(shuffled).take(np.argsort(shuffled)).equals(state)
    assert PageState.empty(0).expand(np.zeros(0, dtype=np.int64), 3).equals(PageState.empty(3))


def test_fold_of_expanded_state_equals_fold_of_all_pages() -> None:
    """Pages that are new tonight begin as pages that were always there and never crawled."""
    state = filled(20)
    rows = observations([row(p, START + 40 * DAY, digest=p + 1) for p in range(0, 40, 3)])
    late = state.expand(np.arange(20) * 2, 40)
    folded, _ = fold(late, rows, FOREVER, half_life_changes=2)
    pages = np.arange(20) * 2
    alone = rows.page % 2 == 0
    part = Observations(rows.page[alone] // 2, rows.fetched_at_us[alone], digest=rows.digest[alone])  # type: ignore[index]
    small, _ = fold(state, part, FOREVER, half_life_changes=2)
    assert folded.take(pages).equals(small)


def test_inputs_are_not_changed() -> None:
    state, copy = filled(30), filled(30)
    rows = observations([row(p, START + 40 * DAY, digest=p + 1) for p in range(30)])
    fold(state, rows, FOREVER, half_life_changes=2)
    assert state.equals(copy)


def test_empty_inputs() -> None:
    state, counts = fold(PageState.empty(0), observations([]), FOREVER, half_life_changes=3)
    assert len(state) == 0 and not any(counts.values())
    state = filled(5)
    again, _ = fold(state, observations([]), FOREVER, half_life_changes=2)
    assert again.equals(state)
    assert len(evidence(PageState.empty(3))) == 3


def test_errors_name_value_limit_and_remedy() -> None:
    rows = observations([row(3, START)])
    with pytest.raises(ValueError, match=r"page codes 3\.\.3 .* 2 pages; expand"):
        fold(PageState.empty(2), rows, FOREVER)
    with pytest.raises(ValueError, match="half_life_changes is 0"):
        fold(PageState.empty(4), rows, FOREVER, half_life_changes=0)
    with pytest.raises(ValueError, match=r"half_life_days is 0\.5"):
        fold(PageState.empty(4), rows, FOREVER, half_life_days=0.5)
    with pytest.raises(ValueError, match="digest has 2 rows"):
        fold(
            PageState.empty(4),
            Observations(rows.page, rows.fetched_at_us, digest=np.zeros(2, np.uint64)),
            FOREVER,
        )
    with pytest.raises(ValueError, match="as_of_us is missing"):
        evidence(PageState.empty(1), half_life_days=3.0)
    with pytest.raises(ValueError, match="same code"):
        filled(2).expand(np.array([1, 1]), 3)
    assert history.MIN_GAP_US == 60_000_000


def test_the_last_visit_that_found_a_change_is_kept_whatever_the_nights() -> None:
    rows = [day(0, digest=5), day(1, digest=6), day(2, digest=6), day(3, digest=7), day(4, digest=7)]
    state, _ = one_page(rows)
    assert state.last_change_at_us[0] == START + 3 * DAY
    by_night = PageState.empty(1)
    seen = []
    for one in rows:
        by_night, _ = fold(by_night, observations([one]), FOREVER)
        seen.append(int(by_night.last_change_at_us[0]))
    assert seen == [NO_TIME, *(START + d * DAY for d in (1, 1, 3, 3))]
    assert by_night.equals(state)
