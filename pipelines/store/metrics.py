"""`recrawl metrics STORE`: what a monitor asks of a store of nights, in Prometheus' text format."""

from __future__ import annotations

import argparse
import os

from pipelines.command import output_folder
from pipelines.command.errors import OptionsError
from pipelines.store import clock
from pipelines.store.night_metrics import family, of_night
from pipelines.store.store import Store, ends_at
from transforms.finished.folders import check_manifest

DESCRIPTION = """\
Print metrics of a store in Prometheus' text format: those of the last committed night, its age, whether the
schedule in force has run out, and warnings. Takes no lock, changes nothing, and ends with 0 where no night is
committed: the metrics say it.
"""


def of_store(store: Store, now_us: int) -> str:
    """The metrics of a store at a moment.

    Raises
    ------
    StoreError, NightError
        A manifest cannot be read.
    """
    nights = store.nights()
    said = [family("recrawl_store_nights", "Committed nights that are kept.", [({}, float(len(nights)))])]
    if nights:
        last = nights[-1]
        manifest = last.manifest()
        left_us = ends_at(last, manifest) - now_us
        warned = len(last.noted().get("warnings", [])) + len(store.damage())
        for name, text, value in (
            ("night_age_seconds", "Age of the last committed night.", (now_us - last.as_of_us) / 1e6),
            ("schedule_left_seconds", "Time until the schedule in force ends.", max(left_us, 0) / 1e6),
            ("schedule_run_out", "1 where the schedule in force has run out.", float(left_us < 0)),
            ("warnings", "Warnings on the store and its logs, beside those of the night.", float(warned)),
        ):
            said.append(family(f"recrawl_store_{name}", text, [({}, value)]))
        said.append(of_night(check_manifest(manifest, f"{last.folder}/manifest.json")))
    return "".join(said)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of the command."""
    parser.description = DESCRIPTION
    parser.add_argument("store", metavar="STORE", help="folder of all nights")
    parser.add_argument(
        "--output",
        metavar="FILE",
        help="file to replace in one step, such as one in the folder of node_exporter's textfile collector "
        "(default: standard output)",
    )


def run(parsed: argparse.Namespace) -> None:
    """Print or write the metrics of a store.

    Raises
    ------
    OptionsError
    StoreError
    """
    text = of_store(Store(parsed.store, clock.now), clock.now_us())
    if parsed.output is None:
        print(text, end="", flush=True)
        return
    output_folder.check_file(parsed.output)
    # Collectors read whatever ends in .prom: what is half written must not.
    half = f"{parsed.output}.{os.getpid()}.tmp"
    try:
        with open(half, "w", encoding="utf-8") as file:
            file.write(text)
        os.replace(half, parsed.output)
    except OSError as error:
        raise OptionsError([f"--output={parsed.output}: cannot be written: {error.strerror}"]) from None
