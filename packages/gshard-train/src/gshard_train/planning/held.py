"""What a device holds of a model's state between steps, from shapes and rules alone."""

import collections
import dataclasses
import functools
import math
from collections.abc import Mapping
from typing import Any

import jax
import optax

from gshard_annotate import Rules
from gshard_annotate.checks import axes_tuple
from gshard_train import state
from gshard_train.monitoring.overview import device_bytes
from gshard_train.planning.meshes import BATCH_AXES, abstract_mesh, batch_parts


@dataclasses.dataclass(frozen=True, kw_only=True)
class HeldParameter:
    """A parameter of a stack of layers or of the model's ends.

    Attributes:
      bytes: on one device.
      copies: devices of a slice that add up its gradient: those that split the batch and not the
        parameter. What goes from slice to slice is in no program, and so not in its estimate.
      gathered_from: devices that it is gathered from when its layer runs (FSDP); 1 for none.
    """

    bytes: int
    copies: int
    gathered_from: int


@dataclasses.dataclass(frozen=True, kw_only=True)
class Held:
    """The state on one device."""

    parameters: tuple[HeldParameter, ...]
    optimizer_bytes: int

    @functools.cached_property
    def parameter_bytes(self) -> int:
        """Of all parameters."""
        return sum(each.bytes for each in self.parameters)

    @functools.cached_property
    def exchanged_bytes(self) -> Mapping[tuple[int, int], int]:
        """Of all parameters with the same `copies` and `gathered_from`."""
        found: collections.Counter[tuple[int, int]] = collections.Counter()
        for each in self.parameters:
            found[each.copies, each.gathered_from] += each.bytes
        return found

    @functools.cached_property
    def gathered_bytes(self) -> int:
        """Of all parameters as a layer sees them that runs."""
        return sum(each.bytes * each.gathered_from for each in self.parameters)

    @property
    def bytes(self) -> int:
        """Of parameters and optimizer."""
        return self.parameter_bytes + self.optimizer_bytes


def held(
    model: state.Model,
    optimizer: optax.GradientTransformation,
    rules: Rules,
    sizes: Mapping[str, int],
    *,
    offload_optimizer: bool = False,
) -> Held:
    """What one device of a mesh with axes of these sizes holds.

    Raises:
      ValueError: parameters that the mesh does not divide.
    """
    shapes = state.abstract_state(model, optimizer, rules, abstract_mesh(sizes))
    leaves = jax.tree.leaves(shapes.params)
    names = jax.tree.structure(shapes.params).flatten_up_to(model.names())
    return Held(
        parameters=tuple(
            _parameter(leaf, tuple(each), sizes) for leaf, each in zip(leaves, names, strict=True)
        ),
        optimizer_bytes=0 if offload_optimizer else device_bytes(shapes.opt_state),
    )


def _parameter(leaf: Any, names: tuple[str | None, ...], sizes: Mapping[str, int]) -> HeldParameter:
    split, gathered_from = 1, 1
    for name, axes in zip(names, leaf.sharding.spec, strict=False):
        parts = math.prod(sizes[axis] for axis in axes_tuple(axes) if axis in BATCH_AXES)
        split *= parts
        # Experts stay where they are: tokens come to them. Tables give rows, not themselves.
        gathered_from *= parts if name != "expert" and "layer" in names else 1
    return HeldParameter(
        bytes=device_bytes(leaf),
        copies=batch_parts(sizes) // sizes.get("replica", 1) // split,
        gathered_from=gathered_from,
    )
