"""Policies by what their rates are estimated from: history, metadata, both (Han et al. 2020, Table 3)."""

from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest

from tests.transforms.replayed_worlds import poisson_world
from transforms.replay.backtesting import (
    ESTIMATED,
    ESTIMATORS,
    POLICIES,
    Setting,
    Trial,
    Weighting,
    _estimated,
    arms,
    available,
    play,
)
from transforms.replay.closed_loop import ClosedLoop
from transforms.replay.rate_nights import RateNights, group_means

RATES = np.repeat([0.02, 0.5, 5.0], 20)
KINDS = np.repeat(["slow", "middle", "fast"], 20)
EQUAL = (Weighting("equal"),)


@pytest.fixture(scope="module")
def world():
    found = poisson_world(RATES, 20)
    # Pages of a world are sorted by URL: the kind follows from what the page does.
    changes = np.bincount(found.history.change_page, minlength=len(found))
    order = np.argsort(np.argsort(changes, kind="stable"))
    return replace(found, metadata={"kind": pa.array(KINDS[order])})


def rates_of(world, how):
    """The last night's rates of a policy that crawls evenly whatever it thinks."""
    planner = _estimated("uniform", "even", how, Setting(world, 0.5, np.ones(len(world)), 0, 0, 0))
    assert isinstance(planner, RateNights)
    inner, seen = planner._estimates, []

    class Spy:
        def change_rates(self, day, known):
            seen.append(inner.change_rates(day, known))
            return seen[-1]

    planner._estimates = Spy()
    ClosedLoop(world, planner).run()
    return seen


def test_metadata_alone_says_the_same_of_pages_that_look_the_same(world):
    kind = world.metadata["kind"].to_numpy(zero_copy_only=False)
    seen = rates_of(world, "metadata")
    last = {k: seen[-1][kind == k] for k in ("slow", "middle", "fast")}
    assert all(np.ptp(v) < 1e-12 * v.max() for v in last.values())
    assert last["slow"][0] < 0.1 < 0.25 < last["middle"][0] < 1.0 < last["fast"][0]
    both = rates_of(world, "both")[-1]
    assert all(np.ptp(both[kind == k]) > 0.0 for k in last)


def test_what_a_page_weighs_is_a_mean_too_by_metadata_alone(world):
    weight = np.arange(len(world), dtype=float)
    setting = Setting(replace(world, weights={"clicks": weight}), 0.5, weight, 0, 0, 0)
    told = _estimated("lambdacrawl", "random", "metadata", setting)
    code = np.unique(world.metadata["kind"].to_numpy(zero_copy_only=False), return_inverse=True)[1]
    assert np.array_equal(told._weight, group_means(weight, code))
    assert np.array_equal(_estimated("lambdacrawl", "random", "both", setting)._weight, weight)


def test_metadata_that_tell_rates_are_worth_having(world):
    found = {name: play(world, Trial(name, 0.3, EQUAL))[0] for name in ("lambdacrawl", "lambdacrawl/both")}
    assert found["lambdacrawl/both"].accuracy > found["lambdacrawl"].accuracy - 0.005
    assert found["lambdacrawl/both"].spent == pytest.approx(0.3, rel=0.02)


def test_arms_of_policies():
    assert arms(("recrawl", "uniform", "harmonic"), ESTIMATORS) == (
        "recrawl", "recrawl+groups", "uniform", "harmonic", "harmonic/metadata", "harmonic/both",
    )  # fmt: skip
    assert arms(("uniform",), ("metadata",)) == ("uniform",)
    assert all(f"{n}/{how}" in POLICIES for n in ESTIMATED for how in ESTIMATORS[1:])
    plain = poisson_world(RATES, 5)
    assert available(plain, arms(("harmonic",), ESTIMATORS), [Weighting("equal")]) == ["harmonic"]
