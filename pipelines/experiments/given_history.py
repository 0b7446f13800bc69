"""A figure on a given history in place of drawn pages: options, and pages as the experiments take them."""

from __future__ import annotations

import argparse

import numpy as np
import pyarrow as pa

from pipelines.command.errors import OptionsError
from pipelines.nightly.checks import Checks, near
from policies.numerics.typing_ import IntArray
from policies.simulation.predicting import Pages
from transforms.files.blocks import How
from transforms.intake.reading import Input
from transforms.replay.replaying import ReplayError, ReplaySettings, read_world
from transforms.replay.worlds import World

MOST_PAGES = 5000


def command(figure: str, parsed: argparse.Namespace) -> str:
    """The command that makes these numbers, without the places of files."""
    words = [f"recrawl reproduce {figure} --changes FILES"]
    words += ["--pages FILES"] if parsed.pages else []
    for name in ("start", "end", "group_columns", "feature_columns", "horizon_hours", "repetitions"):
        value = getattr(parsed, name)
        if value:
            words.append(f"--{name} {' '.join(value) if isinstance(value, list) else value}")
    words += [f"--seed {parsed.seed}"] if parsed.seed else []
    return " ".join([*words, "--output DIR"])


def read(parsed: argparse.Namespace) -> tuple[Pages, int]:
    """The pages, and hours ahead.

    Raises
    ------
    OptionsError, ReplayError
    """
    check = Checks(parsed)
    given = (("changes", parsed.changes), ("pages", parsed.pages))
    inputs = [Input(kind, files, True, How()) for kind, files in given if files]
    settings = ReplaySettings(check.instant("start"), check.instant("end"), MOST_PAGES, 0)
    horizon = check.number("horizon_hours", 1, 168, "hours")
    groups, features = check.words("group_columns"), check.words("feature_columns")
    if check.problems:
        raise OptionsError(check.problems)
    replayed = read_world(inputs, settings)
    world = replayed.world
    for option, names in (("group_columns", groups), ("feature_columns", features)):
        for name in names:
            if name not in world.metadata:
                known = ", ".join(world.metadata) or "none"
                raise ReplayError(
                    f"--{option}: {name}: not among the columns of --pages ({known})"
                    f"{near(name, list(world.metadata))}"
                )
    return _pages(parsed.dataset, world, groups, features or tuple(world.metadata)), horizon


def _pages(name: str, world: World, groups: tuple[str, ...], features: tuple[str, ...]) -> Pages:
    group = world.host
    if groups:
        joined = np.column_stack([_numbers(world.metadata[g]) for g in groups])
        group = np.unique(joined, axis=0, return_inverse=True)[1].reshape(-1)
    metadata = [_numbers(world.metadata[f]) + 1 for f in features]
    none = np.zeros((len(world), 0), np.int64)
    return Pages(
        name, world.history, world.host, group, group, np.column_stack(metadata) if metadata else none
    )


def _numbers(column: pa.Array) -> IntArray:
    """Values by number, in order of the values: no order of rows decides."""
    return np.unique(column.to_numpy(zero_copy_only=False).astype(str), return_inverse=True)[1].reshape(-1)
