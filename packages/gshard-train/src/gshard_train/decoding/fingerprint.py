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
    """A few letters that change with any bit or place of any parameter, the same on any devices.

    Each array's bits are summed as integers, which no order of adding changes.
    """
    return _digest(",".join(str(int(one)) for one in jax.device_get(_sums(params))))


# Once for all checkpoints of a model.
@jax.jit
def _sums(params: state.Params) -> list[UInt32[Array, ""]]:
    leaves = map(_bits, jax.tree.leaves(params))
    return [(bits * _factors(bits.shape)).sum(dtype=jnp.uint32) for bits in leaves]


def _bits(x: Array) -> Array:
    kind = {1: jnp.uint8, 2: jnp.uint16}.get(x.dtype.itemsize, jnp.uint32)
    return jax.lax.bitcast_convert_type(x, kind).astype(jnp.uint32)


def _factors(shape: tuple[int, ...]) -> Array:
    """An odd number for each place, so that no bit is lost: a hash of its flat index."""
    index, stride = jnp.zeros(shape, jnp.uint32), 1
    for axis in reversed(range(len(shape))):
        index += jax.lax.broadcasted_iota(jnp.uint32, shape, axis) * jnp.uint32(stride % 2**32)
        stride *= shape[axis]
    mixed = (index ^ (index >> 16)) * jnp.uint32(0x7FEB352D)
    mixed = (mixed ^ (mixed >> 15)) * jnp.uint32(0x846CA68B)
    return (mixed ^ (mixed >> 16)) | jnp.uint32(1)


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
