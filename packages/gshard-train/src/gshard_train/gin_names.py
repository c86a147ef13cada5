"""What gin statements name: modules imported, functions found, parameters checked, text rendered.

The rendered text says the same as all files and flags together, in one file that stands alone. It
is what gin reads, and what is saved beside a run's checkpoints, so what is saved is what ran.
"""

import dataclasses
import importlib
import importlib.util
import inspect
import pkgutil
import sys
import types
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from gin import config as gin_builtins

from gshard_train.errors import UserError, did_you_mean
from gshard_train.gin_files import (
    REQUIRED,
    Binding,
    Import,
    Macro,
    Reference,
    Statements,
    references,
)

_WIDTH = 100
_ONE_A_LINE = ",\n    "
_HEADER = "from __gin__ import dynamic_registration"
_SINGLETON = "gin.singleton"


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


@dataclasses.dataclass(frozen=True)
class Resolved:
    """Statements whose names are all known. `bound` is keyed by scope, function and parameter."""

    text: str
    bound: Mapping[tuple[str, Target, str], Binding]


def resolve(statements: Statements) -> Resolved:
    """Imports what the statements import and finds what they name.

    Raises:
      UserError: with every module, function and parameter that is not there.
    """
    faults = list(_import_all(statements.imports))
    if faults:
        raise UserError(*faults)
    names = _Names(statements.imports)
    bound: dict[tuple[str, Target, str], Binding] = {}
    for binding in statements.bindings:
        for reference in references(binding.value):
            if isinstance(reference, Reference):
                names.find(reference.selector, binding)
        if binding.selector and (target := names.find(binding.selector, binding)):
            bound[binding.scope, target, binding.parameter] = binding
            names.faults += _parameter_faults(target, binding)
    names.faults += _missing_arguments(statements, names, bound)
    names.faults += _still_required(bound)
    if names.faults:
        raise UserError(*dict.fromkeys(names.faults))
    return Resolved(_Renderer(statements, names, bound).text(), bound)


def missing_arguments(target: Target, bound: Iterable[tuple[str, Target, str]]) -> list[str]:
    """The parameters of a function that have no default and no binding in any scope."""
    given = {parameter for _, other, parameter in bound if other == target}
    return [name for name in _required_parameters(target.function) if name not in given]


def find(name: str) -> Target:
    """The function or class of a full name, whose module is imported for it."""
    module, _, path = name.rpartition(".")
    return Target(module, path, getattr(importlib.import_module(module), path))


class _Names:
    """What each symbol stands for in each file, and the faults met while looking names up."""

    def __init__(self, imports: Iterable[Import]):
        self.faults: list[str] = []
        self._imports = list(imports)
        self._by_function: dict[int, Target] = {}
        self._known: set[str] = set()

    def find(self, selector: str, binding: Binding) -> Target | None:
        """What `selector` names where `binding` stands; a fault is noted when it names nothing."""
        if selector == _SINGLETON:
            return Target("gin", "singleton", gin_builtins.singleton)
        found = {id(target.function): target for target in self._candidates(selector, binding)}
        where = f"{binding.name} ({binding.origin})" if selector != binding.selector else ""
        where = where or binding.origin
        if len(found) == 1:
            (target,) = found.values()
            self._known.add(selector)
            return self._by_function.setdefault(id(target.function), target)
        if found:
            several = " or ".join(sorted(target.name for target in found.values()))
            self.faults.append(f"'{selector}' in {where} can be {several}; write the longer name")
        else:
            self.faults.append(f"unknown '{selector}' in {where}{self._suggest(selector, binding)}")
        return None

    def _candidates(self, selector: str, binding: Binding) -> Iterator[Target]:
        """By the symbols of its own file; else by those of all files; else inside any module."""
        first, _, rest = selector.partition(".")
        own = [i for i in self._imports if i.source == binding.source and i.symbol == first]
        others = [i for i in self._imports if i.symbol == first]
        for group in (own, others):
            found = [t for i in group if (t := _follow(_start(i), rest))]
            if found:
                yield from found
                return
        for statement in self._imports:
            if target := _follow(statement.module, selector):
                yield target

    def _suggest(self, selector: str, binding: Binding) -> str:
        first = selector.partition(".")[0]
        symbols = {i.symbol: i for i in self._imports}
        if first in symbols:
            names = _public(first, _start(symbols[first]), depth=selector.count("."))
        else:
            names = {
                name
                for i in self._imports
                for name in (*_public(i.symbol, i.module, 1), *_public("", i.module, 1))
            }
        return did_you_mean(selector, names | self._known) or (
            f"; no import in the gin files provides '{first}'" if first not in symbols else ""
        )


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


def _public(symbol: str, module: str, depth: int) -> set[str]:
    """Names of callables below a module, as they would be written after its symbol."""
    names = set()
    prefix = f"{symbol}." if symbol else ""
    for name, value in vars(sys.modules[module]).items():
        if name.startswith("_"):
            continue
        if isinstance(value, types.ModuleType):
            if depth > 1 and value.__name__ in sys.modules:
                names |= _public(f"{prefix}{name}", value.__name__, depth - 1)
        elif callable(value):
            names.add(f"{prefix}{name}")
    return names


def _import_all(imports: Iterable[Import]) -> Iterator[str]:
    for statement in imports:
        try:
            importlib.import_module(statement.module)
        except ImportError as error:
            yield f"{statement.origin}: cannot import {statement.module}: {_why(statement, error)}"


def _why(statement: Import, error: ImportError) -> str:
    missing = getattr(error, "name", None) or ""
    if not (statement.module == missing or statement.module.startswith(missing + ".")):
        return str(error)
    parent, _, _ = missing.rpartition(".")
    paths = getattr(sys.modules.get(parent), "__path__", None) if parent else None
    siblings = {f"{parent}.{m.name}" if parent else m.name for m in pkgutil.iter_modules(paths)}
    return f"there is no module {missing}{did_you_mean(missing, siblings)}"


def _signature(function: Callable[..., Any]) -> inspect.FullArgSpec:
    if inspect.isclass(function):
        own = "__init__" if function.__init__ is not object.__init__ else "__new__"
        function = getattr(function, own)
    return inspect.getfullargspec(inspect.unwrap(function))


def _parameters(function: Callable[..., Any]) -> list[str]:
    spec = _signature(function)
    skip = 1 if inspect.isclass(function) or inspect.ismethod(function) else 0
    return [*spec.args[skip:], *spec.kwonlyargs]


def _required_parameters(function: Callable[..., Any]) -> list[str]:
    spec = _signature(function)
    optional = {
        *spec.args[len(spec.args) - len(spec.defaults or ()) :],
        *(spec.kwonlydefaults or ()),
    }
    return [name for name in _parameters(function) if name not in optional]


def _parameter_faults(target: Target, binding: Binding) -> Iterator[str]:
    try:
        allowed, open_ended = _parameters(target.function), _signature(target.function).varkw
    except TypeError:  # a builtin without a signature: gin cannot check it either
        return
    if binding.parameter in allowed or open_ended:
        return
    near = did_you_mean(binding.parameter, allowed) or f"; it has {', '.join(allowed) or 'none'}"
    yield f"{target.name} has no parameter '{binding.parameter}' ({binding.origin}){near}"


def _missing_arguments(
    statements: Statements, names: _Names, bound: Mapping[tuple[str, Target, str], Binding]
) -> Iterator[str]:
    """Arguments that gin itself would lack: it calls `@f()` with what is bound and nothing else."""
    for binding in statements.bindings:
        for reference in references(binding.value):
            if not isinstance(reference, Reference) or not reference.evaluate:
                continue
            target = names.find(reference.selector, binding)
            if target is None or target.module == "gin":
                continue
            for parameter in missing_arguments(target, bound):
                yield (
                    f"{target.name} needs {parameter} and nothing binds it; "
                    f"add {reference.selector}.{parameter} = VALUE to the gin file "
                    f"(called in {binding.origin})"
                )


def _still_required(bound: Mapping[tuple[str, Target, str], Binding]) -> Iterator[str]:
    for (scope, target, parameter), binding in bound.items():
        if any(isinstance(r, Macro) and r.name == REQUIRED for r in references(binding.value)):
            name = f"{scope}/{target.path}" if scope else target.path
            yield (
                f"{name}.{parameter} is required ({binding.origin}) and not set; "
                f"add --gin.{name}.{parameter}=VALUE"
            )


class _Renderer:
    """Writes resolved statements as one gin text: imports, macros, bindings by function."""

    def __init__(
        self,
        statements: Statements,
        names: _Names,
        bound: Mapping[tuple[str, Target, str], Binding],
    ):
        self._statements = statements
        self._names = names
        self._bound = bound
        self._symbols: dict[str, str] = {}
        for statement in statements.imports:
            self._symbol(statement.module, statement.symbol)

    def text(self) -> str:
        """The whole text. Rendering a value may need a further import, so the header comes last."""
        macros = [
            self._assignment(name, binding)
            for name, binding in self._statements.final_macros().items()
        ]
        body: list[str] = []
        previous = None
        for (scope, target, parameter), binding in self._in_order():
            if previous != (scope, target):
                body.append("")
            previous = (scope, target)
            name = self._selector(scope, target)
            body.append(self._assignment(f"{name}.{parameter}", binding))
        imports = [_HEADER, *(self._import(m, s) for m, s in self._symbols.items())]
        return "\n".join([*imports, "", *macros, *body]) + "\n"

    def _in_order(self) -> list[tuple[tuple[str, Target, str], Binding]]:
        """Bindings grouped by function, in the order in which the functions first appear."""
        groups: dict[tuple[str, Target], list] = {}
        for key, binding in self._bound.items():
            groups.setdefault(key[:2], []).append((key, binding))
        return [item for group in groups.values() for item in group]

    def _symbol(self, module: str, wanted: str = "") -> str:
        if module not in self._symbols:
            last = module.rpartition(".")[2]
            symbol = wanted if wanted and wanted != module.split(".")[0] else last
            taken, number = set(self._symbols.values()) | {"gin"}, 2
            unique = symbol
            while unique in taken:
                unique, number = f"{symbol}{number}", number + 1
            self._symbols[module] = unique
        return self._symbols[module]

    @staticmethod
    def _import(module: str, symbol: str) -> str:
        return f"import {module}" + (f" as {symbol}" if symbol != module else "")

    def _selector(self, scope: str, target: Target) -> str:
        symbol = "gin" if target.module == "gin" else self._symbol(target.module)
        return f"{scope}/{symbol}.{target.path}" if scope else f"{symbol}.{target.path}"

    def _assignment(self, name: str, binding: Binding) -> str:
        one_line = f"{name} = {self._value(binding.value, binding)}"
        if len(one_line) <= _WIDTH or not isinstance(binding.value, dict | list | tuple):
            return one_line
        return f"{name} = {self._value(binding.value, binding, _ONE_A_LINE)}"

    def _value(self, value: Any, binding: Binding, comma: str = ", ") -> str:
        """A value as gin reads it; `comma` separates the items of the outermost container."""
        if isinstance(value, Macro):
            return f"%{value.name}"
        if isinstance(value, Reference):
            target = self._names.find(value.selector, binding)
            assert target is not None  # resolve() has refused unknown names
            return f"@{self._selector(value.scope, target)}{'()' if value.evaluate else ''}"
        if isinstance(value, dict):
            pairs = [
                f"{self._value(k, binding)}: {self._value(v, binding)}" for k, v in value.items()
            ]
            return _enclosed("{", pairs, "}", comma)
        if isinstance(value, list):
            return _enclosed("[", [self._value(v, binding) for v in value], "]", comma)
        if isinstance(value, tuple):
            items = [self._value(v, binding) for v in value]
            return f"({items[0]},)" if len(items) == 1 else _enclosed("(", items, ")", comma)
        if isinstance(value, float) and value in (float("inf"), float("-inf")):
            return "1e999" if value > 0 else "-1e999"
        return repr(value)


def _enclosed(opening: str, items: list[str], closing: str, comma: str) -> str:
    if comma == _ONE_A_LINE and items:
        return f"{opening}\n    {comma.join(items)},\n{closing}"
    return f"{opening}{comma.join(items)}{closing}"
