"""Han et al. 2020 made again, small: what a figure holds, and that its parts can run anywhere."""

import numpy as np
import pytest

from pipelines.experiments.figures import han, han_runs
from pipelines.experiments.figures.han_claims import CLAIMS, TITLES, Measured

DAYS = (8, 2, 3)
BUDGETS = (0.1, 0.5, 0.9)


@pytest.fixture(scope="module")
def table_parts():
    return [han.run(task, DAYS, BUDGETS) for task in han.tasks("han-table-5", [150], 2)]


@pytest.fixture(scope="module")
def table(table_parts):
    return han.figure(table_parts)


def test_there_are_the_figures_of_the_paper():
    assert han.NAMES == ("han-table-5", "han-table-6", "han-figure-4", "han-figure-5", "han-figure-6")
    assert set(TITLES) == set(CLAIMS) == set(han.NAMES)


def test_tasks_share_out_the_repetitions():
    tasks = han.tasks("han-figure-4", [100, 200], 10)
    for pages in (100, 200):
        mine = [task for task in tasks if task.pages == pages]
        assert sorted(r for task in mine for r in task.repetitions) == list(range(10))
        assert len(mine) == han_runs.DATASETS
    assert len(han.tasks("han-figure-4", [100], 2)) == 2
    with pytest.raises(ValueError, match="han-figure-7"):
        han.tasks("han-figure-7", [100], 1)
    with pytest.raises(ValueError, match="at least one repetition"):
        han.tasks("han-figure-4", [100], 0)


def test_a_table_has_a_row_for_each_policy_budget_and_repetition(table):
    rows = table.columns
    n = 14 * 3 * 2
    assert {len(column) for column in rows.values()} == {n}
    assert {"policy", "pages", "repetition", "accuracy", "budget_per_day", "offer_freshness"} <= set(rows)
    assert len(set(zip(rows["policy"], rows["budget_per_day"], rows["repetition"], strict=True))) == n
    assert set(rows["policy"]) >= {"Uniform", "delta_h", "mu_ml", "lambda_ml", "KAB5"}
    accuracy = np.array(rows["accuracy"])
    assert (accuracy >= 0.0).all() and (accuracy <= 1.0).all()


def test_crawls_are_within_the_budget(table):
    rows = table.columns
    expected = np.array(rows["budget_per_day"]) * 150 * DAYS[2]
    crawls = np.array(rows["crawls"])
    assert (crawls < expected + 6.0 * np.sqrt(expected)).all()
    uniform = np.array(rows["policy"]) == "Uniform"
    assert (np.abs(crawls - expected)[uniform] < 6.0 * np.sqrt(expected[uniform])).all()


def test_tables_5_and_6_are_of_the_same_runs():
    five, six = (han.run(han.tasks(f"han-table-{k}", [60], 2)[1], DAYS, BUDGETS[:1]) for k in (5, 6))
    for policy, fresh in five.fresh.items():
        for metric, values in fresh.items():
            np.testing.assert_array_equal(values, six.fresh[policy][metric])


def test_the_order_of_parts_does_not_matter_to_claims(table, table_parts):
    again = CLAIMS["han-table-5"](Measured(table_parts[::-1]))
    assert [claim.holds for claim in again] == [claim.holds for claim in table.claims]


def test_claims_have_our_numbers_and_theirs(table):
    for claim in table.claims:
        assert claim.text and claim.ours and claim.paper
        assert isinstance(claim.holds, bool)


def test_claims_judge_what_is_there(table_parts):
    measured = Measured(table_parts)
    worst = CLAIMS["han-table-5"](measured)[0]
    medians = {policy: measured.medians(policy, "click") for policy in measured.policies}
    others = [v for p, v in medians.items() if p not in ("delta_h", "lambda_h-no-floor")]
    assert worst.holds == bool((medians["delta_h"] < np.min(others, axis=0)).all())


def test_changes_are_against_lambdacrawl_with_the_same_parameters():
    part = han.run(han.tasks("han-figure-4", [200], 1)[0], DAYS, (0.005, 0.05, 0.5))
    measured = Measured([part])
    assert measured.reference("KAB5") == "lambda_ml"
    assert measured.reference("KAB5-meta") == "lambda_meta"
    assert measured.reference("lambda_ml") == ""
    figure = han.figure([part])
    own = [r for r, p in enumerate(figure.summary["policy"]) if p == "lambda_ml"]
    assert np.isnan([figure.summary["change_percent"][r] for r in own]).all()
    assert len(figure.claims) == 4 * 7


def test_figure_5_has_the_probabilities_of_arms_over_time():
    figure = han.make("han-figure-5", (100,), 1, mapped=lambda run, tasks: [run(t, DAYS) for t in tasks])
    series = figure.series
    steps = 12 * (DAYS[1] + DAYS[2])
    assert len(series["step"]) == 2 * 2 * 5 * steps
    start = [p for p, step in zip(series["probability"], series["step"], strict=True) if step == 0]
    np.testing.assert_allclose(start, 0.2, rtol=1e-6)


def test_budgets_are_those_of_the_paper():
    tight = np.concatenate([np.arange(1, 10) / 1000, np.arange(1, 10) / 100, np.arange(1, 10) / 10])
    part = han.run(han.tasks("han-figure-4", [20], 1)[0], (2, 1, 1))
    assert part.budgets == tuple(tight)


def test_figure_6_runs_every_bandit_strategy():
    figure = han.make(
        "han-figure-6", (60,), 1, mapped=lambda run, tasks: [run(t, DAYS, BUDGETS) for t in tasks]
    )
    assert set(figure.columns["policy"]) == {
        "lambda_ml", *(f"KAB{k}{end}" for k in (2, 3, 4, 5) for end in ("", "-gain"))
    }  # fmt: skip
    assert len(figure.claims) == 16
