"""The checkpoint that there is, compared with the model that is to go on from it."""

import dataclasses
from typing import Any

import jax
import optax

from gshard_train import state
from gshard_train.checkpointing import refusal, tensors
from gshard_train.checkpointing.checkpoint import Checkpointer
from gshard_train.errors import UserError, reported_as_user_error
from gshard_train.experiment import Experiment
from gshard_train.optimizer import resolved
from gshard_train.resizing.change import Change
from gshard_train.resizing.experts import (
    Experts,
    experts_at,
    factor,
    lacking,
    moe_layers,
    ways,
    width_after,
)
from gshard_train.resizing.fates import by_path
from gshard_train.resizing.placement import fitted


@dataclasses.dataclass(frozen=True)
class OldRun:
    """A checkpoint that was found to fit.

    Attributes:
      checkpointer: of the run's directory.
      step: of the checkpoint.
      shapes: of the state, and where its arrays go.
      names: of the parameters' dimensions.
    """

    checkpointer: Checkpointer
    step: int
    shapes: state.TrainState
    names: Any


def matched(
    experiment: Experiment,
    new: state.TrainState,
    checkpointer: Checkpointer,
    step: int,
    how: str,
) -> tuple[Change, OldRun]:
    """The change that the numbers ask for, and the checkpoint, which fits otherwise.

    Raises:
      UserError: they do not fit each other.
    """
    saved, layers = checkpointer.tensors(step), moe_layers(new.params)
    after = experts_at(new.params, layers)
    if after is None:
        raise UserError(
            "the model has no experts (num_experts=0), and nothing becomes of those "
            f"in {checkpointer.model_dir}; give num_experts"
        )
    before = experts_at(saved.get("params", {}), layers)
    faults = []
    if before is not None and not factor(how, before, after):
        found, width = ways(before, after), width_after(how, before, after.count)
        why = f"--how={' or '.join(found)} does" if found else lacking(before, after)
        why += f", or this with TransformerConfig.expert_mlp = {width}" if found and width else ""
        faults.append(f"--how={how} does not lead from {before} to {after}: {why}")
    old, names = _old_state(experiment, new, before or after)
    if lines := tensors.differences(saved, tensors.nested(old)):
        faults.append(_refusal(checkpointer, step, lines))
    if before is None or faults:
        raise UserError(*faults)
    return Change(how, before, after, experiment.seed), OldRun(checkpointer, step, old, names)


def _old_state(
    experiment: Experiment, new: state.TrainState, experts: Experts
) -> tuple[state.TrainState, Any]:
    """Shapes and shardings of the new experiment's state with other experts; parameters' names."""
    with reported_as_user_error():
        dense = not experts.count
        model = state.abstract_model(
            dataclasses.replace(
                experiment.model,
                num_experts=experts.count,
                expert_mlp=None if dense else experts.width,
                choices=2,  # of which no shape depends
                remat="none",  # which may name experts
            )
        )
        names = model.names()
        optimizer: optax.GradientTransformation = resolved(experiment.optimizer, names)
        params = model.shapes()
        shapes = new._replace(params=params, opt_state=jax.eval_shape(optimizer.init, params))
    wanted, replicated = by_path(new), new.step.sharding

    def placed(path: tuple, leaf: Any) -> jax.ShapeDtypeStruct:
        like = wanted.get(tuple(jax.tree_util.keystr((key,), simple=True) for key in path))
        sharding = (
            replicated if like is None else fitted(leaf.shape, like.sharding, tuple(like.shape))
        )
        return jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=sharding)

    return jax.tree_util.tree_map_with_path(placed, shapes), names


def _refusal(checkpointer: Checkpointer, step: int, lines: list[str]) -> str:
    of_optimizer = all(line.startswith("opt_state/") for line in lines)
    what = "another optimizer" if of_optimizer else "another model, in more than its experts"
    first = (
        f"checkpoint {step} in {checkpointer.model_dir} is of {what}: {len(lines)} tensors differ; "
        "take the gin file of that run and change nothing but its experts"
    )
    return "\n".join([first, *refusal.shortened(lines)])
