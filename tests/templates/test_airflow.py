"""The DAG in a real Airflow: loaded, rendered and run against a program that takes recrawl's place."""

from __future__ import annotations

import importlib.util
import json
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

if importlib.util.find_spec("airflow") is None:
    pytest.skip(
        "needs Airflow, which has an environment of its own: make test-airflow", allow_module_level=True
    )

from tests.templates import commands

DEFAULTS = commands.constants(commands.AIRFLOW)["DEFAULTS"]
RECRAWL = Path(os.environ.get("RECRAWL") or commands.TEMPLATES.parent / ".venv" / "bin" / "recrawl")
NOT_AGAIN = commands.constants(commands.AIRFLOW)["NOT_AGAIN"]


@pytest.fixture(scope="module")
def airflow(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A database of its own with the DAG in it; the `DagBag`."""
    home = tmp_path_factory.mktemp("airflow")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AIRFLOW_HOME", str(home))  # Airflow reads it where it is imported
        patch.setenv("AIRFLOW__CORE__UNIT_TEST_MODE", "True")
        patch.setenv("AIRFLOW__CORE__LOAD_EXAMPLES", "False")
        from airflow.dag_processing.dagbag import DagBag, sync_bag_to_db
        from airflow.models.dagbundle import DagBundleModel
        from airflow.utils import db
        from airflow.utils.session import create_session

        db.initdb()
        bag = DagBag(dag_folder=str(commands.AIRFLOW.parent))
        with create_session() as session:
            session.merge(DagBundleModel(name="dags-folder"))
        sync_bag_to_db(bag, "dags-folder", None)
        yield bag


@pytest.fixture
def dag(airflow: Any) -> Any:
    return airflow.dags["recrawl_nightly"]


def test_it_loads(airflow: Any) -> None:
    assert airflow.import_errors == {}
    assert set(airflow.dags) == {"recrawl_nightly"}


def test_a_dag_that_does_not_load_would_be_seen(airflow: Any, tmp_path: Path) -> None:
    text = commands.AIRFLOW.read_text(encoding="utf-8")
    (tmp_path / "recrawl_nightly.py").write_text(text.replace("retries=3", "retrys=3"))
    (error,) = type(airflow)(dag_folder=str(tmp_path)).import_errors.values()
    assert "retrys" in error


def test_one_task_one_run_at_a_time_and_no_runs_for_missed_nights(dag: Any) -> None:
    assert {task.task_id: task.downstream_task_ids for task in dag.tasks} == {"night": set()}
    assert (dag.max_active_runs, dag.catchup) == (1, False)
    task = dag.get_task("night")
    assert (task.retries, task.retry_delay) == (3, timedelta(minutes=15))
    # All tries together end before the next night.
    assert task.execution_timeout + task.retries * task.retry_delay < timedelta(days=1)


def test_it_starts_a_quarter_past_midnight_utc(dag: Any) -> None:
    import pendulum
    from airflow.timetables.base import TimeRestriction
    from airflow.timetables.trigger import CronTriggerTimetable

    timetable = CronTriggerTimetable(dag.timetable.expression, timezone=dag.timetable.timezone)
    earliest = pendulum.datetime(2026, 7, 1, 18)
    found = timetable.next_dagrun_info(
        last_automated_data_interval=None, restriction=TimeRestriction(earliest, None, True)
    )
    assert found.run_after == datetime(2026, 7, 2, 0, 15, tzinfo=UTC)


def rendered(dag: Any, **context: Any) -> str:
    task = dag.get_task("night")
    return task.render_template(task.env["RECRAWL_AS_OF"], context)


@pytest.mark.parametrize(
    ("end", "as_of"),
    [
        (datetime(2026, 7, 2, 0, 15, tzinfo=UTC), "2026-07-02"),
        (datetime(2026, 12, 31, 0, 15, tzinfo=UTC), "2026-12-31"),
    ],
)
def test_a_scheduled_run_is_for_the_midnight_before_it(dag: Any, end: datetime, as_of: str) -> None:
    later = SimpleNamespace(run_after=end + timedelta(days=3))
    assert rendered(dag, data_interval_end=end, dag_run=later) == as_of


def test_a_run_that_somebody_starts_is_for_the_midnight_before_it(dag: Any) -> None:
    run = SimpleNamespace(run_after=datetime(2026, 7, 2, 16, 40, tzinfo=UTC))
    assert rendered(dag, dag_run=run) == "2026-07-02"
    assert rendered(dag, data_interval_end=None, dag_run=run) == "2026-07-02"


def run(dag: Any, program: Path, **variables: str) -> Any:
    """One run of the DAG for 2 July, tries following each other at once."""
    task = dag.get_task("night")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(task, "retry_delay", timedelta(0))
        for name, text in {"program": str(program), **variables}.items():
            patch.setenv(f"AIRFLOW_VAR_RECRAWL_{name.upper()}", text)
        return dag.test(logical_date=datetime(2026, 7, 2, 0, 15, tzinfo=UTC))


def test_it_runs_the_command(dag: Any, tmp_path: Path) -> None:
    done = run(dag, commands.stub(tmp_path), store="/data/nights", options="--keep 30 --pages *.csv")
    assert done.state == "success"
    (seen,) = commands.calls(tmp_path)
    plain = commands.airflow_command(tmp_path, "2026-07-02")
    plain[plain.index("--store") + 1] = "/data/nights"
    assert seen == [*plain, "--keep", "30", "--pages", "*.csv"]


@pytest.mark.skipif(not RECRAWL.exists(), reason=f"needs recrawl itself at {RECRAWL}: make setup")
def test_it_runs_a_night(dag: Any, tmp_path: Path) -> None:
    """The real recrawl, in its own environment."""
    for day in ("2026-06-30", "2026-07-01"):
        log = tmp_path / "logs" / day / "crawl.jsonl"
        log.parent.mkdir(parents=True)
        log.write_text(
            json.dumps({"url": "https://a.example/", "fetched_at": f"{day}T12:00Z", "digest": day})
        )
    places = {
        "store": str(tmp_path / "store"),
        "observations": str(tmp_path / "logs" / "{date}" / "*.jsonl"),
        "hosts": str(commands.TEMPLATES / "hosts.csv"),
    }
    assert run(dag, RECRAWL, **places, options="--num_shards=1").state == "success"
    latest = json.loads((tmp_path / "store" / "latest.json").read_text())
    assert latest["as_of"] == "2026-07-02T00:00:00Z"
    assert list((tmp_path / "store" / latest["schedule"]).iterdir())
    again = run(dag, RECRAWL, **places, options="--num_shards=1")
    assert again.state == "success"  # nothing to do
    wrong = run(dag, RECRAWL, **places, options="--num_shards=none")
    assert wrong.state == "failed"


@pytest.mark.parametrize(("code", "tries"), [(6, 4), *((code, 1) for code in NOT_AGAIN)])
def test_it_tries_again_where_that_helps(dag: Any, tmp_path: Path, code: int, tries: int) -> None:
    done = run(dag, commands.stub(tmp_path, f"sys.exit({code})"))
    assert done.state == "failed"
    assert len(commands.calls(tmp_path)) == tries


def until(condition: Callable[[], bool], seconds: float = 30.0) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.02)


def test_a_task_that_is_stopped_stops_the_night(dag: Any, tmp_path: Path) -> None:
    """Airflow calls `on_kill`; recrawl gets the SIGTERM on which it leaves the night before in force."""
    body = (
        "import signal\n"
        f"def stop(*_):\n    open({str(tmp_path / 'stopped')!r}, 'w').close()\n    sys.exit(1)\n"
        "signal.signal(signal.SIGTERM, stop)\n"
        f"open({str(tmp_path / 'ready')!r}, 'w').close()\n"
        "while True:\n    signal.pause()"
    )
    task = dag.get_task("night").prepare_for_execution()
    names = {name.upper(): text for name, text in DEFAULTS.items()}
    task.env = names | {
        "RECRAWL_PROGRAM": str(commands.stub(tmp_path, body)),
        "RECRAWL_AS_OF": "2026-07-02",
    }
    raised: list[BaseException] = []

    def work() -> None:
        try:
            task.execute({})
        except BaseException as error:
            raised.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    try:
        until((tmp_path / "ready").exists)
        task.on_kill()
        thread.join(30)
        assert not thread.is_alive()
    finally:
        if thread.is_alive():
            os.killpg(task.subprocess_hook.sub_process.pid, signal.SIGKILL)
    assert (tmp_path / "stopped").exists()
    (error,) = raised
    # A stopped night is one to be tried again.
    assert type(error).__name__ == "AirflowException"
