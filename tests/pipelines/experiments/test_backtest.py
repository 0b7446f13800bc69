"""`recrawl backtest` and `recrawl frontier` from files to tables."""

import gzip
import hashlib
import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from benchmarks.replay import backtest_histories, backtest_logs
from pipelines.door import cli
from pipelines.experiments import backtest_report, frontier
from pipelines.experiments.backtest_report import compare
from policies.history.page_state import US_PER_DAY
from policies.numerics.typing_ import FloatArray
from tests.pipelines.webpage.reading import Element, check_page, table
from tests.transforms.replayed_worlds import START, poisson_world
from transforms.batches.schemas import TIME
from transforms.intake.sources import plan_files, read_split
from transforms.replay.backtesting import Scored, Weighting
from transforms.replay.frontier import Question, search
from transforms.replay.replaying import ReplaySettings, build_world
from transforms.replay.worlds import World
from transforms.rows.normalise import CHANGES

# To keep the last third fresh is hopeless, and the first third hardly needs it: equal rates waste crawls.
RATES = np.repeat([0.02, 0.5, 5.0], 20)
DAYS = 20


@pytest.fixture(scope="module")
def world() -> World:
    return poisson_world(RATES, DAYS)


@pytest.fixture(scope="module")
def changes(world: World, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A list of changes as CSV."""
    path = tmp_path_factory.mktemp("changes") / "changes.csv"
    past, url = world.history, world.url.to_pylist()
    rows = [f"{u},{at / 1e6:.6f},first" for u, at in zip(url, past.first_us.tolist(), strict=True)]
    rows += [
        f"{url[p]},{at / 1e6:.6f},change"
        for p, at in zip(past.change_page.tolist(), past.change_us.tolist(), strict=True)
    ]
    path.write_text("\n".join(["url,changed_at,kind", *rows]))
    return path


def run(*options: str | Path) -> int:
    return cli.main([str(o) for o in options])


def window(days: int = DAYS) -> list[str]:
    day = np.datetime64("1970-01-01") + np.timedelta64(START // US_PER_DAY, "D")
    return [f"--start={day}", f"--end={day + np.timedelta64(days, 'D')}"]


def sums(folder: Path) -> dict[str, str]:
    return {
        f.name: hashlib.sha256(f.read_bytes()).hexdigest() for f in sorted(folder.iterdir()) if f.is_file()
    }


def test_who_wins_and_what_it_costs(
    changes: Path, world: World, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    common = ["backtest", f"--changes={changes}", *window(), "--workers=1"]
    common += ["--budgets", "0.15", "0.3"]
    policies = ["--policies", "recrawl,uniform,change-weighted", "known-rates"]
    assert run(*common, *policies, f"--output={tmp_path}/one") == 0
    text = capsys.readouterr().out
    assert text.endswith(f"\n\n{tmp_path}/one/report.html\n")
    rows = pq.read_table(tmp_path / "one" / "results.parquet").to_pylist()
    assert len(rows) == 8
    assert all(abs(r["spent"] / r["budget"] - 1) < 0.01 for r in rows)
    assert {r["budget_per_day"] for r in rows} == {0.15 * 60, 0.3 * 60}
    fresh = {(r["policy"], r["budget"]): r["accuracy"] for r in rows}
    for budget in (0.15, 0.3):
        ordered = [fresh[p, budget] for p in ("known-rates", "recrawl", "uniform", "change-weighted")]
        assert ordered[0] >= ordered[1] - 0.01 and ordered[1] > ordered[2] > ordered[3]
        assert f"At {budget}: best is recrawl, {100 * ordered[1]:.2f} %; next is uniform" in text
    gained = 100 * (fresh["recrawl", 0.3] - fresh["recrawl", 0.15])
    assert f"2 times the budget, 0.15 to 0.3: {gained:+.2f} points for recrawl" in text
    assert f"60 pages, {DAYS} nights" in text
    policies = ["--policies", "uniform,change-weighted"]
    assert run(*common, *policies, f"--output={tmp_path}/json", "--json", "--no_plots") == 0
    out, err = capsys.readouterr()
    said = json.loads(out)
    summary = pq.read_table(tmp_path / "json" / "summary.parquet").to_pylist()
    assert [(r["policy"], r["budget"], r["accuracy"]) for r in said["summary"]] == [
        (r["policy"], r["budget"], r["accuracy"]) for r in summary
    ]
    assert "At 0.3: best is uniform" in err and said["facts"]["pages"] == 60
    days = pq.read_table(tmp_path / "one" / "days.parquet").to_pylist()
    of = [d for d in days if d["policy"] == "uniform" and d["budget"] == 0.3]
    assert len(of) == DAYS - 8
    assert sum(d["fresh"] for d in of) / sum(d["held"] for d in of) == pytest.approx(fresh["uniform", 0.3])


def picture(page: Element, title: str) -> Element:
    """The SVG of a chart."""
    (found,) = [f for f in page.all("figure") if f.all("h3")[0].text == title]
    return found.all("svg")[0]


def circles(picture: Element, kind: str) -> FloatArray:
    """Places of all dots or rings, (n, 2)."""
    found = [c.attributes for c in picture.all("circle") if c.attributes["class"] == kind]
    return np.array([[float(str(c["cx"])), float(str(c["cy"]))] for c in found])


def check_backtest_page(folder: Path, fresh: dict[tuple[str, float], float]) -> None:
    """Its numbers are those of the runs, and dots lie where they say, from the best down."""
    page = check_page((folder / "report.html").read_text(encoding="utf-8"))
    rows = table(page, "Fresh requests by policy and budget")
    assert {(r["policy"], r["crawls per page and day"]): r["fresh"] for r in rows} == pytest.approx(fresh)
    svg = picture(page, "Difference to recrawl at 0.15")
    names = [t.text.removesuffix(" *") for t in svg.all("text") if "name" in str(t.attributes.get("class"))]
    assert names == sorted(names, key=lambda p: -fresh[p, 0.15]) and len(names) == 4
    gains = [fresh[p, 0.15] - fresh["recrawl", 0.15] for p in names]
    x, y = circles(svg, "dot").T
    assert np.corrcoef(x, gains)[0, 1] > 0.9999 and (np.diff(y) > 0.0).all()
    # Of each colour one line has a name: none of the reference, which no crawler can follow.
    curves = picture(page, "Freshness by budget")
    assert [len(curves.all("polygon")), len(curves.all("polyline"))] == [3, 4]


def test_the_same_bytes_whoever_does_the_work(changes: Path, tmp_path: Path, forked_workers: None) -> None:
    common = ["backtest", f"--changes={changes}", *window(8), "--budgets", "0.3", "1", "--no_plots"]
    common += ["--policies", "recrawl", "uniform", "known-rates"]
    for workers in (1, 2):
        assert run(*common, f"--workers={workers}", f"--output={tmp_path}/{workers}") == 0
    assert sums(tmp_path / "1") == sums(tmp_path / "2")


def test_a_crawl_log_with_clicks(world: World, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Changes come from the log; weights and budgets by themselves."""
    rng = np.random.Generator(np.random.Philox(key=5))
    n = len(world)
    page = np.repeat(np.arange(n), DAYS)
    at = START + (np.tile(np.arange(DAYS), n) + rng.random(n * DAYS)) * US_PER_DAY
    at = at.astype(np.int64)
    log = {
        "url": world.url.take(pa.array(page)),
        "fetched_at": pa.array(at).cast(TIME),
        "digest": [str(v) for v in world.history.version(page, at)],
        "last_modified": pa.array(world.history.last_change(page, at)).cast(TIME),
    }
    pq.write_table(pa.table(log), tmp_path / "log.parquet")
    clicks = np.repeat([5, 50], n // 2)
    asked = {"url": world.url, "day": ["2026-05-28"] * n, "clicks": clicks}
    pq.write_table(pa.table(asked), tmp_path / "clicks.parquet")
    options = [f"--observations={tmp_path}/log.parquet", f"--requests={tmp_path}/clicks.parquet"]
    options += ["--policies", "recrawl", "click-weighted", "--workers=1", f"--output={tmp_path}/out"]
    assert run("backtest", *options, "--no_plots") == 0
    text = capsys.readouterr().out
    assert "clicks weights" in text and "The log: 1" in text and " % of them drawn." in text
    assert "A crawl log shows whether a page changed between two crawls, not how often" in text
    rows = pq.read_table(tmp_path / "out" / "results.parquet").to_pylist()
    assert len({r["budget"] for r in rows}) == 3 and max(r["budget"] for r in rows) == pytest.approx(
        1, abs=0.1
    )
    fresh = {(r["policy"], r["budget"]): r["accuracy"] for r in rows}
    budget = min(r["budget"] for r in rows)
    assert fresh["recrawl", budget] > fresh["click-weighted", budget]


@pytest.mark.slow
def test_the_budget_for_a_target(changes: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options = [f"--changes={changes}", *window(15), "--workers=1"]
    # Without a bound the search begins where a run makes a thousand crawls a night.
    wanted = ["--target", "0.55", "0.999", "--most=2", "--policies", "recrawl", "uniform"]
    assert run("frontier", *wanted, *options, f"--output={tmp_path}") == 0
    rows = pq.read_table(tmp_path / "frontier.parquet").to_pylist()
    need = {(r["policy"], r["target"]): r["budget"] for r in rows}
    assert need["recrawl", 0.55] < need["uniform", 0.55]
    assert all(np.isnan(need[p, 0.999]) or need[p, 0.999] > 1 for p in ("recrawl", "uniform"))
    ratio = need["uniform", 0.55] / need["recrawl", 0.55]
    error = {(r["policy"], r["target"]): r["standard_error"] for r in rows}
    text = capsys.readouterr().out
    with_error = frontier.with_error(need["uniform", 0.55], error["uniform", 0.55])
    assert f"{with_error}  ({ratio:.2f} x)" in text and "Errors are over 9 scored days" in text
    assert all(0 < error[p, 0.55] < 0.5 * need[p, 0.55] for p in ("recrawl", "uniform"))
    page = check_page((tmp_path / "report.html").read_text(encoding="utf-8"))
    for target in (0.55, 0.999):
        rows = table(page, f"Budget for {100 * target:g} % fresh")
        shown = {(r["policy"], target): r["crawls per page and day"] for r in rows}
        assert shown == {k: "–" if np.isnan(v) else v for k, v in need.items() if k[1] == target}
    # A ring for each answer, on the line of its target, at the budget: the axis is logarithmic.
    search = picture(page, "The search")
    lines = [p for p in search.all("polyline") if p.attributes["class"] == "rule"]
    heights = sorted({float(str(p.attributes["points"]).split()[0].split(",")[1]) for p in lines})
    rings = circles(search, "ring")
    answers = {k: v for k, v in need.items() if np.isfinite(v)}
    assert len(rings) == len(answers) and {*rings[:, 1]} == {
        heights[-1 if t == 0.55 else 0] for _, t in answers
    }
    low = rings[rings[:, 1] == heights[-1], 0]
    apart = np.log(need["uniform", 0.55] / need["recrawl", 0.55])
    runs = pq.read_table(tmp_path / "results.parquet").column("budget").to_numpy()
    dots = circles(search, "dot")[:, 0]
    assert (low.max() - low.min()) / (dots.max() - dots.min()) == pytest.approx(
        apart / np.log(runs.max() / runs.min()), abs=0.01
    )
    # The budget found does give the target.
    again = [
        "--no_plots",
        "--policies=uniform",
        f"--budgets={need['uniform', 0.55]:.6f}",
        f"--output={tmp_path}/check",
    ]
    assert run("backtest", *options, *again) == 0
    checked = pq.read_table(tmp_path / "check" / "results.parquet").to_pylist()
    assert [r["accuracy"] for r in checked] == pytest.approx([0.55], abs=0.01)


def test_compared_with_the_first_policy_that_the_inputs_allow(
    changes: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    common = [f"--changes={changes}", *window(), "--workers=1", "--no_plots", f"--output={tmp_path}"]
    assert run("frontier", "--target", "0.4", *common, "--policies", "sitemap", "uniform") == 0
    assert json.loads((tmp_path / "results.json").read_text())["options"]["against"] == "uniform"
    out = capsys.readouterr().out
    assert "\nuniform" in out and "\nPolicies left out: sitemap without --signals.\n" in out
    assert run("backtest", *common, "--policies", "recrawl+equal", "uniform", "--budgets=0.3") == 0
    assert (
        "\nPolicies left out: recrawl+equal without weights that differ, from --requests, --pages or "
        "--weights=zipf.\n"
    ) in capsys.readouterr().out
    assert run("backtest", *common, "--policies", "uniform", "--budgets=0.3") == 0
    assert "left out" not in capsys.readouterr().out
    assert run("backtest", *common, "--policies", "sitemap") == 2
    assert "--policies: sitemap needs --signals. Give that, or another policy" in capsys.readouterr().err
    both = ["--policies", "uniform", "recrawl+equal", "--against=recrawl+equal"]
    assert run("backtest", *common, *both) == 2
    assert "--against: recrawl+equal needs weights that differ, from --requests" in capsys.readouterr().err


def test_all_that_is_wrong_with_the_options(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options = ["--budgets", "0", "x", "--policies", "uniform", "nutch", "--weights=fame", "--draws=0"]
    options.append("--against=recrawl")
    assert run("backtest", *options, "--warm_up=2", "--start=soon", "--oops", f"--output={tmp_path}") == 2
    text = capsys.readouterr().err
    for part in (
        "--oops: neither recrawl nor Beam knows this option",
        "--observations and --changes: give one of them",
        "--budgets=0: expected crawls per page and day",
        "--budgets=x: expected",
        "--policies: nutch: choose from recrawl,",
        "--weights: fame: choose from auto,",
        "--draws=0: expected draws, a whole number from 1 to 1000",
        "--warm_up=2: expected share of nights from 0 to 0.9",
        "--start=soon: expected ISO 8601",
        "--against=recrawl: not among --policies",
    ):
        assert part in text
    assert run("frontier", "--target", "90", "--changes=x", f"--output={tmp_path}") == 2
    assert "--target=90: expected a share above 0 and below 1" in capsys.readouterr().err


def test_inputs_that_are_not_there_or_too_short(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("backtest", f"--changes={tmp_path}/none.csv", "--workers=1", f"--output={tmp_path}/out") == 2
    assert "--changes: no file matches" in capsys.readouterr().err
    (tmp_path / "short.csv").write_text(
        "url,changed_at\nhttps://a.test/1,2026-06-01\nhttps://a.test/1,2026-06-03\n"
    )
    options = [f"--changes={tmp_path}/short.csv", "--workers=1", f"--output={tmp_path}/out"]
    assert run("backtest", *options) == 2
    assert "a replay needs 5" in capsys.readouterr().err
    # A window, but no clicks; and a budget that buys nothing.
    more = [*options, "--start=2026-06-01", "--end=2026-06-21", "--policies", "recrawl"]
    assert run("backtest", *more, "--weights=clicks") == 2
    assert "--weights=clicks: no input has clicks" in capsys.readouterr().err
    assert run("backtest", *more, "--budgets=0.001") == 2
    text = capsys.readouterr()
    assert "--budgets=0.001: less than one crawl" in text.err and not text.out
    assert not list((tmp_path / "out").iterdir())
    (tmp_path / "other.csv").write_text("url,when\nhttps://a.test/1,2026-06-01\n")
    assert run("backtest", f"--changes={tmp_path}/other.csv", "--workers=1", f"--output={tmp_path}/out") == 2
    assert "changes need a column changed_at" in capsys.readouterr().err


def test_pages_that_never_change_and_weights_of_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Everything is fresh whatever is spent: budgets are at least one crawl."""
    url = [f"https://a.test/{i}" for i in range(4)]
    path = tmp_path / "changes.csv"
    path.write_text("url,changed_at,kind\n" + "".join(f"{u},2026-06-01,first\n" for u in url))
    pages = tmp_path / "pages.csv"
    pages.write_text("url,importance\n" + "".join(f"{u},0\n" for u in url))
    common = [f"--changes={path}", f"--pages={pages}", "--start=2026-06-02", "--end=2026-06-12", "--no_plots"]
    common += ["--workers=1", f"--output={tmp_path}/out", "--policies", "uniform", "heritrix"]
    assert run("backtest", *common, "--against=uniform") == 0
    assert "equal weights" in capsys.readouterr().out  # an importance of 0 for all weighs nothing
    rows = pq.read_table(tmp_path / "out" / "results.parquet").to_pylist()
    assert all(r["accuracy"] == 1.0 and r["budget"] * 4 * 6 >= 1 for r in rows)
    assert run("frontier", "--target=0.9", *common, "--against=uniform") == 0
    assert capsys.readouterr().out.count("at most 0.0") == 2
    assert run("frontier", "--target=0.9", *common, "--against=uniform", "--most=1e-5") == 2
    assert "--most=1e-05: less than one crawl in the scored nights; give at least" in capsys.readouterr().err
    assert run("backtest", *common, "--against=uniform", "--weights=importance") == 2
    assert "no input has importance above 0" in capsys.readouterr().err


def test_weeks_before_any_page_do_not_spoil_the_test() -> None:
    results, days = tables(np.full((1, 49), 0.03) + np.random.default_rng(1).normal(0, 0.01, (1, 49)))
    late = np.tile(np.arange(49) >= 7, 2)
    for name in ("fresh", "held"):
        column = pa.array(days.column(name).to_numpy() * late)
        days = days.set_column(days.column_names.index(name), name, column)
    (found,) = compare(results, days, "recrawl")
    assert found.cells["uniform", 0.1].p_value == pytest.approx(2 / 2**6)
    assert found.cells["uniform", 0.1].blocks == 6


def tables(gains: np.ndarray) -> tuple[pa.Table, pa.Table]:
    """Results of two policies over repetitions and days; the second is better by `gains`, (r, d)."""
    base = 0.5 + 0.1 * np.sin(np.arange(gains.shape[1]))
    rows, days = [], []
    for name, more in (("recrawl", 0.0 * gains), ("uniform", gains)):
        for r, line in enumerate(more):
            fresh = base + line
            common = {"policy": name, "budget": 0.1, "weights": "zipf", "repetition": r}
            numbers = dict.fromkeys(("offer_freshness", "found", "harmonic_cost"), 0.5)
            rows.append({**common, "accuracy": fresh.mean(), "spent": 0.1, **numbers})
            days += [{**common, "fresh": f, "held": 1.0} for f in fresh]
    return pa.Table.from_pylist(rows), pa.Table.from_pylist(days)


def test_errors_of_differences_hold() -> None:
    """The error of a gain is what it varies by when days and draws are drawn anew."""
    rng = np.random.Generator(np.random.Philox(key=8))
    gains, errors = [], []
    for _ in range(60):
        draw, day = rng.normal(0, 0.02, (5, 1)), rng.normal(0, 0.05, (1, 70))
        (found,) = compare(*tables(0.03 + draw + day), "recrawl")
        cell = found.cells["uniform", 0.1]
        gains.append(cell.gain)
        errors.append(cell.gain_error)
    assert np.mean(gains) == pytest.approx(0.03, abs=4 * np.std(gains) / np.sqrt(60))
    assert np.mean(errors) == pytest.approx(np.std(gains), rel=0.3)
    (found,) = compare(*tables(np.full((5, 70), 0.03) + rng.normal(0, 0.001, (5, 70))), "recrawl")
    assert found.cells["uniform", 0.1].p_value == pytest.approx(2 / 2**10)  # all ten weeks agree
    assert found.best(0.1) == "uniform"
    assert found.cells["recrawl", 0.1].gain == 0.0


@pytest.mark.parametrize(
    ("days", "blocks", "note"),
    [(35, 5, "5 scored weeks"), (5, 5, "5 scored days"), (42, 6, ""), (20, 20, "too small")],
)
def test_few_blocks_give_no_p_and_a_note(days: int, blocks: int, note: str) -> None:
    """Five pairs that agree have p = 2 / 2**5."""
    rng = np.random.Generator(np.random.Philox(key=8))
    (found,) = compare(*tables(0.03 + rng.normal(0, 0.001, (1, days))), "recrawl")
    cell = found.cells["uniform", 0.1]
    assert cell.blocks == blocks
    assert np.isnan(cell.p_value) if blocks < 6 else cell.p_value == pytest.approx(2 / 2**blocks)
    end = np.datetime64("2026-06-01") + np.timedelta64(days, "D")
    texts = backtest_report.about_errors({"scored_from": "2026-06-01T00:00:00Z", "end": f"{end}T00:00:00Z"})
    assert len(texts) == bool(note) and all(note in " ".join(t.split()) for t in texts)


def test_the_error_of_a_budget_is_what_it_varies_by() -> None:
    """Of periodic crawls of pages alike, with days that are better or worse for all."""
    rng = np.random.Generator(np.random.Philox(key=6))
    rows = []
    for _ in range(80):
        luck = rng.normal(0.0, 0.06, 70)

        def run(budget: float, luck: FloatArray = luck) -> Scored:
            fresh = -np.expm1(-0.2 / budget) * budget / 0.2 + luck
            share = float(fresh.mean())
            return Scored(
                "uniform", budget, "equal", 0, 9, 9, budget, 0.5, share, share, 0.5, fresh, np.ones(70)
            )

        (answer,) = search(Question("uniform", Weighting("equal"), (0.8,), 0.002, 2.0), run)
        rows.append(frontier._row(answer))
    budget, error = (np.array([r[name] for r in rows]) for name in ("budget", "standard_error"))
    assert budget.mean() == pytest.approx(0.2 / 0.4642, rel=0.03)
    # The spread of 80 is known to 8 %.
    assert error.mean() == pytest.approx(budget.std(ddof=1), rel=0.25)


@pytest.mark.parametrize(
    ("value", "error", "text"),
    [
        (0.12345, 0.0043, "0.123 ± 0.004"),
        (0.12345, 0.013, "0.123 ± 0.013"),
        (34.56, 2.1, "35 ± 2"),
        (3456.0, 210.0, "3456 ± 210"),
        (0.12345, float("nan"), "0.123"),
    ],
)
def test_a_budget_and_its_error(value: float, error: float, text: str) -> None:
    assert frontier.with_error(value, error) == text


def test_what_is_above_the_logs_own_rate_is_marked() -> None:
    (found,) = compare(*tables(np.full((1, 30), 0.1)), "recrawl")
    facts = {"source": "observations", "crawls_per_page_day": 0.05, "nights": 30}
    (text,) = backtest_report.cautions({"facts": facts}, found.budgets)
    assert " ".join(text.split()).endswith("That is so for 0.1.")
    facts["crawls_per_page_day"] = 0.2
    (text,) = backtest_report.cautions({"facts": facts}, found.budgets)
    assert "That is so for" not in " ".join(text.split())


def test_a_world_is_read_as_it_was_written(changes: Path, world: World) -> None:
    batches = [
        b for s in plan_files(str(changes), "changes") for tag, b in read_split(s, CHANGES) if tag == "rows"
    ]
    settings = ReplaySettings(START, START + DAYS * US_PER_DAY)
    past = build_world(batches, settings).world.history
    assert (past.change_us == world.history.change_us).all()
    assert (past.change_page == world.history.change_page).all()
    assert (past.first_us == world.history.first_us).all()


def test_real_histories_become_inputs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    day = START // 1_000_000
    files = {
        "events": [
            ("page_id", "event_time", "kind", "cause", "digest", "lang"),
            ("a.test/x y", day, "first", "organic", "d0", "en"),
            ("a.test/x y", day + 86_400, "change", "organic", "d1", "en"),
            ("a.test/x y", day + 90_000, "change", "refilter", "d2", "en"),
            ("a.test/x y", day + 2 * 86_400, "delete", "organic", "", "en"),
        ],
        "lastmod": [
            ("page_id", "seen_time", "lastmod"),
            ("a.test/x y", day, "2026-01-01"),
            ("a.test/x y", day + 86_400, "2026-01-02"),
            ("b.test/z", day, "2026-01-01"),
        ],
    }
    for name, rows in files.items():
        with gzip.open(tmp_path / f"{name}.tsv.gz", "wt") as file:
            file.writelines("\t".join(map(str, row)) + "\n" for row in rows)
    options = backtest_histories.convert(tmp_path, tmp_path / "out")
    assert [o.split("=")[0] for o in options] == ["--changes", "--pages", "--signals"]
    changes = pq.read_table(tmp_path / "out" / "changes.parquet").to_pylist()
    # What the tracker itself did is no change; a page that is gone is one.
    assert [(c["digest"], c["kind"]) for c in changes] == [
        ("d0", "first"),
        ("d1", "change"),
        ("gone", "change"),
    ]
    assert {c["url"] for c in changes} == {"https://a.test/x%20y"}
    assert pq.read_table(tmp_path / "out" / "pages.parquet").to_pylist()[0]["lang"] == "en"
    # The first sight of a date is no signal, nor is one of an unknown page.
    assert pq.read_table(tmp_path / "out" / "signals.parquet").num_rows == 1


def test_without_the_histories_it_says_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RECRAWL_SHARED", str(tmp_path))
    assert backtest_histories.main(["prices_tcg", "--out", str(tmp_path)]) == 0
    assert capsys.readouterr().out.startswith("skipped: no events.tsv.gz")
    assert backtest_logs.main(["prices_tcg"]) == 0
    assert capsys.readouterr().out.endswith("skipped: no events.tsv.gz of prices_tcg; set RECRAWL_SHARED\n")
