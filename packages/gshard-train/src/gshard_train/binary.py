"""What the binaries share: flags, help, and faults as lines with exit code 2."""

import logging
import os
import sys
import traceback
from collections.abc import Callable, Iterator, Sequence

from absl import app, flags
from absl import logging as absl_logging

from gshard_train import command_line, config, distributed, errors

_BUG = 1  # as Python has it
_HELP = {"--help", "-help", "-h", "-?", "--helpshort", "-helpshort"}


def run(
    program: str,
    description: str,
    main: Callable[[config.LoadedConfig, bool], None],
) -> None:
    """Parses the command line, loads the configuration and calls `main` with it.

    Args:
      program: its name in messages, such as `gshard-train`.
      description: what `--help` prints above the flags.
      main: called with the loaded configuration and whether this is a dry run.
    """

    def work(arguments: Sequence[str]) -> None:
        values = flags.FLAGS
        loaded = _load(arguments)
        if values.print_config:
            _print(loaded.origins())
            return
        distributed.join(command_line.processes(values), program=program)
        command_line.tell_seqio(values)
        main(loaded, values.dry_run)

    _run(program, description, command_line.define, work)


def run_without_devices(program: str, description: str, main: Callable[[], int | None]) -> None:
    """The same for a binary that is one process, computes nothing and reads the gin files itself.

    Args:
      program: its name in messages.
      description: what `--help` prints above the flags.
      main: called with nothing, since the flags are there; may return an exit code.
    """

    def work(arguments: Sequence[str]) -> int | None:
        if faults := list(_unexpected(arguments)):
            raise errors.UserError(*faults)
        return main()

    _run(program, description, command_line.define_gin, work)


def _run(
    program: str,
    description: str,
    define: Callable[[], None],
    work: Callable[[Sequence[str]], int | None],
) -> None:
    # TensorFlow only reads data and writes events here; its start-up messages help nobody.
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "0")
    values = flags.FLAGS
    if "gin_file" not in values:
        define()

    def parse(arguments: Sequence[str]) -> list[str]:
        if _HELP & set(arguments[1:]):
            _print(f"{description}\n{_flags(program)}\n\n--helpfull shows absl's too.\n")
            sys.exit(0)
        try:
            return values(command_line.gin_arguments(arguments))
        except flags.Error as error:
            sys.exit(_report(program, errors.UserError(f"{error}; --help lists the flags")))

    def guarded(arguments: Sequence[str]) -> int:
        all_leave = False
        try:
            _show_own_information()
            return work(arguments) or 0
        except errors.UserError as error:
            code = _report(program, error)
        except errors.PeerLostError as error:
            print(f"{program}: {error}", file=sys.stderr)
            code = error.exit_code
        except KeyboardInterrupt as interruption:
            said = str(interruption) or "interrupted; nothing was lost that was on disk"
            print(f"{program}: {said}", file=sys.stderr)
            code = getattr(interruption, "exit_code", errors.INTERRUPTED)
            all_leave = getattr(interruption, "of_all", False)
        except Exception:
            if not distributed.joined():
                raise
            traceback.print_exc()
            code = _BUG
        distributed.leave(code, all_leave=all_leave)
        return code

    app.run(guarded, flags_parser=parse)


def _flags(program: str) -> str:
    """The flags of all binaries, then those that this one has beside."""
    values = flags.FLAGS
    shared = command_line.__name__
    modules = [name for name in values.flags_by_module_dict() if not name.startswith("absl")]
    # A module that is run by name is called by its path.
    own = [
        values.module_help(name).strip().partition("\n")[2] for name in modules if name != shared
    ]
    return "\n".join([values.module_help(shared), f"\n{program}:" * bool(own), *own])


def _print(text: str) -> None:
    """Prints until the reader has enough, as `head` does."""
    try:
        print(text, end="", flush=True)
    except BrokenPipeError:
        # What is left would be complained about when the interpreter ends.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _show_own_information() -> None:
    """Logs at INFO level what our packages say; what libraries say only from WARNING on."""
    if flags.FLAGS["verbosity"].present:
        return
    absl_logging.set_verbosity(absl_logging.INFO)
    absl_logging.get_absl_handler().addFilter(
        lambda record: record.levelno > logging.INFO or "gshard" in record.pathname
    )


def _load(arguments: Sequence[str]) -> config.LoadedConfig:
    """The configuration.

    Raises:
      UserError: with the faults of flags and gin files together.
    """
    values = flags.FLAGS
    faults = list(command_line.faults(values))
    if extra := list(_unexpected(arguments)):
        raise errors.UserError(*faults, *extra)
    try:
        loaded = config.load(values.gin_file, values.gin_bindings, values.gin_search_paths)
    except errors.UserError as error:
        raise errors.UserError(*faults, *error.faults) from error
    if faults:
        raise errors.UserError(*faults)
    return loaded


def _unexpected(arguments: Sequence[str]) -> Iterator[str]:
    for extra in arguments[1:2]:
        hint = f"--gin_file={extra}" if extra.endswith(".gin") else "--gin.NAME=value"
        yield f"unexpected argument '{extra}'; did you mean {hint}?"


def _report(program: str, error: errors.UserError) -> int:
    if flags.FLAGS.is_parsed() and absl_logging.level_debug():
        traceback.print_exception(error)
    print(errors.report(program, error), file=sys.stderr)
    return getattr(error, "exit_code", errors.USER_ERROR)
