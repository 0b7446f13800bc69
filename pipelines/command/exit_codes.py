"""Exit codes of all commands, apart from what takes time to import."""

from __future__ import annotations

EXIT_OK, EXIT_FAILED, EXIT_USAGE, EXIT_EMPTY, EXIT_REJECTED, EXIT_SHRUNK = range(6)
EXIT_RUN_OUT = 7
"""Of `night --status`: the schedule in force has run out. 6 is a busy store."""
BY_SIGNAL = 128
"""And the number of the signal that ended a command: 130 for Ctrl-C."""
