"""Bound values that a parameter's type does not allow, where both are plain enough to tell."""

import dataclasses
import inspect
import types
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any, Literal, Union, get_args, get_origin

from gshard_train.gin_check.names import BUILTIN, Target
from gshard_train.gin_check.parameters import Bound
from gshard_train.gin_check.statements import Binding, Macro, Reference

_ANYTHING = object()  # what gin will build: it may be of any type
_WORDS = {int: "an integer", float: "a number", str: "text in quotes", bool: "True or False"}


def wrong(bound: Bound, macros: Mapping[str, Binding]) -> Iterator[str]:
    """A message for each value that its parameter cannot take, by the parameter's annotation.

    Annotations that say more than plain types do count as allowing everything. A macro is told
    once, whatever it sets.
    """
    told = set()
    for (_, target, parameter), binding in bound.items():
        hint = _hint(target, parameter)
        source = binding
        while isinstance(source.value, Macro) and source.value.name in macros:
            source = macros[source.value.name]
        value = _plain(source.value, macros)
        if id(source) in told or _allows(hint, value):
            continue
        told.add(id(source))
        of = "" if source is binding else f": it is {parameter} of {target.name}"
        yield f"{source.name}={value!r} ({source.origin}) must be {_described(hint, value)}{of}"


def _hint(target: Target, parameter: str) -> Any:
    """A parameter's annotation; Any where there is none or where it cannot be read."""
    if target.module == BUILTIN:
        return Any
    try:
        hint = inspect.signature(target.function).parameters[parameter].annotation
        if isinstance(hint, str):  # in quotes, or of a module that postpones annotations
            module = inspect.getmodule(inspect.unwrap(target.function))
            hint = eval(hint, vars(module) if module else {})
    except Exception:  # names that are imported for type checkers only, builtins without signature
        return Any
    return Any if hint is inspect.Parameter.empty else hint


def _plain(value: Any, macros: Mapping[str, Binding]) -> Any:
    """A value with its macros in place; what gin builds becomes `_ANYTHING`."""
    match value:
        case Reference():
            return _ANYTHING
        case Macro(name):
            return _plain(macros[name].value, macros) if name in macros else _ANYTHING
        case dict():
            return {_plain(k, macros): _plain(v, macros) for k, v in value.items()}
        case list() | tuple():
            return type(value)(_plain(item, macros) for item in value)
    return value


def _allows(hint: Any, value: Any) -> bool:
    """Whether a type allows a plain value; True where that cannot be told."""
    origin, arguments = get_origin(hint), get_args(hint)
    if value is _ANYTHING:
        return True
    if origin in (Union, types.UnionType):
        return any(_allows(each, value) for each in arguments)
    if hint in (None, types.NoneType):
        return value is None
    if origin is Literal:
        return value in arguments
    if hint in _WORDS:
        kinds = (int, float) if hint is float else (hint,)
        return isinstance(value, kinds) and (hint is bool or not isinstance(value, bool))
    if hint is Callable or origin is Callable or dataclasses.is_dataclass(hint):
        return False  # gin has no literal for these
    if not isinstance(kind := origin or hint, type):
        return True
    if issubclass(kind, Mapping):
        items = value.items() if isinstance(value, dict) else None
        return items is not None and all(_allows(arguments[1], v) for _, v in items if arguments)
    if issubclass(kind, Collection):
        return isinstance(value, list | tuple) and _allows_items(kind, arguments, value)
    return True


def _allows_items(kind: type, arguments: tuple[Any, ...], value: Collection[Any]) -> bool:
    if issubclass(kind, tuple) and arguments[1:] != (Ellipsis,):
        return len(arguments) in (0, len(value)) and all(map(_allows, arguments, value))
    return all(_allows(arguments[0], item) for item in value if arguments)


def _described(hint: Any, value: Any) -> str:
    """What a type allows, in words."""
    if hint is int and isinstance(value, float) and value.is_integer():
        return f"an integer; write {int(value)}"
    origin, arguments = get_origin(hint), get_args(hint)
    if origin in (Union, types.UnionType):
        return " or ".join(dict.fromkeys(_described(each, None) for each in arguments))
    if origin is Literal:
        return f"one of {', '.join(map(repr, arguments))}"
    if hint in (None, types.NoneType):
        return "None"
    if hint in _WORDS:
        return _WORDS[hint]
    if dataclasses.is_dataclass(hint):
        return f"a {getattr(hint, '__name__', hint)}, such as @{getattr(hint, '__name__', hint)}()"
    if hint is Callable or origin is Callable:
        return "a function, such as @function"
    kind = origin or hint
    if issubclass(kind, Mapping):
        return "a dict" + (f" with {_described(arguments[1], None)} for each" if arguments else "")
    return "a tuple" + (f" with {_described(arguments[0], None)} for each" if arguments else "")
