"""What `recrawl reproduce` says: tables and claims on screen, as a report, and in a document of reports."""

from __future__ import annotations

import os
import re
import textwrap
from collections.abc import Sequence
from typing import Final

from pipelines.experiments.figures.records import Claim, Figure, Made, Table

WIDTH: Final = 110
_MARK: Final = "<!-- {}: written by recrawl reproduce -->"
_END: Final = "<!-- end of {} -->"


def listing(every: Sequence[Figure]) -> str:
    """All figures with their sizes."""
    rows = [
        [
            f.name,
            f.title,
            ",".join(str(n) for n in f.pages),
            str(f.repetitions),
            f"{f.until:g}" if f.until else "",
        ]
        for f in every
    ]
    return _text(Table("", ["figure", "what", "pages", "repetitions", "time"], rows))


def command(figure: Figure, pages: Sequence[int], repetitions: int, until: float | None, seed: int) -> str:
    """The command that makes these numbers; what is the figure's default is left out."""
    words = [f"recrawl reproduce {figure.name}"]
    if tuple(pages) != tuple(sorted(figure.pages)):
        words.append(f"--pages {','.join(str(n) for n in pages)}")
    if repetitions != figure.repetitions:
        words.append(f"--repetitions {repetitions}")
    if until is not None and until != figure.until:
        words.append(f"--until {until:g}")
    if seed:
        words.append(f"--seed {seed}")
    return " ".join([*words, "--output DIR"])


def on_screen(figure: Figure, made: Made) -> str:
    """Tables and claims for a terminal."""
    parts = [f"{figure.paper}: {figure.title}"]
    parts += [_text(table) for table in made.tables]
    parts.append(_claims_text(made.claims))
    return "\n\n".join(parts)


def _text(table: Table) -> str:
    rows = [table.heads, *table.rows]
    widths = [max(len(row[j]) for row in rows) for j in range(len(table.heads))]
    lines = ["  ".join(cell.ljust(w) for cell, w in zip(row, widths, strict=True)).rstrip() for row in rows]
    return "\n".join(([table.title] if table.title else []) + lines)


def verdict(claims: Sequence[Claim]) -> str:
    """How many claims hold."""
    held = sum(claim.holds for claim in claims)
    return f"{held} of {len(claims)} claims hold"


def _claims_text(claims: Sequence[Claim]) -> str:
    lines = [verdict(claims)]
    for claim in claims:
        lines += textwrap.wrap(
            claim.text, WIDTH, initial_indent="yes  " if claim.holds else "NO   ", subsequent_indent=" " * 5
        )
        for who, what in (("ours", claim.ours), ("paper", claim.paper)):
            lines += textwrap.wrap(
                what, WIDTH, initial_indent=f"     {who + ':':<7}", subsequent_indent=" " * 12
            )
    return "\n".join(lines)


def report(figure: Figure, made: Made, command: str, pictures: Sequence[str], level: int = 1) -> str:
    """The report as Markdown.

    Parameters
    ----------
    figure, made
    command : str
        That makes it.
    pictures : sequence of str
        Paths, as seen from the report; PNG files are shown.
    level : int
        Of the heading.
    """
    shown = [f"![{figure.title}]({path})" for path in pictures if path.endswith(".png")]
    parts = [
        f"{'#' * level} {figure.name}: {figure.title}",
        f"{figure.paper}.",
        f"    {command}",
        "\n".join(textwrap.wrap(figure.setting, WIDTH, break_on_hyphens=False)),
        *shown,
        *(_markdown(table) for table in made.tables),
        f"{verdict(made.claims)}.",
        _markdown(
            Table(
                "",
                ["holds", "claim", "ours", "the paper"],
                [["yes" if c.holds else "**no**", c.text, c.ours, c.paper] for c in made.claims],
            )
        ),
    ]
    return "\n\n".join(parts) + "\n"


def _markdown(table: Table) -> str:
    rows = [table.heads, ["---"] * len(table.heads), *table.rows]
    lines = ["| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in rows]
    return (f"{table.title}:\n\n" if table.title else "") + "\n".join(lines)


def put(
    path: str, figure: Figure, made: Made, command: str, pictures: dict[str, bytes], order: Sequence[str]
) -> None:
    """Put the report into a document, in place of the last one of this figure, or in its place in `order`.

    Pictures (PNG) go to pictures/ beside the document.
    """
    folder = os.path.join(os.path.dirname(path), "pictures")
    small = {name: data for name, data in pictures.items() if name.endswith(".png")}
    if small:
        os.makedirs(folder, exist_ok=True)
    for name, data in small.items():
        with open(os.path.join(folder, name), "wb") as target:
            target.write(data)
    mark, end = _MARK.format(figure.name), _END.format(figure.name)
    text = report(figure, made, command, [f"pictures/{name}" for name in small], level=2)
    text = f"{mark}\n\n{text}\n{end}"
    before = ""
    if os.path.exists(path):
        with open(path, encoding="utf-8") as source:
            before = source.read()
    found = re.search(re.escape(mark) + ".*?" + re.escape(end), before, re.DOTALL)
    later = [before.find(_MARK.format(name)) for name in order[order.index(figure.name) + 1 :]]
    places = [place for place in later if place >= 0]
    if found:
        after = before[: found.start()] + text + before[found.end() :]
    elif places:
        after = f"{before[: min(places)]}{text}\n\n{before[min(places) :]}"
    else:
        after = f"{before.rstrip()}\n\n{text}\n".lstrip()
    with open(path, "w", encoding="utf-8") as target_text:
        target_text.write(after)
