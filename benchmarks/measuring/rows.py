"""One measured figure and how it is printed."""

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Row:
    """A figure, its unit and the value to stay below (None: for information)."""

    name: str
    value: float
    unit: str
    target: float | None = None

    @property
    def ratio(self) -> float | None:
        """Figure over target; at most 1 is good."""
        return None if self.target is None else self.value / self.target


def show(rows: Iterable[Row]) -> None:
    """Prints a table: figure, target, ratio."""
    print(f"{'what':<64} {'figure':>10} {'target':>10} {'ratio':>6}  unit")
    for row in rows:
        target = "" if row.target is None else f"{row.target:.4g}"
        ratio = "" if row.ratio is None else f"{row.ratio:.2f}"
        print(f"{row.name:<64} {row.value:>10.4g} {target:>10} {ratio:>6}  {row.unit}")
