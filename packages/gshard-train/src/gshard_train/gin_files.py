"""gin files and flags, read without importing what they name: all faults in one message.

This half of the check needs neither JAX nor TensorFlow and so answers at once: files that are not
there, syntax, strings without quotes, macros that nothing uses or that nothing sets, required
values that are still open. `gin_names` does the other half, which needs the modules.
"""

import ast
import dataclasses
import importlib.util
import os
import re
import tokenize
from collections.abc import Iterator, Sequence
from typing import Any

from gin import config_parser

from gshard_train.errors import UserError, did_you_mean

REQUIRED = "gin.REQUIRED"
_FEATURE = "__gin__."  # `from __gin__ import dynamic_registration` switches gin, it imports nothing
_STATEMENT_START = re.compile(r"(import|from|include)\b|[A-Za-z_][\w./]*\s*[=:]")
_MACRO_USE = re.compile(r"%([A-Za-z_][\w./]*)")
_MACRO_SET = re.compile(r"([A-Za-z_]\w*)\s*=")
_STRING_NAME = re.compile(r"(DIR|PATH|FILE|NAME|MODULE)S?$")
_BAD_TOKEN = re.compile(r"Failed to parse token '([A-Za-z_]\w*)'")
_SPELLINGS = {"true": "True", "false": "False", "none": "None", "null": "None"}


@dataclasses.dataclass(frozen=True)
class Reference:
    """`@scope/module.function` or, evaluated, `@scope/module.function()`."""

    scope: str
    selector: str
    evaluate: bool


@dataclasses.dataclass(frozen=True)
class Macro:
    """`%NAME`."""

    name: str


@dataclasses.dataclass(frozen=True)
class Import:
    """One import statement: in its file, `symbol` stands for `module`."""

    module: str
    symbol: str
    source: str
    origin: str


@dataclasses.dataclass(frozen=True)
class Binding:
    """One value that was set; `selector` is empty for a macro, whose name is in `parameter`."""

    scope: str
    selector: str
    parameter: str
    value: Any
    source: str
    origin: str

    @property
    def name(self) -> str:
        """What was set, as it is written: `NAME` or `scope/module.function.parameter`."""
        path = f"{self.selector}.{self.parameter}" if self.selector else self.parameter
        return f"{self.scope}/{path}" if self.scope else path

    @property
    def macro(self) -> str:
        """The macro's name with its scope, or nothing for a parameter."""
        return "" if self.selector else self.name


@dataclasses.dataclass
class Statements:
    """What the files and flags say, in the order in which it takes effect."""

    imports: list[Import] = dataclasses.field(default_factory=list)
    bindings: list[Binding] = dataclasses.field(default_factory=list)
    faults: list[str] = dataclasses.field(default_factory=list)
    unread: list[str] = dataclasses.field(default_factory=list)  # lines lost to syntax errors

    def final_macros(self) -> dict[str, Binding]:
        """The last binding of each macro, in the order of the first."""
        return {binding.macro: binding for binding in self.bindings if binding.macro}


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
    statements = Statements()
    for file in files:
        _read_file(file, f"--gin_file={file}", search_paths, statements, ())
    for binding in bindings:
        _read_text(binding, as_flag(binding), "flags", search_paths, statements, ())
    faults = [*statements.faults, *_macro_faults(statements)]
    if faults:
        raise UserError(*faults)
    return statements


def as_flag(binding: str) -> str:
    """A binding as it is spelt on the command line: `"A = 5"` as `--gin.A=5`."""
    name, equals, value = binding.partition("=")
    return f"--gin.{name.strip()}={value.strip()}" if equals else f"--gin.{name.strip()}"


def find_file(path: str, search_paths: Sequence[str] = ()) -> str | None:
    """Where a gin file lies: working directory, then packages, then the search paths."""
    package, _, rest = path.partition("/")
    places = [path]
    if rest and package.isidentifier():
        spec = importlib.util.find_spec(package)  # finds a top-level package, imports nothing
        locations = (spec and spec.submodule_search_locations) or []
        places += [os.path.join(location, rest) for location in locations]
    places += [os.path.join(directory, path) for directory in search_paths]
    return next((place for place in places if os.path.isfile(place)), None)


def references(value: Any) -> Iterator[Reference | Macro]:
    """All references and macros inside a value."""
    if isinstance(value, Reference | Macro):
        yield value
    elif isinstance(value, dict):
        for item in (*value.keys(), *value.values()):
            yield from references(item)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from references(item)


def _read_file(
    path: str,
    origin: str,
    search_paths: Sequence[str],
    statements: Statements,
    including: tuple[str, ...],
) -> None:
    place = find_file(path, search_paths)
    if place is None:
        statements.faults.append(_missing_file(path, origin, search_paths))
        return
    if os.path.realpath(place) in including:
        statements.faults.append(f"{origin}: '{path}' includes itself; remove one of the includes")
        return
    with open(place, encoding="utf-8") as file:
        text = file.read()
    _read_text(text, path, path, search_paths, statements, (*including, os.path.realpath(place)))


def _missing_file(path: str, origin: str, search_paths: Sequence[str]) -> str:
    searched = [os.getcwd(), "the installed packages", *search_paths]
    folder = find_folder(os.path.dirname(path))
    names = [name for name in os.listdir(folder) if name.endswith(".gin")] if folder else []
    near = did_you_mean(os.path.basename(path), names)
    return f"{origin}: no such gin file in {', '.join(searched)}{near}"


def find_folder(path: str) -> str | None:
    """The folder that `path` names from the working directory or in a package."""
    package, _, rest = path.partition("/")
    places = [path or "."]
    if package.isidentifier() and (spec := importlib.util.find_spec(package)):
        places += [os.path.join(place, rest) for place in spec.submodule_search_locations or []]
    return next((place for place in places if os.path.isdir(place)), None)


def _read_text(
    text: str,
    name: str,
    source: str,
    search_paths: Sequence[str],
    statements: Statements,
    including: tuple[str, ...],
) -> None:
    """Adds the statements of one text; after a fault it goes on at the next statement."""
    is_flag = source == "flags"
    lines = text.splitlines(keepends=True)
    first = 0
    while first < len(lines):
        last_read = first - 1  # index of the line where the last whole statement began
        try:
            padded = "\n" * first + "".join(lines[first:])
            for statement in config_parser.ConfigParser(padded, _Delegate()):
                line = statement.location.line_num
                origin = name if is_flag else f"{name}:{line}"
                last_read = line - 1
                if isinstance(statement, config_parser.IncludeStatement):
                    _read_file(statement.filename, origin, search_paths, statements, including)
                else:
                    _add(statement, source, origin, statements)
            return
        except (SyntaxError, tokenize.TokenError, ValueError) as error:
            begin, first = _bad_lines(lines, last_read, error)
            statements.unread += lines[begin:first]
            where = name if is_flag else f"{name}:{begin + 1}"
            known = isinstance(error, SyntaxError) and (error.lineno or 0) <= first
            bad = "".join(lines[begin:first])
            statements.faults.append(_syntax_fault(where, error if known else None, bad))


def _bad_lines(lines: list[str], last_read: int, error: Exception) -> tuple[int, int]:
    """First line of the statement that could not be read, and the line to go on from."""
    starts = [i for i, line in enumerate(lines) if _STATEMENT_START.match(line)]
    known = error.lineno if isinstance(error, SyntaxError) else None
    error_line = min(known - 1 if known else len(lines), len(lines) - 1)
    begin = next((i for i in starts if last_read < i <= error_line), error_line)
    if known is None or (error_line in starts and error_line > begin):
        error_line = begin  # brackets left open swallow what follows: only their line is bad
    return begin, next((i for i in starts if i > max(begin, error_line)), len(lines))


def _syntax_fault(where: str, error: Exception | None, statement: str) -> str:
    """One fault; `error` is None when brackets or quotes are not closed."""
    name, _, value = (part.strip() for part in statement.partition("="))
    flag = where.startswith("--gin.")
    if flag and "=" not in statement:
        return f"{where}: a value is missing; write --gin.{name}=VALUE"
    if value in _SPELLINGS:
        return f"{where}: {value} is not a gin value; did you mean {_SPELLINGS[value]}?"
    if value == REQUIRED:
        return f"{where}: write a required value as %{REQUIRED}"
    if value and "\n" not in value and _is_bare_text(value):
        if flag:
            quoted = f"--gin.{name}=\"'{value}'\""
            return f"{where}: a string needs quotes inside the shell's own: {quoted}"
        return f"{where}: a string needs quotes: {name} = '{value}'"
    if not isinstance(error, SyntaxError):
        return f"{where}: brackets or quotes that open here are not closed"
    text = str(error.msg)
    if token := _BAD_TOKEN.search(text):
        return f"{where}: {token[1]} is not a gin value; write '{token[1]}' or %{token[1]}"
    reason = text.split("\n")[0].rstrip(".")
    shown = f" in `{error.text.strip()}`" if error.text and error.text.strip() else ""
    return f"{where}: {reason[:1].lower()}{reason[1:]}{shown}"


def _is_bare_text(value: str) -> bool:
    if value[0] in "'\"[({%@#":
        return False
    try:
        ast.literal_eval(value)
    except (ValueError, SyntaxError):
        return True
    return False


def _add(statement: Any, source: str, origin: str, statements: Statements) -> None:
    if isinstance(statement, config_parser.ImportStatement):
        if statement.module.startswith(_FEATURE):
            return
        plain = not statement.is_from and not statement.alias
        module = statement.module
        symbol = module.split(".")[0] if plain else statement.bound_name()
        statements.imports.append(Import(module, symbol, source, origin))
    elif isinstance(statement, config_parser.BindingStatement):
        scope, selector, parameter = statement.scope, statement.selector, statement.arg_name
        if not parameter:
            selector, parameter = "", selector
        statements.bindings.append(
            Binding(scope, selector, parameter, statement.value, source, origin)
        )


class _Delegate(config_parser.ParserDelegate):
    """Keeps references and macros as what they say, where gin would look them up."""

    def configurable_reference(self, scoped_configurable_name: str, evaluate: bool) -> Any:
        scope, _, selector = scoped_configurable_name.rpartition("/")
        return Reference(scope, selector, evaluate)

    def macro(self, macro_name: str) -> Any:
        return Macro(macro_name)


def _macro_faults(statements: Statements) -> Iterator[str]:
    """Macros that nothing uses, that nothing sets, and required values that are open."""
    finals = statements.final_macros()
    used = {
        reference.name
        for binding in statements.bindings
        for reference in references(binding.value)
        if isinstance(reference, Macro)
    }
    lost = "".join(statements.unread)
    used |= set(_MACRO_USE.findall(lost))
    lost_names = {found[1] for line in statements.unread if (found := _MACRO_SET.match(line))}
    for name, binding in finals.items():
        if name not in used:
            yield _unused_macro(name, binding, used)
    for name, origin in _open_values(statements, set(finals)):
        if name not in lost_names:
            yield f"{name} is {origin}; add {_example_flag(name)}"


def _unused_macro(name: str, binding: Binding, used: set[str]) -> str:
    near = did_you_mean(name, used - {REQUIRED})
    if not near:
        near = "; no binding uses it, remove it or bind a parameter to %" + name
    return f"unknown macro '{name}' in {binding.origin}{near}"


def _open_values(statements: Statements, known: set[str]) -> Iterator[tuple[str, str]]:
    """What still needs a value, with the reason and the place."""
    users: dict[str, list[Binding]] = {}
    for index, binding in enumerate(statements.bindings):
        if any(_overrides(later, binding) for later in statements.bindings[index + 1 :]):
            continue
        for reference in references(binding.value):
            if isinstance(reference, Macro):
                users.setdefault(reference.name, []).append(binding)
    for binding in users.pop(REQUIRED, []):
        yield binding.name, f"required ({binding.origin}) and not set"
    for name, bindings in users.items():
        if name not in known and "." not in name:  # with a dot it may be a module's gin constant
            yield name, f"used ({bindings[0].origin}) and not set"


def _overrides(later: Binding, binding: Binding) -> bool:
    """Whether a later binding sets the same thing; the longer selector may name its module too."""
    if (later.scope, later.parameter) != (binding.scope, binding.parameter):
        return False
    short, long = sorted((later.selector, binding.selector), key=len)
    return short == long or (bool(short) and long.endswith("." + short))


def _example_flag(name: str) -> str:
    if name == "MODEL_DIR":
        return "--gin.MODEL_DIR=\"'/path/to/model'\""
    if _STRING_NAME.search(name.upper()):
        return f"--gin.{name}=\"'...'\""
    return f"--gin.{name}=VALUE"
