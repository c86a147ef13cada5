"""The parameters of configured functions: those that do not exist, and those without a value."""

import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from gshard_train.errors import did_you_mean
from gshard_train.gin_check.names import BUILTIN, Names, Target
from gshard_train.gin_check.statements import (
    REQUIRED,
    Binding,
    Macro,
    Reference,
    Statements,
    references,
)

Key = tuple[str, Target, str]  # scope, function, parameter
Bound = Mapping[Key, Binding]


def unknown(target: Target, binding: Binding) -> Iterator[str]:
    """A message if the function has no such parameter, with the nearest that it has."""
    signature = _signature(target.function)
    if signature is None or signature.varkw:
        return
    known = _parameters(target.function, signature)
    if binding.parameter not in known:
        near = did_you_mean(binding.parameter, known) or f"; it has {', '.join(known) or 'none'}"
        yield f"{target.name} has no parameter '{binding.parameter}' ({binding.origin}){near}"


def missing(target: Target, bound: Iterable[Key]) -> list[str]:
    """The parameters that have no default and that nothing binds in any scope."""
    signature = _signature(target.function)
    if signature is None or target.module == BUILTIN:
        return []
    optional = defaults(target).keys()
    given = {parameter for _, other, parameter in bound if other == target}
    known = _parameters(target.function, signature)
    return [name for name in known if name not in optional | given]


def parameter_names(target: Target) -> list[str]:
    """The names of a function's parameters; none where the function does not tell them."""
    signature = _signature(target.function)
    return [] if signature is None else _parameters(target.function, signature)


def defaults(target: Target) -> dict[str, Any]:
    """The parameters of a function that have a default, with it."""
    signature = _signature(target.function)
    if signature is None:
        return {}
    values = signature.defaults or ()
    positional = dict(zip(signature.args[len(signature.args) - len(values) :], values, strict=True))
    return positional | (signature.kwonlydefaults or {})


def missing_in_calls(statements: Statements, names: Names, bound: Bound) -> Iterator[str]:
    """What `@f()` would lack: gin calls it with what is bound and with nothing else."""
    for binding in (*statements.final_macros().values(), *bound.values()):
        for reference in references(binding.value):
            if not isinstance(reference, Reference) or not reference.evaluate:
                continue
            if target := names.find(reference.selector, binding):
                for parameter in missing(target, bound):
                    where = f"called in {binding.origin}"
                    yield unbound(target.name, parameter, reference.selector, where)


def unbound(function: str, parameter: str, selector: str, where: str) -> str:
    """The message for a parameter without a value."""
    return (
        f"{function} ({where}) needs {parameter} and nothing binds it; "
        f"add {selector}.{parameter} = VALUE to a gin file"
    )


def still_required(bound: Bound) -> Iterator[str]:
    """Parameters that are left at %gin.REQUIRED."""
    for (scope, target, parameter), binding in bound.items():
        if any(isinstance(r, Macro) and r.name == REQUIRED for r in references(binding.value)):
            name = f"{scope}/{target.name}.{parameter}" if scope else f"{target.name}.{parameter}"
            yield f"{name} is required ({binding.origin}) and not set; add --gin.{name}=VALUE"


def _signature(function: Callable[..., Any]) -> inspect.FullArgSpec | None:
    """The signature that gin goes by; nothing for builtins that do not tell theirs."""
    if inspect.isclass(function):
        own = function.__init__ is not object.__init__
        function = function.__init__ if own else function.__new__
    try:
        return inspect.getfullargspec(inspect.unwrap(function))
    except TypeError:
        return None


def _parameters(function: Callable[..., Any], signature: inspect.FullArgSpec) -> list[str]:
    has_self = inspect.isclass(function) or inspect.ismethod(function)
    return [*signature.args[1 if has_self else 0 :], *signature.kwonlyargs]
