"""Files that are whole or not there at all."""

from collections.abc import Mapping
from pathlib import Path


def write_all(folder: Path, files: Mapping[str, str | bytes]) -> None:
    """Writes every file beside its place, then moves all there: no half-written set of files.

    Raises:
        OSError: where the folder cannot be made or written; what was there before is untouched.
    """
    folder.mkdir(parents=True, exist_ok=True)
    beside = {name: folder / f".{name}.partial" for name in files}
    try:
        for name, content in files.items():
            data = content.encode() if isinstance(content, str) else content
            beside[name].write_bytes(data)
        for name, path in beside.items():
            path.replace(folder / name)
    finally:
        for path in beside.values():
            path.unlink(missing_ok=True)
