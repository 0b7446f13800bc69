"""Night after night against a known truth: what siblings find, and what volatile pages cost."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from policies.history import volatile
from tests.pipelines.simulator import DAY_US, FIRST_DAY, Crawler, Web
from transforms.batches.urls import locate

DAYS = 60


class _Web(Web):
    """Some pages are new at every fetch; on events a host changes most of its pages at once.

    Pages are (n,), hosts are (h,): `token` (n,) bool, `events` a list of (h,) int64 arrays of microseconds,
    `hit` a list of (events, n) bool.
    """

    token: np.ndarray
    events: list[np.ndarray]
    hit: list[np.ndarray]

    def advance(self, page: np.ndarray, at_us: np.ndarray) -> None:
        before = self.until_us[page].copy()
        super().advance(page, at_us)
        self.version[page] += self.token[page]
        for host in np.unique(self.host[page]).tolist():
            mine = np.flatnonzero(self.host[page] == host)
            since, until = (v[mine][:, None] for v in (before, at_us))
            passed = (self.events[host] > since) & (self.events[host] <= until)
            self.version[page[mine]] += (passed & self.hit[host][:, page[mine]].T).sum(axis=1)


def _web(seed: int, hosts: int = 8, pages: int = 800, mean: float = 0.2, tokens: float = 0.0,
         events_per_day: float = 0.0, share: float = 0.8) -> _Web:  # fmt: skip
    rng = np.random.Generator(np.random.Philox(key=seed))
    host = np.sort(rng.integers(0, hosts, pages))
    web = _Web(rng, rng.gamma(0.6, mean / 0.6, pages) + 1e-4, host)
    web.token = (rng.random(pages) < tokens).astype(np.int64)
    web.rate[web.token > 0] = 1e-9
    moments = [np.sort(rng.random(rng.poisson(events_per_day * DAYS))) * DAYS for _ in range(hosts)]
    web.events = [((FIRST_DAY + m) * DAY_US).astype(np.int64) for m in moments]
    web.hit = [rng.random((len(m), pages)) < share for m in moments]
    return web


def _expected_freshness(crawler: Crawler) -> float:
    """Mean over pages that are no tokens, at tonight's rates and the true rates of change."""
    web, pages = crawler.web, crawler.pages
    index = np.array([crawler._index[u] for u in pages.column("url").to_pylist()])
    rate, change = pages.column("crawl_rate_per_day").to_numpy(), web.rate[index]
    with np.errstate(divide="ignore", invalid="ignore"):
        fresh = np.where(rate > 0, rate / change * -np.expm1(-change / rate), 0.0)
    return float(fresh[web.token[index] == 0].mean())


class _Known:
    """In place of `volatile.weight_limit`: the truth, or that there are none."""

    def __init__(self, web: _Web, use: bool) -> None:
        located = locate(pa.array(web.urls, pa.string()))
        order = np.lexsort((located.url_hash, located.host_hash))
        self.limit = np.where((web.token[order] > 0) & use, np.inf, volatile.NOT_VOLATILE)

    def __call__(self, *_: Any) -> np.ndarray:
        return self.limit


@pytest.mark.slow
@pytest.mark.parametrize("budget", [0.5, 1.0])
def test_a_tenth_of_volatile_pages_costs_less_than_a_percent(monkeypatch, budget):
    """After a month, against knowing them from the start. Without the rule they cost more than that."""
    fresh = {}
    for mode in ("learned", "known", "unaware"):
        web = _web(1, tokens=0.1)
        crawler = Crawler(web, budget=budget * len(web.rate))
        found = []
        with monkeypatch.context() as patch:
            if mode != "learned":
                patch.setattr(volatile, "weight_limit", _Known(web, mode == "known"))
            for night in range(34):
                crawler.night()
                if night >= 28:
                    found.append(_expected_freshness(crawler))
        fresh[mode] = np.mean(found)
        if mode == "learned":
            flags = crawler.pages.column("volatile").to_numpy(zero_copy_only=False)
            index = [crawler._index[u] for u in crawler.pages.column("url").to_pylist()]
            token = web.token[index] > 0
            assert flags[token].mean() > 0.85 and flags[~token].mean() < 0.02
    assert fresh["learned"] > 0.99 * fresh["known"]
    assert fresh["unaware"] < 0.985 * fresh["known"]


def _flags(crawler: Crawler) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(n,) each, by page of the web: flags, candidates, crawls a day."""
    index = np.array([crawler._index[u] for u in crawler.pages.column("url").to_pylist()])
    pages = {n: np.zeros(len(index)) for n in ("volatile", "crawl_rate_per_day")}
    for name, values in pages.items():
        values[index] = crawler.pages.column(name).to_numpy(zero_copy_only=False)
    return pages["volatile"] > 0, crawler.may_be[np.argsort(index)], pages["crawl_rate_per_day"]


class _Watched(Crawler):
    """Keeps what the fold's rule alone says."""

    may_be: np.ndarray


def _watch(monkeypatch: pytest.MonkeyPatch, crawler: _Watched) -> None:
    rule = volatile.weight_limit

    def watched(*arguments: Any) -> np.ndarray:
        limit = rule(*arguments)
        crawler.may_be = limit >= 0.0
        return limit

    monkeypatch.setattr(volatile, "weight_limit", watched)


@pytest.mark.slow
@pytest.mark.parametrize(("shape", "budget"), [(1e4, 0.2), (1e4, 0.5), (2.0, 0.2), (2.0, 0.5)])
def test_ordinary_pages_at_long_gaps_are_not_flagged(monkeypatch, shape, budget):
    """They change 0.6 times a day: some are always found changed, and flagged in no night."""
    web = _web(3, hosts=10, pages=2000)
    web.rate[:] = web.rng.gamma(shape, 0.6 / shape, 2000) + 1e-4
    crawler = _Watched(web, budget=budget * 2000)
    _watch(monkeypatch, crawler)
    ever, candidates = np.zeros(2000, np.bool_), 0
    for _ in range(30):
        crawler.night()
        flag, may_be, _ = _flags(crawler)
        ever |= flag
        candidates += may_be.sum()
    assert candidates > 10 and ever.sum() < 2


@pytest.mark.slow
@pytest.mark.parametrize(("budget", "flagged"), [(0.3, 0.01), (1.0, 0.7)])
def test_a_host_of_volatile_pages(monkeypatch, budget, flagged):
    """Candidates there are flagged, and the others take no crawls: their rates are out of reach."""
    web = _web(2, hosts=4, pages=1000)
    mine = web.host == 0
    web.token[mine], web.rate[mine] = 1, 1e-9
    crawler = _Watched(web, budget=budget * 1000)
    _watch(monkeypatch, crawler)
    for _ in range(20):
        crawler.night()
    flag, may_be, rate = _flags(crawler)
    assert flag[mine].mean() > flagged and flag[~mine].sum() <= 2
    assert flag[mine].sum() > 0.3 * may_be[mine].sum() > 0
    assert rate[mine].sum() < 0.01 * rate.sum()


def _realised(seed: int, siblings: str, nights: int = 40, **options: float) -> tuple[float, int]:
    """Share of pages that are fresh at the ends of days, from the twentieth night on; hosts on at the end."""
    web = _web(seed, pages=600, **options)
    held = np.full(len(web.rate), -1)
    index = {url: i for i, url in enumerate(web.urls)}
    fetch = web.fetch

    def noted(page: np.ndarray, at_us: np.ndarray, dated: np.ndarray) -> pa.RecordBatch:
        log = fetch(page, at_us, dated)
        order = np.argsort(log.column("fetched_at").cast(pa.int64()).to_numpy(), kind="stable")
        urls, digest = log.column("url").to_pylist(), log.column("digest_hash").to_numpy().astype(np.int64)
        for row in order.tolist():
            held[index[urls[row]]] = digest[row] - 1
        return log

    web.fetch = noted  # type: ignore[method-assign]
    crawler = Crawler(web, budget=0.3 * len(web.rate), siblings=siblings)
    fresh = []
    for night in range(nights):
        crawler.night()
        web.advance(np.arange(len(held)), np.full(len(held), crawler._day * DAY_US))
        if night >= 20:
            fresh.append(np.mean(held == web.version))
    return float(np.mean(fresh)), crawler.manifest["siblings"]["hosts_on"]


@pytest.mark.slow
@pytest.mark.timeout(300)  # eighteen crawlers of forty nights
def test_siblings_find_hosts_that_change_as_a_whole():
    """Fresher where hosts change as a whole, by more than three standard errors over eight sites."""
    gains, on = [], 0
    for seed in range(8):
        options = {"mean": 0.02, "events_per_day": 0.08, "share": 0.8}
        without, none = _realised(seed, "off", **options)
        with_them, _ = _realised(seed, "on", **options)
        assert none == 0
        gains.append(with_them - without)
        if seed < 2:
            auto, found = _realised(seed, "auto", **options)
            assert auto > without - 0.005
            on += found
    assert np.mean(gains) > 3 * np.std(gains, ddof=1) / np.sqrt(len(gains))
    assert np.mean(gains) > 0.005 and on >= 2


@pytest.mark.slow
def test_siblings_stay_off_where_pages_change_alone():
    for seed in range(2):
        assert _realised(seed, "auto", mean=0.1) == (_realised(seed, "off", mean=0.1)[0], 0)
