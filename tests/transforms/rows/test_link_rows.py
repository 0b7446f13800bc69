"""Rows of links seen."""

import numpy as np
import pyarrow as pa

from transforms.batches.hashing import hash_pages
from transforms.batches.texts import Texts
from transforms.rows.link_rows import page_hashes, page_texts


def hashes(urls: pa.Array) -> np.ndarray:
    return page_hashes(urls, hash_pages(Texts(urls))[0])


def test_hashes_are_those_of_texts_without_their_scheme() -> None:
    urls = [
        "https://a.test/1",
        "http://a.test/1",
        "https://a.test",
        "https://a.test?q=/x/",
        "HTTPS://a.test/1",
        "https:///a.test/1",
        "https://",
        "https:/",
        "nowhere/of/any/kind",
    ]
    urls += [
        None,
        "",
        "https://ä.test/a/b",
        "https://a.test/" + "x" * 9000,
        "http://a.test",
        "https://a.test/",
        None,
    ]
    for some in (urls, urls[:1], urls[5:], urls[::-1], [None], []):
        array = pa.array(some, pa.string())
        assert (hashes(array) == page_texts(array)[1]).all()
    cut = pa.array(urls, pa.string()).slice(2, 7)
    assert (hashes(cut) == page_texts(cut)[1]).all()
    assert len(np.unique(hashes(pa.array(urls[:2])))) == 1
