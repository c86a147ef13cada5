"""Checkpoints of a run that trains: what is saved beside its arrays."""

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gshard_train import disk_faults, last_checkpoint
from gshard_train.checkpointing.checkpoint import DIRECTORY, Checkpointer


@dataclasses.dataclass
class Saver:
    """Saves steps of one run.

    Attributes:
      checkpointer: of the run's directory.
      config: the run's effective configuration.
      identity: what the order of the feed's examples depends on.
      newest: the newest step that has a checkpoint; None where there is none.
    """

    checkpointer: Checkpointer
    config: str
    identity: Mapping[str, Any]
    newest: int | None

    def prepare(self) -> None:
        """Does what the first save would have to wait for.

        Raises:
          DiskError: it cannot be done, as with all here.
        """
        with self._told():
            self.checkpointer.prepare()

    def save(
        self,
        step: int,
        train_state: Any,
        position: Mapping[str, Any],
        *,
        figures: Mapping[str, float],
        skipped_steps: int,
    ) -> None:
        """Saves a step in the background, unless it is saved; every process has to call it.

        Args:
          step: its number.
          train_state: its arrays.
          position: of the feed behind its batch.
          figures: by which the best steps are kept.
          skipped_steps: how many were left out, for NaN or Inf.
        """
        if step == self.newest:
            return
        gone = self.newest is not None and last_checkpoint.vanished(self.checkpointer.model_dir)
        with self._told():
            self.checkpointer.save(
                step,
                train_state,
                position,
                config=self.config,
                identity=self.identity,
                metrics=figures,
                skipped_steps=skipped_steps,
            )
            self.newest = step
            if gone:
                self.checkpointer.wait()
                raise last_checkpoint.of_vanished(self.checkpointer.model_dir, step)

    def wait(self) -> None:
        """Returns when all is on disk."""
        with self._told():
            self.checkpointer.wait()

    def _told(self) -> Any:
        return disk_faults.writing("a checkpoint", Path(self.checkpointer.model_dir, DIRECTORY))
