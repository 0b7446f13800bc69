"""What jobs tell programs: one JSON document, a webhook, lines of JSON; and what they keep quiet."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

from pipelines.command import webhook
from pipelines.store.locks import StoreBusyError
from tests.pipelines.jobs import at, command, crawls, nightly, seen
from tests.pipelines.stores import Stored, job, midnight, set_clock

__all__ = ["job"]
KEYS = {
    "command", "outcome", "exit_code", "message", "as_of", "folder", "warnings", "in_force",
    "recrawl_version",
}  # fmt: skip
FORCE = {
    "night", "as_of", "until", "status", "folder", "schedule", "run_out", "pages", "scheduled_crawls",
    "budget_per_day", "expected_freshness", "warnings",
}  # fmt: skip
DOCS = Path(__file__).resolve().parents[3] / "docs" / "operations.md"


@pytest.fixture
def store(tmp_path: Path) -> Stored:
    found = Stored(tmp_path)
    for day in range(2):
        found.log(f"logs/day-{day}.jsonl", [seen("https://a.test/", at(day, 12))], at(day, 23))
    return found


class Hook(HTTPServer):
    """A webhook on this machine: what it got, and what it answers, the last answer for good."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.got: list[dict[str, Any]] = []
        self.answers = [200]

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/secret"


class _Handler(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        hook = self.server
        assert isinstance(hook, Hook) and self.headers["Content-Type"] == "application/json"
        hook.got.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
        self.send_response(hook.answers[0] if len(hook.answers) == 1 else hook.answers.pop(0))
        self.end_headers()

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture
def hook(monkeypatch: pytest.MonkeyPatch) -> Iterator[Hook]:
    monkeypatch.setattr(webhook, "WAITS_SECONDS", (0.0, 0.0))
    with Hook() as served:
        thread = threading.Thread(target=served.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
        thread.start()
        yield served
        served.shutdown()
        thread.join()


def test_a_night_is_one_document_and_all_else_is_on_standard_error(store, job):
    job.warnings = ["look here"]
    done = store.run(midnight(1), "--json")
    said = json.loads(done.printed)
    assert said.keys() == KEYS and said["in_force"].keys() == FORCE
    assert (said["command"], said["outcome"], said["exit_code"]) == ("night", "committed", 0)
    assert said["as_of"] == midnight(1) and said["folder"] == str(done.folder) == said["in_force"]["folder"]
    assert said["warnings"] == ["look here"] and said["message"] is None
    assert "done: " in done.complaints and "look here" in done.complaints
    again = json.loads(store.run(midnight(1), "--json").printed)
    assert again["outcome"] == "nothing_to_do" and again["in_force"] == said["in_force"]


def test_a_failure_is_a_document_too_and_says_what_stays(store, job):
    store.run(midnight(1))
    job.before = lambda: (_ for _ in ()).throw(OSError(28, "No space left on device"))
    failed = store.run(midnight(2), "--json")
    said = json.loads(failed.printed)
    assert (said["outcome"], said["exit_code"], failed.code) == ("failed", 1, 1)
    assert "No space left on device" in said["message"] and said["message"] in failed.complaints
    assert said["in_force"]["as_of"] == midnight(1) and said["as_of"] == midnight(2)
    nothing = json.loads(command("night", "--json", f"--store={store.folder}/other")[1])
    assert (nothing["outcome"], nothing["exit_code"], nothing["in_force"]) == ("failed", 2, None)
    empty = store.run(
        midnight(2), "--json", store=store.folder / "empty", observations=store.folder / "none*"
    )
    assert (json.loads(empty.printed)["outcome"], empty.code) == ("nothing_to_read", 3)


def test_the_status_as_a_document(store, job, monkeypatch):
    for day in (1, 2):
        store.run(midnight(day))
    for moment, out in (("2026-06-03T06:00:00Z", False), ("2026-06-04T06:00:00Z", True)):
        set_clock(monkeypatch, moment)
        code, text, err = command("night", f"--store={store.root}", "--status", "--json")
        said = json.loads(text)
        assert not err and code == (7 if out else 0)
        assert said.keys() == {"store", "nights", "in_force", "warnings"}
        assert [n["as_of"] for n in said["nights"]] == [midnight(1), midnight(2)]
        assert said["in_force"] == said["nights"][-1] and said["in_force"]["run_out"] is out
    code, text, _ = command("night", f"--store={store.folder}/none", "--status", "--json")
    assert code == 3 and json.loads(text)["in_force"] is None


def test_a_webhook_hears_of_failures_and_warnings_alone(store, job, hook):
    assert store.run(midnight(1), notify=hook.url).code == 0 and not hook.got
    job.warnings = ["look here"]
    store.log("logs/day-2.jsonl", [seen("https://a.test/", at(1, 13))], at(1, 23))
    assert store.run(midnight(2), notify=hook.url).code == 0
    (warned,) = hook.got
    assert warned.keys() == KEYS | {"text"} and warned["warnings"] == ["look here"]
    assert warned["text"] == "recrawl night, committed: look here"
    job.before = lambda: (_ for _ in ()).throw(OSError(28, "No space left on device"))
    assert store.run(midnight(3), notify=hook.url).code == 1
    assert hook.got[-1]["outcome"] == "failed" and hook.got[-1]["in_force"]["as_of"] == midnight(2)
    job.before = lambda: (_ for _ in ()).throw(KeyboardInterrupt)
    assert store.run(midnight(3), notify=hook.url).code == 1
    assert hook.got[-1]["message"] == "interrupted; nothing is committed"
    store.run(midnight(3), notify=hook.url, budget="many")
    assert hook.got[-1]["exit_code"] == 2 and "--budget=many" in hook.got[-1]["message"]
    before = len(hook.got)
    job.before = lambda: (_ for _ in ()).throw(StoreBusyError("another"))
    assert store.run(midnight(3), notify=hook.url).code == 6 and len(hook.got) == before


@pytest.mark.parametrize(
    ("answers", "tries", "said"),
    [([503, 429, 200], 3, ""), ([500], 3, "it answered 500"), ([404], 1, "it answered 404")],
)
def test_a_webhook_is_tried_again_within_bounds_and_never_fails_the_night(
    answers, tries, said, store, job, hook
):
    hook.answers, job.warnings = answers, ["look here"]
    done = store.run(midnight(1), notify=hook.url)
    assert done.code == 0 and len(hook.got) == tries and said in done.complaints
    assert ("--notify" in done.complaints) == bool(said) and "secret" not in done.complaints


def test_a_webhook_that_is_not_there(store, job, monkeypatch):
    monkeypatch.setattr(webhook, "WAITS_SECONDS", (0.0,))
    job.warnings = ["look here"]
    with HTTPServer(("127.0.0.1", 0), _Handler) as gone:
        port = gone.server_port
    done = store.run(midnight(1), notify=f"http://127.0.0.1:{port}/")
    assert done.code == 0 and f"127.0.0.1:{port} was not told" in done.complaints
    refused = store.run(midnight(2), notify="file:///etc/passwd")
    assert refused.code == 2 and "expected the URL of a webhook" in refused.complaints


def test_nightly_tells_a_webhook_too(tmp_path, hook):
    log = crawls("https://a.test/", "AB")
    done = nightly(tmp_path, observations=[*log, {"url": "x"}], max_rejected_fraction=0, notify=hook.url)
    assert done.code == 4
    assert (hook.got[-1]["command"], hook.got[-1]["exit_code"]) == ("nightly", 4)
    assert hook.got[-1]["folder"] == str(done.folder) and hook.got[-1]["in_force"] is None


def test_quiet_leaves_warnings_and_failures(store, job):
    assert (done := store.run(midnight(1), "--quiet")).code == 0 and not done.printed + done.complaints
    job.warnings = ["look here"]
    done = store.run(midnight(2), "--quiet")
    assert not done.printed and "recrawl night: WARNING: look here\n" in done.complaints


def test_a_quiet_night_without_a_schedule_says_so(tmp_path):
    (tmp_path / "empty.csv").write_text("url,fetched_at\n")
    for name, why in (
        ("empty.csv", "The schedule is empty: --observations has no row"),
        ("no*.csv", "nothing to read"),
    ):
        words = [f"--store={tmp_path / why[:3]}", f"--observations={tmp_path / name}", "--budget=5"]
        code, printed, complaints = command("night", *words, f"--as_of={at(5)[:19]}Z", "--quiet")
        assert code == 3 and not printed and why in complaints and complaints.count("\n") == 1


def test_a_quiet_nightly_job_says_nothing(tmp_path):
    quiet = nightly(tmp_path, observations=crawls("https://a.test/", "ABAB"), as_of=at(5), flags=["--quiet"])
    assert quiet.code == 0 and quiet.committed and not quiet.printed + quiet.complaints


def test_lines_of_json(store, job):
    job.warnings = ["look here"]
    done = store.run(midnight(1), "--log_format=json")
    out, err = ([json.loads(line) for line in text.splitlines()] for text in (done.printed, done.complaints))
    assert all(line.keys() == {"at", "level", "message"} for line in out + err)
    assert {"info"} == {line["level"] for line in out}
    assert [(line["level"], line["message"]) for line in err] == [("warning", "look here")]
    failed = store.run(midnight(2), "--log_format=json", budget="many")
    (line,) = [json.loads(text) for text in failed.complaints.splitlines()]
    assert line["level"] == "error" and "--budget=many" in line["message"]
    both = store.run(midnight(2), "--log_format=json", "--json")
    assert json.loads(both.printed)["outcome"] == "committed"
    assert all(json.loads(text)["message"] for text in both.complaints.splitlines())


def test_docs_list_the_keys():
    text = DOCS.read_text()
    for key in KEYS | FORCE | {"text"}:
        assert f"`{key}`" in text, key
