"""Faults that the person who started the program can mend: shown as lines, never as a traceback."""

import contextlib
import difflib
from collections.abc import Iterable, Iterator

# Exit codes: no restart mends a user's error, while starting again goes on after all others.
USER_ERROR = 2
RESTART = 75  # EX_TEMPFAIL of sysexits.h
INTERRUPTED = 130  # Ctrl-C, as shells have it
# What set-up code raises for a wrong value, a missing file or a directory that cannot be used.
_MENDABLE = (ValueError, FileNotFoundError, NotADirectoryError, IsADirectoryError, PermissionError)
# gin adds such a line to every exception that passes one of its wrappers.
_GIN_NOTE = "  In call to configurable "


class UserError(ValueError):
    """One or several faults in what a user gave; each is one message that says what to do.

    Attributes:
      exit_code: of the program that ends with it.
    """

    exit_code = USER_ERROR

    def __init__(self, *faults: str):
        super().__init__(*faults)
        self.faults = faults

    def __str__(self) -> str:
        return "\n".join(self.faults)


class PeerLostError(RuntimeError):
    """Another process of the run does not answer any more; this one cannot go on without it."""

    exit_code = RESTART


@contextlib.contextmanager
def reported_as_user_error() -> Iterator[None]:
    """A scope for set-up code: a `ValueError` or missing file raised in it becomes a `UserError`.

    Only for what runs before the first step on the devices, where a `ValueError` speaks about
    what was configured. Later ones keep their traceback.
    """
    try:
        yield
    except UserError:
        raise
    except _MENDABLE as error:
        raise UserError(message(error)) from error


def message(error: BaseException) -> str:
    """The text of an exception without the notes that gin adds to it."""
    lines = [line for line in str(error).split("\n") if not line.startswith(_GIN_NOTE)]
    return "\n".join(lines).strip() or type(error).__name__


def report(program: str, error: UserError) -> str:
    """Each fault on a line of its own that starts with the program's name."""
    return "\n".join(f"{program}: {fault}" for fault in message(error).split("\n") if fault.strip())


def did_you_mean(name: str, candidates: Iterable[str], *, count: int = 1) -> str:
    """`"; did you mean X or Y?"` for the nearest candidates, or nothing when none is near."""
    by_lower_case = {candidate.lower(): candidate for candidate in candidates if candidate != name}
    near = difflib.get_close_matches(name.lower(), by_lower_case, n=count, cutoff=0.6)
    return f"; did you mean {' or '.join(by_lower_case[n] for n in near)}?" if near else ""
