"""Running a command so that the reader sees it, could repeat it, and learns what it cost."""

from __future__ import annotations

import dataclasses
import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence


@dataclasses.dataclass(frozen=True)
class Outcome:
    """How a command ended: its status, wall time and the resident size of its largest process."""

    status: int
    seconds: float
    peak_bytes: int
    interrupted: bool


def run(command: Sequence[str], *, environment: Mapping[str, str] | None = None) -> Outcome:
    """Runs `command` to its end with its output in the open.

    Ctrl-C reaches the command itself, since both sit in the terminal's foreground group; this
    process only waits, however long the command takes to put its things away. SIGTERM is passed on.

    Args:
      command: the program and its arguments.
      environment: variables set beside those of this process.
    """
    sys.stdout.flush()
    start = time.monotonic()
    child = subprocess.Popen(command, env={**os.environ, **(environment or {})})
    interrupted = False

    def pass_on(*_: object) -> None:
        nonlocal interrupted
        interrupted = True
        child.terminate()

    earlier = signal.signal(signal.SIGTERM, pass_on)
    try:
        while True:
            try:
                _, status, usage = os.wait4(child.pid, 0)
                break
            except KeyboardInterrupt:
                interrupted = True
    finally:
        signal.signal(signal.SIGTERM, earlier)
    child.returncode = os.waitstatus_to_exitcode(status)
    # 130 is how programs that put their things away first say that they were interrupted
    interrupted = interrupted or child.returncode in (-signal.SIGINT, -signal.SIGTERM, 130)
    # getrusage counts kibibytes on Linux, bytes on macOS
    peak = usage.ru_maxrss * (1 if sys.platform == "darwin" else 1024)
    return Outcome(child.returncode, time.monotonic() - start, peak, interrupted)


def shown(command: Sequence[str], environment: Mapping[str, str] | None = None) -> str:
    """The command as one line that a shell reads back as the same words."""
    variables = [f"{name}={_quoted(value)}" for name, value in (environment or {}).items()]
    return " ".join([*variables, *map(_quoted, command)])


def duration(seconds: float) -> str:
    """Seconds as people write them: `42 s`, `4 min 07 s`."""
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest:02d} s" if minutes else f"{rest} s"


def _quoted(word: str) -> str:
    """The word in the plainest quotes that keep it: gin's `--gin.NAME="'text'"` stays legible."""
    if shlex.quote(word) == word:
        return word
    flag, equals, value = word.partition("=")
    if not (equals and shlex.quote(flag) == flag):
        flag, equals, value = "", "", word
    if "'" not in value:
        return f"{flag}{equals}{shlex.quote(value)}"
    if not set(value) & set('"$`\\!'):
        return f'{flag}{equals}"{value}"'
    return f"{flag}{equals}{shlex.quote(value)}"
