"""`gshard-m4 prepare`."""

import argparse
import math
import re
from pathlib import Path

from gshard_m4.asked_languages import listed_codes
from gshard_m4.input_error import InputError

DESCRIPTION = """\
Prepares a parallel corpus into English for training: reads it as downloaded, cleans it, removes
duplicates and every sentence of a validation or test set from the training text, and writes
compressed shards for each language.

The layout of the input is found out, or given with --source; `--source=list` prints all. --source
and --input may be given several times, in pairs: the corpora go into one directory. Files may be
compressed (.gz, .xz, .bz2, .zst) or inside .zip archives.

Everything wrong with the input is listed before anything is written (exit code 2): sides of
different length, text that is not UTF-8, swapped sides, unknown languages, monolingual data.

Validation and test sets of the input stay whole and as they are. Where there are none, they are
drawn from the training text. A run that was ended goes on where it was when it is given again.
A language of which no row is left ends it; one that keeps less than a tenth is named at the end.

Writes to OUTPUT:
  <language>/<split>-<shard>.tsv.gz   source, English, origin; in the order of a hash
  manifest.json                       counts, hashes, licences, settings; written last
  prepare_report.json                 rows read, kept and removed by reason, for each language
"""
EXAMPLES = """\
examples:
  gshard-m4 prepare --input=opus-100 --output=/data/m4
  gshard-m4 prepare --source=ntrex-128 --input=NTREX/NTREX-128 --output=/data/ntrex
  gshard-m4 prepare --input=opus-100 --output=/data/m4 --keep-out=/data/ntrex --dry-run
  gshard-m4 prepare --source=nllb --input=nllb --source=tsv --input=mine --output=/data/both
  gshard-m4 prepare --source=debian --output=/data/debian

exit codes: 0 done (or there already), 2 the input or the flags cannot be used
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The flags of the command."""
    _add_input(parser)
    _add_splits(parser)
    _add_cleaning(parser)
    running = parser.add_argument_group("running")
    running.add_argument("--output", type=Path, help="folder of the prepared directory")
    running.add_argument(
        "--name",
        dest="corpus",
        default="",
        metavar="NAME",
        help="of the corpus, a-z 0-9 _ (default: OUTPUT's)",
    )
    running.add_argument(
        "--processes", type=_positive, metavar="N", help="at a time (default: one a core)"
    )
    running.add_argument("--dry-run", action="store_true", help="print what would be read, and end")
    running.add_argument(
        "--restart",
        action="store_true",
        help="make OUTPUT anew, whatever it was made from; it stays until the new one is whole",
    )
    running.add_argument(
        "--runner", metavar="RUNNER", help="run on Apache Beam, such as DirectRunner"
    )
    running.add_argument(
        "--beam-options", default="", metavar="OPTIONS", help="the runner's own, in quotes"
    )
    running.add_argument("--quiet", action="store_true", help="no progress bars")


def _add_input(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("input")
    group.add_argument(
        "--source",
        action="append",
        metavar="KIND",
        help="layout of the input (default: auto); list prints all of them",
    )
    group.add_argument(
        "--input", action="append", type=Path, metavar="PATH", help="folder, file or zip archive"
    )
    group.add_argument(
        "--licence", action="append", metavar="TEXT", help="of each --input, for the manifest"
    )
    group.add_argument(
        "--languages",
        type=listed_codes,
        default=(),
        metavar="CODES",
        help="take these only: de,fr,ps",
    )
    group.add_argument(
        "--any-language", action="store_true", help="take languages outside M4 and other scripts"
    )
    group.add_argument(
        "--skip-unknown", action="store_true", help="leave files with unknown codes out"
    )
    group.add_argument(
        "--swapped", type=listed_codes, default=(), metavar="NAMES",
        help="languages, or names of files, whose sides are the other way round than they say",
    )  # fmt: skip


def _add_splits(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("held-out sets")
    for split in ("validation", "test"):
        group.add_argument(
            f"--{split}-size",
            type=_count,
            default=500,
            metavar="N",
            help="pairs drawn where the input has none (default: %(default)s)",
        )
    group.add_argument(
        "--min-words", type=_count, default=5, metavar="N",
        help="English words of a drawn pair (default: %(default)s)",
    )  # fmt: skip
    group.add_argument(
        "--keep-out", action="append", type=Path, default=[], metavar="DIR",
        help="prepared directory whose held-out sentences go from the training text too, and are"
        " not drawn",
    )  # fmt: skip
    group.add_argument(
        "--english-elsewhere",
        choices=("remove", "keep"),
        default="remove",
        help="training pairs whose English is held out for another language (default: %(default)s)",
    )
    group.add_argument(
        "--clean-held-out", action="store_true", help="clean the input's own held-out sets as well"
    )


def _add_cleaning(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("cleaning")
    group.add_argument(
        "--max-characters", type=_positive, default=1000, metavar="N",
        help="of each side (default: %(default)s)",
    )  # fmt: skip
    group.add_argument(
        "--max-ratio", type=_ratio, default=3.0, metavar="X",
        help="of the lengths in characters; English beside Chinese, Thai and the like may be 8"
        " times longer (default: %(default)s)",
    )  # fmt: skip


def command(options: argparse.Namespace, command_line: str) -> int:
    """Prepares, writes the manifest and the report, and prints the table."""
    from gshard_m4.preparing.command import run

    if options.source == ["list"]:
        from gshard_m4.sources import kinds_table

        print("\n".join(kinds_table()))
        return 0
    faults = _flag_faults(options)
    if faults:
        raise InputError(faults)
    return run(options, command_line)


def _flag_faults(options: argparse.Namespace) -> list[str]:
    """Flags that do not go together."""
    faults = []
    inputs, kinds = options.input or [], options.source or []
    if not inputs and kinds != ["debian"]:
        faults.append("--input is missing: the folder to read (--source=debian downloads its own)")
    if kinds and len(kinds) != max(len(inputs), 1):
        faults.append(f"{len(kinds)} --source for {len(inputs)} --input; give one each, or none")
    if options.licence and len(options.licence) != len(inputs):
        faults.append(f"{len(options.licence)} --licence for {len(inputs)} --input; give one each")
    if options.corpus and not re.fullmatch("[a-z0-9_]+", options.corpus):
        faults.append(f"--name={options.corpus} must be of a-z, 0-9 and _")
    output: Path | None = options.output
    if output is None:
        return [*faults, "--output is missing: the folder to write"]
    read = [("--input", path) for path in inputs] + [("--keep-out", p) for p in options.keep_out]
    return faults + [fault for flag, path in read if (fault := _overlap(output, flag, path))]


def _overlap(output: Path, flag: str, path: Path) -> str | None:
    """The fault of an output that is read as well."""
    there, read = output.resolve(), path.resolve()
    if there == read:
        how = f"is {flag} too"
    elif read in there.parents:
        how = f"is inside {flag}={path}"
    elif there in read.parents:
        how = f"has {flag}={path} inside"
    else:
        return None
    return f"--output={output} {how}; give a folder apart"


def _positive(text: str) -> int:
    if int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text} is less than 1")
    return int(text)


def _count(text: str) -> int:
    if int(text) < 0:
        raise argparse.ArgumentTypeError(f"{text} is less than 0")
    return int(text)


def _ratio(text: str) -> float:
    if not 1 <= float(text) < math.inf:
        raise argparse.ArgumentTypeError(f"{text} is no number from 1 on")
    return float(text)
