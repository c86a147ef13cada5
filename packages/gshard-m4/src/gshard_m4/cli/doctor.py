"""`gshard-m4 doctor`."""

import argparse
from pathlib import Path

from gshard_m4.asked_languages import listed_codes

DESCRIPTION = """\
Says what is wrong with a directory, all at once: one that `gshard-m4 prepare` wrote, or a corpus as
downloaded.

In a prepared directory: missing and damaged files, a manifest that contradicts them, languages
without a test or validation set or with little text, validation and test sentences in training text
(to the last character, and without case, spaces and punctuation), duplicates, and every row that
cleaning would remove or mend; vocabularies that do not fit a language's text.

In a corpus as downloaded: which layout it is, sides of different length, sides that are swapped,
text that is not UTF-8, unknown codes, files that are empty or would be left out, and how much of
the training text cleaning would remove.

A fault changes what is trained on or what scores mean. A note is good to know: rows of published
validation and test sets that cleaning would remove from training text, for example.
"""
EXAMPLES = """\
examples:
  gshard-m4 doctor /data/m4
  gshard-m4 doctor /data/m4 --languages=ps,yi --all
  gshard-m4 doctor opus-100 --json > findings.json

exit codes: 0 no fault (notes do not count), 1 faults, 2 the directory cannot be read
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The flags of the command."""
    add = parser.add_argument
    add("directory", metavar="DIR", type=Path, help="prepared, or as downloaded")
    add(
        "--languages",
        type=listed_codes,
        default=(),
        metavar="CODES",
        help="look at these only: de,fr",
    )
    add("--source", metavar="KIND", help="layout of a corpus as downloaded (default: found out)")
    add("--any-language", action="store_true", help="languages outside M4 belong to the corpus")
    add("--no-hashes", action="store_true", help="leave out comparing the files' hashes")
    add("--all", action="store_true", help="every language and detail, not the worst few")
    add("--json", action="store_true", help="all findings as JSON")
    add("--processes", type=_positive, metavar="N", help="at a time (default: one a core)")
    add("--quiet", action="store_true", help="no progress bar")


def command(options: argparse.Namespace, command_line: str) -> int:
    """Examines and prints; 1 where there are faults."""
    del command_line
    import json

    from gshard_m4.doctor import examine
    from gshard_m4.doctor.report import as_json, lines
    from gshard_m4.preparing.processes import default_processes

    found = examine(
        options.directory,
        languages=options.languages,
        kind=options.source,
        any_language=options.any_language,
        hashes=not options.no_hashes,
        processes=options.processes or default_processes(),
        quiet=options.quiet,
    )
    if options.json:
        print(json.dumps(as_json(found), ensure_ascii=False, indent=1))
    else:
        print("\n".join(lines(found, everything=options.all)))
    return 1 if found.faults else 0


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text} is not positive")
    return number
