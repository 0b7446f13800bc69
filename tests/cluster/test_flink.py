"""A standalone Flink cluster as its users have it: what the job server is pointed at."""

from __future__ import annotations

import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster import engines, fetch
from tests.cluster.engines import SLOTS, Flink, until

pytestmark = pytest.mark.flink


KEPT = ["org/apache/beam/runners/flink/A.class", "org/apache/beam/vendor/B.class", "META-INF/services/x.Y"]


def _job_server(folder: Path) -> Path:
    """A jar with names as the job server's has them."""
    jar = folder / "job-server.jar"
    there = ["org/apache/flink/C.class", "org/slf4j/D.class", "flink-rpc-akka.jar"]
    there += [f"META-INF/{n}" for n in ("versions/11/org/apache/flink/E.class", "services/org.slf4j.spi.F")]
    with zipfile.ZipFile(jar, "w") as archive:
        for name in (*KEPT, *there, "META-INF/G.SF"):
            archive.writestr(name, name)
    return jar


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Flink]:
    """With a jar of Beam's in its lib/."""
    folder = tmp_path_factory.mktemp("flink")
    with pytest.MonkeyPatch.context() as patch:
        if fetch.job_server_jar() is None:
            patch.setenv(fetch.JAR_VARIABLE, str(_job_server(folder)))
        with engines.flink_cluster(folder) as found:
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
    # 512 buffers for each blocking exchange are more than a full night finds.
    assert int(found["taskmanager.network.sort-shuffle.min-buffers"]) <= 64
    assert found["classloader.resolve-order"] == "parent-first"
    delay = float(found["restart-strategy.fixed-delay.delay"].split()[0])
    assert delay > engines.CACHE_SECONDS  # else a further try meets the dead worker


def test_beams_classes_in_lib_are_those_that_flink_lacks(tmp_path):
    folder = fetch.lay_out_lib(_job_server(tmp_path), tmp_path / "lib")
    with zipfile.ZipFile(folder / "beam-runners-flink.jar") as archive:
        assert archive.namelist() == KEPT
        assert archive.read(KEPT[0]).decode() == KEPT[0]
    assert len(list(folder.glob("flink-dist*.jar"))) == 1


def test_a_killed_task_manager_is_noticed(cluster):
    """And its slots are gone; the other's stay."""
    cluster.processes[-1].kill()
    until(lambda: len(cluster.task_managers()) == 1, "the JobManager misses one TaskManager")
    assert engines.rest(cluster.port, "/overview")["slots-total"] == SLOTS
