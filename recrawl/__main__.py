"""`python -m recrawl COMMAND`, and the entry point of `recrawl`."""

import sys
from collections.abc import Sequence


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command; returns the exit code."""
    from pipelines.door import cli

    return cli.main(argv)


if __name__ == "__main__":
    sys.exit(main())
