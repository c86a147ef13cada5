"""Compiling in a process of its own: whatever happens to it, the caller gets an answer."""

import contextlib
import dataclasses
import importlib.util
import json
import os
import select
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from typing import IO, Any, Literal

from gshard_train.precompiling import death, host_memory, job_json
from gshard_train.precompiling.job import Fault, Job, Result

_LIBTPU = (
    "the TPU compiler is not installed: there is no package libtpu; "
    "pip install 'gshard-train[tpu]' brings the one that fits this JAX"
)
_WORKER = "gshard_train.precompiling.worker"
_LOOK_SECONDS = 0.5
_TOLD_SECONDS = 1.0


@dataclasses.dataclass(frozen=True)
class Progress:
    """How far the child is.

    Attributes:
      doing: "starting", "checking", "tracing", "compiling" or "compiling again, to save".
      seconds: since the job was given.
      host_bytes: memory of the child now.
      pid: the child's.
    """

    doing: str
    seconds: float
    host_bytes: int
    pid: int


class Compiler:
    """A child process that compiles jobs one after the other; a `with` block ends it.

    A child that died with a job is started again for the next one.

    Args:
      on_progress: called in the caller's thread when the child goes on to something else, and
        once a second.
    """

    def __init__(self, *, on_progress: Callable[[Progress], None] | None = None):
        self._on_progress = on_progress
        self._child: _Child | None = None

    def __enter__(self) -> "Compiler":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Ends the child, whatever it does."""
        if self._child:
            self._child.end()
            self._child = None

    def compile(self, job: Job, *, timeout_seconds: float | None = None) -> Result:
        """Compiles a job; what is wrong with it, or happens to the compiler, is `Result.fault`.

        Args:
          job: what is compiled.
          timeout_seconds: after so long the child is ended.
        """
        return self._ask("compile", job, timeout_seconds)

    def describe(self, job: Job) -> Result:
        """What is known of a job before it is compiled; nothing is compiled."""
        return self._ask("describe", job, None)

    def _ask(self, do: Literal["compile", "describe"], job: Job, timeout: float | None) -> Result:
        if importlib.util.find_spec("libtpu") is None:
            return Result(job=job, fault=Fault(kind="refused", message=_LIBTPU))
        if self._child and self._child.process.poll() is not None:
            self.close()  # it was killed while it waited
        if self._child is None:
            self._child = _Child()
        try:
            result = _Conversation(self._child, job, self._on_progress).ask(do, timeout)
        except BaseException:
            self.close()  # it would answer the next job with this one's result
            raise
        if self._child.is_given_up:
            self.close()
        return result


class _Child:
    """The process and its pipes."""

    def __init__(self):
        self.log: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 (closed by `end`)
        # What it writes on the way; it is not asked when it ends.
        self._folder = tempfile.mkdtemp(prefix="gshard-compiler-")
        ours, theirs = os.pipe(), os.pipe()
        self.answers, answering = ours
        asking, self._requests = theirs
        self.process = subprocess.Popen(
            [sys.executable, "-P", "-m", _WORKER, str(asking), str(answering), self._folder],
            pass_fds=(asking, answering),
            stdin=subprocess.DEVNULL,
            stdout=self.log,
            stderr=self.log,
            env=_environment(self._folder),
            start_new_session=True,  # Ctrl-C is for the parent, which ends the child itself
        )
        os.close(asking)
        os.close(answering)
        self.is_given_up = False
        self._unread = b""

    def send(self, message: Any) -> None:
        with contextlib.suppress(BrokenPipeError):  # that it died is seen where answers are read
            os.write(self._requests, json.dumps(message).encode() + b"\n")

    def messages(self) -> list[Any] | None:
        """What came within a moment; None when nothing will come any more."""
        ready, _, _ = select.select([self.answers], [], [], _LOOK_SECONDS)
        if not ready:
            return []
        if not (chunk := os.read(self.answers, 2**20)):
            return None
        *lines, self._unread = (self._unread + chunk).split(b"\n")
        return [json.loads(line) for line in lines]

    def end(self) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self.answers)
        os.close(self._requests)
        self.log.close()
        shutil.rmtree(self._folder, ignore_errors=True)

    def last_lines(self) -> list[str]:
        size = self.log.seek(0, os.SEEK_END)
        self.log.seek(max(0, size - 2**16))
        return self.log.read().decode("utf-8", "replace").splitlines()


class _Conversation:
    """One job's way through the child."""

    def __init__(self, child: _Child, job: Job, told: Callable[[Progress], None] | None):
        self._child, self._job, self._told = child, job, told
        self._began = time.monotonic()
        self._doing, self._host_bytes, self._host_peak = "starting", 0, 0
        self._since: dict[str, float] = {}  # when it began to do what
        self._so_far = Result(job=job)

    def ask(self, do: str, timeout: float | None) -> Result:
        job = json.loads(job_json.job_json(self._job))
        self._child.send({"do": do, "job": job})
        told = -_TOLD_SECONDS
        while True:
            seconds = time.monotonic() - self._began
            if timeout is not None and seconds > timeout:
                return self._ended(death.timed_out(self._scene(), timeout))
            before = self._doing
            messages = self._child.messages()
            if messages is None:
                return self._ended(self._died())
            for message in messages:
                if "result" in message:
                    return job_json.result_from_json(message["result"])
                self._take(message)
            self._look()
            if self._told and (before != self._doing or seconds - told >= _TOLD_SECONDS):
                told = seconds
                pid = self._child.process.pid
                self._told(Progress(self._doing, seconds, self._host_bytes, pid))

    def _take(self, message: dict[str, Any]) -> None:
        if "facts" in message:
            self._so_far = job_json.result_from_json(message["facts"])
        elif message["doing"] != "waiting":
            self._doing = message["doing"]
            self._since[self._doing] = time.monotonic()

    def _look(self) -> None:
        """Keeps what the child last had: of one that has ended nobody tells."""
        if now := host_memory.resident_bytes(self._child.process.pid):
            self._host_bytes = now
            self._host_peak = max(self._host_peak, now)

    def _died(self) -> Fault:
        return death.crashed(self._scene(), self._child.process.wait())

    def _scene(self) -> death.Scene:
        seconds = time.monotonic() - self._began
        return death.Scene(
            self._job, self._doing, seconds, self._host_bytes, self._child.last_lines()
        )

    def _ended(self, fault: Fault) -> Result:
        """What is known; a program that was compiled and could not be saved stays one."""
        self._child.is_given_up = True
        so_far = dataclasses.replace(self._so_far, host_peak_bytes=self._host_peak)
        if so_far.report is not None:
            return dataclasses.replace(so_far, save_fault=fault.message)
        ended = time.monotonic()
        compiling = self._since.get("compiling", ended)
        return dataclasses.replace(
            so_far,
            fault=fault,
            lower_seconds=compiling - self._since.get("tracing", compiling),
            compile_seconds=ended - compiling,
        )


def _environment(folder: str) -> dict[str, str]:
    """The parent's, so that the child imports what the parent would, and stays off accelerators."""
    path = os.pathsep.join(each or os.getcwd() for each in sys.path)
    own = {"PYTHONPATH": path, "JAX_PLATFORMS": "cpu", "TPU_STDERR_LOG_LEVEL": "2"}
    return {**os.environ, **own, "TMPDIR": folder}
