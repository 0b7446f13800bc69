"""What the discovery job has left for a night: refreshes that are planned, and new pages."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pipelines.command.errors import OptionsError
from pipelines.nightly.options import Settings
from transforms.discovery.previous import JOB
from transforms.files.filesystems import FileSystems
from transforms.files.replacing import MANIFEST
from transforms.files.sinks import read_json
from transforms.intake.reading import Input


@dataclass(frozen=True)
class Discovered:
    """A finished run of the discovery job.

    Attributes
    ----------
    folder : str
    manifest : dict
        Empty where there is none.
    """

    folder: str = ""
    manifest: dict[str, Any] | None = None

    @classmethod
    def of(cls, settings: Settings) -> Discovered:
        """What `--discovery` names, checked.

        Raises
        ------
        OptionsError
        """
        if not settings.discovery:
            return cls()
        folder = settings.discovery.rstrip("/")
        try:
            manifest = read_json(FileSystems.join(folder, MANIFEST))
        except ValueError as error:
            raise OptionsError([f"--discovery={folder}: manifest.json is damaged: {error}"]) from None
        if not isinstance(manifest, dict) or manifest.get("job") != JOB:
            raise OptionsError([f"--discovery={folder}: give the --output of a finished `recrawl discover`"])
        options = manifest["options"]
        if (options["as_of_us"], options["horizon_us"]) != (settings.as_of_us, settings.horizon_us):
            raise OptionsError(
                [
                    f"--discovery={folder} plans {options['horizon_us'] / 3.6e9:g} hours from "
                    f"{options['as_of']}, this night {settings.horizon_hours:g} from another or the same "
                    "instant: run discover with the --as_of and --horizon_hours of the night"
                ]
            )
        return cls(folder, manifest)

    def inputs(self, pages: str | None) -> list[Input]:
        """What the night reads, with the patterns of its own catalogue."""
        counters = (self.manifest or {}).get("counters", {})
        # An input that had rows last night, and has none now, would count as lost.
        if counters.get("targets_new"):
            pages = ",".join(filter(None, (pages, f"{self.folder}/targets/shard-*")))
        found = [Input("pages", pages, True)] if pages else []
        if counters.get("refreshes"):
            found.append(Input("refreshes", f"{self.folder}/schedule/shard-*", True))
        return found

    def said(self) -> dict[str, Any] | None:
        """What the night's manifest repeats of it."""
        if self.manifest is None:
            return None
        names = ("price", "refreshes", "new_links_per_day", "options", "counters", "warnings")
        said = {name: self.manifest[name] for name in names}
        if self.manifest["status"] == "no_input":
            said["warnings"] = [*said["warnings"], self.manifest["status_reason"]]
        return said
