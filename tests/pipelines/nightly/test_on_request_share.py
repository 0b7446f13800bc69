"""`--on_request_share`: a part of the budget is left for crawls at requests, by how bursty requests are."""

from __future__ import annotations

import numpy as np
import pytest

from policies.on_request.value import crawl_value
from tests.pipelines.jobs import at, nightly
from tests.pipelines.nightly.test_on_request import LOG, PAGES
from transforms.night.request_share import RequestShare
from transforms.shards.catalogue import DAY_US

BUDGET, DAYS = 20, 28
CLICKS = [
    {"url": url, "day": at(day)[:10], "clicks": 6 + i % 3}
    for i, url in enumerate(PAGES)
    for day in range(i % 7, DAYS, 7)
]
"""Each page on one day of the week."""


def run(folder, name, day=DAYS, **options):
    done = nightly(folder, name, budget=BUDGET, as_of=at(day), **options)
    assert done.code == 0, done.complaints
    return done


@pytest.fixture(scope="module")
def first(tmp_path_factory):
    folder = tmp_path_factory.mktemp("share")
    return run(folder, "first", observations=LOG, requests=CLICKS, on_request_share="auto")


def test_auto_leaves_nothing_before_it_knows_and_half_once_requests_come_in_bursts(first):
    assert first.manifest["on_request"]["share"] == 0.0 and len(first.rows("schedule")) == BUDGET
    assert "how bursty requests are is not known yet" in first.printed
    pairs = first.manifest["on_request"]["pairs"]
    assert pairs["clicks"]["ratio"] > 4.0 and pairs["impressions"]["ratio"] is None
    more = [{"url": url, "day": at(DAYS)[:10], "clicks": 6} for url in PAGES[::7]]
    seen = [{"url": r["url"], "fetched_at": r["due_at"].isoformat()} for r in first.rows("schedule")]
    done = run(
        first.folder.parent, "second", DAYS + 1, observations=seen, requests=more,
        state=first.folder / "state", on_request_share="auto",
    )  # fmt: skip
    found = done.manifest["on_request"]
    assert (found["share"], found["price_factor"]) == (0.5, 0.5)
    assert done.manifest["budget_per_day"] == BUDGET / 2 == len(done.rows("schedule"))
    assert "so 50% of the budget is left" in done.printed and "10 of 20 crawls a day are left" in done.printed


def test_pairs_are_the_same_for_any_batches_and_shards(first):
    other = run(first.folder.parent, "cut", observations=LOG, requests=CLICKS, num_shards=3, rows_per_batch=7)
    assert other.manifest["on_request"]["pairs"] == first.manifest["on_request"]["pairs"]
    assert "crawls at requests" not in other.printed


def test_a_given_share_is_taken_before_the_search_and_ages_are_at_the_price(tmp_path):
    done = run(tmp_path, "fixed", observations=LOG, requests=CLICKS, on_request_share=0.25)
    assert len(done.rows("schedule")) == 15 and done.manifest["allocated_per_day"] == pytest.approx(15)
    rows = [r for r in done.rows("pages") if r["crawl_on_request"] is not None]
    asked, rate, error, hours = (
        np.array([r[n] for r in rows])
        for n in ("weight", "change_rate_per_day", "change_rate_stderr", "crawl_on_request")
    )
    assert len(rows) > 10
    price = 0.75 * done.manifest["multiplier"]
    worth = crawl_value(asked, rate, (rate / error) ** 2, hours / 24.0)
    assert worth == pytest.approx(np.full(len(rows), price), rel=2e-3)


def test_a_share_that_nothing_can_use_is_told_and_wrong_ones_are_refused(tmp_path):
    done = run(tmp_path, "equal", observations=LOG[:40], weight_by="equal", on_request_share=0.5)
    assert any("10 crawls a day are left" in w and "--requests" in w for w in done.manifest["warnings"])
    assert "warning" not in done.manifest["on_request"]
    for value in ("half", "0.95"):
        wrong = nightly(tmp_path, "wrong", observations=LOG, budget=BUDGET, on_request_share=value)
        assert wrong.code == 2 and f"--on_request_share={value}: expected a number" in wrong.complaints


def test_the_price_follows_what_the_log_says_was_spent():
    day = 20_000
    last = {
        "options": {"as_of_us": day * DAY_US},
        "on_request": {"share": 0.5, "budget_per_day": 100.0, "price_factor": 0.6},
    }
    share = RequestShare.of(0.5, 100.0, "periodic", last)
    spent = {day - 1: 1_000, day: 100, day + 1: 100}
    assert share.factor(spent, (day + 2) * DAY_US) == pytest.approx(0.72)
    assert share.factor({day: 100}, (day + 2) * DAY_US) == pytest.approx(0.5)
    # Where the log is missing nothing is said.
    assert share.factor({day - 1: 1_000}, (day + 2) * DAY_US) == 0.6


def test_auto_leaves_floors_alone_and_pages_that_no_request_weighs():
    pairs = {"found": [40.0] * 16, "expected": [8.0] * 16}
    last = {"weight_by": "clicks", "on_request": {"pairs": {"clicks": pairs}}}
    assert RequestShare.of(None, 100.0, "periodic", last).planned_per_day == 50.0
    floors = last | {"search": {"floor_per_day": 60.0}}
    assert RequestShare.of(None, 100.0, "periodic", floors).planned_per_day == pytest.approx(80.0)
    assert RequestShare.of(None, 100.0, "harmonic", last).share == 0.0
    assert RequestShare.of(None, 100.0, "periodic", last | {"weight_by": "equal"}).share == 0.0
