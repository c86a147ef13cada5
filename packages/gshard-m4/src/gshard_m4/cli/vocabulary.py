"""`gshard-m4 vocabulary`."""

import argparse
import contextlib
import dataclasses
import signal
import sys
import threading
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from gshard_m4.vocabulary.settings import Settings

DESCRIPTION = """\
Learns the two SentencePiece vocabularies of a prepared directory, one for all source languages
together and one for English, from its training rows, and says how well they fit each language.

Languages share the sentences at the rates p ~ (n / sum n)^(1 / T), so that those with little text
are heard. Rows are chosen by index, evenly spaced: memory does not grow with the corpus, and the
same directory and options give the same files. Each language's own frequent characters get a piece
(--character-coverage is a share of its text, not of all languages' together).

Writes to DIR/vocabulary, whole or not at all:
  source.model, target.model  SentencePiece models; pad is 0, end of sentence 1, unknown 2
  coverage.json               the table below, all numbers, and how the models were made
"""

EXAMPLES = """\
examples:
  gshard-m4 vocabulary /data/m4
  gshard-m4 vocabulary /data/m4 --source-size=32000 --target-size=8000 --byte-fallback --tags

The table says of each language, on rows that were held out, how many tokens are unknown or single
bytes, how many tokens a word, a character and a token of English takes, and how many characters
have no piece. Flagged are: over 0.1% of tokens unknown, over 1% single bytes, over 2.5 tokens for
one of English.

exit code 2: something is wrong with the input; every fault has a line, and nothing is written.
"""

_NUMBERS = (
    ("source_size", int, "N", "pieces for all source languages"),
    ("target_size", int, "N", "pieces for English"),
    ("temperature", float, "T", "of the sampling: 1 follows the sizes, more evens them out"),
    ("sentences", int, "N", "to learn each model from, about"),
    ("character_coverage", float, "SHARE", "of a language's text whose characters get a piece"),
)
_SWITCHES = (
    ("byte_fallback", "characters without a piece become bytes instead of unknown"),
    ("tags", "a piece <2xx> for each source language"),
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the command's arguments."""
    add = parser.add_argument
    add("directory", metavar="DIR", type=Path, help="what `gshard-m4 prepare` wrote")
    add("--output", type=Path, metavar="DIR", help="where to write (default: DIR/vocabulary)")
    for name, kind, metavar, text in _NUMBERS:
        default = getattr(Settings, name)
        flag = f"--{name.replace('_', '-')}"
        text = f"{text} (default: {default})"
        add(flag, type=kind, default=default, metavar=metavar, help=text)
    for name, text in _SWITCHES:
        add(f"--{name.replace('_', '-')}", action="store_true", help=text)
    add(
        "--languages",
        type=lambda text: tuple(text.split(",")),
        default=(),
        metavar="CODES",
        help="learn from these only, with commas between (default: all)",
    )
    add("--force", action="store_true", help="replace vocabularies that are there")


def command(options: argparse.Namespace, command_line: str) -> int:
    """Learns, writes, and prints the table; 0."""
    del command_line  # The files do not depend on where they are made.
    from gshard_m4.prepared import open_prepared
    from gshard_m4.vocabulary.building import build
    from gshard_m4.vocabulary.table import table

    names = [field.name for field in dataclasses.fields(Settings)]
    settings = Settings(**{name: getattr(options, name) for name in names})
    built = build(
        open_prepared(options.directory),
        settings,
        folder=options.output,
        overwrite=options.force,
        track=_bar,
        stage=_stage,
    )
    print("\n".join(table(built.english, built.languages)))
    print(f"vocabularies: {built.folder}")
    return 0


def _bar(codes: Sequence[str], what: str) -> Iterable[str]:
    """A progress bar on standard error where that is a terminal."""
    from tqdm import tqdm

    return tqdm(codes, desc=what, unit=" languages", leave=False, disable=None)


@contextlib.contextmanager
def _stage(line: str) -> Iterator[None]:
    """Says what begins; on a terminal a clock runs: SentencePiece does not tell how far it is.

    Nor does it let Python see Ctrl-C: here that ends the process at once. Nothing is written yet.
    """
    from tqdm import tqdm

    print(line, file=sys.stderr, flush=True)
    done = threading.Event()
    with tqdm(bar_format="{elapsed}", leave=False, disable=None) as clock:

        def tick() -> None:
            while not clock.disable and not done.wait(1):
                clock.refresh()

        thread = threading.Thread(target=tick, daemon=True)
        thread.start()
        before = signal.signal(signal.SIGINT, signal.SIG_DFL)
        try:
            yield
        finally:
            signal.signal(signal.SIGINT, before)
            done.set()
            thread.join()
