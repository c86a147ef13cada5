"""A folder of results that takes the place of an earlier one, with nothing of that left over."""

import json
import os
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path

from gshard_m4.input_error import InputError
from gshard_m4.writing import write_all

# What was written, by the listing's schema, before listings named it.
_UNLISTED = {"gshard-m4 scores": ["report.html", "scores.csv"]}


def replace_results(folder: Path, files: Mapping[str, str | bytes], listed_in: str) -> None:
    """Writes the files and removes those of an earlier run that are not among them.

    Args:
      folder: where to; it is made if it is not there.
      files: by name.
      listed_in: the JSON file among them whose `written` names all others; the earlier one tells
        what the earlier run wrote. Other files in the folder are left alone.

    Raises:
      InputError: the folder cannot be written, or another's file would be lost.
    """
    faults = list(output_faults(folder, files, listed_in))
    if faults:
        raise InputError(faults)
    earlier = _written(folder / listed_in) or set()
    try:
        write_all(folder, files)
        for name in earlier - set(files):
            (folder / name).unlink(missing_ok=True)
    except OSError as error:
        raise InputError([f"cannot write to --output={folder}: {error}"]) from None


def output_faults(folder: Path, names: Collection[str], listed_in: str) -> Iterator[str]:
    """Why files of these names cannot be written there, as far as that shows beforehand."""
    there = next(path for path in (folder, *folder.absolute().parents) if os.path.lexists(path))
    if there == folder and not folder.is_dir():
        yield f"--output={folder} is a file; give a folder"
        return
    if not there.is_dir() or not os.access(there, os.W_OK | os.X_OK):
        why = "may not be written" if there.is_dir() else "is a file"
        yield f"cannot write to --output={folder}: {there} {why}"
        return
    earlier = _written(folder / listed_in)
    own = set() if earlier is None else earlier | {listed_in}
    foreign = sorted(name for name in names if name not in own and os.path.lexists(folder / name))
    if foreign:
        yield (f"--output={folder} has {', '.join(foreign)} of another program or run, which is "
               "not overwritten; give another folder, or remove that")  # fmt: skip


def _written(listing: Path) -> set[str] | None:
    """What an earlier run wrote; None where there is no list of that."""
    try:
        document = json.loads(listing.read_bytes())
    except (OSError, ValueError):
        return None
    document = document if isinstance(document, dict) else {}
    names = document.get("written", _UNLISTED.get(str(document.get("schema"))))
    plain = isinstance(names, list) and all(isinstance(name, str) for name in names)
    return {name for name in names if Path(name).name == name} if plain else None
