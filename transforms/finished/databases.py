"""A night's schedule as a table of a database: readers see one whole night or the other.

All happens in one transaction. The table is emptied and filled, not made anew: what others have granted or
built on it stays.
"""

from __future__ import annotations

import io
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from datetime import datetime, timedelta
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv

from policies.numerics.errors import RecrawlError
from transforms.batches.schemas import TIME
from transforms.finished.merging import merged
from transforms.finished.nights import Night

KINDS = ("sqlite", "postgres")
SCHEDULE, NIGHT = "recrawl_schedule", "recrawl_night"
_TYPES = {
    "crawl": "bigint PRIMARY KEY",
    "due_at": "timestamptz NOT NULL",
    "url": "text NOT NULL",
    "host": "text NOT NULL",
    "reason": "text",
    "crawl_rate_per_day": "double precision",
    "weight": "double precision",
    "value": "double precision",
}
_COLUMNS = ", ".join(_TYPES)
_OF_NIGHT = {"as_of": "timestamptz NOT NULL", "until": "timestamptz NOT NULL", "crawls": "bigint NOT NULL"}


class DatabaseError(RecrawlError):
    """The database did not take the schedule; the one that it had is in force."""


def export_to(kind: str, night: Night, where: str) -> int:
    """Put the schedule of a night in the place of what the table holds; returns the crawls written.

    Parameters
    ----------
    kind : str
        One of `KINDS`.
    night : Night
    where : str
        File of SQLite; connection string or URL of PostgreSQL.

    Raises
    ------
    NightError
        The schedule cannot be read.
    DatabaseError
    """
    return (_to_sqlite if kind == "sqlite" else _to_postgres)(night, where)


def _statements(timestamp: str) -> list[str]:
    """What makes the tables where they are not there yet."""
    made = []
    for name, types in ((SCHEDULE, _TYPES), (NIGHT, _OF_NIGHT)):
        columns = ", ".join(f"{column} {type_}" for column, type_ in types.items())
        made.append(f"CREATE TABLE IF NOT EXISTS {name} ({columns.replace('timestamptz', timestamp)})")
    return [*made, f"CREATE INDEX IF NOT EXISTS {SCHEDULE}_due_at ON {SCHEDULE} (due_at)"]


def _tables(night: Night) -> Iterator[pa.Table]:
    """The columns of the table, in order of time, `crawl` counting the rows."""
    first = 0
    for table in merged(night):
        numbers = pa.array(range(first, first + table.num_rows), pa.int64())
        first += table.num_rows
        yield table.append_column("crawl", numbers).select(list(_TYPES))


def _span(night: Night) -> tuple[str, str]:
    as_of = datetime.fromisoformat(night.options["as_of"])
    until = as_of + timedelta(hours=float(night.options.get("horizon_hours", 24.0)))
    begin, end = _texts(pa.array([as_of, until], TIME)).to_pylist()
    return begin, end


def _texts(times: Any) -> Any:
    """ISO 8601 in UTC, to the microsecond: in order as texts, too."""
    return pc.strftime(times, format="%Y-%m-%dT%H:%M:%SZ")


def _to_sqlite(night: Night, path: str) -> int:
    try:
        with closing(sqlite3.connect(path, isolation_level=None)) as database:
            database.execute("PRAGMA journal_mode = WAL")  # who reads meanwhile is not held up
            database.execute("BEGIN IMMEDIATE")
            for statement in _statements("text"):
                database.execute(statement)
            database.execute(f"DELETE FROM {SCHEDULE}")
            rows = 0
            for table in _tables(night):
                due = table.schema.get_field_index("due_at")
                table = table.set_column(due, "due_at", _texts(table["due_at"]))
                places = ", ".join("?" * len(_TYPES))
                database.executemany(
                    f"INSERT INTO {SCHEDULE} ({_COLUMNS}) VALUES ({places})",
                    zip(*(column.to_pylist() for column in table.columns), strict=True),
                )
                rows += table.num_rows
            database.execute(f"DELETE FROM {NIGHT}")
            database.execute(f"INSERT INTO {NIGHT} VALUES (?, ?, ?)", (*_span(night), rows))
            database.execute("COMMIT")
            return rows
    except sqlite3.Error as error:
        raise DatabaseError(f"{path}: {error}. What the file held is as it was") from None


def _to_postgres(night: Night, where: str) -> int:
    import psycopg

    try:
        with psycopg.connect(where) as database, database.cursor() as cursor:
            for statement in _statements("timestamptz"):
                cursor.execute(statement.encode())
            # Another export waits; who reads does not.
            cursor.execute(f"LOCK TABLE {SCHEDULE}, {NIGHT} IN SHARE ROW EXCLUSIVE MODE".encode())
            cursor.execute(f"DELETE FROM {SCHEDULE}".encode())
            rows = 0
            with cursor.copy(f"COPY {SCHEDULE} ({_COLUMNS}) FROM STDIN (FORMAT csv)".encode()) as copy:
                for table in _tables(night):
                    text = io.BytesIO()
                    pa.csv.write_csv(table, text, pa.csv.WriteOptions(include_header=False))
                    copy.write(text.getvalue())
                    rows += table.num_rows
            cursor.execute(f"DELETE FROM {NIGHT}".encode())
            cursor.execute(f"INSERT INTO {NIGHT} VALUES (%s, %s, %s)".encode(), (*_span(night), rows))
        return rows
    except psycopg.Error as error:
        said = " ".join(str(error).split()).rstrip(" .?")
        raise DatabaseError(f"PostgreSQL: {said}. What the table held is as it was") from None
