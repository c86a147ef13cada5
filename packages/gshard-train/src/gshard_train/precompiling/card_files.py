"""The files that a cost card is written to."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from absl import flags

if TYPE_CHECKING:
    from gshard_train.precompiling.card import CostCard
    from gshard_train.precompiling.job import Result

_FLAGS = ("json", "html", "report", "save_program")


def define(values: flags.FlagValues = flags.FLAGS) -> None:
    """Defines the flags that name them."""
    flags.DEFINE_string("json", None, "Write the cost card as JSON.", flag_values=values)
    flags.DEFINE_string("html", None, "Write the cost card as a page.", flag_values=values)
    flags.DEFINE_string(
        "report",
        None,
        "Write the inspector's report of the program, as JSON or, by the file's ending .html, as "
        "a page.",
        flag_values=values,
    )
    flags.DEFINE_string(
        "save_program",
        None,
        "Compile the training step once more and write it: training.train.program = 'FILE' takes "
        "it on such a machine.",
        flag_values=values,
    )


def faults(values: flags.FlagValues) -> Iterator[str]:
    """Why one of them could not be written."""
    for name, file in _asked(values):
        folder = Path(file).absolute().parent
        if Path(file).is_dir():
            yield f"--{name}={file} is a directory; give a file"
        elif not folder.is_dir():
            yield f"--{name}={file}: there is no directory {folder}; make it"
        elif not os.access(folder, os.W_OK | os.X_OK):
            yield f"--{name}={file} cannot be written: no permission for {folder}"
    if values.save_program and "mode" in values and values["mode"].value != "train":
        yield (
            f"--save_program={values.save_program} with --mode={values['mode'].value}: only "
            "training steps can be saved; use --mode=train, or leave it out"
        )


def write(
    values: flags.FlagValues, card: "CostCard", result: "Result"
) -> Iterator[tuple[bool, str]]:
    """Writes what was asked for; whether each file was written, and a sentence about it."""
    from gshard_annotate.inspector.json_form import write_beside

    for name, file in _asked(values):
        if name == "save_program":
            failed = result.save_fault or ("" if result.report else "there is no program")
        else:
            text = _text(name, file, card, result)
            failed = "" if text else "there is no program"
            try:
                if text:
                    write_beside(file, text)
            except OSError as error:
                failed = f"{error.strerror or error}; give another file"
        said = f"--{name}={file} is not written: {failed}" if failed else f"Wrote {_told(file)}"
        yield not failed, said


def _asked(values: flags.FlagValues) -> Iterator[tuple[str, str]]:
    return ((name, file) for name in _FLAGS if (file := values[name].value))


def _text(name: str, file: str, card: "CostCard", result: "Result") -> str:
    if name == "report":
        if result.report is None:
            return ""
        return result.report.html() if file.endswith(".html") else result.report.json()
    return card.json() if name == "json" else card.html()


def _told(file: str) -> str:
    from gshard_annotate.inspector.quantities import size

    return f"{file} ({size(Path(file).stat().st_size)})"
