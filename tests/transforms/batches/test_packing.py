"""Packed times come back as they were, whatever their unit, span and gaps."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from transforms.batches.packing import pack_times, unpack_times
from transforms.batches.schemas import TIME

TIMES = st.one_of(
    st.none(),
    st.integers(-(2**62), 2**62),
    st.integers(1_700_000_000, 1_700_100_000).map(lambda s: s * 10**6),
)


@settings(max_examples=100, deadline=None)
@given(st.lists(TIMES, max_size=20))
def test_round_trip(times):
    batch = pa.RecordBatch.from_pydict(
        {"url": ["x"] * len(times), "at": pa.array(times, pa.int64()).cast(TIME)}
    )
    batch = batch.replace_schema_metadata({b"recrawl": b"observations"})
    again = unpack_times(pack_times(batch))
    assert again.equals(batch) and again.schema.metadata == batch.schema.metadata


@pytest.mark.parametrize("unit_us, bytes_a_row", [(1_000_000, 4), (1_000, 4), (1, 8)])
def test_a_day_fits_four_bytes_down_to_milliseconds(unit_us, bytes_a_row):
    at = (
        1_750_000_000_000_000 + np.arange(0, 86_400_000_000, 86_400_000_000 // 997 // unit_us * unit_us)[:900]
    )
    at[1] += unit_us
    packed = pack_times(pa.RecordBatch.from_pydict({"at": pa.array(at).cast(TIME)}))
    assert packed.column("at").nbytes == bytes_a_row * len(at)
