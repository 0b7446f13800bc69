"""What the project's files promise: commands, versions, packages, names."""

import importlib
import os
import re
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import pytest
import setuptools
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from pipelines.door import cli
from recrawl import __main__, worker

ROOT = Path(__file__).resolve().parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")


def setup_arguments() -> dict[str, Any]:
    """The arguments of `setup()`."""
    found: dict[str, Any] = {}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(setuptools, "setup", lambda **arguments: found.update(arguments))
        patch.chdir(ROOT)
        source = (ROOT / "setup.py").read_text(encoding="utf-8")
        exec(compile(source, "setup.py", "exec"), {"__file__": str(ROOT / "setup.py"), "__name__": "setup"})
    return found


@pytest.fixture(scope="module")
def metadata() -> dict[str, Any]:
    """The arguments of `setup()`."""
    return setup_arguments()


def pinned() -> dict[str, str]:
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    pairs = [line.split("==") for line in lines if line and not line.startswith("#")]
    return {canonicalize_name(package): version for package, version in pairs}


def test_the_tested_versions_lie_in_the_ranges(metadata: dict[str, Any]) -> None:
    extras = metadata["extras_require"]
    assert {"test", "lint", "dev", "gcp"} <= extras.keys()
    wanted = metadata["install_requires"] + extras["test"] + extras["lint"] + extras["dev"]
    versions = pinned()
    for requirement in map(Requirement, wanted):
        version = versions[canonicalize_name(requirement.name)]
        assert requirement.specifier.contains(version), requirement


def test_every_dependency_has_both_ends(metadata: dict[str, Any]) -> None:
    extras = [r for group in metadata["extras_require"].values() for r in group]
    for requirement in map(Requirement, metadata["install_requires"] + extras):
        operators = {spec.operator for spec in requirement.specifier}
        assert operators == {">=", "<"}, requirement


def test_every_package_is_importable_and_named(metadata: dict[str, Any]) -> None:
    packages = metadata["packages"]
    on_disk = {
        ".".join(p.parent.relative_to(ROOT).parts)
        for top in ("recrawl", "pipelines", "transforms", "policies")
        for p in (ROOT / top).rglob("__init__.py")
    }
    assert set(packages) == on_disk
    for package in packages:
        assert importlib.import_module(package).__doc__


def test_the_command_is_what_setup_says(metadata: dict[str, Any]) -> None:
    scripts = metadata["entry_points"]["console_scripts"]
    assert scripts == ["recrawl = recrawl.__main__:main", "recrawl-worker = recrawl.worker:main"]
    assert callable(__main__.main) and callable(worker.main)


def test_metadata_has_one_place() -> None:
    config = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    assert "project" not in config
    assert config["build-system"]["build-backend"] == "setuptools.build_meta"


def make_plan(*targets: str) -> str:
    """What `make` would run where nothing is installed yet."""
    done = subprocess.run(
        ["make", "-n", "VENV=no-such-venv", "SAMPLE=no-such-sample", *targets],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
        env={k: v for k, v in os.environ.items() if not k.startswith("MAKE")},
    )
    return done.stdout


@pytest.mark.parametrize(
    ("targets", "then"),
    [
        (("setup", "nightly"), ["-m venv", "pip install", "recrawl synthesize", "recrawl nightly"]),
        (("setup", "test"), ["-m venv", "pip install", "-m pytest"]),
        (("nightly",), ["-m venv", "pip install", "recrawl synthesize", "recrawl nightly"]),
        (("test",), ["-m venv", "pip install", "-m pytest"]),
        (("lint",), ["pip install", "ruff check", "ruff format --check", "mypy"]),
        (("docs",), ["pip install", "mkdocs build --strict"]),
        (("bench",), ["pip install", "-m benchmarks"]),
    ],
    ids=" ".join,
)
def test_targets_work_alone_and_in_order(targets: tuple[str, ...], then: list[str]) -> None:
    plan = make_plan(*targets)
    places = [plan.index(step) for step in then]
    assert places == sorted(places)


def test_the_readme_names_commands_that_exist() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    targets = set(re.findall(r"^([a-z]+):", makefile, re.MULTILINE))
    commands = re.findall(r"^make ([a-z ]+?)\s*(?:#.*)?$", README, re.MULTILINE)
    assert {"setup nightly", "setup test"} <= set(commands)
    named = {target for command in commands for target in command.split()}
    named |= set(re.findall(r"`make ([a-z]+)`", README))
    assert named <= targets, named - targets


def test_benchmarks_that_are_named_exist() -> None:
    """In documents and in the benchmarks themselves, as modules or, where they are costs, by short names."""
    costs = {p.stem.removeprefix("bench_") for p in ROOT.glob("benchmarks/*/bench_*.py")}
    texts = [*ROOT.glob("*.md"), *ROOT.glob("docs/*.md"), *ROOT.glob("benchmarks/*/*.py"), ROOT / "Makefile"]
    for path in texts:
        text = path.read_text(encoding="utf-8")
        for module in re.findall(r"\bbenchmarks\.\w+\.\w+", text):
            assert (ROOT / module.replace(".", "/")).with_suffix(".py").exists(), f"{path.name}: {module}"
        for short in re.findall(r"python -m benchmarks (\w+)", text):
            assert short in {*costs, "all", "compare", "instructions"}, f"{path.name}: {short}"


PAGES = {
    "nightly": "options.md",
    "synthesize": "corpus.md",
    "diff": "diff.md",
    "completion": "operations.md",
    "convert": "formats.md",
    "discover": "discovery_job.md",
    "explain": "explain.md",
    "dynamics": "dynamics.md",
    "export": "exports.md",
    "show": "explain.md",
    "report": "report.md",
    "init": "operations.md",
    "metrics": "operations.md",
    "inspect": "formats.md",
    "backtest": "backtest.md",
    "backtest-discovery": "discovery.md",
    "night": "every_night.md",
    "frontier": "backtest.md",
    "simulate": "simulate.md",
    "reproduce": "reproduction.md",
}
"""The page in docs/ that has the options of a command, beside those that are of several."""
SHARED = ("inputs.md", "options.md", "discovery_job.md")


def test_documents_list_every_option() -> None:
    """Options of each parser stand in the command's page; pages of options have no others but Beam's."""
    docs = {path.name: path.read_text(encoding="utf-8") for path in (ROOT / "docs").glob("*.md")}
    shared = "".join(docs[name] for name in SHARED)
    every = {"--help", "--version"}
    for command, parser in cli.parser()._subparsers._group_actions[0].choices.items():
        declared = {o for action in parser._actions for o in action.option_strings if o.startswith("--")}
        missing = declared - _options_in(docs[PAGES[command]] + shared) - {"--help"}
        assert not missing, (command, missing)
        every |= declared
    beams = {"--runner", "--direct_num_workers", "--direct_running_mode", "--setup_file"}
    named = _options_in(README + docs["every_night.md"] + docs["tutorial.md"] + shared)
    assert named - beams <= every, named - beams - every


def _options_in(text: str) -> set[str]:
    # One with a hyphen in it, such as Wget's, is not ours.
    return set(re.findall(r"(?<![\w-])--[a-z][a-z0-9_]*(?![\w-])", text))


def test_ci_runs_the_readmes_test_command_from_anywhere() -> None:
    script = ROOT / ".ci" / "run"
    text = script.read_text(encoding="utf-8")
    assert os.access(script, os.X_OK)
    assert text.startswith("#!/usr/bin/env bash\n")
    assert "set -euo pipefail" in text
    assert re.search(r"^cd .*BASH_SOURCE", text, re.MULTILINE)
    assert re.search(r"^make test$", text, re.MULTILINE)
    assert re.search(r"^make lint$", text, re.MULTILINE)
    assert re.search(r"^make docs$", text, re.MULTILINE)
    subprocess.run(["bash", "-n", str(script)], check=True)


def test_links_between_documents_lead_somewhere() -> None:
    """Those within docs/ `make docs` checks as well, and against what it makes of headings."""
    for document in [*ROOT.glob("*.md"), *(ROOT / "templates").rglob("*.md"), *(ROOT / "docs").glob("*.md")]:
        text = document.read_text(encoding="utf-8")
        for target, anchor in re.findall(r"\]\(([^)#]*)(?:#([^)]*))?\)", text):
            if "://" not in target:
                there = document.parent / target if target else document
                assert there.exists(), f"{document.name}: {target}"
                assert not anchor or anchor in _anchors(there), f"{document.name}: {target}#{anchor}"


def _anchors(document: Path) -> set[str]:
    """Anchors of headings, as web pages of repositories have them."""
    heads = re.findall(r"^#+ (.*)$", document.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", head.lower()).replace(" ", "-") for head in heads}


def test_the_contents_name_every_document() -> None:
    """Those of the site and those in words."""
    pages = {path.name for path in (ROOT / "docs").glob("*.md")}
    for text in (ROOT / "mkdocs.yml", ROOT / "docs" / "index.md"):
        named = set(re.findall(r"[\w]+\.md", text.read_text(encoding="utf-8")))
        assert pages - {"index.md"} <= named, pages - named


def test_license_is_apache() -> None:
    text = (ROOT / "LICENSE").read_text(encoding="utf-8")
    assert "Apache License" in text
    assert "Version 2.0, January 2004" in text
    assert len(text.splitlines()) > 190
