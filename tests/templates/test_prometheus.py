"""Alert rules and the dashboard: each metric is one that a night writes, and alerts fire when they should."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from pipelines.store import night_metrics

FOLDER = Path(__file__).resolve().parents[2] / "templates" / "prometheus"
RULES = FOLDER / "recrawl.rules.yml"
STORE = ("nights", "night_age_seconds", "schedule_left_seconds", "schedule_run_out", "warnings")
WRITTEN = {
    *(f"recrawl_night_{name}" for name in night_metrics._NIGHT),
    *(f"recrawl_store_{name}" for name in STORE),
}
HOUR = 60
"""Of samples a minute."""


def rules() -> list[dict[str, Any]]:
    return yaml.safe_load(RULES.read_text())["groups"][0]["rules"]


def panels() -> list[dict[str, Any]]:
    return json.loads((FOLDER / "grafana-dashboard.json").read_text())["panels"]


def expressions() -> list[str]:
    return [rule["expr"] for rule in rules()] + [t["expr"] for panel in panels() for t in panel["targets"]]


@pytest.mark.parametrize("expression", expressions())
def test_every_metric_is_one_that_a_night_writes(expression: str) -> None:
    named = set(re.findall(r"\brecrawl_\w+", expression))
    assert named and named <= WRITTEN, named - WRITTEN


def test_panels_do_not_overlap_and_have_their_own_numbers() -> None:
    taken: set[tuple[int, int]] = set()
    for panel in panels():
        at = panel["gridPos"]
        cells = {(x, y) for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])}
        assert not cells & taken and at["x"] + at["w"] <= 24, panel["title"]
        taken |= cells
    assert len({panel["id"] for panel in panels()}) == len(panels())


def case(alert: str, series: dict[str, str], minutes: int, fires: bool) -> dict[str, Any]:
    """A test of promtool: values of series, a sample a minute, and whether an alert fires."""
    return {
        "interval": "1m",
        "input_series": [{"series": name, "values": f"{value}x{minutes}"} for name, value in series.items()],
        "promql_expr_test": [
            {
                "expr": f'count(ALERTS{{alertname="{alert}",alertstate="firing"}}) or vector(0)',
                "eval_time": f"{minutes}m",
                "exp_samples": [{"labels": "{}", "value": int(fires)}],
            }
        ],
    }


NIGHT, STORED = "recrawl_night_", "recrawl_store_"
CASES = [
    # Ten minutes after the beginning of time, by which the schedule ended, and nobody writes new metrics.
    ("RecrawlScheduleRunOut", {f"{NIGHT}schedule_end_timestamp_seconds": "500+0"}, 10, True),
    ("RecrawlScheduleRunOut", {f"{NIGHT}schedule_end_timestamp_seconds": "601+0"}, 10, False),
    ("RecrawlNoNight", {f"{STORED}nights": "0+0"}, 2 * HOUR, True),
    ("RecrawlNoNight", {f"{STORED}nights": "0+0"}, HOUR // 2, False),
    ("RecrawlNoNight", {"up": "1+0"}, 2 * HOUR, True),
    ("RecrawlNoNight", {f"{STORED}nights": "1+0"}, 2 * HOUR, False),
    ("RecrawlEmptySchedule", {f"{NIGHT}ok": "0+0"}, 10, True),
    ("RecrawlEmptySchedule", {f"{NIGHT}ok": "1+0"}, 10, False),
    ("RecrawlDrift", {f"{NIGHT}drift": "1+0"}, 10, True),
    ("RecrawlDrift", {f"{NIGHT}drift": "0+0"}, 10, False),
    ("RecrawlRowsRejected", {f"{NIGHT}rejected_ratio": "0.006+0"}, 10, True),
    ("RecrawlRowsRejected", {f"{NIGHT}rejected_ratio": "0.004+0"}, 10, False),
    ("RecrawlSilentHosts", {f"{NIGHT}silent_hosts": "1+0"}, 10, True),
    ("RecrawlSilentHosts", {f"{NIGHT}silent_hosts": "0+0"}, 10, False),
]


def test_every_alert_is_tested_both_ways() -> None:
    assert {(c[0], c[3]) for c in CASES} == {
        (rule["alert"], fires) for rule in rules() for fires in (True, False)
    }


def test_alerts_fire_when_they_should(tmp_path: Path) -> None:
    if shutil.which("promtool") is None:
        pytest.skip("no promtool: it is in Debian's package prometheus")
    subprocess.run(["promtool", "check", "rules", str(RULES)], check=True, capture_output=True)
    tests = {"rule_files": [str(RULES)], "evaluation_interval": "1m", "tests": [case(*c) for c in CASES]}
    file = tmp_path / "tests.yml"
    file.write_text(yaml.safe_dump(tests))
    done = subprocess.run(["promtool", "test", "rules", str(file)], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    # The tests themselves can fail.
    tests["tests"] = [case(name, series, minutes, not fires) for name, series, minutes, fires in CASES[:1]]
    file.write_text(yaml.safe_dump(tests))
    assert subprocess.run(["promtool", "test", "rules", str(file)], capture_output=True).returncode != 0
