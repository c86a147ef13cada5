"""Where each value of a configuration comes from, as a gin text with comments."""

from collections.abc import Iterator
from typing import Any

from gshard_train.gin_check import parameters, text
from gshard_train.gin_check.names import BUILTIN, Names, Target
from gshard_train.gin_check.statements import Binding, Statements

_HEADER = """\
# Every value, where it is set and what it replaced; behind a # the defaults that nothing sets."""
_PLAIN = (bool, int, float, str, type(None))


def show(statements: Statements, names: Names, bound: parameters.Bound) -> str:
    """Each macro and parameter with its value, the file and line or the flag, and what was before.

    Parameters of the bound functions that nothing binds follow as comments, with their defaults.
    """
    replaced = _replaced(statements, names)
    writer = text.Writer(names, statements.imports)

    def line(name: str, binding: Binding) -> str:
        older = [f"{writer.value(old)} ({old.origin})" for old in replaced[id(binding)][::-1]]
        before = f"; before: {', '.join(older)}" if older else ""
        return f"{writer.assignment(name, binding)}  # {binding.origin}{before}"

    macros = [line(name, binding) for name, binding in statements.final_macros().items()]
    body: list[str] = []
    for (scope, target), bindings in text.by_function(bound).items():
        selector = writer.selector(scope, target)
        body.append("")
        body += [line(f"{selector}.{parameter}", b) for parameter, b in bindings.items()]
        if not scope:
            body += [f"# {selector}.{each}" for each in _defaults(target, bindings)]
    return "\n".join([_HEADER, *writer.imports(), "", *macros, *body]) + "\n"


def _replaced(statements: Statements, names: Names) -> dict[int, list[Binding]]:
    """For the identity of each last binding, those before it of the same macro or parameter."""
    histories: dict[Any, list[Binding]] = {}
    for binding in statements.bindings:
        target = names.find(binding.selector, binding) if binding.selector else None
        key = binding.macro or (binding.scope, target, binding.parameter)
        histories.setdefault(key, []).append(binding)
    return {id(history[-1]): history[:-1] for history in histories.values()}


def _defaults(target: Target, bindings: dict[str, Binding]) -> Iterator[str]:
    """`parameter = value` for what is left at its default; values that are not plain as `...`."""
    if target.module == BUILTIN:
        return
    for name, value in parameters.defaults(target).items():
        if name not in bindings:
            plain = isinstance(value, _PLAIN) or value == () or value == {}
            yield f"{name} = {value!r}" if plain else f"{name} = ..."
