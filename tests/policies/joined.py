"""Evidence of pages that is made in parts."""

from collections.abc import Sequence

import numpy as np

from policies.history.evidence import Evidence, empty


def concatenate(parts: Sequence[Evidence]) -> Evidence:
    """The pages of all parts, one part after the other."""
    if not parts:
        return empty()
    offset = np.cumsum([0] + [len(p.bin_weight) for p in parts])
    starts = [p.bin_start[:-1] + o for p, o in zip(parts, offset[:-1], strict=True)]
    return Evidence(
        np.concatenate([p.exposure_days for p in parts]),
        np.concatenate([p.dated_changes for p in parts]),
        np.concatenate([*starts, offset[-1:]]).astype(np.int64, copy=False),
        np.concatenate([p.bin_weight for p in parts]),
        np.concatenate([p.bin_days for p in parts]),
        np.concatenate([p.bin_days_squared for p in parts]),
    )
