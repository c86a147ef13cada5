"""Resolved statements as one gin text: imports, macros, bindings by function."""

from collections.abc import Iterable, Mapping
from typing import Any

from gshard_train.gin_check.names import BUILTIN, Names, Target
from gshard_train.gin_check.parameters import Bound
from gshard_train.gin_check.statements import Binding, Import, Macro, Reference

_WIDTH = 100
_ONE_A_LINE = ",\n    "
_HEADER = """\
# Everything that was set. Runs again with this file as the only --gin_file; --gin.NAME=value
# still overrides.
from __gin__ import dynamic_registration"""


def render(
    names: Names, imports: Iterable[Import], macros: Mapping[str, Binding], bound: Bound
) -> str:
    """A text that gin reads as the files and flags in order, each value once.

    Args:
      names: of all statements.
      imports: in the order of the files, for some of them register things.
      macros: the last binding of each; macros stay macros.
      bound: the last binding of each parameter.
    """
    writer = Writer(names, imports)
    first = [writer.assignment(name, binding) for name, binding in macros.items()]
    body: list[str] = []
    for (scope, target), bindings in by_function(bound).items():
        selector = writer.selector(scope, target)
        body.append("")
        body += [writer.assignment(f"{selector}.{name}", b) for name, b in bindings.items()]
    # Writing a value may need one import more, so the imports are asked for last.
    return "\n".join([_HEADER, *writer.imports(), "", *first, *body]) + "\n"


def by_function(bound: Bound) -> dict[tuple[str, Target], dict[str, Binding]]:
    """The bindings of each function in each scope, by parameter."""
    groups: dict[tuple[str, Target], dict[str, Binding]] = {}
    for (scope, target, parameter), binding in bound.items():
        groups.setdefault((scope, target), {})[parameter] = binding
    return groups


class Writer:
    """Writes statements with one symbol for each module.

    Args:
      names: of all statements.
      imports: modules to begin with; their symbols are kept where they can be.
    """

    def __init__(self, names: Names, imports: Iterable[Import]):
        self._names = names
        self._symbols: dict[str, str] = {}
        for statement in imports:
            self._symbol(statement.module, statement.symbol)

    def imports(self) -> list[str]:
        """The import statements for everything written so far."""
        return [
            f"import {module}" + ("" if symbol == module else f" as {symbol}")
            for module, symbol in self._symbols.items()
        ]

    def selector(self, scope: str, target: Target) -> str:
        """How the text names a function: `scope/module.function`."""
        symbol = BUILTIN if target.module == BUILTIN else self._symbol(target.module)
        return f"{scope}/{symbol}.{target.path}" if scope else f"{symbol}.{target.path}"

    def assignment(self, name: str, binding: Binding) -> str:
        """`name = value`, with the items of a long container on lines of their own."""
        line = f"{name} = {self.value(binding)}"
        if len(line) <= _WIDTH or not isinstance(binding.value, dict | list | tuple):
            return line
        return f"{name} = {self._value(binding.value, binding, _ONE_A_LINE)}"

    def value(self, binding: Binding) -> str:
        """A binding's value as gin reads it, on one line."""
        return self._value(binding.value, binding)

    def _symbol(self, module: str, wanted: str = "") -> str:
        """The name of a module in the text: the first that a file gave it, made unique."""
        if module not in self._symbols:
            plain = wanted in ("", module.split(".")[0])
            symbol = unique = module.rpartition(".")[2] if plain else wanted
            number = 1
            while unique in (BUILTIN, *self._symbols.values()):
                number += 1
                unique = f"{symbol}{number}"
            self._symbols[module] = unique
        return self._symbols[module]

    def _value(self, value: Any, binding: Binding, comma: str = ", ") -> str:
        """A value as gin reads it; `comma` separates the items of the outermost container."""
        match value:
            case Macro(name):
                return f"%{name}"
            case Reference(scope, selector, evaluate):
                target = self._names.find(selector, binding)
                assert target is not None, selector  # unknown names were refused before
                return f"@{self.selector(scope, target)}{'()' if evaluate else ''}"
            case dict():
                items = [
                    f"{self._value(key, binding)}: {self._value(item, binding)}"
                    for key, item in value.items()
                ]
                return _enclosed("{", items, "}", comma)
            case list():
                return _enclosed("[", [self._value(v, binding) for v in value], "]", comma)
            case tuple():
                items = [self._value(v, binding) for v in value]
                return f"({items[0]},)" if len(items) == 1 else _enclosed("(", items, ")", comma)
            case float() if value in (float("inf"), float("-inf")):
                return "1e999" if value > 0 else "-1e999"  # gin has no other way to write it
        return repr(value)


def _enclosed(opening: str, items: list[str], closing: str, comma: str) -> str:
    if comma == _ONE_A_LINE and items:
        return f"{opening}\n    {comma.join(items)},\n{closing}"
    return f"{opening}{comma.join(items)}{closing}"
