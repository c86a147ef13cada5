"""What is said of a compiler that died, or that was given up."""

import re
import signal
from collections.abc import Sequence
from pathlib import PurePath
from typing import NamedTuple

from gshard_annotate.inspector.quantities import size
from gshard_train.precompiling import host_memory
from gshard_train.precompiling.job import Fault, Job

_GIB = 2**30
_SHOWN_LINES = 8
_STACK_BEGINS = "Fatal Python error"
_OF_A_STACK = re.compile(r"\s*(@|PC: @|\*\*\*)")


class Scene(NamedTuple):
    """What was going on.

    Attributes:
      job: what was compiled.
      doing: how far it was.
      seconds: since the job was given.
      host_bytes: memory of the compiler's process when it was last looked at; 0 where it never
        was.
      lines: what it had printed.
    """

    job: Job
    doing: str
    seconds: float
    host_bytes: int
    lines: Sequence[str]


def crashed(scene: Scene, code: int) -> Fault:
    """The fault of a compiler whose process ended by itself with this code of `Popen`."""
    if code < 0:
        name = signal.Signals(-code).name
        how = f"was ended by {name} ({signal.strsignal(-code)})"
    else:
        name, how = "", f"ended with exit code {code}"
    first = f"the compiler's process {how} after {scene.seconds:.0f} s, {_where(scene)}"
    last = [f"  it printed last: {line.strip()}" for line in _told(scene.lines)]
    return Fault(kind="crashed", message="\n".join([first, _advice(name), *last]))


def timed_out(scene: Scene, timeout: float) -> Fault:
    """The fault of a compiler that was ended because it took too long."""
    return Fault(
        kind="timed out",
        message=f"the compiler was ended after {timeout:g} s, the time it was given, "
        f"{_where(scene)}; give it longer (--timeout), or compile something smaller",
    )


def _where(scene: Scene) -> str:
    files = " + ".join(PurePath(file).name for file in scene.job.gin_files) or "the bindings"
    had = f"; it had {size(scene.host_bytes)} of this machine's memory" if scene.host_bytes else ""
    return (
        f"while {scene.doing} the {scene.job.mode} program of {files} for {scene.job.topology}{had}"
    )


def _told(lines: Sequence[str]) -> list[str]:
    """The last lines without the stacks that follow them, which say where this package was."""
    ends = [place for place, line in enumerate(lines) if line.startswith(_STACK_BEGINS)]
    told = [line for line in lines[: ends[-1] if ends else None] if line.strip()]
    return [line for line in told if not _OF_A_STACK.match(line)][-_SHOWN_LINES:]


def _advice(name: str) -> str:
    if name == "SIGKILL":
        free = host_memory.available_bytes() / _GIB
        return (
            "somebody killed it, or the system did for lack of memory (dmesg tells; "
            f"{free:.1f} GiB are free now): close other programs, or compile a smaller program"
        )
    return (
        "a fault of the compiler, not of the configuration: another layout (--mesh, dispatch, "
        "remat) may avoid it, or another version of libtpu"
    )
