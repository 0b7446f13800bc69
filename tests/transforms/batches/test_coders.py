"""The Arrow coders: nothing is lost, slices stay small, hints reach them."""

import pickle

import apache_beam as beam
import numpy as np
import pyarrow as pa
import pytest

from transforms.batches import schemas
from transforms.batches.coders import RecordBatchCoder, ShardTables, ShardTablesCoder
from transforms.batches.shard_tables import KEPT, SHUFFLED


def _batch(n: int, metadata: dict[bytes, bytes] | None = None) -> pa.RecordBatch:
    batch = pa.RecordBatch.from_pydict(
        {
            "url": pa.array([f"https://a.test/{i}" for i in range(n)]),
            "at": pa.array(np.arange(n), mask=np.arange(n) % 3 == 0).cast(schemas.TIME),
            "list": pa.array([[float(i)] * (i % 4) for i in range(n)], pa.list_(pa.float64())),
        }
    )
    return batch.replace_schema_metadata(metadata)


@pytest.mark.parametrize("n", [0, 1, 7, 1000])
@pytest.mark.parametrize("metadata", [None, {b"recrawl": b"state"}, {b"recrawl": b"x", **SHUFFLED}, KEPT])
def test_batch_round_trip(n, metadata):
    batch = _batch(n, metadata)
    coder = RecordBatchCoder()
    again = coder.decode(coder.encode(batch))
    assert again.equals(batch, check_metadata=True)
    again.validate(full=True)


def test_slice_is_encoded_alone():
    batch = _batch(200_000)
    encoded = RecordBatchCoder().encode(batch.slice(1000, 10))
    assert len(encoded) < 3000 < len(pickle.dumps(batch.slice(1000, 10)))
    assert RecordBatchCoder().decode(encoded).equals(batch.slice(1000, 10))


def test_tables_round_trip_reads_in_place():
    value = ShardTables(17, {"pages": _batch(1001), "bins": _batch(0), "x": _batch(3)})
    coder = ShardTablesCoder()
    encoded = coder.encode(value)
    again = coder.decode(encoded)
    assert again.shard == 17 and list(again.tables) == ["pages", "bins", "x"]
    for name, batch in value.tables.items():
        assert again.tables[name].equals(batch)
    numbers = again.tables["pages"].column("at").cast(pa.int64()).buffers()[1]
    assert numbers.address % 8 == 0


def test_size_estimate_is_close():
    for value, coder in (
        (_batch(5000), RecordBatchCoder()),
        (ShardTables(1, {"a": _batch(5000)}), ShardTablesCoder()),
    ):
        actual = len(coder.encode(value))
        assert 0.7 * actual < coder.estimate_size(value) < 1.5 * actual


@pytest.mark.parametrize("kind", [pa.RecordBatch, ShardTables])
def test_registered(kind):
    coder = beam.coders.registry.get_coder(kind)
    assert type(coder) in (RecordBatchCoder, ShardTablesCoder)
    assert coder.is_deterministic()
