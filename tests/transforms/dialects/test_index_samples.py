"""The index files that archives and their tools publish, where a folder of them is at hand."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.transforms.dialects.reading import read
from transforms.batches.errors import InputError

SHARED = Path(os.environ.get("RECRAWL_SHARED", Path(__file__).resolve().parents[4] / "shared"))
FOLDER = SHARED / "data" / "formats" / "cdx"

pytestmark = pytest.mark.skipif(
    not FOLDER.is_dir(), reason=f"no {FOLDER}; set RECRAWL_SHARED to the folder that holds data/formats"
)

# Accepted, left out, rejected.
SAMPLES = {
    # Answers to several questions in one file: each but the last ends in the key to go on from.
    "edgi-waybackcdx-test_search_multipage.txt": (350, {"resume_key": 14}, {}),
    "edgi-waybackcdx-test_search_with_date.txt": (2245, {"resume_key": 2}, {}),
    "edgi-waybackcdx-test_search_with_timezone.txt": (2000, {"resume_key": 2}, {}),
    "edgi-zero_length_cdx.txt": (5, {}, {}),
    # A TimeMap, whose objects have = for a colon.
    "ipwb-5mementos.cdxj": (0, {}, {"not_cdxj": 5}),
    # The first has two lines of headers beside; the URLs are made from the keys.
    "ipwb-sample-1.cdxj": (65, {}, {}),
    "ipwb-sample-old.cdxj": (65, {}, {}),
    # Two records of wget's own, with metadata: for URLs.
    "outbackcdx-test1.cdx": (1, {"not_a_page": 2}, {}),
    "outbackcdx-test2.cdx": (1, {"not_a_page": 2}, {}),
    # Bad for a replay only: it names files that do not exist.
    "pywb-bad.cdx": (4, {}, {}),
    "pywb-example-no-digest.cdxj": (3, {}, {}),
    "pywb-example-non-surt.cdx": (3, {}, {}),
    "pywb-example.cdx": (3, {}, {}),
    "pywb-example.cdxj": (3, {}, {}),
    "pywb-iana.cdx": (171, {}, {}),
    "pywb-iana.cdxj": (171, {}, {}),
    # Answers to POST.
    "pywb-post-test.cdx": (0, {"not_get": 3}, {}),
    "pywb-post-test.cdxj": (0, {"not_get": 3}, {}),
    "pywb-url-agnost-example.cdx": (2, {}, {}),
    # 38 gzip members, none of which ends its last line.
    "pywb-zipnum-sample.cdx.gz": (188, {}, {}),
}


@pytest.mark.parametrize("name", SAMPLES)
def test_a_sample(name):
    found = read(FOLDER / name)
    reasons = [reason for _, reason in found.reasons]
    counted = {reason: reasons.count(reason) for reason in reasons}
    assert (len(found.rows), found.left_out, counted) == SAMPLES[name]


@pytest.mark.parametrize("name", ["pywb-zipnum-sample.idx", "pywb-zipnum-sample.loc"])
def test_what_lies_beside_a_zipnum_cluster(name):
    with pytest.raises(InputError, match="ZipNum"):
        read(FOLDER / name)


def test_no_sample_is_forgotten():
    assert {path.name for path in FOLDER.iterdir()} - {*SAMPLES} == {
        "pywb-zipnum-sample.idx",
        "pywb-zipnum-sample.loc",
    }


def test_both_forms_of_one_index_say_the_same():
    assert read(FOLDER / "pywb-iana.cdx").rows == read(FOLDER / "pywb-iana.cdxj").rows
