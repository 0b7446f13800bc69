"""Pages that were given up, since they change too often for the budget: they may have stopped since."""

import pytest

from tests.pipelines.jobs import Night, at, crawls, nightly

BUSY = [f"https://busy.test/{i}" for i in range(10)]


@pytest.fixture(scope="module")
def nights(tmp_path_factory: pytest.TempPathFactory) -> dict[int, Night]:
    """Ten pages that always changed, last crawled so many days ago, among 80 that change every ten days."""
    folder = tmp_path_factory.mktemp("given-up")
    pace = ("AAAAABBBBB", "AABBBBBBBB", "AAAAAAAABB", "AAAAAAAAAA")
    made = {}
    for days in (1, 30, 200):
        calm = [r for i in range(80) for r in crawls(f"https://h{i % 8}.test/{i}", pace[i % 4], days, 2.0)]
        busy = [r for url in BUSY for r in crawls(url, "ABCDEFGHIJKL", 0.0, 0.5)]
        made[days] = nightly(
            folder,
            f"after-{days}",
            observations=busy + calm,
            budget=5,
            as_of=at(days + 20.0),
            horizon_hours=24,
        )
    return made


def _of_busy(night: Night, name: str) -> list[float]:
    return [night.page(url)[name] or 0.0 for url in BUSY]


def test_they_wait_until_they_may_have_stopped(nights):
    """Their rates stay; what the plan takes them for does not."""
    rates = [sum(_of_busy(night, "crawl_rate_per_day")) for night in nights.values()]
    assert rates[0] == 0.0 and rates[0] <= rates[1] < rates[2]
    assert {r["url"] for r in nights[200].rows("schedule")} & set(BUSY)
    changes = [_of_busy(night, "change_rate_per_day") for night in nights.values()]
    assert changes[0] == pytest.approx(changes[2], rel=0.01) and min(changes[0]) > 1.0
    assert max(_of_busy(nights[1], "plan_gain")) < min(_of_busy(nights[200], "plan_gain"))


def test_what_is_promised_is_by_their_rates(nights):
    """Whether they have stopped is not known."""
    for url in BUSY:
        page = nights[200].page(url)
        assert page["expected_freshness"] <= page["crawl_rate_per_day"] / page["change_rate_per_day"] + 1e-12
