"""What a checkpoint costs: the stall of a step, bytes on disk, memory while it is restored.

    tools/with_python bench_recovery_saving.py [--sections stall,size,memory] [--steps N]

  stall   the quickstart's run with a checkpoint every 10 steps: seconds that saving keeps the loop
          from its next step, over the median step's, and the steps during which files are written
  size    one of its checkpoints against the sum of its arrays
  memory  300 MB of arrays restored on 1, 4 and 8 virtual devices: by how much the process grows at
          most, over the bytes that its devices hold then

Other load makes steps and stalls longer alike. The last line is one JSON object.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import math
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
from typing import Any

import bench_sections
import environment

SECTIONS = ("stall", "size", "memory")
_FILE = "gshard_m4/configs/quickstart.gin"
_PERIOD = 10
_STALL = "checkpoint_stall_seconds"
_WHILE_WRITING = 3  # steps after a save during which its files are written
# Shape, number and sharding of the arrays of "memory".
_ARRAYS = {"experts": ((8, 256, 2048), 16, ("expert",)), "dense": ((512, 1024), 16, ())}
_MEMORY = """
import sys, threading
import jax, jax.numpy as jnp
from jax.sharding import NamedSharding, PartitionSpec
from gshard_train.checkpointing.checkpoint import Checkpointer

def resident():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * 4096

what, folder, axes, arrays = sys.argv[1], sys.argv[2], *map(eval, sys.argv[3:])
mesh = jax.make_mesh(tuple(axes.values()), tuple(axes))
wanted = {
    f"{name}{i}": jax.ShapeDtypeStruct(
        shape, jnp.float32, sharding=NamedSharding(mesh, PartitionSpec(*spec))
    )
    for name, (shape, count, spec) in arrays.items()
    for i in range(count)
}
with Checkpointer(folder) as checkpointer:
    if what == "save":
        keys = jax.random.split(jax.random.key(0), len(wanted))
        made = {
            name: jax.device_put(jax.random.normal(key, leaf.shape), leaf.sharding)
            for key, (name, leaf) in zip(keys, wanted.items())
        }
        checkpointer.save(1, made, {})
    else:
        step = checkpointer.latest_step()
        before = most = resident()
        done = threading.Event()
        def watch():
            global most
            while not done.wait(0.002):
                most = max(most, resident())
        thread = threading.Thread(target=watch)
        thread.start()
        state, _ = checkpointer.restore(step, wanted)
        jax.block_until_ready(state)
        done.set()
        thread.join()
        shards = (shard for x in state.values() for shard in x.addressable_shards)
        print(sum(shard.data.nbytes for shard in shards), most - before)
"""


def main(arguments: list[str] | None = None) -> None:
    """Measures, prints tables, and closes with the JSON."""
    options = _parser().parse_args(arguments)
    if importlib.util.find_spec("gshard_train") is None:
        python = environment.ensure(development=True)
        os.execv(python, [str(python), __file__, *sys.argv[1:]])
    os.environ["JAX_PLATFORMS"] = "cpu"
    found: dict[str, Any] = {}
    with tempfile.TemporaryDirectory(prefix="bench-saving-") as folder:
        run = pathlib.Path(folder, "run")
        if {"stall", "size"} & set(options.sections):
            _train(run, options.steps)
        if "stall" in options.sections:
            found["stall"] = stall(run)
        if "size" in options.sections:
            found["size"] = size(run, options.steps)
        if "memory" in options.sections:
            found["memory"] = memory(pathlib.Path(folder, "memory"))
    print(json.dumps(found))


def stall(run: pathlib.Path) -> dict[str, float]:
    """What saves cost a run that logged each step: seconds, and over the median step's."""
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    stalls = {x["step"]: x[_STALL] for x in lines if _STALL in x}
    writing = {step + i for step in stalls for i in range(1, _WHILE_WRITING + 1)}
    # The first steps wait for TensorBoard's import.
    others = [x["step_seconds"] for x in lines if x["step"] > 5 and x["step"] not in writing]
    median = statistics.median(others)
    meanwhile = [x["step_seconds"] for x in lines if x["step"] in writing]
    first, *later = stalls.values()
    found = {
        "saves": len(stalls),
        "median_step_seconds": median,
        "first_stall_seconds": first,
        "median_later_stall_seconds": statistics.median(later),
        "longest_later_stall_seconds": max(later),
        "first_over_step": first / median,
        "median_later_over_step": statistics.median(later) / median,
        "longest_later_over_step": max(later) / median,
        "step_while_writing_over_step": statistics.median(meanwhile) / median,
    }
    return _printed(found)


def size(run: pathlib.Path, step: int) -> dict[str, float]:
    """Bytes of a step's directory against those of its arrays."""
    import numpy as np

    from gshard_train.checkpointing import tensors
    from gshard_train.checkpointing.stored import Stored

    stored = Stored(run)
    arrays = sum(
        math.prod(leaf.shape) * np.dtype(leaf.dtype).itemsize
        for _, leaf in tensors.listed(stored.tensors(step))
    )
    files = [path for path in (run / "checkpoints" / str(step)).rglob("*") if path.is_file()]
    on_disk = sum(path.stat().st_size for path in files)
    found = {"array_bytes": arrays, "disk_bytes": on_disk, "files": len(files)}
    return _printed({**found, "disk_over_arrays": on_disk / arrays})


def memory(folder: pathlib.Path) -> dict[str, float]:
    """By how much a process grows that restores, over the bytes that its devices hold then."""
    _program("save", folder, {"data": 2, "expert": 4})
    found = {}
    for axes in ({"data": 2, "expert": 4}, {"data": 1, "expert": 4}, {"data": 1, "expert": 1}):
        held, grown = map(int, _program("restore", folder, axes).split())
        count = axes["data"] * axes["expert"]
        found[f"held_bytes_on_{count}"] = held
        found[f"growth_over_held_on_{count}"] = grown / held
    return _printed(found)


def _printed(found: dict[str, float]) -> dict[str, float]:
    for name, value in found.items():
        text = f"{value:,}" if isinstance(value, int) else f"{value:.3f}"
        print(f"  {name.replace('_', ' '):32}{text:>16}", flush=True)
    return found


def _train(run: pathlib.Path, steps: int) -> None:
    bindings = {
        "TRAIN_STEPS": steps,
        "CHECKPOINT_PERIOD": _PERIOD,
        "MODEL_DIR": str(run),
        "training.train.log_period": 1,
    }
    command = [sys.executable, "-m", "gshard_train.train", f"--gin_file={_FILE}"]
    command += [f"--gin_bindings={name} = {value!r}" for name, value in bindings.items()]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"bench_recovery_saving: the run failed\n{done.stderr}")


def _program(what: str, folder: pathlib.Path, axes: dict[str, int]) -> str:
    count = axes["data"] * axes["expert"]
    flags = {"XLA_FLAGS": f"--xla_force_host_platform_device_count={count}"}
    return subprocess.run(
        [sys.executable, "-c", _MEMORY, what, str(folder), repr(axes), repr(_ARRAYS)],
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        env=os.environ | flags,
    ).stdout


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="tools/bench_recovery_saving.py",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    bench_sections.add(parser, SECTIONS)
    parser.add_argument("--steps", type=int, default=100, metavar="N", help="of the run")
    return parser


if __name__ == "__main__":
    main()
