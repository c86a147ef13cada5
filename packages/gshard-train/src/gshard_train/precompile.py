r"""Compiles a run's program for a TPU machine that is not here, and says what it would cost there.

    python -m gshard_train.precompile --topology=v3:32x32 \
        --gin_file=gshard_train/configs/models/moe_2048e_36l.gin

The program is the training step that gshard-train would run, with its shardings, optimizer, donated
buffers and remat; with --mode=eval or decode what gshard-eval or gshard-infer would run. A model
file is enough; a run file, or a run's config.gin, may be given too. The devices that it names are
replaced by those of the topology. No data is read and nothing is written but what is asked for.

Topologies: v2:AxB, v3:AxB, v5e:AxB, v6e:AxB, v4:AxBxC, v5p:AxBxC, tpu7x:AxBxC, in chips; on v2, v3
and tpu7x a chip has two devices. Needs the TPU compiler: pip install 'gshard-train[tpu]'.

Exit code 0: it fits (with --dry_run: it may). 1: it does not, the compiler failed or was not done
in time, or a file was not written. 2: something has to be mended first.
"""

import dataclasses
import sys
from typing import TYPE_CHECKING

from absl import flags, logging

from gshard_train import binary
from gshard_train.errors import UserError
from gshard_train.precompiling import card_files, machine_flags

if TYPE_CHECKING:
    from gshard_train.precompiling.card import CostCard
    from gshard_train.precompiling.compiler import Compiler, Progress
    from gshard_train.precompiling.job import Job, Result

PROGRAM = "gshard-precompile"
FITS, FITS_NOT = 0, 1
_TOLD_SECONDS = 15.0
_GIB = 2**30


def define(values: flags.FlagValues = flags.FLAGS) -> None:
    """Defines the flags."""
    machine_flags.define(values)
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
    card_files.define(values)
    flags.DEFINE_bool(
        "advise",
        True,
        "Where it does not fit, compile changes of it until one does, and say which.",
        flag_values=values,
    )


def main() -> int:
    """Compiles, prints the card, writes the files, and returns the exit code."""
    values = flags.FLAGS
    if faults := [*machine_flags.faults(values), *card_files.faults(values)]:
        raise UserError(*faults)
    from gshard_train.precompiling.compiler import Compiler

    job = machine_flags.asked_job(values)
    if values.print_config:
        from gshard_train.precompiling.configuration import loaded_config

        print(loaded_config(job).origins(), end="")
        return FITS
    with Compiler(on_progress=_Told()) as compiler:
        try:
            result = _result(compiler, job)
            card = None if result.facts is None else _card(compiler, result)
        except KeyboardInterrupt:
            raise KeyboardInterrupt("interrupted; the compiler is ended too") from None
    all_written = card is None or _show(card, result)
    if result.fault:
        print(f"{PROGRAM}: {result.fault.message}", file=sys.stderr)
    if card is None or card.fits is False:
        return FITS_NOT
    return FITS if values.dry_run or (card.fits and all_written) else FITS_NOT


def _show(card: "CostCard", result: "Result") -> bool:
    """Prints the card and writes its files; whether all of them were written."""
    print(card.text(), flush=True)
    files = list(card_files.write(flags.FLAGS, card, result))
    for written, said in files:
        print(said, file=sys.stdout if written else sys.stderr)
    return all(written for written, _ in files)


def _result(compiler: "Compiler", job: "Job") -> "Result":
    """The result of a job that was not refused; without facts where nobody got so far."""
    values = flags.FLAGS
    if values.dry_run:
        result = compiler.describe(job)
    else:
        result = compiler.compile(job, timeout_seconds=values.timeout)
    if result.fault and result.fault.kind == "refused":
        raise UserError(*result.fault.message.splitlines())
    return result


def _card(compiler: "Compiler", result: "Result") -> "CostCard":
    """The card, with advice where it does not fit."""
    from gshard_train.precompiling.advice import advise
    from gshard_train.precompiling.card import cost_card

    values = flags.FLAGS
    card = cost_card(result, tokens=values.tokens, price=values.price)
    is_compiled = result.report is not None or result.fault is not None
    if not values.advise or not is_compiled or card.fits is not False:
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
