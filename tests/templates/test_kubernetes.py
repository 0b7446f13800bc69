"""The manifests against the schemas of Kubernetes and of the Flink operator, and against each other.

No cluster is asked. Kubernetes' own kinds are checked strictly, that is without unknown fields, by the
schemas in kubernetes-validate. The schema of FlinkDeployment is in `flink_operator.py`.
"""

from __future__ import annotations

import copy
import json
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from importlib.metadata import version as installed
from pathlib import Path
from typing import Any

import jsonschema
import kubernetes_validate
import pytest
from apache_beam.options.pipeline_options import PipelineOptions

from tests.cluster.fetch import DISTRIBUTION
from tests.templates import commands, flink_operator

# The oldest with all that is used as a stable field, and the newest that the schemas know.
VERSIONS = ("1.31", "1.37")
FLINK = "flink.yaml"


def check(manifest: dict[str, Any], version: str = VERSIONS[-1]) -> None:
    if manifest["apiVersion"].startswith("flink.apache.org/"):
        flink_operator.check(manifest, version)
    else:
        kubernetes_validate.validate(manifest, version, strict=True)


def manifests() -> list[tuple[str, dict[str, Any]]]:
    return [(name, d) for name in commands.MANIFESTS for d in commands.documents(name)]


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("manifest", [pytest.param(d, id=f"{name}-{d['kind']}") for name, d in manifests()])
def test_the_schema_accepts(manifest: dict[str, Any], version: str) -> None:
    check(manifest, version)


JOB = "spec.jobTemplate.spec"
POD = f"{JOB}.template.spec"
CONTAINER = "podTemplate.spec.containers.0"
WRONG: list[tuple[str, str, str, Any]] = [
    ("one-machine.yaml", "CronJob", "spec.schedul", "15 0 * * *"),
    ("one-machine.yaml", "CronJob", "spec.concurrencyPolicy", ["Forbid"]),
    ("one-machine.yaml", "CronJob", f"{JOB}.backoffLimit", "three"),
    ("one-machine.yaml", "CronJob", f"{JOB}.podFailurePolicy.rules.1.action", None),
    ("one-machine.yaml", "CronJob", f"{JOB}.podFailurePolicy.rules.1.onExitCodes.values", 4),
    ("one-machine.yaml", "CronJob", f"{POD}.containers.0.arguments", ["night"]),
    ("one-machine.yaml", "CronJob", f"{POD}.containers.0.args.0", 7),
    ("one-machine.yaml", "CronJob", f"{POD}.volumes.0.persistentVolumeClaim", {"claim": "x"}),
    ("one-machine.yaml", "PersistentVolumeClaim", "spec.resources.requests.storage", ["50Gi"]),
    ("one-machine.yaml", "ServiceAccount", "automountServiceAccountToken", "no"),
    (FLINK, "FlinkDeployment", "spec.flinkVersion", "1.20"),
    (FLINK, "FlinkDeployment", "spec.flinkVersions", "v1_20"),
    (FLINK, "FlinkDeployment", "spec.mode", "session"),
    (FLINK, "FlinkDeployment", "spec.flinkConfiguration.taskmanager\\.numberOfTaskSlots", 4),
    (FLINK, "FlinkDeployment", "spec.taskManager.resource.cpu", "four"),
    (FLINK, "FlinkDeployment", "spec.taskManager.resource.mem", "9g"),
    (FLINK, "FlinkDeployment", "spec.taskManager.replicas", "2"),
    (FLINK, "FlinkDeployment", f"spec.{CONTAINER}.volumeMounts.0.path", "/scratch"),
    (FLINK, "FlinkDeployment", f"spec.taskManager.{CONTAINER}.name", None),
    (FLINK, "FlinkDeployment", "spec.job", {"upgradeMode": "hopeful"}),
    (FLINK, "FlinkDeployment", "apiVersion", "flink.apache.org/v1"),
]


@pytest.mark.parametrize(("name", "kind", "path", "value"), WRONG, ids=[f"{k}-{p}" for _, k, p, _ in WRONG])
def test_the_schema_would_refuse(name: str, kind: str, path: str, value: Any) -> None:
    manifest = copy.deepcopy(commands.document(name, kind))
    check(manifest)
    *way, last = [part.replace("\\.", ".") for part in re.split(r"(?<!\\)\.", path)]
    place: Any = manifest
    for part in way:
        place = place[int(part)] if isinstance(place, list) else place[part]
    if value is None:
        del place[last]
    else:
        place[int(last) if isinstance(place, list) else last] = value
    with pytest.raises((jsonschema.ValidationError, kubernetes_validate.ValidationError)):
        check(manifest)


def pods() -> Iterator[tuple[str, dict[str, Any], list[dict[str, Any]]]]:
    """(name, pod, volumes) of every pod; the operator merges a TaskManager's template over the common one."""
    for name in commands.MANIFESTS:
        pod = commands.pod_of(commands.document(name, "CronJob"))
        yield name, pod, pod["volumes"]
    spec = commands.document(FLINK, "FlinkDeployment")["spec"]
    common, own = spec["podTemplate"]["spec"], spec["taskManager"]["podTemplate"]["spec"]
    yield FLINK, common, common["volumes"]
    yield FLINK, own, common["volumes"] + own["volumes"]


def test_names_within_the_manifests_lead_somewhere() -> None:
    for name, pod, volumes in pods():
        documents = commands.documents(name)
        claims = {d["metadata"]["name"] for d in documents if d["kind"] == "PersistentVolumeClaim"}
        for volume in volumes:
            claim = volume.get("persistentVolumeClaim", {}).get("claimName")
            assert claim in {None, *claims, "crawler-logs"}  # the last is the crawler's
        for container in pod["containers"]:
            mounted = {mount["name"] for mount in container["volumeMounts"]}
            assert mounted <= {volume["name"] for volume in volumes}
        accounts = {d["metadata"]["name"] for d in documents if d["kind"] == "ServiceAccount"}
        assert pod.get("serviceAccountName") in {None, *accounts}
    for name in commands.MANIFESTS:
        job = commands.document(name, "CronJob")["spec"]["jobTemplate"]["spec"]
        rules = job["podFailurePolicy"]["rules"]
        names = {rule["onExitCodes"]["containerName"] for rule in rules if "onExitCodes" in rule}
        assert names == {c["name"] for c in job["template"]["spec"]["containers"]}


def mounts(container: dict[str, Any]) -> dict[str, bool]:
    """Folders that are volumes, and whether they can be written."""
    return {m["mountPath"]: not m.get("readOnly", False) for m in container["volumeMounts"]}


@pytest.mark.parametrize("name", commands.MANIFESTS)
def test_what_the_command_writes_is_a_volume(name: str) -> None:
    (container,) = commands.pod_of(commands.document(name, "CronJob"))["containers"]
    assert container["securityContext"]["readOnlyRootFilesystem"]
    folders = mounts(container)
    assert folders["/store"] and folders["/tmp"] and folders["/logs"] is False
    assert "--store=/store" in container["args"]
    assert any(a.startswith("--observations=/logs/") for a in container["args"])


def test_workers_see_the_folders_that_the_submitter_names() -> None:
    """The command line's paths mean the same on a TaskManager."""
    spec = commands.document(FLINK, "FlinkDeployment")["spec"]
    (container,) = spec["taskManager"]["podTemplate"]["spec"]["containers"]
    (common,) = spec["podTemplate"]["spec"]["containers"]
    assert container["name"] == common["name"] == "flink-main-container"  # the operator's name
    folders = mounts(container) | mounts(common)
    assert folders["/store"] and folders["/logs"] is False
    assert spec["flinkConfiguration"]["io.tmp.dirs"] in folders
    claim = commands.document(FLINK, "PersistentVolumeClaim")
    assert claim["spec"]["accessModes"] == ["ReadWriteMany"]


def test_versions_and_names_of_the_flink_template_agree() -> None:
    deployment = commands.document(FLINK, "FlinkDeployment")
    (container,) = commands.pod_of(commands.document(FLINK, "CronJob"))["containers"]
    options = PipelineOptions(container["args"][1:]).get_all_options()
    dockerfile = (commands.KUBERNETES / "Dockerfile").read_text(encoding="utf-8")
    assert deployment["spec"]["image"] == container["image"]
    assert options["flink_master"] == f"{deployment['metadata']['name']}-rest:8081"
    version = options["flink_version"]
    assert deployment["spec"]["flinkVersion"] == f"v{version.replace('.', '_')}"
    assert f"FROM flink:{version}-" in dockerfile
    assert f"FROM apache/beam_flink{version}_job_server:{installed('apache-beam')} " in dockerfile
    assert f" {options['flink_job_server_jar']}\n" in dockerfile
    worker = json.loads(options["environment_config"])
    assert worker["command"] == "/opt/recrawl/bin/recrawl-worker"
    assert container["command"] == [commands.PROGRAM]
    assert set(worker["env"].values()) <= set(mounts(container))
    assert "COPY --from=beam-lib /beam/beam-runners-flink.jar /opt/flink/lib/\n" in dockerfile
    assert deployment["spec"]["flinkConfiguration"]["classloader.resolve-order"] == "parent-first"
    delay = deployment["spec"]["flinkConfiguration"]["restart-strategy.fixed-delay.delay"]
    # A worker that died is in the cache for so long, and a further try before that meets it.
    assert 1000 * int(delay.removesuffix(" s")) > int(options["environment_cache_millis"]) > 0
    slots = int(deployment["spec"]["flinkConfiguration"]["taskmanager.numberOfTaskSlots"])
    assert options["parallelism"] % slots == 0  # else slots stand idle
    assert int(options["sdk_worker_parallelism"]) == slots  # else they wait for each other's Python


def test_the_dockerfile_makes_the_images_of_the_manifests() -> None:
    text = (commands.KUBERNETES / "Dockerfile").read_text(encoding="utf-8")
    tagged = dict(re.findall(r"--target (\S+) --tag (\S+) ", text))
    used = {
        container["image"]
        for name in commands.MANIFESTS
        for container in commands.pod_of(commands.document(name, "CronJob"))["containers"]
    }
    assert set(tagged.values()) == used
    stages = re.findall(r"^FROM (\S+) AS (\S+)$", text, re.MULTILINE)
    assert set(tagged) <= {stage for _, stage in stages}
    names: set[str] = set()
    for image, stage in stages:
        assert image in names or re.search(r":\d", image), f"{image} has no version"
        names.add(stage)
    assert set(re.findall(r"COPY --from=(\S+)", text)) <= names
    root = commands.TEMPLATES.parent
    for sources in re.findall(r"^COPY (?!--)(.+) \S+$", text, re.MULTILINE):
        assert all((root / source).exists() for source in sources.split())
    for user in re.findall(r"^USER (\S+)$", text, re.MULTILINE):
        assert user == "9999:9999"
    for _, pod, _ in pods():
        if "securityContext" in pod:
            assert {pod["securityContext"][k] for k in ("runAsUser", "runAsGroup", "fsGroup")} == {9999}


@pytest.mark.flink
@pytest.mark.skipif(not DISTRIBUTION.exists(), reason=f"needs Flink in {DISTRIBUTION}: make test-flink")
@pytest.mark.skipif(shutil.which("java") is None, reason="needs Java")
@pytest.mark.parametrize("process", [None, "5000m"])
def test_flink_finds_room_for_everything_in_a_taskmanager(tmp_path: Path, process: str | None) -> None:
    """Flink's own reckoning, and that it would refuse a pod that is too small."""
    spec = commands.document(FLINK, "FlinkDeployment")["spec"]
    settings = spec["flinkConfiguration"] | {
        "taskmanager.memory.process.size": process or spec["taskManager"]["resource"]["memory"],
        "taskmanager.cpu.cores": str(float(spec["taskManager"]["resource"]["cpu"])),
    }
    (tmp_path / "config.yaml").write_text("".join(f"{k}: {v}\n" for k, v in settings.items()))
    jars = [DISTRIBUTION / "bin" / "bash-java-utils.jar", *sorted((DISTRIBUTION / "lib").glob("*.jar"))]
    program = "org.apache.flink.runtime.util.bash.BashJavaUtils"
    tool = ["java", "-cp", os.pathsep.join(map(str, jars)), program]
    done = subprocess.run(
        [*tool, "GET_TM_RESOURCE_PARAMS", "--configDir", str(tmp_path)],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    said = done.stdout + done.stderr
    if process is not None:
        assert done.returncode != 0
        assert "IllegalConfigurationException" in said
        return
    assert done.returncode == 0, said
    found = dict(re.findall(r"-D (\S+)=(\S+?)b?(?= |$)", said.rsplit("EXEC_RESULT:", 1)[1]))
    assert int(found["taskmanager.memory.managed.size"]) == 1536 << 20
    # What is left for Flink's own objects after the Python workers' part.
    assert int(found["taskmanager.memory.task.heap.size"]) > 1 << 30
