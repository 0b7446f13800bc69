"""What all who read the folder of a finished night share: errors, its manifest, names of its files."""

from __future__ import annotations

from typing import Any, Final

from policies.numerics.errors import RecrawlError
from policies.objectives import objectives
from transforms.finished.manifest_shape import problems

_NEEDED: Final = ("budget_per_day", "counters", "files", "multiplier", "options")


class NightError(RecrawlError):
    """The folder of a night cannot be read, or has no such page or host."""


def check_manifest(manifest: Any, path: str) -> dict[str, Any]:
    """The manifest if it is one of a night, as this version reads it.

    Raises
    ------
    NightError
        It is none, is damaged, or another version's.
    """
    found = manifest if isinstance(manifest, dict) else {}
    missing = sorted(set(_NEEDED) - found.keys())
    if missing:
        raise NightError(
            f"{path}: no {', '.join(missing)} in it, so it is not the manifest of a night. Give the --output "
            "folder of a finished night"
        )
    options = found["options"]
    known = isinstance(options, dict) and options.get("objective", "periodic") in objectives.NAMES
    if isinstance(options, dict) and not (known and "num_shards" in options):
        raise NightError(
            f"{path}: written by another version of recrawl ({found.get('recrawl_version')}): its options "
            "num_shards and objective are not ones of this version. Read it with that version"
        )
    if (wrong := next(problems(found), None)) is not None:
        raise NightError(
            f"{path}: damaged, or of another version of recrawl ({found.get('recrawl_version')}): {wrong}. "
            "Restore it, run that night again, or read it with that version"
        )
    return found


def absent(folder: str) -> NightError:
    """Of a folder without a night."""
    return NightError(
        f"{folder}: no manifest.json there and no store, so no finished night is there: it failed, still "
        "runs, or is elsewhere. Give the --output folder of a finished night, or a store"
    )


def damaged(path: str, error: Exception) -> NightError:
    """Of a manifest that is no JSON."""
    return NightError(f"{path}: damaged: {error}. Restore it, or run that night again")


def unreadable(path: str, error: Exception) -> NightError:
    """Of a file that the manifest lists."""
    said = " ".join(str(error).split()).rstrip(" .")
    why = "it is not there" if isinstance(error, FileNotFoundError) else f"it cannot be read: {said}"
    return NightError(f"{path}: the manifest lists it, but {why}. Restore the file, or run that night again")


def shard_of(name: str) -> int:
    """The shard of a night's file, by its path."""
    return int(name.rpartition("/")[2].removeprefix("shard-").split("-")[0])


def weights_of(manifest: dict[str, Any]) -> str:
    """What pages are weighted with; equal where no page has an importance of its own."""
    weight_by = str(manifest["weight_by"])
    alike = manifest.get("weights_alike") or not manifest["options"].get("pages")
    return "equal" if weight_by == "importance" and alike else weight_by
