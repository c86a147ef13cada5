"""What a decoding that was stopped leaves for the next one: a file that only grows.

Its first line says what was decoded with what (the fingerprint), each further line is one
hypothesis. A last line that was not written to its end is dropped.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TextIO

from absl import logging

from gshard_train.decoding.decoder import Hypothesis

FILE_NAME = "decoded.lines"


class KeptHypotheses:
    """The hypotheses of a split, on disk as soon as they are known. Usable in a `with` block.

    Args:
      directory: where the file is, or is made.
      fingerprint: everything that hypotheses depend on, as JSON can hold it. Those that a file
        with another one holds are forgotten, and the log says what has changed.
      on_disk: False keeps them in memory only, for processes that write no files.

    Attributes:
      found: the hypotheses so far, by the examples' places.
    """

    def __init__(self, directory: Path, fingerprint: Mapping[str, Any], *, on_disk: bool = True):
        self._path = directory / FILE_NAME
        self._fingerprint, self._on_disk = fingerprint, on_disk
        self.found = self._read() if on_disk else {}
        self._file: TextIO | None = None

    def __enter__(self) -> "KeptHypotheses":
        if not self._on_disk:
            return self
        self._path.parent.mkdir(parents=True, exist_ok=True)
        # Written anew, so that a broken line at its end does not stay in the middle.
        new = self._path.with_name(FILE_NAME + ".part")
        lines = [json.dumps(self._fingerprint), *map(_line, self.found.items())]
        new.write_text("".join(f"{line}\n" for line in lines), "utf-8")
        new.replace(self._path)
        self._file = self._path.open("a", encoding="utf-8")
        return self

    def __exit__(self, *_: object) -> None:
        if self._file:
            self._file.close()

    def add(self, batch: Mapping[int, Hypothesis]) -> None:
        """Keeps more hypotheses; they survive the program's end from here on."""
        self.found.update(batch)
        if self._file:
            self._file.writelines(f"{_line(item)}\n" for item in batch.items())
            self._file.flush()

    def _read(self) -> dict[int, Hypothesis]:
        if not self._path.exists():
            return {}
        lines = self._path.read_text("utf-8").split("\n")
        rows = [row for row in map(_parsed, lines[:-1]) if row is not None]
        if not rows or not isinstance(rows[0], dict):
            return {}
        if changed := changes(rows[0], self._fingerprint):
            logging.warning(
                "%s: %d translations of an earlier run are not used (%s); starting anew",
                self._path.parent,
                len(rows) - 1,
                "; ".join(changed),
            )
            return {}
        return {place: Hypothesis(*rest) for place, *rest in rows[1:]}


def changes(before: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """What of two fingerprints differs, one clause each."""
    now = json.loads(json.dumps(now))
    return [
        f"{name} was {before.get(name)} and is {now.get(name)}"
        for name in {**before, **now}
        if before.get(name) != now.get(name)
    ]


def _line(item: tuple[int, Hypothesis]) -> str:
    return json.dumps([item[0], *item[1]])


def _parsed(line: str) -> Any:
    try:
        return json.loads(line)
    except ValueError:
        return None
