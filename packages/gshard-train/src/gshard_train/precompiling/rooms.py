"""What takes the room on a device: arrays that lie there, and the compiler's temporaries."""

import dataclasses
from collections.abc import Iterator

from gshard_annotate.inspector.operations import name_of
from gshard_train.precompiling.job import Facts, Result

_MOST = 20


@dataclasses.dataclass(frozen=True, kw_only=True)
class Room:
    """Arrays that take room on a device and are alike.

    Attributes:
      what: `parameters`, `optimizer`, `batch` or `temporary`.
      name: the path of the first of them, or the operation that makes it with its scope.
      count: how many they are.
      shape: of each, with its type: whole or, of temporaries, the device's part.
      split: mesh axes of each dimension; "" for temporaries.
      bytes: on one device, of all of them.
      source: file and line, where it is known.
    """

    what: str
    name: str
    count: int = 1
    shape: str
    split: str
    bytes: int
    source: str = ""

    @property
    def names(self) -> str:
        """The name, and how many more there are."""
        return self.name if self.count == 1 else f"{self.name} and {self.count - 1:,} alike"


def rooms(result: Result, facts: Facts) -> tuple[Room, ...]:
    """Temporaries, where the compiler names them, and what lies on the devices anyway."""
    alike: dict[tuple[str, str, str, str, str], list[Room]] = {}
    for one in _all(result, facts):
        named = one.name if one.what == "temporary" else ""
        alike.setdefault((one.what, one.shape, one.split, one.source, named), []).append(one)
    found = [
        dataclasses.replace(group[0], count=len(group), bytes=sum(one.bytes for one in group))
        for group in alike.values()
    ]
    return tuple(sorted(found, key=lambda one: -one.bytes)[:_MOST])


def _operation(op_name: str) -> str:
    """An operation's scope and primitive, as `attention/dot_general (backward)`."""
    name = name_of(op_name)
    place = "/".join(filter(None, (name.scope, name.primitive)))
    return f"{place} (backward)" if name.backward else place


def _all(result: Result, facts: Facts) -> Iterator[Room]:
    for one in result.fault.allocations if result.fault else ():
        if one.op_name:  # others are arguments, which the facts have
            yield Room(
                what="temporary",
                name=_operation(one.op_name),
                shape=one.shape.partition("{")[0],
                split="",
                bytes=one.bytes,
                source=one.source,
            )
    for one in facts.tensors:
        if one.on_host:
            continue
        shape = f"{one.dtype}[{','.join(map(str, one.shape))}]"
        yield Room(
            what=one.what, name=one.name, shape=shape, split=one.split, bytes=one.device_bytes
        )
