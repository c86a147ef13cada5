"""The program that translates, as one file of StableHLO that JAX alone runs.

Axes: B batch, T source length, L target length.
"""

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh
from jaxtyping import Array, Int

from gshard_annotate import rules_scope
from gshard_train import state
from gshard_train.decode import VARYING, BeamSearch, Search, translate
from gshard_train.decoding.decoder import keys
from gshard_train.experiment import Experiment
from gshard_train.exported.parameter_names import by_path, nested, tensors
from gshard_train.models.transformer import TransformerConfig

SEARCH = BeamSearch()
PLATFORMS = ("cpu", "cuda", "rocm", "tpu")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Program:
    """What the exported program is made for.

    Attributes:
      batch_size: sentences that one call translates.
      search: how translations are searched for.
      platforms: where it can run, of "cpu", "cuda", "rocm" and "tpu".
    """

    batch_size: int = 8
    search: Search = SEARCH
    platforms: Sequence[str] = ("cpu",)

    def __post_init__(self):
        if faults := list(self._faults()):
            raise ValueError("Program: " + "; ".join(faults))

    def _faults(self) -> Iterator[str]:
        if not isinstance(self.batch_size, int) or self.batch_size < 1:
            yield f"batch_size={self.batch_size!r} must be an integer of at least 1"
        if isinstance(self.platforms, str) or not self.platforms:
            yield f"platforms={self.platforms!r} must be a tuple of names, such as ('cpu',)"
        elif unknown := [name for name in self.platforms if name not in PLATFORMS]:
            yield f"platforms: {', '.join(unknown)} must be of {', '.join(PLATFORMS)}"


def exported_program(
    experiment: Experiment, model: state.Model, program: Program, *, split_layers: bool
) -> jax.export.Exported:
    """The program: (tensors by name, source [B, T], numbers [B]) -> tokens, score, truncated.

    It runs on one device. Numbers are those of the sentences, which sampling draws by.

    Args:
      experiment: gives rules and lengths.
      model: as it was trained.
      program: what it is made for.
      split_layers: whether tensors are those of single layers.
    """
    model = state.abstract_model(serving_config(model.config))
    mesh = Mesh(np.array(jax.devices()[:1]).reshape(1, 1), ("data", "expert"))
    lengths = experiment.task_feature_lengths

    def run(
        named: Mapping[str, Array], source_BT: Int[Array, "B T"], number_B: Int[Array, " B"]
    ) -> tuple[Array, Array, Array]:
        with rules_scope(experiment.rules, mesh, varying=VARYING):
            found = translate(
                model.merge(_params(named, model, split_layers=split_layers)),
                source_BT,
                length=lengths["targets"],
                search=program.search,
                key_B=keys(program.search, number_B),
            )
        # A plain tuple: whoever calls the program has no class of ours.
        return found.tokens_BL, found.score_B, found.truncated_B

    return jax.export.export(jax.jit(run), platforms=list(program.platforms))(
        _shapes(model, split_layers=split_layers),
        jax.ShapeDtypeStruct((program.batch_size, lengths["inputs"]), np.int32),
        jax.ShapeDtypeStruct((program.batch_size,), np.uint32),
    )


def serving_config(config: TransformerConfig) -> TransformerConfig:
    """The model with all tokens in one group, where that changes nothing: where none is dropped."""
    if config.eval_slots_per_token is not None:
        return config
    return dataclasses.replace(config, num_groups=1)


def _shapes(model: state.Model, *, split_layers: bool) -> dict[str, Any]:
    shapes = by_path(model.shapes())
    return {
        name: jax.ShapeDtypeStruct(
            shapes[path].shape if layer is None else shapes[path].shape[1:], shapes[path].dtype
        )
        for name, (path, layer) in tensors(model, split_layers=split_layers).items()
    }


def _params(named: Mapping[str, Array], model: state.Model, *, split_layers: bool) -> state.Params:
    """The tree that the model takes."""
    layers: dict[tuple[str, ...], list[Array]] = {}
    whole = {}
    for name, (path, layer) in tensors(model, split_layers=split_layers).items():
        if layer is None:
            whole[path] = named[name]
        else:
            layers.setdefault(path, []).append(named[name])
    return nested(whole | {path: jnp.stack(parts) for path, parts in layers.items()})
