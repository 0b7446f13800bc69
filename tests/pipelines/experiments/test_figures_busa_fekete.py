"""Figures of Busa-Fekete et al.: settings, stand-ins, estimators, and claims that can fail."""

import numpy as np
import pytest

from pipelines.experiments import figures
from pipelines.experiments.figures import busa_fekete_claims as claims
from pipelines.experiments.figures import busa_fekete_estimators as estimators
from pipelines.experiments.figures import busa_fekete_runs as runs
from pipelines.experiments.figures import stand_ins
from pipelines.experiments.figures.measured import Measured, surely_above, with_error
from pipelines.experiments.figures.records import Made

NAMES = sorted(runs.SETTINGS)


def generator(key=1):
    return np.random.Generator(np.random.Philox(key=key))


def made(name, pages, repetitions, until) -> Made:
    figure = figures.get(name)
    return figure.make([figure.run(task) for task in figure.tasks(pages, repetitions, until, 0, 1)])


def held(figure: Made) -> dict[str, bool]:
    return {claim.text: claim.holds for claim in figure.claims}


def test_the_papers_parameters():
    six = runs.SETTINGS["busa-fekete-6"]
    assert six.pages == (100, 200, 500, 750, 1000, 10_000)
    assert (six.repetitions, six.until) == (100, 1000.0)
    assert (six.recall, six.false_signals) == ((0.25, 0.25), (0.1, 0.6))
    assert all(v.crawls(n) == 100.0 for v in six.variants for n in six.pages)
    eight = runs.SETTINGS["busa-fekete-8"]
    assert [v.corruption for v in eight.variants] == [0.0, 0.1, 0.2]
    assert eight.variants[0].crawls(100_000) == 5000.0
    assert runs.raised_between(400.0) == (133.0, 266.0)


@pytest.mark.parametrize("at_once", [1, 2, 3, 8])
def test_tasks_hold_each_repetition_once(at_once):
    tasks = runs.tasks("busa-fekete-3", [50, 100], 7, 12.0, 0, at_once)
    found = sorted((task.pages, r) for task in tasks for r in task.repetitions)
    assert found == [(n, r) for n in (50, 100) for r in range(7)]
    assert len(tasks) <= 2 * at_once
    assert tasks[0].pages == 100


def part(accuracy, name="busa-fekete-6", pages=100):
    """A part of a figure whose policies have the accuracies given."""
    count = len(next(iter(accuracy.values())))
    nothing = np.full(count, np.nan)
    cells = [
        runs.Cell(policy, {}, 100.0, np.array(values), nothing, nothing, None, None)
        for policy, values in accuracy.items()
    ]
    return runs.Part(runs.Task(name, pages, tuple(range(count)), 10.0, 0), cells, None, None)


def sixth(ncis, cis=0.5, approximate=0.7):
    values = {"GREEDY": 0.6, "GREEDY-CIS": cis, "GREEDY-NCIS": ncis}
    values |= {"G-NCIS-APPROX-1": approximate, "G-NCIS-APPROX-2": approximate, "BASELINE": 0.6}
    return {name: [value, value + 0.01, value - 0.01] for name, value in values.items()}


def test_claims_of_figure_6_hold_only_for_numbers_that_show_them():
    good = [part(sixth(0.701)), part(sixth(0.72, cis=0.4, approximate=0.61), pages=1000)]
    assert all(claim.holds for claim in claims.figure_6(Measured(good)))
    one_cell = [part(sixth(0.701)), part(sixth(0.59, cis=0.4, approximate=0.5), pages=1000)]
    found = {claim.text: claim for claim in claims.figure_6(Measured(one_cell))}
    lost = found["GREEDY-NCIS is at least as good as GREEDY in every cell"]
    assert not lost.holds and "m = 1000: -0.01000 ± 0.00000" in lost.ours
    assert not found["G-NCIS-APPROX-1 is above GREEDY and GREEDY-CIS in almost every cell"].holds
    assert found["m > 500: GREEDY-NCIS is above G-NCIS-APPROX-1"].holds
    far = {c.text: c.holds for c in claims.figure_6(Measured([part(sixth(0.72))]))}
    assert not far["m <= 500: G-NCIS-APPROX-2 is very close to GREEDY-NCIS (within 0.005)"]
    assert not any(text.startswith("m > 500") for text in far)


def test_claims_of_figure_3_want_one_percent():
    def three(greedy):
        return {"GREEDY": [greedy] * 2, "LDS": [0.5] * 2, "BASELINE": [0.5] * 2}

    def of(greedy):
        parts = [part(three(greedy)), part({k: [0.4, 0.4] for k in three(0.4)}, pages=200)]
        return [claim.holds for claim in claims.figure_3(Measured(parts))]

    assert of(0.504) == [True] * 4
    assert of(0.506) == [False, True, False, True]


def test_above_means_beyond_two_standard_errors():
    assert surely_above(np.array([1.0, 1.1, 0.9]))
    assert not surely_above(np.array([1.0, -1.0, 0.5]))
    assert surely_above(np.array([0.1])) and not surely_above(np.array([-0.1]))
    assert with_error(np.array([0.5, 0.7])) == "0.6000 ± 0.1000"
    assert with_error(np.array([0.5]), 2, "+") == "+0.50"


def test_running_means():
    np.testing.assert_allclose(claims.running(np.array([[1.0, 3.0, 5.0, 7.0]]), 2), [[1.0, 2.0, 4.0, 6.0]])


def test_stand_ins_have_the_shares_of_the_data_set():
    pages = stand_ins.pages(2000, generator())
    top = np.arange(2000) < 100
    assert pages.request_rate[top].sum() / pages.request_rate.sum() == pytest.approx(0.264)
    assert (pages.precision[top] > 0.7).all() and (pages.recall[top] > 0.6).all()
    assert (pages.precision[~top] < 0.7).all() and (pages.recall[~top] < 0.6).all()
    assert np.median(pages.change_rate) == pytest.approx(0.05, rel=0.15)
    with pytest.raises(ValueError, match="at least 20"):
        stand_ins.pages(19, generator())


def test_corruption_mixes_in_noise_and_stays_a_probability():
    pages = stand_ins.pages(500, generator())
    told = stand_ins.corrupted(0.2, pages, generator(2))
    for now, true in ((told.precision, pages.precision), (told.recall, pages.recall)):
        assert (now >= 0.8 * true - 1e-12).all() and (now <= 0.8 * true + 0.2 + 1e-12).all()
        assert now.max() <= 1.0
    np.testing.assert_array_equal(told.change_rate, pages.change_rate)
    same = stand_ins.corrupted(0.0, pages, generator(2))
    np.testing.assert_allclose(same.precision, pages.precision, rtol=1e-12)


def test_events_are_counted_between_crawls():
    edges = np.array([1.0, 2.0, 4.0])
    np.testing.assert_array_equal(estimators._count(np.array([0.5, 1.0, 1.5, 2.0, 3.0, 4.5]), edges), [2, 1])


def test_likelihood_finds_precision_and_recall_where_counting_does_not():
    part = estimators.run(estimators.Task(20, 0, 30_000.0, 0))
    errors = {name: np.abs(found - part.truth) for name, found in part.found.items()}
    # Some 3,000 changes a page: about 0.01 where crawls are frequent, more where they are rare.
    assert errors["MLE"].mean() < 0.04
    assert errors["naive"].mean() > 0.15
    assert (part.found["naive"] - part.truth).mean(axis=1).min() > 0.1
    frequent = part.crawls_per_change > 2.0
    assert errors["naive"][:, frequent].mean() < errors["naive"][:, ~frequent].mean()


def test_figures_13_and_14_share_their_runs():
    first, second = (made(f"busa-fekete-{n}", [20], 2, 5_000.0) for n in (13, 14))
    assert first.columns == second.columns
    assert list(dict.fromkeys(first.columns["policy"])) == ["naive", "MLE"]
    assert all(held(first).values())
    accuracy = np.array(first.columns["accuracy"])
    size = (np.array(first.columns["precision_absolute_error"]) + first.columns["recall_absolute_error"]) / 2
    np.testing.assert_allclose(accuracy, 1.0 - size)


def test_lds_counts_are_within_1_of_rate_times_time():
    figure = made("busa-fekete-10", [30], 2, 8.0)
    assert held(figure)["m = 30: LDS's rates are those of BASELINE (counts within 1)"]
    rates = figure.more["rates"]
    lds = rates["policy"] == "LDS"
    assert np.abs(rates["rate"] - rates["optimal_rate"])[lds].max() * 8.0 < 1.0 + 1e-6
    assert len(rates["page"]) == 3 * 2 * 30


def test_true_signals_pay():
    figure = made("busa-fekete-4", [60], 2, 8.0)
    assert held(figure)["GREEDY-CIS is above GREEDY at every m"]


def test_late_signals_cost_accuracy():
    figure = made("busa-fekete-11", [30], 2, 6.0)
    rows = figure.columns
    assert set(rows["policy"]) == {"GREEDY-NCIS", "GREEDY-NCIS-D", "GREEDY", "BASELINE", runs.NO_DELAY}
    assert dict(zip(rows["policy"], rows["delay"], strict=True))[runs.NO_DELAY] == "none"
    assert any(text.startswith("Delay costs") and holds for text, holds in held(figure).items())


def test_corrupted_parameters_change_nothing_for_greedy():
    figure = made("busa-fekete-8", [40], 2, 6.0)
    rows = figure.columns
    keys = sorted(set(zip(rows["policy"], rows["corruption"], strict=True)))
    assert keys == [
        ("GREEDY", 0.0),
        *(("GREEDY-CIS+", p) for p in (0.0, 0.1, 0.2)),
        *(("GREEDY-NCIS", p) for p in (0.0, 0.1, 0.2)),
    ]
    assert set(rows["bandwidth"]) == {2.0}


def test_more_bandwidth_is_more_accuracy_and_has_a_course_over_time():
    figure = made("busa-fekete-12", [30], 2, 9.0)
    rows = figure.more["over_time"]
    mean = {s: np.mean([a for a, of in zip(rows["accuracy"], rows["schedule"], strict=True) if of == s])
            for s in ("100", runs.STEPPED, "150")}  # fmt: skip
    assert mean["100"] < mean[runs.STEPPED] < mean["150"]
    assert rows["time"][:3] == [1.0, 2.0, 3.0] and len(rows["time"]) == 3 * 9
    assert np.unique(figure.columns["bandwidth"]).size == 3


@pytest.mark.parametrize("name", ["busa-fekete-5", "busa-fekete-7"])
def test_pictures_of_rates_have_a_panel_for_each_policy_and_size(name):
    figure = made(name, [25, 30], 1, 4.0)
    assert len(figure.pictures[0].panels) == 6
    for panel in figure.pictures[0].panels:
        points = panel.series[0]
        assert points.x.size == points.y.size == points.colour.size
    assert len(figure.claims) >= 4
