"""A job's program: what is known of it before it is compiled, and its lowered form.

The program is the one that the binaries compile: `compiling.step_of`, `TeacherForcing` and
`Decoder` make it, for devices that are not there.
"""

import dataclasses
import functools
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import jax
import numpy as np

from gshard_train import state
from gshard_train.compiling import step_of
from gshard_train.data import FEATURES, PACKED_FEATURES
from gshard_train.decode import BeamSearch
from gshard_train.errors import UserError, reported_as_user_error
from gshard_train.experiment import Experiment, Prepared, for_reading, prepare
from gshard_train.monitoring.overview import counts, device_bytes
from gshard_train.monitoring.utilisation import step_flops
from gshard_train.precompiling.absent_mesh import mesh_on
from gshard_train.precompiling.configuration import Configured, configured
from gshard_train.precompiling.job import Facts, Job, Tensor
from gshard_train.step import batch_sharding

# Whose loads an evaluation counts: as many as the paper's languages. The tasks, which say it,
# are not read.
NUM_LANGUAGES = 100
# What a program does of a training step's three passes (forward, and backward twice that).
_SHARE_OF_STEP = {"train": 1.0, "eval": 1 / 3, "decode": 1 / 3}


# The compiler makes the program of one slice, in which the others are transfers of the runtime.
_BETWEEN_SLICES = (
    "the program is that of one slice: what goes from slice to slice, over the network, is not "
    "among the collectives and not in the time"
)
_MAY_PACK = (
    "the feed is nothing that gin binds, so nobody knows whether it packs examples into rows; the "
    "program is for rows of one example each"
)


class Program(NamedTuple):
    """A job's program before it is lowered.

    Attributes:
      experiment: what it belongs to, with the job's layout.
      prepared: its parts, on the devices of the job's topology.
      mode: which program of it.
      arguments: what the program is called with, by kind: shapes with their shardings.
      search: how it decodes, where it does.
      packed: whether a batch's rows hold several examples.
      text: the effective configuration.
      notes: what a reader of its figures should know.
    """

    experiment: Experiment
    prepared: Prepared
    mode: str
    arguments: Mapping[str, Any]
    search: Any
    packed: bool
    text: str
    notes: tuple[str, ...] = ()


def program_of(job: Job) -> Program:
    """The program of a job, checked as the binaries check it.

    Raises:
      UserError: with everything that is wrong with files, topology, mesh and sizes.
    """
    found = configured(job)
    if job.save_program and job.mode != "train":
        raise UserError(
            f"save_program={job.save_program} with mode={job.mode}: only training steps can be "
            "saved; use mode=train, or leave it out"
        )
    with reported_as_user_error():
        experiment = _of_mode(job.layout.applied(found.experiment), found, job)
    make_mesh = functools.partial(mesh_on, experiment.make_mesh, job.topology, job.num_slices)
    experiment = dataclasses.replace(experiment, make_mesh=make_mesh)
    prepared = prepare(experiment, writes=False)
    return Program(
        experiment,
        prepared,
        job.mode,
        _arguments(experiment, prepared, job.mode, found.packed is True),
        found.arguments.get("search") or BeamSearch(),
        found.packed is True,
        found.text,
        tuple(_notes(found, job)),
    )


def _notes(found: Configured, job: Job) -> Iterator[str]:
    if job.num_slices > 1:
        yield _BETWEEN_SLICES
    if found.packed is None and job.mode == "train":
        yield _MAY_PACK


def described(program: Program) -> Facts:
    """What is known of a program before it is compiled."""
    experiment, prepared = program.experiment, program.prepared
    number, model = counts(prepared.model), experiment.model
    lengths, rows = experiment.task_feature_lengths, experiment.batch_size
    source, target = rows * lengths["inputs"], rows * lengths["targets"]
    beams = getattr(program.search, "beams", 1) if program.mode == "decode" else 1
    flops = step_flops(
        model,
        source_tokens=source,
        target_tokens=target * beams,
        source_length=lengths["inputs"],
        target_length=lengths["targets"],
    )
    tensors = [each for what, tree in program.arguments.items() for each in _tensors(what, tree)]
    return Facts(
        num_devices=prepared.mesh.size,
        device_kind=prepared.mesh.devices.flat[0].device_kind,
        mesh=dict(prepared.mesh.shape),
        parameters=number.total,
        expert_parameters=number.experts,
        active_parameters=number.active,
        batch_size=rows,
        source_tokens=source,
        target_tokens=target,
        model_flops=flops * _SHARE_OF_STEP[program.mode],
        tensors=tuple(sorted(tensors, key=lambda each: -each.device_bytes)),
    )


def lower(program: Program) -> jax.stages.Lowered:
    """The program as the binaries compile it, for its devices."""
    experiment, prepared = program.experiment, program.prepared
    if program.mode == "train":
        step = step_of(experiment, prepared)
        train_state = _state(experiment, prepared)
        return step.lower(train_state, program.arguments["batch"])
    if program.mode == "eval":
        from gshard_train.measuring.teacher_forcing import TeacherForcing

        return TeacherForcing(
            experiment, prepared, batch_size=experiment.batch_size, num_labels=NUM_LANGUAGES
        ).lower()
    from gshard_train.decoding.decoder import Decoder

    return Decoder(experiment, prepared, program.search, batch_size=experiment.batch_size).lower()


def _of_mode(experiment: Experiment, found: Configured, job: Job) -> Experiment:
    """The experiment with the mode's batches."""
    if job.mode == "train":
        return experiment
    given = found.arguments
    asked = given.get("batch_size")
    if job.mode == "eval":
        asked = getattr(given.get("evaluation"), "batch_size", None)
    return for_reading(experiment, asked or experiment.batch_size)


def _arguments(
    experiment: Experiment, prepared: Prepared, mode: str, packed: bool
) -> dict[str, Any]:
    held = _state(experiment, prepared)
    batch = batch_shapes(experiment, prepared, packed=packed and mode == "train")
    if mode == "train":
        return {"parameters": held.params, "optimizer": held.opt_state, "batch": batch}
    if mode == "decode":
        batch = {name: each for name, each in batch.items() if name == "encoder_input_tokens"}
    return {"parameters": held.params, "batch": batch}


def _state(experiment: Experiment, prepared: Prepared) -> state.TrainState:
    return state.abstract_state(
        prepared.model,
        prepared.optimizer,
        experiment.rules,
        prepared.mesh,
        offload_optimizer=experiment.offload_optimizer,
    )


def batch_shapes(experiment: Experiment, prepared: Prepared, *, packed: bool) -> dict[str, Any]:
    """The shapes of a batch as feeds give it."""
    rows = batch_sharding(experiment.rules, prepared.mesh)
    lengths = experiment.task_feature_lengths
    shapes = {}
    for name in (*FEATURES, *PACKED_FEATURES) if packed else FEATURES:
        length = lengths["inputs" if name.startswith("encoder") else "targets"]
        dtype = np.float32 if name.endswith("weights") else np.int32
        shapes[name] = jax.ShapeDtypeStruct((experiment.batch_size, length), dtype, sharding=rows)
    return shapes


def _tensors(what: str, tree: Any) -> Iterator[Tensor]:
    for path, leaf in jax.tree.leaves_with_path(tree):
        yield Tensor(
            what=what,
            name=jax.tree_util.keystr(path, simple=True, separator="."),
            shape=tuple(leaf.shape),
            dtype=str(leaf.dtype),
            split=_split(leaf),
            device_bytes=device_bytes(leaf),
            on_host=leaf.sharding.memory_kind == state.HOST_MEMORY,
        )


def _split(leaf: Any) -> str:
    spec = [*leaf.sharding.spec, *[None] * (leaf.ndim - len(leaf.sharding.spec))]
    parts = (
        "-" if axes is None else axes if isinstance(axes, str) else "+".join(axes) for axes in spec
    )
    return " ".join(parts)
