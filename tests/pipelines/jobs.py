"""Whole nights for tests: write the inputs, run `recrawl nightly` in this process, read what it left."""

from __future__ import annotations

import contextlib
import csv
import gzip
import hashlib
import io
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from pipelines.door import cli
from policies.judging.host_factors import COLUMNS
from tests.pipelines import plain_runner

Rows = Sequence[Mapping[str, Any]]
INPUTS = ("observations", "requests", "pages", "hosts", "signals")
DAY_US = 86_400_000_000


def at(day: float, hour: float = 0.0, second: float = 0.0) -> str:
    """ISO 8601 text of a moment, counted in days from 2026-06-01 UTC."""
    seconds = round(day * 86_400_000 + hour * 3_600_000 + second * 1000)
    moment = pa.scalar(1_780_272_000_000 + seconds, pa.timestamp("ms", tz="UTC")).as_py()
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def seen(
    url: str, moment: str, digest: str | None = "A", status: int | None = 200, **more: Any
) -> dict[str, Any]:
    """One row of a crawl log."""
    return {"url": url, "fetched_at": moment, "status": status, "digest": digest, **more}


def crawls(url: str, digests: str, first_day: float = 0.0, every_days: float = 1.0) -> list[dict[str, Any]]:
    """A page crawled at an even pace; letter by letter the digest that was found."""
    return [seen(url, at(first_day + i * every_days), d) for i, d in enumerate(digests)]


def write_rows(path: Path, rows: Rows, row_group_size: int | None = None) -> Path:
    """Write rows as the name's ending says: .parquet, .jsonl, .csv, the latter two also .gz."""
    path.parent.mkdir(parents=True, exist_ok=True)
    names = list(dict.fromkeys(n for row in rows for n in row))
    if path.suffix == ".parquet":
        table = pa.table({n: pa.array([row.get(n) for row in rows]) for n in names})
        pq.write_table(table, path, row_group_size=row_group_size)
        return path
    text = io.StringIO()
    if ".jsonl" in path.name:
        text.writelines(json.dumps(row) + "\n" for row in rows)
    else:
        table = csv.DictWriter(text, names)
        table.writeheader()
        table.writerows(rows)
    data = text.getvalue().encode()
    path.write_bytes(gzip.compress(data, mtime=0) if path.suffix == ".gz" else data)
    return path


@dataclass
class Night:
    """A finished run: its exit code, what it printed, and its output folder."""

    code: int
    printed: str
    complaints: str
    folder: Path

    @property
    def manifest(self) -> dict[str, Any]:
        """The manifest; fails where the night is not committed."""
        return json.loads((self.folder / "manifest.json").read_text())

    @property
    def committed(self) -> bool:
        return (self.folder / "manifest.json").exists()

    @property
    def counters(self) -> dict[str, int]:
        return self.manifest["counters"]

    def table(self, kind: str) -> pa.Table:
        """All shards of one kind, in order of shards."""
        files = sorted((self.folder / kind).glob("shard-*.parquet"))
        return pa.concat_tables([pq.read_table(f) for f in files]) if files else pa.table({})

    def rows(self, kind: str) -> list[dict[str, Any]]:
        return self.table(kind).to_pylist()

    def page(self, url: str) -> dict[str, Any]:
        """The one row that `pages/` has of a URL."""
        (row,) = [r for r in self.rows("pages") if r["url"] == url]
        return row

    def urls(self) -> list[str]:
        return sorted(r["url"] for r in self.rows("pages"))

    def slots_of(self, *urls: str) -> list[dict[str, Any]]:
        """The slots of some pages, by time."""
        return sorted((r for r in self.rows("schedule") if r["url"] in urls), key=lambda r: r["due_at"])

    def rejected(self) -> list[dict[str, Any]]:
        return self.rows("rejected")

    def digests(self, *kinds: str) -> dict[str, str]:
        """SHA-256 of every file, or of those under some folders, by relative path."""
        found = sorted(p for p in self.folder.rglob("*") if p.is_file())
        names = {p.relative_to(self.folder).as_posix(): p for p in found}
        return {
            name: hashlib.sha256(path.read_bytes()).hexdigest()
            for name, path in names.items()
            if not kinds or name.startswith(tuple(f"{k}/" for k in kinds))
        }


def hosts_without_forecasts(night: Night) -> list[dict[str, Any]]:
    """Rows of `slots/hosts` but for what became of forecasts."""
    return [{k: v for k, v in row.items() if k not in COLUMNS} for row in night.rows("slots/hosts")]


def command(*arguments: str) -> tuple[int, str, str]:
    """Run `recrawl` with arguments: exit code, standard output, standard error."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err), plain_runner.chosen():
        try:
            code = cli.main(list(arguments))
        except SystemExit as stop:  # argparse
            code = int(stop.code or 0)
    return code, out.getvalue(), err.getvalue()


def nightly(folder: Path, name: str = "night", *, flags: Iterable[str] = (), **options: Any) -> Night:
    """Run one night.

    Parameters
    ----------
    folder : Path
        Inputs and outputs go below it.
    name : str
        Of the output folder.
    flags : iterable of str
        Further arguments as they are.
    **options
        Options of `recrawl nightly`. For inputs also rows, which are written first (to CSV unless they
        hold other things than text). Defaults: budget 10, as_of 2026-07-01, 2 shards, any number of
        rejected rows.
    """
    values: dict[str, Any] = {
        "budget": 10,
        "as_of": at(30),
        "num_shards": 2,
        "max_rejected_fraction": 1,
        "output": folder / name,
    }
    for option, value in options.items():
        if option in INPUTS and isinstance(value, list):
            value = write_rows(folder / "inputs" / f"{name}-{option}.jsonl", value)
        values[option] = value
    arguments = [f"--{option}={value}" for option, value in values.items() if value is not None]
    code, printed, complaints = command("nightly", *arguments, *flags)
    return Night(code, printed, complaints, Path(values["output"]))
