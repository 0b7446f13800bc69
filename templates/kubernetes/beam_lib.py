"""Beam's classes for Flink's lib/, out of the job server's jar: `beam_lib.py JOB_SERVER.jar LIB.jar`.

Classes of an uploaded jar go with the class loader of their job, and with them what starts the Python
workers: then every stage starts its own. In lib/ they stay. Flink's own classes and slf4j's are there.
"""

from __future__ import annotations

import re
import sys
import zipfile
from pathlib import Path

THERE = re.compile(
    r"(META-INF/versions/\d+/)?org/(apache/flink|slf4j)/|META-INF/services/org\.(apache\.flink|slf4j)\.|"
    r"META-INF/[^/]+\.(SF|RSA|DSA)$|flink-[^/]+\.jar$"
)


def copy(jar: Path, lib: Path) -> None:
    """Copy all of a jar that Flink's lib/ does not have."""
    half = lib.with_suffix(".half")
    with zipfile.ZipFile(jar) as source, zipfile.ZipFile(half, "w", zipfile.ZIP_DEFLATED) as target:
        for item in source.infolist():
            if not THERE.match(item.filename):
                target.writestr(item, source.read(item))
    half.replace(lib)


if __name__ == "__main__":
    copy(Path(sys.argv[1]), Path(sys.argv[2]))
