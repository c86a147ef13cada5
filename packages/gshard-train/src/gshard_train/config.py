"""Configuration: gin at the edge of the trainer, and nowhere else.

    python -m gshard_train.train --gin_file=gshard_m4/configs/quickstart.gin \
        --gin.MODEL_DIR="'/tmp/model'" --gin.TRAIN_STEPS=200

`load` has files and flags checked (`gin_check`, which answers before anything heavy is imported)
and gives gin one text. `LoadedConfig.call` runs a function with what is bound to it. The flags
themselves are in `command_line`.
"""

import contextlib
import dataclasses
import os
import shutil
from collections.abc import Collection, Sequence
from typing import Any

import gin
from gin.config import interactive_mode

from gshard_train.errors import UserError, reported_as_user_error
from gshard_train.gin_check import files as gin_files
from gshard_train.gin_check import macros, names, parameters
from gshard_train.gin_check.resolve import Resolved, resolve

SAVED_NAME = "config.gin"
# What the binaries call, with the run files for it. A binding must lead to one of them; a gin file
# may serve several.
ENTRY_POINTS = {
    "gshard_train.training.train": f"{macros.RUN_FILES}/train.gin",
    "gshard_train.evaluating.evaluate": f"{macros.RUN_FILES}/eval.gin",
    "gshard_train.inference.infer": f"{macros.RUN_FILES}/infer.gin",
    "gshard_train.exporting.export": f"{macros.RUN_FILES}/export.gin",
}
_EXAMPLE = "--gin_file=gshard_m4/configs/quickstart.gin --gin.MODEL_DIR=\"'/path/to/model'\""


@dataclasses.dataclass(frozen=True)
class LoadedConfig:
    """A configuration that gin has read.

    Attributes:
      text: the effective configuration, one gin text that runs again as the only `--gin_file`.
    """

    text: str
    _resolved: Resolved = dataclasses.field(repr=False)

    def origins(self) -> str:
        """Every value with the file and line, or the flag, that set it, and what it replaced."""
        return self._resolved.origins()

    def text_without(self, name: str, parameters: Collection[str]) -> str:
        """The same text without what is bound to some parameters of the function of a full name."""
        return self._resolved.text_without(name, parameters)

    def binds(self, name: str) -> bool:
        """Whether anything is bound to the function of a full name."""
        return any(target.name == name for _, target, _ in self._resolved.bound)

    def call(self, name: str, **given: Any) -> Any:
        """Calls the function of a full name with its bound arguments and with `given`.

        What the function itself raises is left as it is; for the rest see `arguments`.
        """
        return names.find(name).function(**self.arguments(name, **given))

    def arguments(self, name: str, **given: Any) -> dict[str, Any]:
        """The arguments that `call` would pass, with the objects (a model) that gin builds.

        A `ValueError` or a missing file while gin builds them becomes a `UserError`.

        Args:
          name: for example `gshard_train.training.train`.
          **given: arguments from the caller, which win over bound ones.

        Raises:
          UserError: if an argument is neither bound nor given.
        """
        target = names.find(name)
        bound = self._resolved.bound
        missing = [p for p in parameters.missing(target, bound) if p not in given]
        if missing:
            called = "run by this command"
            if name in ENTRY_POINTS and not any(other == target for _, other, _ in bound):
                raise UserError(
                    f"{name} ({called}) has no value at all; add a run file, such as "
                    f"--gin_file={ENTRY_POINTS[name]}"
                )
            raise UserError(*(parameters.unbound(name, p, target.path, called) for p in missing))
        if not any(other == target for _, other, _ in bound):
            return given
        with reported_as_user_error():
            return {**gin.get_bindings(target.function), **given}


def load(
    files: Sequence[str],
    bindings: Sequence[str] = (),
    search_paths: Sequence[str] = (),
    *,
    roots: Collection[str] = ENTRY_POINTS,
) -> LoadedConfig:
    """Reads gin files and bindings and gives them to gin.

    Args:
      files: by path or by package, later ones override earlier ones.
      bindings: gin statements that come after all files.
      search_paths: further directories for files and what they include.
      roots: full names of the functions that are called with what is bound to them.

    Raises:
      UserError: with all faults that can be seen without imports; else with all unknown names; else
        with all bindings that have no effect.
    """
    if not files and not bindings:
        raise UserError(f"--gin_file is missing; for example {_EXAMPLE}")
    resolved = resolve(gin_files.read(files, bindings, search_paths), roots)
    gin.clear_config()
    # Not finalized: libraries imported later may still register configurables of their own.
    with interactive_mode(), reported_as_user_error():
        gin.parse_config(resolved.text)
    return LoadedConfig(resolved.text, resolved)


def save(text: str, model_dir: str | os.PathLike[str]) -> None:
    """Writes an effective configuration to `config.gin` in `model_dir`, whole or not at all.

    Of several processes the first one writes. A configuration that is there already and says
    something else is kept as `config.1.gin` and so on.
    """
    import jax

    if jax.process_index() != 0:
        return
    os.makedirs(model_dir, exist_ok=True)
    path = os.path.join(model_dir, SAVED_NAME)
    with contextlib.suppress(FileNotFoundError), open(path, encoding="utf-8") as file:
        if file.read() == text:
            return
        number = 1
        while os.path.exists(older := os.path.join(model_dir, f"config.{number}.gin")):
            number += 1
        shutil.copyfile(path, older)
    with open(path + ".new", "w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    os.replace(path + ".new", path)
