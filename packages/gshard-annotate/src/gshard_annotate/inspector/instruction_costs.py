"""What one instruction of a final program computes and moves.

FLOPs are those of matrix products and convolutions, two per multiply-add, wherever they stand:
as operations, inside fusions or as a library's call. Bytes are what each operation that is not
inside a fusion reads and writes in main memory: a slice counts as itself and not as what it is cut
from, an update in place as what it writes, and what a TPU keeps in its fast memory not at all.
Vector operations are the numbers that other arithmetic makes, also inside fusions, each as one
operation: what a unit for vectors has to do at least. For each number a running sum counts as many
steps as it takes by doubling, a sort as many comparisons as its order holds bits, a scatter one.
Random bits that the chip itself draws are not counted.
"""

import functools
import math
import re
from collections.abc import Callable, Iterable

import numpy as np

from gshard_annotate.inspector.hlo import Array, Computation, Instruction, Program

_WINDOW = re.compile(r"(\w+)=(\S+)")
_SLICES = ("slice", "dynamic-slice", "gather")
_ARITHMETIC = """abs add and atan2 cbrt ceil clamp compare convert cosine count-leading-zeros
divide erf exponential exponential-minus-one floor is-finite log log-plus-one logistic maximum
minimum multiply negate not or popcnt power reduce-precision remainder round-nearest-afz
round-nearest-even rsqrt select shift-left shift-right-arithmetic shift-right-logical sign sine
sqrt subtract tan tanh xor"""
_VECTOR = frozenset(_ARITHMETIC.split())
_PRECISION = re.compile(r"operand_precision=\{(\w+)")
# How many bfloat16 products make one of float32 (docs.jax.dev, jax.lax.Precision).
_PASSES = {"highest": 6, "high": 3}


class Counter:
    """Counts the FLOPs and bytes of a program's instructions.

    Args:
      program: The program.
      fast_memory: Whether arrays in other memory spaces than the main one cost nothing.
    """

    def __init__(self, program: Program, fast_memory: bool):
        self.program, self.fast_memory = program, fast_memory
        self._fused: dict[tuple[str, str], int] = {}
        self._users: dict[str, dict[str, list[Instruction]]] = {}

    def flops(self, one: Instruction) -> int:
        """Of matrix products and convolutions in one run of it, and in what it calls."""
        if one.opcode == "dot":
            return _dot_flops(one, self._operand_arrays(one))
        if one.opcode == "convolution":
            return _convolution_flops(one, self._operand_arrays(one))
        if one.opcode == "fusion":
            return self._inside(one, self.flops)
        if one.opcode == "custom-call":
            return self._library_flops(one)
        return 0

    def rounded_flops(self, one: Instruction) -> int:
        """Those of the bfloat16 products that make up the products in one run of it."""
        if one.opcode == "fusion":
            return self._inside(one, self.rounded_flops)
        flops = self.flops(one)
        if not flops or (found := _PRECISION.search(one.attributes)) is None:
            return flops
        wide = all(each[0].dtype == "f32" for each in self._operand_arrays(one)[:2])
        return flops * (_PASSES.get(found[1], 1) if wide else 1)

    def vector_operations(self, one: Instruction) -> int:
        """Numbers that arithmetic other than products makes in one run of it."""
        if one.opcode in _VECTOR:
            return one.arrays[0].elements
        if one.opcode == "fusion":
            return self._inside(one, self.vector_operations)
        if one.opcode == "reduce":
            return sum(each[0].elements for each in self._operand_arrays(one)[:1])
        if one.opcode in ("reduce-window", "select-and-scatter"):
            return one.arrays[0].elements * _doublings(_window_places(one))
        if one.opcode == "sort":
            length = one.arrays[0].dims[int(one.attribute("dimensions").strip("{}"))]
            return one.arrays[0].elements * _doublings(length)
        if one.opcode == "scatter":  # operands, places, then an update for each operand
            return sum(each[0].elements for each in self._operand_arrays(one)[-len(one.arrays) :])
        return 0

    def bytes(self, one: Instruction) -> int:
        """Read and written in main memory in one run of it."""
        if one.opcode == "fusion" and one.called():
            return self._fusion_bytes(one, self.program.computations[one.called()[0][1]])
        operands = self._operand_arrays(one)
        made = self._size(one.arrays)
        if one.opcode in ("slice", "dynamic-slice"):
            return 2 * made
        if one.opcode == "gather":
            return 2 * made + self._size(operands[1])
        if one.opcode == "dynamic-update-slice":
            return 2 * self._size(operands[1])
        if one.opcode == "copy-start":
            return self._size(one.arrays[:2])  # target and source, then a scalar of context
        if one.opcode.endswith("-start"):
            return 2 * sum(map(self._size, operands))
        return made + sum(map(self._size, operands))

    def _inside(self, one: Instruction, count: Callable[[Instruction], int]) -> int:
        """The sum of a count over the inside of a fusion."""
        total = 0
        for _, name in one.called():
            key = (count.__name__, name)
            if key not in self._fused:
                self._fused[key] = 0
                if (inside := self.program.computations.get(name)) is not None:
                    self._fused[key] = sum(map(count, inside.instructions.values()))
            total += self._fused[key]
        return total

    def _library_flops(self, one: Instruction) -> int:
        target = one.attribute("custom_call_target")
        operands = self._operand_arrays(one)
        if "matmul" in target or "gemm" in target:
            return _matmul_flops(one.arrays[0], operands[0][0], operands[1][0])
        if "conv" in target and one.attribute("dim_labels"):
            return _convolution_flops(one, operands)
        return 0

    def _fusion_bytes(self, one: Instruction, inside: Computation) -> int:
        users = self._users_in(inside)
        total = 0
        for number, arrays in enumerate(self._operand_arrays(one)):
            total += self._read(inside.parameters.get(number), arrays, users)
        root = inside.root
        written = root.operands if root.opcode == "tuple" else [root.name]
        outputs = one.arrays
        for array, name in zip(outputs, written, strict=False):
            maker = _through_bitcasts(inside, name)
            if maker is not None and maker.opcode == "dynamic-update-slice":
                update = inside.instructions[maker.operands[1]]
                total += self._size([array]) and update.bytes
            else:
                total += self._size([array])
        return total

    def _read(self, parameter: Instruction | None, arrays, users) -> int:
        """What a fusion reads of one operand."""
        size = self._size(arrays)
        if parameter is None or not size:
            return size
        read, waiting = 0, [parameter]
        while waiting:
            for user in users.get(waiting.pop().name, ()):
                first = user.operands[0] if user.operands else ""
                if user.opcode == "bitcast":
                    waiting.append(user)
                elif user.opcode in _SLICES and _leads(first, parameter, user, users):
                    read += user.bytes
                elif user.opcode == "dynamic-update-slice" and _leads(
                    first, parameter, user, users
                ):
                    continue  # updated in place: counted where it is written
                else:
                    return size
        return min(read, size)

    def _users_in(self, inside: Computation) -> dict[str, list[Instruction]]:
        if inside.name not in self._users:
            users: dict[str, list[Instruction]] = {}
            for one in inside.instructions.values():
                for name in one.operands:
                    users.setdefault(name, []).append(one)
            self._users[inside.name] = users
        return self._users[inside.name]

    def _operand_arrays(self, one: Instruction) -> list[tuple[Array, ...]]:
        known = self.program.computations[one.computation].instructions
        return [known[name].arrays for name in one.operands if name in known]

    def _size(self, arrays: Iterable[Array]) -> int:
        return sum(a.bytes for a in arrays if not (self.fast_memory and a.space))


def _doublings(count: int) -> int:
    return max(1, (count - 1).bit_length())


def _window_places(one: Instruction) -> int:
    window = dict(_WINDOW.findall(one.attribute("window").strip("{}")))
    return math.prod(int(size) for size in window.get("size", "1").split("x"))


def _leads(first: str, parameter: Instruction, user: Instruction, users) -> bool:
    """Whether `user` cuts from the parameter itself, rather than being told by it where to cut."""
    if first == parameter.name:
        return True
    return any(
        one.name == first and one.opcode == "bitcast" for one in users.get(parameter.name, ())
    )


def _through_bitcasts(inside: Computation, name: str) -> Instruction | None:
    one = inside.instructions.get(name)
    while one is not None and one.opcode in ("bitcast", "convert", "copy"):
        one = inside.instructions.get(one.operands[0])
    return one


def _dot_flops(one: Instruction, operands: list) -> int:
    contracting = [int(d) for d in re.findall(r"\d+", one.attribute("lhs_contracting_dims"))]
    left = operands[0][0]
    return 2 * one.arrays[0].elements * math.prod(left.dims[d] for d in contracting)


def _matmul_flops(result: Array, left: Array, right: Array) -> int:
    """Of a library's product, however its operands lie: left * right / result = batch * K^2."""
    batch = math.prod(result.dims[:-2])
    squared = left.elements * right.elements // max(result.elements * batch, 1)
    return 2 * result.elements * math.isqrt(squared)


def _convolution_flops(one: Instruction, operands: list) -> int:
    """Multiply-adds at the positions where the window meets the input, padding left out."""
    left, kernel, result = operands[0][0], operands[1][0], one.arrays[0]
    labels = re.split(r"_|->", one.attribute("dim_labels"))
    window = dict(_WINDOW.findall(one.attribute("window").strip("{}")))
    spatial = [label for label in labels[0] if label.isdigit()]
    positions = 1
    for number, label in enumerate(spatial):
        low = _window_entry(window, "pad", number, "0_0").split("_")[0]
        positions *= _positions(
            left.dims[labels[0].index(label)],
            kernel.dims[labels[1].index(label)],
            result.dims[labels[2].index(label)],
            int(_window_entry(window, "stride", number, "1")),
            int(low),
            int(_window_entry(window, "lhs_dilate", number, "1")),
            int(_window_entry(window, "rhs_dilate", number, "1")),
        )
    inputs = kernel.dims[labels[1].index("i")]  # per group of features
    outputs = result.dims[labels[2].index("f")]
    batch = left.dims[labels[0].index("b")] // int(one.attribute("batch_group_count") or 1)
    return 2 * inputs * outputs * batch * positions


def _window_entry(window: dict[str, str], key: str, number: int, default: str) -> str:
    return window[key].split("x")[number] if key in window else default


@functools.cache
def _positions(
    size: int, kernel: int, result: int, stride: int, low: int, dilate: int, kernel_dilate: int
) -> int:
    """Pairs of result and kernel positions of one dimension that fall on an input element."""
    at = np.arange(result)[:, None] * stride + np.arange(kernel)[None] * kernel_dilate - low
    return int(((at >= 0) & (at < (size - 1) * dilate + 1) & (at % dilate == 0)).sum())
