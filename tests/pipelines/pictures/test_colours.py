"""Colours of policies: one for each kind, that the colour-blind tell apart."""

import itertools

import numpy as np
import pytest

from pipelines.pictures import plots
from pipelines.pictures.colours import COLOURS, role_of
from pipelines.pictures.plots import Series
from transforms.replay.backtesting import POLICIES

# Machado et al., A Physiologically-based Model for Simulation of Color Vision Deficiency, 2009, severity 1.
SEEN = {
    "all": np.eye(3),
    "protanopia": [[0.1523, 1.0526, -0.2049], [0.1145, 0.7863, 0.0992], [-0.0039, -0.0481, 1.0520]],
    "deuteranopia": [[0.3673, 0.8606, -0.2279], [0.2801, 0.6725, 0.0474], [-0.0118, 0.0429, 0.9689]],
}
XYZ = np.array([[0.4125, 0.3576, 0.1804], [0.2127, 0.7152, 0.0722], [0.0193, 0.1192, 0.9503]])
NOTICED = 15.0  # CIE 1976 difference; 2.3 is just noticeable side by side


def lab(colour: str, seen: np.ndarray) -> np.ndarray:
    parts = np.array([int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)])
    linear = np.where(parts <= 0.04045, parts / 12.92, ((parts + 0.055) / 1.055) ** 2.4)
    ratio = XYZ @ np.clip(np.asarray(seen) @ linear, 0.0, 1.0) / XYZ.sum(axis=1)
    x, y, z = np.where(ratio > 216 / 24389, np.cbrt(ratio), (24389 / 27 * ratio + 16) / 116)
    return np.array([116 * y - 16, 500 * (x - y), 200 * (y - z)])


def test_every_policy_has_a_colour() -> None:
    roles = {name: role_of(name) for name in POLICIES}
    assert None not in roles.values() and len(set(roles.values())) == len(COLOURS) - 1
    assert roles["recrawl"] == roles["recrawl+signals"] != roles["uniform"]
    assert role_of("GREEDY") is None and "trouble" not in roles.values()


@pytest.mark.parametrize("theme", [0, 1], ids=["white", "dark"])
@pytest.mark.parametrize("eyes", SEEN)
def test_colours_of_policies_are_told_apart(eyes: str, theme: int) -> None:
    shown = {role: lab(pair[theme], SEEN[eyes]) for role, pair in COLOURS.items() if role != "trouble"}
    for one, other in itertools.combinations(shown, 2):
        assert np.linalg.norm(shown[one] - shown[other]) > NOTICED, (one, other)


def test_a_series_without_a_colour_of_its_own_takes_none_that_another_has() -> None:
    nothing = np.empty(0)
    names = ("frequency, seen", "recrawl, seen", "other", "GREEDY", "GREEDY-CIS+")
    found = dict(zip(names, plots._colours([Series(n, nothing, nothing) for n in names]), strict=True))
    assert found["recrawl, seen"] == COLOURS["fresh"][0] and len(set(found.values())) == len(names)
