"""Finding and reading gin files and flags, without importing what they name."""

import importlib.util
import os
from collections.abc import Iterator, Sequence

from gshard_train.errors import UserError, did_you_mean
from gshard_train.gin_check import macros
from gshard_train.gin_check.statements import FLAGS, Binding, Import, Statements
from gshard_train.gin_check.syntax import Include, Unread, parse


def read(
    files: Sequence[str], bindings: Sequence[str], search_paths: Sequence[str] = ()
) -> Statements:
    """The statements of gin files and then of the flags' bindings.

    Args:
      files: paths as given: relative to the working directory, by package
        (`gshard_m4/configs/quickstart.gin`), or below one of `search_paths`.
      bindings: texts such as `"TRAIN_STEPS = 5"`.
      search_paths: further directories for `files` and for what they include.

    Raises:
      UserError: with every fault that can be seen without importing.
    """
    statements = unchecked(files, bindings, search_paths)
    if faults := [*statements.faults, *macros.faults(statements)]:
        raise UserError(*faults)
    return statements


def unchecked(
    files: Sequence[str], bindings: Sequence[str], search_paths: Sequence[str] = ()
) -> Statements:
    """The same with every fault of the texts left among the statements."""
    reader = _Reader(search_paths)
    for file in files:
        reader.read_file(file, f"--gin_file={file}", ())
    for binding in bindings:
        reader.read_text(binding, FLAGS, as_flag(binding), ())
    return reader.statements


def as_flag(binding: str) -> str:
    """A binding as it is spelt on the command line: `"A = 5"` as `--gin.A=5`."""
    name, equals, value = binding.partition("=")
    return f"--gin.{name.strip()}={value.strip()}" if equals else f"--gin.{name.strip()}"


def find_file(path: str, search_paths: Sequence[str] = ()) -> str | None:
    """Where a gin file lies: working directory, then packages, then the search paths."""
    places = (*_places(path), *(os.path.join(directory, path) for directory in search_paths))
    return next((place for place in places if os.path.isfile(place)), None)


def _places(path: str) -> Iterator[str]:
    """The path itself and, when it begins with a package's name, inside that package."""
    yield path
    package, _, rest = path.partition("/")
    if package.isidentifier():
        spec = importlib.util.find_spec(package)  # finds a top-level package, imports nothing
        for location in (spec and spec.submodule_search_locations) or ():
            yield os.path.join(location, rest)


class _Reader:
    """Gathers statements and faults; a file's includes are read where they stand."""

    def __init__(self, search_paths: Sequence[str]):
        self.statements = Statements()
        self._search_paths = search_paths

    def read_file(self, path: str, origin: str, inside: tuple[str, ...]) -> None:
        """Reads a file; `inside` are those that include it."""
        place = find_file(path, self._search_paths)
        if place is None:
            self.statements.file_is_missing = True
            self.statements.faults.append(self._not_found(path, origin))
            return
        identity = os.path.realpath(place)
        if identity in inside:
            self.statements.faults.append(f"{origin}: {path} includes itself; remove one include")
            return
        try:
            with open(place, encoding="utf-8") as file:
                text = file.read()
        except (OSError, UnicodeDecodeError) as error:
            self.statements.faults.append(f"{origin}: {place} cannot be read: {error}")
            return
        self.read_text(text, path, path, (*inside, identity))

    def read_text(self, text: str, source: str, place: str, inside: tuple[str, ...]) -> None:
        """Reads the text of a file or of a flag."""
        for statement in parse(text, source, place, is_flag=source == FLAGS):
            match statement:
                case Include(path, origin):
                    self.read_file(path, origin, inside)
                case Unread(lines, fault):
                    self.statements.unread += lines
                    self.statements.faults.append(fault)
                case Import():
                    self.statements.imports.append(statement)
                case Binding():
                    self.statements.bindings.append(statement)

    def _not_found(self, path: str, origin: str) -> str:
        searched = ", ".join((os.getcwd(), "the installed packages", *self._search_paths))
        folder, name = os.path.split(path)
        folders = [place for place in _places(folder or ".") if os.path.isdir(place)]
        there = [file for place in folders for file in os.listdir(place) if file.endswith(".gin")]
        return f"{origin}: no gin file {path} in {searched}{did_you_mean(name, there)}"
