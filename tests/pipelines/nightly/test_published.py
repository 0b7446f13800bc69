"""`published_at` of the catalogue: how old a page was when it was first fetched."""

from __future__ import annotations

import json

import numpy as np
import pytest

from tests.pipelines.jobs import Night, at, command, crawls, nightly, seen

PAGES = 400


def _articles() -> tuple[list[dict[str, object]], list[dict[str, object]]]:
    """A first log of ten days: articles of the last month, which change on their first day only."""
    rng = np.random.default_rng(3)
    log: list[dict[str, object]] = []
    catalogue: list[dict[str, object]] = []
    for page in range(PAGES):
        url, born = f"https://news.test/{page}", rng.uniform(-20.0, 9.0)
        changes = born + np.cumsum(rng.exponential(0.15, 5))
        changes = changes[changes < born + 1.0]
        visits = np.arange(max(born, 0.0) + rng.uniform(0.0, 0.3), 10.0, rng.uniform(0.3, 0.9))
        log += [seen(url, at(v), f"v{(changes < v).sum()}") for v in visits]
        catalogue.append({"url": url, "published_at": at(born)})
    return log, catalogue


def _half_age(night: Night) -> float | None:
    assert night.code == 0, night.complaints
    (host,) = night.rows("hosts")
    return host["half_age_hours"]


def test_the_age_of_pages_is_known_in_the_first_night(tmp_path):
    log, catalogue = _articles()
    options = {"as_of": at(10), "budget": 200, "num_shards": 1}
    assert _half_age(nightly(tmp_path, "undated", observations=log[: len(log) // 2], **options)) is None
    first = nightly(tmp_path, "dated", observations=log, pages=catalogue, **options)
    half = _half_age(first)
    assert half is not None and 2.0 < half < 24.0
    assert f"{PAGES} pages change less and less as they age; " in first.printed
    assert first.counters["pages_clock_age"] == PAGES and first.counters["pages_clock_hour"] == 0
    # It is kept for nights that get no catalogue.
    options |= {"as_of": at(11), "state": str(first.folder / "state"), "flags": ["--allow_shrink"]}
    later = nightly(tmp_path, "later", observations=crawls("https://news.test/0", "A", 10.5), **options)
    assert _half_age(later) is not None
    code, printed, _ = command("diff", str(first.folder), str(later.folder), "--json")
    causes = {c["cause"]: c for c in json.loads(printed)["causes"]}
    moved = {name: c["up_per_day"] - c["down_per_day"] for name, c in causes.items()}
    # Of pages that age each crawl is planned alone: nothing else moves them.
    assert code == 0 and moved["clock"] > 10.0 and moved["clock"] == max(moved.values())
    assert all(moved[name] == 0.0 for name in ("change_observed", "change_learned", "weight", "multiplier"))
    kept = {r["url"]: r["published_at"] for r in later.rows("state")}
    assert {url: v.isoformat()[:19] for url, v in kept.items()} == {
        r["url"]: str(r["published_at"])[:19] for r in catalogue
    }


@pytest.mark.parametrize("text", ["yesterday", "2026-13-41T00:00:00Z"])
def test_a_date_that_cannot_be_read_takes_the_age_and_not_the_page(text, tmp_path):
    pages = [
        {"url": "https://a.test/1", "published_at": text},
        {"url": "https://a.test/2", "published_at": at(3)},
    ]
    night = nightly(tmp_path, pages=pages, observations=crawls("https://a.test/2", "AAB", 4))
    assert night.code == 0 and night.urls() == ["https://a.test/1", "https://a.test/2"]
    assert [r["reason"] for r in night.rejected()] == ["bad_published_at"]
    kept = {r["url"][-1]: r["published_at"] for r in night.rows("state")}
    assert kept["1"] is None and kept["2"] is not None


def test_a_date_after_the_first_fetch_is_not_the_pages(tmp_path):
    """What is published again, or dated by its last change, was there before."""
    log, catalogue = _articles()
    for row in catalogue:
        row["published_at"] = at(9.9)
    newest = max(log, key=lambda row: row["fetched_at"])["url"]
    night = nightly(tmp_path, observations=log, pages=catalogue, as_of=at(10), budget=200, num_shards=1)
    assert {r["published_at"] for r in night.rows("state") if r["url"] != newest} == {None}
    assert _half_age(night) is None


def test_what_a_first_look_at_a_source_has_found_may_be_of_any_age(tmp_path):
    """It is as old as its host, in later nights, too; what else a catalogue lists is young."""
    url = "https://news.test/{}".format
    log = [row for page in range(3) for row in crawls(url(page), "AAB", 4)]
    first = nightly(tmp_path, "first", observations=log, as_of=at(12))
    pages = [{"url": url("listed")}, {"url": url("old"), "found_at": at(20)}]
    options = {"as_of": at(21), "state": str(first.folder / "state"), "flags": ["--allow_shrink"]}
    found = nightly(tmp_path, "found", observations=[seen(url("old"), at(20.5), "A")], pages=pages, **options)
    options |= {"as_of": at(22), "state": str(found.folder / "state")}
    later = nightly(tmp_path, "later", observations=[seen(url("old"), at(21.5), "A")], **options)
    for night in (found, later):
        assert night.code == 0, night.complaints
        since = {r["url"]: r["first_seen_at"] for r in night.rows("state")}
        assert since[url("old")] is None and since[url("listed")] is not None
