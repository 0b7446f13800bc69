"""Time to make a corpus, per row of crawl logs: `python -m benchmarks.bench_synthesize`."""

import tempfile
import time
from pathlib import Path

from benchmarks.rows import Row, show
from pipelines.corpus.corpus import CorpusSpec
from pipelines.corpus.synthesize import synthesize


def run(scale: float = 1.0) -> list[Row]:
    """`scale` 1 is 100,000 pages with 20 rows each, and their clicks and signals."""
    pages = max(int(100_000 * scale), 100)
    spec = CorpusSpec(
        pages=pages,
        hosts=max(pages // 100, 1),
        days=30,
        observations=20 * pages,
        first_day=20605,
        requests_per_day=pages / 2,
    )
    with tempfile.TemporaryDirectory() as folder:
        begin = time.perf_counter()
        made = synthesize(spec, Path(folder))
        seconds = time.perf_counter() - begin
    return [Row("synthesize, all files", 1e6 * seconds / made["observations"], "us per observation", 3.0)]


if __name__ == "__main__":
    show(run())
