"""A gin text to statements, going on after each syntax error, with what to write instead."""

import ast
import re
import tokenize
from collections.abc import Iterator
from typing import Any, NamedTuple

from gin import config_parser

from gshard_train.gin_check.statements import REQUIRED, Binding, Import, Macro, Reference

_FEATURE = "__gin__."  # `from __gin__ import dynamic_registration` switches gin, it imports nothing
_START = re.compile(r"(import|from|include)\b|[A-Za-z_][\w./]*\s*[=:]")
_BAD_WORD = re.compile(r"Failed to parse token '([A-Za-z_]\w*)'")
_SPELLINGS = {"true": "True", "false": "False", "none": "None", "null": "None"}


class Include(NamedTuple):
    """Another file, to be read in this place."""

    path: str
    origin: str


class Unread(NamedTuple):
    """Lines that are no gin statement, and why."""

    lines: list[str]
    fault: str


def parse(text: str, source: str, place: str, is_flag: bool) -> Iterator[Any]:
    """Yields `Import`, `Binding`, `Include` and `Unread` in the order of the text.

    Args:
      text: of a whole file, or of one flag.
      source: the file's name, or `FLAGS`.
      place: what to call it in messages; lines of a file are added to that.
      is_flag: whether it is one flag, whose lines mean nothing to the reader.
    """
    lines = text.splitlines(keepends=True)
    first = 0
    while first < len(lines):
        last_read = first - 1  # where the last whole statement began, counted from 0
        padded = "\n" * first + "".join(lines[first:])  # keeps the line numbers
        try:
            for statement in config_parser.ConfigParser(padded, _Delegate()):
                line = statement.location.line_num
                last_read = line - 1
                origin = place if is_flag else f"{place}:{line}"
                yield from _converted(statement, source, origin)
            return
        except (SyntaxError, tokenize.TokenError, ValueError) as error:
            begin, first = _bad_lines(lines, last_read, error)
            origin = place if is_flag else f"{place}:{begin + 1}"
            known = isinstance(error, SyntaxError) and (error.lineno or 0) <= first
            bad = lines[begin:first]
            yield Unread(bad, _fault(origin, error if known else None, "".join(bad)))


class _Delegate(config_parser.ParserDelegate):
    """Keeps references and macros as what they say, where gin would look them up."""

    def configurable_reference(self, scoped_configurable_name: str, evaluate: bool) -> Any:
        scope, _, selector = scoped_configurable_name.rpartition("/")
        return Reference(scope, selector, evaluate)

    def macro(self, macro_name: str) -> Any:
        return Macro(macro_name)


def _converted(statement: Any, source: str, origin: str) -> Iterator[Import | Binding | Include]:
    if isinstance(statement, config_parser.IncludeStatement):
        yield Include(statement.filename, origin)
    elif isinstance(statement, config_parser.ImportStatement):
        if not statement.module.startswith(_FEATURE):
            plain = not statement.is_from and not statement.alias
            symbol = statement.module.split(".")[0] if plain else statement.bound_name()
            yield Import(statement.module, symbol, source, origin)
    elif isinstance(statement, config_parser.BindingStatement):
        scope, selector, parameter, value, _ = statement
        if not parameter:
            selector, parameter = "", selector
        yield Binding(scope, selector, parameter, value, source, origin)


def _bad_lines(lines: list[str], last_read: int, error: Exception) -> tuple[int, int]:
    """First line of the statement that could not be read, and the line to go on from."""
    starts = [i for i, line in enumerate(lines) if _START.match(line)]
    known = error.lineno if isinstance(error, SyntaxError) else None
    error_line = min(known - 1 if known else len(lines), len(lines) - 1)
    begin = next((i for i in starts if last_read < i <= error_line), error_line)
    if known is None or (error_line in starts and error_line > begin):
        error_line = begin  # brackets left open swallow what follows: only their line is bad
    return begin, next((i for i in starts if i > max(begin, error_line)), len(lines))


def _fault(
    origin: str, error: SyntaxError | ValueError | tokenize.TokenError | None, bad: str
) -> str:
    """What is wrong with a statement; `error` is None when brackets or quotes are not closed."""
    name, _, value = (part.strip() for part in bad.partition("="))
    flag = origin.startswith("--gin.")
    if flag and "=" not in bad:
        return f"{origin}: a value is missing; write --gin.{name}=VALUE"
    if value in _SPELLINGS:
        return f"{origin}: {value} is not a gin value; did you mean {_SPELLINGS[value]}?"
    if value == REQUIRED:
        return f"{origin}: write a required value as %{REQUIRED}"
    if value and "\n" not in value and _is_bare_text(value):
        if flag:
            quoted = f"--gin.{name}=\"'{value}'\""
            return f"{origin}: a string needs quotes inside the shell's own: {quoted}"
        return f"{origin}: a string needs quotes: {name} = '{value}'"
    if not isinstance(error, SyntaxError):
        return f"{origin}: brackets or quotes that open here are not closed"
    text = str(error.msg)
    if word := _BAD_WORD.search(text):
        return f"{origin}: {word[1]} is not a gin value; write '{word[1]}' or %{word[1]}"
    reason = text.split("\n")[0].rstrip(".")
    shown = f" in `{error.text.strip()}`" if error.text and error.text.strip() else ""
    return f"{origin}: {reason[:1].lower()}{reason[1:]}{shown}"


def _is_bare_text(value: str) -> bool:
    if value[0] in "'\"[({%@#":
        return False
    try:
        ast.literal_eval(value)
    except (ValueError, SyntaxError):
        return True
    return False
