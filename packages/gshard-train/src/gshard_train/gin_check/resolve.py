"""Statements whose every name is known, as one text."""

from typing import NamedTuple

from gshard_train.errors import UserError
from gshard_train.gin_check import parameters, text
from gshard_train.gin_check.names import Names, import_all
from gshard_train.gin_check.statements import Binding, Reference, Statements, references


class Resolved(NamedTuple):
    """What gin is given, and the last binding of each parameter."""

    text: str
    bound: parameters.Bound


def resolve(statements: Statements) -> Resolved:
    """Imports what the statements import and finds what they name.

    Raises:
      UserError: with every module that cannot be imported, or else with every function and
        parameter that is not there and every argument that nothing sets.
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
    if faults:
        raise UserError(*dict.fromkeys(faults))
    return Resolved(text.render(statements, names, bound), bound)
