"""Tables 2 and 3 of Han et al. 2019: results, claims, given histories, and the network as plain weights."""

import importlib.util

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pipelines.door import cli
from pipelines.experiments.figures import han_2019_runs as runs
from pipelines.experiments.figures import trained
from policies.history.page_state import US_PER_DAY
from tests.policies.predictors.drawn_rows import drawn_rows

COLUMNS = ["dataset", "model", "observability", "pages", "auc", "auc_sd", "log_loss", "bias"]


@pytest.fixture
def light(monkeypatch):
    """Without models of other libraries, which take their time."""
    monkeypatch.setattr(trained, "has_keras", lambda: False)
    monkeypatch.setattr(trained, "has_trees", lambda: False)


def history(folder, pages=40, days=80):
    rng = np.random.Generator(np.random.Philox(key=2))
    rate = np.geomspace(0.02, 1.0, pages)
    count = rng.poisson(rate * days)
    page = np.repeat(np.arange(pages), count)
    at = 19_000 * US_PER_DAY + (rng.random(len(page)) * days * US_PER_DAY).astype(np.int64)
    urls = [f"https://shop{p % 3}.test/{p}" for p in range(pages)]
    changes = {"url": [urls[p] for p in page], "changed_at": pa.array(at, pa.timestamp("us", "UTC"))}
    pq.write_table(pa.table(changes), folder / "changes.parquet")
    catalogue = {"url": urls, "kind": [str(p // 10) for p in range(pages)]}
    pq.write_table(pa.table(catalogue), folder / "pages.parquet")
    return [f"--changes={folder}/changes.parquet", f"--pages={folder}/pages.parquet"]


def test_results_of_drawn_offers(light, tmp_path, capsys):
    argv = ["reproduce", "han-2019-table-3", "--pages", "60", "--repetitions", "1", "--workers", "1"]
    assert cli.main([*argv, "--no_plots", f"--output={tmp_path}"]) == 0
    table = pq.read_table(tmp_path / "results.parquet")
    assert table.column_names == COLUMNS
    rows = table.to_pylist()
    names = [m for m in runs.MODELS if m not in (runs.DNN_METADATA, runs.DNN_BOTH, runs.TREES)]
    keys = {(r["dataset"], r["model"], r["observability"], r["pages"]) for r in rows}
    wanted = {("offers-60-0", m, o, p) for m in names for o in runs.OBSERVED for p in ("seen", "unseen")}
    assert keys == wanted and len(rows) == len(keys)
    assert all(np.isfinite(r["log_loss"]) and r["log_loss"] > 0.0 and r["bias"] > 0.0 for r in rows)
    assert "recrawl" in {r["model"] for r in rows}
    tenths = pq.read_table(tmp_path / "calibration.parquet").to_pylist()
    assert len(tenths) == 10 * len(rows)
    said = capsys.readouterr().out
    assert "unseen pages" in said and "claims hold" in said


def test_a_given_history(light, tmp_path, capsys):
    argv = ["reproduce", "han-2019-table-2", *history(tmp_path), "--horizon_hours", "24", "--workers", "1"]
    argv += ["--dataset", "shops", "--group_columns", "kind", "--no_plots", f"--output={tmp_path}/out"]
    assert cli.main(argv) == 0
    rows = pq.read_table(tmp_path / "out" / "results.parquet").to_pylist()
    assert {r["dataset"] for r in rows} == {"shops"}
    by = {(r["model"], r["observability"], r["pages"]): r for r in rows}
    # Poisson pages: frequencies of a month beat those of a day, and the estimator needs no correction.
    for how in runs.OBSERVED:
        month, day = (by[runs.frequency(runs.PAGE, w), how, "seen"]["auc"] for w in ("1 month", "1 day"))
        assert month > day
        ours, estimator = (by[m, how, "seen"]["log_loss"] for m in (runs.OURS, runs.ESTIMATOR))
        assert ours < estimator + 0.02
    report = (tmp_path / "out" / "report.md").read_text(encoding="utf-8")
    assert "--changes FILES --pages FILES --group_columns kind --horizon_hours 24" in report


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["han-table-5", "--changes", "x"], "han-table-5 is made of drawn pages only"),
        (["han-2019-table-2", "HISTORY", "--group_columns", "kinds"], "not among the columns"),
        (["han-2019-table-2", "HISTORY", "--horizon_hours", "0"], "--horizon_hours=0"),
        (["han-2019-table-2", "HISTORY", "--start", "soon"], "--start=soon"),
    ],
)
def test_options_that_cannot_work(words, said, tmp_path, capsys):
    given = history(tmp_path)
    argv = [w for word in words for w in (given if word == "HISTORY" else [word])]
    assert cli.main(["reproduce", *argv, f"--output={tmp_path}/out"]) == cli.EXIT_USAGE
    assert said in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.skipif(not trained.has_keras(), reason="needs recrawl[keras]")
def test_numpy_has_what_keras_has():
    """No worker needs the library that trained the network."""
    rows = drawn_rows(3000, 1, changed=np.arange(3000) % 5 == 0)
    model = trained.Dnn(True, 0)
    model.fit(rows, np.log(rows.days))
    network = model.network
    import keras

    values = rows.values()
    twin = trained._build(keras, 8, values.max(axis=0) + 1)
    for number, table in enumerate(network.embeddings):
        twin.get_layer(f"values_{number}").set_weights([table])
    for number, weights in enumerate(network.layers):
        twin.get_layer(f"dense_{number}").set_weights(list(weights))
    theirs = np.asarray(twin([network.scaled(rows.frequencies()), *values.T]))[:, 0]
    ours = network.log_odds(rows.frequencies(), values)
    assert np.abs(ours - theirs).max() < 1e-5 * max(1.0, np.abs(theirs).max())
    assert np.ptp(ours) > 0.01


@pytest.mark.skipif(importlib.util.find_spec("sklearn") is None, reason="needs recrawl[boosting]")
def test_trees_find_what_no_line_finds():
    rows = drawn_rows(4000, 2)
    odd = (rows.metadata[:, 0] % 2 == 0) ^ (rows.hour < 12)
    rows = drawn_rows(4000, 2, changed=odd)
    model = trained.Boosted(0)
    model.fit(rows, np.log(rows.days))
    found = model.log_multiplier(rows)
    assert found[odd].min() > found[~odd].max()
