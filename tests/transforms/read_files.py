"""Files for tests: written in any format, read back to plain rows."""

import gzip
import json
import os

import fastavro
import pyarrow as pa
import pyarrow.parquet as pq

from transforms.files.filesystems import InputFile
from transforms.intake import formats
from transforms.intake.sources import read_split
from transforms.rows.normalise import KINDS

URL = "https://a.test/x"
OBSERVATIONS = [
    {"url": f"https://h{i % 7}.test/{i}", "fetched_at": 1767323045 + i, "status": 200, "digest": f"d{i % 3}"}
    for i in range(50)
]


def read_file(path, kind="observations", metadata=None):
    """Accepted and rejected rows of a file, as lists of dicts."""
    rows, rejected = [], []
    for split in formats.plan(InputFile(str(path), os.path.getsize(path)), kind):
        for tag, batch in read_split(split, KINDS[kind], metadata):
            (rows if tag == "rows" else rejected).extend(batch.to_pylist())
    return rows, rejected


def reasons(rejected):
    return sorted((r["row"], r["reason"]) for r in rejected)


def write_file(path, records, text=None):
    """The records in the format that the name says."""
    name = path.name
    if name.endswith(".parquet"):
        pq.write_table(pa.Table.from_pylist(records), path, row_group_size=7)
        return path
    if name.endswith(".avro"):
        kinds = {str: "string", int: "long"}
        fields = [{"name": n, "type": kinds[type(v)]} for n, v in records[0].items()]
        with open(path, "wb") as f:
            fastavro.writer(f, {"type": "record", "name": "r", "fields": fields}, records, sync_interval=100)
        return path
    if text is None and ".csv" in name:
        text = ",".join(records[0]) + "\n" + "".join(",".join(map(str, r.values())) + "\n" for r in records)
    elif text is None:
        text = "".join(json.dumps(r) + "\n" for r in records)
    data = text if isinstance(text, bytes) else text.encode()
    path.write_bytes(gzip.compress(data) if name.endswith(".gz") else data)
    return path
