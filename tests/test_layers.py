"""Dependency runs one way, and nobody hides state or a clock where the mathematics is."""

import ast
import functools
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = ("policies", "transforms", "pipelines", "recrawl")
MAX_LINES, MAX_TEST_LINES = 500, 650

# What the mathematics may import: arrays, and what is pure in the standard library.
ALLOWED_IN_POLICIES = {
    "__future__", "abc", "bisect", "collections", "dataclasses", "enum", "fractions", "functools", "heapq",
    "itertools", "math", "numpy", "operator", "policies", "scipy", "types", "typing", "zlib",
}  # fmt: skip
FORBIDDEN = {
    "transforms": {"pipelines", "recrawl", "benchmarks", "tests"},
    "pipelines": {"benchmarks", "tests"},
    "recrawl": {"benchmarks", "tests", "transforms", "policies"},
}
ROOMS = {
    "policies": (
        "numerics", "clocks", "history", "estimation", "objectives", "signals", "signalled", "optimum",
        "judging", "predictors", "sequencing", "greedy", "rules", "discovery", "dynamics", "simulation",
        "on_request",
    ),
    "transforms": (
        "batches", "files", "rows", "dialects", "shards", "kept", "intake", "night", "discovery", "dynamics",
        "replay", "finished",
    ),
    "pipelines": (
        "pictures", "command", "nightly", "look", "webpage", "discovery", "store", "corpus", "experiments",
        "dynamics", "door",
    ),
}  # fmt: skip
"""The rooms of each layer, from the ground up: a room uses itself and those before it, and no other."""


def modules(*packages: str) -> list[Path]:
    return sorted(p for package in packages for p in (ROOT / package).rglob("*.py"))


def name(path: Path) -> str:
    return str(path.relative_to(ROOT))


SEEN = (ast.Import, ast.ImportFrom, ast.Call, ast.Attribute)


@functools.cache
def nodes(path: Path) -> list[ast.AST]:
    """What these tests look at in a module; most of them do in each."""
    return [n for n in ast.walk(ast.parse(path.read_text(encoding="utf-8"))) if isinstance(n, SEEN)]


@functools.cache
def names(path: Path) -> list[str]:
    """Full names of all that a module imports, wherever in it."""
    found = []
    for node in nodes(path):
        if isinstance(node, ast.Import):
            found += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{name(path)}:{node.lineno}: import by the full name"
            found += [f"{node.module}.{alias.name}" for alias in node.names]
    return found


def packages(path: Path) -> set[str]:
    """Top-level names of all packages that a module imports."""
    return {full.partition(".")[0] for full in names(path)}


@pytest.mark.parametrize("path", modules("policies"), ids=name)
def test_policies_import_arrays_and_nothing_else(path: Path) -> None:
    assert packages(path) <= ALLOWED_IN_POLICIES


@pytest.mark.parametrize("package", FORBIDDEN)
def test_imports_run_one_way(package: str) -> None:
    wrong = {name(p): found for p in modules(package) if (found := packages(p) & FORBIDDEN[package])}
    assert not wrong


@pytest.mark.parametrize("layer", ROOMS)
def test_rooms_are_the_declared_ones_and_use_each_other_one_way(layer: str) -> None:
    order = ROOMS[layer]
    assert {p.parent.relative_to(ROOT / layer).parts[:1] for p in modules(layer)} == {
        (),
        *((r,) for r in order),
    }
    assert [p.name for p in (ROOT / layer).glob("*.py")] == ["__init__.py"]
    wrong = []
    for path in modules(layer):
        room = path.relative_to(ROOT / layer).parts[0]
        allowed = order[: order.index(room) + 1] if room in order else ()
        for full in names(path):
            used = full.split(".")
            if used[0] == layer and used[1] not in allowed and not (room not in order and len(used) == 2):
                wrong.append(f"{name(path)} uses {full}")
    assert not wrong


def test_benchmarks_have_rooms_of_the_same_names() -> None:
    rooms = {p.parent.relative_to(ROOT / "benchmarks").parts for p in modules("benchmarks")} - {()}
    assert rooms <= {(room,) for layer in ROOMS.values() for room in layer} | {("measuring",)}


def test_no_files_import_each_other_in_a_circle() -> None:
    known = {".".join(p.relative_to(ROOT).with_suffix("").parts): p for p in modules(*PACKAGES)}
    used = {
        m: {f for full in names(p) for f in (full, full.rpartition(".")[0]) if f in known} - {m}
        for m, p in known.items()
    }
    while free := [m for m, of in used.items() if not of & used.keys()]:
        for m in free:
            del used[m]
    assert not used, f"circles among {sorted(used)}"


@pytest.mark.parametrize("layer", ROOMS)
def test_every_room_says_what_it_is_for_what_it_uses_and_where_to_start(layer: str) -> None:
    for room in ROOMS[layer]:
        files = [ROOT / layer / room / "__init__.py", *(ROOT / layer / room).rglob("*.py")]
        said = ast.get_docstring(ast.parse(files[0].read_text(encoding="utf-8"))) or ""
        uses = re.search(r"Uses (.*?)\.(\s|$)", said, re.DOTALL)
        assert len(said.split()) >= 6 and uses and "start" in said.lower(), room
        used = {full.split(".")[1] for p in files for full in names(p) if full.startswith(f"{layer}.")}
        if uses[1] != "all other rooms":  # by the names of modules
            assert set(re.findall(r"`(\w+)`", uses[1])) == used - {room}, room


@pytest.mark.parametrize("path", modules("policies"), ids=name)
def test_policies_touch_no_files(path: Path) -> None:
    calls = [n.func for n in nodes(path) if isinstance(n, ast.Call)]
    names = {c.id for c in calls if isinstance(c, ast.Name)}
    of_numpy = {
        c.attr
        for c in calls
        if isinstance(c, ast.Attribute) and isinstance(c.value, ast.Name) and c.value.id == "np"
    }
    assert not names & {"open", "print", "input", "exec", "eval"}
    assert not of_numpy & {"fromfile", "load", "save", "savez", "loadtxt", "savetxt", "memmap", "genfromtxt"}


def test_files_are_short() -> None:
    lines = {
        p: len(p.read_text(encoding="utf-8").splitlines()) for p in modules(*PACKAGES, "tests", "benchmarks")
    }
    assert not {
        name(p): n
        for p, n in lines.items()
        if n > (MAX_TEST_LINES if name(p).startswith("tests") else MAX_LINES)
    }


# Names in numpy.random that carry no hidden state.
STATELESS = {"Generator", "Philox", "SeedSequence", "BitGenerator"}


@pytest.mark.parametrize("path", modules(*PACKAGES), ids=name)
def test_random_numbers_come_from_a_keyed_generator(path: Path) -> None:
    assert not {"random", "secrets"} & packages(path)
    for node in nodes(path):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Attribute):
            outer = node.value
            if (
                outer.attr == "random"
                and isinstance(outer.value, ast.Name)
                and outer.value.id in ("np", "numpy")
            ):
                assert node.attr in STATELESS, f"{name(path)}:{node.lineno}: np.random.{node.attr}"


def clocks(path: Path) -> Iterator[str]:
    for node in nodes(path):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            of_time = isinstance(node.func.value, ast.Name) and node.func.value.id == "time"
            if node.func.attr in ("now", "utcnow", "today", "localtime", "gmtime", "time_ns") or (
                of_time and node.func.attr == "time"
            ):
                yield f"{name(path)}:{node.lineno}"


def test_no_result_depends_on_the_clock() -> None:
    """The date of a night is an option. A monotonic clock for progress is fine.

    Two places ask what time it is: when a line was said, and which night is due, for who does not say.
    """
    found = [place for path in modules(*PACKAGES) for place in clocks(path)]
    assert [place.split(":")[0] for place in found] == [
        "pipelines/command/json_lines.py",
        "pipelines/store/clock.py",
    ]


def test_the_checks_see_what_they_look_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.test_layers.ROOT", tmp_path)
    bad = tmp_path / "bad.py"
    bad.write_text(
        "import numpy as np\ndef f():\n    import os.path\n    from datetime import datetime\n"
        "    np.random.seed(1)\n    open('x')\n    return datetime.now()\ntime.time()\n"
    )
    assert packages(bad) == {"numpy", "os", "datetime"}
    assert sorted(clocks(bad)) == ["bad.py:7", "bad.py:8"]
    with pytest.raises(AssertionError, match="seed"):
        test_random_numbers_come_from_a_keyed_generator(bad)
    with pytest.raises(AssertionError):
        test_policies_touch_no_files(bad)
    with pytest.raises(AssertionError):
        test_policies_import_arrays_and_nothing_else(bad)
