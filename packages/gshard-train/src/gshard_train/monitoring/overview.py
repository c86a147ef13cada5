"""What a run is made of, as a table: each parameter, where it lies, and sums.

parameter                shape        names                 split as       MiB/device
encoder.first.moe.wi     1 x 8 x ...  layer expert embed    - expert -     0.25
"""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
from jax.sharding import Mesh

from gshard_annotate import Rules
from gshard_train.experiment import Experiment, Prepared
from gshard_train.models.config import TransformerConfig
from gshard_train.monitoring.short_numbers import short
from gshard_train.monitoring.utilisation import choices_per_token
from gshard_train.state import Model, TrainState

_MIB = 2**20


class Counts(NamedTuple):
    """Parameters of a model: all, those of experts, and those that one token passes through."""

    total: int
    experts: int
    active: int


def counts(model: Model) -> Counts:
    """The number of parameters; of a token's experts, those that it asks for are active."""
    total = experts = 0
    for _, shape, names in _leaves(model.shapes(), model.names()):
        total += math.prod(shape.shape)
        experts += math.prod(shape.shape) if "expert" in (names or ()) else 0
    if not experts:
        return Counts(total, 0, total)
    share = choices_per_token(model.config) / model.config.num_experts
    return Counts(total, experts, total - experts + round(experts * min(1.0, share)))


def overview(experiment: Experiment, prepared: Prepared, state: TrainState) -> str:
    """The table, the sums, the mesh and the rules.

    Args:
      experiment: whose rules are shown.
      prepared: its mesh and its model.
      state: shapes with their shardings, as `abstract_state` gives, or arrays.
    """
    names = prepared.model.names()
    rows = [_row(*leaf) for leaf in _leaves(state.params, names)]
    head = ("parameter", "shape", "names", "split over", "MiB/device")
    number = counts(prepared.model)
    lines = [
        *_table([head, *rows]),
        f"{short(number.total)} parameters ({number.total:,}), {short(number.experts)} of them "
        f"in experts; {short(number.active)} active for a token",
        f"a device holds {_mib(state.params)} MiB of parameters and {_mib(state.opt_state)} MiB "
        "of the optimizer's state",
        f"mesh: {_mesh(prepared)}",
        f"rules: {_rules(experiment.rules, prepared.mesh)}",
    ]
    return "\n".join(lines)


def device_bytes(tree: Any) -> int:
    """Bytes of a tree's arrays on the device that holds most; all devices hold as much here."""
    return sum(
        math.prod(leaf.sharding.shard_shape(leaf.shape)) * leaf.dtype.itemsize
        for leaf in jax.tree.leaves(tree)
    )


def program_memory(compiled: jax.stages.Compiled) -> str | None:
    """What a compiled step takes on a device; None where the backend does not tell."""
    found = compiled.memory_analysis()
    if found is None:
        return None
    held, temporary = found.argument_size_in_bytes, found.temp_size_in_bytes
    host = found.host_argument_size_in_bytes
    of_host = f", and {host / _MIB:,.1f} MiB of the host's memory" if host else ""
    return (
        f"the step takes {(held + temporary) / _MIB:,.1f} MiB a device: {held / _MIB:,.1f} for "
        f"state and batch, {temporary / _MIB:,.1f} while it runs{of_host}"
    )


def moe_layer_names(config: TransformerConfig) -> list[str]:
    """A name for each MoE layer, in the order of the model's statistics."""
    sides = (("encoder", config.num_encoder_layers), ("decoder", config.num_decoder_layers))
    return [f"{side} {layer}" for side, number in sides for layer in range(0, number, 2)]


def _leaves(shapes: Any, names: Any) -> list[tuple[str, Any, Sequence[str | None] | None]]:
    """Path, shape and names of each parameter."""
    leaves, tree = jax.tree.flatten_with_path(shapes)
    of_leaves = tree.flatten_up_to(names)
    return [
        (jax.tree_util.keystr(path, simple=True, separator="."), leaf, found)
        for (path, leaf), found in zip(leaves, of_leaves, strict=True)
    ]


def _row(path: str, leaf: Any, names: Sequence[str | None] | None) -> tuple[str, ...]:
    spec = list(leaf.sharding.spec) + [None] * (leaf.ndim - len(leaf.sharding.spec))
    return (
        path,
        " x ".join(map(str, leaf.shape)),
        " ".join(name or "-" for name in names or ["-"] * leaf.ndim),
        " ".join(_axes(entry) for entry in spec),
        f"{device_bytes(leaf) / _MIB:,.2f}",
    )


def _axes(entry: Any) -> str:
    if entry is None:
        return "-"
    return entry if isinstance(entry, str) else "+".join(entry)


def _table(rows: Sequence[tuple[str, ...]]) -> list[str]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join(cell.ljust(width) for cell, width in zip(row[:-1], widths, strict=False))
        + f"  {row[-1]:>{widths[-1]}}"
        for row in rows
    ]


def _mesh(prepared: Prepared) -> str:
    axes = " x ".join(f"{name} {size}" for name, size in prepared.mesh.shape.items())
    device = prepared.mesh.devices.flat[0]
    return f"{axes} = {prepared.mesh.size} devices ({device.device_kind})"


def _rules(rules: Rules, mesh: Mesh) -> str:
    """Those that split something on this mesh."""
    found = ((name, rules.mesh_axes(name, mesh)) for name, _ in rules.pairs)
    return ", ".join(f"{name} -> {_axes(axes)}" for name, axes in found if axes)


def _mib(tree: Any) -> str:
    return f"{device_bytes(tree) / _MIB:,.1f}"
