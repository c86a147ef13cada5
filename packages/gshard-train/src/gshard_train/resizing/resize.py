"""A checkpoint of one run as the first checkpoint of another, whose model has other experts."""

import dataclasses
import os
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import jax
from absl import logging

from gshard_train import config, disk_faults, last_checkpoint, state
from gshard_train.checkpointing.checkpoint import DIRECTORY, Checkpointer
from gshard_train.checkpointing.trained import find_step
from gshard_train.errors import UserError
from gshard_train.experiment import Experiment, Prepared, prepare
from gshard_train.ranges import not_negative
from gshard_train.resizing.change import Change
from gshard_train.resizing.experts import HOWS
from gshard_train.resizing.fates import Fate, Names, by_path, fates, table
from gshard_train.resizing.old_run import OldRun, matched

_CHOICES = "TransformerConfig.choices"
_ADVICE = "--from_dir has to be the directory of a run that has trained, its MODEL_DIR"
_PROMISES = {
    "split": "Outputs stay the same, while nothing drops, where {choices} is {n} times that of the "
    "old run; with slots_per_token {n} times as large too, an expert has as many slots as before.",
    "merge": "Outputs stay the same as long as the {n} parts of an expert were chosen together, "
    "and {choices} and slots_per_token are those of the old run divided by {n}.",
    "copy": "Outputs stay the same, while nothing drops, where {choices} and slots_per_token are "
    "{n} times those of the old run; with the choices of before a token goes to copies of its "
    "first expert alone.",
    "average": "Outputs stay the same where the {n} experts that become one are alike, and "
    "{choices} and slots_per_token are those of the old run divided by {n}; of experts that differ "
    "it is another model, to train on from.",
    "upcycle": "Outputs are those of the dense model for a token whose weights sum to 1 and that "
    "is not dropped, as when evaluating; experts begin alike and part by the tokens they get.",
}


def resize(
    experiment: Experiment,
    *,
    from_dir: str,
    how: str,
    step: int | None = None,
    noise: float = 0.0,
    router_std: float = 0.02,
    effective_config: str = "",
    dry_run: bool = False,
) -> int:
    """Writes a checkpoint for a model with another number of experts; returns its step.

    The plan, every tensor's fate, is printed first. The checkpoint has the old one's step, random
    key and place in the data, so that training goes on from there. Arrays are made one after the
    other where the new state has them; the old state and the new one are never both whole.

    Args:
      experiment: what is to be trained; its directory has no checkpoint yet.
      from_dir: the directory of the run that there is.
      how: one of `experts.HOWS`.
      step: of its checkpoints; the newest by default.
      noise: added to new experts' matrices, as a share of each matrix's standard deviation, so
        that copies part.
      router_std: standard deviation of the router's numbers where a dense model gets one.
      effective_config: kept with the checkpoint, and as `config.gin` beside it.
      dry_run: print the plan and write nothing.

    Raises:
      UserError: everything that does not fit; nothing was written.
    """
    prepared = _prepared(
        experiment, lambda: _value_faults(experiment, from_dir, how, step, noise, router_std)
    )
    new = state.abstract_state(
        prepared.model,
        prepared.optimizer,
        experiment.rules,
        prepared.mesh,
        offload_optimizer=experiment.offload_optimizer,
    )
    checkpointer = Checkpointer(from_dir)
    step = find_step(checkpointer, step, advice=_ADVICE)
    change, source = matched(experiment, new, checkpointer, step, how)
    change = dataclasses.replace(change, noise=noise, router_std=router_std)
    plan = fates(change, source.shapes, new, Names(source.names, prepared.model.names()))
    _show(source, experiment, change, plan)
    if dry_run:
        logging.info("Dry run: nothing was written.")
        return step
    _write(source, experiment, *_carried_over(source, prepared, new, plan), effective_config)
    logging.info(
        "Wrote checkpoint %d to %s; gshard-train with the same --gin_file and MODEL_DIR goes on "
        "from there.",
        step,
        experiment.path(DIRECTORY),
    )
    return step


def _prepared(experiment: Experiment, value_faults: Callable[[], Iterator[str]]) -> Prepared:
    """The experiment's parts; raises what is wrong with them and the values at once."""
    prepared, faults = None, []
    try:
        prepared = prepare(experiment)
    except UserError as error:
        faults += error.faults
    # Looking for checkpoints starts JAX's backend, which making the mesh sets up.
    faults = [*value_faults(), *faults]
    if prepared is None or faults:
        raise UserError(*faults)
    return prepared


def _value_faults(
    experiment: Experiment,
    from_dir: str,
    how: str,
    step: int | None,
    noise: float,
    router_std: float,
) -> Iterator[str]:
    if not how:
        yield f"--how is missing; give one of {', '.join(HOWS)}"
    elif how not in HOWS:
        yield f"--how={how} is none of the ways; give one of {', '.join(HOWS)}"
    yield from (f"--{fault}" for fault in not_negative(noise=noise, router_std=router_std))
    yield from _source_faults(from_dir, step)
    if not experiment.model_dir:
        return
    if from_dir and os.path.realpath(from_dir) == os.path.realpath(experiment.model_dir):
        yield f"--from_dir={from_dir} is MODEL_DIR itself; give the new run a directory of its own"
    elif there := Checkpointer(experiment.model_dir).steps():
        yield (
            f"MODEL_DIR={experiment.model_dir!r} has checkpoints already, "
            f"{', '.join(map(str, there))}; give the new run a directory of its own"
        )


def _source_faults(from_dir: str, step: int | None) -> Iterator[str]:
    if not from_dir:
        yield "--from_dir is missing; add --from_dir=/path/to/the/run that there is"
    elif not os.path.isdir(from_dir):
        yield f"--from_dir={from_dir}: there is no such directory; give the run that there is"
    elif step is not None and step not in (steps := Checkpointer(from_dir).steps()):
        have = f"there {'are' if len(steps) > 1 else 'is'} {', '.join(map(str, steps)) or 'none'}"
        yield (
            f"--step={step}: there is no such checkpoint that can be read in --from_dir={from_dir}"
            f"; {have}"
        )


def _show(source: OldRun, experiment: Experiment, change: Change, plan: list[Fate]) -> None:
    if jax.process_index() != 0:
        return
    told = _PROMISES[change.how].format(
        n=change.times, choices=f"{_CHOICES} (now {experiment.model.choices})"
    )
    about = any(fate.words.endswith(", about") for fate in plan)
    print(
        f"Checkpoint {source.step} of {source.checkpointer.model_dir} with {change.before} -> "
        f"{experiment.model_dir} with {change.after}, by {change.how}:\n\n{table(plan)}\n\n{told}"
    )
    if about:
        print(
            "What the optimizer keeps becomes what it would have been with the new experts; where "
            "it says about, that is not known of each one and this is the mean."
        )


def _carried_over(
    source: OldRun, prepared: Prepared, new: state.TrainState, plan: list[Fate]
) -> tuple[state.TrainState, Mapping[str, Any]]:
    """The new state, made of the old one, and the feed's position."""
    restored, feed_state = source.checkpointer.restore(source.step, source.shapes)
    arrays = by_path(restored)
    del restored
    wanted = by_path(new)
    uses = [path for fate in plan for path in fate.sources]
    made: dict[tuple[str, ...], jax.Array] = {}
    for fate in plan:
        used = [arrays[path] for path in fate.sources]
        made[fate.path] = _made(fate, used, wanted[fate.path])
        for path in fate.sources:  # what nothing else needs goes, to have room for the next
            uses.remove(path)
            if path not in uses:
                del arrays[path]
    leaves = [made.get(path) for path in wanted]
    state_of = jax.tree.unflatten(jax.tree.structure(new), leaves)
    return _with_fresh(state_of, prepared, new, plan), feed_state


def _write(
    source: OldRun,
    experiment: Experiment,
    made: state.TrainState,
    feed_state: Mapping[str, Any],
    effective_config: str,
) -> None:
    """Saves a state as the first checkpoint of a run, and its configuration beside it."""
    identity = source.checkpointer.feed_identity(source.step)
    with (
        last_checkpoint.told(experiment.model_dir),
        disk_faults.writing("the checkpoint", experiment.path(DIRECTORY)),
    ):
        with Checkpointer(experiment.model_dir) as target:
            target.save(source.step, made, feed_state, config=effective_config, identity=identity)
        if effective_config:
            config.save(effective_config, experiment.model_dir)


def _made(fate: Fate, used: list[jax.Array], wanted: jax.ShapeDtypeStruct) -> Any:
    if fate.make is None:
        return None if fate.is_fresh else jax.device_put(used[0], wanted.sharding)
    sharding: Any = wanted.sharding
    on_host = sharding.memory_kind == state.HOST_MEMORY
    if on_host:  # computed on the devices
        sharding = sharding.with_memory_kind("device")
        used = [jax.device_put(x, x.sharding.with_memory_kind("device")) for x in used]
    made = jax.jit(fate.make, out_shardings=sharding)(*used)
    return jax.device_put(made, wanted.sharding) if on_host else made


def _with_fresh(
    made: state.TrainState, prepared: Prepared, new: state.TrainState, plan: list[Fate]
) -> state.TrainState:
    """The state with the optimizer's own first arrays where nothing is known to become of any."""
    if not any(fate.is_fresh for fate in plan):
        return made
    shardings = jax.tree.map(lambda leaf: leaf.sharding, new.opt_state)
    first = jax.jit(prepared.optimizer.init, out_shardings=shardings)(made.params)
    have = by_path(made)
    leaves = [have.get(path, each) for path, each in by_path(new._replace(opt_state=first)).items()]
    return jax.tree.unflatten(jax.tree.structure(new), leaves)
