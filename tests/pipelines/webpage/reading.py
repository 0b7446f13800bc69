"""A page read back: its elements, as a browser without scripts has them."""

from __future__ import annotations

from dataclasses import dataclass, field
from html.parser import HTMLParser
from typing import Any

VOID = {"meta", "input", "link", "img", "br", "hr"}


@dataclass
class Element:
    """An element with what is in it."""

    tag: str
    attributes: dict[str, str | None]
    children: list[Any] = field(default_factory=list)

    @property
    def text(self) -> str:
        return "".join(c if isinstance(c, str) else c.text for c in self.children).strip()

    def all(self, *tags: str) -> list[Element]:
        """Those below it, in order."""
        found = []
        for child in self.children:
            if isinstance(child, Element):
                found += [child] if not tags or child.tag in tags else []
                found += child.all(*tags)
        return found


class _Reader(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.open = [Element("", {})]

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        element = Element(tag, dict(attrs))
        self.open[-1].children.append(element)
        if tag not in VOID:
            self.open.append(element)

    def handle_startendtag(self, tag: str, attrs: Any) -> None:
        self.open[-1].children.append(Element(tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open[-1].tag == tag, f"</{tag}> where <{self.open[-1].tag}> is open"
        self.open.pop()

    def handle_data(self, data: str) -> None:
        self.open[-1].children.append(data)


def read(text: str) -> Element:
    """The page; fails where an element is not closed in order."""
    reader = _Reader()
    reader.feed(text)
    reader.close()
    assert len(reader.open) == 1
    return reader.open[0]


def table(page: Element, caption: str) -> list[dict[str, Any]]:
    """Rows of the first table whose caption begins so: numbers as they are, all else as text."""
    (found, *_) = [t for t in page.all("table") if t.all("caption")[0].text.startswith(caption)]
    head, *rows = found.all("tr")
    names = [cell.text for cell in head.all("th")]
    return [dict(zip(names, map(_value, row.all("th", "td")), strict=True)) for row in rows]


def _value(cell: Element) -> Any:
    (number,) = cell.all("data") or [None]
    return cell.text if number is None else float(str(number.attributes["value"]))


def tiles(page: Element) -> dict[str, float]:
    """The large figures by name."""
    found = {}
    for group in page.all("dl"):
        for entry in group.all("div"):
            found[entry.all("dt")[0].text] = float(str(entry.all("data")[0].attributes["value"]))
    return found
