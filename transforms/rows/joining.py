"""URLs of requests as their pages have them: what campaigns, clients and fragments add is no part of a page.

Removed are fragments, but for those that stand for a page of an application (`#!...`, `#/...`), and the query
parameters of `TRACKING`, and of names that are given, in any case, which may also stand in the path, as
`;jsessionid=1`. All others stay, and in their order.
"""

from __future__ import annotations

import functools
import re
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from transforms.batches.texts import Texts

TRACKING = (
    # Campaigns (Google Analytics and most others), Matomo's.
    "utm_[^=&#]*",
    "(?:mtm|pk)_(?:campaign|cid|content|group|keyword|kwd|medium|placement|source)",
    # Clicks on advertisements: Google, Meta, Microsoft, Yandex, TikTok, X, LinkedIn, Pinterest, Reddit.
    "gclid|gclsrc|dclid|gbraid|wbraid|gad_[^=&#]*|srsltid|fbclid|msclkid|yclid|ttclid|twclid|li_fat_id|epik|rdt_cid",
    # One visitor's number: Google Analytics across sites, Instagram, mail senders.
    "_ga|_gl|igsh|igshid|mc_cid|mc_eid|_hsenc|_hsmi|mkt_tok|vero_id|oly_anon_id|oly_enc_id",
)
"""Names of parameters, as regular expressions."""
_GIVEN = re.compile(r"[^\s=&#?,*\"]+\*?")
_FRAGMENT = "#(?:[^!/](?s:.*))?$"


class _Patterns(NamedTuple):
    any: str
    before_others: str
    at_end: str
    in_path: str


def given_names(text: str) -> list[str]:
    """Names of parameters that are given as one text, comma-separated; a `*` at the end stands for any rest.

    Raises
    ------
    ValueError
        For what is no such name; says which.
    """
    names = [name.strip() for name in text.split(",") if name.strip()]
    for name in names:
        if not _GIVEN.fullmatch(name):
            raise ValueError(name)
    return names


@functools.lru_cache(16)
def _patterns(more: str) -> _Patterns:
    given = given_names(more)

    def named(rest: str) -> list[str]:
        return [re.escape(n.removesuffix("*")) + rest * n.endswith("*") for n in given]

    names = "(?i:" + "|".join([*TRACKING, *named("[^=&#]*")]) + ")"
    in_path = f";(?i:{'|'.join(named('[^=;/?&#]*'))})=[^;/?&#]*" if given else ""
    return _Patterns(
        f"[?&]{names}(?:[=&#]|$)" + f"|{in_path}" * bool(given),
        f"([?&])(?:{names}(?:=[^&#]*)?&)+",
        rf"[?&]{names}(?:=[^&#]*)?(#.*)?$",
        in_path,
    )


def page_urls(urls: pa.Array, more: str = "") -> pa.Array:
    """The URLs of pages of those that were requested; the same array if it has them already.

    Parameters
    ----------
    urls : pa.Array of n string or binary values
    more : str
        Names of further parameters, see `given_names`.

    Returns
    -------
    pa.Array (n,)
        A URL that cannot be one stays as it is.
    """
    if not (pa.types.is_string(urls.type) or pa.types.is_binary(urls.type)):
        return urls
    marks = b"?#;" if more else b"?#"
    rows = _with_marks(urls, marks)
    if not len(rows):
        return urls
    some = urls.take(pa.array(rows)).cast(pa.binary())
    plain, patterns = some, _patterns(more)
    fragments = np.asarray(pc.fill_null(pc.match_substring(some, b"#"), False))
    if fragments.any():
        at = pa.array(fragments)
        cut = pc.replace_substring_regex(some.filter(at), _FRAGMENT, "", max_replacements=1)
        plain = pc.replace_with_mask(plain, at, cut)
    tracked = np.asarray(pc.fill_null(pc.match_substring_regex(plain, patterns.any), False))
    if tracked.any():
        at = pa.array(tracked)
        cut = pc.replace_substring_regex(plain.filter(at), patterns.before_others, r"\1")
        cut = pc.replace_substring_regex(cut, patterns.at_end, r"\1", max_replacements=1)
        if patterns.in_path:
            cut = pc.replace_substring_regex(cut, patterns.in_path, "")
        plain = pc.replace_with_mask(plain, at, cut)
    changed = np.flatnonzero(fragments | tracked)
    if not len(changed):
        return urls
    mask = np.zeros(len(urls), np.bool_)
    mask[rows[changed]] = True
    return pc.replace_with_mask(urls, pa.array(mask), plain.take(pa.array(changed)).view(urls.type))


def _with_marks(urls: pa.Array, which: bytes) -> np.ndarray:
    texts = Texts(urls)
    span = texts.span()
    if not len(span):
        return np.empty(0, np.int64)
    marks = np.flatnonzero(functools.reduce(np.logical_or, (span == mark for mark in which)))
    if not len(marks):
        return marks
    marks += int(texts.start[0])
    before = np.searchsorted(marks, texts.start)
    return np.flatnonzero(np.searchsorted(marks, texts.start + texts.size) > before)
