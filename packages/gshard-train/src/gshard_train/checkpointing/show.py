"""What lies in the checkpoints of a run, told on any machine: no mesh, no model, no gin file.

    python -m gshard_train.checkpointing.show MODEL_DIR [--step N] [--compare] [--config]

Nothing is written, and a run may go on meanwhile.
"""

import argparse
import datetime
import json
import os
import sys
from collections.abc import Iterator

import jax
import numpy as np
from etils import epath

from gshard_train.checkpointing import checksums, tensors
from gshard_train.checkpointing.checkpoint import DIRECTORY
from gshard_train.checkpointing.stored import Stored
from gshard_train.errors import USER_ERROR, UserError, report

_MIB = 2**20


def main(arguments: list[str] | None = None) -> None:
    """Prints what is asked for."""
    options = _parser().parse_args(arguments)
    # The machine's accelerators may be in use, and are not needed.
    jax.config.update("jax_platforms", "cpu")
    try:
        for line in lines(options.model_dir, options.step, options.compare, options.config):
            print(line)
    except UserError as error:
        print(report("show", error), file=sys.stderr)
        sys.exit(USER_ERROR)


def lines(model_dir: str, step: int | None, compare: bool, config: bool) -> Iterator[str]:
    """What there is to tell of a run's steps, and of one of them.

    Args:
      model_dir: the run's directory.
      step: which one; None for the newest that can be read.
      compare: whether to read all files and compare their sums.
      config: only the run's configuration, as a gin file has it.

    Raises:
      UserError: there is no checkpoint, or not this one, or it is damaged.
    """
    found = Stored(epath.Path(os.path.abspath(model_dir)) / DIRECTORY)
    steps = found.steps()
    damages = {one: found.damage(one) for one in steps}
    if step is None:
        step = next((one for one in reversed(steps) if not damages[one]), None)
    if step is None:
        raise UserError(f"{found.directory} holds no checkpoint that can be read{_each(damages)}")
    leaves = tensors.listed(found.tensors(step))
    if config:
        yield found.run(step).get("config") or f"# checkpoint {step} does not tell it"
        return
    for one in steps:
        yield f"{_title(found, one)}   {damages[one] or 'can be read'}"
    if compare:
        yield f"sums of {step}: {found.changes(step) or _agreement(found, step)}"
    yield f"\ncheckpoint {step}"
    for name, value in found.run(step).get("identity", {}).items():
        yield f"  {name:24} {value}"
    yield f"  {'position':24} {json.dumps(found.feed(step))}"
    yield ""
    yield from _table(leaves)


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


def _agreement(found: Stored, step: int) -> str:
    summed_up = checksums.summed_up(found.path(step))
    return "all files are as they were written" if summed_up else "there are none to compare with"


def _each(damages: dict[int, str]) -> str:
    return "".join(f"\n{step}: {damage}" for step, damage in damages.items())


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
    parser.add_argument("--step", type=int, metavar="N", help="default: the newest")
    parser.add_argument(
        "--compare", action="store_true", help="read all its files and compare their sums"
    )
    parser.add_argument("--config", action="store_true", help="print its configuration alone")
    return parser


if __name__ == "__main__":
    main()
