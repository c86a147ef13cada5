"""Statements whose every name is known, as one text."""

from collections.abc import Collection
from typing import NamedTuple

from gshard_train.errors import UserError
from gshard_train.gin_check import origins, parameters, reach, text, values
from gshard_train.gin_check.names import Names, import_all
from gshard_train.gin_check.statements import Binding, Reference, Statements, references


class Resolved(NamedTuple):
    """What gin is given, the last binding of each parameter, and the names that led there."""

    text: str
    bound: parameters.Bound
    statements: Statements
    names: Names
    roots: Collection[str] = ()

    def text_without(self, function: str, parameters: Collection[str]) -> str:
        """The text without what is bound to some parameters, and what only that needs.

        Args:
          function: its full name.
          parameters: of the function.
        """
        left = {
            (scope, target, parameter): binding
            for (scope, target, parameter), binding in self.bound.items()
            if target.name != function or parameter not in parameters
        }
        return _rendered(self.statements, self.names, left, self.roots)

    def origins(self) -> str:
        """Every value with the place that set it and what it replaced."""
        return origins.show(self.statements, self.names, self.bound)


def resolve(statements: Statements, roots: Collection[str] = ()) -> Resolved:
    """Imports what the statements import and finds what they name.

    Args:
      statements: of all files and flags.
      roots: full names of the functions that are called with what is bound to them; bindings that
        none of them leads to are refused.

    Raises:
      UserError: with every module that cannot be imported; or else with every function and
        parameter that is not there; or else with every argument that nothing sets, every value of
        a wrong type and every binding that has no effect.
    """
    if faults := list(import_all(statements.imports)):
        raise UserError(*faults)
    names = Names(statements.imports)
    bound: dict[parameters.Key, Binding] = {}
    faults = []
    for binding in statements.bindings:
        for reference in references(binding.value):
            if isinstance(reference, Reference):
                names.find(reference.selector, binding)
        if binding.selector and (target := names.find(binding.selector, binding)):
            bound[binding.scope, target, binding.parameter] = binding
            faults += parameters.unknown(target, binding)
    faults = [*names.faults, *faults]
    if not faults:
        faults += parameters.missing_in_calls(statements, names, bound)
        faults += parameters.still_required(bound)
        faults += values.wrong(bound, statements.final_macros())
        faults += reach.unreached(statements, names, bound, roots)
        faults += reach.replaced(statements, names, bound, roots)
    if faults:
        raise UserError(*dict.fromkeys(faults))
    return Resolved(_rendered(statements, names, bound, roots), bound, statements, names, roots)


def _rendered(
    statements: Statements, names: Names, bound: parameters.Bound, roots: Collection[str]
) -> str:
    found = reach.effective(statements, names, bound, roots)
    return text.render(names, statements.imports, *found)
