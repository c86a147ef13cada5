"""What is measured on held-out examples of seqio tasks, during training and by gshard-eval.

`Evaluation` says what; `open` reads the examples; the `Evaluator` is then called with a step's
parameters, as often as there are steps to evaluate.
"""

import dataclasses
import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any

import jax
from absl import logging

from gshard_train import disk_faults, state
from gshard_train.checkpointing.checkpoint import Checkpointer
from gshard_train.decode import BeamSearch, Search
from gshard_train.decoding.decoder import Decoder, Hypothesis
from gshard_train.decoding.fingerprint import fingerprint
from gshard_train.errors import UserError, reported_as_user_error
from gshard_train.experiment import (
    Experiment,
    Prepared,
    for_reading,
    prepare,
    register,
    vocabulary_faults,
)
from gshard_train.measuring import expert_languages, files
from gshard_train.measuring.held_out import find_tasks, read_splits
from gshard_train.measuring.results import EvaluatedTask, counted, results, told
from gshard_train.measuring.task_metrics import Measured, measure, metrics_of, model_outputs
from gshard_train.measuring.teacher_forcing import Scores, TeacherForcing

SEARCH = BeamSearch()


@dataclasses.dataclass(frozen=True, kw_only=True)
class Evaluation:
    """What is measured, on which examples.

    Attributes:
      splits: names of splits, such as ("validation",).
      mixture_or_task_name: a seqio name; the experiment's by default.
      batch_size: examples at once; the experiment's by default. No number depends on it, as long
        as the model's eval_slots_per_token drops no token.
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
    search: Search = SEARCH
    language_of: Callable[[str], str] = expert_languages.task_language

    def __post_init__(self):
        if faults := list(self._faults()):
            raise ValueError("Evaluation: " + "; ".join(faults))

    def _faults(self) -> Iterator[str]:
        if isinstance(self.splits, str) or not self.splits:
            given = (self.splits,) if self.splits else ("validation",)
            yield f"splits={self.splits!r} must be names, such as {given}"
        for name in ("batch_size", "num_examples"):
            if (value := getattr(self, name)) is not None and value < 1:
                yield f"{name}={value} must be at least 1, or None"

    def open(self, experiment: Experiment, prepared: Prepared) -> "Evaluator":
        """Reads the examples, once for all steps.

        Raises:
          UserError: with everything that cannot work; nothing was written.
        """
        return Evaluator(self, experiment, prepared)


class Evaluator:
    """Measures the parameters of a step on examples that were read before."""

    def __init__(self, evaluation: Evaluation, experiment: Experiment, prepared: Prepared):
        batch_size = evaluation.batch_size or experiment.batch_size
        if batch_size != experiment.batch_size:
            # For its faults: mesh and groups have to divide this batch too.
            prepare(for_reading(experiment, batch_size))
        self._evaluation, self._experiment = evaluation, experiment
        self._config = prepared.model.config
        self._checkpointer = Checkpointer(experiment.model_dir)
        with reported_as_user_error():
            register(experiment)
            self._splits = {split: self._read(split) for split in evaluation.splits}
            tasks = [task.read for tasks in self._splits.values() for task in tasks]
            self._languages, labels = expert_languages.label(tasks, evaluation.language_of)
            following = iter(labels)
            self._labels = {
                split: [next(following) for task in tasks for _ in task.read.examples]
                for split, tasks in self._splits.items()
            }
        self._forcing = TeacherForcing(
            experiment, prepared, batch_size=batch_size, num_labels=len(self._languages)
        )
        decoded = any(task.decoded for tasks in self._splits.values() for task in tasks)
        self._decoder = (
            Decoder(experiment, prepared, evaluation.search, batch_size=batch_size)
            if decoded
            else None
        )

    def __call__(
        self, step: int, params: state.Params, *, between: Callable[[], None] = lambda: None
    ) -> dict[str, float]:
        """Scalars named eval/<task, or all>/<metric>; with several splits eval/<split>/...

        Writes MODEL_DIR/evaluation/<step>/ and MODEL_DIR/evaluation.jsonl, on the first process
        only. `between` is called between batches; what it raises ends the evaluation, of which
        splits that are done stay.
        """
        found = {}
        checkpoint = self._checkpointer.commit_time(step)
        for split, tasks in self._splits.items():
            result = self._measure(step, split, tasks, params, checkpoint, between)
            prefix = "eval" if len(self._splits) == 1 else f"eval/{split}"
            found |= {f"{prefix}/{name}": value for name, value in files.scalars(result).items()}
        if jax.process_index() == 0:
            with self._writing():
                files.write_lines(self._experiment.model_dir)
        return found

    def is_done(self, step: int) -> bool:
        """Whether a step's results are there, of the checkpoint that is there and made in this way.

        A run that evaluates before it saves notes no checkpoint; that is the one it saved then.
        """
        checkpoint = self._checkpointer.commit_time(step)
        for split in self._splits:
            result = files.read_result(self._experiment.model_dir, step, split)
            if result is None or result.get("settings") != self._settings(split):
                return False
            if result.get("checkpoint", -1) not in (None, checkpoint) and checkpoint is not None:
                return False
        return True

    def compile(self) -> None:
        """Compiles the programs for the parameters' shapes, for a dry run."""
        self._forcing.compile()
        if self._decoder:
            self._decoder.compile()

    def __str__(self) -> str:
        def parts(tasks: Sequence[EvaluatedTask]) -> str:
            examples = sum(len(task.read.examples) for task in tasks)
            metrics = sum(len(task.metrics) for task in tasks)
            numbers = {"task": len(tasks), "example": examples, "metric": metrics}
            return ", ".join(counted(number, noun) for noun, number in numbers.items())

        return "; ".join(f"{split}: {parts(tasks)}" for split, tasks in self._splits.items())

    def _read(self, split: str) -> list[EvaluatedTask]:
        evaluation, experiment = self._evaluation, self._experiment
        name = evaluation.mixture_or_task_name or experiment.mixture_or_task_name
        read = read_splits(
            name,
            split,
            experiment.task_feature_lengths,
            leave_out_lacking=evaluation.leave_out_lacking,
            num_examples=evaluation.num_examples,
            use_cached=evaluation.use_cached,
            need_texts=False,
        )
        faults = {f for task in read for f in vocabulary_faults(experiment, task.vocabulary_sizes)}
        if faults:
            raise UserError(*sorted(faults))
        by_name = {task.name: task for task in find_tasks(name)}
        found, start = [], 0
        for part in read:
            metrics = metrics_of(by_name[part.task], predictions=evaluation.decode)
            rows = slice(start, start + len(part.examples))
            found.append(EvaluatedTask(by_name[part.task], metrics, part, rows))
            start = rows.stop
        return found

    def _settings(self, split: str) -> dict[str, Any]:
        """What the numbers depend on beside the parameters, as JSON gives it back."""
        tasks = self._splits[split]
        search = self._evaluation.search
        marks = fingerprint(self._experiment, 0, search, "", [task.read for task in tasks])
        settings = {
            "tasks": {task.read.task: len(task.read.examples) for task in tasks},
            "metrics": {task.read.task: len(task.metrics) for task in tasks},
            "search": marks["search"] if self._decoder else None,
            **{name: marks[name] for name in ("lengths", "model", "sentences")},
        }
        return json.loads(json.dumps(settings))

    def _measure(
        self,
        step: int,
        split: str,
        tasks: Sequence[EvaluatedTask],
        params: state.Params,
        checkpoint: int | None,
        between: Callable[[], None],
    ) -> dict[str, Any]:
        """The result of one split, which is written too."""
        started = time.monotonic()
        examples = [example for task in tasks for example in task.read.examples]
        scores = self._forcing.score(
            params, examples, self._labels[split], progress=True, between=between
        )
        hypotheses = self._decode(params, tasks, between)
        measured = {
            task.read.task: self._measure_task(task, scores, hypotheses.get(task.read.task))
            for task in tasks
        }
        result = {
            "step": step,
            "split": split,
            "checkpoint": checkpoint,
            "seconds": round(time.monotonic() - started, 3),
            "settings": self._settings(split),
            **results(tasks, scores, measured),
        }
        logging.info("%s", told(result))
        if jax.process_index() == 0:
            self._write(result, tasks, scores, measured, hypotheses)
        return result

    def _decode(
        self, params: state.Params, tasks: Sequence[EvaluatedTask], between: Callable[[], None]
    ) -> dict[str, Sequence[Hypothesis]]:
        """The translations of the tasks that have metrics for them, all in common batches."""
        if not self._decoder:
            return {}
        decoded = [task.read for task in tasks if task.decoded]
        examples = [example for task in decoded for example in task.examples]
        # Sampling draws by the number of an example in its task.
        numbers = [number for task in decoded for number in range(len(task.examples))]
        found = iter(
            self._decoder.decode(params, examples, progress=True, numbers=numbers, between=between)
        )
        return {task.task: [next(found) for _ in task.examples] for task in decoded}

    def _measure_task(
        self, task: EvaluatedTask, scores: Scores, hypotheses: Sequence[Hypothesis] | None
    ) -> Measured:
        length = self._experiment.task_feature_lengths["targets"]
        outputs = model_outputs(hypotheses, scores.nats_X[task.rows], length)
        rows = [example.row for example in task.read.examples]
        return measure(task.task, task.metrics, rows, outputs)

    def _write(
        self,
        result: Mapping[str, Any],
        tasks: Sequence[EvaluatedTask],
        scores: Scores,
        measured: Mapping[str, Measured],
        hypotheses: Mapping[str, Sequence[Hypothesis]],
    ) -> None:
        lines = {
            task.read.task: files.lines(
                task.read.examples, hypotheses.get(task.read.task), measured[task.read.task]
            )
            for task in tasks
            if measured[task.read.task].inferences
        }
        counts = {name: len(objects) for name, objects in lines.items()}
        settings = {
            "checkpoint_step": result["step"],
            "decoder": dataclasses.asdict(self._evaluation.search) if self._decoder else {},
        }
        documents = {"manifest.json": {"tasks": counts, "split": result["split"], **settings}}
        if scores.load_NE is not None:
            documents[expert_languages.FILE_NAME] = expert_languages.shares(
                self._config, self._languages, scores.load_NE
            )
        directory = self._experiment.path(files.DIRECTORY, str(result["step"]))
        with self._writing():
            files.write_split(
                directory, result["split"], result=result, lines=lines, documents=documents
            )

    def _writing(self) -> AbstractContextManager[None]:
        return disk_faults.writing("the evaluation's results", self._experiment.model_dir)
