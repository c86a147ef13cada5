"""What lies in the checkpoints of a run, told on any machine: no mesh, no model, no gin file.

    python -m gshard_train.checkpointing.show MODEL_DIR [--step N] [--compare] [--config]

Nothing is written, and a run may go on meanwhile. With --compare it ends with exit code 2 unless
all files are as they were written.
"""

import argparse
import datetime
import json
import os
import sys
from collections.abc import Iterator

import jax
import numpy as np

from gshard_train.checkpointing import checksums, tensors
from gshard_train.checkpointing.stored import DIRECTORY, Stored
from gshard_train.errors import USER_ERROR, UserError, report

_CUT_OFF = 1
_MIB = 2**20


def main(arguments: list[str] | None = None) -> None:
    """Prints what is asked for."""
    options = _parser().parse_args(arguments)
    # The machine's accelerators may be in use, and are not needed.
    jax.config.update("jax_platforms", "cpu")
    try:
        for line in lines(options.model_dir, options.step, options.compare, options.config):
            print(line)
        sys.stdout.flush()
    except BrokenPipeError:  # who reads has enough, as `head` has
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(_CUT_OFF)
    except UserError as error:
        print(report("show", error), file=sys.stderr)
        sys.exit(USER_ERROR)


def lines(model_dir: str, step: int | None, compare: bool, config: bool) -> Iterator[str]:
    """What there is to tell of a run's steps, and of one of them.

    Args:
      model_dir: the run's directory.
      step: which one; None for all, and more of the newest that can be read.
      compare: whether to read all files of it, or of all, and compare their sums.
      config: only the run's configuration, as a gin file has it.

    Raises:
      UserError: there is no checkpoint, or not this one, or it is damaged; or, when all is told,
        a step's files are not known to be as they were written, and `compare` asked.
    """
    found = Stored(model_dir)
    compared = found.steps() if step is None else [step]
    damages = {one: _damage(found, one) for one in found.steps()}
    if step is None:
        step = next((one for one in reversed(damages) if not damages[one]), None)
    if step is None:
        raise UserError(_nothing(found, model_dir, damages))
    leaves = tensors.listed(found.tensors(step))
    if config:
        yield found.run(step).get("config") or f"# checkpoint {step} does not tell it"
        return
    faults = {
        one: _not_as_written(found, one, damages[one]) if compare and one in compared else ""
        for one in damages
    }
    for one, damage in damages.items():
        good = "as it was written" if compare and one in compared else "can be read"
        yield f"{_title(found, one)}   {damage or faults[one] or good}"
    yield f"\ncheckpoint {step}"
    for name, value in found.run(step).get("identity", {}).items():
        yield f"  {name:24} {value}"
    yield f"  {'position':24} {json.dumps(found.feed(step))}"
    yield ""
    yield from _table(leaves)
    if faulty := [f"checkpoint {one}: {fault}" for one, fault in faults.items() if fault]:
        raise UserError(*faulty)


def _damage(found: Stored, step: int) -> str:
    """Why a step cannot be read, or nothing."""
    try:
        why = found.damage(step)
    except UserError as error:
        return str(error)
    return why and f"damaged: {why}"


def _not_as_written(found: Stored, step: int, damage: str) -> str:
    """Why a step's files are not known to be as they were written, or nothing."""
    try:
        if damage:
            return damage
        if why := found.changes(step):
            return f"damaged: {why}"
    except UserError as error:
        return str(error)
    return "" if checksums.summed_up(found.path(step)) else "there are no sums to compare with"


def _nothing(found: Stored, model_dir: str, damages: dict[int, str]) -> str:
    """What is said where no step can be read."""
    if damages:
        each = "\n".join(f"{step}: {damage}" for step, damage in damages.items())
        return f"{found.directory} holds no checkpoint that can be read\n{each}"
    if not os.path.isdir(model_dir):
        return f"there is no directory {model_dir}; give a run's directory, its MODEL_DIR"
    above = found.directory.parent
    while above.name.isdigit():
        above = above.parent
    if above.name == DIRECTORY:
        return f"{model_dir} lies in the directory of a run; give that one: {above.parent}"
    return f"{model_dir} holds no checkpoint; give a run's directory, its MODEL_DIR"


def _title(found: Stored, step: int) -> str:
    """A step, when it was saved, and what it takes on disk."""
    when = found.commit_time(step)
    date = (
        ""
        if when is None
        else datetime.datetime.fromtimestamp(when / 1e9).isoformat(" ", "minutes")
    )
    path = found.path(step)
    size = sum((path / name).stat().length for name in checksums.files(path))
    return f"{step:>10}  {date:16}  {size / _MIB:10.1f} MiB"


def _table(leaves: list[tuple[str, jax.ShapeDtypeStruct]]) -> Iterator[str]:
    width = max(len(name) for name, _ in leaves)
    total = 0
    for name, leaf in leaves:
        size = int(np.prod(leaf.shape)) * np.dtype(leaf.dtype).itemsize
        total += size
        shape = " x ".join(map(str, leaf.shape)) or "-"
        yield f"  {name:{width}}  {np.dtype(leaf.dtype).name:9} {shape:24} {size / _MIB:10.2f} MiB"
    yield f"  {len(leaves)} tensors, {total / _MIB:.1f} MiB"


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m gshard_train.checkpointing.show",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("model_dir", metavar="MODEL_DIR", help="the run's directory")
    parser.add_argument("--step", type=int, metavar="N", help="default: all")
    parser.add_argument(
        "--compare", action="store_true", help="read all files and compare their sums"
    )
    parser.add_argument("--config", action="store_true", help="print its configuration alone")
    return parser


if __name__ == "__main__":
    main()
