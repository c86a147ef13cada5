"""A folder of results that takes the place of an earlier one, with nothing of that left over."""

import json
from collections.abc import Mapping
from pathlib import Path

from gshard_m4.input_error import InputError
from gshard_m4.writing import write_all


def replace_results(folder: Path, files: Mapping[str, str | bytes], listed_in: str) -> None:
    """Writes the files and removes those of an earlier run that are not among them.

    Args:
      folder: where to; it is made if it is not there.
      files: by name.
      listed_in: the JSON file among them whose `written` names all others; the earlier one tells
        what the earlier run wrote. Other files in the folder are left alone.

    Raises:
      InputError: the folder cannot be written.
    """
    earlier = _written(folder / listed_in)
    try:
        write_all(folder, files)
        for name in earlier - set(files):
            (folder / name).unlink(missing_ok=True)
    except OSError as error:
        raise InputError([f"cannot write to --output={folder}: {error}"]) from None


def _written(listing: Path) -> set[str]:
    try:
        names = json.loads(listing.read_bytes())["written"]
    except (OSError, ValueError, KeyError, TypeError):
        return set()
    plain = isinstance(names, list) and all(isinstance(name, str) for name in names)
    return {name for name in names if Path(name).name == name} if plain else set()
