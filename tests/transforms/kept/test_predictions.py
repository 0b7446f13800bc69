"""Clock factors of a shard's forecasts, and hosts that are better off without."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from policies.estimation.forecast import Clocks
from policies.history.interval_sums import Intervals
from policies.history.page_state import Forgetting, PageState
from policies.judging.recalibration import (
    CELLS,
    EXPECTED_EDGES,
    HALF_LIFE_DAYS,
    HEARD,
    KINDS,
    NO_CELL,
    QUIET,
    cells,
)
from transforms.batches import schemas
from transforms.kept.judging import forecast_of
from transforms.kept.predictions import ShardFactors
from transforms.kept.state import times
from transforms.kept.statistics import slots_schema
from transforms.shards.catalogue import DAY_US
from transforms.shards.coding import ShardPages, code_pages

FACTORS = np.linspace(0.5, 1.5, KINDS * CELLS)


def _pages() -> ShardPages:
    rows = [{"url": f"https://{h}.test/{i}", "fetched_at": DAY_US} for h in "abc" for i in range(4)]
    return code_pages(None, [pa.RecordBatch.from_pylist(rows, schemas.OBSERVATIONS)])[0]


def _slots(pages: ShardPages, rows: np.ndarray, calm: list[int | None]) -> pa.Table:
    n = len(rows)
    columns = {
        "url_hash": pa.array(pages.url_hash[rows]),
        "host_hash": pa.array(pages.host_hash[rows]),
        "last_slot_at": times(np.full(n, DAY_US)),
        **{name: pa.array(np.full(n, 0.5), pa.float32()) for name in ("change_rate_per_day", "weight")},
        "information": pa.array(np.full(n, 4.0), pa.float32()),
        "calm_cell": pa.array(calm, pa.int16()),
    }
    fields = list(slots_schema())
    return pa.table([columns.get(f.name, pa.nulls(n, f.type)) for f in fields], schema=pa.schema(fields))


def _hosts(pages: ShardPages, gain: dict[int, float | None]) -> pa.Table:
    """By place of the host; a host may have several rows, of its parts."""
    hashes = pages.host_hash[pages.host_start[:-1]]
    return pa.table(
        {
            "host_hash": pa.array(hashes[list(gain)]),
            "forecast_gain": pa.array(list(gain.values()), pa.float32()),
        }
    )


def _factors(gain: dict[int, float | None], factors: np.ndarray | None = FACTORS) -> ShardFactors:
    pages = _pages()
    rows = np.array([0, 1, 5, 9, 10])
    slots = _slots(pages, rows, [3, 7, 3, None, 2])
    code = pages.code(slots.column("url_hash").to_numpy())
    forecast = forecast_of(slots, code, PageState.empty(len(pages)), Forgetting(), 0)
    return ShardFactors(slots, code, _hosts(pages, gain), pages, forecast, factors)


def _crawls(page: list[int]) -> Intervals:
    """A day each, in which half a change is expected: in the sixth of a row's cells."""
    day = np.full(len(page), DAY_US)
    return Intervals(np.array(page), day, day, np.zeros(len(page), bool), None)


def _cell(calm: int) -> int:
    return int(cells(np.array([calm], np.int16), np.array([0.5]))[0])


def test_crawls_have_the_factors_of_their_cells():
    page = [0, 1, 5, 9, 10]
    found = _factors({0: None, 1: 2.0}).of(0, _crawls(page))
    assert found is not None and _cell(3) == 3 * (len(EXPECTED_EDGES) + 1) + 5
    np.testing.assert_allclose(found, [FACTORS[_cell(c)] for c in (3, 7, 3)] + [1.0, FACTORS[_cell(2)]])
    full = np.ones(5)
    known = np.array([True, True, False, True, True])
    clocks = Clocks(known, 0.5 * full, full, np.array([1.0, 0.5, 0.5, 0.5, 0.5]), full, full)
    of = _factors({}).of(0, _crawls(page), clocks)
    assert of is not None
    heard = [FACTORS[HEARD * CELLS + _cell(c)] for c in (7, 2)]
    np.testing.assert_allclose(of, [FACTORS[QUIET * CELLS + _cell(3)], heard[0], 1.0, 1.0, heard[1]])


def test_the_first_night_has_none():
    without = _factors({}, None)
    assert without.of(0, _crawls([0])) is None
    assert (without.gains() == 0.0).all()


def test_hosts_that_have_lost_are_left_without():
    found = _factors({0: -0.1, 1: 0.0}).of(0, _crawls([0, 1, 5, 9, 10]))
    assert found is not None
    np.testing.assert_allclose(found, [1.0, 1.0, FACTORS[_cell(3)], 1.0, FACTORS[_cell(2)]])


@pytest.mark.parametrize("before", [-3.0, 0.0, 3.0])
def test_gains_go_on_whether_factors_are_used_or_not(before):
    """Host 0 found no change where its factors promised fewer: a gain."""
    factors = _factors({0: before})
    factors(0, _crawls([0, 1, 9]))
    kept = before * 0.5 ** (1.0 / HALF_LIFE_DAYS)
    expected = sum(4.0 * (np.log1p(0.125) - np.log1p(0.125 * FACTORS[_cell(c)])) for c in (3, 7))
    np.testing.assert_allclose(factors.gains(), [kept + expected, 0.0, 0.0], atol=1e-8)
    assert expected > 0.0
    assert factors.sums.crawls.sum() == 2 and NO_CELL < 0  # page 9 has no cell


def test_of_the_parts_of_a_host_the_least_gain_counts():
    pages = _pages()
    hosts = pa.concat_tables([_hosts(pages, {0: 1.0}), _hosts(pages, {0: -2.0}), _hosts(pages, {0: None})])
    none = ShardFactors(
        None,
        None,
        hosts,
        pages,
        forecast_of(None, None, PageState.empty(len(pages)), Forgetting(), 0),
        FACTORS,
    )
    np.testing.assert_allclose(none.gains(), [-2.0 * 0.5 ** (1.0 / HALF_LIFE_DAYS), 0.0, 0.0])
