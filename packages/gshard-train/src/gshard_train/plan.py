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

_VARIED = "mesh,rules,num_groups,remat,microbatches,dispatch"


def define(values: flags.FlagValues = flags.FLAGS) -> None:
    """Defines the flags that the other binaries do not have."""

    def text(name: str, default: str, help_: str) -> None:
        flags.DEFINE_string(name, default, help_, flag_values=values)

    def number(name: str, default: float | None, help_: str) -> None:
        flags.DEFINE_float(name, default, help_, flag_values=values)

    text("topology", "", "The machine, as v3:8x8 (128 cores), v4:4x4x8, v5p:4x4x8 or v6e:16x16.")
    flags.DEFINE_integer("num_slices", 1, "How many of them.", flag_values=values)
    flags.DEFINE_list(
        "vary", _VARIED.split(","), "Comma-separated, what is varied.", flag_values=values
    )
    text("out", "plan.gin", "Where the best layout is written; empty for nowhere.")
    text("results", "", "Folder of results; by default one in the user's cache.")
    number("time_limit", 600.0, "Seconds for everything.")
    number("compile_limit", 300.0, "Seconds for one layout.")
    flags.DEFINE_integer(
        "candidates", None, "How many layouts are compiled at most.", flag_values=values
    )
    number("tokens", 1e12, "Source tokens of the whole training, for days and money.")
    number("price", None, "Money for an hour of one device (on TPU v3 a core).")


def main() -> int:
    """Searches with what the flags say; 1 where nothing fits."""
    from gshard_train.planning.kept import default_folder
    from gshard_train.planning.options import Options
    from gshard_train.planning.planner import plan
    from gshard_train.precompiling.job import Job

    values = flags.FLAGS
    job = Job(
        gin_files=tuple(values.gin_file),
        gin_bindings=tuple(values.gin_bindings),
        gin_search_paths=tuple(values.gin_search_paths),
        topology=values.topology,
        num_slices=values.num_slices,
    )
    options = Options(
        out=values.out,
        results=values.results or str(default_folder()),
        time_limit=values.time_limit,
        compile_limit=values.compile_limit,
        candidates=values.candidates,
        vary=tuple(values.vary),
        tokens=values.tokens,
        price=values.price,
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
