"""The languages of a directory that somebody asks for, by any of their codes."""

import argparse
import difflib
from collections.abc import Collection, Iterable

from gshard_m4 import languages


def codes_in(
    known: Collection[str], asked: Iterable[str], where: str
) -> tuple[list[str], list[str]]:
    """The directory's own codes, each once in the order of asking, and a fault for each other.

    Args:
        known: codes of the directory.
        asked: any codes, aliases or names.
        where: the directory, for the faults.
    """
    codes, faults = [], []
    for spelling in asked:
        own = spelling if spelling in known else _code(spelling)
        if own in known:
            codes.append(own)
        else:
            near = difflib.get_close_matches(own or spelling, known, n=3, cutoff=0.5)
            meant = ", ".join(near or sorted(known)[:3])
            faults.append(f"--languages: {spelling!r} is not in {where}; did you mean {meant}?")
    return list(dict.fromkeys(codes)), faults


def listed_codes(text: str) -> tuple[str, ...]:
    """The codes of a flag, separated by commas; argparse's error where there is none."""
    codes = tuple(code.strip() for code in text.split(",") if code.strip())
    if not codes:
        raise argparse.ArgumentTypeError("no code is given; leave the flag out, or give de,fr")
    return codes


def _code(spelling: str) -> str | None:
    try:
        return languages.find(spelling, variants=True, others=True).code
    except ValueError:
        return None
