"""Flags that say what is compiled, for which machine, and how it is priced."""

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING

from absl import flags

from gshard_train import command_line

if TYPE_CHECKING:
    from gshard_train.precompiling.job import Job


def define(values: flags.FlagValues = flags.FLAGS) -> None:
    """Defines them."""
    if "gin_file" not in values:
        command_line.define_gin(values)
    flags.DEFINE_string(
        "topology", None, "The machine: v3:32x32 has 1024 chips, 2048 cores.", flag_values=values
    )
    flags.DEFINE_integer("num_slices", 1, "How many such slices it has.", flag_values=values)
    flags.DEFINE_string(
        "mesh",
        None,
        "Mesh axes instead of those of the gin files: data=1,expert=2048. One may be -1: what is "
        "left.",
        flag_values=values,
    )
    flags.DEFINE_float(
        "tokens", 1e12, "Source tokens of the run whose days are estimated.", flag_values=values
    )
    flags.DEFINE_float(
        "price", None, "Money for an hour of one device, for the whole run's.", flag_values=values
    )
    flags.DEFINE_float(
        "timeout", 3600.0, "Seconds that one program may take to compile.", flag_values=values
    )


def asked_job(values: flags.FlagValues) -> "Job":
    """The job that the flags describe."""
    from gshard_train.precompiling.job import Job
    from gshard_train.precompiling.layout import Layout

    mesh = None if values.mesh is None else dict(_mesh_axes(values.mesh))
    return Job(
        gin_files=tuple(values.gin_file),
        gin_bindings=tuple(values.gin_bindings),
        gin_search_paths=tuple(values.gin_search_paths),
        topology=values.topology,
        num_slices=values.num_slices,
        mode=getattr(values, "mode", "train"),
        layout=Layout(mesh=mesh),
        save_program=getattr(values, "save_program", None),
    )


def faults(values: flags.FlagValues) -> Iterator[str]:
    """What is wrong with them."""
    from gshard_annotate.tpu_topologies import topology_fault

    if not values.gin_file and not values.gin_bindings:
        yield (
            "--gin_file is missing; for example "
            "--gin_file=gshard_train/configs/models/moe_128e_12l.gin"
        )
    if not values.topology:
        yield "--topology is missing; for example --topology=v3:8x8, which has 128 cores"
    elif fault := topology_fault(values.topology):
        yield f"--topology={values.topology}: {fault}"
    if values.num_slices < 1:
        yield f"--num_slices={values.num_slices} must be at least 1"
    if values.mesh is not None:
        try:
            list(_mesh_axes(values.mesh))
        except ValueError:
            yield f"--mesh={values.mesh} must be sizes by name, as --mesh=data=1,expert=2048"
    if not 0 < values.tokens < math.inf:
        yield f"--tokens={values.tokens:g} must be a finite number above 0, as --tokens=1e12"
    if values.price is not None and not 0 <= values.price < math.inf:
        yield (
            f"--price={values.price:g} must be a finite number, at least 0: money for an hour of "
            "one device"
        )
    if not values.timeout > 0:
        yield f"--timeout={values.timeout:g} must be above 0: seconds for one program"


def _mesh_axes(text: str) -> Iterator[tuple[str, int]]:
    names = set()
    for part in text.split(","):
        name, equals, size = part.partition("=")
        if not equals or not name.strip().isidentifier() or name.strip() in names:
            raise ValueError(part)
        names.add(name.strip())
        yield name.strip(), int(size)
