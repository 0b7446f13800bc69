"""Exit codes of all commands, apart from what takes time to import."""

from __future__ import annotations

EXIT_OK, EXIT_FAILED, EXIT_USAGE, EXIT_EMPTY, EXIT_REJECTED, EXIT_SHRUNK = range(6)
EXIT_BUSY, EXIT_RUN_OUT = 6, 7
"""Another night is running on the store; of `night --status`: the schedule in force has run out."""
BY_SIGNAL = 128
"""And the number of the signal that ended a command: 130 for Ctrl-C."""
