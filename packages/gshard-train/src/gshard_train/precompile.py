r"""Compiles a run's program for a TPU machine that is not here, and says what it would cost there.

    python -m gshard_train.precompile --topology=v3:32x32 \
        --gin_file=gshard_train/configs/models/moe_2048e_36l.gin

The program is the training step that gshard-train would run, with its shardings, optimizer, donated
buffers and remat; with --mode=eval or decode what gshard-eval or gshard-infer would run. A model
file is enough; a run file, or a run's config.gin, may be given too. The devices that it names are
replaced by those of the topology. No data is read and nothing is written but what is asked for.

Topologies: v2:AxB, v3:AxB, v5e:AxB, v6e:AxB, v4:AxBxC, v5p:AxBxC, tpu7x:AxBxC, in chips; on v2, v3
and tpu7x a chip has two devices. Needs the TPU compiler: pip install 'gshard-train[tpu]'.

Exit code 0: it fits. 1: it does not, or the compiler failed. 2: something has to be mended first.
"""

import dataclasses
import math
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from absl import flags, logging

from gshard_train import binary, command_line
from gshard_train.errors import UserError

if TYPE_CHECKING:
    from gshard_train.precompiling.card import CostCard
    from gshard_train.precompiling.compiler import Compiler, Progress
    from gshard_train.precompiling.job import Job, Result

PROGRAM = "gshard-precompile"
FITS, FITS_NOT = 0, 1
_FILES = ("json", "html", "report", "save_program")
_TOLD_SECONDS = 15.0
_GIB = 2**30


def define(values: flags.FlagValues = flags.FLAGS) -> None:
    """Defines the flags."""
    define_machine(values)
    values["dry_run"].help = (
        "Check everything, print sizes, shapes and what each device would hold, and end without "
        "compiling."
    )
    flags.DEFINE_enum(
        "mode",
        "train",
        ["train", "eval", "decode"],
        "Which program: the training step, the scoring of given targets, or the translation.",
        flag_values=values,
    )
    flags.DEFINE_string("json", None, "Write the cost card as JSON.", flag_values=values)
    flags.DEFINE_string("html", None, "Write the cost card as a page.", flag_values=values)
    flags.DEFINE_string(
        "report",
        None,
        "Write the inspector's report of the program, as JSON or, by the file's ending .html, as "
        "a page.",
        flag_values=values,
    )
    flags.DEFINE_string(
        "save_program",
        None,
        "Compile the training step once more and write it: training.train.program = 'FILE' takes "
        "it on such a machine.",
        flag_values=values,
    )
    flags.DEFINE_bool(
        "advise",
        True,
        "Where it does not fit, compile changes of it until one does, and say which.",
        flag_values=values,
    )


def define_machine(values: flags.FlagValues = flags.FLAGS) -> None:
    """Defines the flags of what is compiled, for which machine, and how it is priced."""
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


def main() -> int:
    """Compiles, prints the card, writes the files, and returns the exit code."""
    values = flags.FLAGS
    if faults := [*machine_faults(values), *_file_faults(values)]:
        raise UserError(*faults)
    from gshard_train.precompiling.compiler import Compiler
    from gshard_train.precompiling.configuration import loaded_config

    job = asked_job(values)
    if values.print_config:
        print(loaded_config(job).origins(), end="")
        return FITS
    with Compiler(on_progress=_Told()) as compiler:
        try:
            result = _result(compiler, job)
            card = _card(compiler, result)
        except KeyboardInterrupt:
            raise KeyboardInterrupt("interrupted; the compiler is ended too") from None
    print(card.text(), flush=True)
    _write(card, result)
    if result.fault:
        print(f"{PROGRAM}: {result.fault.message}", file=sys.stderr)
    return FITS if values.dry_run or card.fits else FITS_NOT


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


def machine_faults(values: flags.FlagValues) -> Iterator[str]:
    """What is wrong with the flags of `define_machine`."""
    if not values.gin_file and not values.gin_bindings:
        yield (
            "--gin_file is missing; for example "
            "--gin_file=gshard_train/configs/models/moe_128e_12l.gin"
        )
    if not values.topology:
        yield "--topology is missing; for example --topology=v3:8x8, which has 128 cores"
    if values.num_slices < 1:
        yield f"--num_slices={values.num_slices} must be at least 1"
    if values.mesh is not None:
        try:
            list(_mesh_axes(values.mesh))
        except ValueError:
            yield f"--mesh={values.mesh} must be sizes by name, as --mesh=data=1,expert=2048"
    if not 0 < values.tokens < math.inf:
        yield f"--tokens={values.tokens:g} must be above 0, as --tokens=1e12"
    if values.price is not None and not 0 <= values.price < math.inf:
        yield f"--price={values.price:g} must be at least 0: money for an hour of one device"
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


def _file_faults(values: flags.FlagValues) -> Iterator[str]:
    for name in _FILES:
        if file := values[name].value:
            if Path(file).is_dir():
                yield f"--{name}={file} is a directory; give a file"
            elif not Path(file).absolute().parent.is_dir():
                yield f"--{name}={file}: there is no directory {Path(file).parent}; make it"


def _result(compiler: "Compiler", job: "Job") -> "Result":
    """The result of a job that was not refused."""
    values = flags.FLAGS
    if values.dry_run:
        result = compiler.describe(job)
    else:
        result = compiler.compile(job, timeout_seconds=values.timeout)
    if result.fault and (result.fault.kind == "refused" or result.facts is None):
        raise UserError(*result.fault.message.splitlines())
    return result


def _card(compiler: "Compiler", result: "Result") -> "CostCard":
    """The card, with advice where it does not fit."""
    from gshard_train.precompiling.advice import advise
    from gshard_train.precompiling.card import cost_card

    values = flags.FLAGS
    card = cost_card(result, tokens=values.tokens, price=values.price)
    if not values.advise or not result.fault or result.fault.kind != "too large":
        return card
    logging.info("It %s. Looking for what would make it fit.", card.verdict)
    try:
        advice = advise(
            compiler,
            result,
            timeout_seconds=values.timeout,
            on_try=lambda what: logging.info("Trying %s.", what),
            on_tried=lambda tried: logging.info("%s", tried),
        )
    except KeyboardInterrupt:
        print(card.text(), flush=True)  # what is known already
        raise
    return dataclasses.replace(card, advice=advice)


def _write(card: "CostCard", result: "Result") -> None:
    from gshard_annotate.inspector.json_form import write_beside

    values = flags.FLAGS
    if values.json:
        write_beside(values.json, card.json())
    if values.html:
        write_beside(values.html, card.html())
    if values.report and result.report:
        as_page = values.report.endswith(".html")
        write_beside(values.report, result.report.html() if as_page else result.report.json())


class _Told:
    """Says what the compiler does when that changes, and now and then."""

    def __init__(self):
        self._doing, self._told = "", 0.0

    def __call__(self, progress: "Progress") -> None:
        since = progress.seconds - self._told
        if progress.doing == self._doing and 0 <= since < _TOLD_SECONDS:
            return
        self._doing, self._told = progress.doing, progress.seconds
        logging.info(
            "%s: %.0f s, %.1f GiB of this machine's memory.",
            progress.doing.capitalize(),
            progress.seconds,
            progress.host_bytes / _GIB,
        )


def run() -> None:
    """Entry point of `gshard-precompile`."""
    define()
    binary.run_without_devices(PROGRAM, __doc__ or "", main)


if __name__ == "__main__":
    run()
