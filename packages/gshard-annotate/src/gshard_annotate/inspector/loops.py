"""How often each part of a program runs.

A loop of `scan` has a fixed number of trips. XLA writes it down on CPU; elsewhere it follows from
the loop's condition: where the counter begins, what it is compared with and what is added to it.
"""

import math
import re
from collections.abc import Mapping
from typing import NamedTuple

from gshard_annotate.inspector.hlo import Computation, Instruction, Program

_KNOWN = re.compile(r'"known_trip_count":\{"n":"(\d+)"')
_SAME = ("copy", "convert", "bitcast", "reshape")


class Runs(NamedTuple):
    """How often each computation runs in one call of the program.

    Attributes:
      counts: By computation's name; a branch counts as often as its conditional.
      fused: The computations that are the inside of a fusion.
      unknown: The loops whose trips nobody can tell; they count with those that were assumed.
      trips: Trips of loops by their op_name, where all loops of that name have as many.
    """

    counts: dict[str, int]
    fused: frozenset[str]
    unknown: tuple[Instruction, ...]
    trips: dict[str, int]


def runs(program: Program, known: Mapping[str, int] | None = None, assumed: int = 1) -> Runs:
    """How often each computation runs.

    Args:
      program: What is looked at.
      known: Trips by op_name of loops seen elsewhere.
      assumed: Trips of the loops for which they depend on data.
    """
    callers: dict[str, list[tuple[str, int]]] = {}
    fused, unknown = set(), []
    trips: dict[str, int] = {}
    differing: set[str] = set()
    for instruction in program:
        factor = 1
        if instruction.opcode == "while":
            found = trip_count(program, instruction) or (known or {}).get(instruction.op_name)
            if found is None:
                unknown.append(instruction)
                differing.add(instruction.op_name)
                factor = assumed
            else:
                factor = found
                if trips.setdefault(instruction.op_name, found) != found:
                    differing.add(instruction.op_name)
        for _, name in instruction.called():
            callers.setdefault(name, []).append((instruction.computation, factor))
            if instruction.opcode == "fusion":
                fused.add(name)
    counts: dict[str, int] = {program.entry.name: 1}
    for name in program.computations:
        _count(name, callers, counts)
    same = {name: number for name, number in trips.items() if name not in differing}
    return Runs(counts, frozenset(fused), tuple(unknown), same)


def _count(name: str, callers: dict, counts: dict[str, int]) -> int:
    if name not in counts:
        counts[name] = 0  # computations that call themselves do not exist, broken text may
        counts[name] = sum(
            _count(caller, callers, counts) * factor for caller, factor in callers.get(name, ())
        )
    return counts[name]


def trip_count(program: Program, loop: Instruction) -> int | None:
    """How often a `while` runs its body; None when that depends on data."""
    if found := _KNOWN.search(loop.attributes):
        return int(found[1])
    called = dict(loop.called())
    condition = program.computations.get(called.get("condition", ""))
    body = program.computations.get(called.get("body", ""))
    if condition is None or body is None:
        return None
    try:
        return _Loop(program, loop, body).trips(condition)
    except (ValueError, KeyError, IndexError):
        return None


class _Linear(NamedTuple):
    """A number: an element of the loop's state (None: no element) plus a constant."""

    element: int | None
    constant: int


class _Loop:
    def __init__(self, program: Program, loop: Instruction, body: Computation):
        self.program, self.loop, self.body = program, loop, body

    def trips(self, condition: Computation) -> int | None:
        root, scope = self._through_fusion(condition.root, condition, {})
        if root.opcode != "compare":
            return None
        left, right = (self._linear(name, *scope) for name in root.operands)
        direction = root.attribute("direction")
        if left.element is None or self._step(left.element) == 0:
            left, right = right, left
            direction = {"LT": "GT", "GT": "LT", "LE": "GE", "GE": "LE"}.get(direction, direction)
        step = self._step(left.element)
        distance = self._start(right) - self._start(left)
        return _trips(direction, distance, step)

    def _step(self, element: int | None) -> int:
        """What one trip adds to an element of the state."""
        if element is None:
            return 0
        after = self._linear(self.body.root.operands[element], self.body, {})
        if after.element != element:
            raise ValueError("not a counter")
        return after.constant

    def _start(self, number: _Linear) -> int:
        """Its value before the first trip."""
        if number.element is None:
            return number.constant
        if self._step(number.element) and number.constant:
            raise ValueError("compared with a shifted counter")
        outside = self.program.computations[self.loop.computation]
        state = outside.instructions[self.loop.operands[0]]
        if state.opcode != "tuple":
            raise ValueError("state from elsewhere")
        start = self._linear(state.operands[number.element], outside, {}, inside=False)
        return start.constant + number.constant

    def _linear(
        self, name: str, where: Computation, arguments: dict, inside: bool = True
    ) -> _Linear:
        one = where.instructions[name]
        if one.opcode == "constant":
            return _Linear(None, int(one.literal))
        if one.opcode in _SAME:
            return self._linear(one.operands[0], where, arguments, inside)
        if one.opcode == "parameter" and int(one.literal) in arguments:
            return arguments[int(one.literal)]
        if one.opcode in ("add", "subtract"):
            left, right = (self._linear(each, where, arguments, inside) for each in one.operands)
            sign = 1 if one.opcode == "add" else -1
            if left.element is not None and right.element is not None:
                raise ValueError("two elements")
            if right.element is not None and sign < 0:
                raise ValueError("counter subtracted")
            element = left.element if right.element is None else right.element
            return _Linear(element, left.constant + sign * right.constant)
        if one.opcode == "fusion":
            root, (fused, inner) = self._through_fusion(one, where, arguments, inside)
            return self._linear(root.name, fused, inner, inside)
        if one.opcode == "get-tuple-element":
            return self._element(one, where, arguments, inside)
        raise ValueError(one.opcode)

    def _element(self, one: Instruction, where, arguments, inside: bool) -> _Linear:
        index, of = int(one.attribute("index")), where.instructions[one.operands[0]]
        if of.opcode == "parameter" and inside and not arguments:
            return _Linear(index, 0)
        if of.opcode == "tuple":
            return self._linear(of.operands[index], where, arguments, inside)
        if of.opcode == "fusion":
            root, (fused, inner) = self._through_fusion(of, where, arguments, inside)
            return self._linear(root.operands[index], fused, inner, inside)
        raise ValueError(of.opcode)

    def _through_fusion(self, one: Instruction, where, arguments, inside: bool = True):
        """The root of what a fusion computes, and where its parameters come from."""
        if one.opcode != "fusion":
            return one, (where, arguments)
        fused = self.program.computations[one.called()[0][1]]
        inner = {}
        for number, name in enumerate(one.operands):
            try:
                inner[number] = self._linear(name, where, arguments, inside)
            except ValueError:
                continue  # not a number; it may not matter
        return fused.root, (fused, inner)


def _trips(direction: str, distance: int, step: int) -> int | None:
    if not step:
        return None
    if direction in ("GT", "GE"):
        distance, step = -distance, -step
    if direction in ("LE", "GE"):
        distance += 1
    if step < 0:
        return None
    return max(0, math.ceil(distance / step))
