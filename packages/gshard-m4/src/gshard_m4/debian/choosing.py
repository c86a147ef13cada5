"""Which of the archive's packages are read, and what is missing there."""

import dataclasses
import re
from collections.abc import Collection as Names
from collections.abc import Iterable, Sequence

from gshard_m4.debian.packages import COLLECTIONS, DESCRIPTIONS, Collection
from gshard_m4.input_error import InputError


@dataclasses.dataclass(frozen=True)
class Choice:
    """A collection with the names of its packages that the archive has and those it lacks."""

    collection: Collection
    present: tuple[str, ...]
    missing: tuple[str, ...]

    @property
    def to_read(self) -> tuple[str, ...]:
        """The packages that hold translations: not those with the English side."""
        without = self.collection.without
        return tuple(n for n in self.present if not without or not re.fullmatch(without, n))


def choose(archive: Names[str], packages: Sequence[str] | None) -> list[Choice]:
    """The collections with their packages, or only those named (collections or packages).

    Raises:
        InputError: for names that are neither.
    """
    names = set(archive)
    choices = [_choice(collection, names) for collection in COLLECTIONS]
    if packages is None:
        return [*choices, Choice(DESCRIPTIONS, (), ())]
    chosen = [_narrow(choice, set(packages)) for choice in choices]
    known = {name for choice in choices for name in (*choice.present, *choice.missing)}
    known |= {collection.name for collection in (*COLLECTIONS, DESCRIPTIONS)}
    unknown = [name for name in packages if name not in known]
    if unknown:
        collections = ", ".join(c.name for c in (*COLLECTIONS, DESCRIPTIONS))
        raise InputError(
            f"{name!r} is neither a collection nor one of their packages; collections are"
            f" {collections}"
            for name in unknown
        )
    if DESCRIPTIONS.name in packages:
        chosen.append(Choice(DESCRIPTIONS, (), ()))
    return [c for c in chosen if c.present or c.missing or c.collection is DESCRIPTIONS]


def _choice(collection: Collection, archive: set[str]) -> Choice:
    present, missing = [], []
    for name in collection.packages:
        if name.startswith("^"):
            found = _matching(name, archive)
            present.extend(found)
            if not found:
                missing.append(name)
        else:
            (present if name in archive else missing).append(name)
    return Choice(collection, tuple(present), tuple(missing))


def _matching(pattern: str, archive: Iterable[str]) -> list[str]:
    return sorted(name for name in archive if re.fullmatch(pattern, name))


def _narrow(choice: Choice, wanted: set[str]) -> Choice:
    if choice.collection.name in wanted:
        return choice
    present = {name for name in choice.present if name in wanted}
    if present and choice.collection.english in choice.present:
        present.add(choice.collection.english)
    missing = tuple(name for name in choice.missing if name in wanted)
    return Choice(choice.collection, tuple(sorted(present)), missing)
