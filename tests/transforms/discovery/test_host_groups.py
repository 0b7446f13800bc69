"""Places of refreshes on the grid of a group of hosts."""

from __future__ import annotations

import numpy as np

from policies.sequencing.giants import host_slots
from transforms.discovery.host_groups import Shares

NIGHT_US = 86_400_000_000


def test_refreshes_take_the_slots_of_their_hosts_in_their_order_and_others_stay():
    rng = np.random.Generator(np.random.Philox(3))
    wanted = np.array([3.0, 1.0, 5.0, 2.0])
    slots, _ = host_slots(wanted, np.zeros(4), 11, 60_000_000, 0, NIGHT_US)
    names = rng.integers(1, 1 << 63, 6).astype(np.uint64)
    parts = {1: 2, 2: 0, 4: 1, 5: 3}
    shares = Shares(grid={int(names[h]): (slots, part) for h, part in parts.items()})
    host = rng.permutation(np.repeat([0, 1, 2, 4, 5], [4, 5, 3, 1, 2]))
    due_us = 7 * NIGHT_US + rng.integers(0, NIGHT_US, len(host))
    made = shares.place(names, host, due_us, 7 * NIGHT_US)
    assert (made[host == 0] == due_us[host == 0]).all()
    grouped = np.sort(made[host > 0])
    assert (np.diff(grouped) >= 60_000_000).all() and len(np.unique(grouped)) == 11
    for h, part in parts.items():
        mine = made[host == h][np.argsort(due_us[host == h])]
        assert (np.diff(mine) > 0).all()
        assert np.isin(mine - 7 * NIGHT_US, slots.offsets_us(part)).all()
