"""Readers run where they are asked for, by `-m consumers`; what is not there is named."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.consumers.fetch import JARS

HERE = Path(__file__).parent


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.is_relative_to(HERE) and "consumers" not in (config.option.markexpr or ""):
            item.add_marker(pytest.mark.skip(reason="needs the crawlers' own readers: make test-consumers"))


Java = Callable[..., list[list[str]]]


@pytest.fixture(scope="session")
def java(tmp_path_factory: pytest.TempPathFactory) -> Java:
    """Runs a program of this folder with some words; the cells of the lines that it prints."""
    if not JARS.exists() or shutil.which("javac") is None:
        pytest.skip("needs a JDK and the jars of Nutch, Heritrix and URLFrontier: make test-consumers")
    classes = tmp_path_factory.mktemp("classes")
    sources = sorted(map(str, HERE.glob("*.java")))
    subprocess.run(["javac", "-nowarn", "-d", str(classes), "-cp", f"{JARS}/*", *sources], check=True)
    options = [
        "-Dorg.slf4j.simpleLogger.defaultLogLevel=error",
        "-Duser.timezone=UTC",
        "-Dfile.encoding=UTF-8",
    ]
    start = ["java", "-XX:TieredStopAtLevel=1", *options, "-cp", f"{classes}:{JARS}/*"]

    def run(name: str, *words: object) -> list[list[str]]:
        command = [*start, name, *map(str, words)]
        done = subprocess.run(command, capture_output=True, text=True, encoding="utf-8")
        assert done.returncode == 0, done.stderr[-3000:]
        return [line.split("\t") for line in done.stdout.splitlines()]

    return run
