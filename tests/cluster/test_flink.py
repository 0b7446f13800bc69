"""A standalone Flink cluster as its users have it: what the job server is pointed at."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.cluster import engines
from tests.cluster.engines import SLOTS, Flink, until

pytestmark = pytest.mark.flink


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Flink]:
    with engines.flink_cluster(tmp_path_factory.mktemp("flink")) as found:
        yield found


def test_two_task_managers_offer_their_slots(cluster):
    """Each in a process of its own."""
    found = cluster.task_managers()
    assert [manager["slotsNumber"] for manager in found] == [SLOTS, SLOTS]
    assert len({manager["dataPort"] for manager in found}) == 2
    assert len({process.pid for process in cluster.processes}) == 3
    overview = engines.rest(cluster.port, "/overview")
    assert overview["slots-total"] == 2 * SLOTS and overview["flink-version"].startswith("1.20.")


def test_the_cluster_has_what_the_job_needs(cluster):
    """Settings that the defaults do not have and a lost TaskManager asks for; docs/cluster.md names them."""
    answer = engines.rest(cluster.port, "/jobmanager/config")
    found = {item["key"]: item["value"] for item in answer}
    assert found["restart-strategy.type"] == "fixed-delay"
    assert int(found["restart-strategy.fixed-delay.attempts"]) >= 1
    assert found["jobmanager.execution.failover-strategy"] == "region"
    assert found["taskmanager.runtime.large-record-handler"] == "true"


def test_a_killed_task_manager_is_noticed(cluster):
    """And its slots are gone; the other's stay."""
    cluster.processes[-1].kill()
    until(lambda: len(cluster.task_managers()) == 1, "the JobManager misses one TaskManager")
    assert engines.rest(cluster.port, "/overview")["slots-total"] == SLOTS
