"""`--setup_file ./setup.py`: the package that Beam builds of this repository installs, and runs the job."""

from __future__ import annotations

import shutil
import site
import subprocess
import tarfile
import venv
from collections.abc import Iterator
from pathlib import Path

import pytest
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.portability.api import beam_runner_api_pb2
from apache_beam.transforms import environments

from tests.pipelines.jobs import at, command, crawls, nightly
from tests.templates.launching import launch, needs_client
from tests.test_project import ROOT, setup_arguments

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]
PACKAGES = ("recrawl", "pipelines", "transforms", "policies")


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The files that a fresh checkout has to build from; building leaves things behind."""
    folder = tmp_path_factory.mktemp("checkout")
    for path in ROOT.iterdir():
        if path.is_file():
            shutil.copy(path, folder)
    for name in (*PACKAGES, "templates", "benchmarks"):
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    return folder


@pytest.fixture(scope="module")
def sdist(checkout: Path) -> Path:
    """What Beam would stage for workers, built by Beam."""
    options = PipelineOptions([f"--setup_file={checkout / 'setup.py'}"])
    staged = {}
    for artifact in environments.python_sdk_dependencies(options):
        name = beam_runner_api_pb2.ArtifactStagingToRolePayload.FromString(artifact.role_payload).staged_name
        staged[name] = beam_runner_api_pb2.ArtifactFilePayload.FromString(artifact.type_payload).path
    return Path(staged["workflow.tar.gz"])


def names(package: Path) -> Iterator[str]:
    """Files of a source package, relative to its one folder."""
    with tarfile.open(package) as files:
        for member in files.getmembers():
            if member.isfile():
                yield member.name.split("/", 1)[1]


def test_the_package_has_all_modules_and_what_setup_reads(sdist: Path):
    found = set(names(sdist))
    files = (p for name in PACKAGES for end in ("*.py", "*.j2", "py.typed") for p in (ROOT / name).rglob(end))
    modules = {p.relative_to(ROOT).as_posix() for p in files}
    assert modules <= found, modules - found
    assert {"setup.py", "pyproject.toml", "README.md", "LICENSE"} <= found
    assert not [n for n in found if n.startswith(("templates/", "benchmarks/", "sample/", "out/"))]


@pytest.fixture(scope="module")
def installed(sdist: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A new environment that sees this one's dependencies, with the package and nothing else of ours."""
    folder = tmp_path_factory.mktemp("environment") / "venv"
    venv.create(folder, with_pip=False)
    (packages,) = folder.glob("lib/python*/site-packages")
    # Folders that a .pth file names are searched, but their own .pth files are not read: the editable
    # installation that the tests run from stays out of sight.
    (packages / "dependencies.pth").write_text("\n".join(site.getsitepackages()) + "\n")
    python = folder / "bin" / "python"
    run(folder, python, "-m", "pip", "install", "--quiet", "--no-deps", "--no-build-isolation", sdist)
    return folder


def run(folder: Path, *words: object, **environment: str) -> str:
    done = subprocess.run(
        [str(word) for word in words],
        cwd=folder,
        env={"PATH": "/usr/bin:/bin", "PIP_DISABLE_PIP_VERSION_CHECK": "1", **environment},
        capture_output=True,
        text=True,
        timeout=200,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_installed_package_is_the_one_that_is_imported(installed: Path):
    """Each package alone, in a process that has imported no other: what all need is imported once, though."""
    code = """if True:
        import importlib, os, sys
        import apache_beam, pyarrow.parquet
        for package in sys.argv[1:]:
            if (child := os.fork()) == 0:
                print(importlib.import_module(package).__file__, flush=True)
                os._exit(0)
            assert os.waitpid(child, 0)[1] == 0, package
    """
    packages = setup_arguments()["packages"]
    found = run(installed, installed / "bin" / "python", "-c", code, *packages).split()
    assert len(found) == len(packages) and all(Path(file).is_relative_to(installed) for file in found)


@pytest.mark.dataflow
def test_the_job_runs_from_there_and_gives_the_same_bytes(installed: Path, tmp_path: Path):
    here = nightly(
        tmp_path,
        "here",
        observations=[r for i in range(6) for r in crawls(f"https://{i}.example/", "ABB", 20)],
    )
    assert here.committed, here.complaints
    there = tmp_path / "there"
    options = {
        "observations": tmp_path / "inputs" / "here-observations.jsonl",
        "output": there,
        "budget": 10,
        "as_of": at(30),
        "num_shards": 2,
        "max_rejected_fraction": 1,
    }
    printed = run(
        tmp_path, installed / "bin" / "recrawl", "nightly", *(f"--{k}={v}" for k, v in options.items())
    )
    assert str(there) in printed
    assert {n: (there / n).read_bytes() for n in here.digests()} == {
        n: (here.folder / n).read_bytes() for n in here.digests()
    }


def test_it_is_the_version_of_this_repository(installed: Path):
    printed = run(installed, installed / "bin" / "recrawl", "--version")
    assert printed.split() == ["recrawl", setup_arguments()["version"]]


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("corpus")
    made = ["--pages=60", "--days=20", "--start=2026-06-01", "--seed=7", f"--output={folder}"]
    assert command("synthesize", *made)[0] == 0
    return folder


# A module's folder of search is where it is started, too; workers are the same whoever starts them.
@pytest.mark.parametrize(("start", "workers"), [("bin/recrawl", 1), ("-m recrawl", 2)])
def test_packages_of_others_by_the_same_names_are_not_run(
    installed: Path, corpus: Path, tmp_path: Path, start: str, workers: int
):
    """As in a repository of Airflow, which has its own on PYTHONPATH; a worker is a process of its own."""
    for name in ("pipelines", "policies"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text("raise SystemExit('not recrawl')\n")
    (tmp_path / "transforms.py").write_text("raise SystemExit('not recrawl')\n")
    python = installed / "bin" / "python"
    started = [installed / start] if start.startswith("bin") else [python, *start.split()]
    replay = ["backtest", f"--observations={corpus}/logs/*.parquet", "--policies=uniform,heritrix"]
    more = ["--output=compared", f"--workers={workers}", "--no_plots", "--budgets=0.5"]
    printed = run(tmp_path, *started, *replay, *more, PYTHONPATH=str(tmp_path))
    assert "heritrix" in printed and (tmp_path / "compared" / "results.parquet").is_file()


def test_a_package_of_others_that_is_loaded_already_is_named(installed: Path, tmp_path: Path):
    (tmp_path / "transforms.py").write_text("")
    code = "import transforms\ntry: import recrawl\nexcept ImportError as e: print(e)"
    printed = run(tmp_path, installed / "bin" / "python", "-c", code)
    assert f"{tmp_path}/transforms.py" in printed and "import recrawl before it" in printed


@needs_client
def test_dataflow_stages_it(checkout: Path, tmp_path: Path):
    """Where the image is a plain one of Beam, workers get recrawl this way."""
    here = nightly(tmp_path, "here", observations=crawls("https://a.example/", "ABB", 20))
    log, output = tmp_path / "inputs" / "here-observations.jsonl", tmp_path / "there"
    options = [f"--observations={log}", f"--output={output}", "--budget=1", f"--as_of={at(30)}"]
    done = launch([*options, f"--setup_file={checkout / 'setup.py'}"])
    assert here.committed and done.code == 0
    staged = {
        beam_runner_api_pb2.ArtifactStagingToRolePayload.FromString(d.role_payload).staged_name
        for e in done.pipeline.components.environments.values()
        for d in e.dependencies
    }
    assert "workflow.tar.gz" in staged
