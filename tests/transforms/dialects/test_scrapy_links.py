"""Items of Scrapy with lists of links."""

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from tests.transforms.dialects.seen_links import read as read_links
from transforms.batches.kinds import REPLAYED
from transforms.dialects.scrapy_links import looks_like
from transforms.intake.sources import ROWS, plan_files, read_split

ITEMS = [
    {"url": "https://a.test/", "links": ["https://a.test/1", "https://a.test/2"], "crawled_at": 1767225600, "status": 200},
    {"url": "https://b.test/", "links": [], "crawled_at": 1767225660, "status": 200},
    {"url": "https://c.test/", "links": None, "crawled_at": 1767225720, "status": 503, "more": {"x": [1]}},
    {"url": "https://a.test/", "links": ["https://a.test/2"], "crawled_at": 1767229200, "status": 200},
]  # fmt: skip


@pytest.mark.parametrize("form", ["lines", "array", "gzip"])
def test_a_row_a_link_and_one_for_none(tmp_path: Path, form: str) -> None:
    lines = [json.dumps(item) for item in ITEMS]
    text = "[\n" + ",\n".join(lines) + "\n]\n" if form == "array" else "\n".join([*lines, "{no json"])
    path = tmp_path / ("items.jsonl.gz" if form == "gzip" else "items.jsonl")
    path.write_bytes(gzip.compress(text.encode()) if form == "gzip" else text.encode())
    (split,) = plan_files(str(path), "links_seen")
    assert split.form == "scrapy"
    found, rejected = [], []
    for tag, batch in read_split(split, REPLAYED["links_seen"]):
        (found if tag == ROWS else rejected).extend(batch.to_pylist())
    assert [
        (r["source"], r["target"], int(r["seen_at"].timestamp()) - 1767225600, r["ok"]) for r in found
    ] == [
        ("https://a.test/", "https://a.test/1", 0, True),
        ("https://a.test/", "https://a.test/2", 0, True),
        ("https://b.test/", None, 60, True),
        ("https://c.test/", None, 120, False),
        ("https://a.test/", "https://a.test/2", 3600, True),
    ]
    assert [r["reason"] for r in rejected] == ([] if form == "array" else ["bad_json"])


def links_of(path: Path, *items: dict[str, object], one_line: bool = False) -> list[tuple[str, str | None]]:
    path.write_text(json.dumps(items) if one_line else "".join(json.dumps(item) + "\n" for item in items))
    found = read_links(path)
    assert found.form == "scrapy" and not found.rejected
    return [(source, target) for source, target, *_ in found.rows]


def test_links_are_as_the_page_has_them(tmp_path: Path) -> None:
    page = {"url": "https://a.test/x/y", "crawled_at": 1767225600}
    links = ["/1", "2", " ?p=3", "//b.test/4", "#top", "", None, "https://a.test/5"]
    assert [target for _, target in links_of(tmp_path / "a.jl", page | {"links": links})] == [
        "https://a.test/1", "https://a.test/x/2", "https://a.test/x/y?p=3", "https://b.test/4", None, None, None,
        "https://a.test/5",
    ]  # fmt: skip
    as_scrapy_has_them = [{"url": "/1", "text": "one", "fragment": "", "nofollow": False}, {"url": "/2"}]
    found = links_of(tmp_path / "b.jl", page | {"outlinks": as_scrapy_has_them})
    assert [target for _, target in found] == ["https://a.test/1", "https://a.test/2"]


def test_values_may_be_lists_of_one_and_a_number_is_no_port(tmp_path: Path) -> None:
    """As Scrapy's item loaders write them."""
    item = {"url": ["https://a.test/"], "links": ["tel:80", "/1"], "crawled_at": ["2026-01-01T00:00:00Z"]}
    assert [target for _, target in links_of(tmp_path / "a.jl", item)] == [None, "https://a.test/1"]


def test_links_are_texts_or_objects_or_both(tmp_path: Path) -> None:
    """In any order, in a list and from item to item; none is lost."""
    page = {"url": "https://a.test/", "crawled_at": 1767225600, "more": {"x": 1}}
    lists: list[list[Any]] = [
        ["/{1}", "/[2]"],
        [{"url": "/3", "text": "{"}],
        ["/4", {"text": "", "url": "/5"}],
        [{"url": "/6"}, "/7"],
    ]
    for some in (lists, lists[:1], lists[1:2], lists[::-1]):
        found = links_of(tmp_path / "a.jl", *(page | {"links": links} for links in some))
        wanted = [link if isinstance(link, str) else link["url"] for links in some for link in links]
        assert [target for _, target in found] == [f"https://a.test{link}" for link in wanted]


def test_the_first_item_need_not_have_links(tmp_path: Path) -> None:
    failed = {"url": "https://a.test/", "links": None, "crawled_at": 1767225600, "status": 503}
    expected = [("https://a.test/", None), ("https://a.test/", "https://a.test/1")]
    assert links_of(tmp_path / "a.jl", failed, ITEMS[0] | {"links": ["/1"]}) == expected
    assert (
        links_of(tmp_path / "b.json", ITEMS[0] | {"links": ["/1"]}, failed, one_line=True) == expected[::-1]
    )
    # Longer than what is looked at, and with its time behind the links.
    many = [f"https://a.test/{n}" for n in range(5000)]
    item = {"url": "https://a.test/", "links": many, "timestamp": 1767225600}
    assert len(links_of(tmp_path / "c.jl", item)) == 5000


def test_canonical_files_are_not_taken_for_it() -> None:
    assert not looks_like("x", b'{"source":"https://a.test/","target":"https://a.test/1","seen_at":1}')
    assert not looks_like("x", b'{"url":"https://a.test/","fetched_at":1,"body_sha1":"x"}')
    assert not looks_like("x", b"source,target,seen_at\n")
