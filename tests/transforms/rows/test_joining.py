"""URLs of requests as their pages have them."""

from __future__ import annotations

import re
from urllib.parse import urlsplit

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from transforms.rows.joining import given_names, page_urls
from transforms.rows.normalise import KINDS, normalise

P = "https://shop.test/p"
CASES = {
    f"{P}?utm_source=x&utm_medium=y": P,
    f"{P}?a=1&utm_x=2&b=3&gclid=q": f"{P}?a=1&b=3",
    f"{P}?UTM_Source=x&b=2": f"{P}?b=2",
    f"{P}?x=1&utm_a=1&utm_b=2&y=2&utm_c=1&msclkid": f"{P}?x=1&y=2",
    f"{P}?fbclid": P,
    f"{P}?fbclid&x": f"{P}?x",
    f"{P}?a=1#top": f"{P}?a=1",
    f"{P}#": P,
    f"{P}#:~:text=a%20b,c": P,
    # Pages of applications, whose server sees the first part alone.
    f"{P}#!/route": f"{P}#!/route",
    "https://shop.test/#/route?utm_source=3": "https://shop.test/#/route",
    f"{P}?gclid=1#!/x": f"{P}#!/x",
    # Not these names, and not in a value or a path.
    f"{P}?gclidx=1&xgclid=2&a=gclid=3": f"{P}?gclidx=1&xgclid=2&a=gclid=3",
    f"{P}/utm_source=1": f"{P}/utm_source=1",
    f"{P}?ref=a&source=b&id=3": f"{P}?ref=a&source=b&id=3",
}


@pytest.mark.parametrize("kind", [pa.string(), pa.binary()])
def test_tracking_and_fragments_go_and_all_else_stays(kind: pa.DataType):
    urls = pa.array([None, *CASES, P], pa.string()).cast(kind)
    expected = pa.array([None, *CASES.values(), P], pa.string()).cast(kind)
    assert page_urls(urls).equals(expected)
    for a, n in ((0, 0), (1, 3), (4, 9)):
        assert page_urls(urls.slice(a, n)).equals(expected.slice(a, n))


def test_a_column_without_any_is_not_copied():
    urls = pa.array([P, f"{P}?id=1", None])
    assert page_urls(urls) is urls
    assert page_urls(urls.slice(3)).equals(urls.slice(3))


def test_given_names_go_too():
    """Of a site's own: letters that mean something in a pattern are letters, in any case."""
    urls = {
        f"{P}?ref=home": P,
        f"{P}?Ref=a&id=3&utm_x=1&src#top": f"{P}?id=3",
        f"{P}?my_a=1&b=2&my_=3&my=4": f"{P}?b=2&my=4",
        f"{P}?a.b=1&axb=2&c[]=3&c%5B%5D=4": f"{P}?axb=2&c%5B%5D=4",
        f"{P}?xref=1&refx=2&q=ref": f"{P}?xref=1&refx=2&q=ref",
        f"{P}/ref=1": f"{P}/ref=1",
        # Java's servers have a session's number in the path.
        f"{P};SID=4": P,
        f"{P};sid=4?q=1#top": f"{P}?q=1",
        f"{P};v=2;sid=4;w/x;my_a=/y?sid=5": f"{P};v=2;w/x/y",
        f"{P};my_/x?y=1;sides=2": f"{P};my_/x?y=1;sides=2",
    }
    found = page_urls(pa.array(urls), "ref, src,my_*,a.b,c[],sid")
    assert found.to_pylist() == list(urls.values())
    assert page_urls(pa.array(urls)).to_pylist()[0] == f"{P}?ref=home"


@pytest.mark.parametrize("name", ["ref=home", "?ref", "a&b", "*", "a*b", "a b", "#x"])
def test_what_is_no_name_is_refused(name):
    with pytest.raises(ValueError, match=re.escape(name)):
        given_names(f"src,{name}")


_PARTS = st.sampled_from(["utm_source=a", "gclid", "id=1", "q=utm_source", "FBCLID=2", "", "b", "_ga=1.2"])


@given(st.lists(st.tuples(st.lists(_PARTS, max_size=6), st.sampled_from(["", "#x", "#", "#/r", "#!q"]))))
def test_laws(made: list[tuple[list[str], str]]):
    """Against parameters taken one by one; and what is done is done."""
    urls = [P + ("?" + "&".join(parts) if parts else "") + end for parts, end in made]
    found = page_urls(pa.array(urls, pa.string()))
    tracked = {"utm_source", "gclid", "fbclid", "_ga"}
    for url, (parts, end), got in zip(urls, made, found.to_pylist(), strict=True):
        kept = [part for part in parts if part.split("=", 1)[0].lower() not in tracked]
        assert [x for x in urlsplit(got).query.split("&") if x] == [x for x in kept if x], url
        assert urlsplit(got).fragment == (end[1:] if end[1:2] in ("/", "!") else "")
    assert page_urls(found).equals(found)


def test_only_requests_are_joined_so():
    url = f"{P}?utm_source=x"
    batch = pa.RecordBatch.from_pydict(
        {"url": [url], "day": ["2026-01-01"], "clicks": [1], "fetched_at": ["2026-01-01"]}
    )
    done = normalise(KINDS["requests"], batch, "a")
    assert done.rows.column("url").to_pylist() == [P]
    plain = pa.RecordBatch.from_pydict({"url": [P], "fetched_at": ["2026-01-01"]})
    hashes = normalise(KINDS["observations"], plain, "a").rows.column("url_hash").to_numpy()
    assert np.array_equal(done.rows.column("url_hash").to_numpy(), hashes)
    seen = normalise(KINDS["observations"], batch, "a")
    assert seen.rows.column("url").to_pylist() == [url]
