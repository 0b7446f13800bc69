"""What a committed night warns of: inputs of little use, and options that do nothing."""

from __future__ import annotations

import pytest

from transforms.night.guards import Guards, warnings_of
from transforms.night.input_warnings import option_warnings

GUARDS = Guards(0.01, False, 0, False, {})


def _rejected(kind: str, accepted: int, **reasons: int) -> list[str]:
    counters = {f"{kind}_rejected_{reason}": n for reason, n in reasons.items()}
    counters |= {f"{kind}_accepted": accepted, f"{kind}_rejected": sum(reasons.values())}
    found = warnings_of({"observations_accepted": 10**6} | counters, GUARDS)
    return [text for text in found if "rejected" in text]


@pytest.mark.parametrize("kind", ["signals", "requests", "pages", "sitemaps"])
def test_an_input_without_a_good_row_is_named_with_its_reason(kind):
    (text,) = _rejected(kind, 0, bad_timestamp=5)
    assert text.startswith(f"all 5 rows of --{kind} were rejected (bad_timestamp: 5): nothing of it counts")


def test_so_is_one_of_which_more_than_half_is_rejected():
    (text,) = _rejected("signals", 9, bad_url=2, bad_timestamp=5, no_url=2, other_host=1)
    assert text.startswith(
        "10 of 19 rows of --signals were rejected (bad_timestamp: 5, bad_url: 2, no_url: 2)"
    )
    assert "less than half of it counts" in text


@pytest.mark.parametrize(("accepted", "bad"), [(0, 4), (5, 5), (900, 10)])
def test_fewer_are_a_share_of_the_rows(accepted, bad):
    """Too few to judge, as many good ones, or little: the share alone decides whether it is said."""
    (text,) = _rejected("signals", accepted, bad_timestamp=bad)
    assert text == f"{bad} of {accepted + bad} signals rows were rejected: see rejected/"
    assert not _rejected("signals", 10**4, bad_timestamp=bad)


def test_clicks_that_two_sources_count():
    """Either alone is no warning, nor an export without a click."""
    by = {"requests_web_log_clicks": 1200, "requests_search_console_clicks": 96982}
    (text,) = [t for t in warnings_of(by, GUARDS) if "twice" in t]
    assert text.startswith(
        "1,200 clicks are of logs of web servers and 96,982 of exports of Search Console: "
    )
    assert "Give one of them to --requests and run this night again, from the same --state as now, or" in text
    assert text.endswith("or without one on a first night")
    for name in by:
        assert not [t for t in warnings_of(by | {name: 0}, GUARDS) if "twice" in t]


def test_an_export_that_is_cut_says_what_becomes_of_the_pages_beyond():
    for n, start in ((1, "1 export has just"), (1200, "1,200 exports have just")):
        (text,) = warnings_of({"observations_accepted": 9, "requests_gsc_truncated": n}, GUARDS)
        assert text.startswith(f"gsc_truncated: {start} as many rows as Search Console gives at most")
        assert "few crawls, and the expected freshness is too good. Give the logs of the web server" in text


def test_large_numbers_can_be_read():
    assert "5,252 of 11,167 signals rows were rejected: see rejected/" in _rejected(
        "signals", 5915, bad_timestamp=5252
    )
    (text,) = _rejected("signals", 9, bad_timestamp=1000)
    assert text.startswith("1,000 of 1,009 rows of --signals were rejected (bad_timestamp: 1,000)")


def test_sitemap_pages_without_sitemaps():
    (text,) = option_warnings({"sitemap_pages": True, "sitemaps": None}, None)
    assert text.startswith("--sitemap_pages does nothing without --sitemaps")
    assert not option_warnings({"sitemap_pages": True, "sitemaps": "x.xml"}, None)
    assert not option_warnings({"sitemap_pages": False, "sitemaps": None}, None)


def test_the_objective_signals_without_signals():
    options = {"objective": "signals", "signals": None, "sitemaps": None}
    (text,) = option_warnings(options, {"sources": []})
    assert text.startswith("--objective=signals without any signals") and "--objective=periodic" in text
    assert option_warnings(options, None) == [text]
    assert not option_warnings(options, {"sources": [{"source": "ping"}]})  # of the state
    for given in ({"signals": "x"}, {"sitemaps": "x"}, {"objective": "periodic"}):
        assert not option_warnings(options | given, None)
