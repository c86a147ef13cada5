"""What translations depend on, in a form that can be kept beside them and compared later."""

import dataclasses
import hashlib
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, UInt32

from gshard_train import state
from gshard_train.decode import Search
from gshard_train.experiment import Experiment
from gshard_train.measuring.held_out import TaskSplit


def fingerprint(
    experiment: Experiment, step: int, search: Search, parameters: str, tasks: Sequence[TaskSplit]
) -> dict[str, Any]:
    """Checkpoint, search, model and sentences; not the devices and not the batch size.

    Args:
      experiment: what was trained.
      step: the checkpoint's.
      search: how translations are searched for.
      parameters: `digest` of the checkpoint's parameters.
      tasks: what is translated.
    """
    return {
        "checkpoint_step": step,
        "parameters": parameters,
        "search": {"kind": type(search).__name__, **dataclasses.asdict(search)},
        "lengths": dict(experiment.task_feature_lengths),
        "model": _digest(repr(experiment.model)),
        "sentences": _sentences(tasks),
    }


def digest(params: state.Params) -> str:
    """A few letters that change with any bit of any parameter, the same on any devices.

    Each array's bits are summed as integers, which no order of adding changes.
    """

    @jax.jit
    def sums(params: state.Params) -> list[UInt32[Array, ""]]:
        return [_bits(leaf).sum(dtype=jnp.uint32) for leaf in jax.tree.leaves(params)]

    return _digest(",".join(str(int(one)) for one in jax.device_get(sums(params))))


def _bits(x: Array) -> Array:
    kind = jnp.uint16 if x.dtype.itemsize == 2 else jnp.uint32
    return jax.lax.bitcast_convert_type(x, kind).astype(jnp.uint32)


def _sentences(tasks: Sequence[TaskSplit]) -> str:
    """Names of the tasks and all their source tokens and texts."""
    whole = hashlib.sha256()
    for task in tasks:
        whole.update(f"\n{task.task} {len(task.examples)}\n".encode())
        for example in task.examples:
            whole.update(example.tokens_T.tobytes())
            whole.update(f"\n{example.source}\n{example.reference}\n".encode())
    return whole.hexdigest()[:16]


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]
