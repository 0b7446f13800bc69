"""`crawl_on_request` in pages/: the age from which a request is worth a crawl, at the price of the night."""

from __future__ import annotations

import numpy as np
import pytest

from policies.on_request.value import crawl_value
from tests.pipelines.jobs import at, crawls, nightly

PAGES = [f"https://shop.test/{i}" for i in range(60)]
LOG = [
    row
    for i, url in enumerate(PAGES)
    for row in crawls(
        url, "ABCDEFGH" if i % 3 == 0 else "AABBBBCC" if i % 3 == 1 else "AAAAAAAA", every_days=3
    )
]
CLICKS = [
    {"url": url, "day": at(day)[:10], "clicks": 1 + i * i // 8}
    for i, url in enumerate(PAGES)
    for day in (3, 9, 15)
]


@pytest.fixture(scope="module")
def night(tmp_path_factory):
    folder = tmp_path_factory.mktemp("night")
    done = nightly(folder, observations=LOG, requests=CLICKS, budget=20, as_of=at(22))
    assert done.code == 0, done.complaints
    return done


def test_at_that_age_a_crawl_is_worth_the_multiplier(night):
    rows = [night.page(url) for url in PAGES]
    hours = np.array([np.nan if r["crawl_on_request"] is None else r["crawl_on_request"] for r in rows])
    asked, rate, error = (
        np.array([r[n] for r in rows]) for n in ("weight", "change_rate_per_day", "change_rate_stderr")
    )
    known, information = np.isfinite(hours), (rate / error) ** 2
    assert 10 < known.sum() < len(PAGES)
    worth = crawl_value(asked[known], rate[known], information[known], hours[known] / 24.0)
    assert worth == pytest.approx(np.full(known.sum(), night.manifest["multiplier"]), rel=2e-3)
    # Where no age is worth it the page is asked for too seldom, for how fast it changes.
    assert (asked[~known] / rate[~known] <= night.manifest["multiplier"] * 1.001).all()


def test_it_comes_about_when_the_page_is_crawled_anyway(night):
    """Later where little is known of the rate: a page may be one that hardly changes."""
    rows = [r for url in PAGES if (r := night.page(url))["n_changes"] >= 6 and r["limit"] == "none"]
    gap = np.array([24.0 / r["crawl_rate_per_day"] for r in rows])
    early = np.array([r["crawl_on_request"] for r in rows], np.float64) / gap
    assert len(rows) > 5 and 0.8 < np.median(early) < 1.2 and early.min() > 0.5


def test_pages_that_weigh_no_requests_have_none(tmp_path):
    for more in ({"weight_by": "equal"}, {"objective": "harmonic"}):
        done = nightly(tmp_path, "n", observations=LOG, requests=CLICKS, budget=20, as_of=at(22), **more)
        assert done.code == 0 and {r["crawl_on_request"] for r in done.rows("pages")} == {None}
