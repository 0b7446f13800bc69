"""What holds for tests of nights."""

from __future__ import annotations

from collections.abc import Iterator
from unittest import mock

import pytest

from pipelines.store import beside

# They look at pages, or compare all bytes of nights.
WITH_PAGES = {
    "test_freshness_ranges",
    "test_nightly_conservation",
    "test_nightly_oracle",
    "test_nightly_schedule_faults",
    "test_nothing_is_lost",
    "test_plain_runner",
    "test_submitting",
}


@pytest.fixture(scope="module", autouse=True)
def no_pages(request: pytest.FixtureRequest) -> Iterator[None]:
    """A page takes a sixth of a small night. It is made when that is committed, and stops nothing."""
    if request.module.__name__.rpartition(".")[2] in WITH_PAGES:
        yield
        return
    with mock.patch.object(beside, "_page", lambda _: ""):
        yield
