"""What a run that something stops says of its checkpoints, and leaves of them."""

import contextlib
import logging
import os
from collections.abc import Iterator
from pathlib import Path

from gshard_train import agreement, quiet_orbax
from gshard_train.checkpointing import checksums
from gshard_train.checkpointing.checkpoint import DIRECTORY, Checkpointer
from gshard_train.checkpointing.stored import Stored
from gshard_train.disk_faults import DiskError, writing
from gshard_train.errors import UserError
from gshard_train.monitoring import sign_of_life
from gshard_train.monitoring.guard import NonfiniteError

_UNFINISHED = "*.orbax-checkpoint-tmp*"  # orbax's


@contextlib.contextmanager
def told(model_dir: str) -> Iterator[None]:
    """A `with` block around all that writes: what stops the run says which checkpoint there is."""
    quiet_orbax.begin()
    try:
        yield
    except DiskError as fault:
        fault.faults = (*fault.faults, newest(model_dir), *_half_written(model_dir))
        raise  # some tracebacks come up when the process ends
    except BaseException as error:
        quiet_orbax.end()
        if isinstance(error, NonfiniteError):
            again = "the batch of this step comes again then"
            error.faults = (*error.faults, newest(model_dir), again)
        raise
    quiet_orbax.end()


@contextlib.contextmanager
def checkpointing(checkpointer: Checkpointer) -> Iterator[Checkpointer]:
    """A `with` block that closes the checkpointer; what that raises hides no earlier error."""
    directory = os.path.join(checkpointer.model_dir, DIRECTORY)
    try:
        yield checkpointer
    except BaseException:
        try:
            with writing("a checkpoint", directory), _told_of_closing():
                checkpointer.close()
        except DiskError as fault:
            logging.error(fault.faults[0])
        raise
    with writing("a checkpoint", directory), _told_of_closing():
        checkpointer.close()


def _told_of_closing() -> contextlib.AbstractContextManager[None]:
    return sign_of_life.told("summing up the checkpoint's files", every_seconds=5.0)


def newest(model_dir: str) -> str:
    """Which checkpoint a run that is started again goes on from, and what is known of it."""
    stored = Stored(model_dir)
    steps: list[int] = []
    with contextlib.suppress(UserError):
        steps = stored.steps()
    for step in reversed(steps):
        if _cannot_be_read(stored, step):
            continue
        said = f"the newest checkpoint in {stored.directory}, of step {step},"
        if checksums.summed_up(stored.path(step)):
            return f"{said} is whole: started again, the run goes on there"
        older = max((each for each in steps if each < step), default=None)
        before = "begins anew" if older is None else f"goes on from step {older}"
        return (
            f"{said} has no sums of its files to compare with: started again, the run goes on "
            f"there; if it is at fault, move it away, and the run {before}"
        )
    none = f"there is no checkpoint {'that can be read ' if steps else ''}in {stored.directory}"
    return none if steps else f"{none}: started again, the run begins anew"


def _half_written(model_dir: str) -> Iterator[str]:
    """What a save that failed has left, which may be what fills the disk."""
    with contextlib.suppress(OSError):
        for path in Path(model_dir, DIRECTORY).glob(_UNFINISHED):
            yield f"{path} is half a checkpoint; the next start removes it"


def _cannot_be_read(stored: Stored, step: int) -> bool:
    try:
        return bool(stored.damage(step))
    except UserError:
        return True


def vanished(model_dir: str) -> bool:
    """Whether the directory of checkpoints is gone; every process has to ask."""
    return agreement.decided(lambda: not os.path.isdir(os.path.join(model_dir, DIRECTORY)))


def of_vanished(model_dir: str, step: int) -> DiskError:
    """What is said when it was, and the newest state was saved in its place."""
    return DiskError(
        f"the directory {os.path.join(model_dir, DIRECTORY)} was gone, with all checkpoints, while "
        f"the run went on; the state of step {step} is saved where it was",
        "look whether a disk is no longer mounted there or someone removed it, and move that "
        "checkpoint to where the others are",
    )
