"""Clock factors of a shard's forecasts, and hosts that are better off without."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from policies.history.interval_sums import Intervals
from policies.history.page_state import Forgetting, PageState
from policies.judging.recalibration import CELLS, HALF_LIFE_DAYS, KINDS, NO_CELL
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


def _slots(pages: ShardPages, rows: np.ndarray, cell: list[int | None]) -> pa.Table:
    n = len(rows)
    columns = {
        "url_hash": pa.array(pages.url_hash[rows]),
        "host_hash": pa.array(pages.host_hash[rows]),
        "last_slot_at": times(np.full(n, DAY_US)),
        **{name: pa.array(np.full(n, 0.5), pa.float32()) for name in ("change_rate_per_day", "weight")},
        "information": pa.array(np.full(n, 4.0), pa.float32()),
        "forecast_cell": pa.array(cell, pa.int16()),
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
    slots = _slots(pages, rows, [3, 7, 3, None, 20])
    code = pages.code(slots.column("url_hash").to_numpy())
    forecast = forecast_of(slots, code, PageState.empty(len(pages)), Forgetting(), 0)
    return ShardFactors(slots, code, _hosts(pages, gain), pages, forecast, factors)


def test_forecasts_have_the_factors_of_their_cells():
    found = _factors({0: None, 1: 2.0}).forecast.change_rate_per_day / 0.5
    np.testing.assert_allclose(found, [FACTORS[3], FACTORS[7], FACTORS[3], 1.0, FACTORS[20]])
    of = _factors({}).of(np.array([5, 9]))
    assert of is not None
    np.testing.assert_allclose(of, [[FACTORS[CELLS + 3], FACTORS[2 * CELLS + 3]], [1.0, 1.0]])


def test_the_first_night_has_none():
    without = _factors({}, None)
    assert (without.forecast.change_rate_per_day == 0.5).all() and without.of(np.array([0])) is None
    assert (without.gains() == 0.0).all()


def test_hosts_that_have_lost_are_left_without():
    factors = _factors({0: -0.1, 1: 0.0})
    found = factors.forecast.change_rate_per_day / 0.5
    np.testing.assert_allclose(found, [1.0, 1.0, FACTORS[3], 1.0, FACTORS[20]])
    of = factors.of(np.array([0, 5]))
    assert of is not None and (of[0] == 1.0).all() and (of[1] != 1.0).all()


@pytest.mark.parametrize("before", [-3.0, 0.0, 3.0])
def test_gains_go_on_whether_factors_are_used_or_not(before):
    """Host 0 found no change where its factors promised fewer: a gain."""
    factors = _factors({0: before})
    page = np.array([0, 1, 9])
    factors(0, Intervals(page, np.full(3, DAY_US), np.full(3, DAY_US), np.zeros(3, bool), None))
    kept = before * 0.5 ** (1.0 / HALF_LIFE_DAYS)
    expected = sum(4.0 * (np.log1p(0.125) - np.log1p(0.125 * FACTORS[cell])) for cell in (3, 7))
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
