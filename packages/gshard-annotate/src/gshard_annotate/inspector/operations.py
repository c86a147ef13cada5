"""To which operation of the user's program each piece of a compiled program's work belongs.

XLA fuses operations, and its copies lose their names. A fusion's work goes to the matrix products
inside it by their FLOPs, else to all that it computes by bytes. What stands in no scope of its own
(slices of stacked weights, copies, residual sums) goes to the scope that made its operands, else to
the one that uses it.
"""

import functools
import re
from collections import Counter
from collections.abc import Callable, Iterator
from typing import NamedTuple

from gshard_annotate.inspector.flow import Flow, Node
from gshard_annotate.inspector.hlo import Computation, Instruction
from gshard_annotate.inspector.origins import names

# What JAX puts around a name for a transformation, and the steps of its control flow.
_WRAPPED = re.compile(r"(\w+)\((.*)\)$")
_FUNCTIONS = ("jit", "pjit", "xla_call")
_STEPS = """while body cond checkpoint rematted_computation remat remat2 closed_call core_call
custom_jvp_call custom_vjp_call custom_vjp_call_jaxpr custom_lin shard_map scan"""
_STRUCTURE = frozenset(_STEPS.split())
# Branches of a conditional, the subscripts of einsums, `annotate[...]` and the like, functions by
# their full name as `Layer.apply`.
_NO_SCOPE = re.compile(r"^branch_\d+_fun$|->|\[|\w\.[a-zA-Z_<]")
# XLA's own operations have its instructions' names.
_NUMBER = re.compile(r"\.\d+$")
_NO_WORK = frozenset(("parameter", "constant", "tuple", "get-tuple-element", "bitcast", "iota"))
_STEPS_AWAY = 4


class Name(NamedTuple):
    """What an op_name says.

    Attributes:
      scope: The named scopes around the operation, each once, as `attention/projections`.
      primitive: The operation, as `dot_general`.
      backward: Whether it is part of a gradient.
      recomputed: Whether a backward pass computes it again.
    """

    scope: str
    primitive: str
    backward: bool
    recomputed: bool


@functools.lru_cache(maxsize=65536)
def name_of(op_name: str) -> Name:
    """What an op_name says; of one that stands for several operations, the first."""
    first = next(iter(names(op_name)), "")
    *path, primitive = first.split("/")
    recomputed = "rematted_computation" in first
    return Name(
        scope="/".join(dict.fromkeys(each for one in path if (each := _scope(one)))),
        primitive=_NUMBER.sub("", primitive),
        backward="transpose(" in first and not recomputed,
        recomputed=recomputed,
    )


def _scope(step: str) -> str:
    while match := _WRAPPED.match(step):
        if match[1] in _FUNCTIONS:
            return ""
        step = match[2]
    return "" if step in _STRUCTURE or _NO_SCOPE.search(step) else step


class Shares:
    """Divides the work of each instruction among the operations that it comes from.

    Args:
      flow: The data flow of the compiled program.
      flops: Of one instruction.
    """

    def __init__(self, flow: Flow, flops: Callable[[Instruction], int]):
        self._flow, self._program, self._flops = flow, flow.program, flops
        self._inside: dict[str, dict[Name, float]] = {}
        self._names: dict[tuple[str, str], Name] = {}

    def of(self, one: Instruction) -> dict[Name, float]:
        """Shares that add up to 1."""
        found = self._named(one)
        if all(name.scope for name in found):
            return found
        return _merged(
            (name if name.scope else self._adopted(one, name), share)
            for name, share in found.items()
        )

    def _named(self, one: Instruction) -> dict[Name, float]:
        if one.opcode == "fusion" and (called := one.called()):
            inside = self._program.computations.get(called[0][1])
            if inside is not None:
                if inside.name not in self._inside:
                    self._inside[inside.name] = self._of_fusion(one, inside)
                return self._inside[inside.name]
        return {self._own_name(one): 1.0}

    def _of_fusion(self, fusion: Instruction, inside: Computation) -> dict[Name, float]:
        weights: Counter[Name] = Counter()
        for one in inside.instructions.values():
            if flops := self._flops(one):
                weights[self._own_name(one)] += flops
        if not weights:
            for one in inside.instructions.values():
                if one.opcode not in _NO_WORK and one.op_name:
                    weights[self._own_name(one)] += max(one.bytes, 1)
            # What the root is called counts if nothing inside has a scope.
            scoped = Counter({name: weight for name, weight in weights.items() if name.scope})
            weights = scoped or Counter({self._own_name(fusion): 1})
        total = sum(weights.values())
        return {name: weight / total for name, weight in weights.items()}

    def _adopted(self, one: Instruction, name: Name) -> Name:
        """The name with the scope of what is nearest to it and has one."""
        near = self._near(one, self._flow.sources) or self._near(one, self._flow.uses)
        if near is None:
            return name
        return Name(near.scope, name.primitive, near.backward, near.recomputed)

    def _near(self, one: Instruction, step: Callable[[Node], list[Node]]) -> Name | None:
        """The largest part of what does most work among the nearest that have a scope."""
        edge = [Node(one), *(Node(one, number) for number in range(len(one.arrays)))]
        seen = {node.key for node in edge}
        for _ in range(_STEPS_AWAY):
            reached, scoped = [], []
            for node in (node for each in edge for node in step(each)):
                other = node.instruction
                if node.key in seen:
                    continue
                seen.add(node.key)
                if found := next((each for each in self._named(other) if each.scope), None):
                    scoped.append((self._flops(other), other.bytes, found))
                else:
                    reached.append(node)
            if scoped:
                return max(scoped)[2]
            edge = reached[:20]
        return None

    def _own_name(self, one: Instruction) -> Name:
        key = (one.computation, one.name)
        if key not in self._names:
            name = name_of(one.op_name)
            self._names[key] = name if name.primitive else name._replace(primitive=one.opcode)
        return self._names[key]


def _merged(pairs: Iterator[tuple[Name, float]]) -> dict[Name, float]:
    merged: dict[Name, float] = {}
    for name, share in pairs:
        merged[name] = merged.get(name, 0.0) + share
    return merged
