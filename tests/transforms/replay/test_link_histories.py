"""Histories of links from rows: presences that touch are one, and sums are those of rows."""

import numpy as np

from policies.discovery.presences import NEVER
from transforms.batches.urls import site
from transforms.replay.link_histories import merged


def test_presences_that_touch_are_one() -> None:
    rows = [
        (0, 0, 1, 5), (0, 0, 3, 4), (0, 0, 5, 7), (0, 0, 9, NEVER), (0, 0, 10, 11), (0, 1, 2, 3),
        (1, 0, 1, 2), (1, 0, 1, 2), (1, 0, 3, 8),
    ]  # fmt: skip
    wanted = [(0, 0, 1, 7), (0, 0, 9, NEVER), (0, 1, 2, 3), (1, 0, 1, 2), (1, 0, 3, 8)]
    for seed in range(5):
        order = np.random.Generator(np.random.Philox(key=seed)).permutation(len(rows))
        columns = np.array([rows[i] for i in order], np.int64).T
        assert list(zip(*(x.tolist() for x in merged(*columns)), strict=True)) == wanted


def test_merging_keeps_what_is_there_at_every_time() -> None:
    rng = np.random.Generator(np.random.Philox(key=9))
    n = 3000
    source, target = rng.integers(0, 5, n), rng.integers(0, 40, n)
    appeared = rng.integers(0, 500, n)
    gone = appeared + rng.integers(1, 60, n)
    for at in (0, 17, 250, 499):
        there = (appeared <= at) & (gone > at)
        wanted = set(zip(source[there], target[there], strict=True))
        s, t, a, g = merged(source, target, appeared, gone)
        now = (a <= at) & (g > at)
        pairs = list(zip(s[now], t[now], strict=True))
        assert set(pairs) == wanted and len(pairs) == len(wanted)


def test_the_registered_part_of_a_host() -> None:
    hosts = {"www.bild.test": "bild.test", "a.test": "a.test", "localhost": "localhost", "[::1]": "[::1]"}
    hosts |= {"news.shop.co.uk": "shop.co.uk", "shop.com.au": "shop.com.au", "10.0.0.1": "10.0.0.1"}
    hosts |= {"a.b.kawasaki.jp": "a.b.kawasaki.jp", "www.ck": "www.ck", "me.github.io": "me.github.io"}
    assert {host: site(host) for host in hosts} == hosts
