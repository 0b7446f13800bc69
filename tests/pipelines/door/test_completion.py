"""`recrawl completion`: a real shell completes what the command line takes."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from pipelines.door import cli, completion
from tests.pipelines.jobs import command

pytest.importorskip("shtab", reason="no shtab: it is in the extra completion")


@pytest.fixture(scope="module")
def script(tmp_path_factory: pytest.TempPathFactory) -> Path:
    code, text, _ = command("completion", "bash")
    assert code == 0
    path = tmp_path_factory.mktemp("shell") / "recrawl"
    path.write_text(text)
    return path


def completed(script: Path, *words: str, folder: Path | None = None) -> set[str]:
    """What bash offers where the cursor is at the end of the last word."""
    asked = f"""
        source {script}
        COMP_WORDS=({" ".join(f"'{word}'" for word in ("recrawl", *words))})
        COMP_CWORD={len(words)}
        $(complete -p recrawl | sed 's/.*-F \\([^ ]*\\).*/\\1/')
        printf '%s\\n' "${{COMPREPLY[@]}}"
    """
    done = subprocess.run(["bash", "-c", asked], capture_output=True, text=True, check=True, cwd=folder)
    return {line.strip() for line in done.stdout.splitlines() if line.strip()}


def test_commands_options_choices_and_paths(script, tmp_path):
    assert completed(script, "ni") == {"night", "nightly"}
    assert set(cli.COMMANDS) <= completed(script, "")
    assert completed(script, "night", "--ke") == {"--keep"}
    assert completed(script, "nightly", "--log_format", "j") == {"json"}
    (tmp_path / "crawl.log").write_text("")
    assert completed(script, "inspect", "cra", folder=tmp_path) == {"crawl.log"}
    assert completed(script, "night", "--observations", "cra", folder=tmp_path) == {"crawl.log"}


@pytest.mark.parametrize("shell", completion.SHELLS)
def test_shells_can_read_their_scripts(shell, tmp_path):
    code, text, _ = command("completion", shell)
    assert code == 0 and "recrawl" in text
    if (program := shutil.which(shell)) is None:
        pytest.skip(f"no {shell} here")
    (tmp_path / "script").write_text(text)
    subprocess.run([program, "-n", tmp_path / "script"], check=True)


def test_a_missing_library_is_named(monkeypatch):
    monkeypatch.setattr(completion.importlib.util, "find_spec", lambda name: None)
    code, _, err = command("completion", "bash")
    assert code == 2 and "extra completion" in err
