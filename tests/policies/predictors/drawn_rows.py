"""Rows drawn for tests: pages whose hazard has known factors."""

import numpy as np

from policies.predictors.rows import Rows


def drawn_rows(k, seed=0, days=1.0, changed=None):
    rng = np.random.Generator(np.random.Philox(key=seed))
    count = rng.poisson(1.0, (3, k)).cumsum(axis=0).astype(float)
    return Rows(
        page=rng.integers(0, max(k // 20, 1), k),
        days=np.full(k, days),
        count=count,
        since_days=rng.exponential(5.0, k),
        ever=count[2] > 0,
        group_count=rng.exponential(1.0, (3, k)),
        group_since_days=rng.exponential(5.0, k),
        log_rate=np.log(rng.gamma(1.0, 0.1, k) + 0.01),
        day=np.sort(rng.integers(0, 60, k)),
        hour=rng.integers(0, 24, k),
        metadata=rng.integers(1, 5, (k, 2)),
        changed=np.zeros(k, np.bool_) if changed is None else changed,
    )
