"""The work of one device in a training step, by arithmetic on the model's sizes.

Letters: M model width, H hidden width, N heads of width D, E experts, S tokens and C slots of an
expert for a group.
"""

import dataclasses
import math
from collections.abc import Iterator, Mapping
from typing import NamedTuple

import jax.numpy as jnp

from gshard_annotate.checks import axes_size
from gshard_moe.capacity import capacity
from gshard_train.experiment import Experiment
from gshard_train.models.config import TransformerConfig
from gshard_train.monitoring.utilisation import step_flops
from gshard_train.planning.held import Held
from gshard_train.planning.meshes import abstract_mesh, batch_parts

# What recomputing cannot leave out of a forward pass: a block's last product is in no gradient.
_RECOMPUTED = 0.5
_PARAMETER_ITEMSIZE = 4  # float32
# How often an array is written or read in a step.
_PARAMETER_PASSES = 5
_UPDATE_PASSES = 6
_ATTENTION_PASSES = 16
_HIDDEN_PASSES = 8
_ROW_PASSES = 40


class Sent(NamedTuple):
    """Exchanges of one size: what, bytes on a device, devices, how often."""

    kind: str
    bytes: float
    group: int
    times: float


class Side(NamedTuple):
    """Encoder or decoder: its layers, tokens of the batch, attentions of a layer, their lengths."""

    layers: int
    tokens: int
    attentions: int
    attended: int  # keys of all attentions of a layer together
    slots: int  # of all experts and groups, in a layer with experts
    group_slots: int  # of all experts for one group


@dataclasses.dataclass(frozen=True)
class Work:
    """The work of a layout.

    Attributes:
      experiment: with the layout applied.
      mesh: size of each axis.
      held: what a device holds.
    """

    experiment: Experiment
    mesh: Mapping[str, int]
    held: Held

    def flops(self) -> float:
        """Of matrix products that no program of the layout can leave out."""
        model, sides = self.experiment.model, self._sides()
        lengths = self.experiment.task_feature_lengths
        whole = step_flops(
            model,
            source_tokens=sides[0].tokens,
            target_tokens=sides[1].tokens,
            source_length=lengths["inputs"],
            target_length=lengths["targets"],
            choices=sum(side.layers / 2 * side.slots for side in sides) or None,
        )
        logits = 6 * model.embed * model.target_vocab_size * sides[1].tokens
        layers = whole - logits
        if model.remat in ("full", "save_dispatch"):
            layers += layers / 3 * _RECOMPUTED
        return (logits + (layers + self._dispatch_flops()) * self.idle) / math.prod(
            self.mesh.values()
        )

    @property
    def idle(self) -> float:
        """By what a pipeline's work grows, since stages compute while they have nothing."""
        stages = self.mesh.get("stage", 1)
        parts = self.experiment.model.pipeline_microbatches or stages
        return (parts + stages - 1) / parts

    def sent(self, *, gathers: int = 1) -> Iterator[Sent]:
        """The exchanges that no program of the layout can leave out.

        Parameters and gradients are sent in the model's dtype, to which a compiler may convert
        them before.

        Args:
          gathers: how often parameters are gathered, and gradients scattered, where they are.
        """
        mesh = abstract_mesh(self.mesh)
        experts = axes_size(self.experiment.rules.mesh_axes("expert", mesh), dict(self.mesh))
        model = self.mesh.get("model", 1)
        for side in self._sides():
            layers = side.layers / self.mesh.get("stage", 1) * self.idle
            if self.experiment.model.num_experts and experts > 1:
                # Of every other layer; recomputing all takes the two forward ones again.
                times = (3 if self.experiment.model.remat == "full" else 2) * layers
                yield Sent("all-to-all", side.slots * self._row_bytes, experts, times)
            if model > 1:
                blocks = side.attentions + 1
                rows = side.tokens * self._row_bytes
                yield Sent("all-reduce", rows, model, 2 * blocks * layers)
        narrowed = min(1.0, jnp.dtype(self.experiment.model.dtype).itemsize / _PARAMETER_ITEMSIZE)
        for (copies, gathered_from), held_bytes in self.held.exchanged_bytes.items():
            count = held_bytes * narrowed
            if copies > 1:
                yield Sent("all-reduce", count, copies, 1)
            if gathered_from > 1:
                yield Sent("all-gather", count * gathered_from, gathered_from, gathers)
                yield Sent("reduce-scatter", count * gathered_from, gathered_from, gathers)

    def traffic_bytes(self) -> float:
        """About what is written to and read from main memory."""
        again = 1.5 if self.experiment.model.remat != "none" else 1
        activations = sum(
            side.layers / self.mesh.get("stage", 1) * self._layer_bytes(side, traffic=True)
            for side in self._sides()
        )
        return (
            self.held.gathered_bytes * _PARAMETER_PASSES * self.experiment.microbatches
            + self.held.parameter_bytes * _UPDATE_PASSES
            + activations * again * self.idle
        )

    def temporary_bytes(self) -> float:
        """About what a step takes beside the state."""
        model, count = self.experiment.model, self.experiment.microbatches
        gradients = self.held.parameter_bytes * (2 if count > 1 else 1)
        rows = sum(side.tokens for side in self._sides()) * self._row_bytes
        logits = 3 * 4 * self._sides()[1].tokens * model.target_vocab_size
        logits /= self._batch_parts * self.mesh.get("model", 1)
        kept = sum(self._kept_bytes(side) for side in self._sides())
        return gradients + (rows + logits + kept) / count

    def _kept_bytes(self, side: Side) -> float:
        """Activations kept for the backward pass and those of one pair of layers at work."""
        remat, layers = self.experiment.model.remat, side.layers / self.mesh.get("stage", 1)
        pair = 2 * self._layer_bytes(side, traffic=False)
        if remat == "none":
            return layers / 2 * pair
        kept = side.tokens * (2 if remat == "full" else 1 + 2 * side.slots / side.tokens)
        return layers / 2 * kept * self._row_bytes + 1.5 * pair

    def _layer_bytes(self, side: Side, *, traffic: bool) -> float:
        """Of a layer's activations on one device; with `traffic` as often as they pass."""
        model, width = self.experiment.model, jnp.dtype(self.experiment.model.dtype).itemsize
        heads = self.mesh.get("model", 1)
        passes = (_ROW_PASSES, _HIDDEN_PASSES, _ATTENTION_PASSES) if traffic else (8, 2, 3)
        rows = side.tokens * self._row_bytes
        tokens = side.tokens / self._batch_parts
        hidden = (tokens + side.slots / self._batch_parts) / 2 * model.mlp * width / heads
        weights = tokens * side.attended * model.num_heads * 4 / heads
        masks = tokens * side.group_slots * width / 2 if model.dispatch == "einsum" else 0
        return rows * passes[0] + hidden * passes[1] + weights * passes[2] + masks * passes[1]

    def _dispatch_flops(self) -> float:
        """Of one-hot products, of all devices: dispatch and combine, and three backward."""
        model = self.experiment.model
        if not model.num_experts or model.dispatch != "einsum":
            return 0.0
        sides = self._sides()
        return sum(s.layers / 2 * 5 * 2 * s.tokens * s.group_slots * model.embed for s in sides)

    @property
    def _batch_parts(self) -> int:
        return batch_parts(self.mesh)

    @property
    def _row_bytes(self) -> float:
        """Of a token's row, divided by the parts of a batch."""
        model = self.experiment.model
        return model.embed * jnp.dtype(model.dtype).itemsize / self._batch_parts

    def _sides(self) -> tuple[Side, Side]:
        model, batch = self.experiment.model, self.experiment.batch_size
        lengths = self.experiment.task_feature_lengths
        source, target = lengths["inputs"], lengths["targets"]
        encoder = (model.num_encoder_layers, batch * source, 1, source)
        decoder = (model.num_decoder_layers, batch * target, 2, source + target)
        return (
            Side(*encoder, *_slots(model, batch * source)),
            Side(*decoder, *_slots(model, batch * target)),
        )


def _slots(model: TransformerConfig, tokens: int) -> tuple[int, int]:
    """Slots of a layer with experts, and those of one group."""
    if not model.num_experts:
        return 0, 0
    size = max(1, tokens // model.num_groups)
    each = capacity(size, model.num_experts, slots_per_token=model.slots_per_token)
    return model.num_groups * model.num_experts * each, model.num_experts * each
