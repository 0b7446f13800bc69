"""The readers, fetched by ordinary clients into the cache: jars by Maven, Scrapy by pip.

`python -m tests.consumers.fetch` takes what is to be had; tests of what is not there are skipped.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import venv
from pathlib import Path

from tests.cluster.fetch import CACHE

HERE = Path(__file__).parent
POM, OPENSEARCH_POM = HERE / "pom.xml", HERE / "opensearch" / "pom.xml"
SCRAPY = "2.19.0"
SCRAPY_PYTHON = CACHE / f"scrapy-{SCRAPY}-{sys.version_info[0]}.{sys.version_info[1]}" / "bin" / "python"


def jars_of(pom: Path, name: str) -> Path:
    """The folder of the jars that a project file names; another file has another folder."""
    return CACHE / f"{name}-{hashlib.sha256(pom.read_bytes()).hexdigest()[:12]}"


JARS, OPENSEARCH_JARS = jars_of(POM, "consumers"), jars_of(OPENSEARCH_POM, "opensearch")


def fetch_jars(pom: Path, jars: Path, of: str) -> None:
    """Have Maven copy the jars, its checksums enforced (-C)."""
    if jars.exists():
        return
    if shutil.which("mvn") is None:
        print(f"no jars of {of}: `mvn` is not on the PATH")
        return
    CACHE.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=CACHE) as name:
        goal = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy-dependencies"
        maven = ["mvn", "-B", "-q", "-C", "-Dstyle.color=never", "-f", str(pom)]
        done = subprocess.run(
            [*maven, goal, f"-DoutputDirectory={name}/jars"], capture_output=True, text=True
        )
        if done.returncode:
            said = [line for line in done.stdout.splitlines() if "ERROR" in line][:1]
            print(f"no jars of {of}: Maven says: {said[0] if said else done.stderr.strip()}")
            return
        os.replace(Path(name) / "jars", jars)


def fetch_scrapy() -> None:
    """An environment of its own: recrawl does not need Scrapy."""
    if SCRAPY_PYTHON.exists():
        return
    folder = SCRAPY_PYTHON.parent.parent
    venv.create(folder, with_pip=True, clear=True)
    pip = [str(folder / "bin" / "pip"), "install", "--quiet", "--disable-pip-version-check"]
    if subprocess.run([*pip, f"scrapy=={SCRAPY}"]).returncode:
        shutil.rmtree(folder)
        print(f"no Scrapy: pip gives no scrapy=={SCRAPY}")


if __name__ == "__main__":
    fetch_jars(POM, JARS, "Nutch, Heritrix and URLFrontier")
    fetch_jars(OPENSEARCH_POM, OPENSEARCH_JARS, "OpenSearch")
    fetch_scrapy()
