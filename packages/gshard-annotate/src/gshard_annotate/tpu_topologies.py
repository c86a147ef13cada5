"""Names of TPU machines as the TPU compiler takes them: `v3:32x32`, a kind and sides in chips.

Kinds and rules as libtpu 0.0.42 has them; a host of any kind has 2 x 2 chips. The largest machines
are those of cloud.google.com/tpu/docs, a page for each kind.
"""

import math
import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

from gshard_annotate.checks import did_you_mean


class Kind(NamedTuple):
    """A kind of TPU.

    Attributes:
      sides: how many a machine of it has.
      cores: of a chip, by which Google's names of machines count (v3-2048) where there are two.
      chips: of the largest machine.
      examples: sides of machines.
      options: for the compiler, without which its devices are not what JAX finds on such a machine.
    """

    sides: int
    cores: int
    chips: int
    examples: tuple[str, ...]
    options: Mapping[str, Any] = MappingProxyType({})


# Both cores of a chip as one device: what JAX has on v4. MaxText compiles ahead with the same.
_MEGACORE = MappingProxyType({"chip_config_name": "megacore"})
KINDS = {
    "v2": Kind(2, 2, 256, ("2x2", "4x4", "8x8", "16x16")),
    "v3": Kind(2, 2, 1024, ("2x2", "4x4", "8x8", "16x16", "32x32")),
    "v4": Kind(3, 2, 4096, ("2x2x1", "2x2x4", "4x4x4", "8x8x8", "8x8x16", "16x16x16"), _MEGACORE),
    "v5e": Kind(2, 1, 256, ("1x1", "2x2", "2x4", "4x4", "8x8", "16x16")),
    "v5p": Kind(3, 2, 8960, ("2x2x1", "4x4x4", "8x8x8", "16x16x24")),
    "v6e": Kind(2, 1, 256, ("1x1", "2x2", "2x4", "4x4", "8x8", "16x16")),
    "tpu7x": Kind(3, 2, 9216, ("2x2x1", "4x4x4", "8x8x8")),
}
_HOST = (2, 2, 1)
_OTHER_NAMES = {"v5litepod": "v5e", "v5lite": "v5e", "v5": "v5p", "v7": "tpu7x", "v7x": "tpu7x"}
_NAME = re.compile(r"(\w+?)[:=_]([0-9]+(?:x[0-9]+)*)(_twisted|_untwisted)?")
_ACCELERATOR = re.compile(r"(\w+)-([0-9]+)")


def topology_fault(name: str) -> str:
    """Why there is no machine of this name, with names that there are; empty where there is one."""
    if found := _ACCELERATOR.fullmatch(name):
        return _of_accelerator(found[1], int(found[2]))
    found = _NAME.fullmatch(name)
    if not found:
        return f"give a kind and sides in chips, such as {_examples()}"
    kind, sides = found[1], [int(side) for side in found[2].split("x")]
    if kind not in KINDS:
        near = _OTHER_NAMES.get(kind)
        hint = f"; did you mean '{near}'?" if near else did_you_mean(kind, KINDS)
        return f"there is no kind '{kind}'{hint} (known: {_examples()})"
    if len(sides) != KINDS[kind].sides:
        shapes = ", ".join(f"{kind}:{shape}" for shape in KINDS[kind].examples)
        return f"a {kind} machine has {KINDS[kind].sides} sides, this has {len(sides)}: {shapes}"
    if _is_one_chip(kind, sides):
        return ""
    # On both sides the nearest whole hosts.
    low = [max(host, side // host * host) for side, host in zip(sides, _HOST, strict=False)]
    high = [max(host, -(-side // host) * host) for side, host in zip(sides, _HOST, strict=False)]
    if low != sides or high != sides:
        near = " or ".join(f"{kind}:{'x'.join(map(str, each))}" for each in _unique(low, high))
        return f"its first two sides must be even, since a host has 2x2 chips; near it: {near}"
    return _too_large(kind, sides)


def _too_large(kind: str, sides: list[int]) -> str:
    """That there is no machine so large; a plane one is at most as long as the largest is wide."""
    chips, largest = math.prod(sides), KINDS[kind].chips
    plane = KINDS[kind].sides == 2
    if chips <= largest and not (plane and max(sides) > math.isqrt(largest)):
        return ""
    return (
        f"it has {chips:,} chips, and the largest {kind} machine has {largest:,}"
        + (f" ({KINDS[kind].examples[-1]})" if plane else "")
        + "; take a smaller one, or several as slices (num_slices)"
    )


def options_of(name: str) -> dict[str, Any]:
    """What the compiler has to be told beside a name that has no fault."""
    found = _NAME.fullmatch(name)
    assert found
    sides = [int(side) for side in found[2].split("x")]
    one = {"chips_per_host_bounds": (1, 1, 1)} if _is_one_chip(found[1], sides) else {}
    return {**KINDS[found[1]].options, **one}


def _is_one_chip(kind: str, sides: list[int]) -> bool:
    """Whether it is a machine of one chip, where there are such hosts."""
    return kind in ("v5e", "v6e") and set(sides) == {1}


def _of_accelerator(kind: str, count: int) -> str:
    """What to call `v3-2048`, whose number counts cores on kinds with two of them."""
    kind = _OTHER_NAMES.get(kind, kind)
    if kind not in KINDS:
        return f"give a kind and sides in chips, such as {_examples()}"
    chips = count // KINDS[kind].cores
    shapes = [shape for shape in KINDS[kind].examples if _chips(shape) == chips]
    near = f"{kind}:{shapes[0]}" if shapes else f"one with {chips} chips, such as {_examples()}"
    return f"machines are named by their sides in chips; did you mean {near}?"


def _chips(shape: str) -> int:
    return math.prod(map(int, shape.split("x")))


def _examples() -> str:
    return ", ".join(f"{kind}:{each.examples[-1]}" for kind, each in KINDS.items())


def _unique(*shapes: list[int]) -> list[list[int]]:
    return [shape for place, shape in enumerate(shapes) if shape not in shapes[:place]]
