"""Pictures: the same numbers give the same bytes, and what is drawn is what was given."""

import builtins
import io
import struct

import numpy as np
import pytest

from pipelines.pictures import plots
from pipelines.pictures.plots import Panel, Picture, Series

ROWS = {
    "policy": ["GREEDY"] * 4 + ["LDS"] * 4,
    "pages": [100, 100, 500, 500] * 2,
    "repetition": [0, 1, 0, 1] * 2,
    "budget_per_day": [0.1, 0.1, 0.5, 0.5] * 2,
    "accuracy": [0.8, 0.82, 0.5, 0.54, 0.79, 0.81, 0.49, 0.51],
}


def points(count):
    rng = np.random.Generator(np.random.Philox(key=1))
    return rng.random(count), rng.random(count)


def everything():
    pytest.importorskip("matplotlib")
    x, y = points(3000)
    time = np.arange(40.0)
    return Picture(
        "all",
        "All kinds",
        [
            plots.rates_against_optimal("rates", x, y, x * y, "recall"),
            plots.arm_probabilities("arms", time, {"uniform": time / 80.0, "lambda": 1.0 - time / 80.0}),
            plots.accuracy_over_time("time", time, {"100": np.sqrt(time + 1.0)}),
            Panel("bars", "x", "y", [Series("n", time, time, style="bars")], level=3.0),
        ],
    )


def test_means_and_standard_errors_by_policy():
    found = plots.accuracy_against_pages("a", "A", ROWS).panels[0].series
    assert [series.label for series in found] == ["GREEDY", "LDS"]
    np.testing.assert_allclose(found[0].x, [100, 500])
    np.testing.assert_allclose(found[0].y, [0.81, 0.52])
    np.testing.assert_allclose(found[0].error, [0.01, 0.02])
    by_budget = plots.freshness_against_budget("a", "A", ROWS).panels[0]
    np.testing.assert_allclose(by_budget.series[1].x, [0.1, 0.5])
    assert by_budget.log_x


def test_differences_are_of_pairs():
    found = plots.accuracy_against_pages("a", "A", ROWS, "LDS").panels[1].series
    np.testing.assert_allclose(found[0].y, [0.01, 0.02])
    np.testing.assert_allclose(found[0].error, [0.0, 0.01], atol=1e-12)
    np.testing.assert_allclose(found[1].y, 0.0)


def test_a_single_repetition_has_no_error_bar():
    rows = {key: values[::2] for key, values in ROWS.items()}
    np.testing.assert_array_equal(
        plots.accuracy_against_pages("a", "A", rows).panels[0].series[0].error, [0, 0]
    )


def test_lines_keep_their_colours():
    """All ten of the colours are still told apart when a picture has few."""
    image = pytest.importorskip("PIL.Image")
    time = np.arange(20.0)
    lines = {str(k): time + 5.0 * k for k in range(10)}
    picture = Picture("lines", "", [plots.accuracy_over_time("time", time, lines)])
    with image.open(io.BytesIO(plots.draw(picture, ["png"])["lines.png"])) as file:
        shown = np.unique(np.asarray(file.convert("RGB")).reshape(-1, 3), axis=0).astype(int)
    for colour in plots._COLOURS:
        wanted = [int(colour[i : i + 2], 16) for i in (1, 3, 5)]
        assert np.abs(shown - wanted).max(axis=1).min() <= 10


def test_the_same_numbers_give_the_same_bytes():
    first, second = plots.draw(everything()), plots.draw(everything())
    assert list(first) == ["all.png", "all.svg"]
    assert first == second


def test_files_are_small_pictures():
    found = plots.draw(everything())
    assert found["all.png"].startswith(b"\x89PNG\r\n\x1a\n")
    width, height = struct.unpack(">II", found["all.png"][16:24])
    assert width > 600 and height > 400
    assert len(found["all.png"]) <= 60_000
    assert found["all.svg"].lstrip().startswith(b"<?xml") and b"</svg>" in found["all.svg"]
    # Points are an image inside: thousands of them would be megabytes.
    assert len(found["all.svg"]) < 500_000


def test_no_date_and_no_version_is_in_the_files():
    found = plots.draw(plots.accuracy_against_pages("a", "A", ROWS))
    assert b"dc:date" not in found["a.svg"] and b"Matplotlib v" not in found["a.svg"]
    assert b"Software" not in found["a.png"]


def test_a_users_settings_do_not_show(monkeypatch):
    matplotlib = pytest.importorskip("matplotlib")
    picture = plots.accuracy_against_pages("a", "A", ROWS)
    before = plots.draw(picture)
    monkeypatch.setitem(matplotlib.rcParams, "lines.linewidth", 9.0)
    monkeypatch.setitem(matplotlib.rcParams, "svg.hashsalt", "mine")
    assert plots.draw(picture) == before


def test_without_matplotlib_the_message_says_how_to_get_it(monkeypatch):
    real = builtins.__import__

    def without(name, *args, **more):
        if name.startswith("matplotlib"):
            raise ImportError(f"No module named {name!r}")
        return real(name, *args, **more)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(plots.NoPlotsError, match=r"pip install '\.\[plots\]'"):
        plots.draw(plots.accuracy_against_pages("a", "A", ROWS))
