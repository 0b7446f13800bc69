"""A page read back: its elements, as a browser without scripts has them."""

from __future__ import annotations

import itertools
import re
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


def scrolled(page: Element) -> list[Element]:
    """What is wider than a small window: it scrolls by keys where the focus can go there."""
    return [e for e in page.all("div") if e.attributes.get("class") == "scroll"]


def check_page(text: str) -> Element:
    """What holds of every page: it needs nothing from elsewhere, and tells machines what it is made of."""
    found = read(text)
    for element in found.all():
        assert not {"src", "srcset", "action"} & element.attributes.keys(), element
        assert element.tag not in ("link", "iframe", "img", "object", "base"), element
        link = element.attributes.get("href") or "#"
        assert link.startswith("#")
    assert not re.search(r"@import|url\(", found.all("style")[0].text)
    assert len(found.all("script")) == 1
    assert "default-src 'none'" in text
    levels = [int(e.tag[1]) for e in found.all("h1", "h2", "h3", "h4")]
    assert levels.count(1) == 1 and levels[0] == 1
    assert all(two <= one + 1 for one, two in itertools.pairwise(levels))
    ids = [e.attributes["id"] for e in found.all() if "id" in e.attributes]
    assert len(ids) == len(set(ids))
    for element in found.all("a", "section", "svg"):
        for name in ("href", "aria-labelledby"):
            if name in element.attributes:
                assert str(element.attributes[name]).removeprefix("#") in ids
    for one in found.all("table"):
        head = one.all("thead")[0].all("th")
        assert one.all("caption")[0].text and head
        assert {cell.attributes["scope"] for cell in head} == {"col"}
        for row in one.all("tbody")[0].all("tr"):
            cells = row.all("th", "td")
            assert len(cells) == len(head) and cells[0].attributes["scope"] == "row"
            assert all("data-v" in cell.attributes for cell in cells)
    for svg in found.all("svg"):
        assert svg.attributes["role"] == "img" and svg.all("title")[0].text
    assert all(label.text and label.all("input") for label in found.all("label"))
    # Whoever has no mouse gets everywhere in the order of the page, and sees where that is.
    for element in found.all():
        assert element.attributes.get("tabindex", "0") == "0", element
        assert not [name for name in element.attributes if name.startswith("on")], element
    assert all(e.attributes["tabindex"] == "0" and e.attributes["aria-label"] for e in scrolled(found))
    assert found.all("body")[0].all("a")[0].attributes == {"class": "skip", "href": "#main"}
    style = found.all("style")[0].text
    ringed = re.findall(r"([^{}]*)\{\s*outline: 3px", style)[0]
    assert all(f"{what}:focus-visible" in ringed for what in (".scroll", "button", "input", "summary", "a"))
    assert "outline: none" not in style and "outline: 0" not in style
    for landmark in ("header", "nav", "main", "footer"):
        assert len(found.all(landmark)) == 1
    assert found.all("html")[0].attributes["lang"] == "en"
    return found
