"""Which accelerator is meant, by a user's name or by what JAX calls it."""

from collections.abc import Sequence
from typing import Any

from gshard_annotate.checks import did_you_mean
from gshard_annotate.inspector.chip_figures import CHIPS as CHIPS
from gshard_annotate.inspector.chip_figures import Chip as Chip
from gshard_annotate.inspector.torus import compact_sides as compact_sides
from gshard_annotate.inspector.torus import exchange_seconds as exchange_seconds

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
    two = chip is CHIPS["v4"] and any(getattr(device, "core_on_chip", 0) for device in devices)
    return chip.half() if two else chip
