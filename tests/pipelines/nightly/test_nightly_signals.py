"""Whole nights with signals: what moves, what does not, and what is said of it."""

from __future__ import annotations

import numpy as np
import pytest

from tests.pipelines.jobs import Night, Rows, at, crawls
from tests.pipelines.signalled import Host, World, after, crawls_per_page, moved, ping, trust

DAY = 20


def _column(night: Night, name: str, host: str) -> dict[str, float]:
    return {r["url"]: r[name] for r in night.rows("pages") if r["host"] == host}


# ---- a lastmod that is never touched


WEEKLY = 1 / 7


@pytest.fixture(scope="module")
def stale(tmp_path_factory: pytest.TempPathFactory) -> tuple[Night, Night]:
    """Six weeks of daily crawls of 107 pages that change weekly; 102 have a lastmod that never moves.

    The other five are announced the day they change. The second night ignores signals.
    """
    folder = tmp_path_factory.mktemp("stale")
    log: Rows = []
    signals = []
    for i in range(107):
        digests = "".join(chr(65 + (d + i) // 7) for d in range(42))
        log += crawls(f"https://s.test/{i}", digests, i / 107)
        if i < 5:
            first = (7 - i) % 7
            signals += [ping(f"https://s.test/{i}", d, "sitemap") for d in range(first, 42, 7) if d > 0]
    listed = "".join(
        f"<url><loc>https://s.test/{i}</loc><lastmod>2026-01-01</lastmod></url>" for i in range(107)
    )
    home = folder / "maps"
    home.mkdir()
    (home / "map.xml").write_text(
        f'<urlset xmlns="http://www.sitemaps.org/schemas/sitemap/0.9">{listed}</urlset>', "utf-8"
    )
    common = {"signals": signals, "sitemaps": f"{home}/*.xml", "budget": 40}
    first = after(folder, "first", None, 42, log, **common)
    plain = after(folder, "plain", None, 42, log, **common, objective="periodic")
    return first, plain


def test_a_stale_lastmod_does_not_suppress_crawls(stale):
    night, plain = stale
    assert night.manifest["options"]["objective"] == "signals"
    assert night.counters["lastmod_first_seen"] == 107 and night.counters["signals_counted"] > 25
    change, without = (_column(n, "change_rate_per_day", "s.test") for n in (night, plain))
    crawl, crawl_without = (_column(n, "crawl_rate_per_day", "s.test") for n in (night, plain))
    for i in range(5, 107):
        url = f"https://s.test/{i}"
        assert 0.75 * WEEKLY < change[url] < 1.3 * WEEKLY
        assert change[url] > 0.85 * without[url]
        assert crawl[url] > 0.9 * crawl_without[url] > 0.0
    row = trust(night, "s.test", "sitemap")
    assert row["signal_recall"] < 0.15 and row["signalling_pages"] == 5
    assert row["signal_recall"] - 3 * row["signal_recall_stderr"] < 5 / 107


# ---- two hosts, one to be trusted


PAGES, CRAWLS = 40, 40


def _calibration(url: str, host: str, i: int) -> tuple[list, list]:
    """Forty daily crawls; ten signals, all of them true or one of them."""
    rng = np.random.Generator(np.random.Philox(key=i))
    told = np.sort(rng.choice(np.arange(1, CRAWLS), 10, replace=False))
    # On the other host nine changes of ten are of days that no signal tells of.
    silent = np.setdiff1d(np.arange(1, CRAWLS), told)
    changes = told if host == "a.test" else np.append(told[:1], rng.choice(silent, 9, replace=False))
    times = np.sort(changes + 0.3)
    log = [
        {
            "url": url,
            "fetched_at": at(d + 0.9),
            "status": 200,
            "digest": f"v{np.searchsorted(times, d + 0.9)}",
        }
        for d in range(CRAWLS)
    ]
    return log, [ping(url, d + 0.5) for d in told.tolist()]


@pytest.fixture(scope="module")
def hosts_a_and_b(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Night]:
    folder = tmp_path_factory.mktemp("trust")
    log, signals = [], []
    for h, host in enumerate(("a.test", "b.test")):
        for i in range(PAGES):
            rows, told = _calibration(f"https://{host}/{i}", host, i + 100 * h)
            log += rows
            signals += told
    common = {"budget": 30, "num_shards": 1, "max_signal_shift": 1}
    first = after(folder, "first", None, CRAWLS, log, signals=signals, **common)
    nights = {"first": first}
    again = [r for r in log if r["fetched_at"] == at(CRAWLS - 0.1)]
    for name, host in (("quiet", None), ("a", "a.test"), ("b", "b.test")):
        told = [ping(f"https://{host}/{i}", CRAWLS + 0.5) for i in range(10)] if host else []
        told.append(ping("https://nobody.test/", CRAWLS + 0.5))
        nights[name] = after(folder, name, first, CRAWLS + 1, again, signals=told, **common)
    return nights


def test_both_numbers_are_in_the_report(hosts_a_and_b):
    night = hosts_a_and_b["first"]
    a, b = (trust(night, f"{n}.test") for n in "ab")
    assert a["signal_precision"] > 0.9 and a["signal_recall"] > 0.8
    assert b["signal_precision"] < 0.2 and b["signal_recall"] < 0.2
    for row in (a, b):
        assert 0.0 < row["signal_precision_stderr"] < 0.05 and row["signalling_pages"] == PAGES
    named = {h["host"]: h for h in night.manifest["signals"]["hosts"]}
    for row in (a, b):
        mine = named[row["host"]]
        assert mine["signal_precision"] == row["signal_precision"]
        assert mine["signal_recall_stderr"] == row["signal_recall_stderr"]
    (source,) = night.manifest["signals"]["sources"]
    assert source["source"] == "ping" and source["hosts"] == 2 and source["pages"] == 2 * PAGES
    assert b["signal_precision"] < source["signal_precision"] < a["signal_precision"]


def test_signals_of_a_move_slots_and_those_of_b_do_not(hosts_a_and_b):
    quiet = crawls_per_page(hosts_a_and_b["quiet"])
    signalled = {n: [f"https://{n}.test/{i}" for i in range(10)] for n in "ab"}
    gained = {}
    for name in "ab":
        now = crawls_per_page(hosts_a_and_b[name])
        gained[name] = sum(now[u] - quiet[u] for u in signalled[name])
    assert gained["a"] >= 8
    assert abs(gained["b"]) <= 2
    a = hosts_a_and_b["a"]
    by_signal = {r["url"] for r in a.rows("schedule") if r["reason"] == "signal"}
    assert len(by_signal & set(signalled["a"])) >= 5
    # They come first.
    first = [r["url"] for r in a.rows("schedule")][:5]
    assert set(first) <= set(signalled["a"])
    values = _column(a, "crawl_value", "a.test")
    others = [v for u, v in values.items() if u not in signalled["a"]]
    assert min(values[u] for u in signalled["a"]) > max(others)


# ---- one ping, one page


def test_a_ping_moves_its_page_alone(tmp_path):
    world = World({"x.test": Host(30, 0.2, 0.7, 0.6), "y.test": Host(30, 0.2)}, seed=2)
    first = after(
        tmp_path, "first", None, DAY, world.first_log(DAY, 0.6), signals=world.announced(0, DAY), budget=12
    )
    log = world.follow(first)
    url = next(
        u
        for u in world.changes
        if "x.test" in u and u not in crawls_per_page(first) and not world.announced(DAY, DAY + 1).count(u)
    )
    told = [r for r in world.announced(DAY, DAY + 1) if r["url"] != url]
    quiet = after(tmp_path, "quiet", first, DAY + 1, log, signals=told, budget=12)
    pinged = after(tmp_path, "pinged", first, DAY + 1, log, signals=[*told, ping(url, DAY + 0.8)], budget=12)
    before, now = ({r["url"]: r for r in n.rows("pages")} for n in (quiet, pinged))
    assert now[url]["signals_since_crawl"] == before[url]["signals_since_crawl"] + 1
    assert now[url]["crawl_value"] > 1.1 * before[url]["crawl_value"]
    for other in set(now) - {url}:
        for name in ("change_rate_per_day", "crawl_rate_per_day"):
            assert now[other][name] == pytest.approx(before[other][name], rel=0.02), (other, name)
        assert now[other]["signals_since_crawl"] == before[other]["signals_since_crawl"]
        assert now[other]["crawl_value"] == pytest.approx(before[other]["crawl_value"], rel=0.02)
        if "y.test" in other:
            assert now[other]["change_rate_per_day"] == before[other]["change_rate_per_day"]
    a, b = crawls_per_page(quiet), crawls_per_page(pinged)
    assert a.total() == b.total() == 12
    assert moved(a, b) <= 2 and b[url] >= a[url]


# ---- a flood


FLOODED, N_HOSTS, BUDGET = "flooded.test", 200, 1600


@pytest.fixture(scope="module")
def flood(tmp_path_factory: pytest.TempPathFactory) -> list[tuple[Night, Night]]:
    """Nights without and with 10,000 pings for a host that was trusted; its digests stay as they are.

    What a host can move is bounded by its pages: here it has twenty of four thousand.
    """
    folder = tmp_path_factory.mktemp("flood")
    hosts = {f"h{i}.test": Host(20, 0.2, 0.8, 0.6 if i % 3 == 0 else 0.0) for i in range(N_HOSTS)}
    hosts[FLOODED] = Host(20, 0.2, 0.8, 0.6)
    world = World(hosts)
    common = {"budget": BUDGET}
    log = world.first_log(DAY, 0.4)
    first = after(folder, "n0", None, DAY, log, signals=world.announced(0, DAY), **common)
    mine = [u for u in world.changes if FLOODED in u]
    for url in mine:
        world.changes[url] = world.changes[url][world.changes[url] < DAY]
        world.signals[url] = [s for s in world.signals[url] if s[0] < DAY]
    rng = np.random.Generator(np.random.Philox(key=5))
    pings = [ping(mine[i % 20], DAY + float(t)) for i, t in enumerate(rng.random(10_000))]
    calm = flooded = first
    nights = []
    for k, extra in enumerate((pings, [])):
        news, day = world.announced(DAY + k, DAY + k + 1), DAY + k + 1
        calm = after(folder, f"calm{k}", calm, day, world.follow(calm), signals=news, **common)
        flooded = after(
            folder, f"flooded{k}", flooded, day, world.follow(flooded), signals=news + extra, **common
        )
        nights.append((calm, flooded))
    return nights


@pytest.mark.slow
def test_a_flood_moves_less_than_a_hundredth_of_others_slots(flood):
    nights = flood
    assert nights[0][1].counters["signals"] > 10_000
    for calm, flooded in nights:
        others = [crawls_per_page(n, FLOODED) for n in (calm, flooded)]
        assert others[0].total() > 0.95 * BUDGET
        assert moved(*others) < 0.01 * others[0].total()
        assert flooded.manifest["multiplier"] == pytest.approx(calm.manifest["multiplier"], rel=0.01)


def test_a_flooded_host_is_trusted_less(flood):
    nights = flood
    last = trust(nights[1][1], FLOODED)
    assert last["signal_precision"] < 0.1
    assert trust(nights[1][0], FLOODED)["signal_precision"] > 3 * last["signal_precision"]
    # And nobody else.
    rows = [{r["host"]: r for r in n.rows("hosts") if r["source"]} for n in nights[1]]
    for host in set(rows[0]) - {FLOODED}:
        a, b = (r[host]["signal_precision"] for r in rows)
        assert a == pytest.approx(b, abs=0.02), host


def test_a_flooded_host_is_crawled_about_as_ever(flood):
    """Not starved either: else nobody would learn what its signals are worth."""
    a, b = (sum(r["host"] == FLOODED for pair in flood for r in pair[i].rows("schedule")) for i in (0, 1))
    assert 0 < a < 30 and 0 < b <= a + 20
