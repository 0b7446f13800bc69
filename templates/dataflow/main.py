"""What the template launcher runs: checks the options, builds the job's graph and hands it over.

It does not wait for the job: the launcher gives up on a program that does.
"""

import argparse
import logging
import sys
from collections.abc import Iterator, Sequence

from pipelines.command.exit_codes import EXIT_OK
from pipelines.door import explaining
from pipelines.nightly import nightly
from pipelines.nightly.options import NightlyOptions


def arguments(launched: Sequence[str]) -> Iterator[str]:
    """The launcher's `--name=value` as the job takes them.

    The launcher gives a value to everything: `=true` to a flag, and nothing after the `=` where a field of
    the console's form was left empty.
    """
    parser = argparse.ArgumentParser(add_help=False)
    NightlyOptions._add_argparse_args(parser)
    flags = {option for action in parser._actions if action.nargs == 0 for option in action.option_strings}
    for argument in launched:
        name, has_value, value = argument.partition("=")
        if has_value and not value:
            continue
        if name not in flags or not has_value:
            yield argument
        elif value.lower() == "true":
            yield name
        elif value.lower() != "false":
            raise SystemExit(f"{argument}: expected true or false")


def main(launched: Sequence[str]) -> int:
    """Launch the job; the exit codes are those of `recrawl nightly`."""
    try:
        nightly.run(list(arguments(launched)), wait=False)
    except Exception as error:
        explained = explaining.explain(error)
        if explained is None:
            raise
        message, code = explained
        logging.error(message)
        return code
    return EXIT_OK


if __name__ == "__main__":
    logging.getLogger().setLevel(logging.INFO)
    sys.exit(main(sys.argv[1:]))
