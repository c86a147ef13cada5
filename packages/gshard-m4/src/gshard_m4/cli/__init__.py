"""The command line `gshard-m4`, also `python -m gshard_m4`.

Every command is a module here with `DESCRIPTION`, `EXAMPLES`, `add_arguments(parser)` and
`command(options, command_line)`, which returns the exit code. Only the module of the command that
was asked for is imported. Input that cannot be used ends in an `InputError`: one fault a line on
standard error and exit code 2, with everything on disk as it was.
"""

import argparse
import importlib
import os
import shlex
import sys
from collections.abc import Sequence
from importlib.metadata import version

from gshard_m4.input_error import InputError

COMMANDS = {
    "languages": "print the languages of M4, or look up any code for one",
    "prepare": "clean and split a parallel corpus as downloaded, into compressed shards",
    "doctor": "say what is wrong with a directory, prepared or as downloaded",
    "vocabulary": "learn SentencePiece vocabularies and see how they fit each language",
    "mixture": "show the share of each language in training, and epochs at a budget",
    "evaluate": "score translations per language and write a report",
    "compare": "put systems that were evaluated on the same test set side by side",
}


def run(arguments: Sequence[str] | None = None) -> int:
    """The exit code of the command: 0, or 2 for input that cannot be used."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    options = _parser(given).parse_args(given)
    try:
        code = options.command(options, shlex.join(["gshard-m4", *given]))
        sys.stdout.flush()
        return code
    except BrokenPipeError:  # the reader, such as `head`, has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except InputError as error:
        for fault in error.faults:
            print(f"gshard-m4 {options.name}: {fault}", file=sys.stderr)
        return 2


def _parser(given: Sequence[str]) -> argparse.ArgumentParser:
    """All commands with a line of help each; arguments are those of the command that is asked."""
    parser = argparse.ArgumentParser(
        prog="gshard-m4", description="The M4 task: translation of 102 languages into English."
    )
    parser.add_argument("--version", action="version", version=f"gshard-m4 {version('gshard-m4')}")
    commands = parser.add_subparsers(
        title="commands", required=True, metavar="COMMAND", dest="name"
    )
    for name, line in COMMANDS.items():
        if name not in given:
            commands.add_parser(name, help=line)
            continue
        module = importlib.import_module(f"gshard_m4.cli.{name}")
        command = commands.add_parser(
            name,
            help=line,
            description=module.DESCRIPTION,
            epilog=module.EXAMPLES,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        module.add_arguments(command)
        command.set_defaults(command=module.command)
    return parser
