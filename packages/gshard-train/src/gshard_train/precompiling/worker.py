"""The process that compiles: takes jobs from one pipe and answers into another.

    python -m gshard_train.precompiling.worker REQUESTS ANSWERS FOLDER

REQUESTS and ANSWERS are numbers of open files, FOLDER is one for what is written on the way.

A request is a line of JSON, `{"do": "compile", "job": {...}}`, or "describe". An answer is several:
`{"doing": "compiling"}` as it goes on, `{"facts": "..."}` when more is known, and at last
`{"result": "..."}` as `job_json.result_json` writes it. The process ends with its requests.
"""

import dataclasses
import faulthandler
import json
import os
import queue
import shutil
import sys
import threading
import time
import traceback
from collections.abc import Callable
from typing import Any

from gshard_annotate.inspector.too_large import TooLargeError
from gshard_train.errors import UserError
from gshard_train.precompiling import host_memory, job_json
from gshard_train.precompiling.job import Fault, Job, Result
from gshard_train.precompiling.too_large import too_large

Tell = Callable[..., None]
_LINES_OF_AN_ERROR = 12


def main(requests: int, answers: int, folder: str) -> None:
    """Does what is asked until nobody is there to ask."""
    faulthandler.enable()
    waiting: queue.SimpleQueue[str] = queue.SimpleQueue()
    threading.Thread(target=_read, args=(requests, waiting, folder), daemon=True).start()
    _prepare_jax()
    with os.fdopen(answers, "w", encoding="utf-8") as out:

        def tell(**message: Any) -> None:
            out.write(json.dumps(message) + "\n")
            out.flush()

        tell(doing="waiting")
        while True:
            asked = json.loads(waiting.get())
            job = job_json.job_from_json(json.dumps(asked["job"]))
            tell(result=job_json.result_json(_done(job, asked["do"] == "compile", tell)))


def _read(requests: int, waiting: "queue.SimpleQueue[str]", folder: str) -> None:
    """Passes requests on; their end is the end of who asks, and so of this process.

    Even in the middle of compiling: nobody is left to read the answer.
    """
    with os.fdopen(requests, encoding="utf-8") as lines:
        for line in lines:
            waiting.put(line)
    shutil.rmtree(folder, ignore_errors=True)
    os._exit(0)


def _prepare_jax() -> None:
    import jax

    # Constants and keys stay off any accelerator that is present.
    jax.config.update("jax_platforms", "cpu")
    # A program that is found in a cache has no steps that the inspector could read.
    jax.config.update("jax_enable_compilation_cache", False)


def _done(job: Job, compiles: bool, tell: Tell) -> Result:
    """The job's result; what is wrong with the job is in it."""
    host_memory.forget_peak()
    result = Result(job=job)
    try:
        result = _compiled(job, compiles, tell, result)
    except _StoppedError as stopped:
        result = stopped.result
    result = dataclasses.replace(result, host_peak_bytes=host_memory.peak_bytes())
    if compiles:
        import jax

        jax.clear_caches()  # programs that were traced are not asked for again
    return result


class _StoppedError(Exception):
    def __init__(self, result: Result):
        self.result = result


def _compiled(job: Job, compiles: bool, tell: Tell, result: Result) -> Result:
    from gshard_annotate.inspector.inspecting import inspect_lowered
    from gshard_train.precompiling.program import described, lower, program_of

    tell(doing="checking")
    program = _attempt(result, lambda: program_of(job))
    result = dataclasses.replace(result, facts=described(program))
    if not compiles:
        return result
    tell(facts=job_json.result_json(result))
    tell(doing="tracing")
    began = time.monotonic()
    lowered = _attempt(result, lambda: lower(program), lower_seconds=began)
    result = dataclasses.replace(result, lower_seconds=time.monotonic() - began)
    tell(doing="compiling")
    began = time.monotonic()
    mesh = program.prepared.mesh
    # Decoding ends when all sentences have; the longest that they may be is counted.
    trips = program.experiment.task_feature_lengths["targets"] if job.mode == "decode" else 1
    _, report = _attempt(
        result,
        lambda: inspect_lowered(lowered, mesh=mesh, title=title(job), assumed_trips=trips),
        compile_seconds=began,
    )
    report = dataclasses.replace(report, notes=(*report.notes, *program.notes))
    result = dataclasses.replace(result, report=report, compile_seconds=report.compile_seconds)
    if path := job.save_program:
        tell(facts=job_json.result_json(result))  # whatever saving comes to
        tell(doing="compiling again, to save")
        result = dataclasses.replace(result, save_fault=_save(path, program, lowered))
    return result


def _save(path: str, program: Any, lowered: Any) -> str:
    """Writes the program; returns why it could not."""
    from gshard_train.precompiling import saved_program

    try:
        # The program that was inspected would write down its steps again wherever it is loaded.
        compiled = lowered.compile()
        saved_program.save(path, compiled, lowered, mesh=program.prepared.mesh, config=program.text)
    except OSError as error:
        return f"save_program={path} cannot be written: {error.strerror or error}"
    except Exception as error:
        traceback.print_exc()
        return f"save_program={path}: {_said(error)}"
    return ""


def title(job: Job) -> str:
    """What a program is called."""
    names = [os.path.basename(file).removesuffix(".gin") for file in job.gin_files]
    return f"{'+'.join(names) or 'program'} ({job.mode})"


def _attempt(result: Result, do: Callable[[], Any], **since: float) -> Any:
    """What `do` returns.

    Args:
      result: what is known so far.
      do: what is tried.
      **since: a field of the result for seconds, and when they began.

    Raises:
      _StoppedError: with the result in which the fault is told.
    """
    try:
        return do()
    except UserError as error:
        fault = Fault(kind="refused", message=str(error))
    except TooLargeError as error:
        fault = too_large(error)
    except Exception as error:
        traceback.print_exc()
        fault = Fault(kind="failed", message=_said(error))
    seconds: dict[str, Any] = {name: time.monotonic() - began for name, began in since.items()}
    raise _StoppedError(dataclasses.replace(result, fault=fault, **seconds))


def _said(error: Exception) -> str:
    lines = [line for line in str(error).splitlines() if line.strip()] or [""]
    return "\n".join([f"{type(error).__name__}: {lines[0]}", *lines[1:_LINES_OF_AN_ERROR]])


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3])
