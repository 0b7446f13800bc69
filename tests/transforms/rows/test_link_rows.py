"""Rows of links seen."""

import numpy as np
import pyarrow as pa

from transforms.rows.link_rows import page_hashes, page_texts


def test_hashes_are_those_of_texts_without_their_scheme() -> None:
    urls = [
        "https://a.test/1",
        "http://a.test/1",
        "https://a.test",
        "https://a.test?q=/x/",
        "HTTPS://a.test/1",
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
        assert (page_hashes(array) == page_texts(array)[1]).all()
    cut = pa.array(urls, pa.string()).slice(2, 7)
    assert (page_hashes(cut) == page_texts(cut)[1]).all()
    assert len(np.unique(page_hashes(pa.array(urls[:2])))) == 1
