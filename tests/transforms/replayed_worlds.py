"""Small worlds to replay."""

import numpy as np
import pyarrow as pa

from policies.history.page_state import US_PER_DAY
from policies.numerics.typing_ import FloatArray
from policies.simulation.histories import ChangeHistory
from transforms.replay.worlds import World, name_pages

START = 20_600 * US_PER_DAY


def poisson_world(
    rate_per_day: FloatArray, days: int, seed: int = 0, hosts: int = 2, appears_day: FloatArray | None = None
) -> World:
    """Pages that change by Poisson processes of these rates, (n,), from a day before the window on.

    With `appears_day`, (n,), from these days of the window on.
    """
    n = len(rate_per_day)
    rng = np.random.Generator(np.random.Philox(key=seed))
    first = np.full(n, START - US_PER_DAY)
    if appears_day is not None:
        first = START + (appears_day * US_PER_DAY).astype(np.int64)
    past = ChangeHistory.poisson(START, START + days * US_PER_DAY, rate_per_day, rng, first)
    url = pa.array([f"https://h{i * hosts // n}.test/{i:05d}" for i in range(n)])
    return World(past, url, *name_pages(url))
