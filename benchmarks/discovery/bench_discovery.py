"""What a link costs the discovery job, and its state."""

import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from benchmarks.measuring.rows import Row
from pipelines.discovery.arguments import add_arguments
from pipelines.discovery.discover import Settings, run_job
from pipelines.door.cli import _Parser

SITES, LINKS, FAILING = 50, 40, 0.1
PER_FILE = 48_000
"""Sources in a file of a log at most, a multiple of 3."""
START_S = 1_767_052_800


def links(sources: int, hours: int, number: int, first: int = 0) -> pa.Table:
    """A log: each source is fetched every hour and shows 40 links, of which some are of the fetch before.

    A third of the links are those of another source of the site. Rows are in the order of fetches, of which
    one in ten fails.
    """
    rng = np.random.Generator(np.random.Philox(key=[number, first]))
    source = np.tile(np.repeat(np.arange(sources), LINKS), hours)
    hour = np.repeat(np.arange(hours), sources * LINKS)
    place = np.tile(np.arange(LINKS), sources * hours)
    of = np.where(place < LINKS // 3, source - source % 3, source)
    target = 6 * (hour + number) + place
    every = range(first, first + sources)
    names = [f"https://www.site{s % SITES}.test/section/of/news/{s}" for s in every]
    part = pa.array(target.astype(str))
    base = pa.array([f"https://www.site{s % SITES}.test/{s}/an-article-with-a-name-" for s in every])
    jitter = rng.integers(0, 3600, sources * hours)
    status = np.where(rng.random(sources * hours) < FAILING, 503, 200).astype(np.int16)
    at = START_S + 86_400 * number + 3600 * hour + np.repeat(jitter, LINKS)
    return pa.table(
        {
            "source": pa.array(names).take(pa.array(source)),
            "target": pc.binary_join_element_wise(base.take(pa.array(of)), part, ""),
            "seen_at": pa.array(at * 1_000_000, pa.timestamp("us", tz="UTC")),
            "status": pa.array(np.repeat(status, LINKS)),
        }
    )


def settings(output: Path, *words: str) -> Settings:
    """Of the command line."""
    parser = _Parser()
    add_arguments(parser)
    return Settings.of(parser.parse_args([*words, f"--output={output}"]))


@contextmanager
def _clock(into: list[float]) -> Iterator[None]:
    before = time.process_time()
    yield
    into.append(time.process_time() - before)


def run(scale: float = 1.0) -> list[Row]:
    """All rows; `scale` 1 is 1.9 million links a night, the second of two nights, 21 a million sources."""
    few, many = max(int(2000 * scale), 60), max(int(48_000 * scale), 60)
    often, state, url, shown, known = _nights(few, 24)
    seldom, *_ = _nights(many, 1)
    return [
        Row("a night, each source seen every hour", often, "us/link", 3.0),
        Row("a night, each source seen once", seldom, "us/link", 3.0),
        Row("state of a source, its URL apart", state, "bytes", 64.0),
        Row("URL of a source in the state", url, "bytes", None),
        Row("links at the last visit", shown, "bytes/link", None),
        Row("targets known", known, "bytes/target", 9.0),
    ]


def _nights(sources: int, hours: int) -> tuple[float, float, float, float, float]:
    """Microseconds a link of the second night, and bytes of its state."""
    spent: list[float] = []
    shards = max(4, sources // 100_000)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for night in range(2):
            for first in range(0, sources, PER_FILE):
                rows = links(min(PER_FILE, sources - first), hours, night, first)
                pq.write_table(rows, folder / f"{night}-{first}.parquet", row_group_size=1 << 18)
            before = [f"--state={folder}/out0"] if night else []
            words = (
                f"--links={folder}/{night}-*.parquet", f"--budget={sources}", f"--num_shards={shards}",
                f"--as_of={np.datetime64(START_S + 86_400 * (night + 1), 's')}Z", *before,
            )  # fmt: skip
            with _clock(spent):
                run_job(settings(folder / f"out{night}", *words), ["--direct_num_workers=1"])
        size: dict[str, float] = defaultdict(float)
        known = 0
        for path in (folder / "out1" / "state").rglob("*.parquet"):
            of = pq.read_metadata(path)
            size[path.parent.name] += path.stat().st_size
            known += of.num_rows if path.parent.name == "known" else 0
            groups = [of.row_group(g) for g in range(of.num_row_groups)]
            columns = [group.column(i) for group in groups for i in range(of.num_columns)]
            size["url"] += sum(c.total_compressed_size for c in columns if c.path_in_schema == "url")
    return (
        1e6 * spent[1] / (sources * hours * LINKS),
        (size["sources"] - size["url"]) / sources,
        size["url"] / sources,
        size["shown"] / sources / LINKS,
        size["known"] / known,
    )
