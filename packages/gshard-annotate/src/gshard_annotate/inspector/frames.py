"""The lines of the user's program from which instructions came: the tables in a program's text."""

import dataclasses
import re
from typing import NamedTuple

_NAMED = re.compile(r'(\d+) "(.*)"$')
_LOCATION = re.compile(
    r"(\d+) \{file_name_id=(\d+) function_name_id=(\d+) line=(\d+)(?:.* column=(\d+))?"
)
_STACK = re.compile(r"(\d+) \{file_location_id=(\d+)(?: parent_frame_id=(\d+))?")
_LIBRARIES = re.compile(r"[/\\](?:site|dist)-packages[/\\]|[/\\]lib[/\\]python\d")

TABLES = ("FileNames", "FunctionNames", "FileLocations", "StackFrames")


@dataclasses.dataclass(frozen=True)
class Source:
    """A line of the user's program, as `layers.py:88 in apply`."""

    file: str
    line: int
    function: str = ""


class Call(NamedTuple):
    """A place on the stack: a line, and the column in it where the call begins."""

    source: Source
    column: int


class Frames:
    """The stack frames of a program, by number."""

    def __init__(self) -> None:
        self._tables: dict[str, dict[int, tuple]] = {table: {} for table in TABLES}
        self._stacks: dict[int, tuple[Call, ...]] = {}

    def add(self, table: str, line: str) -> None:
        """Reads a row of one of the tables."""
        if table in ("FileNames", "FunctionNames"):
            if match := _NAMED.match(line):
                self._tables[table][int(match[1])] = (match[2],)
        elif match := (_LOCATION if table == "FileLocations" else _STACK).match(line):
            number, *others = (int(group or 0) for group in match.groups())
            self._tables[table][number] = tuple(others)

    def stack(self, frame: int) -> tuple[Call, ...]:
        """The calls that led to a frame, the innermost first; none for frame 0."""
        if frame not in self._stacks:
            self._stacks[frame] = tuple(self._calls(frame))
        return self._stacks[frame]

    def source(self, frame: int) -> Source | None:
        """The innermost line of the user's program, rather than of an installed library."""
        sources = [call.source for call in self.stack(frame)]
        own = (one for one in sources if not _LIBRARIES.search(one.file))
        return next(own, sources[0] if sources else None)

    def _calls(self, frame: int) -> list[Call]:
        frames, locations = self._tables["StackFrames"], self._tables["FileLocations"]
        calls = []
        for _ in range(len(frames)):
            if frame not in frames:
                break
            location, parent = frames[frame]
            if location in locations:
                calls.append(self._at(*locations[location]))
            # XLA writes the parent's number plus one, so that 1 is nothing.
            frame = parent - 1
        return calls

    def _at(self, file: int, function: int, line: int, column: int) -> Call:
        files, functions = self._tables["FileNames"], self._tables["FunctionNames"]
        source = Source(files.get(file, ("",))[0], line, functions.get(function, ("",))[0])
        return Call(source, column)
