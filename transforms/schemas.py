"""The columns of every stage, declared once, with units in their names.

A batch that crosses a stage carries exactly one of these schemas; `check` says in one message what is
missing, extra or of another type. Times are UTC microseconds.
"""

import pyarrow as pa

TIME = pa.timestamp("us", tz="UTC")


def _schema(kind: str, fields: list[tuple[str, pa.DataType]], **metadata: str) -> pa.Schema:
    """A schema that carries its own name, so that batches of several kinds can share one shuffle."""
    return pa.schema(fields, metadata={"recrawl": kind, **metadata})


# What the readers hand over, one row an input row. `digest_hash` is the stable 64-bit hash of the digest
# text, null where there is none (the digest of an empty body counts as none).
OBSERVATIONS = _schema(
    "observations",
    [
        ("url", pa.string()),
        ("fetched_at", TIME),
        ("status", pa.int16()),
        ("digest_hash", pa.uint64()),
        ("changed", pa.bool_()),
        ("not_modified", pa.bool_()),
        ("last_modified", TIME),
    ],
)
# Counts are fixed point, 2**-20 of a request: sums must not depend on the order of addition.
COUNT_UNIT = 2**-20
REQUESTS = _schema(
    "requests",
    [("url", pa.string()), ("day", pa.int32()), ("clicks", pa.int64()), ("impressions", pa.int64())],
)
SIGNALS = _schema("signals", [("url", pa.string()), ("signalled_at", TIME), ("source", pa.string())])
# Metadata columns of the catalogue follow these, as strings.
PAGES = _schema(
    "pages",
    [
        ("url", pa.string()),
        ("importance", pa.float64()),
        ("min_rate_per_day", pa.float64()),
        ("max_rate_per_day", pa.float64()),
    ],
)
HOSTS = _schema("hosts", [("host", pa.string()), ("max_per_day", pa.float64()), ("min_gap_seconds", pa.float64())])

# A row that could not be used: where it came from, why, and what it looked like.
REJECTED = _schema(
    "rejected",
    [("source", pa.string()), ("row", pa.int64()), ("reason", pa.string()), ("sample", pa.string())],
)


class SchemaError(ValueError):
    """A batch does not have the columns that its stage was promised."""


def kind_of(batch: pa.RecordBatch) -> str:
    """The name of the schema that a batch was made with."""
    return (batch.schema.metadata or {}).get(b"recrawl", b"").decode()


def check(batch: pa.RecordBatch, expected: pa.Schema, where: str) -> None:
    """Raise `SchemaError` if the batch's columns are not those of `expected`, in one message."""
    if batch.schema.equals(expected):
        return
    have = {f.name: f.type for f in batch.schema}
    want = {f.name: f.type for f in expected}
    problems = [f"missing {n} ({t})" for n, t in want.items() if n not in have]
    problems += [f"extra {n} ({t})" for n, t in have.items() if n not in want]
    problems += [f"{n} is {have[n]}, expected {t}" for n, t in want.items() if n in have and have[n] != t]
    problems = problems or ["the columns are in another order"]
    raise SchemaError(f"{where}: {'; '.join(problems)}")
