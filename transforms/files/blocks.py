"""What readers of files are asked for, and what they yield.

A block is a record batch with the columns as the file has them, and the numbers of its rows. What cannot
be read becomes rejected rows between the blocks; what can never be right is an `InputError`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

# About one batch of these sizes at a time: large enough for vectorised passes, small enough for memory.
BATCH_ROWS = 1 << 20
BATCH_BYTES = 64 << 20
# Rows that are decoded at once: fewer cost calls, more cost cache misses and fresh memory.
READ_ROWS = 1 << 18
# Formats whose times are of UTC by no definition.
OF_ANY_ZONE = ("parquet", "avro", "jsonl", "csv", "scrapy", "access_log")


@dataclass(frozen=True, slots=True)
class RawBlock:
    """Rows as a file has them. `row`: the number of the first, or a function that returns all numbers."""

    batch: pa.RecordBatch
    row: int | Callable[[], NDArray[np.int64]]


@dataclass(frozen=True, slots=True)
class How:
    """How the files of an input are to be read.

    Attributes
    ----------
    form : str
        A name of `transforms.dialects.names`: "auto" looks at the file.
    columns : tuple of (str, str)
        Of recrawl's columns those that these files name otherwise, with their name there.
    options : tuple of (str, str)
        For the dialect.
    """

    form: str = "auto"
    columns: tuple[tuple[str, str], ...] = ()
    options: tuple[tuple[str, str], ...] = ()

    @property
    def tracking(self) -> str:
        """Of requests further parameters that are no part of a page, comma-separated."""
        return dict(self.options).get("tracking_parameters", "")

    @property
    def timezone(self) -> str:
        """Of times that name none; UTC if empty."""
        return next((value for name, value in self.options if name.endswith("_timezone")), "")


@dataclass(frozen=True, slots=True)
class Split:
    """A part of a file that is read in one go.

    Attributes
    ----------
    form : str
        parquet, avro, jsonl, csv, sitemap, or the name of a dialect; empty where the file is; broken where
        nothing can be read.
    groups : tuple of int
        For Parquet the first row group and the one after the last.
    row : int
        Number of the first row of the first row group.
    problem : tuple of str
        Reason and sample of a broken file.
    delimiter : str
        What sets columns of a table of text apart, empty for others.
    how : How
    """

    path: str
    form: str
    gzip: bool = False
    groups: tuple[int, int] = (0, 0)
    row: int = 0
    problem: tuple[str, str] = ("", "")
    delimiter: str = ""
    how: How = field(default_factory=lambda: How())

    @property
    def comma(self) -> bool:
        """Whether commas may begin fractions."""
        return self.delimiter == ";"

    @property
    def names_no_zone(self) -> bool:
        """Whether the format leaves it open of which zone its times are."""
        return self.form in OF_ANY_ZONE


Block = RawBlock | pa.RecordBatch
