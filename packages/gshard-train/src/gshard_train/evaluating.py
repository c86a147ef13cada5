"""Evaluating the checkpoints of a run, those that are there and those to come."""

from collections.abc import Sequence

from gshard_train.evaluation import Evaluation
from gshard_train.experiment import Experiment

EVALUATION = Evaluation()


def evaluate(
    experiment: Experiment,
    *,
    evaluation: Evaluation = EVALUATION,
    steps: Sequence[int] | str = "newest",
    wait_seconds: float = 3600.0,
    last_step: int | None = None,
    dry_run: bool = False,
) -> dict[int, dict[str, float]]:
    """Evaluates checkpoints and returns the scalars of each step.

    Args:
      experiment: what was trained.
      evaluation: what is measured on what.
      steps: which checkpoints: "newest", "all" that are there, "continuous" for those that are
        there and those that a run still writes, or their numbers.
      wait_seconds: "continuous" ends when no new checkpoint came for so long.
      last_step: "continuous" ends when this step was evaluated.
      dry_run: read the examples and compile, write nothing.

    Raises:
      UserError: something cannot work; nothing was written.
    """
    raise NotImplementedError
