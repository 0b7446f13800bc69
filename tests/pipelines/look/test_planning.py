"""`recrawl.plan`: the optimum of a table in memory, and the recipes of docs/notebook.md."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import recrawl
from policies.numerics.errors import InfeasibleError
from policies.objectives import objectives
from tests.pipelines.jobs import at, nightly
from tests.pipelines.site import make_site

NOTEBOOK = Path(__file__).resolve().parents[3] / "docs" / "notebook.md"
RECIPES = re.findall(r"```python\n(.*?)```", NOTEBOOK.read_text(encoding="utf-8"), re.DOTALL)
SITE = make_site(n_pages=40, days=12)


def _table(n: int = 60) -> pa.Table:
    rng = np.random.Generator(np.random.Philox(key=n))
    return pa.table(
        {
            "url": [f"https://h{i % 5}.test/{i}" for i in range(n)],
            "change_rate_per_day": rng.gamma(0.5, 2.0, n),
            "requests_per_day": rng.pareto(1.1, n),
            "section": ["a"] * n,
        }
    )


@pytest.mark.parametrize("name", ["periodic", "memoryless", "discrete", "harmonic"])
def test_pages_that_are_crawled_are_worth_the_same_at_the_margin(name):
    table = _table()
    plan = recrawl.plan(table, 15.0, objective=name)
    rate, change, weight = (
        plan.pages.column(c).to_numpy()
        for c in ("crawl_rate_per_day", "change_rate_per_day", "requests_per_day")
    )
    assert rate.sum() == pytest.approx(15.0) and plan.allocated_per_day == pytest.approx(15.0)
    objective = objectives.get(name)
    worth = objective.marginal_value(rate, change, weight)
    free = (rate > 0.0) & (rate < objective.max_rate_per_day)
    assert worth[free] == pytest.approx(plan.multiplier, rel=1e-5)
    assert (worth[rate == 0.0] <= plan.multiplier * (1 + 1e-9)).all()
    fresh = plan.pages.column("expected_freshness").to_numpy()
    assert plan.expected_freshness == pytest.approx(float(weight @ fresh / weight.sum()))
    assert plan.pages.select(table.column_names).equals(table)


def test_limits_of_pages_and_hosts_hold_in_any_order():
    table = _table().append_column("min_rate_per_day", pa.array([0.05, None, *([0.0] * 58)]))
    table = table.append_column("max_rate_per_day", pa.array([None, 0.02, *([None] * 58)], pa.float64()))
    plan = recrawl.plan(table, 15.0, host_max_per_day=2.0)
    rate = plan.pages.column("crawl_rate_per_day").to_numpy()
    by_host = np.bincount(np.arange(60) % 5, rate)
    assert rate[0] >= 0.05 and rate[1] <= 0.02
    assert by_host.max() == pytest.approx(2.0) and (by_host <= 2.0 + 1e-9).all()
    assert plan.unspent_per_day == pytest.approx(15.0 - rate.sum()) and plan.unspent_reason
    turned = recrawl.plan(table.take(np.arange(60)[::-1].copy()), 15.0, host_max_per_day=2.0)
    assert turned.pages.column("crawl_rate_per_day").to_numpy()[::-1] == pytest.approx(rate, rel=1e-9)


def test_a_plan_of_a_night_is_that_of_the_night(tmp_path):
    rows, clicks = SITE.between("observations", 0, 12), SITE.between("requests", 0, 12)
    night = nightly(tmp_path, observations=rows, requests=clicks, budget=20, as_of=at(12))
    assert night.code == 0, night.complaints
    opened = recrawl.open(str(night.folder))
    plan = recrawl.plan(opened.pages(), 20, weight="weight")
    # Volatile and silent pages have caps that pages/ does not show: this site has none.
    assert plan.multiplier == pytest.approx(opened.manifest["multiplier"], rel=1e-6)
    assert plan.expected_freshness == pytest.approx(opened.manifest["expected_freshness"], rel=1e-6)


@pytest.mark.parametrize(
    "change, said",
    [
        ({"change_rate_per_day": None}, "no column change_rate_per_day; it has"),
        ({"requests_per_day": [1.0, float("nan")]}, "requests_per_day of row 1 is nan"),
        ({"requests_per_day": [1.0, None]}, "requests_per_day of row 1 is nan"),
        ({"change_rate_per_day": [-1.0, 1.0]}, "change_rate_per_day of row 0 is -1"),
        ({"change_rate_per_day": ["often", "never"]}, "change_rate_per_day: expected numbers"),
        ({"max_rate_per_day": [-1.0, 1.0]}, "max_rate_per_day of row 0 is -1"),
        ({"url": ["https://a.test/", "ftp://b"]}, "url of row 1 is 'ftp://b'"),
        ({"url": None}, "needs a column url"),
    ],
)
def test_what_no_rate_can_be_is_named(change, said):
    table = {"url": ["https://a.test/", "https://b.test/"]}
    table |= {"change_rate_per_day": [1.0, 2.0], "requests_per_day": [1.0, 2.0], **change}
    table = {name: values for name, values in table.items() if values is not None}
    with pytest.raises(ValueError, match=re.escape(said)):
        recrawl.plan(table, 1.0, host_max_per_day=5.0)


def test_what_cannot_be_asked_for_is_named():
    table = _table()
    with pytest.raises(ValueError, match="expected one of periodic, memoryless, discrete, harmonic"):
        recrawl.plan(table, 1.0, objective="signals")
    with pytest.raises(ValueError, match="budget_per_day=-1"):
        recrawl.plan(table, -1)
    with pytest.raises(InfeasibleError):
        recrawl.plan(table.append_column("min_rate_per_day", pa.array([1.0] * 60)), 1.0)


def test_no_page_is_a_plan_too():
    plan = recrawl.plan(_table().slice(0, 0), 10, host_max_per_day=1.0)
    assert plan.pages.num_rows == 0 and plan.expected_freshness is None and plan.unspent_per_day == 10.0


@pytest.fixture(scope="module")
def night(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("notebook")
    rows, clicks = SITE.between("observations", 0, 12), SITE.between("requests", 0, 12)
    assert nightly(folder, "night", observations=rows, requests=clicks, as_of=at(12)).code == 0
    return folder


@pytest.mark.parametrize("recipe", RECIPES)
def test_recipes_run(recipe, night, monkeypatch):
    for library in re.findall(r"^import (\w+)", recipe, re.MULTILINE):
        pytest.importorskip(library)
    monkeypatch.chdir(night)
    names: dict[str, object] = {}
    exec(compile(recipe, str(NOTEBOOK), "exec"), names)
    pages = names.get("rates", getattr(names.get("plan"), "pages", names.get("pages")))
    assert len(pages) > 2 and "crawl_rate_per_day" in str(getattr(pages, "columns", "")) + str(
        getattr(pages, "column_names", "")
    )
