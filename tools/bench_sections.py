"""The option by which a benchmark measures a part of what it can."""

from __future__ import annotations

import argparse
from collections.abc import Sequence


def add(parser: argparse.ArgumentParser, known: Sequence[str]) -> None:
    """Adds `--sections A,B`, which gives a tuple of some of the known names; by default all."""

    def parse(text: str) -> tuple[str, ...]:
        names = tuple(text.split(","))
        if unknown := [name for name in names if name not in known]:
            raise argparse.ArgumentTypeError(
                f"{', '.join(unknown)}: no such section; there are {', '.join(known)}"
            )
        return names

    parser.add_argument(
        "--sections", type=parse, default=tuple(known), metavar="A,B", help="by default all"
    )
