"""What a committed night has beside its manifest: its metrics, and on this machine its page."""

from __future__ import annotations

import sys

from pipelines.store.night_metrics import of_night
from pipelines.webpage.report import page
from transforms.files.filesystems import FileSystems, local_path
from transforms.files.replacing import MANIFEST, METRICS, REPORT
from transforms.files.sinks import read_json, write_file
from transforms.finished.opened import OpenNight


def write_beside(folder: str, missing: bool = False) -> None:
    """Write these files; a failure costs a file alone, and a signal calls no committed night interrupted.

    Parameters
    ----------
    folder : str
    missing : bool
        Only those that are not there, as after a crash.
    """
    for name, text in ((METRICS, _metrics), (REPORT, _page)):
        if name == REPORT and local_path(folder) is None:
            continue
        try:
            if not (missing and FileSystems.exists(FileSystems.join(folder, name))):
                write_file(folder, name, text(folder).encode(), 1)
        except (Exception, KeyboardInterrupt) as error:
            again = f". recrawl report {folder} tries again" if name == REPORT else ""
            print(
                f"recrawl: the night is committed, but {folder}/{name} could not be written: "
                f"{type(error).__name__}: {error}{again}",
                file=sys.stderr,
            )


def _metrics(folder: str) -> str:
    return of_night(read_json(FileSystems.join(folder, MANIFEST)))


def _page(folder: str) -> str:
    return page(OpenNight.open(folder))
