"""Results of slot simulations by policy and number of pages, and comparisons of pairs for the claims."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from pipelines.experiments.figures.busa_fekete_runs import Cell, Part
from pipelines.experiments.figures.records import Claim, Columns
from policies.numerics.special import SURE
from policies.numerics.typing_ import FloatArray
from policies.simulation import statistics


def with_error(values: FloatArray, places: int = 4, sign: str = "") -> str:
    """Mean and standard error of repetitions in words; the mean alone of one."""
    mean = f"{values.mean():{sign}.{places}f}"
    if values.size < 2:
        return mean
    return f"{mean} ± {values.std(ddof=1) / np.sqrt(values.size):.{places}f}"


def surely_above(values: FloatArray) -> bool:
    """Whether the mean is above 0 by more than its error allows; the mean alone for one repetition."""
    if values.size < 2:
        return bool(values.mean() > 0.0)
    return bool(values.mean() > SURE * values.std(ddof=1) / np.sqrt(values.size))


class Measured:
    """All parts of a figure."""

    def __init__(self, parts: Sequence[Part]) -> None:
        self.parts = sorted(parts, key=lambda part: (part.task.pages, part.task.repetitions))
        self.pages = sorted({part.task.pages for part in parts})
        self.keys: list[tuple[str, tuple[tuple[str, float | str], ...]]] = list(
            dict.fromkeys((cell.policy, tuple(cell.more.items())) for cell in self.parts[0].cells)
        )

    def of(self, pages: int) -> list[Part]:
        """Parts with so many pages, in order of repetitions."""
        return [part for part in self.parts if part.task.pages == pages]

    def cells(self, policy: str, pages: int, **more: float | str) -> list[Cell]:
        """A policy's cells in order of repetitions."""
        return [
            cell
            for part in self.of(pages)
            for cell in part.cells
            if cell.policy == policy and more.items() <= cell.more.items()
        ]

    def accuracy(self, policy: str, pages: int, **more: float | str) -> FloatArray:
        """(R,) float64."""
        return np.concatenate([cell.accuracy for cell in self.cells(policy, pages, **more)])

    def rate(self, policy: str, pages: int) -> FloatArray:
        """Crawl rates of pages: (R, m) float64."""
        return np.concatenate([c.rate for c in self.cells(policy, pages) if c.rate is not None])

    def recall(self, pages: int) -> FloatArray:
        """(R, m) float64."""
        return np.concatenate([part.recall for part in self.of(pages) if part.recall is not None])

    def change_rate(self, pages: int) -> FloatArray:
        """(R, m) float64."""
        return np.concatenate([p.change_rate for p in self.of(pages) if p.change_rate is not None])

    def gain(self, policy: str, over: str, pages: int) -> FloatArray:
        """Accuracy less that of another policy, repetition by repetition."""
        return self.accuracy(policy, pages) - self.accuracy(over, pages)

    def columns(self) -> Columns:
        """`results.parquet`, sorted by pages, variant, policy and repetition."""
        names = ["policy", "pages", "repetition", "accuracy", "bandwidth"]
        extra = list(dict.fromkeys(key for _, more in self.keys for key, _ in more))
        optional = [
            name
            for name in ("sampled", "from_start")
            if not all(np.isnan(getattr(cell, name)).all() for part in self.parts for cell in part.cells)
        ]
        out: Columns = {name: [] for name in (*names, *extra, *(f"accuracy_{name}" for name in optional))}
        for pages in self.pages:
            for policy, more in self.keys:
                values = dict(more)
                for part in self.of(pages):
                    cell = next(c for c in part.cells if c.policy == policy and dict(c.more) == values)
                    for r, repetition in enumerate(part.task.repetitions):
                        row = [policy, pages, repetition, float(cell.accuracy[r]), cell.bandwidth]
                        row += [values[name] for name in extra]
                        row += [float(getattr(cell, name)[r]) for name in optional]
                        for column, value in zip(out.values(), row, strict=True):
                            column.append(value)
        return out

    def every(
        self,
        text: str,
        paper: str,
        values: Callable[[int], FloatArray],
        holds: Callable[[FloatArray], bool],
        places: int = 4,
        pages: Sequence[int] | None = None,
    ) -> Claim:
        """A claim about every number of pages; `values` are differences by repetition."""
        found = {m: values(m) for m in (self.pages if pages is None else pages)}
        words = ", ".join(f"m = {m}: {with_error(v, places, '+')}" for m, v in found.items())
        return Claim(text, all(holds(v) for v in found.values()), words, paper)


def wilcoxon(values: FloatArray, against: FloatArray) -> float:
    """p-value of the signed-rank test, two-sided."""
    return statistics.paired(values, against).p_value
