"""What a training run begins with: its newest checkpoint's state, or a new one."""

import contextlib
import dataclasses
import functools
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from absl import logging

from gshard_train import resuming, state
from gshard_train.batch_rows import to_mesh
from gshard_train.checkpointing import fitting
from gshard_train.checkpointing.checkpoint import Checkpointer
from gshard_train.data import Feed
from gshard_train.errors import UserError
from gshard_train.experiment import Experiment, Prepared, open_feed
from gshard_train.monitoring.overview import overview
from gshard_train.step import batch_sharding

if TYPE_CHECKING:
    from gshard_train.evaluation import Evaluation

REFUSE, BEGIN_ANEW = DAMAGED_CHOICES = ("refuse", "begin anew")


@dataclasses.dataclass(frozen=True)
class Choices:
    """What a user chose for a checkpoint that this run cannot simply go on from.

    Attributes:
      changed_feed: one of `resuming.CHOICES`.
      changed_model: one of `fitting.CHOICES`.
      damaged_checkpoints: one of `DAMAGED_CHOICES`.
    """

    changed_feed: str = resuming.REFUSE
    changed_model: str = fitting.REFUSE
    damaged_checkpoints: str = REFUSE

    def faults(self) -> Iterator[str]:
        """A sentence for each that is none of the choices."""
        yield from resuming.faults(self.changed_feed)
        yield from fitting.faults(self.changed_model)
        if self.damaged_checkpoints not in DAMAGED_CHOICES:
            among = ", ".join(map(repr, DAMAGED_CHOICES))
            yield f"damaged_checkpoints={self.damaged_checkpoints!r} must be one of {among}"


def start(
    experiment: Experiment,
    prepared: Prepared,
    feed: Feed,
    checkpointer: Checkpointer,
    choices: Choices,
    *,
    between: Callable[[], None] = lambda: None,
) -> tuple[state.TrainState, dict[str, Any] | None]:
    """The newest checkpoint's state, or a new one, and where the feed goes on; None: begins.

    Args:
      experiment: what is trained.
      prepared: its parts.
      feed: of the training data.
      checkpointer: of its directory.
      choices: what is done about a checkpoint that does not fit.
      between: called when the checkpoints are looked through, before one is read as a whole.
    """
    arguments = (prepared.model, prepared.optimizer, experiment.rules, prepared.mesh)

    new = functools.partial(
        state.create,
        *arguments,
        seed=experiment.seed,
        offload_optimizer=experiment.offload_optimizer,
    )
    if (newest := checkpointer.latest_step()) is None:
        _refuse_damaged(checkpointer, choices)
        return new(), None
    between()
    shapes = state.abstract_state(*arguments, offload_optimizer=experiment.offload_optimizer)
    saved = checkpointer.feed_identity(newest)
    anew = resuming.begins_anew(feed, saved, step=newest, changed_feed=choices.changed_feed)
    restored, position = fitting.restore(
        checkpointer, newest, shapes, lambda part: new(part=part), choices.changed_model
    )
    logging.info("Going on from step %d.", newest)
    return restored, None if anew else position


def dry_run(
    experiment: Experiment,
    prepared: Prepared,
    evaluation: "Evaluation | None",
    choices: Choices,
    compile_step: Callable[[Any, Any], Any],
) -> int:
    """A dry run: everything up to the first step; returns the step that training would go on from.

    The parameters are not made and no checkpoint is read, but that it fits is checked.
    """
    arguments = (prepared.model, prepared.optimizer, experiment.rules, prepared.mesh)
    shapes = state.abstract_state(*arguments, offload_optimizer=experiment.offload_optimizer)
    with (
        contextlib.closing(open_feed(experiment, prepared)) as feed,
        Checkpointer(experiment.model_dir) as checkpointer,
    ):
        if (newest := checkpointer.latest_step()) is None:
            _refuse_damaged(checkpointer, choices)
        else:
            fitting.check(checkpointer, newest, shapes, choices.changed_model)
            saved = checkpointer.feed_identity(newest)
            resuming.begins_anew(feed, saved, step=newest, changed_feed=choices.changed_feed)
        logging.info("What would be trained:\n%s", overview(experiment, prepared, shapes))
        batch = to_mesh(next(feed), batch_sharding(experiment.rules, prepared.mesh))
        listed = ", ".join(f"{name} {x.dtype}{list(x.shape)}" for name, x in batch.items())
        logging.info("A batch: %s.", listed)
        compile_step(shapes, batch)
        if evaluation:
            evaluation.open(experiment, prepared).compile()
    logging.info(
        "Dry run: everything fits; training would go on from step %d. Nothing was written.",
        newest or 0,
    )
    return newest or 0


def _refuse_damaged(checkpointer: Checkpointer, choices: Choices) -> None:
    """Raises where there are checkpoints, unless it was chosen to begin anew beside them."""
    if not (none := checkpointer.none_readable()):
        return
    if choices.damaged_checkpoints == BEGIN_ANEW:
        logging.warning(
            "%s\nAs damaged_checkpoints=%r says, the run begins anew at step 0.", none, BEGIN_ANEW
        )
        return
    raise UserError(
        f"{none}\nput one back as it was; or, to begin anew at step 0, move that directory away, "
        f"or add --gin.train.damaged_checkpoints=\"'{BEGIN_ANEW}'\", which gives them other names"
    )
