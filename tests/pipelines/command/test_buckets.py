"""Folders in buckets: a missing library and missing options are told before anything is read."""

from __future__ import annotations

import pytest

from pipelines.command import buckets
from tests.pipelines.jobs import command


@pytest.mark.parametrize(
    ("words", "extra"),
    [
        (["night", "--store=s3://bucket/store", "--budget=1"], "aws"),
        (["night", "--store", "gs://bucket/store", "--status"], "gcp"),
        (["nightly", "--observations=a,s3://bucket/x", "--output=o"], "aws"),
        (["metrics", "gs://bucket/store"], "gcp"),
        (["explain", "s3://bucket/night", "https://a.test/"], "aws"),
        (["show", "s3://bucket/night"], "aws"),
    ],
)
def test_a_missing_library_is_named_with_the_extra_that_has_it(words, extra, monkeypatch):
    monkeypatch.setattr(buckets, "_is_there", lambda library: False)
    code, out, err = command(*words)
    assert code == 2 and not out and "Traceback" not in err
    assert f"in recrawl's extra {extra}: from a checkout pip install '.[{extra}]'" in err


def test_pages_are_no_buckets(monkeypatch):
    monkeypatch.setattr(buckets, "_is_there", lambda library: pytest.fail(library))
    buckets.prepare(["explain", "out", "https://a.test/?u=as3://x", "--requests_site=https://a.test"])
