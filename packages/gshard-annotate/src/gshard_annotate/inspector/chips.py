"""Peak figures of accelerators, and a model of the time that an exchange takes on their links.

A roofline: what the hardware cannot beat. Real steps take longer.
"""

import dataclasses
from collections.abc import Sequence
from typing import Any

from gshard_annotate.checks import did_you_mean

GIB = 2**30


@dataclasses.dataclass(frozen=True)
class Chip:
    """Peak figures of one JAX device, which on TPU v2 and v3 is one of the chip's two cores.

    Attributes:
      name: What reports call it.
      flops: bfloat16 operations per second of matrix products.
      memory_bandwidth: Bytes per second from and to main memory (HBM).
      memory_bytes: Size of main memory.
      link_bandwidth: Bytes per second of one link in one direction; this device's share of it.
      torus: Dimensions of the torus that the links make, each with two links (one per neighbour);
        0 when all devices of a node hang on one switch.
      node: Devices behind one switch; further ones are reached over the network.
      network_bandwidth: Bytes per second and direction of a device's way out of its node.
      source: Where the figures were published.
    """

    name: str
    flops: float
    memory_bandwidth: float
    memory_bytes: int
    link_bandwidth: float
    torus: int
    source: str
    node: int = 0
    network_bandwidth: float = 0.0

    def half(self) -> "Chip":
        """One core of it, for a topology that counts both cores of a chip as devices."""
        return dataclasses.replace(
            self,
            name=f"{self.name} core",
            flops=self.flops / 2,
            memory_bandwidth=self.memory_bandwidth / 2,
            memory_bytes=self.memory_bytes // 2,
            link_bandwidth=self.link_bandwidth / 2,
        )


_TPU = "cloud.google.com/tpu/docs (system architecture); links: jax-ml.github.io/scaling-book/tpus"
_V3 = Chip("TPU v3", 123e12, 900e9, 32 * GIB, 1e11, 2, _TPU)
_V4 = Chip("TPU v4", 275e12, 1228e9, 32 * GIB, 4.5e10, 3, _TPU)
_V5E = Chip("TPU v5e", 197e12, 819e9, 16 * GIB, 4.5e10, 2, _TPU)
_V5P = Chip("TPU v5p", 459e12, 2765e9, 95 * GIB, 9e10, 3, _TPU)
_V6E = Chip("TPU v6e", 918e12, 1640e9, 32 * GIB, 9e10, 2, _TPU)
# SXM modules, eight on an NVLink switch, one network adapter each (DGX systems).
_A100 = Chip(
    "NVIDIA A100", 312e12, 2039e9, 80 * 10**9, 300e9, 0,
    "nvidia.com: A100 80GB and DGX A100 data sheets", 8, 25e9,
)  # fmt: skip
_H100 = Chip(
    "NVIDIA H100", 989e12, 3350e9, 80 * 10**9, 450e9, 0,
    "nvidia.com: H100 SXM and DGX H100 data sheets", 8, 50e9,
)  # fmt: skip
_H200 = Chip(
    "NVIDIA H200", 989e12, 4800e9, 141 * 10**9, 450e9, 0,
    "nvidia.com: H200 SXM and DGX H200 data sheets", 8, 50e9,
)  # fmt: skip

# By the name that a user gives.
CHIPS = {
    "v3": _V3.half(),
    "v4": _V4,
    "v5e": _V5E,
    "v5p": _V5P,
    "v6e": _V6E,
    "a100": _A100,
    "h100": _H100,
    "h200": _H200,
}
# By what JAX calls a device (`device_kind`), in full or its beginning; the longest one counts.
_KINDS = {
    "TPU v3": "v3",
    "TPU v4": "v4",
    "TPU v5": "v5p",
    "TPU v5p": "v5p",
    "TPU v5 lite": "v5e",
    "TPU v5e": "v5e",
    "TPU v6 lite": "v6e",
    "TPU v6e": "v6e",
    "NVIDIA A100": "a100",
    "NVIDIA H100": "h100",
    "NVIDIA H200": "h200",
}


def find_chip(name: str | Chip) -> Chip:
    """The chip called `v3`, `TPU v3`, `H100` or so.

    Raises:
      ValueError: No such chip is known; a `Chip` with its figures can be given instead.
    """
    if isinstance(name, Chip):
        return name
    short = name.lower().replace("tpu", "").replace("nvidia", "").strip(" -_")
    short = short.removesuffix(" core")
    if short not in CHIPS:
        raise ValueError(
            f"inspect: no figures for chip '{name}'{did_you_mean(short, CHIPS)} "
            f"(known: {', '.join(CHIPS)}); or give a Chip with its figures"
        )
    return CHIPS[short]


def chip_of(devices: Sequence[Any]) -> Chip | None:
    """The chip that these devices are; None when it is not known, as a CPU."""
    kind = devices[0].device_kind if devices else ""
    near = [known for known in _KINDS if kind.startswith(known)]
    if not near:
        return None
    chip = CHIPS[_KINDS[max(near, key=len)]]
    # TPU v4 chips may be one device or two.
    two = chip is _V4 and any(getattr(device, "core_on_chip", 0) for device in devices)
    return chip.half() if two else chip


def torus_sides(devices: Sequence[Any], chip: Chip) -> tuple[int, ...]:
    """How far a group of devices reaches along each torus dimension of their chips.

    Devices without coordinates (a CPU that stands for them) count as the most compact block.
    """
    coords = {tuple(coord) for device in devices if (coord := getattr(device, "coords", None))}
    if coords:
        sides = [len(set(column)) for column in zip(*coords, strict=True)]
        return tuple(side for side in sides if side > 1) or (1,)
    return compact_sides(len(devices), chip)


def compact_sides(count: int, chip: Chip) -> tuple[int, ...]:
    """Sides of the block of `count` devices that is nearest to a cube."""
    sides, left = [], count
    for dims in range(max(chip.torus, 1), 0, -1):
        side = max(1, round(left ** (1 / dims)))
        while left % side:
            side -= 1
        # The largest side comes last, so that a prime number of devices is a line.
        sides.append(side if dims > 1 else left)
        left //= side
    return tuple(side for side in sides if side > 1) or (1,)


def exchange_seconds(
    kind: str, num_bytes: int, group: int, chip: Chip, sides: tuple[int, ...] | None = None
) -> float:
    """Estimated time of one exchange; a model of bandwidth alone, without latency or contention.

    With n devices in a group and `num_bytes` the whole array on one device:

    - Torus: the group is a block of it with these sides. all-gather and reduce-scatter move
      (n-1)/n of the array through both links of each dimension that the block spans, all-reduce
      twice that. In an all-to-all a piece travels a quarter of each ring on average, so that
      side/8 of the array crosses each link of the longest side. A collective-permute sends the
      array over one link.
    - Switch: the same without hops: (n-1)/n of the array at the device's bandwidth, that of the
      network when the group is larger than a node.

    Args:
      kind: all-gather, all-reduce and so on.
      num_bytes: The array: the gathered result, the operand of a reduce-scatter, otherwise what
        each device has.
      group: How many devices exchange.
      chip: Their figures.
      sides: The block's sides in chips; the most compact one when not given.
    """
    if group <= 1 or not num_bytes:
        return 0.0
    crossing = num_bytes * (group - 1) / group * (2 if kind == "all-reduce" else 1)
    if not chip.torus:
        bandwidth = chip.link_bandwidth if group <= chip.node else chip.network_bandwidth
        return (num_bytes if kind == "collective-permute" else crossing) / bandwidth
    sides = sides or compact_sides(group, chip)
    if kind == "collective-permute":
        return num_bytes / chip.link_bandwidth
    if kind in ("all-to-all", "ragged-all-to-all"):
        return num_bytes * max(*sides, 2) / 8 / chip.link_bandwidth
    return crossing / (2 * len(sides) * chip.link_bandwidth)
