"""Clock factors of a shard's forecasts, and hosts that are better off without."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from policies.estimation.forecast import Clocks
from policies.history.interval_sums import Intervals
from policies.history.page_state import Forgetting, PageState
from policies.judging.host_factors import COLUMNS, GAIN_UNIT, HALF_LIFE_DAYS, MOST_LOST_NATS, Corrections
from policies.judging.recalibration import (
    CELLS,
    EXPECTED_EDGES,
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
KEPT = 0.5 ** (1.0 / HALF_LIFE_DAYS)


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


def _hosts(pages: ShardPages, gain: dict[int, float | None], **came: list[float]) -> pa.Table:
    """By place of the host; a host may have several rows, of its parts."""
    hashes = pages.host_hash[pages.host_start[:-1]]
    return pa.table(
        {
            "host_hash": pa.array(hashes[list(gain)]),
            "forecast_gain": pa.array(list(gain.values()), pa.float32()),
            **{
                name: pa.array(came.get(name, []) or [None] * len(gain), pa.float32()) for name in COLUMNS[1:]
            },
        }
    )


def _factors(
    gain: dict[int, float | None], factors: np.ndarray | None = FACTORS, **came: list[float]
) -> ShardFactors:
    pages = _pages()
    rows = np.array([0, 1, 5, 9, 10])
    slots = _slots(pages, rows, [3, 7, 3, None, 2])
    code = pages.code(slots.column("url_hash").to_numpy())
    forecast = forecast_of(slots, code, PageState.empty(len(pages)), Forgetting(), 0)
    return ShardFactors(slots, code, _hosts(pages, gain, **came), pages, forecast, factors)


def _crawls(page: list[int]) -> Intervals:
    """A day each, in which half a change is expected: in the sixth of a row's cells."""
    day = np.full(len(page), DAY_US)
    return Intervals(np.array(page), day, day, np.zeros(len(page), bool), None)


def _unchanged(factor: float) -> float:
    """Log of the probability that such a crawl finds no change."""
    return float(-4.0 * np.log1p(0.125 * factor))


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
    without(0, _crawls([0]))
    assert (np.array(without.hosts.columns()) == 0.0).all() and without.corrections({}) == Corrections()


def test_hosts_that_have_lost_are_left_without():
    found = _factors({0: -0.6, 1: -0.4}).of(0, _crawls([0, 1, 5, 9, 10]))
    assert found is not None
    np.testing.assert_allclose(found, [1.0, 1.0, FACTORS[_cell(3)], 1.0, FACTORS[_cell(2)]])


@pytest.mark.parametrize("before", [-3.0, 0.0, 3.0])
def test_gains_go_on_whether_factors_are_used_or_not(before):
    """Host 0 found no change where its factors promised fewer: a gain."""
    factors = _factors({0: before})
    factors(0, _crawls([0, 1, 9]))
    expected = sum(_unchanged(1.0) - _unchanged(FACTORS[_cell(c)]) for c in (3, 7))
    np.testing.assert_allclose(factors.hosts.gain, [KEPT * before - expected, 0.0, 0.0], atol=1e-8)
    assert expected < 0.0
    assert factors.sums.crawls.sum() == 2 and NO_CELL < 0  # page 9 has no cell
    # The hazard is that with the factors as they are used, and a loss is what it says of no change.
    used = [FACTORS[_cell(c)] if before > -MOST_LOST_NATS else 1.0 for c in (3, 7)]
    hazard = -sum(_unchanged(f) for f in used)
    np.testing.assert_allclose(factors.hosts.hazard, [hazard, 0.0, 0.0], rtol=1e-8)
    told = factors.corrections({})
    assert (told.crawls, told.by_host) == (2, (1, before > -MOST_LOST_NATS, 1))
    np.testing.assert_allclose(told.by_rates * GAIN_UNIT, -2.0 * _unchanged(1.0))
    np.testing.assert_allclose(told.corrected * GAIN_UNIT, hazard)


def test_a_host_has_a_factor_of_its_own_where_it_gains():
    """Seven changes where two were expected, and three more of each: twice the clock."""
    came = {"forecast_events": [7.0, 7.0], "forecast_hazard": [2.0, 2.0], "forecast_own_gain": [-0.6, -0.4]}
    page = [0, 5, 9]
    factors = _factors({0: 0.0, 1: -1.0}, **came)
    found = factors.of(0, _crawls(page))
    np.testing.assert_allclose(found, [FACTORS[_cell(3)], 2.0, 1.0])
    factors(0, _crawls(page))
    off, used = FACTORS[_cell(3)], 2.0
    gains = [_unchanged(2.0 * off) - _unchanged(off), _unchanged(used) - _unchanged(1.0)]
    expected = [KEPT * before + gain for before, gain in zip((-0.6, -0.4), gains, strict=True)]
    np.testing.assert_allclose(factors.hosts.own_gain, [*expected, 0.0], atol=1e-7)
    np.testing.assert_allclose(factors.hosts.events, [KEPT * 7.0, KEPT * 7.0, 0.0], rtol=1e-4)
    told = factors.corrections({})
    np.testing.assert_allclose(told.corrected * GAIN_UNIT, -_unchanged(off) - _unchanged(used))


def test_of_the_parts_of_a_host_the_least_gain_counts_and_the_mean_of_what_came():
    pages = _pages()
    parts = [
        _hosts(pages, {0: gain}, forecast_events=[events], forecast_hazard=[1.0])
        for gain, events in ((1.0, 2.0), (-2.0, 4.0), (None, 6.0))
    ]
    of_nothing = forecast_of(None, None, PageState.empty(len(pages)), Forgetting(), 0)
    for order in (parts, parts[::-1]):
        none = ShardFactors(None, None, pa.concat_tables(order), pages, of_nothing, FACTORS).hosts
        np.testing.assert_allclose(none.gain, [-2.0 * KEPT, 0.0, 0.0])
        np.testing.assert_allclose(none.events, [4.0 * KEPT, 0.0, 0.0])
        np.testing.assert_allclose(none.factors()[1:], 1.0)
