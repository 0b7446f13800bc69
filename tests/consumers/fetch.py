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

POM = Path(__file__).with_name("pom.xml")
SCRAPY = "2.19.0"
JARS = CACHE / f"consumers-{hashlib.sha256(POM.read_bytes()).hexdigest()[:12]}"
SCRAPY_PYTHON = CACHE / f"scrapy-{SCRAPY}-{sys.version_info[0]}.{sys.version_info[1]}" / "bin" / "python"


def fetch_jars() -> None:
    """Have Maven copy the jars, its checksums enforced (-C)."""
    if JARS.exists():
        return
    if shutil.which("mvn") is None:
        print("no jars: Nutch, Heritrix and URLFrontier need Maven: `mvn` is not on the PATH")
        return
    CACHE.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=CACHE) as name:
        goal = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy-dependencies"
        maven = ["mvn", "-B", "-q", "-C", "-Dstyle.color=never", "-f", str(POM)]
        done = subprocess.run(
            [*maven, goal, f"-DoutputDirectory={name}/jars"], capture_output=True, text=True
        )
        if done.returncode:
            said = [line for line in done.stdout.splitlines() if "ERROR" in line][:1]
            print(f"no jars: Maven says: {said[0] if said else done.stderr.strip()}")
            return
        os.replace(Path(name) / "jars", JARS)


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
    fetch_jars()
    fetch_scrapy()
