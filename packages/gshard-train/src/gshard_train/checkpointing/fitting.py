"""What of a checkpoint a run takes over whose model or optimizer is another than the checkpoint's.

Refused unless told, since a tensor that stays as in a new run is not seen in the loss at once.
"""

from collections.abc import Callable, Iterator
from typing import Any

from absl import logging

from gshard_train.checkpointing import refusal
from gshard_train.checkpointing.checkpoint import Checkpointer

REFUSE, FIT = CHOICES = ("refuse", "fit")


def faults(changed_model: object) -> Iterator[str]:
    """A sentence for what is none of the choices."""
    if changed_model not in CHOICES:
        yield f"changed_model={changed_model!r} must be one of {', '.join(map(repr, CHOICES))}"


def restore(
    checkpointer: Checkpointer,
    step: int,
    shapes: Any,
    make: Callable[[Callable[[Any], Any]], Any],
    changed_model: str,
) -> tuple[Any, dict[str, Any]]:
    """A step's state, completed by that of a new run where that was chosen; the feed's position.

    Args:
      checkpointer: of the run.
      step: which checkpoint.
      shapes: what the run's state looks like.
      make: gives the part of a new run's state that a function takes out of it.
      changed_model: one of `CHOICES`.

    Raises:
      UserError: the tensors differ, which was not chosen, or none fits; the step is damaged.
    """
    if changed_model == REFUSE or not checkpointer.differences(step, shapes):
        return checkpointer.restore(step, shapes)
    restored, position, lines = checkpointer.restore_fitting(step, shapes, make)
    _tell(step, lines)
    return restored, position


def check(checkpointer: Checkpointer, step: int, shapes: Any, changed_model: str) -> None:
    """Compares as `restore` does; reads no tensor."""
    if changed_model == REFUSE or not checkpointer.differences(step, shapes):
        checkpointer.check(step, shapes)
    else:
        _tell(step, checkpointer.check_fitting(step, shapes))


def _tell(step: int, lines: list[str]) -> None:
    if lines:
        logging.warning(
            "Of checkpoint %d is left out what does not fit, and new is what it lacks:\n%s",
            step,
            "\n".join(refusal.shortened(lines)),
        )
