"""The flags that all binaries share, named as T5X names them."""

from collections.abc import Iterator, Sequence
from pathlib import Path

from absl import flags

from gshard_train.distributed import Processes


def define(values: flags.FlagValues = flags.FLAGS) -> None:
    """Defines the flags; `--gin.NAME=value` is handled by `gin_arguments`."""
    define_gin(values)
    _define_data(values)
    _define_processes(values)


def define_gin(values: flags.FlagValues = flags.FLAGS) -> None:
    """Defines those that say what is configured."""
    flags.DEFINE_multi_string(
        "gin_file",
        [],
        "A gin file, by path or by package (gshard_m4/configs/quickstart.gin). Repeatable: later "
        "files override earlier ones.",
        flag_values=values,
    )
    flags.DEFINE_multi_string(
        "gin_bindings",
        [],
        "One gin statement, after all files; --gin.NAME=value is the short form. Repeatable.",
        flag_values=values,
    )
    flags.DEFINE_list(
        "gin_search_paths",
        [],
        "Comma-separated directories in which gin files are looked for.",
        flag_values=values,
    )
    flags.DEFINE_bool(
        "print_config",
        False,
        "Print every value with the file and line, or the flag, that set it, and end.",
        flag_values=values,
    )
    flags.DEFINE_bool(
        "dry_run",
        False,
        "Build everything (mesh, shapes, shardings, data, the compiled program), say what was "
        "built, and end without doing or writing anything.",
        flag_values=values,
    )


def _define_data(values: flags.FlagValues) -> None:
    flags.DEFINE_string(
        "tfds_data_dir", None, "Where TFDS keeps its data sets.", flag_values=values
    )
    flags.DEFINE_list(
        "seqio_additional_cache_dirs",
        [],
        "Comma-separated directories with cached seqio tasks, beside those of the tasks' modules.",
        flag_values=values,
    )


def _define_processes(values: flags.FlagValues) -> None:
    flags.DEFINE_bool(
        "multiprocess_gpu",
        False,
        "This is one process of several, GPU or not, and the machine tells which (SLURM, Open "
        "MPI, Kubernetes, TPU pod) where the three flags below do not.",
        flag_values=values,
    )
    flags.DEFINE_string(
        "coordinator_address", None, "HOST:PORT of process 0 of several.", flag_values=values
    )
    flags.DEFINE_integer(
        "process_count", None, "How many processes the run has.", flag_values=values
    )
    flags.DEFINE_integer(
        "process_index", None, "Which of them this one is, from 0.", flag_values=values
    )
    flags.DEFINE_integer(
        "process_timeout",
        Processes.timeout_seconds,
        "Seconds to wait until all processes have come.",
        flag_values=values,
    )


def gin_arguments(arguments: Sequence[str]) -> list[str]:
    """A command line in which each `--gin.NAME=value` is spelt `--gin_bindings=NAME = value`."""
    spelt = []
    for argument in arguments:
        name, dot, binding = argument.partition(".")
        if dot and name in ("--gin", "-gin"):
            left, equals, right = binding.partition("=")
            argument = f"--gin_bindings={left} = {right}" if equals else f"--gin_bindings={left}"
        spelt.append(argument)
    return spelt


def processes(values: flags.FlagValues) -> Processes:
    """The processes of the run, as the flags tell."""
    return Processes(
        coordinator_address=values.coordinator_address,
        process_count=values.process_count,
        process_index=values.process_index,
        found_by_jax=values.multiprocess_gpu,
        timeout_seconds=values.process_timeout,
    )


def faults(values: flags.FlagValues) -> Iterator[str]:
    """What is wrong with the flags themselves, one sentence each."""
    yield from processes(values).faults()
    directories = {"--seqio_additional_cache_dirs": values.seqio_additional_cache_dirs}
    if values.tfds_data_dir is not None:
        directories["--tfds_data_dir"] = [values.tfds_data_dir]
    for flag, paths in directories.items():
        for path in paths:
            if "://" not in path and not Path(path).is_dir():
                yield f"{flag}={path}: there is no such directory; give one that is there"


def tell_seqio(values: flags.FlagValues) -> None:
    """Passes the directories on; seqio is imported for that only where there are any."""
    if not values.tfds_data_dir and not values.seqio_additional_cache_dirs:
        return
    import seqio

    if values.tfds_data_dir:
        seqio.set_tfds_data_dir_override(values.tfds_data_dir)
    if values.seqio_additional_cache_dirs:
        seqio.add_global_cache_dirs(values.seqio_additional_cache_dirs)
