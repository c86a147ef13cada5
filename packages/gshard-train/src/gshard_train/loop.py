"""The steps of a run one after the other, with what is saved and evaluated between them."""

import contextlib
import dataclasses
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Protocol

import jax
from absl import logging

from gshard_train.checkpointing.policy import Kept
from gshard_train.interruption import Interrupted, StopRequest
from gshard_train.monitoring import sign_of_life
from gshard_train.monitoring.profiling import Profiler
from gshard_train.monitoring.reporting import Reporter
from gshard_train.monitoring.stopwatch import Stopwatch
from gshard_train.prefetch import Prefetch
from gshard_train.saving import Saver
from gshard_train.state import TrainState
from gshard_train.step import Step
from gshard_train.watchdog import EVALUATING, Watchdog

_SUMS_SECONDS = 5.0  # of the time until a machine is taken away


class Evaluate(Protocol):
    """An evaluation of parameters, which asks now and then whether the run is to stop."""

    def __call__(
        self, step: int, params: Any, *, between: Callable[[], None]
    ) -> Mapping[str, float]:
        """The figures of a step, by name."""
        ...


@dataclasses.dataclass(frozen=True, kw_only=True)
class Due:
    """At which steps something is done beside training; all of it at the last one.

    Attributes:
      total: the last step.
      checkpoint_period: steps between checkpoints.
      eval_period: steps between evaluations; None for no evaluation.
      kept: which checkpoints stay.
    """

    total: int
    checkpoint_period: int
    eval_period: int | None
    kept: Kept

    def faults(self) -> Iterator[str]:
        """What of it does not go together."""
        if self.kept.best and (not self.eval_period or self.checkpoint_period % self.eval_period):
            yield (
                f"Kept.best={self.kept.best} needs figures of every checkpoint: CHECKPOINT_PERIOD="
                f"{self.checkpoint_period} has to be a multiple of EVAL_PERIOD={self.eval_period}"
            )

    def save(self, step: int) -> bool:
        """Whether a step is saved."""
        return step == self.total or step % self.checkpoint_period == 0

    def evaluate(self, step: int) -> bool:
        """Whether a step is evaluated."""
        return self.eval_period is not None and (step == self.total or step % self.eval_period == 0)


class Loop:
    """Makes the steps of a run until the last one, or until it is asked to stop.

    Args:
      train_state: what the first step is given, which consumes it.
      due: what is done at which steps.
      batches: one for each step.
      saver: saves steps.
      evaluate: evaluates them, where that is wanted.
      reporter: takes in each step's metrics.
      profiler: traces some steps.
      watch: measures where the time goes.
      watchdog: is told what is done.
      stop: says when to stop.
    """

    def __init__(
        self,
        train_state: TrainState,
        *,
        due: Due,
        batches: Prefetch,
        saver: Saver,
        evaluate: Evaluate | None,
        reporter: Reporter,
        profiler: Profiler,
        watch: Stopwatch,
        watchdog: Watchdog,
        stop: StopRequest,
    ):
        self._state, self._step = train_state, int(train_state.step)
        self._due, self._batches, self._saver, self._evaluate = due, batches, saver, evaluate
        self._reporter, self._profiler, self._watch = reporter, profiler, watch
        self._watchdog, self._stop = watchdog, stop

    def run(self, compiled: Callable[[TrainState, Any], Step]) -> int:
        """Makes the steps and returns the one that was reached, whose checkpoint is on disk.

        Args:
          compiled: gives the step for a state and a batch's shapes.
        """
        self._saver.prepare()
        self._watchdog.tell(self._step, "compiling")
        with self._reporter.stall("compile_seconds"):
            make_step = compiled(self._state, self._batches.shapes())
        self._stop.begin()
        while self._step < self._due.total and not self._stop.name:
            self._make(make_step)
            self._save_and_evaluate()
        self._finish()
        return self._step

    def _make(self, make_step: Step) -> None:
        self._watchdog.tell(self._step, "waiting for data")
        position = self._batches.get_state()  # from before the batch, which it stands for
        with self._watch.part("data"):
            batch = next(self._batches)
        self._step += 1
        self._watchdog.tell(self._step)
        self._stop.agree()
        self._profiler.before(self._step, self._state)
        # The call itself waits where the devices cannot take another program yet.
        with (
            self._watch.part("devices"),
            jax.profiler.StepTraceAnnotation("train", step_num=self._step),
        ):
            self._state, metrics = make_step(self._state, batch)
        self._profiler.after(self._step, metrics)
        self._reporter.add(self._step, metrics, position)

    def _save_and_evaluate(self) -> None:
        save, evaluate = self._due.save(self._step), self._due.evaluate(self._step)
        if save or evaluate:
            # First the numbers: a step that gives none leaves no checkpoint behind.
            self._reporter.report()
        best = self._due.kept.best  # which of them are the best is known only with the figures
        if save and not best:
            self._save({})
        figures = self._figures(self._evaluate) if evaluate and self._evaluate else {}
        if self._stop.name and not figures:
            return  # the evaluation is left to gshard-eval
        if save and best:
            self._save(figures)
            self._due.kept.check(figures)

    def _save(self, figures: Mapping[str, float]) -> None:
        self._watchdog.tell(self._step, "saving")
        with self._reporter.stall("checkpoint_stall_seconds"):
            self._saver.save(
                self._step,
                self._state,
                self._batches.get_state(),
                figures=figures,
                skipped_steps=self._reporter.skipped_steps,
            )

    def _figures(self, evaluate: Evaluate) -> Mapping[str, float]:
        """Those of this step; none where the run is to stop."""
        self._watchdog.tell(self._step, EVALUATING)
        with self._reporter.stall("evaluation_seconds"), contextlib.suppress(Interrupted):
            figures = evaluate(self._step, self._state.params, between=self._stop.check)
            self._reporter.add_figures(figures)
            return figures
        return {}

    def _finish(self) -> None:
        self._reporter.end()
        if self._stop.name:
            self._save({})
        self._watchdog.tell(self._step, "saving")
        # Before the reporter closes, which may wait for TensorBoard's slow start.
        with sign_of_life.told("writing the checkpoint", every_seconds=10.0):
            self._saver.wait()
        if self._stop.name:
            logging.info(
                "Saved step %d %.1f s after %s.", self._step, self._stop.seconds, self._stop.name
            )
            self._saver.checkpointer.give_up_sums(after_seconds=_SUMS_SECONDS)
