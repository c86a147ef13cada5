"""Checkpoints of a run with orbax: what to go on from, whole or not there at all.

`<model_dir>/checkpoints/<step>/` holds the state, as named tensors, the training feed's position,
and what run it is: its configuration and what the order of its examples depends on. A step's
directory gets its name when everything in it is written; a sum of each file follows (`checksums`),
and what does not agree with them is not read.

With several processes each calls the same methods in the same order: what one finds damaged is
damaged for all, and the first alone changes names.
"""

import functools
import os
from collections.abc import Callable, Mapping
from typing import Any

import orbax.checkpoint as ocp
from absl import logging

from gshard_train import agreement
from gshard_train.checkpointing import checksums, reading, refusal, stored, tensors, writing
from gshard_train.checkpointing.policy import Kept
from gshard_train.checkpointing.reading import FEED, RUN, STATE
from gshard_train.errors import UserError
from gshard_train.resizing import experts

DIRECTORY = stored.DIRECTORY


class Checkpointer:
    """Saves and restores the state of a run. Usable in a `with` block.

    Reading changes nothing on disk: the directory is made, what a killed run left half-written is
    removed, and damaged steps get other names with `prepare` or the first `save`. Nor does it start
    threads: only who saves needs to close. The sums of a step's files are compared once.

    Args:
      model_dir: the run's directory; the checkpoints are in `checkpoints` below it.
      keep: which checkpoints stay, or how many of the newest. Damaged ones do not count, and stay.
      asynchronous: write to disk in the background; `save` returns when it has copied the state.
    """

    def __init__(
        self, model_dir: str | os.PathLike[str], *, keep: Kept | int = 3, asynchronous: bool = True
    ):
        self.model_dir = os.fspath(model_dir)
        self._stored = stored.Stored(model_dir)
        self._directory = self._stored.directory
        self._keep = Kept(newest=keep) if isinstance(keep, int) else keep
        self._asynchronous = asynchronous
        self._manager: ocp.CheckpointManager | None = None
        self._sums = checksums.BackgroundSums()
        self._unreadable: dict[int, str] = {}

    def __enter__(self) -> "Checkpointer":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def prepare(self) -> None:
        """Does before the first save what that would do: a run's steps need not wait for it."""
        agreement.together(self.wait)
        self._writer()
        for step in agreement.decided(lambda: sorted(self._stored.without_sums)):
            directory = self._stored.path(step)
            agreement.decided(functools.partial(checksums.discard, directory))
            self._sums.add(directory, committed=lambda: True)
            self._stored.without_sums.discard(step)

    def save(
        self,
        step: int,
        state: Any,
        feed_state: Mapping[str, Any],
        *,
        config: str = "",
        identity: Mapping[str, Any] | None = None,
        metrics: Mapping[str, float] | None = None,
        skipped_steps: int = 0,
    ) -> bool:
        """Saves a tree of arrays and a feed's position; False if the step is there already.

        The arrays may be donated or changed afterwards. An error of the previous save in the
        background is raised here.

        Args:
          step: a directory of that name.
          state: the arrays.
          feed_state: the position of the training feed, as JSON can hold it.
          config: the run's effective configuration.
          identity: what the order of the feed's examples depends on, as JSON can hold it.
          metrics: figures of this step, where the best ones are kept.
          skipped_steps: how many were left out so far, for NaN or Inf.
        """
        agreement.together(self.wait)
        directory = self._stored.path(step)
        writer = self._writer()
        if agreement.decided(directory.exists):
            if not self._fault(step):
                return False
            self._move_aside(step)
        run = {"config": config, "identity": dict(identity or {}), "skipped_steps": skipped_steps}
        parts = {
            STATE: ocp.args.PyTreeSave(tensors.nested(state)),
            FEED: ocp.args.JsonSave(dict(feed_state)),
            RUN: ocp.args.JsonSave(run),
        }
        saved = writer.save(
            step, args=ocp.args.Composite(**parts), metrics=dict(metrics or {}), force=True
        )
        self._sums.add(directory, committed=lambda: step in self._stored.steps())
        return saved

    def steps(self) -> list[int]:
        """The steps that can be read now, in their order; a run that trains may remove them.

        The sums of their files are not compared.
        """
        agreement.together(self.wait)
        return agreement.decided(
            lambda: [step for step in self._stored.steps() if not self._stored.damage(step)]
        )

    def latest_step(self) -> int | None:
        """The newest step that can be read; what cannot is left alone and warned about."""
        agreement.together(self.wait)
        for step in reversed(agreement.decided(self._stored.steps)):
            if not (damage := self._fault(step)):
                return step
            if step not in self._unreadable:
                self._unreadable[step] = damage
                logging.warning(
                    "Checkpoint %d in %s cannot be read (%s); looking for an older one.",
                    step,
                    self._directory,
                    damage,
                )
        return None

    def none_readable(self) -> str:
        """A sentence on the steps of which `latest_step` found none to be readable, and why.

        Nothing where there is no step at all.
        """
        if not self._unreadable:
            return ""
        found = sorted(self._unreadable)
        listed = ", ".join(map(str, found))
        count = f"the checkpoints {listed}" if len(found) > 1 else f"one checkpoint, {listed},"
        each = "\n".join(f"  {step}: {self._unreadable[step]}" for step in reversed(found))
        return f"{self._directory} has {count} and none can be read:\n{each}"

    def restore(self, step: int, abstract_state: Any) -> tuple[Any, dict[str, Any]]:
        """The state of a step, laid out as asked for, and the feed's position.

        Args:
          step: one of the saved steps.
          abstract_state: the tree that was saved, with `jax.ShapeDtypeStruct`s that carry the
            shardings wanted now; they need not be those of the run that saved.

        Raises:
          UserError: naming every tensor that is missing, left over or of another shape or dtype;
            or saying that the step's files are damaged.
        """
        wanted = tensors.nested(abstract_state)
        self.check(step, abstract_state)
        restored = self._read_checked(
            step, {STATE: reading.arrays(wanted), FEED: ocp.args.JsonRestore()}
        )
        return tensors.unnested(restored[STATE], abstract_state), restored[FEED]

    def restore_fitting(
        self, step: int, abstract_state: Any, make: Callable[[Callable[[Any], Any]], Any]
    ) -> tuple[Any, dict[str, Any], list[str]]:
        """A new state with what fits of a step in it, the feed's position, and what does not fit.

        Args:
          step: one of the saved steps.
          abstract_state: as `restore` has it; what the step lacks, or has in another shape or
            dtype, is made.
          make: gives the part of a new state that a function takes out of it.

        Raises:
          UserError: no parameter fits, or the step's files are damaged.
        """
        wanted = tensors.nested(abstract_state)
        fitting, lines = self._fitting(step, wanted)
        lacking = tensors.without(wanted, fitting)
        made = make(lambda state: tensors.without(state, fitting)) if lacking else {}
        restored = self._read_checked(
            step, {STATE: reading.arrays(fitting, partial=True), FEED: ocp.args.JsonRestore()}
        )
        state = tensors.unnested(restored[STATE], abstract_state, otherwise=made)
        return state, restored[FEED], lines

    def check_fitting(self, step: int, abstract_state: Any) -> list[str]:
        """What does not fit, as `restore_fitting` has it; reads no tensor.

        Raises:
          UserError: no parameter fits.
        """
        return self._fitting(step, tensors.nested(abstract_state))[1]

    def check(self, step: int, abstract_state: Any) -> None:
        """Compares a step's tensors with those wanted, as `restore` does; reads none.

        Raises:
          UserError: naming those that differ.
        """
        wanted = tensors.nested(abstract_state)
        agreement.together(lambda: self._compare(step, self._saved(step), wanted, refusal.CHOICE))

    def tensors(self, step: int) -> dict[str, Any]:
        """The shapes and dtypes of a step's state, nested by the names on their way.

        Raises:
          UserError: there is no such step, or it is damaged.
        """
        return agreement.together(lambda: self._saved(step))

    def differences(self, step: int, abstract_state: Any) -> list[str]:
        """A sentence for each tensor in which a step differs from what is wanted; reads none."""
        wanted = tensors.nested(abstract_state)
        return agreement.together(lambda: tensors.differences(self._saved(step), wanted))

    def restore_part(self, step: int, name: str, abstract_part: Any) -> Any:
        """One part of a step's state, such as its "params"; other arrays are not read.

        The sums of all files are compared first, which reads the files.

        Raises:
          UserError: as `restore` does.
        """
        wanted = {name: tensors.nested(abstract_part)}

        def compare() -> None:
            saved = self._saved(step)
            self._compare(step, {name: saved[name]} if name in saved else {}, wanted)

        agreement.together(compare)
        restored = self._read_checked(step, {STATE: reading.arrays(wanted, partial=True)})
        return tensors.unnested(restored[STATE][name], abstract_part)

    def feed_identity(self, step: int) -> dict[str, Any] | None:
        """What the order of examples depended on when a step was saved, where it is known."""
        return agreement.decided(lambda: self._stored.run(step).get("identity") or None)

    def skipped_steps(self, step: int) -> int:
        """How many steps the run had left out for NaN or Inf when it saved this one."""
        return agreement.decided(lambda: self._stored.run(step).get("skipped_steps", 0))

    def commit_time(self, step: int) -> int | None:
        """When a step was saved, in nanoseconds; None where it is not there, or does not tell."""
        return self._stored.commit_time(step)

    def is_removed(self, step: int, *, seconds: float) -> bool:
        """Whether the run has removed a step, or is done with it within so many seconds."""
        return agreement.decided(lambda: checksums.goes(self._stored.path(step), seconds=seconds))

    def wait(self) -> None:
        """Returns when what was saved is on disk; raises what went wrong meanwhile."""
        if self._manager:
            self._manager.wait_until_finished()

    def give_up_sums(self, *, after_seconds: float) -> None:
        """Lets `close` wait no longer than so for the sums of files; the next run makes them."""
        self._sums.give_up(after_seconds=after_seconds)

    def close(self) -> None:
        """Waits for the last save and ends the background threads."""
        try:
            if self._manager:
                self._manager.close()
        finally:
            self._manager = None
            self._sums.close()

    def _writer(self) -> ocp.CheckpointManager:
        if self._manager is None:
            # orbax would count them among the newest, and remove good ones for them.
            for step in agreement.decided(self._stored.steps):
                if _any(functools.partial(self._known_fault, step)):
                    self._move_aside(step)
            self._manager = writing.manager(
                self._directory,
                self._keep,
                asynchronous=self._asynchronous,
                before_removal=lambda steps: self._sums.leave_out(map(self._stored.path, steps)),
            )
        return self._manager

    def _move_aside(self, step: int) -> None:
        self._stored.forget(step)
        agreement.decided(lambda: writing.move_aside(self._stored.path(step)))

    def _saved(self, step: int) -> dict[str, Any]:
        self.wait()
        return self._stored.tensors(step)

    def _fitting(self, step: int, wanted: dict[str, Any]) -> tuple[dict[str, Any], list[str]]:
        """The wanted tensors that a step has, and how the others differ."""
        saved = self.tensors(step)
        lines = tensors.differences(saved, wanted)
        found = tensors.fitting(saved, wanted)
        if "params" not in found:
            raise UserError(refusal.text(step, self._directory, lines, refusal.NOTHING_FITS))
        return found, lines

    def _compare(self, step: int, saved: Any, wanted: Any, choice: str = "") -> None:
        if lines := tensors.differences(saved, wanted):
            advice = experts.hint(saved, wanted, self.model_dir)
            config = self._stored.run(step).get("config", "")
            raise UserError(refusal.text(step, self._directory, lines, choice + advice, config))

    def _read_checked(self, step: int, parts: dict[str, Any]) -> Any:
        """Parts of a step whose files are as they were written; raised is the same everywhere."""
        if changes := _any(lambda: self._stored.changes(step)):
            raise self._stored.damaged(step, changes)
        return agreement.together(lambda: self._stored.read(step, parts))

    def _fault(self, step: int) -> str:
        """Why a step cannot be read, or nothing; the same on every process."""
        return _any(lambda: self._stored.damage(step) or self._stored.changes(step))

    def _known_fault(self, step: int) -> str:
        """The same as this process knows it, without reading all files."""
        return self._stored.damage(step) or self._stored.known_changes(step)


def _any(find: Callable[[], str]) -> str:
    """What this process finds, or another where it finds nothing; every process has to ask."""
    found = agreement.together(find)
    everywhere = agreement.gathered(found)
    elsewhere = (f"process {index}: {text}" for index, text in enumerate(everywhere) if text)
    return found or next(elsewhere, "")
