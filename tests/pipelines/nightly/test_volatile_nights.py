"""Night after night against a known truth: what volatile pages cost."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from policies.history import volatile
from tests.pipelines.simulator import Crawler, Web
from transforms.batches.urls import locate


class _Web(Web):
    """Some pages are new at every fetch: `token` (n,) int64, 1 for them."""

    token: np.ndarray

    def advance(self, page: np.ndarray, at_us: np.ndarray) -> None:
        super().advance(page, at_us)
        self.version[page] += self.token[page]


def _web(seed: int, hosts: int = 8, pages: int = 800, mean: float = 0.2, tokens: float = 0.0) -> _Web:
    rng = np.random.Generator(np.random.Philox(key=seed))
    host = np.sort(rng.integers(0, hosts, pages))
    web = _Web(rng, rng.gamma(0.6, mean / 0.6, pages) + 1e-4, host)
    web.token = (rng.random(pages) < tokens).astype(np.int64)
    web.rate[web.token > 0] = 1e-9
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
def test_a_tenth_of_volatile_pages_costs_less_than_a_percent(monkeypatch):
    """After a month, against knowing them from the start. Without the rule they cost more than that."""
    fresh = {}
    for mode in ("learned", "known", "unaware"):
        web = _web(1, tokens=0.1)
        crawler = Crawler(web, budget=0.5 * len(web.rate))
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
@pytest.mark.parametrize(("shape", "budget"), [(1e4, 0.2), (2.0, 0.5)])
def test_ordinary_pages_at_long_gaps_are_not_flagged(monkeypatch, shape, budget):
    """They change 0.6 times a day: some are always found changed, and flagged in no night."""
    web = _web(3, hosts=10, pages=2000)
    web.rate[:] = web.rng.gamma(shape, 0.6 / shape, 2000) + 1e-4
    crawler = _Watched(web, budget=budget * 2000)
    _watch(monkeypatch, crawler)
    ever, candidates = np.zeros(2000, np.bool_), 0
    for _ in range(20):
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
