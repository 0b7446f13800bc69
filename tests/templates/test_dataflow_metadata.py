"""The contract of the Dataflow template: its parameters are the options of the job."""

from __future__ import annotations

import argparse
import json
import re
from typing import Any

import pytest
from apache_beam.options.pipeline_options import PipelineOptions, WorkerOptions

from pipelines.command.errors import OptionsError
from pipelines.nightly.arguments import OUTPUT_FORMATS, WEIGHTS
from pipelines.nightly.options import NightlyOptions, Settings
from policies.objectives import objectives
from tests.templates.launching import IMAGE, load_main, metadata, needs_client
from transforms.night.dividing import SEQUENCERS

PARAMETERS = {p["name"]: p for p in metadata()["parameters"]}
# Options of Beam that the template cannot do without and that are no fields of its launch dialogue.
OF_BEAM = {"sdk_container_image"}
CHOICES = {
    "output_format": OUTPUT_FORMATS,
    "objective": ("auto", *objectives.NAMES),
    "weight_by": WEIGHTS,
    "sequencer": SEQUENCERS,
}

# By parameter: values that must pass, values that must not.
EXAMPLES: dict[str, tuple[list[str], list[str]]] = {
    "observations": (
        ["gs://logs/2026-06-30/*.parquet", "gs://logs/a b/*.jsonl.gz,gs://logs-2/day=*/"],
        ["logs/*.parquet", "gs://logs", "gs://logs/a,", "gs://logs/a,b", "gs://logs/a, gs://logs/b", ""],
    ),
    "requests": (["gs://clicks/2026-06-30.csv.gz"], ["clicks.csv", "s3://clicks/a.csv"]),
    "observations_format": (["auto", "canonical"], ["Auto", "", "c d x"]),
    "observations_columns": (
        ["fetched_at=crawl_time", "url=page url,digest=sha1"],
        ["fetched_at", "url=,b=c", ""],
    ),
    "requests_format": (["auto", "canonical"], ["Auto", ""]),
    "requests_columns": (["day=date,clicks=visits"], ["day", "day=date,"]),
    "requests_site": (
        ["https://shop.test", "http://shop.test:8080"],
        ["shop.test", "https://shop.test/", ""],
    ),
    "requests_day": (["2026-06-30"], ["30.06.2026", "2026-6-30", ""]),
    "tracking_parameters": (["ref", "ref,src,my_*"], ["", "ref=home", "?ref", "*", "ref,", "ref src"]),
    "own_user_agent": (["OurBot", "OurBot/1.0,Our other bot"], ["", "OurBot,"]),
    "repair_cdx00": (["true", "false"], ["yes", "1"]),
    "observations_timezone": (["Europe/Berlin", "UTC"], ["", "Mid Europe"]),
    "requests_timezone": (["America/Argentina/Buenos_Aires", "Etc/GMT+3"], ["", "Mid Europe"]),
    "nutch_sync_delta_rate": (["0.3", "0"], ["1", "30%"]),
    "pages": (["gs://site/pages.parquet"], ["pages.parquet"]),
    "hosts": (["gs://site/hosts.csv"], ["https://site/hosts.csv"]),
    "signals": (["gs://site/signals/*.jsonl"], ["gs:/site/signals"]),
    "sitemaps": (["gs://site/sitemaps/*.xml.gz"], ["https://site.test/sitemap.xml"]),
    "sitemap_pages": (["true", "false"], ["yes", "1"]),
    "lower_soft_404": (["true", "false"], ["yes", "1"]),
    "host_groups": (["true", "false"], ["yes", "1"]),
    "state": (
        ["gs://nights/2026-06-30/state", "gs://nights/2026-06-30/state/"],
        ["gs://nights", "gs://nights/", "state", "gs://nights/a,gs://nights/b"],
    ),
    "discovery": (["gs://nights/found-02"], ["found-02", "gs://nights"]),
    "output": (["gs://nights/2026-07-01"], ["gs://nights", "gs://nights/", "out", "gs://Nights/a"]),
    "output_format": (["parquet", "avro", "jsonl"], ["csv", "Parquet", "parquet,avro"]),
    "budget": (["50000", "0.5", "1e6", "0"], ["-1", "50,000", "many", "1_000", "inf", "nan"]),
    "as_of": (
        ["2026-07-01", "2026-07-01T00:00:00Z", "2026-07-01T02:00+02:00", "2026-07-01T00:00:00.5Z"],
        ["2026-7-1", "01.07.2026", "tomorrow", "2026-07-01 00:00", "1782864000"],
    ),
    "horizon_hours": (["24", "1.5"], ["-24", "1 day"]),
    "max_signal_shift": (["0.005", "0", "1"], ["0.5 %", "1.5"]),
    "hour_capacity": (["4", "1", "24", "2.5"], ["0", "25", "4x"]),
    "on_request_share": (["auto", "0", "0.25", "0.9"], ["half", "0.95", "1", "25%"]),
    "sequencer": (["lds", "greedy"], ["edf", "Greedy"]),
    "objective": (["auto", "periodic", "memoryless", "discrete", "harmonic"], ["best", "periodic "]),
    "weight_by": (["auto", "clicks", "impressions", "importance", "equal"], ["click"]),
    "page_min_per_day": (["0.0714", "0", "1"], ["-1", "daily"]),
    "page_max_per_day": (["24", "0.5"], ["-1", "daily"]),
    "host_max_per_day": (["1000"], ["unlimited", "-5"]),
    "host_min_gap_seconds": (["0", "2.5"], ["1s"]),
    "group_columns": (["section", "section,language"], ["", "section,", ",section"]),
    "half_life_changes": (["12", "0"], ["1.5", "-1", "never"]),
    "half_life_days": (["1", "28.5"], ["0.5", "0", "never"]),
    "request_half_life_days": (["28", "0.5"], ["-28", "a month"]),
    "signal_delay_minutes": (["0", "30", "2.5"], ["-1", "1h"]),
    "max_rejected_fraction": (["0.01", "0", "1", "1.0"], ["1 %", "1.5", "2", "-0.1"]),
    "allow_shrink": (["true", "false"], ["yes", "1"]),
    "overwrite": (["true", "false"], ["yes", "1"]),
    "num_shards": (["1", "16", "99999"], ["0", "16.0", "100000"]),
    "split_hosts_above": (["0", "100000"], ["-1", "1e5", ""]),
    "rows_per_batch": (["262144"], ["0", "1e6"]),
    "sdk_container_image": (
        [IMAGE, IMAGE + "@sha256:" + "0" * 64, "eu.gcr.io/proj/recrawl"],
        ["recrawl", "https://europe-west1-docker.pkg.dev/a/b/c:1", "proj/recrawl:"],
    ),
}
LEAST = {"observations": "gs://l/*", "budget": "1", "as_of": "2026-07-01", "output": "gs://n/1"}


def actions() -> dict[str, argparse.Action]:
    parser = argparse.ArgumentParser(add_help=False)
    NightlyOptions._add_argparse_args(parser)
    # Dataflow has no use for the address of a Flink cluster.
    return {a.dest: a for a in parser._actions if a.dest != "flink_rest"}


def help_of(action: argparse.Action) -> str:
    return (action.help or "") % {"default": action.default}


def accepts(name: str, value: str) -> bool:
    return all(re.fullmatch(regex, value) for regex in PARAMETERS[name]["regexes"])


def test_parameters_are_the_options():
    assert set(PARAMETERS) == set(actions()) | OF_BEAM
    assert len(PARAMETERS) == len(metadata()["parameters"])


def test_options_of_beam_exist():
    parser = argparse.ArgumentParser(add_help=False)
    WorkerOptions._add_argparse_args(parser)
    assert OF_BEAM <= {a.dest for a in parser._actions}


@pytest.mark.parametrize("name", actions())
def test_a_parameter_says_what_the_option_says(name: str):
    action, parameter = actions()[name], PARAMETERS[name]
    assert parameter["helpText"] == help_of(action)
    if action.nargs == 0:
        assert (parameter["paramType"], parameter["defaultValue"]) == ("BOOLEAN", "false")
    else:
        assert parameter.get("defaultValue") == action.default


@pytest.mark.parametrize("name", actions())
def test_a_parameter_is_optional_where_the_option_is(name: str, monkeypatch: pytest.MonkeyPatch):
    """What the options' own check says of a launch without it, not what its help claims."""
    monkeypatch.setattr(
        "pipelines.nightly.options.FileSystems.check", lambda _: None
    )  # gs:// without a client
    given = [f"--{k}={v}" for k, v in LEAST.items() if k != name]
    try:
        Settings(PipelineOptions(given))
        missing = False
    except OptionsError as error:
        assert error.problems == [p for p in error.problems if p.startswith(f"--{name} is missing")]
        missing = True
    assert PARAMETERS[name]["isOptional"] is not missing


def test_the_image_is_required():
    """Without it workers would come up with an image that has no recrawl, and fail at the first row."""
    assert PARAMETERS["sdk_container_image"]["isOptional"] is False


@pytest.mark.parametrize("name", CHOICES)
def test_choices_are_those_of_the_code(name: str):
    assert tuple(o["value"] for o in PARAMETERS[name]["enumOptions"]) == CHOICES[name]
    assert PARAMETERS[name]["paramType"] == "ENUM"


def test_every_parameter_has_examples_and_an_anchored_regex():
    assert set(EXAMPLES) == set(PARAMETERS)
    for name, parameter in PARAMETERS.items():
        assert parameter["label"] and parameter["helpText"]
        for regex in parameter["regexes"]:
            assert regex.startswith("^") and regex.endswith("$"), (name, regex)
            # The service's engine knows neither look-around nor references back.
            assert not re.search(r"\(\?|\\[1-9]", regex), (name, regex)


@pytest.mark.parametrize(("name", "value"), [(n, v) for n, (good, _) in EXAMPLES.items() for v in good])
def test_regexes_accept_examples_that_the_job_accepts(name: str, value: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("pipelines.nightly.options.FileSystems.check", lambda _: None)
    assert accepts(name, value)
    given: dict[str, Any] = {**LEAST, "pages": "gs://p/1", "sitemaps": "gs://s/1", name: value}
    Settings(PipelineOptions(list(load_main().arguments([f"--{k}={v}" for k, v in given.items()]))))


@pytest.mark.parametrize(("name", "value"), [(n, v) for n, (_, bad) in EXAMPLES.items() for v in bad])
def test_regexes_refuse(name: str, value: str):
    assert not accepts(name, value)


@pytest.mark.parametrize("name", [n for n, p in PARAMETERS.items() if "defaultValue" in p])
def test_defaults_match_their_regexes(name: str):
    assert accepts(name, PARAMETERS[name]["defaultValue"])


@needs_client
def test_the_service_knows_every_field():
    """Unknown keys and unknown types are refused by the service's own message types."""
    from google.cloud.dataflow_v1beta3 import TemplateMetadata
    from google.protobuf import json_format

    message = TemplateMetadata.pb()
    parsed = json_format.ParseDict(metadata(), message())
    assert json_format.MessageToDict(parsed)["parameters"][0]["name"] == "observations"
    for wrong in ({"helptext": "x"}, {"paramType": "STRING"}):
        broken = json.loads(json.dumps(metadata()))
        broken["parameters"][0].update(wrong)
        with pytest.raises(json_format.ParseError):
            json_format.ParseDict(broken, message())
