"""Which try at a night is in force. A runner elsewhere may go on with one that was stopped or given up.

The output folder says in `.attempt` which try may write there. Every file is written under a name that has
the try's own in it, and then renamed. Whoever renames looks at the mark first. Whoever ends a try removes the
mark, then the temporary files: one who had looked just before finds his file gone.
"""

from __future__ import annotations

from dataclasses import dataclass

from policies.numerics.errors import RecrawlError
from transforms.files.filesystems import FileSystems

MARK = ".attempt"


class StoppedError(RecrawlError):
    """This try at a night is no longer in force."""


@dataclass(frozen=True)
class Attempt:
    """One try at a night. Plain data: it travels to workers.

    Attributes
    ----------
    name : str
        Hexadecimal digits, of this try alone. No byte of a result depends on it.
    output : str
        The folder of the night.
    folder : str
        Where its files are made: there, or beside the night that it is to replace.
    """

    name: str
    output: str
    folder: str

    @property
    def mark(self) -> str:
        return FileSystems.join(self.output, MARK)

    def claim(self) -> None:
        """Put this try in force. Of those before it there is no mark by then."""
        with FileSystems.create(self.mark) as file:
            file.write(self.name.encode())

    def is_in_force(self) -> bool:
        return self._found() == self.name

    def is_taken_over(self) -> bool:
        return self._found() not in ("", self.name)

    def check(self) -> None:
        """Raise `StoppedError` where this try is not in force."""
        if self.is_in_force():
            return
        found = self._found()
        why = "another run has taken it over" if found else "its run was stopped, or has ended"
        raise StoppedError(
            f"--output={self.output}: this night may not be written any more: {why}. What it has written "
            "does not count"
        )

    def _found(self) -> str:
        if not FileSystems.exists(self.mark):
            return ""
        try:
            with FileSystems.open(self.mark) as file:
                return bytes(file.read()).decode(errors="replace")
        except FileNotFoundError:  # removed just now
            return ""
