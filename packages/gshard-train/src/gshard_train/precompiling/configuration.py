"""What a job's gin files describe, without what only a run on real devices needs.

A model file is enough: the run file for the mode is added where nothing describes an experiment,
and where data and results lie need not be said, since nothing is read or written.
"""

import contextlib
import dataclasses
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import gin

from gshard_train import config
from gshard_train.experiment import Experiment
from gshard_train.gin_check import files as gin_files
from gshard_train.gin_check.macros import RUN_FILES
from gshard_train.gin_check.statements import REQUIRED, Macro, Statements
from gshard_train.precompiling.job import Job, Mode

ENTRY_POINTS: dict[Mode, str] = {
    "train": "gshard_train.training.train",
    "eval": "gshard_train.evaluating.evaluate",
    "decode": "gshard_train.inference.infer",
}
_RUN_FILES: dict[Mode, str] = {
    "train": f"{RUN_FILES}/train.gin",
    "eval": f"{RUN_FILES}/eval.gin",
    "decode": f"{RUN_FILES}/infer.gin",
}
# No program depends on them; schedules of a share of the steps need a number of them.
_NOT_NEEDED = {"MODEL_DIR": "'-'", "MIXTURE_OR_TASK_NAME": "'-'", "TRAIN_STEPS": "100000"}
_PACKING = ("pack", "packing")  # arguments of feeds that put several examples into a row


class Configured(NamedTuple):
    """What the gin files describe.

    Attributes:
      experiment: with a directory that is not written to.
      arguments: that are bound to the mode's entry point.
      packed: whether rows of training batches hold several examples; None where the feed is none
        that gin knows.
      text: the effective configuration.
    """

    experiment: Experiment
    arguments: dict[str, Any]
    packed: bool | None
    text: str


def configured(job: Job) -> Configured:
    """What a job's gin files describe, before its layout.

    Raises:
      UserError: with what `config.load` finds.
    """
    loaded = loaded_config(job)
    arguments = loaded.arguments(_entry_point(loaded, job.mode))
    experiment = dataclasses.replace(
        arguments["experiment"],
        model_dir=str(Path(tempfile.gettempdir(), "gshard-precompile-writes-nothing")),
        mixture_or_task_module=None,
    )
    return Configured(experiment, arguments, _is_packed(experiment), loaded.text)


def batch_parameter(found: Configured) -> str:
    """Which parameter says how many rows a program that only reads takes at once."""
    if "evaluation" in found.arguments:
        return "Evaluation.batch_size"
    return "infer.batch_size" if "batch_size" in found.arguments else "Experiment.batch_size"


def loaded_config(job: Job) -> config.LoadedConfig:
    """The gin files, the run file that they lack, and the flags.

    Raises:
      UserError: with what `config.load` finds.
    """
    files = list(job.gin_files)
    statements = gin_files.unchecked(files, job.gin_bindings, job.gin_search_paths)
    if files and not statements.file_is_missing and not _describes_experiment(statements):
        files.append(_RUN_FILES[job.mode])
        statements = gin_files.unchecked(files, job.gin_bindings, job.gin_search_paths)
    bindings = [*job.gin_bindings, *_not_needed(statements)]
    return config.load(files, bindings, job.gin_search_paths)


def _describes_experiment(statements: Statements) -> bool:
    """Whether something says what is trained; a layout only changes it."""
    of_experiment = (
        each for each in statements.bindings if each.selector.rpartition(".")[2] == "Experiment"
    )
    return any(each.parameter == "model" for each in of_experiment)


def _not_needed(statements: Statements) -> Sequence[str]:
    """Bindings for the macros that are required by a run and not by its program."""
    final = statements.final_macros()
    open_ones = [name for name in _NOT_NEEDED if name in final and _is_open(final[name].value)]
    return [f"{name} = {_NOT_NEEDED[name]}" for name in open_ones]


def _is_open(value: Any) -> bool:
    return value == Macro(REQUIRED)


def _entry_point(loaded: config.LoadedConfig, mode: Mode) -> str:
    """The mode's own, or another one's that is bound: they share the experiment."""
    own = ENTRY_POINTS[mode]
    others = [name for name in config.ENTRY_POINTS if name != own]
    return next((name for name in (own, *others) if loaded.binds(name)), own)


def _is_packed(experiment: Experiment) -> bool | None:
    feed = experiment.make_feed
    # What gin hands out for a class is a class made from it.
    for known in (feed, getattr(feed, "__base__", feed)):
        with contextlib.suppress(ValueError):  # no function that gin knows
            bound = gin.get_bindings(known)
            return any(bound.get(name) for name in _PACKING)
    return None
