"""Every template starts a night that the real command line takes, at a good time, again where it helps."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from datetime import UTC, datetime, timedelta
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest
from apache_beam.options.pipeline_options import PipelineOptions
from cronsim import CronSim

from pipelines.command import exit_codes
from pipelines.command.errors import OptionsError
from pipelines.command.exit_codes import EXIT_BUSY
from pipelines.command.instants import parse_instant
from pipelines.door import cli
from pipelines.door.unknown import unknown_options
from pipelines.store import night
from tests.pipelines.jobs import at, seen, write_rows
from tests.pipelines.jobs import command as cli_command
from tests.templates import commands

NAMES = ("airflow", "cron", "systemd", *commands.MANIFESTS)
# Known to the Flink job server, which the command line asks; from Beam's Java sources.
JOB_SERVERS = {"--execution_mode_for_batch"}
AGAIN = {cli.EXIT_FAILED, EXIT_BUSY}


@pytest.fixture(params=NAMES)
def command(request: pytest.FixtureRequest, tmp_path: Path) -> list[str]:
    """The arguments of `recrawl` in a template."""
    folder = tmp_path / "stub"
    folder.mkdir()
    if request.param == "airflow":
        return commands.airflow_command(folder, "2026-07-02")
    if request.param == "cron":
        return commands.cron_command(folder)
    if request.param == "systemd":
        return commands.systemd_command()
    return commands.kubernetes_command(request.param)


def unknown(arguments: list[str]) -> set[str]:
    """Options that neither `recrawl night` nor Beam declares."""
    parsed, rest = cli.parser().parse_known_args(arguments)
    assert parsed.command == "night"
    # A portable runner's server may know more, so that the command line itself does not look.
    return {o.split("=")[0] for o in unknown_options([o for o in rest if not o.startswith("--runner")])}


def test_the_command_line_takes_it(command: list[str]) -> None:
    assert unknown(command) <= JOB_SERVERS
    options = night.parse(command[1:])
    assert any(word.endswith("hosts.csv") for word in command)  # else no host has a limit
    assert options.logs["observations"].endswith("/logs/{date}/*.jsonl")
    assert "--budget=50000" in command or command[command.index("--budget") + 1] == "50000"


def hosts(folder: Path) -> Path:
    """The file that comes with the templates; that of the manifests must say the same."""
    text = (commands.TEMPLATES / "hosts.csv").read_text(encoding="utf-8")
    for name in commands.MANIFESTS:
        assert commands.document(name, "ConfigMap")["data"] == {"hosts.csv": text}
    (folder / "hosts.csv").write_text(text)
    return folder / "hosts.csv"


@pytest.mark.parametrize("command", [n for n in NAMES if n != "flink.yaml"], indirect=True)
def test_it_runs_a_night(command: list[str], tmp_path: Path) -> None:
    """With folders of this machine for those of the template; what the first line says is committed."""
    places = {"/srv/crawler/logs": "logs", "/logs": "logs", "/srv/recrawl/store": "store", "/store": "store"}
    for there, here in places.items():
        command = [re.sub(rf"(^|=){there}(?=/|$)", rf"\g<1>{tmp_path / here}", word) for word in command]
    command = [str(tmp_path / "store") if word == "store" else word for word in command]
    command = [re.sub(r"(^|=)[^=]*hosts\.csv$", rf"\g<1>{hosts(tmp_path)}", word) for word in command]
    for day in range(3):
        folder = tmp_path / "logs" / at(day)[:10]
        write_rows(folder / "crawl.jsonl", [seen("https://a.example/", at(day, 12), "ABC"[day])])
    code, printed, complaints = cli_command(*command, "--as_of", at(3), "--num_shards=1")
    assert (code, complaints.count("recrawl:")) == (cli.EXIT_OK, 0), complaints
    assert "observations: 3 new files" in printed
    latest = json.loads((tmp_path / "store" / "latest.json").read_text())
    assert latest["as_of"] == "2026-06-04T00:00:00Z"
    assert list((tmp_path / "store" / latest["schedule"]).iterdir())


def test_a_wrong_option_would_be_seen(command: list[str]) -> None:
    assert "--buget" in unknown([*command, "--buget=1"])
    with pytest.raises(OptionsError, match=r"--keep=0"):
        night.parse([*command[1:], "--keep=0"])
    with pytest.raises(OptionsError, match="--store is missing"):
        night.parse([word for word in command[1:] if "store" not in word])


def test_the_runner_of_the_flink_template_gets_its_options() -> None:
    options = PipelineOptions(commands.kubernetes_command("flink.yaml")[1:]).get_all_options()
    assert options["runner"] == "FlinkRunner"
    assert options["flink_version"] == "1.20"
    assert options["parallelism"] == 16
    assert options["environment_type"] == "PROCESS"


def test_airflow_gives_the_night_that_the_run_is_for(tmp_path: Path) -> None:
    options = night.parse(commands.airflow_command(tmp_path, "2026-07-02")[1:])
    assert options.as_of_us == parse_instant("2026-07-02T00:00:00Z")


def test_no_value_is_taken_for_shell_in_airflow(tmp_path: Path) -> None:
    """What stands in a Variable stays one argument."""
    dag = commands.constants(commands.AIRFLOW)
    values = {name.upper(): text for name, text in dag["DEFAULTS"].items()}
    values |= {
        "RECRAWL_PROGRAM": str(commands.stub(tmp_path)),
        "RECRAWL_AS_OF": "2026-07-02",
        "RECRAWL_STORE": "a b; touch c $(touch d)",
        "RECRAWL_OPTIONS": "--keep 3 --pages *",
        "PATH": "/usr/bin:/bin",
    }
    subprocess.run(["bash", "-c", dag["COMMAND"]], env=values, cwd=tmp_path, check=True)
    (seen,) = commands.calls(tmp_path)
    assert seen[seen.index("--store") + 1] == "a b; touch c $(touch d)"
    assert seen[-4:] == ["--keep", "3", "--pages", "*"]
    assert sorted(p.name for p in tmp_path.iterdir()) == ["calls", "recrawl"]


def test_they_agree_on_what_is_tried_again() -> None:
    codes = {v for k, v in vars(exit_codes).items() if re.fullmatch(r"EXIT_[A-Z]+", k) and v != 0}
    codes = {code for code in codes if isinstance(code, int)}
    codes -= {exit_codes.EXIT_RUN_OUT}  # of --status
    assert codes == set(range(1, 7))
    service = commands.unit(commands.SERVICE)
    assert {int(c) for c in service["RestartPreventExitStatus"][0].split()} == codes - AGAIN
    assert service["Restart"] == ["on-failure"]
    assert "SuccessExitStatus" not in service
    assert set(commands.constants(commands.AIRFLOW)["NOT_AGAIN"]) == codes - AGAIN
    for name in commands.MANIFESTS:
        job = commands.document(name, "CronJob")["spec"]["jobTemplate"]["spec"]
        (rule,) = [r for r in job["podFailurePolicy"]["rules"] if r["action"] == "FailJob"]
        assert rule["onExitCodes"]["operator"] == "In"
        assert set(rule["onExitCodes"]["values"]) == codes - AGAIN
        assert job["template"]["spec"]["restartPolicy"] == "Never"  # else Kubernetes refuses the policy


def firings(expression: str, zone: str, days: int) -> list[datetime]:
    start = datetime(2026, 3, 20, tzinfo=ZoneInfo(zone))
    end, found = start + timedelta(days=days), []
    for moment in CronSim(expression, start):
        if moment >= end:
            return found
        found.append(moment.astimezone(UTC))
    return found


@pytest.mark.parametrize("zone", ["UTC", "Europe/Berlin", "Asia/Kolkata", "America/Los_Angeles"])
def test_the_cron_line_comes_soon_after_every_midnight_utc(zone: str) -> None:
    """Over the change to summer time, too."""
    expression = " ".join(commands.cron_line().split(None, 5)[:5])
    times = firings(expression, zone, 20)
    for day in range(22, 38):
        midnight = datetime(2026, 3, 1, tzinfo=UTC) + timedelta(days=day)
        assert min(t for t in times if t >= midnight) - midnight <= timedelta(hours=7)


@pytest.mark.parametrize("name", commands.MANIFESTS)
def test_kubernetes_starts_soon_after_midnight_utc(name: str) -> None:
    spec = commands.document(name, "CronJob")["spec"]
    assert spec["timeZone"] == "Etc/UTC"
    times = firings(spec["schedule"], "UTC", 10)
    assert len(times) == 10
    assert {t - t.replace(hour=0, minute=0) for t in times} == {timedelta(minutes=15)}
    # A late start must not reach into the next night.
    limits = spec["startingDeadlineSeconds"], spec["jobTemplate"]["spec"]["activeDeadlineSeconds"]
    assert max(limits) < 86_400 - 900


def test_the_cron_line_has_no_bare_percent_sign_and_ends() -> None:
    text = commands.CRON.read_text(encoding="utf-8")
    assert text.endswith("\n")  # cron ignores a last line without
    assert not re.search(r"(?<!\\)%", commands.cron_line())
    assert commands.cron_line().split()[5] == "recrawl"  # the user's field of /etc/cron.d
    assert re.fullmatch(r"[A-Za-z0-9_-]+", commands.CRON.name)  # others are ignored there


needs_systemd = pytest.mark.skipif(
    shutil.which("systemd-analyze") is None, reason="systemd-analyze is not installed (Debian: systemd)"
)


def analyze(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["systemd-analyze", *arguments], capture_output=True, text=True, check=False, timeout=60
    )


def units(folder: Path, *replace: tuple[str, str]) -> list[str]:
    """Copies of the units, with a program that exists here."""
    paths = []
    for unit in (commands.SERVICE, commands.TIMER):
        text = unit.read_text(encoding="utf-8").replace(commands.PROGRAM, "/bin/true")
        for old, new in replace:
            text = text.replace(old, new)
        (folder / unit.name).write_text(text)
        paths.append(str(folder / unit.name))
    return paths


@needs_systemd
def test_systemd_finds_no_fault_in_the_units(tmp_path: Path) -> None:
    done = analyze("verify", "--man=no", *units(tmp_path))
    assert (done.returncode, done.stderr) == (0, "")


@needs_systemd
@pytest.mark.parametrize(
    ("old", "new", "complaint"),
    [
        ("Restart=on-failure", "Restart=always", "isn't allowed for Type=oneshot"),
        ("RestartPreventExitStatus=2", "RestartPreventExitStatus=none", "Failed to parse"),
        ("Persistent=true", "Persistant=true", "'Persistant' in section"),
        ("00:15:00 UTC", "25:15:00 UTC", "Failed to parse calendar"),
        ("SystemCallFilter=@system-service", "SystemCallFilter=@no-such", "unknown"),
    ],
)
def test_systemd_would_find_one(tmp_path: Path, old: str, new: str, complaint: str) -> None:
    done = analyze("verify", "--man=no", *units(tmp_path, (old, new)))
    assert complaint.lower() in done.stderr.lower()


@needs_systemd
def test_the_timer_starts_at_a_quarter_past_midnight_utc() -> None:
    timer = commands.unit(commands.TIMER)
    assert timer["Persistent"] == ["true"]
    (calendar,) = timer["OnCalendar"]
    base = "2026-10-24 12:00 UTC"  # Central Europe leaves summer time the night after
    done = analyze("calendar", "--iterations=2", f"--base-time={base}", calendar)
    assert re.findall(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC", done.stdout) == [
        "2026-10-25 00:15:00 UTC",
        "2026-10-26 00:15:00 UTC",
    ]


@needs_systemd
def test_the_service_exposes_little(tmp_path: Path) -> None:
    service, _ = units(tmp_path)
    assert analyze("security", "--offline=true", "--threshold=20", service).returncode == 0
    open_, _ = units(tmp_path, ("ProtectSystem=strict", ""), ("CapabilityBoundingSet=", "#"))
    assert analyze("security", "--offline=true", "--threshold=20", open_).returncode != 0
