"""The functions and classes that gin statements name."""

import dataclasses
import importlib
import pkgutil
import sys
import types
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from gin.config import singleton

from gshard_train.errors import did_you_mean
from gshard_train.gin_check.statements import Binding, Import

BUILTIN = "gin"  # the module of what gin itself provides


@dataclasses.dataclass(frozen=True)
class Target:
    """A function or class that can be configured: `path` inside the module `module`."""

    module: str
    path: str
    function: Callable[..., Any] = dataclasses.field(compare=False)

    @property
    def name(self) -> str:
        """Its full name, such as `gshard_train.training.train`."""
        return f"{self.module}.{self.path}"


_SINGLETON = Target(BUILTIN, "singleton", singleton)


def find(name: str) -> Target:
    """The function or class of a full name, whose module is imported for it."""
    module, _, path = name.rpartition(".")
    return Target(module, path, getattr(importlib.import_module(module), path))


def import_all(imports: Iterable[Import]) -> Iterator[str]:
    """Imports what the statements name; yields a message for each that fails."""
    for statement in imports:
        try:
            importlib.import_module(statement.module)
        except ImportError as error:
            yield f"{statement.origin}: cannot import {statement.module}: {_why(statement, error)}"


class Names:
    """What each symbol stands for in each file; faults are gathered while names are looked up."""

    def __init__(self, imports: Iterable[Import]):
        self.faults: list[str] = []
        self._imports = list(imports)
        self._first: dict[int, Target] = {}  # a function has one name, however it was reached

    def find(self, selector: str, binding: Binding) -> Target | None:
        """What `selector` names where `binding` stands; nothing, and a fault, if nothing."""
        if selector == _SINGLETON.name:
            return _SINGLETON
        found = {id(target.function): target for target in self._candidates(selector, binding)}
        if len(found) == 1:
            ((identity, target),) = found.items()
            return self._first.setdefault(identity, target)
        if found:
            several = " or ".join(sorted(target.name for target in found.values()))
            fault = f"'{selector}' in {binding.origin} can be {several}; write the longer name"
        else:
            fault = f"unknown '{selector}' in {binding.origin}{self._suggestion(selector)}"
        self.faults.append(fault)
        return None

    def _candidates(self, selector: str, binding: Binding) -> Iterator[Target]:
        """By the symbols of its own file; else of all files; else by any part of a full name."""
        symbol, _, path = selector.partition(".")
        everywhere = [i for i in self._imports if i.symbol == symbol]
        for imports in ([i for i in everywhere if i.source == binding.source], everywhere):
            if found := [t for i in imports if (t := _follow(_start(i), path))]:
                yield from found
                return
        for module in {i.module: None for i in self._imports}:
            names = module.split(".")
            for start in range(len(names) + 1):  # a.b.c.f, b.c.f, c.f and f all name a.b.c's f
                prefix = "".join(f"{name}." for name in names[start:])
                if selector.startswith(prefix) and (
                    target := _follow(module, selector.removeprefix(prefix))
                ):
                    yield target

    def _suggestion(self, selector: str) -> str:
        symbol = selector.partition(".")[0]
        same = [i for i in self._imports if i.symbol == symbol]
        names: set[str] = set()
        for statement in same or self._imports:
            names |= _callables(statement.symbol, _start(statement), selector.count("."))
            names |= _callables("", statement.module, 1)
        missing = "" if same else f"; no import in the gin files provides '{symbol}'"
        return did_you_mean(selector, names) or missing


def _start(statement: Import) -> str:
    """The module that the statement's symbol stands for: `a` after a plain `import a.b`."""
    plain = statement.module.split(".")[0] == statement.symbol
    return statement.symbol if plain else statement.module


def _follow(module: str, path: str) -> Target | None:
    """The callable at `path` of `module`, with the deepest module that the path runs through."""
    value: Any = sys.modules[module]
    inner: list[str] = []
    for name in path.split("."):
        value = getattr(value, name, None)
        if isinstance(value, types.ModuleType) and not inner:
            module = value.__name__
        else:
            inner.append(name)
    return Target(module, ".".join(inner), value) if inner and callable(value) else None


def _callables(symbol: str, module: str, depth: int) -> set[str]:
    """Names of callables in a module, and in modules inside, as written after its symbol."""
    names: set[str] = set()
    prefix = f"{symbol}." if symbol else ""
    for name, value in vars(sys.modules[module]).items():
        if name.startswith("_"):
            continue
        if isinstance(value, types.ModuleType):
            if depth > 1 and value.__name__.startswith(module):
                names |= _callables(f"{prefix}{name}", value.__name__, depth - 1)
        elif callable(value):
            names.add(f"{prefix}{name}")
    return names


def _why(statement: Import, error: ImportError) -> str:
    missing = error.name or ""
    if not f"{statement.module}.".startswith(f"{missing}."):
        return str(error)  # it is there, and something that it needs is not
    parent = missing.rpartition(".")[0]
    paths = getattr(sys.modules.get(parent), "__path__", None) if parent else None
    siblings = (m.name for m in pkgutil.iter_modules(paths, f"{parent}." if parent else ""))
    return f"there is no module {missing}{did_you_mean(missing, siblings)}"
