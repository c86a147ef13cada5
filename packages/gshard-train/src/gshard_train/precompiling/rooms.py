"""What takes the room on a device: arrays that lie there, and the compiler's temporaries."""

import dataclasses

from gshard_train.precompiling.job import Facts, Result

_MOST = 20


@dataclasses.dataclass(frozen=True, kw_only=True)
class Room:
    """An array that takes room on a device.

    Attributes:
      what: `parameters`, `optimizer`, `batch`, `cache` or `temporary`.
      name: its path, or the operation that makes it.
      shape: with its type, whole or, of temporaries, the device's part.
      split: mesh axes of each dimension; "" for temporaries.
      bytes: on one device.
      source: file and line, where it is known.
    """

    what: str
    name: str
    shape: str
    split: str
    bytes: int
    source: str = ""


def rooms(result: Result, facts: Facts) -> tuple[Room, ...]:
    """Temporaries, where the compiler names them, and what lies on the devices anyway."""
    named = result.fault.allocations if result.fault else ()
    found = [
        Room(what="temporary", name=one.op_name, shape=one.shape, split="", bytes=one.bytes,
             source=one.source)
        for one in named if one.op_name
    ]  # fmt: skip
    found += [
        Room(what=one.what, name=one.name, shape=_shape(one.dtype, one.shape), split=one.split,
             bytes=one.device_bytes)
        for one in facts.tensors
    ]  # fmt: skip
    return tuple(sorted(found, key=lambda one: -one.bytes)[:_MOST])


def _shape(dtype: str, shape: tuple[int, ...]) -> str:
    return f"{dtype}[{','.join(map(str, shape))}]"
