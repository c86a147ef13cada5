"""A part of a corpus: text of one language in one split, and the files it is in."""

import dataclasses

from gshard_m4.sources.files import File


@dataclasses.dataclass(frozen=True)
class Part:
    """Text of one language in one split: one file with both sides, or a file for each side.

    Attributes:
        kind: the layout.
        language: the code in `gshard_m4.languages`.
        script: ISO 15924.
        split: train, validation or test.
        files: one file, or (source, English).
        reader: how they are read.
        columns: (source, English) of a file with both sides, or the one column of one side.
        spelling: how the files write the language.
        origin: what rows are said to come from that do not say so themselves.
        swapped: the sides are the other way round than the names say.
    """

    kind: str
    language: str
    script: str
    split: str
    files: tuple[File, ...]
    reader: str
    columns: tuple[int | str, ...]
    spelling: str
    origin: str
    swapped: bool = False

    @property
    def name(self) -> str:
        """The name of the (source side's) file below the input folder."""
        return self.files[0].name


@dataclasses.dataclass
class Scan:
    """What a layout found in a folder: parts in order, what was left out and why, and faults."""

    parts: list[Part] = dataclasses.field(default_factory=list)
    left_out: list[str] = dataclasses.field(default_factory=list)
    faults: list[str] = dataclasses.field(default_factory=list)
    told: set[str] = dataclasses.field(default_factory=set)

    def leave_out(self, file: File, reason: str) -> None:
        """Notes why a file is not read; without a reason, that nobody asks for it."""
        self.told.add(file.name)
        if reason:
            self.left_out.append(f"{file.name}: {reason}")

    def fault(self, file: File, fault: str) -> None:
        """Notes what is wrong with a file."""
        self.told.add(file.name)
        self.faults.append(f"{file.name}: {fault}")
