"""What a converter returns: parameters and settings of a MoELayer, and a report of the mapping."""

import dataclasses
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np
from flax import nnx

from gshard_annotate.checks import describe
from gshard_moe.converters.tensors import grouped
from gshard_moe.layer import MoELayer


@dataclasses.dataclass(frozen=True)
class Mapped:
    """Which tensors became a parameter.

    Attributes:
      parameter: Name in the layer.
      described: Its type and shape, as `f32[4,5,7]`.
      sources: Names of the tensors.
      change: What was done to them.
    """

    parameter: str
    described: str
    sources: tuple[str, ...]
    change: str

    def __str__(self) -> str:
        what = f"{self.parameter} {self.described}"
        return f"{what:20} <- {grouped(self.sources)}, {self.change}"


@dataclasses.dataclass(frozen=True)
class ConversionReport:
    """What was mapped, and where the layer computes otherwise than the block did.

    Attributes:
      mapped: One entry per parameter.
      evaluation: Differences of `deterministic=True`, empty when outputs are the same.
      training: Differences of training.
    """

    mapped: tuple[Mapped, ...]
    evaluation: tuple[str, ...]
    training: tuple[str, ...]

    def __str__(self) -> str:
        lines = [str(entry) for entry in self.mapped]
        for mode, differences in (("evaluation", self.evaluation), ("training", self.training)):
            lines.append(f"{mode}: {'differs' if differences else 'the same'}")
            lines += [f"  - {difference}" for difference in differences]
        return "\n".join(lines)


@dataclasses.dataclass(frozen=True)
class Converted:
    """A block as parameters and settings of a `MoELayer`.

    Attributes:
      parameters: By name, as `nnx.to_pure_dict(nnx.state(layer))` has them; of several blocks with
        a leading axis of layers.
      settings: Arguments of `MoELayer`.
      report: What was mapped and what differs.
    """

    parameters: dict[str, np.ndarray]
    settings: dict[str, Any]
    report: ConversionReport

    def layer(self) -> MoELayer:
        """The layer; of several blocks one whose parameters have a leading axis named "layer".

        For other settings (`dtype`, `name`, `dispatch`) replace them first:
        `dataclasses.replace(converted, settings=converted.settings | {"name": "encoder 3"})`.
        """
        layers = self.parameters["router"].shape[:-2]
        graph, _ = nnx.split(nnx.eval_shape(lambda: _create(self.settings, layers)))
        return nnx.merge(graph, jax.tree.map(jax.numpy.asarray, self.parameters))


def mapped(parameter: str, value: np.ndarray, sources: Sequence[str], change: str) -> Mapped:
    """One line of a report."""
    return Mapped(parameter, describe(value), tuple(sources), change)


def _create(settings: dict[str, Any], layers: tuple[int, ...]) -> MoELayer:
    def one(rngs: nnx.Rngs) -> MoELayer:
        return MoELayer(**settings, rngs=rngs)

    rngs = nnx.Rngs(0)  # shapes only are computed: nothing is drawn
    if not layers:
        return one(rngs)
    stack = nnx.vmap(one, transform_metadata={nnx.PARTITION_NAME: "layer"})
    return nnx.split_rngs(splits=layers[0])(stack)(rngs)
