"""Peak figures of accelerators: what the hardware cannot beat."""

import dataclasses

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
      source: Where the figures were published.
      node: Devices behind one switch; further ones are reached over the network.
      network_bandwidth: Bytes per second and direction of a device's share of the way out of its
        node, or out of its slice.
      ring: A torus dimension of this many chips, or of a multiple, is closed to a ring; others are
        lines, over which most exchanges take twice as long.
      vector_rate: Operations per second on single numbers (32 bit), as many as there are
        arithmetic units and cycles; 0 where that is not known.
      rounds: Whether products of float32 are made of bfloat16 ones: one where no precision is
        asked for, three for "high", six for "highest".
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
    ring: int = 1
    vector_rate: float = 0.0
    rounds: bool = False

    def half(self) -> "Chip":
        """One core of it, for a topology that counts both cores of a chip as devices."""
        return dataclasses.replace(
            self,
            name=f"{self.name} core",
            flops=self.flops / 2,
            memory_bandwidth=self.memory_bandwidth / 2,
            memory_bytes=self.memory_bytes // 2,
            link_bandwidth=self.link_bandwidth / 2,
            network_bandwidth=self.network_bandwidth / 2,
            vector_rate=self.vector_rate / 2,
        )


_TPU = (
    "cloud.google.com/tpu/docs (system architecture); links, rings, network, vector units: "
    "jax-ml.github.io/scaling-book/tpus; precision: docs.jax.dev (jax.lax.Precision)"
)


def _tpu(
    name: str,
    flops: float,
    memory_bandwidth: float,
    memory_gib: int,
    link_bandwidth: float,
    torus: int,
    *,
    ring: int,
    network_bandwidth: float,
    vector_rate: float = 0.0,
) -> Chip:
    return Chip(
        name,
        flops,
        memory_bandwidth,
        memory_gib * GIB,
        link_bandwidth,
        torus,
        _TPU,
        network_bandwidth=network_bandwidth,
        ring=ring,
        vector_rate=vector_rate,
        rounds=True,
    )


# Vector rates: cores * 8 * 128 lanes * arithmetic units in each (2 up to v4, then 4) * clock, which
# follows from the matrix units' peak. The network is 25 GB/s a host.
_V3 = _tpu("TPU v3", 123e12, 900e9, 32, 1e11, 2, ring=32, network_bandwidth=3.1e9,
           vector_rate=2 * 2048 * 0.94e9)  # fmt: skip
_V4 = _tpu("TPU v4", 275e12, 1228e9, 32, 4.5e10, 3, ring=4, network_bandwidth=6.25e9,
           vector_rate=2 * 2048 * 1.05e9)  # fmt: skip
_V5E = _tpu("TPU v5e", 197e12, 819e9, 16, 4.5e10, 2, ring=16, network_bandwidth=3.1e9,
            vector_rate=4096 * 1.5e9)  # fmt: skip
_V5P = _tpu("TPU v5p", 459e12, 2765e9, 95, 9e10, 3, ring=4, network_bandwidth=6.25e9,
            vector_rate=2 * 4096 * 1.75e9)  # fmt: skip
_V6E = _tpu("TPU v6e", 918e12, 1640e9, 32, 9e10, 2, ring=16, network_bandwidth=3.1e9)


# SXM modules, eight on an NVLink switch, one network adapter each (DGX systems). Data sheets count
# a multiply-add of float32 as two operations, a vector rate as one.
def _nvidia(
    name: str, flops: float, bandwidth: float, gigabytes: int, link: float, network: float,
    float32_flops: float, sheets: str,
) -> Chip:  # fmt: skip
    return Chip(
        f"NVIDIA {name}",
        flops,
        bandwidth,
        gigabytes * 10**9,
        link,
        0,
        f"nvidia.com: {sheets} data sheets",
        8,
        network,
        vector_rate=float32_flops / 2,
    )


_A100 = _nvidia("A100", 312e12, 2039e9, 80, 300e9, 25e9, 19.5e12, "A100 80GB and DGX A100")
_H100 = _nvidia("H100", 989e12, 3350e9, 80, 450e9, 50e9, 67e12, "H100 SXM and DGX H100")
_H200 = _nvidia("H200", 989e12, 4800e9, 141, 450e9, 50e9, 67e12, "H200 SXM and DGX H200")

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
