"""What is said where nothing can be written, and what a run then leaves.

Files that may not grow (RLIMIT_FSIZE) stand for a full disk.
"""

import errno
import logging
import os
import resource
import shutil
import types
import warnings

import jax.numpy as jnp
import pytest

from gshard_train import compilation_cache, disk_faults, last_checkpoint, quiet_orbax
from gshard_train.checkpointing.checkpoint import Checkpointer
from gshard_train.disk_faults import DiskError
from gshard_train.errors import RESTART, USER_ERROR
from gshard_train.monitoring.guard import NonfiniteError

SMALL, LARGE = ({"params": {"w": jnp.arange(float(size))}} for size in (5, 40_000))


@pytest.fixture
def no_large_files():
    """Files may have 64 KiB, as long as a checkpoint's files other than arrays."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (2**16, limits[1]))
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, limits)


def saved(model_dir, state, step, *, asynchronous=True):
    with (
        last_checkpoint.told(str(model_dir)),
        last_checkpoint.checkpointing(Checkpointer(model_dir, asynchronous=asynchronous)) as made,
        disk_faults.writing("a checkpoint", model_dir),
    ):
        made.save(step, state, {"next_index": step})
        made.wait()


@pytest.mark.parametrize("asynchronous", [True, False])
def test_a_full_disk_leaves_the_checkpoint_before(tmp_path, no_large_files, caplog, asynchronous):
    directory = tmp_path / "checkpoints"
    saved(tmp_path, SMALL, 3)
    with pytest.raises(DiskError) as error:
        saved(tmp_path, LARGE, 4, asynchronous=asynchronous)
    said, advice, newest, half = error.value.faults
    assert said.startswith(f"a checkpoint could not be written: File too large ({directory}/4.orb")
    assert advice == "make room there and start the run again"
    assert newest == (
        f"the newest checkpoint in {directory}, of step 3, is whole: started again, the run goes "
        "on there"
    )
    assert half.startswith(f"{directory}/4.orbax-checkpoint-tmp is half a checkpoint; the next st")
    assert error.value.exit_code == USER_ERROR
    assert not [record for record in caplog.records if record.exc_info]
    assert Checkpointer(tmp_path).latest_step() == 3


def test_a_directory_that_vanished_is_told_apart_from_one_that_is_not_there_yet(tmp_path):
    saved(tmp_path, SMALL, 3)
    assert not last_checkpoint.vanished(str(tmp_path))
    shutil.rmtree(tmp_path / "checkpoints")
    assert last_checkpoint.vanished(str(tmp_path))
    fault = last_checkpoint.of_vanished(str(tmp_path), 4)
    assert "the state of step 4 is saved where it was" in fault.faults[0]


@pytest.mark.parametrize(
    ("number", "code", "advice"),
    [
        (errno.ENOSPC, USER_ERROR, "make room there"),
        (errno.ENOENT, USER_ERROR, "bring the directory back (is a disk no longer mounted?)"),
        (errno.EISDIR, USER_ERROR, "move away what is there"),
        (errno.EROFS, RESTART, "make it writable and start the run again, on another machine"),
        (errno.EIO, RESTART, "make it writable"),
    ],
)
def test_only_what_another_machine_may_not_have_is_started_again(number, code, advice):
    with pytest.raises(DiskError) as error, disk_faults.writing("config.gin", "/run"):
        raise OSError(number, os.strerror(number), "/run/config.gin")
    assert error.value.faults[0] == (
        f"config.gin could not be written: {os.strerror(number)} (/run/config.gin)"
    )
    assert error.value.faults[1].startswith(advice)
    assert error.value.exit_code == code


def test_a_read_only_mount_is_found_before_any_work(tmp_path, monkeypatch):
    disk_faults.check_mount("MODEL_DIR", tmp_path / "run")
    read_only = types.SimpleNamespace(f_flag=os.ST_RDONLY)
    monkeypatch.setattr("os.statvfs", lambda _: read_only)
    with pytest.raises(DiskError) as error:
        disk_faults.check_mount("MODEL_DIR", tmp_path / "run")
    assert error.value.faults[0] == (
        f"MODEL_DIR could not be written: Read-only file system ({tmp_path})"
    )
    assert error.value.exit_code == RESTART


def test_another_process_s_error_and_other_errors_are_known():
    def written():
        return disk_faults.writing("a checkpoint", "/run")

    with pytest.raises(DiskError, match=r"No space left on device \(/run\)"), written():
        raise RuntimeError("process 3: ValueError: RESOURCE_EXHAUSTED: ... [os_error_code='28']")
    with pytest.raises(KeyError), written():
        raise KeyError("x")


def test_a_run_that_a_number_ends_says_which_checkpoint_is_from_before(tmp_path):
    with pytest.raises(NonfiniteError) as error, last_checkpoint.told(str(tmp_path)):
        raise NonfiniteError("step 5: loss is nan")
    assert error.value.faults == (
        "step 5: loss is nan",
        f"there is no checkpoint in {tmp_path / 'checkpoints'}: started again, the run begins anew",
        "the batch of this step comes again then",
    )


def test_a_checkpoint_without_sums_is_not_called_whole(tmp_path):
    for step in (3, 4):
        saved(tmp_path, SMALL, step)
    (tmp_path / "checkpoints" / "4" / "SHA256SUMS").unlink()
    assert last_checkpoint.newest(str(tmp_path)) == (
        f"the newest checkpoint in {tmp_path}/checkpoints, of step 4, has no sums of its files to "
        "compare with: started again, the run goes on there; if it is at fault, move it away, and "
        "the run goes on from step 3"
    )


def test_what_came_first_is_raised_and_the_fault_of_closing_is_logged(tmp_path, caplog):
    class Failing:
        model_dir = str(tmp_path)

        def close(self):
            raise OSError(errno.ENOSPC, "full", "/run/checkpoints/2")

    with pytest.raises(KeyError), last_checkpoint.checkpointing(Failing()):  # pyright: ignore
        raise KeyError("x")
    assert [record.message for record in caplog.records if record.levelno == logging.ERROR] == [
        "a checkpoint could not be written: No space left on device (/run/checkpoints/2)"
    ]


def test_of_orbax_s_tracebacks_only_those_of_a_disk_are_hidden():
    def record(error):
        told = (type(error), error, None)
        return logging.LogRecord("absl", logging.ERROR, "/orbax/save.py", 1, "failed", (), told)

    assert not quiet_orbax._is_to_be_seen(record(OSError(errno.ENOSPC, "full")))
    assert not quiet_orbax._is_to_be_seen(record(RuntimeError("Event loop is closed")))
    assert quiet_orbax._is_to_be_seen(record(ValueError("a bug")))


def test_programs_that_cannot_be_kept_are_told_of_once(tmp_path, caplog):
    said = compilation_cache._NOT_WRITTEN + " for 'jit_{}': OSError: [Errno 28] No space left"
    with warnings.catch_warnings(), compilation_cache.use("programs", model_dir=str(tmp_path)):
        warnings.simplefilter("always")
        for name in ("init", "step"):
            warnings.warn(said.format(name), stacklevel=1)
    assert caplog.messages == [
        f"Compiled programs cannot be kept in {tmp_path}/programs: OSError: [Errno 28] No space "
        "left"
    ]
