"""Limits of the crawl rates of all pages, and what floors are said to cost."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.pipelines.jobs import Night, at, nightly
from tests.pipelines.site import make_site

SITE = make_site(n_pages=40, days=12)


def _night(folder: Path, name: str, **options: object) -> Night:
    given = {"observations": SITE.between("observations", 0, 12), "requests": SITE.between("requests", 0, 12)}
    pages = [{"url": row["url"]} for row in SITE.pages[2:]]
    own = [(SITE.pages[0], {"min_rate_per_day": 3.0}), (SITE.pages[1], {"max_rate_per_day": 0.01})]
    pages += [{"url": row["url"], **limits} for row, limits in own]
    night = nightly(folder, name, pages=pages, budget=20, as_of=at(12), **given, **options)
    assert night.code == 0, night.complaints
    return night


@pytest.fixture(scope="module")
def nights(tmp_path_factory: pytest.TempPathFactory) -> tuple[Night, Night]:
    """Without and with limits of all pages."""
    folder = tmp_path_factory.mktemp("limits")
    return _night(folder, "free"), _night(folder, "held", page_min_per_day=0.1, page_max_per_day=0.8)


def test_no_page_is_below_or_above_but_by_its_own_limit(nights):
    free, held = ({r["url"]: r["crawl_rate_per_day"] for r in n.rows("pages")} for n in nights)
    most, least = (SITE.pages[i]["url"] for i in (0, 1))
    assert held.pop(most) == pytest.approx(3.0) and held.pop(least) == pytest.approx(0.01)
    assert free.pop(most) == pytest.approx(3.0) and min(free.values()) == 0.0 and max(free.values()) > 0.8
    assert min(held.values()) == pytest.approx(0.1) and max(held.values()) == pytest.approx(0.8)
    assert nights[1].manifest["starved"]["pages"] == 0


def test_the_cost_is_told_and_bounds_what_is_lost(nights):
    free, held = (n.manifest for n in nights)
    cost = held["floors"]
    assert 0 < cost["pages"] <= 40 and cost["crawls_per_day"] > free["floors"]["crawls_per_day"] > 0.0
    lost = free["expected_freshness"] - held["expected_freshness"]
    assert 0.0 < lost and cost["freshness_at_most"] > 0.0
    (line,) = [text for text in nights[1].printed.splitlines() if text.startswith("  floors")]
    assert f"at most {cost['freshness_at_most']:.4f} higher" in line


@pytest.mark.parametrize(
    "options, said",
    [
        ({"page_min_per_day": -1}, "crawls per day and page"),
        ({"page_max_per_day": 0}, "crawls per day and page"),
        (
            {"page_min_per_day": 2, "page_max_per_day": 1},
            "--page_min_per_day=2 is above --page_max_per_day=1",
        ),
        ({"page_min_per_day": 1}, "the floors of all pages add up to"),
    ],
)
def test_limits_that_cannot_be_are_told(options, said, tmp_path):
    rows = SITE.between("observations", 0, 12)
    night = nightly(tmp_path, observations=rows, budget=20, as_of=at(12), **options)
    assert night.code == 2 and said in night.complaints
