"""Engines for the cluster tests, fetched by ordinary clients into a cache outside the tree.

`python -m tests.cluster.fetch prism|flink`. $RECRAWL_CACHE names the cache (default: ~/.cache/recrawl).
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from importlib.metadata import version
from pathlib import Path

CACHE = Path(os.environ.get("RECRAWL_CACHE") or Path.home() / ".cache" / "recrawl")
BEAM = version("apache-beam")
FLINK = "1.20.5"
PRISM = CACHE / f"prism-{BEAM}" / "prism"
DISTRIBUTION = CACHE / f"flink-{FLINK}"
JOB_SERVER = f"beam-runners-flink-{FLINK.rpartition('.')[0]}-job-server"
COORDINATES = f"org.apache.beam:{JOB_SERVER}:{BEAM}"
BEAM_LIB = Path(__file__).parents[2] / "templates" / "kubernetes" / "beam_lib.py"
JAR_VARIABLE = "RECRAWL_FLINK_JOB_SERVER_JAR"
# pip refuses a download with another SHA-256. The jars are in the one, the scripts and the configuration in
# the other; no Python of Flink is run, so the wheel of any CPython serves.
FILES = {
    f"apache-flink-libraries=={FLINK}": "e6aee62ea1a1fe7b32e28894ad079f3f1a50a372a4caac3df52405267f4228c8",
    f"apache-flink=={FLINK}": "6e8ec098a7c06ea34d01fd540e81d44703a90e3bda74052dcbcbb7db5253c10f",
}
WHEEL = ("--only-binary", ":all:", "--python-version", "3.11", "--platform", "manylinux_2_17_x86_64")


def job_server_jar() -> Path | None:
    """The job server: the one that the environment names, or the one that Maven left in the cache."""
    given = os.environ.get(JAR_VARIABLE)
    cached = CACHE / f"{JOB_SERVER}-{BEAM}.jar"
    return Path(given) if given else cached if cached.exists() else None


def lay_out_lib(jar: Path, folder: Path) -> Path:
    """Flink's lib/ with Beam's classes in it, as the image for Kubernetes has it."""
    folder.mkdir()
    for own in (DISTRIBUTION / "lib").glob("*.jar"):
        (folder / own.name).symlink_to(own)
    command = [sys.executable, str(BEAM_LIB), str(jar), str(folder / "beam-runners-flink.jar")]
    subprocess.run(command, check=True)
    return folder


def fetch_prism() -> None:
    """Build Prism; the Go client checks what it downloads against Go's checksum database."""
    if PRISM.exists():
        print(PRISM)
        return
    if shutil.which("go") is None:
        sys.exit("make prism needs Go 1.26 or newer: `go` is not on the PATH")
    PRISM.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=PRISM.parent) as folder:
        command = ["go", "install", f"github.com/apache/beam/sdks/v2/go/cmd/prism@v{BEAM}"]
        subprocess.run(command, env=os.environ | {"GOBIN": folder}, check=True)
        os.replace(Path(folder) / "prism", PRISM)
    print(PRISM)


def fetch_distribution() -> None:
    """Lay out Flink's lib/, bin/ and conf/ from what PyPI has of it."""
    if DISTRIBUTION.exists():
        return
    CACHE.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=CACHE) as name:
        folder, tree = Path(name), Path(name) / "tree"
        for package, digest in FILES.items():
            wanted = folder / "requirements.txt"
            wanted.write_text(f"{package} --hash=sha256:{digest}\n")
            form = ("--no-binary", ":all:") if "libraries" in package else WHEEL
            pip = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check"]
            subprocess.run([*pip, "--no-deps", *form, "--dest", name, "-r", str(wanted)], check=True)
        (source,) = folder.glob("*.tar.gz")
        with tarfile.open(source) as archive:
            for member in archive:
                parts = Path(member.name).parts[2:]  # apache_flink_libraries-1.20.5/deps/lib/...
                if member.isfile() and parts[:1] in (("lib",), ("bin",)):
                    data = archive.extractfile(member)
                    assert data is not None
                    _write(tree.joinpath(*parts), data.read())
        (wheel,) = folder.glob("*.whl")
        with zipfile.ZipFile(wheel) as archive:
            for item in archive.namelist():
                parts = Path(item).parts[1:]
                if not item.endswith("/") and parts[:1] in (("bin",), ("conf",)):
                    _write(tree.joinpath(*parts), archive.read(item))
        (tree / "plugins").mkdir()
        os.replace(tree, DISTRIBUTION)


def _write(path: Path, data: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    if path.suffix == ".sh":
        path.chmod(0o755)


def fetch_job_server() -> None:
    """Have Maven fetch the job server, its checksums enforced (-C)."""
    jar = job_server_jar()
    if jar is not None:
        if not jar.exists():
            sys.exit(f"{JAR_VARIABLE}={jar}: no such file")
        return
    if shutil.which("mvn") is None:
        sys.exit(f"{COORDINATES} needs Maven: `mvn` is not on the PATH; or give the jar by {JAR_VARIABLE}")
    goal = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy"
    arguments = [f"-Dartifact={COORDINATES}", f"-DoutputDirectory={CACHE}", "-Dmdep.useBaseVersion=true"]
    maven = ["mvn", "-B", "-q", "-C", "-Dstyle.color=never"]
    done = subprocess.run([*maven, goal, *arguments], capture_output=True, text=True)
    if done.returncode:
        said = [line for line in done.stdout.splitlines() if "ERROR" in line][:1]
        sys.exit(
            f"Maven gives no {COORDINATES}. It says:\n  {said[0] if said else done.stderr.strip()}\n"
            f"Flink {FLINK} itself is in {DISTRIBUTION}. Take the job server's jar from elsewhere (Beam's "
            f"build: gradlew :runners:flink:{FLINK.rpartition('.')[0]}:job-server:shadowJar) and name it: "
            f"{JAR_VARIABLE}=/path/to/{JOB_SERVER}-{BEAM}.jar make test-flink"
        )


if __name__ == "__main__":
    for engine in sys.argv[1:]:
        if engine == "prism":
            fetch_prism()
        elif engine == "distribution":
            fetch_distribution()
        elif engine == "flink":
            fetch_distribution()
            fetch_job_server()
        else:
            sys.exit(f"{engine}: expected prism, distribution or flink")
