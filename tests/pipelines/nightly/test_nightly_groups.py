"""`--group_columns`: pages of a metadata group borrow from each other, whatever their hosts."""

from __future__ import annotations

import numpy as np
import pytest

from tests.pipelines.jobs import Night, at, crawls, nightly, seen, write_rows

# What is found on every fifth host, and so on: pages of a section differ, sections differ more.
SECTIONS = {
    "news": ("ABCDEF", "AABBCC", "AAAAAB", "AAABBC", "ABBCDD"),
    "about": ("AAAAAA", "AAAAAA", "AAAAAA", "AAAAAB", "AAAAAA"),
}


@pytest.fixture(scope="module")
def nights(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Night]:
    """30 hosts with one page of each section; five hosts more whose pages were crawled once or never."""
    folder = tmp_path_factory.mktemp("groups")
    rows, pages = [], []
    for host in range(35):
        for section, found in SECTIONS.items():
            digests = found[host % 5]
            url = f"https://h{host}.test/{section}"
            pages.append(
                {"url": url, "section": section, "lang": f"l{host % 2}", "note": "x" if host == 1 else ""}
            )
            if host < 34:
                rows += crawls(url, digests[: 1 if host >= 30 else 6], 20)
    log, catalogue = write_rows(folder / "log.csv", rows), write_rows(folder / "pages.csv", pages)
    runs = {
        "1": (1, "section"),
        "7": (7, "section"),
        "two": (2, "section,lang"),
        "swapped": (2, "lang, section"),
        "hosts": (2, None),
    }
    return {
        name: nightly(folder, name, observations=log, pages=catalogue, num_shards=n, group_columns=columns)
        for name, (n, columns) in runs.items()
    }


def _rates(night: Night, section: str, hosts: range) -> list[float]:
    pages = {r["url"]: r["change_rate_per_day"] for r in night.rows("pages")}
    return [pages[f"https://h{h}.test/{section}"] for h in hosts]


def test_pages_without_history_are_taken_for_their_group(nights):
    """h30..h33 were crawled once, h34 never: what is known of them is their section."""
    for name in ("1", "7", "two"):
        news, about = (_rates(nights[name], s, range(30, 35)) for s in ("news", "about"))
        assert min(news) > 3 * max(about)


def test_by_host_they_are_all_alike(nights):
    """With a page of each section on every host, the host says little."""
    rates = _rates(nights["hosts"], "news", range(30, 35)) + _rates(nights["hosts"], "about", range(30, 35))
    assert max(rates) < 3 * min(rates)


def test_groups_reach_over_shards(nights):
    one, seven = nights["1"], nights["7"]
    assert one.manifest["multiplier"] == seven.manifest["multiplier"]
    names = [n for n in one.table("pages").column_names if n not in ("owed", "n_slots")]
    tables = [n.table("pages").select(names).sort_by("url") for n in (one, seven)]
    for name in names:
        expected, got = (t.column(name).to_pylist() for t in tables)
        if isinstance(expected[0], float):
            assert got == pytest.approx(expected, rel=1e-9), name
        else:
            assert got == expected, name


def test_two_columns_make_finer_groups_and_their_order_is_no_matter_of_rates(nights):
    two, swapped = nights["two"], nights["swapped"]
    assert two.manifest["options"]["group_columns"] == ["section", "lang"]
    for section in SECTIONS:
        assert _rates(two, section, range(35)) == pytest.approx(_rates(swapped, section, range(35)), rel=1e-9)


def test_columns_pass_through(nights):
    for row in nights["7"].rows("pages"):
        host = int(row["host"][1:].removesuffix(".test"))
        assert row["section"] == row["url"].rsplit("/", 1)[1] and row["lang"] == f"l{host % 2}"
        assert (row["note"] or "") == ("x" if host == 1 else "")


def test_a_host_that_never_changes_beside_one_that_changes_daily(tmp_path):
    """200 pages each, 15 days of daily crawls: the still ones were thought to change every five days."""
    rng = np.random.Generator(np.random.Philox(key=4))
    rows = []
    for page in range(200):
        version = np.concatenate([[0], np.cumsum(rng.random(15) < -np.expm1(-1.0))])
        for day in range(16):
            rows.append(seen(f"https://busy.test/{page}", at(day), f"v{version[day]}"))
            rows.append(seen(f"https://still.test/{page}", at(day), "v0"))
    log = write_rows(tmp_path / "log.parquet", rows)
    night = nightly(tmp_path, "night", observations=log, budget=80, as_of=at(16), num_shards=3)
    hosts = {r["host"]: r for r in night.rows("hosts")}
    rates = {
        h: np.mean([r["change_rate_per_day"] for r in night.rows("pages") if r["host"] == h]) for h in hosts
    }
    assert 0.9 < rates["busy.test"] < 1.1
    assert rates["still.test"] < 0.015
    # The optimum of true rates is all for busy.test; at .0076 a day the still host's share is 12 of 80.
    assert hosts["still.test"]["crawl_rate_per_day"] < 20.0
