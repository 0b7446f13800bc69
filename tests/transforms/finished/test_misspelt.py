"""What was meant: the same as comparing all, without comparing all."""

from __future__ import annotations

import difflib

import numpy as np
import pyarrow as pa
import pytest

from transforms.finished.misspelt import MOST_COMPARED, near

KNOWN = [
    f"https://shop.test/{word}/{i}" for word in ("offers", "gr\u00fc\u00dfe", "reviews") for i in range(300)
]


def _misspelt(text: str, random: np.random.Generator) -> str:
    at = int(random.integers(9, len(text)))
    how = random.integers(3)
    return text[:at] + ("", "x", text[at : at + 1] * 2)[how] + text[at + (how != 1) :]


@pytest.mark.parametrize("seed", range(8))
def test_the_nearest_of_many_is_that_of_all(seed: int) -> None:
    assert len(KNOWN) > 2 * MOST_COMPARED
    random = np.random.Generator(np.random.Philox(key=seed))
    meant = KNOWN[int(random.integers(len(KNOWN)))]
    asked = _misspelt(meant, random)
    found = near(asked, pa.chunked_array([KNOWN[:100], KNOWN[100:]]), 3)
    all_near = difflib.get_close_matches(asked, KNOWN, n=3, cutoff=0.8)

    def likeness(one: str) -> float:
        return difflib.SequenceMatcher(None, one, asked).ratio()

    assert likeness(found[0]) == likeness(all_near[0]) and len(found) == 3


def test_what_is_like_nothing_is_near_nothing() -> None:
    assert near("ftp://other.test/x", pa.chunked_array([KNOWN]), 3) == []
    assert near("", pa.chunked_array([KNOWN]), 3) == []
    assert near("x", pa.chunked_array([], pa.string()), 3) == []
