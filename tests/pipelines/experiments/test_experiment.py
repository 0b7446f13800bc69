"""What commands that compare policies share."""

import io
import threading
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pipelines.experiments import experiment
from pipelines.experiments.arguments import policies
from transforms.replay import backtesting, discovering, simulating

READS = 60


def test_a_table_that_is_read_leaves_nothing_to_threads_of_arrow(monkeypatch: pytest.MonkeyPatch) -> None:
    """A thread that gives Python's bytes back while the interpreter ends aborts the process."""
    buffer = io.BytesIO()
    table = pa.table({name: np.arange(60.0) for name in "abcdefgh"})
    pq.write_table(table, buffer, compression="zstd")
    released: list[int] = []

    class Owned(bytes):
        def __del__(self) -> None:
            released.append(threading.get_ident())

    class Source(io.BytesIO):
        def read(self, size: int | None = -1) -> Any:
            return Owned(super().read(size))

    monkeypatch.setattr(experiment.FileSystems, "open", lambda *_, **__: Source(buffer.getvalue()))
    for read in range(1, READS + 1):
        assert experiment.read_table("folder", "results.parquet").equals(table)
        assert released == [threading.get_ident()] * read


def test_the_help_says_what_each_policy_is() -> None:
    """The texts stand apart from the policies, which a help does not import."""
    assert list(policies.REPLAYED) == list(backtesting.POLICIES)
    assert tuple(policies.TOLD) == simulating.TOLD
    assert list(policies.DISCOVERING) == list(discovering.POLICIES)
