"""Pages in place of the data set of Kolobov et al. (18.5 million URLs), which is not to be had.

Kept from the papers: 5 % of the URLs are labelled, and they hold 26.4 % of the importance; precision and
recall of labelled URLs come from the upper tail, above 0.7 and 0.6, of others from below; "very few" signals
are near perfect. Made up: change rates are log-normal with median 0.05 a time unit and shape 1.5: three
changes for each crawl; importance is log-normal with shape 2; the lower precision is 0.7
times a Beta(1.5, 3.5), mean 0.21, the lower recall 0.6 times a Beta(1.5, 1.5), mean 0.3; the upper tails fall
off as Beta(1, 3) up to 1.
"""

from typing import Final

import numpy as np

from policies.greedy.crawl_values import HIGH_PRECISION, HIGH_RECALL
from policies.numerics.typing_ import FloatArray
from policies.simulation.streams import Instance

LABELLED: Final = 0.05
LABELLED_IMPORTANCE: Final = 0.264
_MEDIAN_RATE: Final = 0.05


def pages(m: int, rng: np.random.Generator) -> Instance:
    """m pages; the first 5 % are the labelled ones.

    Raises
    ------
    ValueError
        Fewer than 20 pages.
    """
    if m < 20:
        raise ValueError(f"{m} pages have no 5 % that is labelled; give at least 20")
    change = _MEDIAN_RATE * np.exp(1.5 * rng.standard_normal(m))
    importance = np.exp(2.0 * rng.standard_normal(m))
    top = np.arange(m) < round(LABELLED * m)
    importance[top] *= LABELLED_IMPORTANCE / importance[top].sum()
    importance[~top] *= (1.0 - LABELLED_IMPORTANCE) / importance[~top].sum()
    low = HIGH_PRECISION * rng.beta(1.5, 3.5, m), HIGH_RECALL * rng.beta(1.5, 1.5, m)
    high = (
        HIGH_PRECISION + (1.0 - HIGH_PRECISION) * rng.beta(1.0, 3.0, m),
        HIGH_RECALL + (1.0 - HIGH_RECALL) * rng.beta(1.0, 3.0, m),
    )
    precision, recall = (np.where(top, h, x) for h, x in zip(high, low, strict=True))
    nothing: FloatArray = np.zeros(m)
    return Instance(m * importance, change, nothing, nothing).with_signals(precision, recall)


def corrupted(share: float, given: Instance, rng: np.random.Generator) -> Instance:
    """The pages with a share of uniform noise in precision and recall (section 6.7).

    The paper prints ``recall = (1 - p) recall + xi``, which can be above 1; it must be ``+ p xi``.
    """
    noise = rng.random((2, len(given)))
    precision = (1.0 - share) * given.precision + share * noise[0]
    return given.with_signals(precision, (1.0 - share) * given.recall + share * noise[1])
