"""A trained model for others: parameters by name, sizes, vocabularies, a program that translates.

What is written needs none of this package: see `standalone_translate`, which goes along.
"""

import dataclasses
import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax
import numpy as np
from absl import logging
from etils import epath

from gshard_train.checkpointing.checkpoint import Checkpointer
from gshard_train.checkpointing.trained import find_step, restore_params
from gshard_train.errors import UserError, reported_as_user_error
from gshard_train.experiment import Experiment, for_reading, prepare, register
from gshard_train.exported import standalone_translate
from gshard_train.exported.parameter_files import load_parameters as load_parameters
from gshard_train.exported.parameter_files import save_parameters
from gshard_train.exported.readme import readme
from gshard_train.exported.serving import Program, exported_program
from gshard_train.measuring.held_out import find_tasks
from gshard_train.models.transformer import TransformerConfig

FORMAT = "gshard-train export 1"
PROGRAM = Program()
PROGRAM_FILE = "translate.stablehlo"


def export(
    experiment: Experiment,
    *,
    output_dir: str | None = None,
    checkpoint_step: int | None = None,
    split_layers: bool = False,
    max_file_bytes: int = 5 * 2**30,
    program: Program | None = PROGRAM,
    dry_run: bool = False,
) -> Path:
    """Writes a checkpoint's model to a directory of its own and returns the directory.

    Args:
      experiment: what was trained; its tasks tell the vocabularies.
      output_dir: MODEL_DIR/export by default. An export that is there is replaced as a whole,
        anything else is left alone.
      checkpoint_step: the checkpoint to export; the newest by default.
      split_layers: a tensor for each layer instead of one for a stack of layers.
      max_file_bytes: parameters are spread over files of at most so many bytes.
      program: what the program that translates is made for; None leaves it out.
      dry_run: build everything and write nothing.

    Raises:
      UserError: something cannot work; nothing was written.
    """
    output = Path(output_dir) if output_dir else experiment.path("export")
    _check(output, max_file_bytes)
    prepared = prepare(for_reading(experiment, experiment.batch_size))
    # Not before: the question starts JAX's backend, which making the mesh sets up.
    if (count := jax.process_count()) > 1:
        raise UserError(f"{count} processes run this and an export is written by one; start one")
    checkpointer = Checkpointer(experiment.model_dir)
    step = find_step(checkpointer, checkpoint_step)
    with reported_as_user_error():
        register(experiment)
        vocabularies = _vocabularies(experiment)
    built = program and exported_program(
        experiment, prepared.model, program, split_layers=split_layers
    )
    params = restore_params(checkpointer, experiment, prepared, step)
    if dry_run:
        logging.info("Dry run: would export checkpoint %d to %s", step, output)
        return output
    new = output.with_name(output.name + ".new")
    shutil.rmtree(new, ignore_errors=True)
    new.mkdir(parents=True)
    save_parameters(
        params, prepared.model, new, split_layers=split_layers, max_file_bytes=max_file_bytes
    )
    for side, file in vocabularies.items():
        (new / f"{side}.model").write_bytes(file.read_bytes())
    if built:
        (new / PROGRAM_FILE).write_bytes(built.serialize())
        shutil.copyfile(standalone_translate.__file__, new / "translate.py")
    config = {
        "format": FORMAT,
        "checkpoint_step": step,
        "parameters": sum(leaf.size for leaf in jax.tree.leaves(params)),
        "layers": "split" if split_layers else "stacked",
        "model": model_fields(experiment.model),
        "lengths": dict(experiment.task_feature_lengths),
        "vocabularies": {side: f"{side}.model" for side in vocabularies},
        "program": program and _program_fields(program),
    }
    (new / "README.md").write_text(readme(config), "utf-8")
    (new / "config.json").write_text(json.dumps(config, indent=1), "utf-8")
    if output.exists():
        shutil.rmtree(output)
    new.rename(output)
    logging.info("Exported checkpoint %d to %s", step, output)
    return output


def model_fields(config: TransformerConfig) -> dict[str, Any]:
    """A model's sizes as JSON can hold them."""
    fields = dataclasses.asdict(config)
    return fields | {"dtype": np.dtype(config.dtype).name}


def read_config(directory: str | Path) -> TransformerConfig:
    """The model that an export holds.

    Raises:
      UserError: the directory is no export.
    """
    if (config := _export_at(Path(directory))) is None:
        raise UserError(f"{directory} has no config.json of an export")
    lists = {name: tuple(each) for name, each in config["model"].items() if isinstance(each, list)}
    return TransformerConfig(**config["model"] | lists)


def _check(output: Path, max_file_bytes: int) -> None:
    faults = []
    if max_file_bytes < 1:
        faults.append(f"max_file_bytes={max_file_bytes} must be at least 1")
    if output.is_file() or (output.is_dir() and any(output.iterdir()) and not _export_at(output)):
        faults.append(
            f"output_dir={str(output)!r} is there and no export; give another directory or "
            "remove it"
        )
    if faults:
        raise UserError(*faults)


def _export_at(directory: Path) -> Mapping[str, Any] | None:
    try:
        config = json.loads((directory / "config.json").read_text("utf-8"))
    except (OSError, ValueError):
        return None
    return config if isinstance(config, dict) and config.get("format") == FORMAT else None


def _vocabularies(experiment: Experiment) -> dict[str, epath.Path]:
    """The SentencePiece model of each side, where the tasks share one."""
    found: dict[str, epath.Path] = {}
    tasks = find_tasks(experiment.mixture_or_task_name)
    for side in ("inputs", "targets"):
        files = {
            getattr(task.output_features[side].vocabulary, "sentencepiece_model_file", None)
            for task in tasks
        }
        file = files.pop() if len(files) == 1 else None
        if file is None:
            logging.warning("No SentencePiece model for %s: the export takes tokens only", side)
        elif not epath.Path(file).exists():
            raise UserError(f"vocabulary: no file {file!r} for the {side} of {tasks[0].name}")
        else:
            found[side] = epath.Path(file)
    return found


def _program_fields(program: Program) -> dict[str, Any]:
    search = {"kind": type(program.search).__name__, **dataclasses.asdict(program.search)}
    return {
        "file": PROGRAM_FILE,
        "platforms": list(program.platforms),
        "batch_size": program.batch_size,
        "search": search,
        "jax": jax.__version__,
    }
