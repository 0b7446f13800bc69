"""The commands that the templates start, as the shell or the cluster would pass them on."""

from __future__ import annotations

import ast
import json
import re
import shlex
import subprocess
from pathlib import Path
from typing import Any

import yaml

TEMPLATES = Path(__file__).resolve().parents[2] / "templates"
AIRFLOW = TEMPLATES / "airflow" / "recrawl_nightly.py"
CRON = TEMPLATES / "cron" / "recrawl"
SERVICE = TEMPLATES / "systemd" / "recrawl-night.service"
TIMER = TEMPLATES / "systemd" / "recrawl-night.timer"
KUBERNETES = TEMPLATES / "kubernetes"
MANIFESTS = ("one-machine.yaml", "flink.yaml")
PROGRAM = "/opt/recrawl/bin/recrawl"


def documents(name: str) -> list[dict[str, Any]]:
    """The documents of a file of manifests."""
    return list(yaml.safe_load_all((KUBERNETES / name).read_text(encoding="utf-8")))


def document(name: str, kind: str) -> dict[str, Any]:
    (found,) = [d for d in documents(name) if d["kind"] == kind]
    return found


def pod_of(cronjob: dict[str, Any]) -> dict[str, Any]:
    return cronjob["spec"]["jobTemplate"]["spec"]["template"]["spec"]


def unit(path: Path) -> dict[str, list[str]]:
    """The settings of a systemd unit, each with all its values; continued lines are joined."""
    found: dict[str, list[str]] = {}
    text = re.sub(r"\\\n\s*", "", path.read_text(encoding="utf-8"))
    for line in text.splitlines():
        if line and line[0] not in "#;[":
            name, _, value = line.partition("=")
            found.setdefault(name.strip(), []).append(value.strip())
    return found


def stub(folder: Path, body: str = "") -> Path:
    """A program that notes what it was called with in `calls`, a line a call, and does `body`."""
    program = folder / "recrawl"
    program.write_text(
        f"#!/usr/bin/env python3\nimport json, sys\nwith open({str(folder / 'calls')!r}, 'a') as file:\n"
        f"    print(json.dumps(sys.argv[1:]), file=file)\n"
        f"{body}\n"
    )
    program.chmod(0o755)
    return program


def calls(folder: Path) -> list[list[str]]:
    path = folder / "calls"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def constants(path: Path) -> dict[str, Any]:
    """Module constants with literal values, without importing what the module imports."""
    found = {}
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            try:
                found[node.targets[0].id] = ast.literal_eval(node.value)
            except ValueError:
                pass
    return found


def airflow_command(folder: Path, as_of: str) -> list[str]:
    """What bash makes of the DAG's command with the default settings."""
    dag = constants(AIRFLOW)
    settings = {name.upper(): text for name, text in dag["DEFAULTS"].items()}
    assert settings["RECRAWL_PROGRAM"] == PROGRAM
    settings |= {"RECRAWL_PROGRAM": str(stub(folder)), "RECRAWL_AS_OF": as_of, "PATH": "/usr/bin:/bin"}
    subprocess.run(["bash", "-c", dag["COMMAND"]], env=settings, cwd=folder, check=True)
    return calls(folder)[-1]


def cron_line() -> str:
    lines = CRON.read_text(encoding="utf-8").splitlines()
    (found,) = [line for line in lines if re.match(r"[\d*]", line)]
    return found


def cron_command(folder: Path) -> list[str]:
    """What the shell that cron starts makes of the line; cron ends a command at a bare percent sign."""
    command = re.split(r"(?<!\\)%", cron_line().split(None, 6)[6])[0].replace("\\%", "%")
    for there, here in (("/srv/recrawl", str(folder)), (PROGRAM, str(stub(folder)))):
        assert there in command
        command = command.replace(there, here)
    subprocess.run(["sh", "-c", command], env={"PATH": "/usr/bin:/bin"}, check=True)
    return calls(folder)[-1]


def systemd_command() -> list[str]:
    (line,) = unit(SERVICE)["ExecStart"]
    program, *arguments = shlex.split(line)
    assert program == PROGRAM
    return arguments


def kubernetes_command(name: str) -> list[str]:
    (container,) = pod_of(document(name, "CronJob"))["containers"]
    return container["args"]
