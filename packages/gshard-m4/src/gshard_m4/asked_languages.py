"""The languages of a directory that somebody asks for, by any of their codes."""

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


def _code(spelling: str) -> str | None:
    try:
        return languages.find(spelling, variants=True, others=True).code
    except ValueError:
        return None
