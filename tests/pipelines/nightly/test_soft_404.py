"""A site that answers for missing pages with status 200: what its error pages take, and what they leave."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest

from tests.pipelines.jobs import Night, at, command, crawls, nightly, seen, write_rows

HOME = "https://s.test/"
LOST = [f"https://s.test/lost/{i}" for i in range(39)] + ["https://s.test/random-xyz"]
LIVE = [f"https://s.test/live/{i}" for i in range(20)]
OTHER = [f"https://o.test/{i}" for i in range(20)]


def _log() -> list[dict[str, Any]]:
    """Ten days: error pages and the home page with one digest, others with their own."""
    rows = [r for url in [HOME, *LOST] for r in crawls(url, "S" * 10, 20)]
    # One was a page once.
    rows[10] |= {"digest": "it was a page"}
    for n, url in enumerate([*LIVE, *OTHER]):
        rows += [seen(url, at(20 + day), f"{n} {(day + n) // 3}") for day in range(10)]
    return rows


@pytest.fixture(scope="module")
def nights(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Night]:
    """Flagged only; with lower weights; each with as many clicks for all pages."""
    folder: Path = tmp_path_factory.mktemp("soft_404")
    log = write_rows(folder / "log.csv", _log())
    urls = [HOME, *LOST, *LIVE, *OTHER]
    clicks = [{"url": u, "day": at(d)[:10], "clicks": 5} for u in urls for d in range(20, 30)]
    requests = write_rows(folder / "clicks.csv", clicks)
    common: dict[str, Any] = {"observations": log, "requests": requests, "budget": 20}
    return {
        "flagged": nightly(folder, "flagged", **common),
        "lowered": nightly(folder, "lowered", flags=["--lower_soft_404"], **common),
    }


def _by_url(night: Night) -> dict[str, dict[str, Any]]:
    return {r["url"]: r for r in night.rows("pages")}


@pytest.mark.parametrize("name", ["flagged", "lowered"])
def test_error_pages_are_grouped_and_the_home_page_is_none_of_them(name, nights):
    """What went wrong elsewhere: they passed for pages, or took the home page that they copy with them."""
    night = nights[name]
    assert night.code == 0, night.complaints
    assert {u for u, r in _by_url(night).items() if r["soft_404"]} == set(LOST)
    assert night.counters["pages_soft_404"] == len(LOST)
    assert "40 alike on their hosts (soft_404)" in night.printed


def test_the_flag_alone_changes_no_weight(nights):
    """Digests may be of a price: then pages are alike by chance."""
    pages = _by_url(nights["flagged"])
    assert all(r["weight"] == r["request_rate_per_day"] for r in pages.values())


def test_lowered_they_weigh_together_what_one_page_does(nights):
    pages, before = _by_url(nights["lowered"]), _by_url(nights["flagged"])
    for url in LOST:
        assert pages[url]["weight"] == pytest.approx(before[url]["weight"] / 41, rel=1e-12)
    for url in {*pages} - {*LOST}:
        assert pages[url]["weight"] == before[url]["weight"]
    assert math.fsum(pages[u]["weight"] for u in LOST) < pages[HOME]["weight"]
    # Known, judged and asked for as before.
    for url in pages:
        assert pages[url]["change_rate_per_day"] == before[url]["change_rate_per_day"]
        assert pages[url]["request_rate_per_day"] == before[url]["request_rate_per_day"]


def test_lowered_their_crawls_go_to_pages_with_something_to_show(nights):
    lowered, flagged = (nights[n] for n in ("lowered", "flagged"))
    spent = {
        name: math.fsum(r["crawl_rate_per_day"] for r in nights[name].rows("pages") if r["url"] in LOST)
        for name in nights
    }
    assert spent["lowered"] < 0.5 * spent["flagged"]
    assert lowered.page(HOME)["crawl_rate_per_day"] >= flagged.page(HOME)["crawl_rate_per_day"] > 0
    for night in nights.values():
        rates = math.fsum(r["crawl_rate_per_day"] for r in night.rows("pages"))
        assert rates == pytest.approx(20, rel=1e-9)
    assert lowered.manifest["options"]["lower_soft_404"] is True


def test_a_page_that_comes_back_has_its_weight_again(nights, tmp_path):
    """And so have all others once they are fewer than 30."""
    state = nights["lowered"].folder / "state"
    back = [seen(u, at(30, 1), f"back {u}") for u in LOST[:5]]
    night = nightly(
        tmp_path,
        observations=back,
        state=state,
        as_of=at(31),
        budget=20,
        flags=["--lower_soft_404", "--allow_shrink"],
    )
    pages = _by_url(night)
    assert {u for u in LOST if not pages[u]["soft_404"]} == set(LOST[:5])
    assert pages[LOST[0]]["weight"] == pages[LOST[0]]["request_rate_per_day"]
    assert pages[LOST[9]]["weight"] == pytest.approx(pages[LOST[9]]["request_rate_per_day"] / 36, rel=1e-12)


def test_what_moved_between_the_nights_says_so(nights):
    folders = [str(nights[name].folder) for name in ("flagged", "lowered")]
    code, printed, complaints = command("diff", *folders, f"--url={LOST[3]}")
    assert code == 0, complaints
    assert "soft 404" in printed and "yes, like many of its host" in printed and "lower_soft_404" in printed
    assert "soft 404" not in command("diff", *folders, f"--url={LIVE[3]}")[1]
