"""What a run does about steps with NaN or Inf: leaves out a few, or stops, and names them."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
from absl import logging

from gshard_train import nonfinite
from gshard_train.errors import UserError

_SHOWN = 50  # examples named in an error; a warning names all


class NonfiniteError(UserError, FloatingPointError):
    """A step gave NaN or Inf, and no more such steps may be left out."""


class Guard:
    """Lets a run leave out so many steps with NaN or Inf, and stops it at the next one.

    Args:
      of_pieces: makes `pieces` of the model that is trained, when they are asked for.
      allowed: how many steps may be left out.
      left_out: how many were, before a resume.
      examples: the names of the examples in this process's rows, of a position of the feed from
        before the batch; None where the feed does not tell.

    Attributes:
      left_out: how many were, those before a resume included.
      allowed: how many may be.
    """

    def __init__(
        self,
        of_pieces: Callable[[], Sequence[nonfinite.Piece]],
        *,
        allowed: int = 0,
        left_out: int = 0,
        examples: Callable[[Any], Sequence[str] | None] = lambda _: None,
    ):
        self.left_out, self.allowed = left_out, allowed
        self._pieces, self._examples = of_pieces, examples

    def check(self, step: int, metrics: Mapping[str, Any], position: Any) -> None:
        """Takes in a step's metrics, on the host; every process has the same.

        Args:
          step: its number.
          metrics: of `make_step`'s step.
          position: of the feed before the step's batch.

        Raises:
          NonfiniteError: something is not, and no more steps may be left out.
        """
        if nonfinite.all_finite(metrics):
            return
        said = f"step {step}: {nonfinite.describe(metrics, self._pieces())}"
        if not metrics["nonfinite"]:
            raise NonfiniteError(
                f"{said}; the parameters are lost with it", self._told(position, _SHOWN)
            )
        if self.left_out >= self.allowed:
            beside = f", beside the {self.left_out} that train.skipped_steps allowed"
            raise NonfiniteError(
                f"{said}; its update was left out{beside if self.allowed else ''}",
                self._told(position, _SHOWN),
                "lower the learning rate, clip gradients, look at these examples, or set "
                f"train.skipped_steps = {self.allowed + 1} to go on without this step's update",
            )
        self.left_out += 1
        logging.warning(
            "%s; its update was left out, %d of the %d that train.skipped_steps allows; %s",
            said,
            self.left_out,
            self.allowed,
            self._told(position),
        )

    def _told(self, position: Any, most: int | None = None) -> str:
        """The batch's examples, or why they are not known."""
        try:
            names = self._examples(position)
        except Exception as error:  # of any feed; it must not hide what is reported
            return f"the batch's examples are not known ({type(error).__name__}: {error})"
        if names is None:
            return f"the feed does not name its examples; it was at {position}"
        several = f", rows of process {jax.process_index()}" if jax.process_count() > 1 else ""
        more = f" and {len(names) - most} more" if most and len(names) > most else ""
        return f"the batch's examples{several}: {', '.join(names[:most])}{more}"
