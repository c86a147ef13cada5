"""Which bindings have an effect: gin also takes those of functions that nothing calls."""

import sys
from collections.abc import Collection, Iterator, Mapping, Sequence

from gshard_train.errors import did_you_mean
from gshard_train.gin_check.names import BUILTIN, Names, Target
from gshard_train.gin_check.parameters import Bound, parameter_names
from gshard_train.gin_check.statements import (
    FLAGS,
    REQUIRED,
    Binding,
    Macro,
    Reference,
    Statements,
    references,
)


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
    if not (functions := _bound_roots(bound, roots)):
        return
    reached, scopes = _closure(statements.bindings, names, functions)
    for (scope, target, parameter), binding in bound.items():
        if target.module == BUILTIN:
            continue
        if id(target.function) not in reached:
            yield _unused(target, parameter, binding, reached.values())
        elif unknown := sorted(set(scope.split("/") if scope else ()) - scopes):
            yield (
                f"{binding.name} ({binding.origin}) has no effect: nothing is called in the scope "
                f"'{unknown[0]}'{did_you_mean(unknown[0], scopes)}"
            )


def replaced(
    statements: Statements, names: Names, bound: Bound, roots: Collection[str]
) -> Iterator[str]:
    """A message for each macro of a flag whose every use belongs to something that was replaced."""
    macros, _ = effective(statements, names, bound, roots)
    if not _bound_roots(bound, roots):
        return
    required = {each.macro for each in statements.bindings if each.value == Macro(REQUIRED)}
    for name, binding in statements.final_macros().items():
        if binding.source == FLAGS and name not in macros and name not in required:
            users = [b for b in statements.bindings if Macro(name) in references(b.value)]
            where = f": {users[-1].name} ({users[-1].origin}) is not called" if users else ""
            yield (
                f"{name} ({binding.origin}) has no effect, since a later file or flag replaces "
                f"what uses it{where}; remove it, or set what replaces it"
            )


def effective(
    statements: Statements, names: Names, bound: Bound, roots: Collection[str]
) -> tuple[dict[str, Binding], Bound]:
    """The last macros and bindings that have an effect; without a bound root, all bindings."""
    macros = statements.final_macros()
    kept = bound
    if functions := _bound_roots(bound, roots):
        reached, _ = _closure([*macros.values(), *bound.values()], names, functions)
        kept = {
            key: binding
            for key, binding in bound.items()
            if key[1].module == BUILTIN or id(key[1].function) in reached
        }
    used = {each.name for binding in kept.values() for each in _macros(binding, macros)}
    return {name: binding for name, binding in macros.items() if name in used}, kept


def _bound_roots(bound: Bound, roots: Collection[str]) -> set[int]:
    """The identities of the roots; none where no root has a binding."""
    functions = {id(function) for name in roots if (function := _imported(name))}
    return functions if any(id(target.function) in functions for _, target, _ in bound) else set()


def _imported(name: str) -> object | None:
    module, _, path = name.rpartition(".")
    return getattr(sys.modules.get(module), path, None)


def _closure(
    bindings: Sequence[Binding], names: Names, functions: set[int]
) -> tuple[dict[int, Target | None], set[str]]:
    """The functions that are reached, by identity, and the scopes in which any is called."""
    leads: dict[int, list[tuple[Binding, Reference]]] = {}
    scopes: set[str] = set()
    for binding in bindings:
        if binding.selector and (target := names.find(binding.selector, binding)):
            found = list(_followed(binding, bindings, ()))
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
    binding: Binding, bindings: Sequence[Binding], inside: Sequence[str]
) -> Iterator[tuple[Binding, Reference]]:
    """The references in a value and in the macros that it uses, each with where it stands."""
    for reference in references(binding.value):
        if isinstance(reference, Reference):
            yield binding, reference
        elif reference.name not in inside:
            for macro in bindings:
                if macro.macro == reference.name:
                    yield from _followed(macro, bindings, (*inside, reference.name))


def _macros(binding: Binding, macros: Mapping[str, Binding]) -> Iterator[Macro]:
    """The macros that a value uses, and those that these use."""
    waiting, seen = [binding], set()
    while waiting:
        for reference in references(waiting.pop().value):
            if isinstance(reference, Macro) and reference.name not in seen:
                seen.add(reference.name)
                yield reference
                waiting += [macros[reference.name]] if reference.name in macros else []


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
