"""Flags of gshard-precompile: what is wrong with them, and which files they are written to."""

from types import SimpleNamespace
from typing import Any

from absl import flags

from gshard_train.precompiling import card_files, machine_flags
from gshard_train.precompiling.job import Job, Result
from gshard_train.precompiling.layout import Layout


def given(*arguments: str) -> flags.FlagValues:
    values = flags.FlagValues()
    machine_flags.define(values)
    card_files.define(values)
    values(["gshard-precompile", *arguments])
    return values


def test_the_flags_are_a_job():
    values = given(
        "--gin_file=a.gin", "--topology=v3:2x2", "--mesh=data=2, expert=-1", "--save_program=p"
    )
    layout = Layout(mesh={"data": 2, "expert": -1})
    expected = Job(gin_files=("a.gin",), topology="v3:2x2", layout=layout, save_program="p")
    assert machine_flags.asked_job(values) == expected


def test_all_faults_of_flags_come_at_once(tmp_path):
    lost = tmp_path / "lost" / "card.json"
    values = given(
        "--mesh=data=x", "--num_slices=0", "--tokens=inf", "--price=-1", "--timeout=0",
        f"--json={lost}", f"--html={tmp_path}", "--topology=v3:3x4",
    )  # fmt: skip
    assert [*machine_flags.faults(values), *card_files.faults(values)] == [
        "--gin_file is missing; for example "
        "--gin_file=gshard_train/configs/models/moe_128e_12l.gin",
        "--topology=v3:3x4: its first two sides must be even, since a host has 2x2 chips; near it: "
        "v3:2x4 or v3:4x4",
        "--num_slices=0 must be at least 1",
        "--mesh=data=x must be sizes by name, as --mesh=data=1,expert=2048",
        "--tokens=inf must be a finite number above 0, as --tokens=1e12",
        "--price=-1 must be a finite number, at least 0: money for an hour of one device",
        "--timeout=0 must be above 0: seconds for one program",
        f"--json={lost}: there is no directory {lost.parent}; make it",
        f"--html={tmp_path} is a directory; give a file",
    ]


def test_of_each_file_it_is_said_whether_it_was_written(tmp_path):
    files = {name: tmp_path / name for name in ("json", "report", "save_program")}
    values = given(*(f"--{name}={file}" for name, file in files.items()))
    card: Any = SimpleNamespace(json=lambda: 2048 * "x")
    job = Job(gin_files=("a.gin",), topology="v3:2x2")
    result = Result(job=job, save_fault="the disk is full")
    assert list(card_files.write(values, card, result)) == [
        (True, f"Wrote {files['json']} (2 KiB)"),
        (False, f"--report={files['report']} is not written: there is no program"),
        (False, f"--save_program={files['save_program']} is not written: the disk is full"),
    ]
    assert files["json"].stat().st_size == 2048
