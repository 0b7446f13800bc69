"""recrawl every night, as a DAG for Airflow 3.

Settings are Airflow Variables, read when the task runs; what is not set has the default below. An environment
variable serves as well: AIRFLOW_VAR_RECRAWL_STORE is the Variable recrawl_store. recrawl has its own virtual
environment: its Beam and Airflow's dependencies need not agree.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from airflow.providers.standard.operators.bash import BashOperator
from airflow.sdk import DAG, CronTriggerTimetable
from airflow.sdk.exceptions import AirflowFailException, AirflowSkipException

DEFAULTS = {
    "recrawl_program": "/opt/recrawl/bin/recrawl",
    "recrawl_store": "/srv/recrawl/store",
    # Or *.jsonl.gz, *.parquet, *.csv.
    "recrawl_observations": "/srv/crawler/logs/{date}/*.jsonl",
    # Limits of hosts, see docs/templates.md; only a heading where there are none.
    "recrawl_hosts": "/srv/recrawl/hosts.csv",
    "recrawl_budget": "50000",
    "recrawl_options": "",
}

SETTINGS = {name.upper(): f"{{{{ var.value.get({name!r}, {text!r}) }}}}" for name, text in DEFAULTS.items()}

# Values come through the environment, so that none is taken for a piece of the command; only recrawl_options
# is split at blanks. `exec` lets a SIGTERM meet recrawl itself.
COMMAND = (
    'set -f; exec "$RECRAWL_PROGRAM" night --store "$RECRAWL_STORE" --as_of "$RECRAWL_AS_OF" '
    '--observations "$RECRAWL_OBSERVATIONS" --hosts "$RECRAWL_HOSTS" --budget "$RECRAWL_BUDGET" '
    "$RECRAWL_OPTIONS"
)

# The midnight UTC that has passed. A run that somebody starts may have no interval.
AS_OF = "{{ (data_interval_end | default(dag_run.run_after, true)) | ds }}"

# Options wrong; nothing to read, or an empty schedule; too many rows rejected; history shrunk: trying again
# does not help, a person does. The others are 1 (failed) and 6 (another night is running).
NOT_AGAIN = (2, 3, 4, 5)


class NightOperator(BashOperator):
    """A BashOperator that fails for good, without further tries, on the exit codes in `NOT_AGAIN`."""

    def __init__(self, **arguments: Any) -> None:
        super().__init__(skip_on_exit_code=NOT_AGAIN, **arguments)

    def execute(self, context: Any) -> Any:
        try:
            return super().execute(context)
        except AirflowSkipException as skipped:
            raise AirflowFailException(f"{skipped} See the log above for what recrawl says.") from None


with DAG(
    dag_id="recrawl_nightly",
    description="Learns from the crawl logs and writes the next crawl schedule",
    # Fifteen minutes for the last logs of the day to arrive. Logs that come later are read the next night.
    schedule=CronTriggerTimetable("15 0 * * *", timezone="UTC"),
    start_date=datetime(2026, 1, 1, tzinfo=UTC),
    # A night reads all logs since the last one that was done, so nights that were missed need no runs.
    catchup=False,
    max_active_runs=1,
    tags=["recrawl"],
):
    NightOperator(
        task_id="night",
        bash_command=COMMAND,
        env={"RECRAWL_AS_OF": AS_OF, **SETTINGS},
        append_env=True,
        retries=3,
        retry_delay=timedelta(minutes=15),
        execution_timeout=timedelta(hours=20),
    )
