"""The workflow that launches a night: its expressions are evaluated, the template takes what comes out."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import pytest
import yaml
from google.protobuf import json_format

from tests.templates.launching import IMAGE, TEMPLATE, metadata, needs_client

PARAMETERS = {p["name"]: p for p in metadata()["parameters"]}
README = (TEMPLATE / "README.md").read_text(encoding="utf-8")
SHELL = {"PROJECT": "proj-x", "REGION": "europe-west1", "BUCKET": "some-bucket", "IMAGE": IMAGE}
TEXT = (TEMPLATE / "nightly.workflow.yaml").read_text(encoding="utf-8")
STEPS: dict[str, Any] = {k: v for s in yaml.safe_load(TEXT)["main"]["steps"] for k, v in s.items()}
# What the README tells to send.
ARGUMENT: dict[str, Any] = json.loads(
    re.sub(
        r"\$([A-Z]+)", lambda m: SHELL[m[1]], re.search(r"night\.json <<END\n(.*?)\nEND\n", README, re.S)[1]
    )
)


def library(now: datetime) -> dict[str, Any]:
    """What the expressions use of the service's standard library."""

    def format_time(seconds: float) -> str:
        return datetime.fromtimestamp(seconds, UTC).isoformat().replace("+00:00", "Z")

    return {
        "sys": SimpleNamespace(now=now.timestamp),
        "time": SimpleNamespace(format=format_time),
        "text": SimpleNamespace(substring=lambda t, start, end: t[start:end]),
        "map": SimpleNamespace(
            get=lambda m, key: (vars(m) if isinstance(m, SimpleNamespace) else m).get(key),
            delete=lambda m, key: {k: v for k, v in m.items() if k != key},
        ),
        "string": str,
        "default": lambda value, otherwise: otherwise if value is None else value,
        "false": False,
    }


def evaluated(value: Any, names: dict[str, Any]) -> Any:
    """A value of the workflow with its `${...}` evaluated: they are a subset of Python's expressions."""
    if isinstance(value, dict):
        return {k: evaluated(v, names) for k, v in value.items()}
    if isinstance(value, str) and value.startswith("${"):
        return eval(value[2:-1], {"__builtins__": {}}, names)
    return value


def launched(now: str, **argument: Any) -> dict[str, Any]:
    """The request of the launching step."""
    names = library(datetime.fromisoformat(now)) | {"args": SimpleNamespace(**ARGUMENT, **argument)}
    for step in ("dates", "parameters"):
        for pair in STEPS[step]["assign"]:
            names |= evaluated(pair, names)
    (first,) = STEPS["first_night"]["switch"]
    if evaluated(first["condition"], names):
        names |= evaluated(first["steps"][0]["without_state"]["assign"][0], names)
    return evaluated(STEPS["launch"]["args"], names)


@pytest.mark.parametrize("argument", [{}, {"first": False}, {"first": True}])
def test_the_template_takes_what_is_launched(argument: dict[str, Any]):
    given = launched("2026-07-01T00:15:00Z", **argument)["body"]["launchParameter"]["parameters"]
    assert {n for n, p in PARAMETERS.items() if not p["isOptional"]} <= given.keys() <= PARAMETERS.keys()
    for name, value in given.items():
        assert isinstance(value, str)
        assert all(re.fullmatch(r, value) for r in PARAMETERS[name]["regexes"]), (name, value)
    assert ("state" in given) is not argument.get("first", False)


def test_a_night_goes_on_from_the_night_before():
    first, second = (
        launched(now)["body"]["launchParameter"] for now in ("2026-02-28T00:15:00Z", "2026-03-01T23:59:59Z")
    )
    assert second["parameters"]["state"] == first["parameters"]["output"] + "/state"
    assert second["parameters"]["as_of"] == "2026-03-01T00:00:00Z"
    assert second["parameters"]["observations"] == "gs://some-bucket/logs/2026-02-28/*"
    # The service's rule for names of jobs.
    assert re.fullmatch(r"[a-z]([-a-z0-9]{0,1022}[a-z0-9])?", second["jobName"])
    assert first["jobName"] != second["jobName"]


@pytest.mark.parametrize(
    ("job", "chosen"),
    [
        ({}, None),
        ({"currentState": "JOB_STATE_RUNNING"}, None),
        ({"currentState": "JOB_STATE_DONE"}, "return"),
        ({"currentState": "JOB_STATE_FAILED"}, "raise"),
        ({"currentState": "JOB_STATE_CANCELLED"}, "raise"),
    ],
)
def test_a_night_that_fails_is_an_execution_that_fails(job: dict[str, str], chosen: str | None):
    names = library(datetime.now(UTC)) | {"job": job}
    found = [case for case in STEPS["decide"]["switch"] if evaluated(case["condition"], names)]
    assert [set(case) - {"condition"} for case in found] == ([{chosen}] if chosen else [])
    assert STEPS["decide"]["next"] == "wait" and list(STEPS)[-3:] == ["wait", "look", "decide"]


@needs_client
def test_the_service_knows_every_field_of_the_request():
    from google.cloud.dataflow_v1beta3 import LaunchFlexTemplateParameter

    request = launched("2026-07-01T00:15:00Z")["body"]["launchParameter"]
    message = LaunchFlexTemplateParameter.pb()
    assert json_format.ParseDict(request, message()).environment.machine_type == "n2-highmem-4"
    with pytest.raises(json_format.ParseError):
        json_format.ParseDict({**request, "environment": {"machine": "x"}}, message())


def test_the_readme_sends_the_argument_that_the_workflow_reads():
    read = set(re.findall(r"args\.(\w+)", TEXT)) | set(re.findall(r'map\.get\(args, "(\w+)"\)', TEXT))
    assert read == ARGUMENT.keys() | {"first"}
    assert '{"first": true}' in README
    described = TEXT[TEXT.index("Argument: {") : TEXT.index("}.")]
    assert set(re.findall(r'"(\w+)"', described)) == read


def test_the_readme_launches_with_parameters_that_the_template_takes():
    text = re.search(r'--parameters "\^;\^(.*?)"', README, re.S)[1].replace("\\\n", "")
    text = re.sub(r"\$([A-Z]+)", lambda m: SHELL[m[1]], text)
    given = dict(pair.split("=", 1) for pair in text.split(";"))
    assert {n for n, p in PARAMETERS.items() if not p["isOptional"]} <= given.keys()
    for name, value in given.items():
        assert all(re.fullmatch(r, value) for r in PARAMETERS[name]["regexes"]), (name, value)
