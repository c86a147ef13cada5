"""Macros that nothing uses, macros that nothing sets, and required values that are still open."""

import re
from collections.abc import Iterator

from gshard_train.errors import did_you_mean
from gshard_train.gin_check.statements import REQUIRED, Binding, Macro, Statements, references

_USE = re.compile(r"%([A-Za-z_][\w./]*)")
_SET = re.compile(r"([A-Za-z_]\w*)\s*(=|$)")
RUN_FILES = "gshard_train/configs/runs"
_MODEL_FILES = ("MODEL", "OPTIMIZER")  # what a run file leaves to the model file
_STRING_NAME = re.compile(r"(DIR|PATH|FILE|NAME|MODULE)S?$")


def faults(statements: Statements) -> Iterator[str]:
    """One message for each. Lines with syntax errors count as using and setting what they name."""
    used = {
        reference.name
        for binding in statements.bindings
        for reference in references(binding.value)
        if isinstance(reference, Macro)
    }
    used |= {name for line in statements.unread for name in _USE.findall(line)}
    final = statements.final_macros()
    unused = {name: binding for name, binding in final.items() if name not in used}
    yield from _unused(unused, used - {REQUIRED}, statements.file_is_missing)
    unread = {found[1] for line in statements.unread if (found := _SET.match(line))}
    for name, reason in _open_values(statements, set(final)):
        if name not in unread:
            yield f"{name} is {reason}; add {example_flag(name)}"


def example_flag(name: str) -> str:
    """A flag that sets `name`, with quotes where a string is likely."""
    if name in _MODEL_FILES:
        return (
            "--gin_file=gshard_train/configs/models/moe_128e_12l.gin, or another model file, "
            "before the run file"
        )
    if name == "MODEL_DIR":
        return "--gin.MODEL_DIR=\"'/path/to/model'\""
    if _STRING_NAME.search(name.upper()):
        return f"--gin.{name}=\"'...'\""
    return f"--gin.{name}=VALUE"


def _unused(unused: dict[str, Binding], used: set[str], file_is_missing: bool) -> Iterator[str]:
    """What is misspelt; where a file is missing, only what is near to a name that is used."""
    no_run = next((name for name in _MODEL_FILES if name in unused), None)
    if no_run and not file_is_missing:
        yield (
            f"{no_run} is set ({unused[no_run].origin}) and no run file uses it; add one, such as "
            f"--gin_file={RUN_FILES}/train.gin"
        )
    for name, binding in unused.items():
        near = did_you_mean(name, used)
        if near or not (no_run or file_is_missing):
            near = near or f"; nothing uses it: remove it or bind a parameter to %{name}"
            yield f"unknown macro '{name}' in {binding.origin}{near}"


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
    if statements.file_is_missing:
        return  # it may set the rest
    for name, bindings in users.items():
        if name not in known and "." not in name:  # with a dot it may be a module's gin constant
            yield name, f"used ({bindings[0].origin}) and not set"


def _overrides(later: Binding, binding: Binding) -> bool:
    """Whether a later binding sets the same thing; one of them may name its module at length."""
    if (later.scope, later.parameter) != (binding.scope, binding.parameter):
        return False
    short, long = sorted((later.selector, binding.selector), key=len)
    return short == long or (bool(short) and long.endswith("." + short))
