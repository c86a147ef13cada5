"""Bindings of functions that nothing calls: gin takes them and they never have an effect."""

import sys
from collections.abc import Collection, Iterator, Sequence

from gshard_train.errors import did_you_mean
from gshard_train.gin_check.names import BUILTIN, Names, Target
from gshard_train.gin_check.parameters import Bound, parameter_names
from gshard_train.gin_check.statements import Binding, Macro, Reference, Statements, references


def unreached(
    statements: Statements, names: Names, bound: Bound, roots: Collection[str]
) -> Iterator[str]:
    """A message for each binding that no root leads to, nothing if no root has a binding.

    What a later file or flag overrides counts as leading on: an overlay that takes another
    optimizer makes no fault of the bindings of the first.

    Args:
      statements: with names that are all known.
      names: of the statements.
      bound: the last binding of each parameter.
      roots: full names of the functions that the binaries call.
    """
    functions = {id(function) for name in roots if (function := _imported(name))}
    if not any(id(target.function) in functions for _, target, _ in bound):
        return
    reached, scopes = _closure(statements, names, functions)
    for (scope, target, parameter), binding in bound.items():
        if target.module == BUILTIN:
            continue
        if id(target.function) not in reached:
            yield _unused(target, parameter, binding, reached.values())
        elif unknown := set(scope.split("/") if scope else ()) - scopes:
            used = did_you_mean(*sorted(unknown)[:1], scopes)
            yield (
                f"{binding.name} ({binding.origin}) has no effect: nothing is called in the scope "
                f"'{sorted(unknown)[0]}'{used}"
            )


def _imported(name: str) -> object | None:
    module, _, path = name.rpartition(".")
    return getattr(sys.modules.get(module), path, None)


def _closure(
    statements: Statements, names: Names, functions: set[int]
) -> tuple[dict[int, Target | None], set[str]]:
    """The functions that are reached, by identity, and the scopes in which any is called."""
    leads: dict[int, list[tuple[Binding, Reference]]] = {}
    scopes: set[str] = set()
    for binding in statements.bindings:
        if binding.selector and (target := names.find(binding.selector, binding)):
            found = list(_followed(binding, statements, ()))
            leads.setdefault(id(target.function), []).extend(found)
    reached: dict[int, Target | None] = dict.fromkeys(functions)
    waiting = list(functions)
    while waiting:
        for binding, reference in leads.get(waiting.pop(), ()):
            scopes |= set(reference.scope.split("/")) - {""}
            target = names.find(reference.selector, binding)
            if target and id(target.function) not in reached:
                reached[id(target.function)] = target
                waiting.append(id(target.function))
    return reached, scopes


def _followed(
    binding: Binding, statements: Statements, inside: Sequence[str]
) -> Iterator[tuple[Binding, Reference]]:
    """The references in a value and in the macros that it uses, each with where it stands."""
    for reference in references(binding.value):
        if isinstance(reference, Reference):
            yield binding, reference
        elif isinstance(reference, Macro) and reference.name not in inside:
            for macro in statements.bindings:
                if macro.macro == reference.name:
                    yield from _followed(macro, statements, (*inside, reference.name))


def _unused(
    target: Target, parameter: str, binding: Binding, reached: Collection[Target | None]
) -> str:
    others = [other for other in reached if other and parameter in parameter_names(other)]
    if len(others) == 1:
        advice = f"did you mean {others[0].path}.{parameter} of {others[0].module}?"
    else:
        advice = f"bind a parameter to @{binding.selector}() or remove it"
    return (
        f"{binding.name} ({binding.origin}) has no effect: nothing that runs refers to "
        f"{target.name}; {advice}"
    )
