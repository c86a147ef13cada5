r"""Searches the layout of a model that is fastest on a machine, without the machine.

    python -m gshard_train.plan --gin_file=gshard_train/configs/models/moe_128e_36l.gin \
        --topology=v3:8x8 --out=plan.gin

Layouts (the mesh, which rules split the model, groups, what is computed again, microbatches, how
tokens are dispatched) go through the checks, then the most promising ones through the TPU compiler,
until the time is over or none is left that could be faster. The table of what was compiled is
printed, and the best layout written as a gin file that includes yours. Results are kept: the same
command goes on where it was stopped.

Exits with 1 where nothing fits.
"""

from absl import flags

from gshard_train import binary
from gshard_train.errors import UserError
from gshard_train.precompiling import machine_flags

PROGRAM = "gshard-plan"
_VARIED = "mesh,rules,num_groups,remat,microbatches,dispatch"
_TIMEOUT = 300.0


def define(values: flags.FlagValues = flags.FLAGS) -> None:
    """Defines the flags."""
    machine_flags.define(values)
    values.set_default("timeout", _TIMEOUT)
    values["mesh"].help = "Mesh axes instead of those of the gin files, for their own layout."
    values["dry_run"].help = "Show what would be compiled first, and end without compiling."
    flags.DEFINE_list(
        "vary",
        _VARIED.split(","),
        "Comma-separated, what is varied. num_groups belongs to the model: with other groups other "
        "tokens share an expert's slots.",
        flag_values=values,
    )
    flags.DEFINE_string(
        "out", "plan.gin", "Where the best layout is written; empty: nowhere.", flag_values=values
    )
    flags.DEFINE_string("html", None, "Write the search as a page.", flag_values=values)
    flags.DEFINE_string(
        "results",
        None,
        "Folder where results of compiling are kept, so that the same command goes on; by default "
        "one in the user's cache.",
        flag_values=values,
    )
    flags.DEFINE_float("time_limit", 570.0, "Seconds for the search.", flag_values=values)
    flags.DEFINE_integer(
        "candidates", None, "How many layouts are compiled at most.", flag_values=values
    )


def main() -> int:
    """Searches with what the flags say, and returns the exit code."""
    values = flags.FLAGS
    if faults := list(machine_flags.faults(values)):
        raise UserError(*faults)
    # They take seconds.
    from gshard_train.planning.kept import default_folder
    from gshard_train.planning.options import Options
    from gshard_train.planning.planner import plan
    from gshard_train.precompiling.configuration import loaded_config

    job = machine_flags.asked_job(values)
    if values.print_config:
        print(loaded_config(job).origins(), end="")
        return 0
    options = Options(
        out=values.out,
        results=values.results or str(default_folder()),
        time_limit=values.time_limit,
        compile_limit=values.timeout,
        candidates=values.candidates,
        vary=tuple(values.vary),
        tokens=values.tokens,
        price=values.price,
        html=values.html or "",
        dry_run=values.dry_run,
    )
    found = plan(job, options)
    return int(found is not None and found.best is None)


def run() -> None:
    """Entry point of `gshard-plan`."""
    define()
    binary.run_without_devices("gshard-plan", __doc__ or "", main)


if __name__ == "__main__":
    run()
