"""Checkpoints of a run with orbax: what to go on from, whole or not there at all.

`<model_dir>/checkpoints/<step>/` holds the state, as named tensors, the training feed's position,
and what run it is: its configuration and what the order of its examples depends on. A step's
directory gets its name when everything in it is written; a sum of each file follows (`checksums`),
and what does not agree with them is not read.

With several processes each calls the same methods in the same order: what one finds damaged is
damaged for all, and the first alone changes names.
"""

import json
import os
from collections.abc import Mapping
from typing import Any

import jax
import orbax.checkpoint as ocp
import tensorstore as ts
from absl import logging
from etils import epath

from gshard_train import agreement
from gshard_train.checkpointing import checksums, tensors
from gshard_train.checkpointing.policy import Kept
from gshard_train.errors import UserError

DIRECTORY = "checkpoints"
_STATE, _FEED, _RUN = "state", "feed", "run"
_COMMITTED = "_CHECKPOINT_METADATA"  # orbax's; unlike the directory, it never changes
_NO_LIST = "the list of tensors is missing"
_SHOWN = 20  # tensors named in one message


class Checkpointer:
    """Saves and restores the state of a run. Usable in a `with` block.

    Reading changes nothing on disk: the directory is made, and what a killed run left half-written
    is removed, with the first `save`. Nor does it start threads: only who saves needs to close.
    The sums of a step's files are compared once.

    Args:
      model_dir: the run's directory; the checkpoints are in `checkpoints` below it.
      keep: which checkpoints stay, or how many of the newest.
      asynchronous: write to disk in the background; `save` returns when it has copied the state.
    """

    def __init__(
        self, model_dir: str | os.PathLike[str], *, keep: Kept | int = 3, asynchronous: bool = True
    ):
        self.model_dir = path = os.fspath(model_dir)
        self._directory = epath.Path(path if "://" in path else os.path.abspath(path)) / DIRECTORY
        self._keep = Kept(newest=keep) if isinstance(keep, int) else keep
        self._asynchronous = asynchronous
        self._manager: ocp.CheckpointManager | None = None
        self._sums = checksums.BackgroundSums()
        # What was found when this process summed up its share of a step's files.
        self._changed: dict[int, str] = {}
        self._reported: set[int] = set()

    def __enter__(self) -> "Checkpointer":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def save(
        self,
        step: int,
        state: Any,
        feed_state: Mapping[str, Any],
        *,
        config: str = "",
        identity: Mapping[str, Any] | None = None,
        metrics: Mapping[str, float] | None = None,
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
        """
        agreement.together(self.wait)
        directory = self._directory / str(step)
        if agreement.decided(directory.exists):
            if not self._fault(step):
                return False
            self._changed.pop(step, None)
            agreement.decided(lambda: self._move_aside(step))
        saved = self._writer().save(
            step,
            args=ocp.args.Composite(
                **{
                    _STATE: ocp.args.PyTreeSave(tensors.nested(state)),
                    _FEED: ocp.args.JsonSave(dict(feed_state)),
                    _RUN: ocp.args.JsonSave({"config": config, "identity": dict(identity or {})}),
                }
            ),
            metrics=dict(metrics or {}),
            force=True,
        )
        self._sums.add(directory, committed=lambda: step in self._steps())
        return saved

    def steps(self) -> list[int]:
        """The steps that can be read now, in their order; a run that trains may remove them.

        The sums of their files are not compared.
        """
        agreement.together(self.wait)
        return agreement.decided(
            lambda: [step for step in sorted(self._steps()) if not self._damage(step)]
        )

    def latest_step(self) -> int | None:
        """The newest step that can be read; what cannot is left alone and warned about."""
        agreement.together(self.wait)
        for step in agreement.decided(lambda: sorted(self._steps(), reverse=True)):
            if not (damage := self._fault(step)):
                return step
            if step not in self._reported:
                self._reported.add(step)
                logging.warning(
                    "Checkpoint %d in %s cannot be read (%s); looking for an older one.",
                    step,
                    self._directory,
                    damage,
                )
        return None

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
        agreement.together(lambda: self._compare(step, self._saved(step), wanted))
        restored = self._read_checked(
            step, {_STATE: _arrays(wanted), _FEED: ocp.args.JsonRestore()}
        )
        return tensors.unnested(restored[_STATE], abstract_state), restored[_FEED]

    def check(self, step: int, abstract_state: Any) -> None:
        """Compares a step's tensors with those wanted, as `restore` does; reads none.

        Raises:
          UserError: naming those that differ.
        """
        wanted = tensors.nested(abstract_state)
        agreement.together(lambda: self._compare(step, self._saved(step), wanted))

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
        restored = self._read_checked(step, {_STATE: _arrays(wanted, partial=True)})
        return tensors.unnested(restored[_STATE][name], abstract_part)

    def config(self, step: int) -> str | None:
        """The configuration of the run that saved a step, where it was given one."""
        return agreement.decided(lambda: self._run(step).get("config") or None)

    def feed_identity(self, step: int) -> dict[str, Any] | None:
        """What the order of examples depended on when a step was saved, where it is known."""
        return agreement.decided(lambda: self._run(step).get("identity") or None)

    def commit_time(self, step: int) -> int | None:
        """When a step was saved, in nanoseconds; None where it is not there, or does not tell."""
        path = self._directory / str(step) / _COMMITTED
        try:
            return json.loads(path.read_text())["commit_timestamp_nsecs"]
        except (OSError, ValueError, KeyError, TypeError):
            return None

    def is_removed(self, step: int, *, seconds: float) -> bool:
        """Whether the run has removed a step, or is done with it within so many seconds."""
        return agreement.decided(
            lambda: checksums.goes(self._directory / str(step), seconds=seconds)
        )

    def wait(self) -> None:
        """Returns when what was saved is on disk; raises what went wrong meanwhile."""
        if self._manager:
            self._manager.wait_until_finished()

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
            self._manager = ocp.CheckpointManager(
                self._directory,
                options=ocp.CheckpointManagerOptions(
                    preservation_policy=self._keep.policy(),
                    best_fn=self._keep.goodness if self._keep.best else None,
                    cleanup_tmp_directories=True,
                    enable_async_checkpointing=self._asynchronous,
                ),
            )
        return self._manager

    def _saved(self, step: int) -> Any:
        """The shapes and dtypes of a step's state."""
        self.wait()
        if step not in (steps := self._steps()):
            have = ", ".join(map(str, sorted(steps))) or "none"
            raise UserError(f"there is no checkpoint {step} in {self._directory}; there is {have}")
        try:
            saved = self._metadata(step).get(_STATE)
        except Exception as error:
            raise UserError(self._damaged(step, _reason(error))) from error
        if saved is None:
            raise UserError(self._damaged(step, _NO_LIST))
        return saved

    def _compare(self, step: int, saved: Any, wanted: Any) -> None:
        if lines := tensors.differences(saved, wanted):
            raise UserError(self._refusal(step, lines))

    def _read_checked(self, step: int, items: dict[str, Any]) -> Any:
        """Parts of a step whose files are as they were written; raised is the same everywhere."""
        if changes := _any(self._changes(step)):
            raise UserError(self._damaged(step, changes))
        return agreement.together(lambda: self._read_whole(step, items))

    def _read_whole(self, step: int, items: dict[str, Any]) -> Any:
        try:
            return self._read(step, items)
        except RuntimeError:
            raise  # the devices' memory, not the files
        except Exception as error:
            raise UserError(self._damaged(step, _reason(error))) from error

    def _damaged(self, step: int, why: str) -> str:
        return (
            f"checkpoint {step} in {self._directory} is damaged ({why}); "
            "move its directory away to go on from the one before it"
        )

    def _fault(self, step: int) -> str:
        """Why a step cannot be read, or nothing; the same on every process."""
        return _any(self._damage(step) or self._changes(step))

    def _changes(self, step: int) -> str:
        """Which files of this process's share are not as they were written; read once."""
        if step not in self._changed:
            directory = self._directory / str(step)
            try:
                found = checksums.faults(directory)
                if not found and not checksums.summed_up(directory):
                    logging.info("Checkpoint %d has no sums of its files to compare with.", step)
            except OSError as error:
                return _reason(error)
            more = f" and {len(found) - 1} more" if len(found) > 1 else ""
            self._changed[step] = f"{found[0]}{more}" if found else ""
        return self._changed[step]

    def _steps(self) -> list[int]:
        return ocp.utils.checkpoint_steps(self._directory) if self._directory.exists() else []

    def _read(self, step: int, args: Mapping[str, Any]) -> Any:
        with _reader() as reader:
            return reader.restore(self._directory / str(step), args=ocp.args.Composite(**args))

    def _run(self, step: int) -> dict[str, Any]:
        if not (self._directory / str(step) / _RUN).exists():
            return {}
        return self._read_whole(step, {_RUN: ocp.args.JsonRestore()})[_RUN]

    def _arrays(self, step: int) -> list[bytes]:
        """Keys of the arrays in the step's database; raises what is wrong with the database.

        orbax would find it too, but by opening all arrays at once, whose further errors then come
        up in a closed event loop.
        """
        path = os.fspath(self._directory / str(step) / _STATE)
        base = path if "://" in path else f"file://{path}"
        keys = ts.KvStore.open({"driver": "ocdbt", "base": base}).result().list().result()
        return [key for key in keys if key.endswith(b"/.zarray")]

    def _metadata(self, step: int) -> Any:
        with _reader() as reader:
            return reader.metadata(self._directory / str(step)).item_metadata

    def _damage(self, step: int) -> str:
        """Why this process cannot read a step, or nothing."""
        try:
            for part in (_STATE, _FEED):
                if not (self._directory / str(step) / part).exists():
                    return f"{part} is missing"
            if not self._arrays(step):
                return "the arrays are missing"
            self._read(step, {_FEED: ocp.args.JsonRestore()})
            metadata = self._metadata(step)
        except Exception as error:
            return _reason(error)
        return _NO_LIST if metadata.get(_STATE) is None else ""

    def _move_aside(self, step: int) -> None:
        aside, number = self._directory / f"{step}.damaged", 1
        while aside.exists():
            number += 1
            aside = self._directory / f"{step}.damaged{number}"
        (self._directory / str(step)).rename(aside)
        logging.warning("Moved the damaged checkpoint %d to %s.", step, aside)

    def _refusal(self, step: int, lines: list[str]) -> str:
        optimizer_alone = all(line.startswith("opt_state/") for line in lines)
        other = "optimizer" if optimizer_alone else "model"
        agree = ", none of the parameters," if optimizer_alone else ""
        shown = lines[:_SHOWN]
        if len(lines) > _SHOWN:
            shown.append(f"and {len(lines) - _SHOWN} more")
        first = (
            f"checkpoint {step} in {self._directory} is of another {other}: {len(lines)} tensors "
            f"differ{agree} and nothing was changed; use the config.gin beside it, or another "
            f"MODEL_DIR for this {other}"
        )
        return "\n".join([first, *(f"  {line}" for line in shown)])


def _arrays(wanted: Any, *, partial: bool = False) -> ocp.args.PyTreeRestore:
    restore_args = ocp.checkpoint_utils.construct_restore_args(wanted)
    return ocp.args.PyTreeRestore(wanted, restore_args=restore_args, partial_restore=partial)


def _reason(error: BaseException) -> str:
    """The first line of the error that began it."""
    while error.__cause__ is not None:
        error = error.__cause__
    return f"{type(error).__name__}: {error}".split("\n")[0][:200]


def _any(found: str) -> str:
    """What this process found, or another where it found nothing; every process has to ask."""
    everywhere = agreement.gathered(found)
    elsewhere = (f"process {index}: {text}" for index, text in enumerate(everywhere) if text)
    return found or next(elsewhere, "")


def _reader() -> ocp.Checkpointer:
    """Reads for this process alone: one that fails leaves none waiting in orbax's barriers."""
    own = jax.process_index()
    return ocp.Checkpointer(
        ocp.CompositeCheckpointHandler(
            **{
                _STATE: ocp.PyTreeCheckpointHandler(),
                _FEED: ocp.JsonCheckpointHandler(),
                _RUN: ocp.JsonCheckpointHandler(),
            }
        ),
        multiprocessing_options=ocp.options.MultiprocessingOptions(
            primary_host=own, active_processes={own}
        ),
    )
