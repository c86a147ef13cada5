"""Decoding one split with one checkpoint: only what no earlier run has done."""

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np
from absl import logging

from gshard_train import agreement, state
from gshard_train.decoding.decoder import Decoder, Hypothesis
from gshard_train.decoding.files import being_written, read_manifest, write_split
from gshard_train.decoding.kept_hypotheses import FILE_NAME, KeptHypotheses, changes
from gshard_train.decoding.progress import DecodingProgress
from gshard_train.interruption import Interrupted
from gshard_train.measuring import expert_languages
from gshard_train.measuring.held_out import TaskSplit


@dataclasses.dataclass(frozen=True)
class SplitDecoding:
    """What decodes, with the parameters of one checkpoint.

    The first process alone reads and writes files; the others learn from it what is done.

    Attributes:
      decoder: how sentences are decoded.
      params: the parameters.
      fingerprint: all that the translations depend on.
    """

    decoder: Decoder
    params: state.Params
    fingerprint: Mapping[str, Any]

    def is_done(self, directory: Path, *, with_experts: bool) -> bool:
        """Whether the split lies there already, decoded from the very same."""
        before = read_manifest(directory).get("fingerprint") if _writes() else None
        done = before is not None and not changes(before, self.fingerprint)
        done = done and (not with_experts or (directory / expert_languages.FILE_NAME).exists())
        if done:
            logging.info("%s is there already, decoded from the same", directory)
        return bool(agreement.from_first(np.asarray(done)))

    def decode(self, directory: Path, tasks: Sequence[TaskSplit]) -> Mapping[int, Hypothesis]:
        """The hypotheses of all tasks, by their places; those of other runs are read.

        On other processes than the first only those that were decoded now.

        Raises:
          Interrupted: by Ctrl-C; what is decoded is kept.
        """
        examples = [example for task in tasks for example in task.examples]
        numbers = [number for task in tasks for number in range(len(task.examples))]
        folder = being_written(directory)
        with KeptHypotheses(folder, self.fingerprint, on_disk=_writes()) as kept:
            known = np.zeros(len(examples), bool)
            known[list(kept.found)] = True
            done = set(np.flatnonzero(agreement.from_first(known)).tolist())
            if done:
                logging.info("%d of %d sentences are decoded already", len(done), len(examples))
            try:
                with DecodingProgress(len(examples), known=len(done)) as shown:
                    for batch in self.decoder.decode_batches(
                        self.params, examples, numbers=numbers, done=done
                    ):
                        shown.update(sum(place not in done for place in batch))
                        kept.add(batch)
            except KeyboardInterrupt:
                raise Interrupted(
                    f"interrupted with {len(kept.found):,} of {len(examples):,} sentences decoded "
                    f"for {directory}; the same command goes on from there"
                ) from None
        return kept.found

    def write(
        self,
        directory: Path,
        split: str,
        tasks: Sequence[TaskSplit],
        hypotheses: Mapping[int, Hypothesis],
        experts: Mapping[str, Any],
    ) -> None:
        """Puts the split's files in their place, with `experts.json` where there is any."""
        if not _writes():
            return
        if experts:
            expert_languages.write(dict(experts), being_written(directory))
        else:
            (being_written(directory) / expert_languages.FILE_NAME).unlink(missing_ok=True)
        manifest = {
            "checkpoint_step": self.fingerprint["checkpoint_step"],
            "decoder": dataclasses.asdict(self.decoder.search),
            "split": split,
            "fingerprint": dict(self.fingerprint),
        }
        write_split(directory, tasks, hypotheses, manifest)
        (directory / FILE_NAME).unlink()


def _writes() -> bool:
    return jax.process_index() == 0
