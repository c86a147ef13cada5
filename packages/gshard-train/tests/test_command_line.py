"""The flags of the binaries: how they are spelt, what they become, what is wrong with them."""

import sys
import types

import pytest
from absl import flags

from gshard_train import command_line
from gshard_train.distributed import Processes


def parsed(*arguments):
    values = flags.FlagValues()
    command_line.define(values)
    assert values(command_line.gin_arguments(["train", *arguments])) == ["train"]
    return values


def test_gin_flags_in_the_spelling_of_t5x():
    values = parsed(
        "--gin_file=a.gin",
        "--gin.A='x=y'",
        "--gin_file",
        "b.gin",
        "-gin.f.x=[1, 2]",
        "--gin_bindings=B = 3",
        "--gin_search_paths=p,q",
        "--gin.C",
    )
    assert values.gin_file == ["a.gin", "b.gin"]
    assert values.gin_bindings == ["A = 'x=y'", "f.x = [1, 2]", "B = 3", "C"]
    assert values.gin_search_paths == ["p", "q"]


def test_without_flags_there_is_one_process_and_no_fault():
    values = parsed()
    assert not command_line.processes(values).several({})
    assert list(command_line.faults(values)) == []


def test_flags_of_processes():
    values = parsed(
        "--coordinator_address=[::1]:80",
        "--process_count=3",
        "--process_index=2",
        "--process_timeout=7",
    )
    assert command_line.processes(values) == Processes(
        coordinator_address="[::1]:80", process_count=3, process_index=2, timeout_seconds=7
    )
    assert list(command_line.faults(values)) == []


def test_directories_that_are_not_there(tmp_path):
    values = parsed(
        f"--seqio_additional_cache_dirs={tmp_path},/not/there,gs://bucket/cache",
        f"--tfds_data_dir={tmp_path / 'no'}",
    )
    assert list(command_line.faults(values)) == [
        "--seqio_additional_cache_dirs=/not/there: there is no such directory; give one that is "
        "there",
        f"--tfds_data_dir={tmp_path / 'no'}: there is no such directory; give one that is there",
    ]


@pytest.mark.parametrize("flag", ["--multiprocess_gpu", "--coordinator_address=a:1"])
def test_what_makes_a_run_one_of_several_processes(flag):
    assert command_line.processes(parsed(flag)).several({})


def test_workers_of_a_tpu_pod_are_joined_without_a_flag():
    processes = command_line.processes(parsed())
    assert not processes.several({"TPU_WORKER_HOSTNAMES": "localhost"})
    assert not processes.several({"TPU_WORKER_HOSTNAMES": "WARNING: no TPU found, set it"})
    assert processes.several({"TPU_WORKER_HOSTNAMES": "a,b"})
    slices = {"TPU_WORKER_HOSTNAMES": "a", "MEGASCALE_COORDINATOR_ADDRESS": "b"}
    assert processes.several(slices)


def test_directories_are_passed_on_to_seqio(tmp_path, monkeypatch):
    told = {}
    fake = types.SimpleNamespace(
        set_tfds_data_dir_override=lambda path: told.update(tfds=path),
        add_global_cache_dirs=lambda paths: told.update(cache=paths),
    )
    monkeypatch.setitem(sys.modules, "seqio", fake)
    command_line.tell_seqio(parsed())
    assert told == {}
    command_line.tell_seqio(
        parsed(f"--tfds_data_dir={tmp_path}", "--seqio_additional_cache_dirs=gs://a/b,gs://c")
    )
    assert told == {"tfds": str(tmp_path), "cache": ["gs://a/b", "gs://c"]}
