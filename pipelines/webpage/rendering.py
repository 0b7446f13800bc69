"""The one template of all pages, filled."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from pathlib import Path

import jinja2

from pipelines.pictures.colours import COLOURS
from pipelines.webpage import parts


def rendered(
    title: str, subtitle: str, sections: Sequence[parts.Section], made_of: str, warnings: Sequence[str] = ()
) -> str:
    """A page as HTML that needs nothing else.

    Parameters
    ----------
    title, subtitle : str
    sections : sequence of Section
        Those that say nothing are left out.
    made_of : str
        For the last line: by which version, from which files.
    warnings : sequence of str
        They come first.
    """
    return _template().render(
        title=title,
        subtitle=subtitle,
        warnings=warnings,
        sections=[section for section in sections if section.says_something],
        made_of=made_of,
        colours=COLOURS,
        box=(int(parts.WIDTH), int(parts.HEIGHT)),
    )


@functools.cache
def _template() -> jinja2.Template:
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
    )
    return environment.get_template("report.html.j2")
