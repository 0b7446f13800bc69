"""The range of expected freshness in the manifest and the summary of a night."""

from __future__ import annotations

import pytest

from pipelines.nightly.expected import beside_its_range
from pipelines.webpage.parts import share
from tests.pipelines.jobs import at, nightly, seen
from tests.pipelines.site import make_site

SITE = make_site(n_pages=60, days=12)


def _night(folder, name, day=12, **options):
    rows, clicks = SITE.between("observations", 0, day), SITE.between("requests", 0, day)
    night = nightly(folder, name, observations=rows, requests=clicks, budget=20, as_of=at(day), **options)
    assert night.code == 0, night.complaints
    return night


def test_it_is_told_and_does_not_hang_on_the_cut(tmp_path):
    one, three = (_night(tmp_path, f"in {n}", num_shards=n) for n in (1, 3))
    found = one.manifest["freshness_range"]
    assert found["level"] == 0.9 and 0.0 < found["low"] < found["high"] < 1.0
    assert three.manifest["freshness_range"] == pytest.approx(found, rel=1e-9)
    assert f"(90% range {found['low']:.4f} to {found['high']:.4f})" in one.printed
    ends = (share(found[end]).text for end in ("low", "high"))
    assert f"{share(0.9, 0).text} range {' to '.join(ends)}" in (one.folder / "report.html").read_text()


def test_more_visits_make_it_narrower(tmp_path):
    early, late = (_night(tmp_path, f"day {d}", day=d).manifest["freshness_range"] for d in (3, 12))
    assert late["high"] - late["low"] < early["high"] - early["low"]


def test_a_guess_has_none(tmp_path):
    rows = [seen(f"https://a.test/{i}", at(1)) for i in range(5)]
    night = nightly(tmp_path, observations=rows, as_of=at(2))
    assert night.manifest["freshness_range"] is None
    assert "a guess: no page was seen twice" in night.printed and "range" not in night.printed


@pytest.mark.parametrize("fresh, end", [(0.74, "low"), (0.75, None), (0.76, None), (0.77, "high")])
def test_what_lies_beside_its_range_is_called_so(fresh, end):
    said = beside_its_range(fresh, {"level": 0.9, "low": 0.75, "high": 0.76})
    assert said == (f"; the figure at the estimated rates is likely too {end}" if end else "")
