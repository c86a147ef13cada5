"""What is measured on held-out examples of seqio tasks, during training and by gshard-eval.

`Evaluation` says what; `open` reads the examples; the `Evaluator` is then called with a step's
parameters, as often as there are steps to evaluate.
"""

import dataclasses
from collections.abc import Callable, Sequence

from gshard_train import state
from gshard_train.decode import BeamSearch
from gshard_train.experiment import Experiment, Prepared

SEARCH = BeamSearch()


@dataclasses.dataclass(frozen=True, kw_only=True)
class Evaluation:
    """What is measured, on which examples.

    Attributes:
      splits: names of splits, such as ("validation",).
      mixture_or_task_name: a seqio name; the experiment's by default.
      batch_size: examples at once; the experiment's by default. No number depends on it.
      num_examples: at most so many of each task, from the front; all by default.
      use_cached: read what seqio_cache_tasks wrote, found below --seqio_additional_cache_dirs.
      leave_out_lacking: leave out the tasks that lack a split, and name them; otherwise that is
        an error.
      decode: translate for the tasks' metrics of predictions; False leaves those metrics out.
      search: how translations are searched for.
      language_of: the language of a task, by its name; the counts of experts are kept by it.
    """

    splits: Sequence[str] = ("validation",)
    mixture_or_task_name: str | None = None
    batch_size: int | None = None
    num_examples: int | None = None
    use_cached: bool = False
    leave_out_lacking: bool = False
    decode: bool = True
    search: BeamSearch = SEARCH
    language_of: Callable[[str], str] = str

    def open(self, experiment: Experiment, prepared: Prepared) -> "Evaluator":
        """Reads the examples, once for all steps.

        Raises:
          UserError: with everything that cannot work; nothing was written.
        """
        return Evaluator(self, experiment, prepared)


class Evaluator:
    """Measures the parameters of a step on examples that were read before."""

    def __init__(self, evaluation: Evaluation, experiment: Experiment, prepared: Prepared):
        self._evaluation, self._experiment, self._prepared = evaluation, experiment, prepared

    def __call__(self, step: int, params: state.Params) -> dict[str, float]:
        """Scalars named eval/<task, or all>/<metric>; with several splits eval/<split>/...

        Writes MODEL_DIR/evaluation/<step>/ and MODEL_DIR/evaluation/evaluation.jsonl, on the
        first process only.
        """
        raise NotImplementedError

    def compile(self) -> None:
        """Compiles the programs for the parameters' shapes, for a dry run."""
        raise NotImplementedError
