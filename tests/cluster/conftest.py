"""One small corpus, the nights that this process makes of it, and the engines that must make the same."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.cluster import engines
from tests.cluster.nights import end, first_options, second_options, start
from tests.pipelines.jobs import Night, command

MARKS = {"cluster": "make test-cluster", "flink": "make test-flink"}
PRISM = pytest.param("prism", marks=pytest.mark.cluster)
FLINK = pytest.param("flink", marks=pytest.mark.flink)
EMBEDDED = pytest.param("flink embedded", marks=pytest.mark.flink)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Tests that need another engine run where they are asked for, by `-m`."""
    for item in items:
        if not item.path.is_relative_to(Path(__file__).parent):
            continue
        # Seconds: a few nights, and those that hang for a while. On Flink a small night takes a minute, and
        # what fails waits for the worker's cache to run out.
        item.add_marker(pytest.mark.timeout(3000 if item.get_closest_marker("flink") else 300))
        for mark, target in MARKS.items():
            if item.get_closest_marker(mark) and mark not in (config.option.markexpr or ""):
                item.add_marker(pytest.mark.skip(reason=f"needs another engine: {target}"))


@pytest.fixture(scope="session")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """Options that name the inputs of a night."""
    folder = tmp_path_factory.mktemp("corpus")
    made = ["--pages=1200", "--days=6", "--start=2026-06-01", "--seed=3", f"--output={folder}"]
    assert command("synthesize", *made)[0] == 0
    return [
        f"--observations={folder}/logs/*.parquet",
        f"--requests={folder}/clicks/*.parquet",
        f"--signals={folder}/signals/*.parquet",
        f"--pages={folder}/pages.parquet",
        f"--hosts={folder}/hosts.csv",
        "--budget=900",
        "--num_shards=4",
    ]


@pytest.fixture(scope="session")
def clean(corpus: list[str], tmp_path_factory: pytest.TempPathFactory) -> Night:
    """The first night, made in this process, with no fault."""
    folder = tmp_path_factory.mktemp("clean")
    night = Night(*command("nightly", *corpus, *first_options(folder)), folder)
    assert night.code == 0, night.complaints
    return night


@pytest.fixture(scope="session")
def clean_second(corpus: list[str], clean: Night, tmp_path_factory: pytest.TempPathFactory) -> Night:
    """The second night, on the state of the first."""
    folder = tmp_path_factory.mktemp("second")
    night = Night(*command("nightly", *corpus, *second_options(clean, folder)), folder)
    assert night.code == 0, night.complaints
    return night


@pytest.fixture
def first(corpus: list[str], tmp_path: Path) -> Callable[..., Night]:
    """Runs the first night with further options, by default in the same folder every time."""

    def run(*options: str, folder: Path = tmp_path / "night", impatient: bool = False) -> Night:
        return end(start(*corpus, *first_options(folder), *options, impatient=impatient), folder)

    return run


@contextlib.contextmanager
def _started(name: str, folder: Path) -> Iterator[engines.Engine]:
    with contextlib.ExitStack() as stack:
        if name == "prism":
            yield stack.enter_context(engines.prism(folder))
        else:
            yield stack.enter_context(engines.flink(folder, "[local]" if "embedded" in name else None))


@pytest.fixture(scope="session", params=[PRISM, FLINK])
def engine(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[engines.Engine]:
    """A running engine that many tests share."""
    with _started(request.param, tmp_path_factory.mktemp("engine")) as found:
        yield found


@pytest.fixture(scope="session", params=[PRISM])
def prism_engine(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[engines.Engine]:
    """Prism, for tests of what it alone does."""
    with _started(request.param, tmp_path_factory.mktemp("prism")) as found:
        yield found


@pytest.fixture(scope="session", params=[PRISM, FLINK, EMBEDDED])
def any_engine(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[engines.Engine]:
    """The same, and Flink inside its job server."""
    with _started(request.param, tmp_path_factory.mktemp("any")) as found:
        yield found


@pytest.fixture(params=[PRISM, FLINK])
def own_engine(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[engines.Engine]:
    """A running engine that a test may break."""
    with _started(request.param, tmp_path) as found:
        yield found
