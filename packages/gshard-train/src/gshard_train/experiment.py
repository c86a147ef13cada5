"""What is trained, on what, with what: the description that train, eval and infer share.

A gin file fills it in; `prepare` checks all of it at once before any device holds an array.
"""

import dataclasses
import importlib
import importlib.util
import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import optax
from jax.sharding import Mesh

from gshard_annotate import Rules
from gshard_train import disk_faults, layouts, state, tensorflow_devices
from gshard_train.batch_rows import own_share
from gshard_train.data import FEATURES, PACKED_FEATURES, Feed, MakeFeed
from gshard_train.errors import UserError, message, reported_as_user_error
from gshard_train.loss import LossConfig
from gshard_train.mesh_faults import batch_fault, mesh_faults
from gshard_train.models.transformer import TransformerConfig
from gshard_train.optimizer import OptimizerOfNames, resolved
from gshard_train.ranges import counts
from gshard_train.step import batch_sharding

FEATURE_NAMES = ("inputs", "targets")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Experiment:
    """Everything about a run that is not done step by step.

    Attributes:
      model_dir: where the run keeps everything it writes.
      make_mesh: makes the mesh of devices.
      model: what is trained.
      optimizer: an optax transformation, or a function that makes one of the tree of names of the
        model's parameters.
      make_feed: makes the training feed.
      mixture_or_task_name: what is read, a seqio name.
      mixture_or_task_module: a module whose import registers that name with seqio. Training
        feeds that know the name without seqio do not need it.
      task_feature_lengths: longest "inputs" and "targets" in tokens, the end included.
      batch_size: examples in a global batch.
      rules: logical axis names to mesh axes; `layouts` has some.
      loss: terms of the loss.
      seed: of parameters, dropout, routing and the order of examples.
      microbatches: equal parts of a batch, one after the other, whose gradients are added up;
        activations then take the room of one part.
      offload_optimizer: whether the optimizer's state lies in the host's memory between steps.
    """

    model_dir: str
    make_mesh: Callable[[], Mesh]
    model: TransformerConfig
    optimizer: optax.GradientTransformation | OptimizerOfNames
    make_feed: MakeFeed
    mixture_or_task_name: str
    task_feature_lengths: Mapping[str, int]
    batch_size: int
    mixture_or_task_module: str | None = None
    rules: Rules = dataclasses.field(default_factory=layouts.gshard)
    loss: LossConfig = dataclasses.field(default_factory=LossConfig)
    seed: int = 0
    microbatches: int = 1
    offload_optimizer: bool = False

    def path(self, *parts: str) -> Path:
        """A path below the run's directory."""
        return Path(self.model_dir, *parts)


class Prepared(NamedTuple):
    """The parts of an experiment that were found to fit together."""

    mesh: Mesh
    model: state.Model
    optimizer: optax.GradientTransformation


def prepare(experiment: Experiment, *, writes: bool = True) -> Prepared:
    """The mesh, the abstract model and the optimizer of an experiment.

    Args:
      experiment: what is checked.
      writes: whether its directory has to be one that can be written to.

    Raises:
      UserError: with everything that was found wrong.
      DiskError: where nothing was, but the directory lies on what cannot be written.
    """
    with disk_faults.writing("MODEL_DIR", experiment.model_dir):
        faults = list(_value_faults(experiment, writes=writes))
    mesh = _attempt(faults, experiment.make_mesh)
    model = _attempt(faults, lambda: state.abstract_model(experiment.model))
    if mesh is not None:
        faults += mesh_faults(experiment, mesh)
    elif fault := batch_fault(experiment):
        faults.append(fault)  # what else does not fit depends on the mesh
    if mesh is None or model is None or faults:
        raise UserError(*faults)
    if writes:
        disk_faults.check_mount("MODEL_DIR", experiment.model_dir)
    optimizer = _attempt(faults, lambda: resolved(experiment.optimizer, model.names()))
    if optimizer is not None:
        arguments = (model, optimizer, experiment.rules, mesh)
        _attempt(faults, lambda: state.shardings(*arguments))
    if optimizer is None or faults:
        raise UserError(*faults)
    return Prepared(mesh, model, optimizer)


def for_reading(experiment: Experiment, batch_size: int) -> Experiment:
    """The experiment for what only reads its parameters, with batches of `batch_size`.

    What training alone has does not count: microbatches and where the optimizer's state lies.
    """
    return dataclasses.replace(
        experiment, batch_size=batch_size, microbatches=1, offload_optimizer=False
    )


def open_feed(experiment: Experiment, prepared: Prepared) -> Feed:
    """The training feed of this process's rows, whose vocabularies fit the model.

    Raises:
      UserError: it cannot be made, a vocabulary is larger than the model's table, or its batches
        have what the model does not take.
    """
    share = own_share(batch_sharding(experiment.rules, prepared.mesh))
    with reported_as_user_error():
        if getattr(experiment.make_feed, "reads_seqio", False):
            register(experiment)
        feed = experiment.make_feed(
            mixture_or_task_name=experiment.mixture_or_task_name,
            task_feature_lengths=experiment.task_feature_lengths,
            batch_size=experiment.batch_size,
            seed=experiment.seed,
            process_index=share.index,
            process_count=share.count,
        )
    faults = [*vocabulary_faults(experiment, feed.vocabulary_sizes), *feature_faults(feed)]
    if faults:
        feed.close()
        raise UserError(*faults)
    return feed


def register(experiment: Experiment) -> None:
    """Imports the module that registers the experiment's tasks with seqio.

    Raises:
      UserError: there is no such module.
    """
    if not (name := experiment.mixture_or_task_module):
        return
    tensorflow_devices.hide_gpus()
    try:
        importlib.import_module(name)
    except ModuleNotFoundError as error:
        raise UserError(_missing_module(name, str(error))) from error


def vocabulary_faults(experiment: Experiment, sizes: Mapping[str, int]) -> Iterator[str]:
    """One sentence for each vocabulary that is larger than the model's table for it."""
    tables = {
        "inputs": ("source_vocab_size", experiment.model.source_vocab_size),
        "targets": ("target_vocab_size", experiment.model.target_vocab_size),
    }
    for feature, (name, size) in tables.items():
        if sizes[feature] > size:
            yield (
                f"the vocabulary of {feature!r} has {sizes[feature]} pieces but the model "
                f"{name}={size}; set TransformerConfig.{name} = {sizes[feature]} or more"
            )


def feature_faults(feed: Feed) -> Iterator[str]:
    """A sentence for features of batches that are not used, and for those that are lacking."""
    given = getattr(feed, "features", FEATURES)
    if unused := [name for name in given if name not in (*FEATURES, *PACKED_FEATURES)]:
        yield (
            f"batches of the feed have {', '.join(unused)}, which the model does not take; "
            f"leave them out (it takes {', '.join((*FEATURES, *PACKED_FEATURES))})"
        )
    packed = any(name in PACKED_FEATURES for name in given)
    needed = (*FEATURES, *PACKED_FEATURES) if packed else FEATURES
    if lacking := [name for name in needed if name not in given]:
        why = ": without them examples of a row would look at each other" if packed else ""
        yield f"batches of the feed lack {', '.join(lacking)}{why}; give them"


def _attempt(faults: list[str], make: Callable):
    try:
        return make()
    except (ValueError, RuntimeError, OSError) as error:
        faults.append(message(error))
        return None


def _value_faults(experiment: Experiment, *, writes: bool) -> Iterator[str]:
    lengths = experiment.task_feature_lengths
    if not experiment.model_dir:
        yield "MODEL_DIR is empty; add --gin.MODEL_DIR=\"'/path/to/run'\""
    elif writes:
        yield from _directory_faults(experiment.model_dir)
    for name in FEATURE_NAMES:
        if name not in lengths:
            yield f"TASK_FEATURE_LENGTHS={dict(lengths)} lacks {name!r}; give tokens for it"
        elif not 1 <= lengths[name] <= experiment.model.max_length:
            yield (
                f"TASK_FEATURE_LENGTHS[{name!r}]={lengths[name]} must be between 1 and the "
                f"model's max_length={experiment.model.max_length}"
            )
    yield from counts(batch_size=experiment.batch_size, microbatches=experiment.microbatches)
    if (module := experiment.mixture_or_task_module) and not _module_exists(module):
        yield _missing_module(module, "there is no such module")


def _module_exists(name: str) -> bool:
    """Whether a module can be found; of its own code nothing is run."""
    try:
        return importlib.util.find_spec(name) is not None
    except (ImportError, ValueError):
        return False


def _missing_module(name: str, why: str) -> str:
    return (
        f"MIXTURE_OR_TASK_MODULE={name!r} cannot be imported ({why}); install the package that has "
        "it or name another module"
    )


def _directory_faults(model_dir: str) -> Iterator[str]:
    """Why a run could not write here."""
    if "://" in model_dir:
        yield (
            f"MODEL_DIR={model_dir!r} is a URL, and a run writes to directories; mount the bucket "
            "and give the directory"
        )
        return
    if model_dir.startswith("~"):
        yield (
            f"MODEL_DIR={model_dir!r} would be a directory named ~: the shell does not replace it "
            f"inside quotes; write {os.path.expanduser(model_dir)!r}"
        )
        return
    there = disk_faults.nearest(model_dir)
    if not there.is_dir():
        file = (
            "is a file" if there == Path(model_dir).absolute() else f"lies below the file {there}"
        )
        yield f"MODEL_DIR={model_dir!r} {file}; give a directory"
    elif os.path.isfile(steps := os.path.join(model_dir, "checkpoints")):
        yield f"{steps} is a file, where the run's checkpoints are to be; move it away"
    elif not disk_faults.is_read_only(there) and not os.access(there, os.W_OK | os.X_OK):
        yield f"MODEL_DIR={model_dir!r} cannot be written: no permission for {there}"
