"""Image and lock file of the Dataflow template: one version of Beam, one of Python, everywhere."""

from __future__ import annotations

import re
import sys

from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name
from packaging.version import Version

from tests.templates.launching import ROOT, TEMPLATE, needs_client
from tests.test_project import pinned, setup_arguments

LOCK = (TEMPLATE / "requirements.txt").read_text(encoding="utf-8")
DOCKERFILE = (TEMPLATE / "Dockerfile").read_text(encoding="utf-8")
HASH = re.compile(r"--hash=sha256:[0-9a-f]{64}\b")


def locked() -> dict[str, tuple[Version, int]]:
    """By name: the version, and the number of hashes."""
    text = re.sub(r"^\s*#.*\n", "", LOCK, flags=re.MULTILINE).replace("\\\n", " ")
    found = {}
    for line in filter(None, map(str.strip, text.splitlines())):
        requirement = Requirement(line.split("--hash")[0].strip())
        ((operator, version),) = [(s.operator, s.version) for s in requirement.specifier]
        assert operator == "==" and not requirement.url, line
        assert requirement.marker is None, line  # resolved for one platform
        found[canonicalize_name(requirement.name)] = Version(version), len(HASH.findall(line))
    return found


def instructions() -> list[tuple[str, str]]:
    """The Dockerfile's instructions and what they are given, continued lines joined."""
    text = re.sub(r"^\s*#.*\n", "", DOCKERFILE, flags=re.MULTILINE).replace("\\\n", " ")
    pairs = [line.split(None, 1) for line in text.splitlines() if line.strip()]
    return [(name, " ".join(rest.split())) for name, rest in pairs]


def test_everything_locked_has_hashes():
    versions = locked()
    assert len(versions) == len(re.findall(r"^[a-z0-9]", LOCK, re.MULTILINE))
    assert not [name for name, (_, hashes) in versions.items() if not hashes]


def test_the_lock_satisfies_setup():
    versions, arguments = locked(), setup_arguments()
    for text in [*arguments["install_requires"], *arguments["extras_require"]["gcp"]]:
        requirement = Requirement(text)
        version, _ = versions[canonicalize_name(requirement.name)]
        assert requirement.specifier.contains(version), text


def test_the_lock_has_the_versions_that_the_tests_ran_with():
    versions, tested = locked(), pinned()
    both = versions.keys() & tested.keys()
    assert {"apache-beam", "numpy", "pyarrow", "scipy", "fastavro", "ada-url", "protobuf"} <= both
    assert {n: str(versions[n][0]) for n in both} == {n: tested[n] for n in both}


def test_the_lock_has_what_the_image_is_built_with_and_no_tools():
    """`--no-build-isolation` finds the build backend there, and nothing for tests goes to workers."""
    backend = Requirement(re.search(r'requires = \["(.+?)"\]', (ROOT / "pyproject.toml").read_text())[1])
    assert backend.specifier.contains(locked()[backend.name][0])
    assert not {"pytest", "hypothesis", "mypy", "ruff"} & locked().keys()
    assert "google-cloud-dataflow-client" in locked()


def test_one_beam_everywhere():
    beam = str(locked()["apache-beam"][0])
    assert beam == pinned()["apache-beam"]
    assert re.findall(r"apache/beam_python[\d.]+_sdk:(\S+)", DOCKERFILE) == [beam]
    (requirement,) = [
        Requirement(r) for r in setup_arguments()["install_requires"] if r.startswith("apache-beam")
    ]
    (extra,) = map(Requirement, setup_arguments()["extras_require"]["gcp"])
    assert requirement.specifier == extra.specifier and requirement.specifier.contains(beam)


def test_one_python_everywhere():
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    images = re.findall(r"^FROM python:(\d+\.\d+)-slim$", DOCKERFILE, re.MULTILINE)
    sdks = re.findall(r"beam_python(\d+\.\d+)_sdk", DOCKERFILE)
    launchers = [f"{m[0]}.{m[1:]}" for m in re.findall(r"/python(\d+)-template-launcher-base", DOCKERFILE)]
    resolved = re.findall(r"--python-version (\S+)", makefile)
    tested = re.findall(r"^LOCK_PYTHON \?= python(\S+)$", makefile, re.MULTILINE)
    assert {*images, *sdks, *launchers, *resolved, *tested} == set(images)
    assert len(images) == len(sdks) == len(launchers) == len(resolved) == len(tested) == 1
    assert SpecifierSet(setup_arguments()["python_requires"]).contains(images[0])


@needs_client
def test_this_environment_is_the_locked_one():
    from importlib.metadata import version

    assert sys.version_info[:2] == (3, 11)
    assert {n: version(n) for n in locked()} == {n: str(v) for n, (v, _) in locked().items()}


def test_images_have_a_version():
    for name, given in instructions():
        if name == "FROM" or "--from=" in given:
            image = re.sub(r"^--from=", "", given).split()[0]
            assert ":" in image and not image.endswith(":latest"), image


def test_the_image_is_launcher_and_worker_in_one():
    last = dict(instructions())
    assert last["ENTRYPOINT"] == '["/opt/apache/beam/boot"]'
    (folder,) = [given for name, given in instructions() if name == "WORKDIR"]
    variables = dict(given.split("=", 1) for name, given in instructions() if name == "ENV")
    # A requirements or setup file named here would be staged and installed at every launch.
    assert variables == {"FLEX_TEMPLATE_PYTHON_PY_FILE": f"{folder}/main.py"}
    assert sum(name == "FROM" for name, _ in instructions()) == 1
    copied = [given for name, given in instructions() if name == "COPY"]
    assert any(c.endswith("/opt/apache/beam /opt/apache/beam") for c in copied)
    assert any("python_template_launcher /opt/google/dataflow/python_template_launcher" in c for c in copied)


def test_packages_come_from_the_lock_alone():
    runs = " && ".join(given for name, given in instructions() if name == "RUN")
    installs = re.findall(r"pip install ([^&]+)", runs)
    assert len(installs) == 2
    assert "--require-hashes" in installs[0] and "-r requirements.txt" in installs[0]
    assert {"--no-deps", "--no-build-isolation", "."} <= set(installs[1].split())
    assert "pip check" in runs


def copied_sources() -> list[str]:
    found: list[str] = []
    for name, given in instructions():
        if name == "COPY" and not given.startswith("--from="):
            found += given.split()[:-1]
    return found


def test_copied_files_exist_and_are_let_into_the_context():
    ignored = (TEMPLATE / "Dockerfile.dockerignore").read_text(encoding="utf-8").splitlines()
    assert ignored[0] == "*"
    allowed = [line[1:] for line in ignored if line.startswith("!")]
    assert sorted(allowed) == sorted(copied_sources())
    for source in copied_sources():
        assert (ROOT / source).exists(), source


def test_the_image_has_all_packages():
    wanted = {name.split(".")[0] for name in setup_arguments()["packages"]}
    assert wanted <= set(copied_sources())
    read = re.findall(r'with_name\("(.+?)"\)', (ROOT / "setup.py").read_text(encoding="utf-8"))
    assert {"setup.py", "pyproject.toml", *read} <= set(copied_sources())


def test_modules_need_no_file_that_is_not_installed():
    """setuptools installs `.py` files only; another kind would have to be declared as package data."""
    others = [
        path
        for package in ("policies", "transforms", "pipelines")
        for path in (ROOT / package).rglob("*")
        if path.is_file() and path.suffix not in (".py", ".pyc")
    ]
    assert not others or "package_data" in setup_arguments(), others
