"""A site that answers for missing pages with status 200: what its error pages take, and what they leave."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.pipelines.jobs import Night, at, command, crawls, nightly, seen, write_rows

HOME = "https://s.test/"
LOST = [f"https://s.test/lost/{i}" for i in range(39)] + ["https://s.test/random-xyz"]
LIVE = [f"https://s.test/live/{i}" for i in range(20)]
OTHER = [f"https://o.test/{i}" for i in range(20)]
URLS = [HOME, *LOST, *LIVE, *OTHER]


def _log() -> list[dict[str, Any]]:
    """Ten days: error pages and the home page with one digest, others with their own."""
    rows = [r for url in [HOME, *LOST] for r in crawls(url, "S" * 10, 20)]
    # One was a page once.
    rows[10] |= {"digest": "it was a page"}
    for n, url in enumerate([*LIVE, *OTHER]):
        rows += [seen(url, at(20 + day), f"{n} {(day + n) // 3}") for day in range(10)]
    return rows


@pytest.fixture(scope="module")
def nights(tmp_path_factory: pytest.TempPathFactory) -> tuple[Night, Night]:
    """A night with as many clicks for all pages, and one after that in which five show something else."""
    folder: Path = tmp_path_factory.mktemp("soft_404")
    log = write_rows(folder / "log.csv", _log())
    clicks = [{"url": u, "day": at(d)[:10], "clicks": 5} for u in URLS for d in range(20, 30)]
    requests = write_rows(folder / "clicks.csv", clicks)
    first = nightly(folder, "first", observations=log, requests=requests, budget=20)
    back = [seen(u, at(30, 1), f"back {u}") for u in LOST[:5]]
    later: dict[str, Any] = {"observations": back, "as_of": at(31), "budget": 20}
    state = first.folder / "state"
    return first, nightly(folder, "second", state=state, flags=["--allow_shrink"], **later)


def _flagged(night: Night) -> set[str]:
    return {r["url"] for r in night.rows("pages") if r["soft_404"]}


def test_error_pages_are_grouped_and_the_home_page_is_none_of_them(nights):
    """What went wrong elsewhere: they passed for pages, or took the home page that they copy with them."""
    night, _ = nights
    assert night.code == 0, night.complaints
    assert _flagged(night) == set(LOST)
    assert night.counters["pages_soft_404"] == len(LOST)
    assert "40 alike on their hosts (soft_404)" in night.printed


def test_the_flag_changes_no_weight(nights):
    """Digests may be of a price: then pages are alike by chance."""
    assert all(r["weight"] == r["request_rate_per_day"] for r in nights[0].rows("pages"))


def test_a_page_that_comes_back_is_flagged_no_more(nights):
    assert set(LOST) - _flagged(nights[1]) == set(LOST[:5])


def test_what_moved_between_the_nights_says_so(nights):
    folders = [str(night.folder) for night in nights]
    code, printed, complaints = command("diff", *folders, f"--url={LOST[3]}")
    assert code == 0, complaints
    assert "soft 404" in printed and "yes, like many of its host" in printed
    assert "soft 404" not in command("diff", *folders, f"--url={LIVE[3]}")[1]
